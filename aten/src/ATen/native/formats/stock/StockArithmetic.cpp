#include <ATen/native/formats/stock/StockArithmetic.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <c10/formats/sums/ZeroSums.h>

namespace at::formats {
namespace {

using at::Tensor;
using c10::ScalarType;
using c10::formats::Rounding;

// Moves s to its odd neighbour, unless `towards` is 0 or NaN. The sign of `towards` is that of the
// error of s.
Tensor to_odd(const Tensor& s, const Tensor& towards) {
  const Tensor bits = s.view(ScalarType::Long);
  const Tensor moves =
      towards.ne(0) & towards.eq(towards) & s.isfinite() & bits.bitwise_and(1).eq(0);
  const Tensor inwards = (bits ^ towards.view(ScalarType::Long)).__rshift__(63).bitwise_or(1);
  return (bits + inwards * moves).view(ScalarType::Double);
}

Tensor sum_error(const Tensor& a, const Tensor& b, const Tensor& s) { // Knuth's TwoSum
  const Tensor b_part = s - a;
  const Tensor a_part = s - b_part;
  return (a - a_part) + (b - b_part);
}

// Dekker's TwoProduct: halves of 26 digits have exact products.
Tensor product_error(const Tensor& a, const Tensor& b, const Tensor& p) {
  const auto high = [](const Tensor& x) {
    const Tensor t = x * 0x8000001p0;
    return t - (t - x);
  };
  const Tensor ah = high(a), bh = high(b), al = a - ah, bl = b - bh;
  return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
}

Tensor add_odd(const Tensor& a, const Tensor& b) {
  const Tensor s = a + b;
  return to_odd(s, sum_error(a, b, s));
}

Tensor multiply_odd(const Tensor& a, const Tensor& b) {
  const Tensor p = a * b;
  return to_odd(p, product_error(a, b, p));
}

Tensor divide_odd(const Tensor& a, const Tensor& b) {
  const Tensor q = a / b, p = q * b;
  const Tensor remainder = (a - p) - product_error(q, b, p);
  return to_odd(q, remainder * b.sign());
}

Tensor fma_odd(const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor p = a * b, s = p + c;
  const Tensor missing = add_odd(product_error(a, b, p), sum_error(p, c, s));
  return at::where(missing.ne(0) & s.isfinite(), add_odd(s, missing), s);
}

Tensor is_positive(const Tensor& x) {
  return x.signbit().logical_not();
}

Tensor sign_zeros(const Tensor& sums, const Tensor& both_positive) {
  return at::where(sums.eq(0), both_positive.to(ScalarType::Double).sub(0.5) * 0.0, sums);
}

} // namespace

Tensor compute_by_stock(BinaryOp op, Rounding mode, const Tensor& a, const Tensor& b) {
  if (op == BinaryOp::Mul) return multiply_odd(a, b);
  if (op == BinaryOp::Div) return divide_odd(a, b);
  const Tensor term = op == BinaryOp::Sub ? b.neg() : b;
  const Tensor sum = add_odd(a, term);
  if (!c10::formats::signs_zero_sums(mode)) return sum;
  return sign_zeros(sum, is_positive(a) & is_positive(term));
}

Tensor compute_by_stock(TernaryOp op, Rounding mode, const Tensor& a, const Tensor& b,
                        const Tensor& c, double s) {
  const Tensor factor =
      at::scalar_tensor(s, at::TensorOptions().dtype(ScalarType::Double).device(c.device()));
  Tensor sum;
  switch (op) {
    case TernaryOp::Fma: sum = fma_odd(a, b, c); break;
    case TernaryOp::Addcdiv: sum = fma_odd(factor, a / b, c); break;
    case TernaryOp::Addcmul:
      sum = s == 1 ? fma_odd(a, b, c) : fma_odd(factor, multiply_odd(a, b), c);
      break;
    case TernaryOp::Lerp: sum = fma_odd(c, b - a, a); break;
  }
  if (!c10::formats::signs_zero_sums(mode)) return sum;
  if (op == TernaryOp::Lerp)
    return sign_zeros(sum, is_positive(a) & is_positive(c).eq(is_positive(b - a)));
  const bool positive = op == TernaryOp::Fma || c10::formats::is_positive(s);
  return sign_zeros(sum, is_positive(c) & is_positive(a).eq(is_positive(b)).eq(positive));
}

Tensor root_by_stock(const Tensor& a) {
  const Tensor s = a.sqrt(), p = s * s;
  return to_odd(s, (a - p) - product_error(s, s, p));
}

} // namespace at::formats
