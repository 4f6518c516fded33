// Operators that compute some elements of a tensor: they run on those elements alone.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// The steps Touch*. Each runs the operator on the elements that it writes, each once, and puts them
// back; other elements are not read. Results are those of the operator on the whole tensor: values
// that are combined in one element are so in the same order. Returns false, and does nothing, if
// that would not be faster, or for invalid arguments, for which the stock kernel raises.
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
