// Definitions, by the CPU's operators, of products of narrow numbers into float32, cells of
// recurrent layers, and gradients of RMS norm.
#include "OnlyOnGpu.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <map>
#include <string>

namespace simulated_gpu {
namespace {

using Values = std::vector<c10::IValue>;
using OptionalTensor = std::optional<at::Tensor>;

// ---- mm.dtype(a, b, out_dtype), addmm.dtype(c, a, b, out_dtype, beta, alpha), and with batches:
// the sum has out_dtype ----

at::Tensor wide(const c10::IValue& value, const c10::IValue& dtype) {
  return value.toTensor().to(dtype.toScalarType());
}

Values product(const Values& v) {
  return {at::matmul(wide(v[0], v[2]), wide(v[1], v[2]))};
}
Values product_out(const Values& v) {
  at::Tensor out = v[3].toTensor();
  return {at::matmul_out(out, wide(v[0], v[2]), wide(v[1], v[2]))};
}
Values sum_and_product(const Values& v) {
  return {v[4].toScalar().equal(0)
              ? at::matmul(wide(v[1], v[3]), wide(v[2], v[3])).mul(v[5].toScalar())
              : wide(v[0], v[3])
                    .mul(v[4].toScalar())
                    .add(at::matmul(wide(v[1], v[3]), wide(v[2], v[3])), v[5].toScalar())};
}

// ---- cells: gates before their functions, from the input and from the state ----

OptionalTensor given(const c10::IValue& value) {
  const auto t = value.toOptional<at::Tensor>();
  return t && t->defined() ? t : std::nullopt;
}

at::Tensor with_bias(const c10::IValue& gates, const c10::IValue& bias) {
  const OptionalTensor added = given(bias);
  return added ? gates.toTensor() + *added : gates.toTensor();
}

void expect_one_dtype(const Values& v) {
  const auto dtype = v[0].toTensor().dtype();
  for (const c10::IValue& operand : v) {
    const OptionalTensor t = given(operand);
    TORCH_CHECK(!t || t->dtype() == dtype, "expected scalar type ", dtype, " but found ",
                t->dtype());
  }
}

// The workspace holds one gate after its function in each place: input, forget, cell, output.
Values lstm_cell(const Values& v) {
  expect_one_dtype(v);
  const auto gates = (with_bias(v[0], v[3]) + with_bias(v[1], v[4])).chunk(4, 1);
  const at::Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(),
                   o = gates[3].sigmoid();
  const at::Tensor cy = f * v[2].toTensor() + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

Values lstm_cell_backward(const Values& v) {
  const OptionalTensor grad_hy = given(v[0]), grad_cy = given(v[1]);
  if (!grad_hy && !grad_cy) return {at::Tensor(), at::Tensor(), at::Tensor()};
  const at::Tensor cx = v[2].toTensor(), t = v[3].toTensor().tanh();
  const auto gates = v[4].toTensor().chunk(4, 1);
  const at::Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const at::Tensor gh = grad_hy ? *grad_hy : at::zeros_like(cx),
                   gc = gh * o * (1 - t * t) + (grad_cy ? *grad_cy : at::zeros_like(cx));
  const at::Tensor grad = at::cat(
      {gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), gh * t * o * (1 - o)}, 1);
  return {grad, gc * f, v[5].toBool() ? grad.sum(0) : at::Tensor()};
}

// The workspace holds: reset and update gates, the new state, the old one, and the state's part of
// the new one.
Values gru_cell(const Values& v) {
  expect_one_dtype(v);
  const auto of_input = with_bias(v[0], v[3]).chunk(3, 1),
             of_state = with_bias(v[1], v[4]).chunk(3, 1);
  const at::Tensor hx = v[2].toTensor(), r = (of_input[0] + of_state[0]).sigmoid(),
                   z = (of_input[1] + of_state[1]).sigmoid();
  const at::Tensor n = (of_input[2] + r * of_state[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, of_state[2]}, 1)};
}

Values gru_cell_backward(const Values& v) {
  const at::Tensor grad = v[0].toTensor();
  const auto kept = v[1].toTensor().chunk(5, 1);
  const at::Tensor &r = kept[0], &z = kept[1], &n = kept[2], &hx = kept[3], &hn = kept[4];
  const at::Tensor gz = grad * (hx - n) * (1 - z) * z, gn = grad * (1 - z) * (1 - n * n),
                   gr = gn * hn * (1 - r) * r;
  const at::Tensor of_input = at::cat({gr, gz, gn}, 1), of_state = at::cat({gr, gz, gn * r}, 1);
  const bool bias = v[2].toBool();
  return {of_input, of_state, grad * z, bias ? of_input.sum(0) : at::Tensor(),
          bias ? of_state.sum(0) : at::Tensor()};
}

// ---- gradients of x / sqrt(mean(x^2)) * weight by x and by the weight ----

Values rms_norm_backward(const Values& v) {
  const at::Tensor grad = v[0].toTensor(), x = v[1].toTensor(), scale = v[3].toTensor();
  const OptionalTensor weight = given(v[4]);
  std::vector<int64_t> inner, outer;
  const int64_t first = x.dim() - static_cast<int64_t>(v[2].toIntVector().size());
  for (int64_t i = 0; i < x.dim(); ++i) (i < first ? outer : inner).push_back(i);
  const at::Tensor normal = x * scale, inside = weight ? grad * *weight : grad;
  at::Tensor grad_weight;
  if (weight && v[5].toBoolList()[1])
    grad_weight = outer.empty() ? grad * normal : (grad * normal).sum(outer);
  return {v[5].toBoolList()[0]
              ? scale * (inside - normal * (inside * normal).mean(inner, /*keepdim=*/true))
              : at::Tensor(),
          grad_weight};
}

} // namespace

Composed composed(const c10::OperatorName& name) {
  static const std::map<std::string, Composed> all{
      {"aten::mm.dtype", &product},
      {"aten::mm.dtype_out", &product_out},
      {"aten::bmm.dtype", &product},
      {"aten::bmm.dtype_out", &product_out},
      {"aten::addmm.dtype", &sum_and_product},
      {"aten::baddbmm.dtype", &sum_and_product},
      {"aten::_thnn_fused_lstm_cell", &lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", &gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", &gru_cell_backward},
      {"aten::_fused_rms_norm_backward", &rms_norm_backward},
  };
  const auto found =
      all.find(name.name + (name.overload_name.empty() ? "" : "." + name.overload_name));
  return found == all.end() ? nullptr : found->second;
}

} // namespace simulated_gpu
