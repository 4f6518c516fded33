// LSTM from operators that keep the format. PyTorch would choose between these and oneDNN's layer,
// which rounds once at its end, by the container's type and the processor. Results would depend on
// both.
#include <ATen/FormatLibrary.h>
#include <ATen/native/formats/overlay/RecurrentSteps.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/to_ops.h>

#include <algorithm>
#include <numeric>

namespace at::formats {
namespace {

using at::Tensor;
using Result = std::tuple<Tensor, Tensor, Tensor>;

struct Weights {
  Tensor input, state, input_bias, state_bias, projection; // the last three may be undefined
};

struct State {
  Tensor h, c; // (batch, features)

  State rows(int64_t first, int64_t count) const {
    return {h.narrow(0, first, count), c.narrow(0, first, count)};
  }
};

// The equations in torch.nn.LSTM's docstring.
State step(const Tensor& from_input, const State& s, const Weights& w) {
  const std::vector<Tensor> gates =
      (at::linear(s.h, w.state, w.state_bias) + from_input).chunk(4, 1);
  const Tensor c = gates[1].sigmoid() * s.c + gates[0].sigmoid() * gates[2].tanh();
  const Tensor h = gates[3].sigmoid() * c.tanh();
  return {w.projection.defined() ? at::linear(h, w.projection) : h, c};
}

// Runs steps over all sequences at once, the longest first: the rows of step t are the sequences
// that have it. A sequence without a step keeps its state: the last one forwards, the first one
// backwards.
std::pair<Tensor, State> scan_products(const Tensor& products, at::IntArrayRef batches, State state,
                                       const Weights& w, bool backwards) {
  // Split by one operator, whose gradient joins the steps'. The gradient of a slice would be as
  // large as all steps, for each step.
  const std::vector<Tensor> from_inputs = products.split_with_sizes(batches);
  const int64_t all = batches[0];
  std::vector<Tensor> outputs(batches.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    const size_t t = backwards ? batches.size() - 1 - i : i;
    const int64_t n = batches[t];
    const State next = step(from_inputs[t], n == all ? state : state.rows(0, n), w);
    outputs[t] = next.h;
    if (n == all) {
      state = next;
    } else {
      const State rest = state.rows(n, all - n);
      state = {at::cat({next.h, rest.h}), at::cat({next.c, rest.c})};
    }
  }
  return {at::cat(outputs), state};
}

RecurrentResult lstm_by_operators(const Recurrence& r) {
  const std::vector<int64_t> batches(r.inputs.size(0) / r.h.size(0), r.h.size(0));
  const Weights weights{{}, r.weight, {}, r.bias, {}};
  const auto [outputs, last] = scan_products(r.inputs, batches, {r.h, r.c}, weights, r.backwards);
  return {outputs, last.h, last.c};
}

std::pair<Tensor, State> scan(const Tensor& inputs, at::IntArrayRef batches, State state,
                              const Weights& w, bool backwards) {
  const Tensor products = at::linear(inputs, w.input, w.input_bias);
  if (!w.projection.defined() && batches.front() == batches.back()) {
    const Recurrence operands{Cell::Lstm, backwards, products,    state.h,
                              state.c,    w.state,   w.state_bias};
    if (const auto result = run_steps(operands, &lstm_by_operators))
      return {result->outputs, {result->h, result->c}};
  }
  return scan_products(products, batches, state, w, backwards);
}

std::vector<Weights> weights_of(at::TensorList tensors, bool biases, bool projections,
                                int64_t count) {
  const size_t each = 2 + (biases ? 2 : 0) + (projections ? 1 : 0);
  TORCH_CHECK(tensors.size() == each * static_cast<size_t>(count), "lstm: expected ", each,
              " weights for each of ", count, " layers and directions, but got ", tensors.size());
  std::vector<Weights> result;
  for (const Tensor* t = tensors.begin(); t != tensors.end(); t += each) {
    result.push_back({t[0], t[1], biases ? t[2] : Tensor(), biases ? t[3] : Tensor(),
                      projections ? t[each - 1] : Tensor()});
  }
  return result;
}

// A format cell with stock weights takes their dtype, as every later cell does, and not a wider one
// that has the values of both.
Tensor first_cell(const Tensor& states, int64_t k, const Weights& w) {
  const Tensor s = states.select(0, k);
  if (!entry_beneath(s) || entry_beneath(w.state)) return s;
  const ExplicitDtypeGuard explicit_dtype;
  return at::_ops::to_dtype::call(s, w.state.scalar_type(), false, false, {});
}

// states: h_0 and c_0, (layers * directions, batch, features) each.
Result lstm(Tensor data, at::IntArrayRef batches, at::TensorList states, at::TensorList tensors,
            bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const int64_t directions = bidirectional ? 2 : 1;
  TORCH_CHECK(layers > 0, "lstm: expected at least one layer, but got ", layers);
  TORCH_CHECK(states.size() == 2, "lstm: expected two initial states, h_0 and c_0, but got ",
              states.size());
  for (const Tensor& s : states) {
    TORCH_CHECK(s.dim() == 3 && s.size(0) == layers * directions && s.size(1) == batches[0],
                "lstm: expected initial states of size (", layers * directions, ", ", batches[0],
                ", features), but got ", s.sizes());
  }
  const std::vector<Weights> weights =
      weights_of(tensors, biases, states[0].size(2) != states[1].size(2), layers * directions);
  std::vector<Tensor> h(weights.size()), c(weights.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t k = layer * directions; k < (layer + 1) * directions; ++k) {
      const auto [out, last] =
          scan(data, batches, {states[0].select(0, k), first_cell(states[1], k, weights[k])},
               weights[k], k % directions == 1);
      outputs.push_back(out);
      h[k] = last.h;
      c[k] = last.c;
    }
    data = bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (dropout != 0 && train && layer + 1 < layers)
      data = at::dropout(data, dropout, /*train=*/true);
  }
  return {data, at::stack(h), at::stack(c)};
}

Result lstm_input(const Tensor& input, at::TensorList states, at::TensorList weights, bool biases,
                  int64_t layers, double dropout, bool train, bool bidirectional,
                  bool batch_first) {
  TORCH_CHECK(input.dim() == 3, "lstm: expected an input with three dimensions, but got ",
              input.sizes());
  const Tensor steps = batch_first ? input.transpose(0, 1) : input;
  const int64_t length = steps.size(0), batch = steps.size(1);
  TORCH_CHECK(length > 0,
              "lstm: expected a sequence of at least one step, but got an input of size ",
              input.sizes());
  const std::vector<int64_t> batches(length, batch);
  const auto [out, h, c] = lstm(steps.flatten(0, 1), batches, states, weights, biases, layers,
                                dropout, train, bidirectional);
  const Tensor result = out.unflatten(0, {length, batch});
  return {batch_first ? result.transpose(0, 1) : result, h, c};
}

// data: (steps of all sequences, features), beginning with all first steps. batch_sizes: the number
// of sequences that have each step.
Result lstm_data(const Tensor& data, const Tensor& batch_sizes, at::TensorList states,
                 at::TensorList weights, bool biases, int64_t layers, double dropout, bool train,
                 bool bidirectional) {
  TORCH_CHECK(!entry_beneath(batch_sizes) && batch_sizes.scalar_type() == at::kLong &&
                  batch_sizes.device().is_cpu() && batch_sizes.dim() == 1 &&
                  batch_sizes.numel() > 0,
              "lstm: expected batch sizes as an int64 CPU tensor with one dimension and at least "
              "one element");
  const Tensor contiguous = batch_sizes.contiguous();
  const at::IntArrayRef batches(contiguous.const_data_ptr<int64_t>(), contiguous.numel());
  TORCH_CHECK(std::is_sorted(batches.rbegin(), batches.rend()) && batches.back() > 0,
              "lstm: expected positive batch sizes in descending order, but got ", batches);
  const int64_t rows = std::accumulate(batches.begin(), batches.end(), int64_t{0});
  TORCH_CHECK(data.dim() == 2 && data.size(0) == rows,
              "lstm: expected data with two dimensions and ", rows, " rows, but got ",
              data.sizes());
  return lstm(data, batches, states, weights, biases, layers, dropout, train, bidirectional);
}

void register_lstm(torch::Library& m) {
  m.impl("lstm.input", &lstm_input);
  m.impl("lstm.data", &lstm_data);
}

} // namespace

TD_REGISTER_COMPOSITE(register_lstm)

} // namespace at::formats
