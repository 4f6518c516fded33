#include <ATen/native/formats/operators/boxed/MovedCodes.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>

#include <utility>

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
  if (!alike || !entry || (plan.has(fact::PutsZeros) && !zero_is_code_zero(entry->format)))
    return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor self, codes; // set for in-place operators
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
  result = codes.defined() && result.toTensor().is_same(codes)
      ? self
      : format_alias(result.toTensor(), *entry);
  return true;
}

bool run_gated(const c10::OperatorHandle& /*op*/, const Plan& plan, torch::jit::Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  const at::Tensor codes = (*stack)[base].toTensor(), numbers = (*stack)[base + 1].toTensor();
  if (!is_format_tensor(codes) || !is_format_tensor(numbers) || !on_gpu(codes.device()) ||
      codes.device() != numbers.device())
    return false;
  const FormatEntry& entry = entry_of(codes);
  const bool alike = codes.sizes() == numbers.sizes() && codes.strides() == numbers.strides() &&
      codes.is_non_overlapping_and_dense();
  if (&entry != &entry_of(numbers) || !alike || !zero_is_code_zero(entry.format)) return false;
  const c10::Scalar number = (*stack)[base + 2].toScalar();
  const double threshold =
      entry.compute == c10::ScalarType::Float ? number.toFloat() : number.toDouble();
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor out = empty_strided_format(codes.sizes(), codes.strides(), entry, codes.device());
  gate_on_gpu(entry.format, bits_alias(codes), bits_alias(numbers), threshold, out);
  torch::jit::drop(*stack, plan.arguments.size());
  stack->emplace_back(std::move(out));
  return true;
}

} // namespace at::formats
