#include <ATen/native/formats/overlay/RecurrentScan.h>

#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include <algorithm>
#include <cmath>

namespace at::formats {
namespace {

using at::Tensor;
using c10::formats::BinaryOp;

// Each step keeps planes of (batch, features) numbers for the backward pass. Lstm: the gates i, f,
// o and g, the new c, its tanh. Gru: the gates r and z, the new gate n, its part from the state
// before r multiplies it, and h - n. Last comes the new h.
namespace lstm_planes {
enum Plane { I, F, O, G, C, TanhC, H, kPlanes };
constexpr Plane kRows[] = {I, F, G, O}; // in the order of the weight's rows
} // namespace lstm_planes
namespace gru_planes {
enum Plane { R, Z, N, FromState, Difference, H, kPlanes };
} // namespace gru_planes

Tensor make_floats(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
}
float* floats_of(const Tensor& t) {
  return t.mutable_data_ptr<float>();
}

// A function's values for all codes.
template <typename Function>
Tensor values_by_code(const FormatEntry& entry, const Function& function) {
  const int64_t count = int64_t{1} << (8 * entry.format.itemsize());
  const Tensor codes = at::arange(count, at::TensorOptions().dtype(at::kInt)).to(entry.bits);
  return decoded(function(format_alias(codes, entry)));
}

char* codes_of(const Tensor& t) {
  return static_cast<char*>(t.mutable_data_ptr());
}
const char* const_codes_of(const Tensor& t) {
  return static_cast<const char*>(t.const_data_ptr());
}

bool holds_nan(const float* values, int64_t n) {
  bool any = false;
  for (int64_t i = 0; i < n; ++i) any |= std::isnan(values[i]);
  return any;
}

// ---- forward ----

struct Tables {
  const float *sigmoid, *tanh;
};

// z: products with the state, x: products with the input, both (batch, rows * features).
void run_lstm(const RecurrentScan& s, const Tables& tables, float* z, const float* x,
              const float* c_before, float* kept) {
  using namespace lstm_planes;
  const RecurrentLoops& l = s.loops;
  const auto plane = [&](Plane p) { return kept + p * s.plane; };
  l.binary(BinaryOp::Add, z, x, z, s.wide);
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int g = 0; g < 4; ++g) {
      l.look_up(kRows[g] == G ? tables.tanh : tables.sigmoid, z + (4 * n + g) * s.features,
                plane(kRows[g]) + n * s.features, s.features);
    }
  }
  float* product = plane(H); // for a while
  l.binary(BinaryOp::Mul, plane(F), c_before, plane(C), s.plane);
  l.binary(BinaryOp::Mul, plane(I), plane(G), product, s.plane);
  l.binary(BinaryOp::Add, plane(C), product, plane(C), s.plane);
  l.look_up(tables.tanh, plane(C), plane(TanhC), s.plane);
  l.binary(BinaryOp::Mul, plane(O), plane(TanhC), plane(H), s.plane);
}

void run_gru(const RecurrentScan& s, const Tables& tables, float* z, const float* x,
             const float* h_before, float* kept) {
  using namespace gru_planes;
  const RecurrentLoops& l = s.loops;
  const auto plane = [&](Plane p) { return kept + p * s.plane; };
  for (int64_t n = 0; n < s.batch; ++n) {
    float* row = z + 3 * n * s.features;
    const float* from_input = x + 3 * n * s.features;
    l.binary(BinaryOp::Add, row, from_input, row, 2 * s.features);
    l.look_up(tables.sigmoid, row, plane(R) + n * s.features, s.features);
    l.look_up(tables.sigmoid, row + s.features, plane(Z) + n * s.features, s.features);
    std::copy_n(row + 2 * s.features, s.features, plane(FromState) + n * s.features);
    std::copy_n(from_input + 2 * s.features, s.features, plane(N) + n * s.features);
  }
  float* product = plane(H); // for a while
  l.binary(BinaryOp::Mul, plane(FromState), plane(R), product, s.plane);
  l.binary(BinaryOp::Add, plane(N), product, plane(N), s.plane);
  l.look_up(tables.tanh, plane(N), plane(N), s.plane);
  l.binary(BinaryOp::Sub, h_before, plane(N), plane(Difference), s.plane);
  l.binary(BinaryOp::Mul, plane(Difference), plane(Z), product, s.plane);
  l.binary(BinaryOp::Add, product, plane(N), plane(H), s.plane);
}

// ---- backward ----

// A gradient that may be absent, which differs from zeros: -0 + 0 is 0.
struct Gradient {
  Tensor values;
  bool defined{false};

  explicit Gradient(int64_t n) : values(make_floats({n})) {}
  float* data() const { return values.mutable_data_ptr<float>(); }
  void add(const RecurrentLoops& l, const float* other) {
    if (defined) l.binary(BinaryOp::Add, data(), other, data(), values.numel());
    else std::copy_n(other, values.numel(), data());
    defined = true;
  }
};

// The gradients that go from step to step. direct: of h, from a use besides the product.
struct Flow {
  Gradient h, c, direct;
};

// Stock kernels on planes of float32, then one rounding.
void sigmoid_gradient(const RecurrentScan& s, Tensor gradient, const Tensor& result) {
  at::sigmoid_backward_out(gradient, gradient, result);
  s.loops.round(floats_of(gradient), gradient.numel());
}
void tanh_gradient(const RecurrentScan& s, Tensor gradient, const Tensor& result) {
  at::tanh_backward_out(gradient, gradient, result);
  s.loops.round(floats_of(gradient), gradient.numel());
}

void copy_to_rows(const RecurrentScan& s, const float* plane, int row, float* wide) {
  for (int64_t n = 0; n < s.batch; ++n) {
    std::copy_n(plane + n * s.features, s.features, wide + (n * s.rows + row) * s.features);
  }
}

// dz: the gradient of both products, (batch, 4 * features). work: 4 planes. Afterwards flow.c is
// the gradient of the c before.
void lstm_backward(const RecurrentScan& s, const Tensor& kept, const float* c_before,
                   const Tensor& work, Flow& flow, float* dz) {
  using namespace lstm_planes;
  const RecurrentLoops& l = s.loops;
  const auto plane = [&](Plane p) { return floats_of(kept) + p * s.plane; };
  const auto of = [&](Plane p) { return floats_of(work) + p * s.plane; };
  if (flow.h.defined) {
    const Tensor dc = work.select(0, G);
    l.binary(BinaryOp::Mul, flow.h.data(), plane(TanhC), of(O), s.plane);
    l.binary(BinaryOp::Mul, flow.h.data(), plane(O), floats_of(dc), s.plane);
    tanh_gradient(s, dc, kept.select(0, TanhC));
    flow.c.add(l, floats_of(dc));
  } else {
    std::fill_n(of(O), s.plane, 0.0f);
  }
  float* dc = flow.c.data();
  l.binary(BinaryOp::Mul, dc, plane(G), of(I), s.plane);
  l.binary(BinaryOp::Mul, dc, plane(I), of(G), s.plane);
  l.binary(BinaryOp::Mul, dc, c_before, of(F), s.plane);
  l.binary(BinaryOp::Mul, dc, plane(F), dc, s.plane);
  static_assert(I == 0 && F == 1 && O == 2);
  sigmoid_gradient(s, work.narrow(0, I, flow.h.defined ? 3 : 2),
                   kept.narrow(0, I, flow.h.defined ? 3 : 2));
  tanh_gradient(s, work.select(0, G), kept.select(0, G));
  for (int g = 0; g < 4; ++g) copy_to_rows(s, of(kRows[g]), g, dz);
}

// dx: the gradient of the product with the input; dz: of the one with the state. work: 4 planes.
void gru_backward(const RecurrentScan& s, const Tensor& kept, const Tensor& work, Flow& flow,
                  float* dx, float* dz) {
  using namespace gru_planes;
  const RecurrentLoops& l = s.loops;
  const auto plane = [&](Plane p) { return floats_of(kept) + p * s.plane; };
  const auto of = [&](int p) { return floats_of(work) + p * s.plane; };
  const float* dh = flow.h.data();
  l.binary(BinaryOp::Mul, dh, plane(Difference), of(Z), s.plane);
  l.binary(BinaryOp::Mul, dh, plane(Z), flow.direct.data(), s.plane);
  flow.direct.defined = true;
  l.binary(BinaryOp::Sub, dh, flow.direct.data(), of(N), s.plane);
  tanh_gradient(s, work.select(0, N), kept.select(0, N));
  float* from_state = of(N + 1);
  l.binary(BinaryOp::Mul, of(N), plane(R), from_state, s.plane);
  l.binary(BinaryOp::Mul, of(N), plane(FromState), of(R), s.plane);
  static_assert(R == 0 && Z == 1 && N == 2);
  sigmoid_gradient(s, work.narrow(0, R, 2), kept.narrow(0, R, 2));
  for (const int row : {R, Z, N}) {
    copy_to_rows(s, of(row), row, dx);
    copy_to_rows(s, row == N ? from_state : of(row), row, dz);
  }
}

} // namespace

Tensor kept_memory(const RecurrentScan& s, bool recorded) {
  static_assert(lstm_planes::kPlanes == 7 && gru_planes::kPlanes == 6);
  return make_floats({recorded ? s.steps : 2, s.planes, s.batch, s.features});
}

std::optional<RecurrentResult> run_forward(const Recurrence& r, const RecurrentScan& s,
                                           const Tensor& kept) {
  const Tensor sigmoid = values_by_code(s.entry, [](const Tensor& t) { return at::sigmoid(t); }),
               tanh = values_by_code(s.entry, [](const Tensor& t) { return at::tanh(t); });
  const Tables tables{sigmoid.const_data_ptr<float>(), tanh.const_data_ptr<float>()};
  const Tensor transposed = s.weight.t(), bias = r.bias.defined() ? decoded(r.bias) : Tensor();
  Tensor z = make_floats({s.batch, s.rows * s.features}), x = make_floats({s.wide});
  RecurrentResult result;
  result.outputs = empty_format({s.steps * s.batch, s.features}, s.entry, at::kCPU);
  const int64_t state = s.planes - 1;
  Tensor h = s.h0;
  const float* c = s.c0;
  for (int64_t i = 0; i < s.steps; ++i) {
    const Tensor step = kept.select(0, i % kept.size(0));
    if (bias.defined()) at::addmm_out(z, bias, h, transposed);
    else at::mm_out(z, h, transposed);
    s.loops.round(floats_of(z), s.wide);
    s.loops.decode(s.step_codes(const_codes_of(r.inputs), i, s.wide), floats_of(x), s.wide);
    if (s.is_lstm) run_lstm(s, tables, floats_of(z), floats_of(x), c, floats_of(step));
    else run_gru(s, tables, floats_of(z), floats_of(x), h.const_data_ptr<float>(), floats_of(step));
    h = step.select(0, state);
    if (s.is_lstm) c = floats_of(step) + lstm_planes::C * s.plane;
    if (holds_nan(floats_of(h), s.plane) || (c && holds_nan(c, s.plane))) return {};
    s.loops.encode(floats_of(h), s.step_codes(codes_of(result.outputs), i, s.plane), s.plane);
  }
  const auto encode_state = [&](const float* values) {
    const Tensor t = empty_format({s.batch, s.features}, s.entry, at::kCPU);
    s.loops.encode(values, codes_of(t), s.plane);
    return t;
  };
  result.h = encode_state(floats_of(h));
  if (c) result.c = encode_state(c);
  return result;
}

// Adds terms in the order of autograd's engine: the last step first, and to h's gradient first what
// its own outputs get.
std::optional<std::vector<Tensor>> run_backward(const RecurrentScan& s, const Tensor& kept,
                                                const std::vector<Tensor>& gradients,
                                                bool of_weight, bool of_bias) {
  const RecurrentLoops& l = s.loops;
  Flow flow{Gradient(s.plane), Gradient(s.plane), Gradient(s.plane)};
  const auto values = [](const Tensor& t) {
    return t.defined() ? decoded(t.contiguous()) : Tensor();
  };
  const Tensor of_outputs = values(gradients[0]), of_h = values(gradients[1]),
               of_c = s.is_lstm ? values(gradients[2]) : Tensor();
  const Tensor work = make_floats({4, s.batch, s.features});
  const Tensor dz = make_floats({s.batch, s.rows * s.features}),
               dx = s.is_lstm ? dz : at::empty_like(dz);
  Tensor dh = make_floats({s.batch, s.features});
  Tensor dw = make_floats({s.rows * s.features, s.features}), weights = at::empty_like(dw);
  const Tensor biases = make_floats({s.rows * s.features});
  const Tensor inputs = empty_format({s.steps * s.batch, s.rows * s.features}, s.entry, at::kCPU);
  const int64_t state = s.planes - 1;
  if (of_c.defined()) flow.c.add(l, floats_of(of_c));
  for (int64_t i = s.steps; i-- > 0;) {
    const bool last = i + 1 == s.steps;
    flow.h.defined = false;
    if (of_outputs.defined()) flow.h.add(l, floats_of(of_outputs) + s.time(i) * s.plane);
    if (last && of_h.defined()) flow.h.add(l, floats_of(of_h));
    if (flow.direct.defined) flow.h.add(l, flow.direct.data());
    if (!last) flow.h.add(l, floats_of(dh));
    const Tensor step = kept.select(0, i);
    if (s.is_lstm) {
      const float* c_before =
          i == 0 ? s.c0 : floats_of(kept) + ((i - 1) * s.planes + lstm_planes::C) * s.plane;
      lstm_backward(s, step, c_before, work, flow, floats_of(dz));
    } else {
      gru_backward(s, step, work, flow, floats_of(dx), floats_of(dz));
    }
    if (holds_nan(floats_of(dz), s.wide) || holds_nan(floats_of(dx), s.wide)) return {};
    l.encode(floats_of(dx), s.step_codes(codes_of(inputs), i, s.wide), s.wide);
    at::mm_out(dh, dz, s.weight);
    l.round(floats_of(dh), s.plane);
    if (of_bias) {
      const Tensor sums = at::sum(dz, {0}, /*keepdim=*/true);
      if (last) {
        l.round(floats_of(sums), sums.numel());
        std::copy_n(floats_of(sums), sums.numel(), floats_of(biases));
      } else {
        l.add_rounded(floats_of(sums), floats_of(biases), sums.numel());
      }
    }
    if (of_weight) {
      const Tensor h_before = i == 0 ? s.h0 : kept.select(0, i - 1).select(0, state);
      at::mm_out(last ? weights : dw, dz.t(), h_before);
      if (last) l.round(floats_of(weights), weights.numel());
      else l.add_rounded(floats_of(dw), floats_of(weights), weights.numel());
    }
  }
  flow.h.defined = false;
  if (flow.direct.defined) flow.h.add(l, flow.direct.data());
  flow.h.add(l, floats_of(dh));
  const auto encode = [&](const Tensor& t, at::IntArrayRef sizes) {
    if (holds_nan(floats_of(t), t.numel())) return Tensor();
    const Tensor codes = empty_format(sizes, s.entry, at::kCPU);
    l.encode(floats_of(t), codes_of(codes), t.numel());
    return codes;
  };
  std::vector<Tensor> all{inputs, encode(flow.h.values, s.h0.sizes())};
  all.push_back(s.is_lstm ? encode(flow.c.values, s.h0.sizes()) : Tensor());
  all.push_back(of_weight ? encode(weights, weights.sizes()) : Tensor());
  all.push_back(of_bias ? encode(biases, biases.sizes()) : Tensor());
  const bool finite = all[1].defined() && (!s.is_lstm || all[2].defined()) &&
      (!of_weight || all[3].defined()) && (!of_bias || all[4].defined());
  return finite ? std::optional(all) : std::nullopt;
}

} // namespace at::formats
