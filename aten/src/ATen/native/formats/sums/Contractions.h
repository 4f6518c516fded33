// Composite contractions under the accumulation policies.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/core/stack.h>

#include <string>

namespace at::formats {

// Runs tensordot or linalg_vecdot, given by name, as one matrix product if the policy needs this
// package's kernels. Otherwise returns false and leaves the stack unchanged.
bool run_contraction(const std::string& name, torch::jit::Stack* stack);

// The one format of all operands, also of those that torch.func wraps; nullptr if there is none.
const FormatEntry* one_format(at::ArrayRef<at::Tensor> operands);

// Whether linear is one sum that starts at the bias, and linear as that sum. Under policies with
// kernels of this package it always is. Otherwise it is if the rows of input are contiguous: for
// other inputs PyTorch multiplies, rounds, and adds the bias.
bool linear_is_one_sum(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_as_sum(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

} // namespace at::formats
