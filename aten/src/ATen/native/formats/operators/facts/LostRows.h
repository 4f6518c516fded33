// Rows of attention that are NaN, which PyTorch's fused CPU kernel returns as zeros: it takes a row
// whose scores are all NaN for a masked one.
#pragma once
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// For a call on stock tensors, a term to add to its result: NaN in rows whose scores a query, a key
// or the mask makes NaN, else -0, which changes nothing. Undefined if nothing has to be added.
at::Tensor lost_rows(const Plan& plan, const torch::jit::Stack& stack);
void add_lost_rows(const at::Tensor& rows, size_t results, torch::jit::Stack* stack);

} // namespace at::formats
