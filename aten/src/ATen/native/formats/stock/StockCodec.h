// Rounding, encoding and decoding by stock tensor operations, on any device. Bits are the kernels'.
#pragma once
#include <ATen/Observation.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/formats/NumberFormat.h>
#include <c10/formats/codec/Philox.h>

namespace at::formats {

// Rounds dense float32 or float64 values to the format; results have the same type and memory
// format.
at::Tensor round_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                          const c10::formats::RandomWords& words);

// The same for graphs, which fuse it: where none of its operations depends on a result. values:
// contiguous, of any size. seed: an int64 of dimension 0 in modes that draw.
bool fuses_in_graphs(const c10::formats::Format& format);
at::Tensor round_in_graph(const c10::formats::Format& format, const at::Tensor& values,
                          const at::Tensor& seed);

// stock: dense, of float32, float64, or int64. Codes in integers of type `codes`, dense with the
// same strides.
at::Tensor encode_by_stock(const c10::formats::Format& format, const at::Tensor& stock,
                           c10::ScalarType codes, const c10::formats::RandomWords& words);

// Decodes dense codes to the type; float32 only if it has all values of the format.
at::Tensor decode_by_stock(const c10::formats::Format& format, const at::Tensor& codes,
                           c10::ScalarType type);

// Counts dense values of float32 or float64 and what they were rounded to. The CPU counts copies.
void count_on_host(const Recorder& seen, const at::Tensor& exact, const at::Tensor& rounded);

// Rounds float64 to odd in float32; a cast from there to a narrower type then rounds once.
at::Tensor narrow_to_odd_by_stock(const at::Tensor& values);

} // namespace at::formats
