// Dot products under the policy `block` on memory: the loops of DotProducts.cpp that add several
// products at once.
#pragma once
#include <ATen/native/formats/sums/BlockSums.h>
#include <ATen/native/formats/sums/DotLoops.h>

namespace at::formats {

// How sums of blocks are rounded at the end, and what counts them.
struct BlockResult {
  Format format;
  Seed seed;
  Recorder seen;
};

// What block sums read and write: the formats of a and b, the adder, and how the result is made.
struct BlockJob {
  Format left, right;
  bool wide_start; // what registers start with need not be a number of the operands' format
  BlockAdder adder;
  BlockResult result;
};

// Fills codes, [batches, m, n]. A term that is not there counts as 0, in its place of its block.
void block_dots(const CpuKernels& kernels, const DotOperands<double>& dots, const BlockJob& job,
                char* codes);
// The sums of the first 1, 2, ... k rows of values, [batches, k, n].
void running_block_sums(const CpuKernels& kernels, const double* values, int64_t batches, int64_t k,
                        int64_t n, const BlockJob& job, char* codes);

} // namespace at::formats
