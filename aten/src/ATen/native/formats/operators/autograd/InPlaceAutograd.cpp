#include <ATen/native/formats/operators/autograd/InPlaceAutograd.h>

#include <ATen/FormatTensor.h>
#include <ATen/native/formats/operators/autograd/ForwardMode.h>
#include <ATen/ops/copy_ops.h>

#include <algorithm>

namespace at::formats {
namespace {

class InPlaceKernel final : public c10::OperatorKernel {
 public:
  InPlaceKernel(const c10::OperatorHandle& functional, const c10::FunctionSchema& schema)
      : functional_(functional),
        plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) const {
    at::Tensor self = (*stack)[stack->size() - plan_.arguments.size()].toTensor();
    if (!any_of_ours(plan_, *stack) || !is_differentiated(plan_, *stack)) {
      run_stock_formula(op, keys, stack);
      return;
    }
    // Backward may keep the tensor itself, which is written to below.
    if (plan_.has(fact::KeepsOperand) || !entry_beneath(self))
      (*stack)[stack->size() - plan_.arguments.size()] = self.clone();
    functional_.callBoxed(stack);
    const at::Tensor result = stack->back().toTensor();
    const FormatEntry* const made = entry_beneath(result);
    TORCH_CHECK(!made || entry_beneath(self) ||
                    !c10::isIntegralType(self.scalar_type(), /*includeBool=*/true),
                "result type ", made->name,
                // PyTorch's own words, also used without a gradient
                " can't be cast to the desired output type ", self.scalar_type());
    TORCH_CHECK(result.sizes() == self.sizes(), plan_.name,
                ": expected operands that broadcast to the sizes ", self.sizes(),
                " of the tensor that is written to, but got ", result.sizes());
    stack->back() = at::_ops::copy_::call(self, result, false);
  }

 private:
  c10::OperatorHandle functional_;
  Plan plan_;
};

} // namespace

static bool takes_the_same(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  return std::equal(
      a.arguments().begin(), a.arguments().end(), b.arguments().begin(), b.arguments().end(),
      [](const c10::Argument& x, const c10::Argument& y) { return *x.type() == *y.type(); });
}

std::optional<c10::OperatorHandle> functional_form(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.name().back() != '_' || schema.returns().size() != 1) return std::nullopt;
  const std::string name = schema.name().substr(0, schema.name().size() - 1);
  // pow_.Tensor's is pow.Tensor_Tensor; pow.Scalar has its operands in the other order.
  for (const char* before : {"", "Tensor_"}) {
    auto functional =
        c10::Dispatcher::singleton().findSchema({name, before + schema.overload_name()});
    if (functional && !functional->schema().is_mutable() &&
        takes_the_same(functional->schema(), schema))
      return functional;
  }
  return std::nullopt;
}

torch::CppFunction in_place_kernel(const c10::OperatorHandle& functional,
                                   const c10::FunctionSchema& schema) {
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<InPlaceKernel>(functional, schema));
}

} // namespace at::formats
