// Block sums of many dot products side by side, in machine arithmetic that is exact. Where it may
// be used, it agrees bit for bit with BlockSums.h.
//
// Its table is apart from Kernels.h's, and chosen with it.
#pragma once
#include <cstdint>

namespace at::formats {

inline constexpr int64_t kBlockLanes = 256;
inline constexpr int16_t kZeroExponent = -16384; // of 0, which a largest exponent ignores

struct BlockSettings {
  int64_t terms;
  int bits; // bits behind the point in aligned terms, at most 29
  int man_bits; // the register's
  int low, high; // the register's exponents
  int least; // the smallest exponent that terms are aligned to
  bool nearest; // the register is rounded to nearest even; else cut
  int64_t group; // products whose sum fits 32 bits
  bool late; // the register is added to the finished sum, which keeps late_bits
  int late_bits;
  int interleave; // 1 or 2; read if late is set
  // If late is set: an exponent below that of every product. `least` then counts for the register
  // alone.
  int none;
};

// One row of k values with their exponents, times n columns of k values. n is at most kBlockLanes;
// b's rows are `stride` apart. All values are finite, and products of two are exact in T.
// sums: what the registers hold, before and after. overflowed: set where a register went beyond
// `high`.
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

// The kernels for the vector unit of a CpuKernels table, by its name.
const BlockKernels& block_kernels(const char* capability);

} // namespace at::formats
