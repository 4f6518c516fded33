#include <ATen/native/formats/operators/MovedCodes.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>

namespace at::formats {

bool run_on_codes(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t base = stack->size() - arguments.size();
  if (plan.accumulate >= 0 && (*stack)[base + plan.accumulate].toBool()) return false;
  const FormatEntry* entry = nullptr;
  bool alike = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool where = plan.arguments[i].where;
    each_tensor(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
      if (!t.defined()) return;
      if (where || !is_format_tensor(t)) {
        alike = alike && where && !is_format_tensor(t);
        return;
      }
      alike = alike && (!entry || entry == &entry_of(t));
      entry = &entry_of(t);
    });
  }
  if (!alike || !entry || (plan.has(fact::PutsZeros) && !zero_is_code_zero(entry->format))) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor self, codes; // of an in-place operator
  for (size_t i = 0; i < arguments.size(); ++i) {
    map_tensors(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
      if (!is_format_tensor(t)) return t;
      const at::Tensor alias = bits_alias(t);
      if (plan.arguments[i].written) {
        self = t;
        codes = alias;
      }
      return alias;
    });
  }
  op.callBoxed(stack);
  c10::IValue& result = stack->back();
  result = codes.defined() && result.toTensor().is_same(codes) ? self : format_alias(result.toTensor(), *entry);
  return true;
}

} // namespace at::formats
