// add, sub, rsub, mul, div, reciprocal, sqrt, addcmul, addcdiv, lerp. Results are correctly rounded
// from the exact operands: for + - * / sqrt, and addcmul with value=1. addcdiv and lerp are within
// one rounding of float64 before the rounding to the format.
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/elementwise/ResultType.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sub_ops.h>
#include <torch/library.h>

namespace at::formats {
namespace {

using at::Tensor;
using c10::Scalar;

Tensor stock_binary(BinaryOp op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  switch (op) {
    case BinaryOp::Add: return at::_ops::add_Tensor::call(a, b, alpha);
    case BinaryOp::Sub: return at::_ops::sub_Tensor::call(a, b, alpha);
    case BinaryOp::Mul: return at::_ops::mul_Tensor::call(a, b);
    case BinaryOp::Div: break;
  }
  return at::_ops::div_Tensor::call(a, b);
}

// An operand for a stock kernel whose result has the given stock dtype: a format tensor decoded, a
// stock tensor unchanged.
Tensor stock_operand(const Tensor& t, c10::ScalarType type) {
  return is_format_tensor(t) ? to_stock(t, c10::toRealValueType(type)) : t;
}

// Raises as PyTorch does: a user who subtracts a mask mostly wants to invert it.
void expect_numbers(BinaryOp op, bool mask, const Scalar& alpha) {
  TORCH_CHECK(!mask || op != BinaryOp::Sub,
              "sub: expected numbers, but got a bool. Invert a mask with ~mask or "
              "mask.logical_not(), or convert it first, with mask.to(...).");
  TORCH_CHECK(!alpha.isBoolean(), name_of(op),
              ": expected a number as alpha, but got a bool. Use 1 or 0.");
}
void expect_numbers(BinaryOp op, const Scalar& other, const Scalar& alpha) {
  expect_numbers(op, other.isBoolean(), alpha);
}
void expect_numbers(BinaryOp op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  expect_numbers(
      op, a.scalar_type() == c10::ScalarType::Bool || b.scalar_type() == c10::ScalarType::Bool,
      alpha);
}

// Computes a + alpha * b for sums, else op(a, b). The result is a new tensor (type promotion
// decides its dtype) or an existing format tensor.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b, const Scalar& alpha,
              const Tensor& existing = {}) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  expect_numbers(op, a, b, alpha);
  ResultType type;
  type.see(a, name_of(op));
  type.see(b, name_of(op));
  if (type.stock_wins() && !existing.defined()) {
    return stock_binary(op, stock_operand(a, *type.stock()), stock_operand(b, *type.stock()),
                        alpha);
  }
  TORCH_CHECK(!type.is_complex(), name_of(op),
              ": expected real operands for a result of a number format, but got a complex one");
  const Target target{existing.defined() ? entry_of(existing) : *type.format, existing};
  TORCH_CHECK(a.device() == b.device() || a.dim() == 0 || b.dim() == 0, name_of(op),
              ": expected tensors on one device, but got ", a.device(), " and ", b.device());
  const double factor = alpha.toDouble();
  if (factor == 1) return elementwise(op, Operand::of(a), Operand::of(b), target);
  const double signed_factor = op == BinaryOp::Sub ? -factor : factor;
  return elementwise(TernaryOp::Fma, Operand::of(Scalar(signed_factor)), Operand::of(b),
                     Operand::of(a), 1, target);
}

template <BinaryOp op>
Tensor with_alpha(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return binary(op, a, b, alpha);
}
template <BinaryOp op>
Tensor without_alpha(const Tensor& a, const Tensor& b) {
  return binary(op, a, b, 1);
}

// In place: into a format tensor with one rounding; into a stock tensor by the stock operator, with
// `other` decoded.
Tensor& binary_in_place(BinaryOp op, Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (is_format_tensor(self)) {
    binary(op, self, other, alpha, self);
    return self;
  }
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()) || self.is_complex(), "result type ",
              entry_of(other).name,
              // PyTorch's own words, with the dtype that the caller knows
              " can't be cast to the desired output type ", self.scalar_type());
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Tensor values = decoded(other);
  switch (op) {
    case BinaryOp::Add: return at::_ops::add__Tensor::call(self, values, alpha);
    case BinaryOp::Sub: return at::_ops::sub__Tensor::call(self, values, alpha);
    case BinaryOp::Mul: return at::_ops::mul__Tensor::call(self, values);
    case BinaryOp::Div: break;
  }
  return at::_ops::div__Tensor::call(self, values);
}
template <BinaryOp op>
Tensor& with_alpha_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  return binary_in_place(op, self, other, alpha);
}
template <BinaryOp op>
Tensor& without_alpha_(Tensor& self, const Tensor& other) {
  return binary_in_place(op, self, other, 1);
}

template <BinaryOp op>
Tensor& with_alpha_out(const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
  if (!is_format_tensor(a) && !is_format_tensor(b))
    return store(stock_binary(op, a, b, alpha), out, {a, b});
  return store(binary(op, a, b, alpha), out, {a, b});
}
template <BinaryOp op>
Tensor& without_alpha_out(const Tensor& a, const Tensor& b, Tensor& out) {
  return with_alpha_out<op>(a, b, 1, out);
}

void expect_real(const char* op, const Scalar& number, const Tensor& self) {
  TORCH_CHECK(!number.isComplex(), op, ": expected a real number with a tensor of ",
              entry_of(self).name, ", but got a complex one");
}

// With a complex number: the stock operator on the exact values, for a complex result.
Tensor with_complex_number(BinaryOp op, const Tensor& self, const Scalar& number,
                           const Scalar& alpha = 1) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Tensor values = decoded(self);
  switch (op) {
    case BinaryOp::Add: return at::_ops::add_Scalar::call(values, number, alpha);
    case BinaryOp::Sub: return at::_ops::sub_Scalar::call(values, number, alpha);
    case BinaryOp::Mul: return at::_ops::mul_Scalar::call(values, number);
    case BinaryOp::Div: break;
  }
  return at::_ops::div_Scalar::call(values, number);
}

// With a number as second operand. (Python's x + 2 passes a tensor without dimensions; stock
// formulas call these overloads.)
Tensor with_number(BinaryOp op, const Tensor& self, const Scalar& number,
                   const Tensor& existing = {}) {
  expect_real(name_of(op), number, self);
  return elementwise(op, Operand::of(self), Operand::of(number), {entry_of(self), existing});
}
template <BinaryOp op>
Tensor scalar(const Tensor& self, const Scalar& other) {
  if (other.isComplex()) return with_complex_number(op, self, other);
  return with_number(op, self, other);
}
template <BinaryOp op>
Tensor& scalar_(Tensor& self, const Scalar& other) {
  with_number(op, self, other, self);
  return self;
}
template <BinaryOp op>
Tensor scalar_with_alpha(const Tensor& self, const Scalar& other, const Scalar& alpha) {
  expect_numbers(op, other, alpha);
  if (other.isComplex() || alpha.isComplex()) return with_complex_number(op, self, other, alpha);
  return with_number(op, self, other.toDouble() * alpha.toDouble());
}
template <BinaryOp op>
Tensor& scalar_with_alpha_(Tensor& self, const Scalar& other, const Scalar& alpha) {
  expect_numbers(op, other, alpha);
  expect_real(name_of(op), other, self);
  expect_real(name_of(op), alpha, self);
  with_number(op, self, other.toDouble() * alpha.toDouble(), self);
  return self;
}

// ---- reversed operands, one operand ----

Tensor rsub_tensor(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return binary(BinaryOp::Sub, other, self, alpha);
}
Tensor rsub_scalar(const Tensor& self, const Scalar& other, const Scalar& alpha) {
  expect_numbers(BinaryOp::Sub, other, alpha);
  if (other.isComplex() || alpha.isComplex()) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return at::_ops::rsub_Scalar::call(decoded(self), other, alpha);
  }
  const Target target{entry_of(self), {}};
  if (alpha.toDouble() == 1)
    return elementwise(BinaryOp::Sub, Operand::of(other), Operand::of(self), target);
  return elementwise(TernaryOp::Fma, Operand::of(Scalar(-alpha.toDouble())), Operand::of(self),
                     Operand::of(other), 1, target);
}
Tensor reciprocal_kernel(const Tensor& self) {
  return elementwise(BinaryOp::Div, Operand::of(Scalar(1.0)), Operand::of(self),
                     {entry_of(self), {}});
}
Tensor& reciprocal_(Tensor& self) {
  elementwise(BinaryOp::Div, Operand::of(Scalar(1.0)), Operand::of(self), {entry_of(self), self});
  return self;
}
Tensor& reciprocal_out(const Tensor& self, Tensor& out) {
  return store(is_format_tensor(self) ? reciprocal_kernel(self) : self.reciprocal(), out, {self});
}
Tensor sqrt_kernel(const Tensor& self) {
  return elementwise(UnaryOp::Sqrt, Operand::of(self), {entry_of(self), {}});
}
Tensor& sqrt_(Tensor& self) {
  elementwise(UnaryOp::Sqrt, Operand::of(self), {entry_of(self), self});
  return self;
}
Tensor& sqrt_out(const Tensor& self, Tensor& out) {
  const Tensor result = is_format_tensor(self) ? sqrt_kernel(self) : self.sqrt();
  return store(result, out, {self});
}

// ---- three operands: into self, if self is a format tensor and the call in place ----

ResultType common_type(const char* op,
                       std::initializer_list<std::reference_wrapper<const Tensor>> tensors) {
  ResultType type;
  for (const Tensor& t : tensors) type.see(t, op);
  return type;
}

// If promotion gives a stock dtype, the operator runs on stock tensors.
template <typename Stock>
Tensor ternary(const char* name, TernaryOp op, const Tensor& a, const Tensor& b, const Tensor& c,
               double s, bool in_place, const Tensor& self, Stock stock) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const ResultType type = common_type(name, {a, b, c});
  TORCH_CHECK(!(in_place && is_format_tensor(self) && type.is_complex()), name,
              ": expected real operands for a result of a number format, but got a complex one");
  const FormatEntry* format = type.result();
  if (in_place && is_format_tensor(self)) {
    return elementwise(op, Operand::of(a), Operand::of(b), Operand::of(c), s,
                       {entry_of(self), self});
  }
  if (format && !in_place)
    return elementwise(op, Operand::of(a), Operand::of(b), Operand::of(c), s, {*format, {}});
  const auto plain = [&](const Tensor& t) {
    if (!format && type.stock()) return stock_operand(t, *type.stock());
    return is_format_tensor(t) ? decoded(t) : t;
  };
  return stock(plain);
}

Tensor addcmul_kernel(const Tensor& self, const Tensor& x, const Tensor& y, const Scalar& value) {
  return ternary("addcmul", TernaryOp::Addcmul, x, y, self, value.toDouble(), false, self,
                 [&](auto plain) { return plain(self).addcmul(plain(x), plain(y), value); });
}
Tensor& addcmul_(Tensor& self, const Tensor& x, const Tensor& y, const Scalar& value) {
  ternary("addcmul_", TernaryOp::Addcmul, x, y, self, value.toDouble(), true, self,
          [&](auto plain) { return self.addcmul_(plain(x), plain(y), value); });
  return self;
}
Tensor addcdiv_kernel(const Tensor& self, const Tensor& x, const Tensor& y, const Scalar& value) {
  return ternary("addcdiv", TernaryOp::Addcdiv, x, y, self, value.toDouble(), false, self,
                 [&](auto plain) { return plain(self).addcdiv(plain(x), plain(y), value); });
}
Tensor& addcdiv_(Tensor& self, const Tensor& x, const Tensor& y, const Scalar& value) {
  ternary("addcdiv_", TernaryOp::Addcdiv, x, y, self, value.toDouble(), true, self,
          [&](auto plain) { return self.addcdiv_(plain(x), plain(y), value); });
  return self;
}

Tensor& addcmul_out(const Tensor& self, const Tensor& x, const Tensor& y, const Scalar& value,
                    Tensor& out) {
  return store(addcmul_kernel(self, x, y, value), out, {self, x, y});
}
Tensor& addcdiv_out(const Tensor& self, const Tensor& x, const Tensor& y, const Scalar& value,
                    Tensor& out) {
  return store(addcdiv_kernel(self, x, y, value), out, {self, x, y});
}

// Operands of two dtypes go to the overload with a tensor as weight, which promotes them if
// promotion is switched on, else raises.
bool are_ours(const Tensor& self, const Tensor& end) {
  return is_format_tensor(self) && is_format_tensor(end);
}
Tensor number_tensor(const Scalar& weight) {
  return at::scalar_tensor(weight, at::TensorOptions().dtype(at::kDouble));
}

Tensor lerp_number(const Tensor& self, const Tensor& end, const Scalar& weight,
                   const Tensor& existing) {
  const FormatEntry* format = common_type("lerp", {self, end}).result();
  return elementwise(TernaryOp::Lerp, Operand::of(self), Operand::of(end), Operand::of(weight), 1,
                     {*format, existing});
}
Tensor lerp_scalar(const Tensor& self, const Tensor& end, const Scalar& weight) {
  return are_ours(self, end) ? lerp_number(self, end, weight, {})
                             : at::_ops::lerp_Tensor::call(self, end, number_tensor(weight));
}
Tensor& lerp_scalar_(Tensor& self, const Tensor& end, const Scalar& weight) {
  if (!are_ours(self, end)) return at::_ops::lerp__Tensor::call(self, end, number_tensor(weight));
  lerp_number(self, end, weight, self);
  return self;
}
Tensor& lerp_scalar_out(const Tensor& self, const Tensor& end, const Scalar& weight, Tensor& out) {
  const bool ours = is_format_tensor(self) || is_format_tensor(end);
  return store(ours ? lerp_scalar(self, end, weight) : self.lerp(end, weight), out, {self, end});
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("add.Tensor", &with_alpha<BinaryOp::Add>);
  m.impl("sub.Tensor", &with_alpha<BinaryOp::Sub>);
  m.impl("mul.Tensor", &without_alpha<BinaryOp::Mul>);
  m.impl("div.Tensor", &without_alpha<BinaryOp::Div>);
  m.impl("add_.Tensor", &with_alpha_<BinaryOp::Add>);
  m.impl("sub_.Tensor", &with_alpha_<BinaryOp::Sub>);
  m.impl("mul_.Tensor", &without_alpha_<BinaryOp::Mul>);
  m.impl("div_.Tensor", &without_alpha_<BinaryOp::Div>);
  m.impl("add.out", &with_alpha_out<BinaryOp::Add>);
  m.impl("sub.out", &with_alpha_out<BinaryOp::Sub>);
  m.impl("mul.out", &without_alpha_out<BinaryOp::Mul>);
  m.impl("div.out", &without_alpha_out<BinaryOp::Div>);
  m.impl("add.Scalar", &scalar_with_alpha<BinaryOp::Add>);
  m.impl("sub.Scalar", &scalar_with_alpha<BinaryOp::Sub>);
  m.impl("mul.Scalar", &scalar<BinaryOp::Mul>);
  m.impl("div.Scalar", &scalar<BinaryOp::Div>);
  m.impl("add_.Scalar", &scalar_with_alpha_<BinaryOp::Add>);
  m.impl("sub_.Scalar", &scalar_with_alpha_<BinaryOp::Sub>);
  m.impl("mul_.Scalar", &scalar_<BinaryOp::Mul>);
  m.impl("div_.Scalar", &scalar_<BinaryOp::Div>);
  m.impl("rsub.Tensor", &rsub_tensor);
  m.impl("rsub.Scalar", &rsub_scalar);
  m.impl("reciprocal", &reciprocal_kernel);
  m.impl("reciprocal_", &reciprocal_);
  m.impl("reciprocal.out", &reciprocal_out);
  m.impl("sqrt", &sqrt_kernel);
  m.impl("sqrt_", &sqrt_);
  m.impl("sqrt.out", &sqrt_out);
  m.impl("addcmul", &addcmul_kernel);
  m.impl("addcmul_", &addcmul_);
  m.impl("addcmul.out", &addcmul_out);
  m.impl("addcdiv", &addcdiv_kernel);
  m.impl("addcdiv_", &addcdiv_);
  m.impl("addcdiv.out", &addcdiv_out);
  m.impl("lerp.Scalar", &lerp_scalar);
  m.impl("lerp_.Scalar", &lerp_scalar_);
  m.impl("lerp.Scalar_out", &lerp_scalar_out);
}

} // namespace at::formats
