// Rows of attention that are NaN and that PyTorch's fused kernel for the CPU gives as zeros: a row
// without a score that compares as a number is taken for one that is masked altogether.
#pragma once
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Of a call on stock tensors, what is to be added to its result: NaN in the rows whose scores are
// NaN by a query, a key or the mask, else -0, which changes nothing. Undefined: nothing is to be
// added.
at::Tensor lost_rows(const Plan& plan, const torch::jit::Stack& stack);
void add_lost_rows(const at::Tensor& rows, size_t results, torch::jit::Stack* stack);

} // namespace at::formats
