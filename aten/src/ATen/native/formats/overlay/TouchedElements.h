// Operators that write some elements of a tensor and have something to compute there: they run on those alone.
#pragma once
#include <ATen/native/formats/overlay/BoxedCall.h>

namespace at::formats {

// Where an operator's arguments say which elements it writes.
enum class Touches : uint8_t {
  All,
  Lines,    // (self, dim, index): index_add, index_fill, index_reduce
  Elements, // (self, index) of the flattened tensor: put
  Places,   // (self, dim, index) with one index for each element: scatter_add, scatter_reduce, scatter of numbers
  Indexed,  // (self, indices): index_put
  Rows,     // (grad, indices, count, padding): embedding_dense_backward, whose other rows are 0
};

Touches touches(const c10::FunctionSchema& schema);

// Runs the operator on the elements that it writes, each once, and puts them back; the others are not looked at. The values are those of the
// operator on the whole tensor: what meets in one element does so in the same order. False, and nothing done, where that would not be
// faster, or where the arguments are not what stock expects, which has the words for it.
bool run_on_touched(const c10::OperatorHandle& op, const Plan& plan, Touches kind, torch::jit::Stack* stack);

} // namespace at::formats
