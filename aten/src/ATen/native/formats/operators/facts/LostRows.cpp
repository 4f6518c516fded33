#include <ATen/native/formats/operators/facts/LostRows.h>

#include <ATen/core/ivalue.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>

#include <cmath>
#include <limits>

namespace at::formats {

static constexpr c10::DispatchKeySet kUnseen({c10::DispatchKey::FuncTorchBatched,
                                              c10::DispatchKey::FuncTorchGradWrapper,
                                              c10::DispatchKey::Functionalize,
                                              c10::DispatchKey::Python});

// Whether a tensor may hold NaN: its sum is NaN if an element is, or if there are infinities of
// both signs. Unknown for wrapped tensors, so true.
static bool may_hold_nan(const at::Tensor& t) {
  return t.key_set().has_any(kUnseen) || std::isnan(t.detach().sum().item<double>());
}

at::Tensor lost_rows(const Plan& plan, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - plan.arguments.size();
  if (plan.mask < 0 || !stack[base].isTensor() || !stack[base + 1].isTensor()) return {};
  const at::Tensor &q = stack[base].toTensor(), &k = stack[base + 1].toTensor();
  const bool fits = q.is_floating_point() && k.is_floating_point() && q.dim() >= 2 &&
      q.dim() == k.dim() && q.device().is_cpu();
  if (!fits || q.is_nested() || k.is_nested()) return {};
  const c10::IValue& given = stack[base + plan.mask];
  const at::Tensor mask =
      given.isTensor() && given.toTensor().defined() && given.toTensor().is_floating_point()
      ? given.toTensor()
      : at::Tensor();
  if (!may_hold_nan(q) && !may_hold_nan(k) && !(mask.defined() && may_hold_nan(mask))) return {};
  // A key's NaN reaches every query of its head.
  at::Tensor keys = at::isnan(k).any(-1, true).any(-2, true);
  // Grouped heads share keys.
  if (q.dim() > 2 && k.size(-3) != q.size(-3) && k.size(-3) > 1) {
    if (q.size(-3) % k.size(-3) != 0) return {}; // the operator raises
    keys = keys.repeat_interleave(q.size(-3) / k.size(-3), -3);
  }
  at::Tensor lost = at::isnan(q).any(-1, true).logical_or(keys);
  if (mask.defined()) lost = lost.logical_or(at::isnan(mask).any(-1, true));
  return at::full_like(lost, -0.0, q.options())
      .masked_fill(lost, std::numeric_limits<double>::quiet_NaN());
}

void add_lost_rows(const at::Tensor& rows, size_t results, torch::jit::Stack* stack) {
  if (!rows.defined()) return;
  c10::IValue& first = (*stack)[stack->size() - results];
  first = first.toTensor().add(rows.to(first.toTensor().scalar_type()));
}

} // namespace at::formats
