// Dot products and sums on a GPU, under accumulation policies that stock kernels cannot carry out.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/native/formats/sums/BlockDots.h>
#include <ATen/native/formats/sums/DotProducts.h>

namespace at::formats {

// As dot_products() and running_sums(), into out. result: the format of finished sums.
void dot_products_on_gpu(const DotProducts& dots, const FormatEntry& entry,
                         const Accumulation& policy, const Format& result, const Recorder& seen,
                         const at::Tensor& out);
void running_sums_on_gpu(const at::Tensor& values, const FormatEntry& entry,
                         const Accumulation& policy, const at::Tensor& out);
// The same under the policy `block`.
void block_sums_on_gpu(const DotProducts& dots, const BlockJob& job, const at::Tensor& out);
void running_block_sums_on_gpu(const at::Tensor& values, const BlockJob& job,
                               const at::Tensor& out);

} // namespace at::formats
