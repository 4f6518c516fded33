// Dot products of float32 numbers whose every multiply-add is rounded at random to float32.
//
// Element (i, j) adds up its terms in the order of k. Its random words depend on the seed, i, j and
// k alone. So neither blocks, nor threads, nor vector units change a bit.
//
// Stochastic: an accumulator is a float64 number with 24 digits. The product of two float32 numbers
// is exact in float64, so one instruction adds it and rounds to 53 digits. 29 random bits are added
// to the last 29 digits, which are then cleared. An exact sum stays. The probability of the upper
// neighbour is off by at most 2^-29, for what the 53 digits lack.
// Up-down: float32's own multiply-add, then one code up or down by a random bit. Zeros, infinities
// and NaN stay (moved_binary32() in c10/formats/codec/FastBinary32.h).
//
// Its table is apart from Kernels.h's, and chosen with it.
#pragma once
#include <cstdint>

namespace at::formats {

// Row-major matrices of one batch.
struct InstructionDots {
  int64_t m, k, n;
  const float* a; // [m, k]; nullptr: sums of b's columns, with m = 1
  const float* b; // [k, n]
  const float* start; // [m, n]; nullptr: 0
  const uint8_t* present; // [k, n]: 0 where a term is absent; nullptr: none is
  float* out; // [m, n]
  uint64_t seed; // of the batch
  bool moves; // up_down; otherwise stochastic
  bool apart; // the product is rounded too
};

inline constexpr int64_t kInstructionRows = 128, kInstructionColumns = 256;

struct InstructionKernels {
  // Computes the elements from (row, column) on: at most kInstructionRows rows, and `columns`
  // columns, at most kInstructionColumns.
  void (*block)(const InstructionDots&, int64_t row, int64_t column, int64_t columns);
};

// The kernels for the vector unit of a CpuKernels table, by its name.
const InstructionKernels& instruction_kernels(const char* capability);

} // namespace at::formats
