// The steps of one layer and direction of an LSTM or a GRU as one operator with one node of
// autograd. Single operators would decode the weight for each step, and take a call, an allocation
// and a node for each gate.
#pragma once
#include <ATen/FormatTensor.h>

#include <optional>

namespace at::formats {

enum class Cell : uint8_t { Lstm, Gru };

// The operands. All sequences have the same length.
struct Recurrence {
  Cell cell;
  bool backwards;      // the last step runs first
  at::Tensor inputs;   // (steps * batch, gates * features): products with the layer's input
  at::Tensor h, c;     // (batch, features); c is undefined for a GRU
  at::Tensor weight;   // (gates * features, features): the state's
  at::Tensor bias;     // (gates * features), or undefined
};

struct RecurrentResult {
  at::Tensor outputs; // (steps * batch, features), in the order of the inputs
  at::Tensor h, c;    // after the last step that ran
};

// Runs the steps by single operators, which autograd records.
using ByOperators = RecurrentResult (*)(const Recurrence&);

// The format of operands whose steps may run as one operator; undefined ones do not count. nullptr
// where only single operators do: in other modes than to nearest even, under other policies than
// the machine's, for formats of more than 16 bits, on other devices, and while somebody watches
// operators (observe, dispatch modes, tracing).
const FormatEntry* format_of_steps(at::TensorList operands);

// Runs all steps with the bits of single operators, in the result and in the first gradient.
// Returns nothing where format_of_steps() does, for few numbers, and for results with NaN, which
// single operators report.
//
// In backward the same conditions decide again. Where they fail, or the gradient is to be
// differentiated, by_operators runs the steps anew, and autograd differentiates that.
std::optional<RecurrentResult> run_steps(const Recurrence& operands, ByOperators by_operators);

} // namespace at::formats
