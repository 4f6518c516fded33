// Operators of other libraries than ATen, such as torchvision's or a user's own (torch.library),
// that have no kernel for number formats. Their CPU kernel runs on the exact values, and its
// results are rounded once, as for boxed operators of ATen. A library that knows format dtypes
// registers a kernel for PrivateUse2, or for all backends, and is called with format tensors.
#include <ATen/FormatTensor.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <c10/formats/ForkSafeMutex.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>

namespace at::formats {
namespace {

c10::formats::ForkSafeMutex mutex;

// Made at an operator's first call. The operator may be removed later; its plan is small and stays.
const Plan& plan_of(const c10::OperatorHandle& op) {
  static auto* plans = new std::map<std::string, std::unique_ptr<Plan>>;
  const std::string schema = c10::str(op.schema());
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Plan>& plan = (*plans)[schema];
  if (!plan) plan = std::make_unique<Plan>(op.schema());
  return *plan;
}

// Raises for several floating dtypes, as layers do: how a library promotes them is unknown.
void expect_one_floating_dtype(const Plan& plan, const torch::jit::Stack& stack) {
  const FormatEntry* own = nullptr;
  std::string name, other;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (!t.defined()) return;
      if (const FormatEntry* entry = entry_beneath(t)) {
        own = entry;
      } else if (c10::isFloatingType(t.scalar_type()) &&
                 !t.unsafeGetTensorImpl()->is_wrapped_number() && other.empty()) {
        name = plan.arguments[i].name;
        other = c10::getDtypeNames(t.scalar_type()).first;
      }
    });
  }
  TORCH_CHECK(!own || other.empty(), plan.name, ": expected floating tensors of torch.",
              own ? own->name : "", " alone, but got argument ", name, " with torch.", other,
              ". Convert it with .to().");
}

void run_on_values(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  const bool own_library = op.operator_name().getNamespace().value_or("") != "aten";
  const Plan& plan = plan_of(op);
  // Excludes operators that cannot run on copies of values: views share memory with the operand,
  // and collectives read and write it later. Also excludes format tensors in arguments that are not
  // searched (a tuple, a dictionary): the call would come back here.
  const bool collective = name.rfind("c10d::", 0) == 0 || name.rfind("_c10d_functional", 0) == 0 ||
      name.rfind("symm_mem::", 0) == 0;
  TORCH_CHECK_NOT_IMPLEMENTED(
      own_library && !collective && !Plan::makes_view(op.schema()) && any_of_ours(plan, *stack),
      name,
      ": expected tensors of stock dtypes, but got one of a number format, for which this operator "
      "has no kernel. Convert first, for example "
      "with x.float().");
  expect_one_floating_dtype(plan, *stack);
  const OutOfAutocast no_autocast;
  // A kernel made of differentiable operators gets its gradient from them, as with stock tensors.
  if (is_recorded(plan, *stack) && !op.schema().is_mutable()) {
    const BoxedCall call(plan, stack, Casts::Recorded);
    op.callBoxed(stack);
    return call.finish(op.schema().returns().size(), stack);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  const BoxedCall call(plan, stack);
  op.callBoxed(stack);
  call.finish(op.schema().returns().size(), stack);
}

} // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse2, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_values>());
}

// As for the CPU: an operator without a derivative raises when backward reaches it.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse2, m) {
  m.fallback(torch::autograd::basicAutogradNotImplementedFallback());
}

} // namespace at::formats
