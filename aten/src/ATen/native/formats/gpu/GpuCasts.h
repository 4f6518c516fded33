// Casts of tensors on a GPU, one launch over contiguous memory each.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/cpu/Kernels.h>

namespace at::formats {

// values: float32 or float64, dense, with the codes' strides.
void decode_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& values);
// values: float32, float64, int64 or uint64, dense, with the codes' strides.
void encode_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& codes,
                   const RandomWords& words);
// Cast several tensors of one format between codes and float32, in as few launches as possible.
// Encoding must not draw random bits.
void decode_together_on_gpu(const Format& format, at::TensorList codes, at::TensorList values);
void encode_together_on_gpu(const Format& format, at::TensorList values, at::TensorList codes);
// Narrows as CpuKernels::narrow_to_odd does.
void narrow_on_gpu(const at::Tensor& values, const at::Tensor& results);
// Rounds as chop() does; results may be the values.
void chop_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& results,
                 const RandomWords& words, double flip_prob, const Seed& flip_seed);
// Adds a row of codes to each row of a contiguous float32 matrix, and encodes the sums.
void encode_with_row_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& row,
                            const at::Tensor& codes, const RandomWords& words);
// Keeps codes where `numbers` exceed the threshold or are NaN, else writes 0. All tensors have one
// order of memory.
void gate_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& numbers,
                 double threshold, const at::Tensor& out);
// table[code] for codes of 1 or 2 bytes; out may be the codes.
void look_up_on_gpu(const at::Tensor& table, const at::Tensor& codes, const at::Tensor& out);

// Steps each code from its value (float64) towards another number; all contiguous.
void next_codes_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& from,
                       const at::Tensor& towards, const at::Tensor& out);

} // namespace at::formats
