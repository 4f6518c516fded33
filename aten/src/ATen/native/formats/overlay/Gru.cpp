// GRU whose steps run as one operator where they can. Elsewhere stock composite code runs.
#include <ATen/FormatLibrary.h>
#include <ATen/native/formats/overlay/RecurrentSteps.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>

namespace at::formats {
namespace {

namespace stock = at::compositeimplicitautograd;
using at::Tensor;

// The operators of PyTorch's cell (GRUCell in aten/src/ATen/native/RNN.cpp), in its order and its
// memory: random modes draw the same words.
RecurrentResult gru_by_operators(const Recurrence& r) {
  const std::vector<Tensor> inputs = r.inputs.unflatten(0, {-1, r.h.size(0)}).unbind(0);
  std::vector<Tensor> outputs(inputs.size());
  Tensor h = r.h;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t t = r.backwards ? inputs.size() - 1 - i : i;
    const std::vector<Tensor> x = inputs[t].unsafe_chunk(3, 1);
    const std::vector<Tensor> z = at::linear(h, r.weight, r.bias).unsafe_chunk(3, 1);
    const Tensor reset = z[0].add_(x[0]).sigmoid_();
    const Tensor update = z[1].add_(x[1]).sigmoid_();
    const Tensor candidate = x[2].add(z[2].mul_(reset)).tanh_();
    h = outputs[t] = (h - candidate).mul_(update).add_(candidate);
  }
  return {at::stack(outputs).flatten(0, 1), h, {}};
}

bool run_as_steps(const Tensor& input, const Tensor& states, at::TensorList weights, bool biases,
                  int64_t count) {
  std::vector<Tensor> operands(weights.begin(), weights.end());
  operands.push_back(states);
  const FormatEntry* entry = format_of_steps(operands);
  return entry && entry == entry_beneath(input) && input.dim() == 3 && states.dim() == 3 &&
      input.numel() > 0 && states.size(0) == count &&
      weights.size() == static_cast<size_t>(count) * (biases ? 4 : 2);
}

std::tuple<Tensor, Tensor> gru_input(const Tensor& input, const Tensor& states,
                                     at::TensorList weights, bool biases, int64_t layers,
                                     double dropout, bool train, bool bidirectional,
                                     bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1;
  if (!run_as_steps(input, states, weights, biases, layers * directions))
    return stock::gru(input, states, weights, biases, layers, dropout, train, bidirectional,
                      batch_first);
  Tensor data = batch_first ? input.transpose(0, 1) : input;
  const int64_t length = data.size(0), batch = data.size(1);
  std::vector<Tensor> last;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t k = layer * directions; k < (layer + 1) * directions; ++k) {
      const Tensor* w = weights.begin() + k * (biases ? 4 : 2);
      const Tensor products = at::linear(data, w[0], biases ? w[2] : Tensor());
      const Recurrence operands{
          Cell::Gru, k % directions == 1,     products.flatten(0, 1), states.select(0, k), Tensor(),
          w[1],      biases ? w[3] : Tensor()};
      const auto steps = run_steps(operands, &gru_by_operators);
      const RecurrentResult result = steps ? *steps : gru_by_operators(operands);
      outputs.push_back(result.outputs.unflatten(0, {length, batch}));
      last.push_back(result.h);
    }
    data = bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (dropout != 0 && train && layer + 1 < layers)
      data = at::dropout(data, dropout, /*train=*/true);
  }
  return {batch_first ? data.transpose(0, 1) : data, at::stack(last)};
}

void register_gru(torch::Library& m) {
  m.impl("gru.input", &gru_input);
}

} // namespace

TD_REGISTER_COMPOSITE(register_gru)

} // namespace at::formats
