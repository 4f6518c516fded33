#include <ATen/native/formats/operators/ExactPowers.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/sqrt_ops.h>

namespace at::formats {

// float64 has the square of so many digits, and its quotients and roots tell apart what such formats do.
static constexpr int kDigits = 25;

bool run_exact_power(const Plan& plan, torch::jit::Stack* stack) {
  const size_t count = plan.arguments.size(), first = stack->size() - count; // a tensor, a number, and out=
  if (plan.base != "pow" || count > 3) return false;
  const c10::IValue &base = (*stack)[first], &power = (*stack)[first + 1];
  if (!base.isTensor() || !power.isScalar() || power.isComplexDouble() || !is_format_tensor(base.toTensor())) return false;
  const at::Tensor x = base.toTensor();
  at::Tensor result = count == 3 ? stack->back().toTensor() : plan.writes ? x : at::Tensor();
  const double n = power.toScalar().toDouble();
  if (entry_of(x).format.significand_bits() <= kDigits || (n != 2 && n != -1 && n != 0.5)) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (n == 2) result = result.defined() ? at::_ops::mul_out::call(x, x, result) : at::_ops::mul_Tensor::call(x, x);
  if (n == -1) result = result.defined() ? at::_ops::reciprocal_out::call(x, result) : at::_ops::reciprocal::call(x);
  if (n == 0.5) result = result.defined() ? at::_ops::sqrt_out::call(x, result) : at::_ops::sqrt::call(x);
  stack->resize(first);
  stack->emplace_back(std::move(result));
  return true;
}

} // namespace at::formats
