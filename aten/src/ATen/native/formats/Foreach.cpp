#include <ATen/native/formats/Foreach.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/narrow_ops.h>

namespace at::formats {
namespace {

using torch::jit::Stack;

// How many places the lists of tensors have, if they all have as many and are mixed.
std::optional<size_t> places(const Plan& plan, const Stack& stack, size_t base) {
  std::optional<size_t> count;
  bool ours = false, stock = false;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (plan.arguments[i].slot != Plan::Slot::TensorList || !value.isTensorList()) continue;
    const size_t length = value.toListRef().size();
    if (count.value_or(length) != length) return std::nullopt;
    count = length;
    each_tensor(plan.arguments[i].slot, value, [&](const at::Tensor& t) { (is_format_tensor(t) ? ours : stock) = true; });
  }
  return ours && stock && *count > 1 ? count : std::nullopt; // a single place is the boxed kernel's
}

// The argument as the call for one place has it.
c10::IValue at_place(const c10::IValue& value, const c10::Argument& argument, size_t place, size_t count) {
  if (value.isList() && value.toListRef().size() == count) {
    const c10::List<c10::IValue> list = value.toList();
    c10::List<c10::IValue> one(list.elementType());
    one.push_back(list.get(place));
    return one;
  }
  const bool scalars = argument.name() == "scalars" && value.isTensor() && value.toTensor().dim() == 1;
  return scalars ? at::_ops::narrow::call(value.toTensor(), 0, static_cast<int64_t>(place), 1) : value;
}

} // namespace

bool run_mixed_lists(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size(), returns = op.schema().returns().size();
  const std::optional<size_t> count = places(plan, *stack, base);
  if (!count) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::vector<c10::List<at::Tensor>> results(returns);
  for (size_t place = 0; place < *count; ++place) {
    Stack one;
    for (size_t i = 0; i < plan.arguments.size(); ++i) {
      one.push_back(at_place((*stack)[base + i], op.schema().arguments()[i], place, *count));
    }
    op.callBoxed(one);
    for (size_t r = 0; r < returns; ++r) {
      for (const at::Tensor& t : one[r].toTensorVector()) results[r].push_back(t);
    }
  }
  stack->resize(base);
  for (c10::List<at::Tensor>& list : results) stack->push_back(std::move(list));
  return true;
}

} // namespace at::formats
