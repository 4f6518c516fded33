// Operators that write some elements of a tensor and have something to compute there: they run on
// those alone.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// The steps Touch*: each runs the operator on the elements that it writes, each once, and puts them
// back; the others are not looked at. The values are those of the operator on the whole tensor:
// what meets in one element does so in the same order. False, and nothing done, where that would
// not be faster, or where the arguments are not what stock expects, which has the words for it.
//
// (self, dim, index): index_add, index_fill, index_reduce.
bool run_on_lines(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);
// (self, index) of the flattened tensor: put.
bool run_on_elements(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);
// (self, dim, index) with one index for each element: scatter_add, scatter_reduce, scatter of
// numbers.
bool run_on_places(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);
// (self, indices): index_put.
bool run_on_indexed(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);
// (grad, indices, count, padding): embedding_dense_backward, whose other rows are 0.
bool run_on_rows(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
