#include <ATen/native/formats/operators/boxed/Foreach.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/Elementwise.h>

namespace at::formats {
namespace {

// The functional operator of an out= overload, whose name lacks "out".
c10::OperatorHandle functional_of(const c10::FunctionSchema& schema) {
  std::string overload = schema.overload_name().substr(0, schema.overload_name().size() - 3);
  if (!overload.empty()) overload.pop_back(); // the underscore before "out"
  return c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(), overload.c_str());
}

} // namespace

bool run_place_by_place(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack) {
  // Not below ADInplaceOrView: there single operators in place count a tensor's versions, and this
  // operator has no kernel.
  const at::AutoDispatchBelowAutograd guard;
  const size_t base = stack->size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    c10::IValue& value = (*stack)[base + i];
    // The stock kernel reads the numbers from their tensor's memory.
    if (plan.arguments[i].numbers && value.isTensor() && is_format_tensor(value.toTensor())) {
      value = to_stock(value.toTensor(), c10::ScalarType::Double);
    }
  }
  if (op.schema().arguments().back().name() != "out")
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack), true;
  // The stock overload would compare dtypes by their containers.
  const std::vector<at::Tensor> out = torch::jit::pop(*stack).toTensorVector();
  functional_of(op.schema()).callBoxed(stack);
  const std::vector<at::Tensor> results = torch::jit::pop(*stack).toTensorVector();
  TORCH_CHECK(out.size() == results.size(), plan.name, ": expected ", results.size(),
              " tensors to write to, but got ", out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    at::Tensor target = out[i];
    store(results[i], target, {});
    if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
  }
  return true;
}

} // namespace at::formats
