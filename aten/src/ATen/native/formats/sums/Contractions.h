// Composite contractions under the accumulation policies.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/core/stack.h>

#include <string>

namespace at::formats {

// tensordot and linalg_vecdot, by name: as one matrix product, where a policy asks for what no
// stock kernel does. Gives back whether it did; else the stack is as it was.
bool run_contraction(const std::string& name, torch::jit::Stack* stack);

// The format of all operands, of ours or wrapped by torch.func; nullptr where they are not of one.
const FormatEntry* one_format(at::ArrayRef<at::Tensor> operands);

// Whether linear is one sum that starts at the bias: under policies with kernels of their own
// always, else where stock has rows of numbers side by side (it multiplies others, and adds the
// bias to what that was rounded to). Then linear as that sum.
bool linear_is_one_sum(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_as_sum(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

} // namespace at::formats
