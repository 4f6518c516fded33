// Block sums of many dot products side by side, in machine arithmetic that is exact: agrees bit for
// bit with BlockSums.h where it may be used.
//
// A table of its own beside Kernels.h, chosen with that one.
#pragma once
#include <cstdint>

namespace at::formats {

inline constexpr int64_t kBlockLanes = 256;
inline constexpr int16_t kZeroExponent = -16384; // of 0, which has no part in a largest exponent

struct BlockSettings {
  int64_t terms;
  int bits; // behind the point of what is aligned, at most 29
  int man_bits; // of the register
  int low, high; // the register's exponents
  int least; // the smallest exponent that is aligned to
  bool nearest; // the register is rounded to nearest even; else cut
  int64_t group; // products whose sum fits 32 bits
  bool late; // the register meets the finished sum, of which late_bits are kept
  int late_bits;
  int interleave; // 1 or 2, with late
  // An exponent below that of every product, with late; `least` counts for the register alone then.
  int none;
};

// One row's k values with their exponents, against n columns of as many, n at most kBlockLanes and
// `stride` apart. All finite, and products of two exact in T. sums: in, what the registers hold
// first; out, what they hold at the end. overflowed: set where one went beyond `high`.
template <typename T>
struct BlockRow {
  int64_t k, n, stride;
  const T* a;
  const int16_t* a_exponents;
  const T* b;
  const int16_t* b_exponents;
  double* sums;
  uint8_t* overflowed;
};

struct BlockKernels {
  void (*row_float)(const BlockSettings&, const BlockRow<float>&);
  void (*row_double)(const BlockSettings&, const BlockRow<double>&);

  void row(const BlockSettings& s, const BlockRow<float>& r) const { row_float(s, r); }
  void row(const BlockSettings& s, const BlockRow<double>& r) const { row_double(s, r); }
};

// Of the vector unit that a table of CpuKernels is for, by its name.
const BlockKernels& block_kernels(const char* capability);

} // namespace at::formats
