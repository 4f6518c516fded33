#include <ATen/native/formats/overlay/RecurrentSteps.h>

#include <ATen/Accumulation.h>
#include <ATen/AutogradNode.h>
#include <ATen/Float32Products.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatWrapper.h>
#include <ATen/Observation.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/overlay/RecurrentLoops.h>
#include <ATen/native/formats/stock/Backend.h>
#include <c10/formats/tables/ValueTable.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <cmath>
#include <cstring>

namespace at::formats {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// What is kept of each step for the backward pass: planes of (batch, features) numbers.
// Lstm: the gates i, f, o and g, the new c, its tanh. Gru: the gates r and z, the new gate n, its
// part from the state before r, and h - n. Last comes the new h.
namespace lstm {
enum Plane { I, F, O, G, C, TanhC, H, kPlanes };
constexpr Plane kRows[] = {I, F, G, O}; // in the order of the weight's rows
} // namespace lstm
namespace gru {
enum Plane { R, Z, N, FromState, Difference, H, kPlanes };
} // namespace gru

Tensor floats(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
}
float* data(const Tensor& t) {
  return t.mutable_data_ptr<float>();
}

// A function's values for all codes.
template <typename Function>
Tensor values_by_code(const FormatEntry& entry, const Function& function) {
  const int64_t count = int64_t{1} << (8 * entry.format.itemsize());
  const Tensor codes = at::arange(count, at::TensorOptions().dtype(at::kInt)).to(entry.bits);
  return decoded(function(format_alias(codes, entry)));
}

std::array<Tensor, 5> tensors_of(const Recurrence& r) {
  return {r.inputs, r.h, r.c, r.weight, r.bias};
}

// Whether sizes match; if not, single operators raise.
bool have_sizes(const Recurrence& r) {
  if (r.h.dim() != 2 || r.inputs.dim() != 2) return false;
  const int64_t batch = r.h.size(0), features = r.h.size(1);
  const int64_t wide = (r.cell == Cell::Lstm ? 4 : 3) * features;
  return batch > 0 && r.inputs.size(0) % batch == 0 && r.inputs.size(1) == wide &&
      (!r.c.defined() || r.c.sizes() == r.h.sizes()) &&
      r.weight.sizes() == at::IntArrayRef({wide, features}) &&
      (!r.bias.defined() || r.bias.sizes() == at::IntArrayRef({wide}));
}

bool holds_nan(const float* values, int64_t n) {
  bool any = false;
  for (int64_t i = 0; i < n; ++i) any |= std::isnan(values[i]);
  return any;
}

// Sizes, operands as float32 and scratch memory that both directions need.
struct Scan {
  const FormatEntry& entry;
  const RecurrentLoops loops;
  const bool is_lstm, backwards;
  const int64_t batch, features, rows, steps, planes, plane, wide; // plane, wide: elements
  const Tensor weight, h0;
  const float* c0{nullptr};

  Scan(const Recurrence& r, const FormatEntry& e)
      : entry(e),
        loops(rounding_format(e)),
        is_lstm(r.cell == Cell::Lstm),
        backwards(r.backwards),
        batch(r.h.size(0)),
        features(r.h.size(1)),
        rows(is_lstm ? 4 : 3),
        steps(r.inputs.size(0) / batch),
        planes(is_lstm ? int64_t{lstm::kPlanes} : int64_t{gru::kPlanes}),
        plane(batch * features),
        wide(rows * plane),
        weight(decoded(r.weight)),
        h0(decoded(r.h)) {
    if (!is_lstm) return;
    c0_ = decoded(r.c);
    c0 = c0_.const_data_ptr<float>();
  }
  int64_t time(int64_t i) const { return backwards ? steps - 1 - i : i; } // of the i-th step to run
  template <typename Byte>
  Byte* step_codes(Byte* codes, int64_t i, int64_t elements) const {
    return codes + time(i) * elements * entry.format.itemsize();
  }

 private:
  Tensor c0_;
};

char* bytes(const Tensor& t) {
  return static_cast<char*>(t.mutable_data_ptr());
}
const char* const_bytes(const Tensor& t) {
  return static_cast<const char*>(t.const_data_ptr());
}

// ---- forward ----

struct Tables {
  const float *sigmoid, *tanh;
};

// z: products with the state, x: products with the input, both (batch, rows * features).
void run_lstm(const Scan& s, const Tables& tables, float* z, const float* x, const float* c_before,
              float* kept) {
  using namespace lstm;
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

void run_gru(const Scan& s, const Tables& tables, float* z, const float* x, const float* h_before,
             float* kept) {
  using namespace gru;
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

// kept: (steps or 2, planes, batch, features). With 2, steps take turns.
std::optional<RecurrentResult> run_forward(const Recurrence& r, const Scan& s, const Tensor& kept) {
  const Tensor sigmoid = values_by_code(s.entry, [](const Tensor& t) { return at::sigmoid(t); }),
               tanh = values_by_code(s.entry, [](const Tensor& t) { return at::tanh(t); });
  const Tables tables{sigmoid.const_data_ptr<float>(), tanh.const_data_ptr<float>()};
  const Tensor transposed = s.weight.t(), bias = r.bias.defined() ? decoded(r.bias) : Tensor();
  Tensor z = floats({s.batch, s.rows * s.features}), x = floats({s.wide});
  RecurrentResult result;
  result.outputs = empty_format({s.steps * s.batch, s.features}, s.entry, at::kCPU);
  const int64_t state = s.planes - 1;
  Tensor h = s.h0;
  const float* c = s.c0;
  for (int64_t i = 0; i < s.steps; ++i) {
    const Tensor step = kept.select(0, i % kept.size(0));
    if (bias.defined()) at::addmm_out(z, bias, h, transposed);
    else at::mm_out(z, h, transposed);
    s.loops.round(data(z), s.wide);
    s.loops.decode(s.step_codes(const_bytes(r.inputs), i, s.wide), data(x), s.wide);
    if (s.is_lstm) run_lstm(s, tables, data(z), data(x), c, data(step));
    else run_gru(s, tables, data(z), data(x), h.const_data_ptr<float>(), data(step));
    h = step.select(0, state);
    if (s.is_lstm) c = data(step) + lstm::C * s.plane;
    if (holds_nan(data(h), s.plane) || (c && holds_nan(c, s.plane))) return {};
    s.loops.encode(data(h), s.step_codes(bytes(result.outputs), i, s.plane), s.plane);
  }
  const auto encode_state = [&](const float* values) {
    const Tensor t = empty_format({s.batch, s.features}, s.entry, at::kCPU);
    s.loops.encode(values, bytes(t), s.plane);
    return t;
  };
  result.h = encode_state(data(h));
  if (c) result.c = encode_state(c);
  return result;
}

// ---- backward ----

// A gradient that may be absent, which differs from zeros: -0 + 0 is 0.
struct Gradient {
  Tensor values;
  bool defined{false};

  explicit Gradient(int64_t n) : values(floats({n})) {}
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
void sigmoid_gradient(const Scan& s, Tensor gradient, const Tensor& result) {
  at::sigmoid_backward_out(gradient, gradient, result);
  s.loops.round(data(gradient), gradient.numel());
}
void tanh_gradient(const Scan& s, Tensor gradient, const Tensor& result) {
  at::tanh_backward_out(gradient, gradient, result);
  s.loops.round(data(gradient), gradient.numel());
}

void copy_to_rows(const Scan& s, const float* plane, int row, float* wide) {
  for (int64_t n = 0; n < s.batch; ++n) {
    std::copy_n(plane + n * s.features, s.features, wide + (n * s.rows + row) * s.features);
  }
}

// dz: the gradient of both products, (batch, 4 * features). work: 4 planes. Afterwards flow.c is
// the gradient of the c before.
void lstm_backward(const Scan& s, const Tensor& kept, const float* c_before, const Tensor& work,
                   Flow& flow, float* dz) {
  using namespace lstm;
  const RecurrentLoops& l = s.loops;
  const auto plane = [&](Plane p) { return data(kept) + p * s.plane; };
  const auto of = [&](Plane p) { return data(work) + p * s.plane; };
  if (flow.h.defined) {
    const Tensor dc = work.select(0, G);
    l.binary(BinaryOp::Mul, flow.h.data(), plane(TanhC), of(O), s.plane);
    l.binary(BinaryOp::Mul, flow.h.data(), plane(O), data(dc), s.plane);
    tanh_gradient(s, dc, kept.select(0, TanhC));
    flow.c.add(l, data(dc));
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
void gru_backward(const Scan& s, const Tensor& kept, const Tensor& work, Flow& flow, float* dx,
                  float* dz) {
  using namespace gru;
  const RecurrentLoops& l = s.loops;
  const auto plane = [&](Plane p) { return data(kept) + p * s.plane; };
  const auto of = [&](int p) { return data(work) + p * s.plane; };
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

// The gradients of inputs, h, c, weight and bias, or nothing if there is NaN. Terms are added in
// the order of autograd's engine: the last step first, and of h first what its own outputs get.
std::optional<variable_list> run_backward(const Scan& s, const Tensor& kept,
                                          const variable_list& gradients, bool of_weight,
                                          bool of_bias) {
  const RecurrentLoops& l = s.loops;
  Flow flow{Gradient(s.plane), Gradient(s.plane), Gradient(s.plane)};
  const auto values = [](const Tensor& t) {
    return t.defined() ? decoded(t.contiguous()) : Tensor();
  };
  const Tensor of_outputs = values(gradients[0]), of_h = values(gradients[1]),
               of_c = s.is_lstm ? values(gradients[2]) : Tensor();
  const Tensor work = floats({4, s.batch, s.features});
  const Tensor dz = floats({s.batch, s.rows * s.features}),
               dx = s.is_lstm ? dz : at::empty_like(dz);
  Tensor dh = floats({s.batch, s.features});
  Tensor dw = floats({s.rows * s.features, s.features}), weights = at::empty_like(dw);
  const Tensor biases = floats({s.rows * s.features});
  const Tensor inputs = empty_format({s.steps * s.batch, s.rows * s.features}, s.entry, at::kCPU);
  const int64_t state = s.planes - 1;
  if (of_c.defined()) flow.c.add(l, data(of_c));
  for (int64_t i = s.steps; i-- > 0;) {
    const bool last = i + 1 == s.steps;
    flow.h.defined = false;
    if (of_outputs.defined()) flow.h.add(l, data(of_outputs) + s.time(i) * s.plane);
    if (last && of_h.defined()) flow.h.add(l, data(of_h));
    if (flow.direct.defined) flow.h.add(l, flow.direct.data());
    if (!last) flow.h.add(l, data(dh));
    const Tensor step = kept.select(0, i);
    if (s.is_lstm) {
      const float* c_before = i == 0 ? s.c0 : data(kept) + ((i - 1) * s.planes + lstm::C) * s.plane;
      lstm_backward(s, step, c_before, work, flow, data(dz));
    } else {
      gru_backward(s, step, work, flow, data(dx), data(dz));
    }
    if (holds_nan(data(dz), s.wide) || holds_nan(data(dx), s.wide)) return {};
    l.encode(data(dx), s.step_codes(bytes(inputs), i, s.wide), s.wide);
    at::mm_out(dh, dz, s.weight);
    l.round(data(dh), s.plane);
    if (of_bias) {
      const Tensor sums = at::sum(dz, {0}, /*keepdim=*/true);
      if (last) {
        l.round(data(sums), sums.numel());
        std::copy_n(data(sums), sums.numel(), data(biases));
      } else {
        l.add_rounded(data(sums), data(biases), sums.numel());
      }
    }
    if (of_weight) {
      const Tensor h_before = i == 0 ? s.h0 : kept.select(0, i - 1).select(0, state);
      at::mm_out(last ? weights : dw, dz.t(), h_before);
      if (last) l.round(data(weights), weights.numel());
      else l.add_rounded(data(dw), data(weights), weights.numel());
    }
  }
  flow.h.defined = false;
  if (flow.direct.defined) flow.h.add(l, flow.direct.data());
  flow.h.add(l, data(dh));
  const auto encode = [&](const Tensor& t, at::IntArrayRef sizes) {
    if (holds_nan(data(t), t.numel())) return Tensor();
    const Tensor codes = empty_format(sizes, s.entry, at::kCPU);
    l.encode(data(t), bytes(codes), t.numel());
    return codes;
  };
  variable_list all{inputs, encode(flow.h.values, s.h0.sizes())};
  all.push_back(s.is_lstm ? encode(flow.c.values, s.h0.sizes()) : Tensor());
  all.push_back(of_weight ? encode(weights, weights.sizes()) : Tensor());
  all.push_back(of_bias ? encode(biases, biases.sizes()) : Tensor());
  const bool finite = all[1].defined() && (!s.is_lstm || all[2].defined()) &&
      (!of_weight || all[3].defined()) && (!of_bias || all[4].defined());
  return finite ? std::optional(all) : std::nullopt;
}

// ---- autograd ----

struct MachinePolicy {
  std::optional<Accumulation> previous{set_accumulation_override(Accumulation{})};
  ~MachinePolicy() { set_accumulation_override(previous); }
};

struct RecurrentBackward final : torch::autograd::Node {
  Cell cell{};
  bool backwards{};
  ByOperators by_operators{};
  std::array<SavedVariable, 5> operands; // as in Recurrence
  SavedVariable kept;

  std::string name() const override {
    return cell == Cell::Lstm ? "LstmStepsBackward" : "GruStepsBackward";
  }
  void release_variables() override {
    for (SavedVariable& v : operands) v.reset_data();
    kept.reset_data();
  }
  variable_list apply(variable_list&& gradients) override {
    const bool any = std::any_of(gradients.begin(), gradients.end(),
                                 [](const Tensor& t) { return t.defined(); });
    if (!any) return variable_list(operands.size());
    const Recurrence r{cell,
                       backwards,
                       operands[0].unpack(),
                       operands[1].unpack(),
                       operands[2].unpack(),
                       operands[3].unpack(),
                       operands[4].unpack()};
    const bool plain = std::all_of(gradients.begin(), gradients.end(), [](const Tensor& t) {
      return !t.defined() || (is_format_tensor(t) && !is_wrapper(t));
    });
    const FormatEntry* entry =
        plain && !at::GradMode::is_enabled() ? format_of_steps(tensors_of(r)) : nullptr;
    if (entry) {
      const at::AutoDispatchBelowADInplaceOrView below;
      if (auto all = run_backward(Scan(r, *entry), kept.unpack(), gradients,
                                  task_should_compute_output(3), task_should_compute_output(4)))
        return *all;
    }
    return run_operators(r, gradients);
  }

 private:
  // Runs the steps anew, as they ran, and differentiates them as the caller asks.
  variable_list run_operators(const Recurrence& r, const variable_list& gradients) {
    RecurrentResult result;
    {
      const at::AutoGradMode recording(true);
      const RoundingGuard nearest(Rounding::NearestEven);
      const MachinePolicy policy;
      const Unobserved again;
      result = by_operators(r);
    }
    const Tensor results[] = {result.outputs, result.h, result.c};
    const auto from = tensors_of(r);
    variable_list roots, seeds, leaves;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(results[i]);
      seeds.push_back(gradients[i]);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (task_should_compute_output(i)) leaves.push_back(from[i]);
    }
    const bool differentiable = at::GradMode::is_enabled();
    const variable_list found = torch::autograd::grad(roots, leaves, seeds, differentiable,
                                                      differentiable, /*allow_unused=*/true);
    variable_list all(operands.size());
    size_t next = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (task_should_compute_output(i)) all[i] = found[next++];
    }
    return all;
  }
};

} // namespace

const FormatEntry* format_of_steps(at::TensorList operands) {
  const FormatEntry* entry = nullptr;
  for (const Tensor& t : operands) {
    if (!t.defined()) continue;
    const bool plain = is_format_tensor(t) && !is_wrapper(t) && t.device().is_cpu() &&
        t.is_contiguous() && !torch::autograd::isFwGradDefined(t);
    if (!plain || (entry && &entry_of(t) != entry)) return nullptr;
    entry = &entry_of(t);
  }
  const Format f = rounding_format(*entry);
  const bool in_float = entry->compute == at::kFloat && f.itemsize() <= 2 &&
      f.arithmetic_in_float() && !c10::formats::is_logarithmic(f) &&
      f.rounding == Rounding::NearestEven &&
      accumulation_of(*entry).kind == Accumulation::Kind::Machine &&
      float32_keeps(f.significand_bits(), "mm", c10::DeviceType::CPU);
  const bool watched = observing() || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer) ||
      at::autocast::is_autocast_enabled(at::kCPU);
  const bool kernels = !on_gpu(at::kCPU) && !by_stock(at::kCPU);
  return in_float && !watched && kernels ? entry : nullptr;
}

std::optional<RecurrentResult> run_steps(const Recurrence& r, ByOperators by_operators) {
  const FormatEntry* entry = have_sizes(r) ? format_of_steps(tensors_of(r)) : nullptr;
  // Tables of functions must pay for themselves.
  if (!entry || r.inputs.size(0) * r.h.size(1) < int64_t{1} << (8 * entry->format.itemsize()))
    return {};
  const bool recorded =
      torch::autograd::compute_requires_grad(r.inputs, r.h, r.c, r.weight, r.bias);
  std::optional<RecurrentResult> result;
  Tensor kept;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Scan scan(r, *entry);
    kept = floats({recorded ? scan.steps : 2, scan.planes, scan.batch, scan.features});
    result = run_forward(r, scan, kept);
  }
  if (!result || !recorded) return result;
  const auto node = make_node<RecurrentBackward>();
  node->cell = r.cell;
  node->backwards = r.backwards;
  node->by_operators = by_operators;
  node->operands = {SavedVariable(r.inputs, false), SavedVariable(r.h, false),
                    SavedVariable(r.c, false), SavedVariable(r.weight, false),
                    SavedVariable(r.bias, false)};
  node->kept = SavedVariable(kept, false);
  node->set_next_edges(torch::autograd::collect_next_edges(r.inputs, r.h, r.c, r.weight, r.bias));
  variable_list results{result->outputs, result->h};
  if (result->c.defined()) results.push_back(result->c);
  torch::autograd::set_history(results, node);
  return result;
}

} // namespace at::formats
