// Dot products whose products and sums are rounded to nearest even to float formats, in registers.
// They round by magic numbers (c10/formats/codec/AdditionRound.h), on a few rows times two vectors
// of columns. So the additions of several sums overlap.
//
// Elements add up their terms in the order of k. An element that is NaN is undecided: it
// overflowed, or began at -0, or has an infinite or NaN operand. All others have the bits of the
// general way.
//
// Its table is apart from Kernels.h's, and chosen with it.
#pragma once
#include <c10/formats/codec/AdditionRound.h>

#include <cstdint>

namespace at::formats {

enum class StepSums : uint8_t {
  OneFormat, // products and sums
  TwoFormats,
  Machine, // products; sums are T's own
  ExactMachine, // neither: products are exact and sums are T's own
};

// Row-major matrices of one batch. The products of operands are exact in T.
template <typename T>
struct StepDots {
  int64_t m, k, n;
  const T* a; // [m, k]; nullptr: sums of b's columns, with m = 1
  const T* b; // [k, n]
  const T* start; // [m, n]; nullptr: 0
  const uint8_t* present;      // [k, n]: 0 where a term is absent; nullptr: none is
  const uint8_t* present_rows; // [m, k]: the same
  StepSums sums;
  c10::formats::MagicNumbers<T> product, sum; // of what is rounded
  // Each chunk of terms begins a new sum, and these are added up in T; 0: one sum.
  int64_t chunk;
  bool chunks_in_float; // the chunks' sums are added up in float32
};

inline constexpr int64_t kStepRows = 32, kStepColumns = 256;

struct StepBlock {
  int64_t row, column; // the first ones
  int64_t rows, columns; // at most kStepRows and kStepColumns
};

struct StepKernels {
  // Computes a block of elements. sums: [kStepRows, kStepColumns], written also behind its ends.
  void (*block_float)(const StepDots<float>&, const StepBlock&, float* sums);
  void (*block_double)(const StepDots<double>&, const StepBlock&, double* sums);

  void block(const StepDots<float>& dots, const StepBlock& block, float* sums) const {
    block_float(dots, block, sums);
  }
  void block(const StepDots<double>& dots, const StepBlock& block, double* sums) const {
    block_double(dots, block, sums);
  }
};

// The kernels for the vector unit of a CpuKernels table, by its name.
const StepKernels& step_kernels(const char* capability);

} // namespace at::formats
