// Blocks of float32 numbers that share a scale: their largest magnitudes, their scales, and the
// rounding of numbers times a reciprocal, in one pass.
//
// Magnitudes are compared by their bits, where NaN is the greatest. A block with an infinity or NaN
// has the scale NaN. Its table is apart from Kernels.h's, and chosen with it.
#pragma once
#include <c10/formats/BlockScale.h>
#include <c10/formats/NumberFormat.h>

#include <cstdint>

namespace at::formats {

inline constexpr int32_t kInfiniteMagnitude = 0x7f80'0000; // of float32's infinity, as bits

// Rows of numbers, `stride` apart. `together` rows share a row of scales, which has one for each
// `run` of columns; the last run may be shorter.
struct ScaledTile {
  int64_t rows, columns, stride, together, run;

  int64_t runs() const { return (columns + run - 1) / run; }
};

// Of an element format: its outermost numbers, the smallest positive one, and the smallest one of
// full precision.
struct MarkLimits {
  float lowest, highest, smallest, normal;
};

// Counts of quotients. docs/reference/rounding-counts.md explains each.
struct Marks {
  int64_t overflow{0}, saturated{0}, underflow{0}, subnormal{0};
};

struct ScaledKernels {
  // The largest magnitude in each of n columns of some rows.
  void (*find_in_columns)(const float* x, int64_t rows, int64_t stride, int64_t n, int32_t* most);
  // The largest magnitude in each run of a row. The last run may be shorter.
  void (*find_in_runs)(const float* x, int64_t n, int64_t run, int32_t* most);
  void (*find_among)(const int32_t* magnitudes, int64_t n, int64_t run, int32_t* most);

  // Scales of n blocks with these largest magnitudes, and their reciprocals.
  // by_powers: powers of two.
  void (*by_powers)(const c10::formats::BlockScale&, const int32_t* most, float* inverse,
                    float* factor, int64_t n);
  // divide: most / full * encode. by_numbers: positive numbers times `above`.
  void (*divide)(const int32_t* most, float full, float encode, float* own, int64_t n);
  void (*by_numbers)(const int32_t* most, const float* own, float above, float* inverse,
                     float* factor, int64_t n);
  // HiF4: the E6M2 scales of blocks, and their reciprocals in bfloat16.
  void (*by_sevenths)(const int32_t* most, float* reciprocal, float* own, int64_t n);
  // HiF4: scales of n pairs of groups of four, by the groups' largest magnitudes and their blocks'
  // scales. to_second: from a pair's first group to its second; 1, or the pairs lie in two rows.
  void (*by_groups)(const int32_t* most, int64_t to_second, const float* reciprocal,
                    const float* own, float* inverse, float* factor, int64_t n);

  // Repeats each number `run` times, n in all.
  void (*spread)(const float* x, int64_t run, float* out, int64_t n);
  void (*multiply)(const float* x, const float* factor, float* out, int64_t n);
  // round(x * inverse) * factor, with scales by run. Returns false, with nothing done, for formats
  // and modes that need the general way.
  bool (*round)(const c10::formats::Format&, const ScaledTile&, const float* x,
                const float* inverse, const float* factor, float* out);

  // Counts n numbers, rounded ones and quotients. Adds 1 to `nonzero` where a number is finite and
  // not 0, to `beyond` where a finite number's quotient is beyond the limits, and to `gone` where a
  // nonzero number became 0.
  void (*mark)(const MarkLimits&, const float* exact, const float* rounded, const float* quotients,
               int32_t* nonzero, int32_t* beyond, int32_t* gone, Marks& sums, int64_t n);
};

// The kernels for the vector unit of a CpuKernels table, by its name.
const ScaledKernels& scaled_kernels(const char* capability);

} // namespace at::formats
