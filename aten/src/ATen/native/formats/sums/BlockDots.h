// Dot products under the policy `block` on raw memory: DotProducts.cpp's loops that add several
// products at once.
#pragma once
#include <ATen/native/formats/sums/BlockSums.h>
#include <ATen/native/formats/sums/DotLoops.h>

namespace at::formats {

// The last rounding of sums of blocks, and the recorder that counts it.
struct BlockResult {
  Format format;
  Seed seed;
  Recorder seen;
};

// The parameters of block sums: the formats of a and b, the adder, and the result's rounding.
struct BlockJob {
  Format left, right;
  bool wide_start; // the registers' start may be no number of the operands' format
  BlockAdder adder;
  BlockResult result;
};

// Fills codes, [batches, m, n]. An absent term counts as 0 in its place of a block.
void block_dots(const CpuKernels& kernels, const DotOperands<double>& dots, const BlockJob& job,
                char* codes);
// The sums of the first 1, 2, ... k rows of values, [batches, k, n].
void running_block_sums(const CpuKernels& kernels, const double* values, int64_t batches, int64_t k,
                        int64_t n, const BlockJob& job, char* codes);

} // namespace at::formats
