// Rounding, encoding and decoding by stock tensor operations, on a device of any kind. The same
// bits as the kernels'.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/formats/NumberFormat.h>
#include <c10/formats/codec/Philox.h>

namespace at::formats {

// values: dense, of float32 or float64. Each rounded to the format, as a value of the same type in
// the same memory format. A NotImplementedError for a format or mode that has no such way.
at::Tensor round_by_stock(const c10::formats::Format& format, const at::Tensor& values,
                          const c10::formats::RandomWords& words);

// The same for graphs, which fuse it: where it is made of few operations, none of which depends on
// a result. values: contiguous, of any size. seed: an int64 of dimension 0 in modes that draw.
bool fuses_in_graphs(const c10::formats::Format& format);
at::Tensor round_in_graph(const c10::formats::Format& format, const at::Tensor& values,
                          const at::Tensor& seed);

// stock: dense, of float32, float64, or int64. Codes in integers of type `codes`, dense with the
// same strides.
at::Tensor encode_by_stock(const c10::formats::Format& format, const at::Tensor& stock,
                           c10::ScalarType codes, const c10::formats::RandomWords& words);

// codes: dense. Values of the type, which is float32 only where that has them all.
at::Tensor decode_by_stock(const c10::formats::Format& format, const at::Tensor& codes,
                           c10::ScalarType type);

// float64 rounded to odd in float32: a cast from there to a narrower type rounds once.
at::Tensor narrow_to_odd_by_stock(const at::Tensor& values);

} // namespace at::formats
