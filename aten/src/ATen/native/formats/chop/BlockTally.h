// Counts for torch_dtypes.observe of what blocks with a scale would do to numbers.
#pragma once
#include <ATen/CountBuffer.h>
#include <ATen/native/formats/cpu/ScaledKernel.h>

#include <map>
#include <vector>

namespace at::formats {

struct BlockCounts {
  Counts numbers; // before rounding and after it, without a range
  Marks quotients; // by the range of the element format
  // Blocks, also by the exponents of their scales, and by the tenths (rounded up) of their nonzero
  // numbers that were beyond the range, or became 0.
  int64_t blocks{0};
  std::map<int, int64_t> scales, clipped, flushed;

  void add(const BlockCounts& other);
};

// The counts of one thread.
class BlockTally {
 public:
  // element: the format of the quotients. columns: the most in a row.
  BlockTally(const ScaledKernels& scaled, const Format& element, int64_t columns);

  // Counts blocks by their largest magnitudes and their own scales. Blocks of zeros, and those with
  // infinities or NaN, have none.
  void count_scales(const int32_t* most, const float* own, int64_t n);
  // Counts a row of numbers: before rounding, after it, and divided by their scales.
  void count_row(const float* exact, const float* rounded, const float* quotients, int64_t n);
  // Ends a row of blocks with `run` columns each.
  void end_blocks(int64_t columns, int64_t run);
  BlockCounts finish();

 private:
  void count_waiting();

  const ScaledKernels& scaled_;
  MarkLimits limits_;
  CountBuffer buffer_;
  // Numbers that wait to be counted: counting short rows costs too much.
  std::vector<float> exact_, rounded_;
  // By column: how many numbers of the row of blocks are nonzero, beyond the range, and became 0.
  std::vector<int32_t> nonzero_, beyond_, gone_;
  BlockCounts counts_;
};

} // namespace at::formats
