// Casts of tensors on a GPU: each one launch over contiguous memory.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/native/formats/cpu/Kernels.h>

namespace at::formats {

// values: float32 or float64, as dense as the codes and with their strides.
void decode_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& values);
// values: float32, float64, int64 or uint64, as dense as the codes and with their strides.
void encode_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& codes,
                   const RandomWords& words);
// Several of one format, float32 beside each of the codes, in as few launches as may be; into codes
// where nothing is drawn at random.
void decode_together_on_gpu(const Format& format, at::TensorList codes, at::TensorList values);
void encode_together_on_gpu(const Format& format, at::TensorList values, at::TensorList codes);
// As CpuKernels::narrow_to_odd.
void narrow_on_gpu(const at::Tensor& values, const at::Tensor& results);
// As chop(); results may be the values.
void chop_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& results,
                 const RandomWords& words, double flip_prob, const Seed& flip_seed);
// A contiguous matrix of float32 numbers with a row of codes added to each of its rows.
void encode_with_row_on_gpu(const Format& format, const at::Tensor& values, const at::Tensor& row,
                            const at::Tensor& codes, const RandomWords& words);
// Codes where those of others stand for more than the threshold, or for NaN; elsewhere 0. All in
// one order of memory.
void gate_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& numbers,
                 double threshold, const at::Tensor& out);
// table[code] of codes of 1 or 2 bytes; out may be the codes.
void look_up_on_gpu(const at::Tensor& table, const at::Tensor& codes, const at::Tensor& out);

// The code after each one, from its value (float64) towards another number; all contiguous.
void next_codes_on_gpu(const Format& format, const at::Tensor& codes, const at::Tensor& from,
                       const at::Tensor& towards, const at::Tensor& out);

} // namespace at::formats
