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

} // namespace

Tensor add_odd(const Tensor& a, const Tensor& b) {
  const Tensor s = a + b;
  return to_odd(s, sum_error(a, b, s));
}

namespace {

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

// Returns sum(a, b). Rounding down, negates both terms and the result. Then x - x is -0, as it must
// be (ZeroSums.h), and nothing else changes.
template <typename Sum>
Tensor sign_zeros(Rounding mode, const Sum& sum, const Tensor& a, const Tensor& b) {
  return c10::formats::signs_zero_sums(mode) ? sum(a.neg(), b.neg()).neg() : sum(a, b);
}

} // namespace

Tensor compute_by_stock(BinaryOp op, Rounding mode, const Tensor& a, const Tensor& b) {
  if (op == BinaryOp::Mul) return multiply_odd(a, b);
  if (op == BinaryOp::Div) return divide_odd(a, b);
  return sign_zeros(mode, add_odd, a, op == BinaryOp::Sub ? b.neg() : b);
}

Tensor compute_by_stock(TernaryOp op, Rounding mode, const Tensor& a, const Tensor& b,
                        const Tensor& c, double s) {
  Tensor factor = a, other = b, term = c;
  if (op == TernaryOp::Lerp) {
    factor = c, other = b - a, term = a;
  } else if (op != TernaryOp::Fma && (op == TernaryOp::Addcdiv || s != 1)) {
    factor = at::scalar_tensor(s, a.options().dtype(ScalarType::Double));
    other = op == TernaryOp::Addcdiv ? a / b : multiply_odd(a, b);
  }
  const auto sum = [&](const Tensor& x, const Tensor& y) { return fma_odd(x, other, y); };
  return sign_zeros(mode, sum, factor, term);
}

Tensor root_by_stock(const Tensor& a) {
  const Tensor s = a.sqrt(), p = s * s;
  return to_odd(s, (a - p) - product_error(s, s, p));
}

} // namespace at::formats
