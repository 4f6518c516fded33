#include <ATen/native/formats/sums/ConvolutionDots.h>

#include <ATen/native/formats/sums/DotProducts.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace at::formats {
namespace {

using Sizes = c10::SmallVector<int64_t, 6>;

// Arranges x [N, C, ...] (stock, padded) as [groups, C / groups * kernel, N * out]: every patch is
// a column.
at::Tensor patches(const at::Tensor& x, c10::IntArrayRef kernel, c10::IntArrayRef stride,
                   c10::IntArrayRef dilation, c10::IntArrayRef out, int64_t groups) {
  const int64_t n = x.size(0), c = x.size(1), dims = static_cast<int64_t>(kernel.size());
  Sizes sizes{groups, c / groups}, strides{x.stride(1) * (c / groups), x.stride(1)};
  int64_t taps = c / groups, columns = n;
  for (int64_t d = 0; d < dims; ++d) {
    sizes.push_back(kernel[d]);
    strides.push_back(x.stride(2 + d) * dilation[d]);
    taps *= kernel[d];
  }
  sizes.push_back(n);
  strides.push_back(x.stride(0));
  for (int64_t d = 0; d < dims; ++d) {
    sizes.push_back(out[d]);
    strides.push_back(x.stride(2 + d) * stride[d]);
    columns *= out[d];
  }
  return x.as_strided(sizes, strides, x.storage_offset())
      .reshape({groups, taps, columns})
      .contiguous();
}

// [N, C, ...] to [groups, C / groups, N * positions].
at::Tensor channels_first(const at::Tensor& x, int64_t groups) {
  const int64_t n = x.size(0), c = x.size(1);
  int64_t positions = 1;
  for (const int64_t p : x.sizes().slice(2)) positions *= p;
  return x.reshape({n, groups, c / groups, positions})
      .permute({1, 2, 0, 3})
      .reshape({groups, c / groups, n * positions})
      .contiguous();
}

// Format tensor [groups, C / groups, N * positions] to [N, C, positions...].
at::Tensor batch_first(const at::Tensor& y, int64_t n, c10::IntArrayRef positions,
                       const FormatEntry& entry) {
  const int64_t groups = y.size(0), c = y.size(1);
  Sizes sizes{n, groups * c};
  sizes.append(positions.begin(), positions.end());
  int64_t count = 1;
  for (const int64_t p : positions) count *= p;
  return format_alias(bits_alias(y)
                          .reshape({groups, c, n, count})
                          .permute({2, 0, 1, 3})
                          .reshape(sizes)
                          .contiguous(),
                      entry);
}

// Pads x; constant_pad_nd counts dimensions from the last.
at::Tensor pad_zeros(const at::Tensor& x, c10::IntArrayRef before, c10::IntArrayRef after) {
  Sizes pad;
  for (size_t d = before.size(); d-- > 0;) {
    pad.push_back(before[d]);
    pad.push_back(after[d]);
  }
  return at::constant_pad_nd(x, pad, 0).contiguous();
}

// out: the result's positions. For an input gradient they are the input's. That may be fewer than
// fit: positions that an output_padding of at least the stride adds belong to no input.
at::Tensor forward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                   c10::IntArrayRef out, const Convolution& conv, const FormatEntry& entry,
                   const Accumulation& policy) {
  const at::Tensor x = pad_zeros(input, conv.padding, conv.padding);
  const c10::IntArrayRef kernel = weight.sizes().slice(2);
  const int64_t g = conv.groups;
  DotProducts dots{
      weight.reshape({g, weight.size(0) / g, weight.numel() / std::max<int64_t>(1, weight.size(0))})
          .contiguous(),
      patches(x, kernel, conv.stride, conv.dilation, out, g)};
  if (bias.defined()) {
    dots.start = bias.reshape({g, weight.size(0) / g, 1})
                     .expand({g, weight.size(0) / g, dots.b.size(2)})
                     .contiguous();
  }
  return batch_first(dot_products(dots, entry, policy), input.size(0), out, entry);
}

// From [N, Co, out...] back to [N, C, in...]: the gradient is spread by the stride, padded, and
// convolved with the reversed kernel.
at::Tensor backward(const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& bias,
                    c10::IntArrayRef in, const Convolution& conv, const FormatEntry& entry,
                    const Accumulation& policy) {
  const int64_t g = conv.groups, dims = static_cast<int64_t>(in.size());
  const c10::IntArrayRef kernel = weight.sizes().slice(2);
  Sizes spread_sizes{grad.size(0), grad.size(1)}, before, after, ones(dims, 1), spatial;
  for (int64_t d = 0; d < dims; ++d) {
    spread_sizes.push_back((grad.size(2 + d) - 1) * conv.stride[d] + 1);
    before.push_back(conv.dilation[d] * (kernel[d] - 1) - conv.padding[d]);
    after.push_back(in[d] + conv.dilation[d] * (kernel[d] - 1) - before[d] - spread_sizes[2 + d]);
    spatial.push_back(3 + d);
  }
  const auto columns = [&](const at::Tensor& values) {
    at::Tensor spread = at::zeros(spread_sizes, values.options()), slots = spread;
    for (int64_t d = 0; d < dims; ++d)
      slots = slots.slice(2 + d, std::nullopt, std::nullopt, conv.stride[d]);
    slots.copy_(values);
    return patches(pad_zeros(spread, before, after), kernel, ones, conv.dilation, in, g);
  };
  // weight [Co, C / g, kernel] to [g, C / g, Co / g * kernel].
  Sizes grouped{g, weight.size(0) / g, weight.size(1)};
  grouped.append(kernel.begin(), kernel.end());
  const at::Tensor turned =
      weight.reshape(grouped)
          .flip(spatial)
          .transpose(1, 2)
          .reshape({g, weight.size(1), weight.numel() / std::max<int64_t>(1, g * weight.size(1))})
          .contiguous();
  DotProducts dots{turned, columns(grad)};
  // Between and around the spread values there are no terms, whereas a forward convolution's
  // padding is terms of 0.
  dots.present = columns(at::ones(grad.sizes(), grad.options().dtype(c10::kByte)));
  if (bias.defined())
    dots.start = bias.reshape({g, weight.size(1), 1})
                     .expand({g, weight.size(1), dots.b.size(2)})
                     .contiguous();
  return batch_first(dot_products(dots, entry, policy), grad.size(0), in, entry);
}

} // namespace

at::Tensor convolution_dots(const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const Convolution& conv,
                            const Accumulation& policy) {
  const FormatEntry& entry = entry_of(input);
  const auto type = dot_type(entry, policy);
  const at::Tensor x = decoded(input, type), w = decoded(weight, type),
                   b = bias.defined() ? decoded(bias, type) : bias;
  Sizes out;
  for (int64_t d = 2; d < x.dim(); ++d) {
    const int64_t stride = conv.stride[d - 2], padding = conv.padding[d - 2],
                  reach = conv.dilation[d - 2] * (w.size(d) - 1) + 1;
    out.push_back(conv.transposed
                      ? (x.size(d) - 1) * stride - 2 * padding + reach + conv.output_padding[d - 2]
                      : (x.size(d) + 2 * padding - reach) / stride + 1);
    TORCH_CHECK(out.back() > 0, "Given input size per channel: ", x.sizes().slice(2),
                ". Calculated output size per channel: ", out.back(), ". Output size is too small");
  }
  return conv.transposed ? backward(x, w, b, out, conv, entry, policy)
                         : forward(x, w, b, out, conv, entry, policy);
}

at::Tensor convolution_input_dots(const at::Tensor& grad, const at::Tensor& weight,
                                  c10::IntArrayRef input_sizes, const Convolution& conv,
                                  const Accumulation& policy) {
  const FormatEntry& entry = entry_of(grad);
  const auto type = dot_type(entry, policy);
  const at::Tensor g = decoded(grad, type), w = decoded(weight, type);
  const c10::IntArrayRef in = input_sizes.slice(2);
  return conv.transposed ? forward(g, w, {}, in, conv, entry, policy)
                         : backward(g, w, {}, in, conv, entry, policy);
}

at::Tensor convolution_weight_dots(const at::Tensor& grad, const at::Tensor& input,
                                   c10::IntArrayRef weight_sizes, const Convolution& conv,
                                   const Accumulation& policy) {
  const FormatEntry& entry = entry_of(grad);
  const auto type = dot_type(entry, policy);
  // A transposed convolution exchanges input and output.
  const at::Tensor wide = decoded(conv.transposed ? grad : input, type),
                   narrow = decoded(conv.transposed ? input : grad, type);
  const c10::IntArrayRef kernel = weight_sizes.slice(2), out = narrow.sizes().slice(2);
  const at::Tensor columns = patches(pad_zeros(wide, conv.padding, conv.padding), kernel,
                                     conv.stride, conv.dilation, out, conv.groups);
  const DotProducts dots{channels_first(narrow, conv.groups), columns.transpose(1, 2).contiguous()};
  const at::Tensor result = dot_products(dots, entry, policy);
  return format_alias(bits_alias(result).reshape(weight_sizes).contiguous(), entry);
}

} // namespace at::formats
