#include <ATen/native/formats/operators/boxed/ExactPowers.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/where.h>
#include <c10/formats/tables/ValueTable.h>

#include <cmath>

namespace at::formats {

// float64 has the exact square of numbers of so many digits. Its quotients and roots tell apart all
// that such formats do.
static constexpr int kDigits = 25;

bool run_exact_power(const c10::OperatorHandle& /*op*/, const Plan& plan,
                     torch::jit::Stack* stack) {
  // The arguments are a tensor, a number, and maybe out=.
  const size_t count = plan.arguments.size(), first = stack->size() - count;
  if (count > 3) return false;
  const c10::IValue &base = (*stack)[first], &power = (*stack)[first + 1];
  if (!base.isTensor() || !power.isScalar() || power.isComplexDouble() ||
      !is_format_tensor(base.toTensor()))
    return false;
  const at::Tensor x = base.toTensor();
  at::Tensor result = plan.writes ? x : at::Tensor();
  if (count == 3) result = stack->back().toTensor();
  const double n = power.toScalar().toDouble();
  if (entry_of(x).format.significand_bits() <= kDigits || (n != 2 && n != -1 && n != 0.5))
    return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (n == 2)
    result =
        result.defined() ? at::_ops::mul_out::call(x, x, result) : at::_ops::mul_Tensor::call(x, x);
  if (n == -1)
    result = result.defined() ? at::_ops::reciprocal_out::call(x, result)
                              : at::_ops::reciprocal::call(x);
  if (n == 0.5)
    result = result.defined() ? at::_ops::sqrt_out::call(x, result) : at::_ops::sqrt::call(x);
  stack->resize(first);
  stack->emplace_back(std::move(result));
  return true;
}

at::Tensor magnitude_of_power(const c10::formats::Format& format, const at::Tensor& x,
                              const at::Tensor& n) {
  const c10::formats::TableDefinition& d = c10::formats::table_of(format).definition;
  const bool binary = d.logarithm == c10::formats::Logarithm::Binary;
  const double unit = std::ldexp(1.0, -d.log_bits), base = binary ? 0.693147180559945309 : 1.0;
  // x's logarithm is a whole number of at most 20 bits. Its products with the upper 24 bits and the
  // lower 29 bits of n are exact.
  const at::Tensor logarithm = (binary ? x.abs().log2() : x.abs().log()).div(unit).round();
  const at::Tensor upper = n.to(at::kFloat).to(at::kDouble), product = logarithm.mul(upper),
                   rest = logarithm.mul(n.sub(upper));
  const at::Tensor whole = product.add(rest).round(), part = product.sub(whole).add(rest);
  const at::Tensor above = part.mul(unit * base).expm1();
  const at::Tensor apart =
      at::where(part.eq(0), above, above.abs().clamp_min(0x1p-45).copysign(part));
  const at::Tensor nearest = whole.mul(unit);
  return (binary ? nearest.exp2() : nearest.exp()).mul(apart.add(1));
}

// Keeps the magnitudes of powers before the operator writes.
void BoxedCall::keep_power(const torch::jit::Stack& stack, size_t base) {
  const c10::IValue &x = stack[base], &exponent = stack[base + 1];
  on_logarithms_ =
      !exponent.isComplexDouble() && !(exponent.isTensor() && exponent.toTensor().is_complex());
  if (!on_logarithms_) return;
  const at::NoGradGuard no_grad;
  const at::Tensor n = exponent.isTensor() ? exponent.toTensor().to(at::kDouble)
                                           : at::scalar_tensor(exponent.toScalar(), at::kDouble);
  magnitudes_ = magnitude_of_power(format_->format, x.toTensor(), n);
}

} // namespace at::formats
