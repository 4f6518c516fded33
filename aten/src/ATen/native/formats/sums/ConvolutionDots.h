// Convolutions and their gradients as dot products over patches.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/FormatTensor.h>

namespace at::formats {

struct Convolution {
  c10::SmallVector<int64_t, 3> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};

// input [N, C, ...], weight [Co, C / groups, ...] (transposed: [C, Co / groups, ...]), bias [Co] or
// undefined. Each output is one sum over (channel, kernel position) in row-major order, which
// starts at the bias.
at::Tensor convolution_dots(const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const Convolution& conv,
                            const Accumulation& policy);
// The gradient of the input: each element is one sum over (output channel, kernel position).
at::Tensor convolution_input_dots(const at::Tensor& grad, const at::Tensor& weight,
                                  c10::IntArrayRef input_sizes, const Convolution& conv,
                                  const Accumulation& policy);
// The gradient of the weight: each element is one sum over (batch, output position).
at::Tensor convolution_weight_dots(const at::Tensor& grad, const at::Tensor& input,
                                   c10::IntArrayRef weight_sizes, const Convolution& conv,
                                   const Accumulation& policy);

} // namespace at::formats
