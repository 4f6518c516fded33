// Counts what rounding did to numbers, from exact and rounded values.
//
// A bin per exponent adds up squares (c10/formats/RoundingCounts.h). One addition to a bin does
// both: it adds 1 to the number of elements above bit 44, and the square below it. A bin has room
// for kMaxCounted elements; then it must be emptied.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>

#include <bit>
#include <cmath>
#include <limits>

namespace at::formats::CPU_CAPABILITY {
namespace {

constexpr int64_t kBlock = 256;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

__attribute__((noinline)) CountFlags flags_of(const CountLimits& limits,
                                              const double* __restrict exact,
                                              const double* __restrict rounded, int64_t n) {
  CountFlags f;
  const CountLimits l = limits;
  for (int64_t i = 0; i < n; ++i) f.count(l, exact[i], rounded[i]);
  return f;
}

// Finds the bin of each number and the addend for it.
__attribute__((noinline)) void bins_of(const double* __restrict numbers,
                                       const uint64_t* __restrict counted,
                                       uint64_t* __restrict bins, uint64_t* __restrict addends,
                                       int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    bins[i] = c10::formats::count_bin(numbers[i]);
    addends[i] = uint64_t{1} << kCountShift | (c10::formats::count_square(numbers[i]) & counted[i]);
  }
}

void scatter(const uint64_t* bins, const uint64_t* addends, uint64_t (&table)[2][kCountBins],
             uint8_t* touched, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    table[i & 1][bins[i]] += addends[i];
    touched[bins[i] / kTouchedBins] = 1;
  }
}

template <typename T>
__attribute__((noinline)) void widen(const T* __restrict in, double* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(in[i]);
}

__attribute__((noinline)) void errors_of(const double* __restrict x, const double* __restrict r,
                                         double* __restrict error, uint64_t* __restrict both_finite,
                                         int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    error[i] = x[i] - r[i];
    both_finite[i] = 0 - uint64_t{std::abs(r[i]) < kInfinity};
  }
}

void add(const CountFlags& f, CountWork& work) {
  f.each(work.flags, [](uint64_t more, uint64_t& all) { all += more; });
}

// Counts a block of any numbers, in float64.
template <typename T>
void count_block(const CountLimits& limits, const T* exact, const T* rounded, int64_t n,
                 CountWork& work) {
  alignas(64) double x[kBlock], r[kBlock], error[kBlock];
  alignas(64) uint64_t finite[kBlock], bins[kBlock], addends[kBlock];
  widen(exact, x, n);
  widen(rounded, r, n);
  const CountFlags f = flags_of(limits, x, r, n);
  add(f, work);
  errors_of(x, r, error, finite, n);
  bins_of(x, finite, bins, addends, n);
  scatter(bins, addends, work.exact, work.touched, n);
  if (f.inexact == 0) return;
  bins_of(error, finite, bins, addends, n);
  scatter(bins, addends, work.error, work.touched, n);
}

void count_doubles(const CountLimits& limits, const double* exact, const double* rounded, int64_t n,
                   CountWork& work) {
  for (int64_t first = 0; first < n; first += kBlock) {
    count_block(limits, exact + first, rounded + first, n - first < kBlock ? n - first : kBlock,
                work);
  }
}

// ---- float32, in the same bins ----

constexpr uint32_t kFieldsApart = 1023 - 127; // between float64's field of a number and float32's

struct FloatLimits {
  float bound, smallest, normal;
};

struct FloatFlags {
  uint32_t zero_in{0}, to_zero{0}, zeros{0}, inexact{0}, underflow{0}, subnormal{0}, unusual{0};
};

// Flags of a block in which all numbers are within the range and all results finite.
__attribute__((noinline)) FloatFlags float_flags(FloatLimits l, const float* __restrict exact,
                                                 const float* __restrict rounded, int64_t n) {
  FloatFlags f;
  for (int64_t i = 0; i < n; ++i) {
    const float x = exact[i], r = rounded[i], magnitude = std::abs(x);
    const uint32_t zero = x == 0, zero_result = r == 0, small = magnitude < l.smallest,
                   below_normal = magnitude < l.normal;
    const uint32_t within = magnitude <= l.bound,
                   finite_result = std::abs(r) <= std::numeric_limits<float>::max();
    f.zero_in += zero;
    f.to_zero += (zero ^ 1) & zero_result;
    f.zeros += zero_result;
    f.inexact += uint32_t{!(x == r)};
    f.underflow += (zero ^ 1) & (small | zero_result);
    f.subnormal += (small ^ 1) & below_normal & (zero_result ^ 1);
    f.unusual += (within & finite_result) ^ 1;
  }
  return f;
}

// The exponent field of each number, and its square: 24 bits of a product to nearest, the last of
// them rounded down.
struct FloatSquares {
  alignas(64) uint32_t fields[kBlock];
  alignas(64) uint32_t squares[kBlock];
  uint32_t lowest, highest; // of the fields, without those of zeros

  // Returns false if a number is subnormal; then the fields mean nothing.
  bool of(const float* numbers, int64_t n) {
    return of(numbers, fields, squares, n, lowest, highest) == 0;
  }

 private:
  static __attribute__((noinline)) uint32_t of(const float* __restrict numbers,
                                               uint32_t* __restrict fields,
                                               uint32_t* __restrict squares, int64_t n,
                                               uint32_t& lowest, uint32_t& highest) {
    uint32_t low = 255, high = 0, subnormal = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto bits = std::bit_cast<uint32_t>(numbers[i]) & 0x7fff'ffffU;
      const uint32_t field = bits >> 23, fraction = bits & 0x7f'ffffU, normal = field != 0;
      const float m = std::bit_cast<float>(fraction | 0x3f80'0000U);
      const auto square = static_cast<uint32_t>(static_cast<int32_t>(m * m * 4194304.0f));
      fields[i] = field;
      squares[i] = square & (0 - normal);
      const uint32_t counted = normal ? field : 255;
      low = counted < low ? counted : low;
      high = field > high ? field : high;
      subnormal |= (normal ^ 1) & uint32_t{fraction != 0};
    }
    lowest = low;
    highest = high;
    return subnormal;
  }
};

__attribute__((noinline)) void subtract(const float* __restrict x, const float* __restrict r,
                                        float* __restrict error, int64_t n) {
  for (int64_t i = 0; i < n; ++i) error[i] = x[i] - r[i];
}

void touch(const FloatSquares& s, CountWork& work) {
  work.touched[0] = 1;
  for (uint32_t stretch = (s.lowest + kFieldsApart) / kTouchedBins;
       stretch <= (s.highest + kFieldsApart) / kTouchedBins; ++stretch) {
    work.touched[stretch] = 1;
  }
}

// Zeros go to bin 0 as float64's zeros do, without a branch: their field is 0, and so is their
// mask.
inline void add_square(const FloatSquares& s, int64_t i, uint64_t (&table)[2][kCountBins]) {
  const uint32_t field = s.fields[i];
  table[i & 1][field + (field != 0 ? kFieldsApart : 0)] +=
      (uint64_t{1} << kCountShift) | s.squares[i];
}

bool count_float_block(const FloatLimits& limits, const float* x, const float* r, int64_t n,
                       CountWork& work) {
  const FloatFlags f = float_flags(limits, x, r, n);
  if (f.unusual != 0) return false;
  FloatSquares exact, errors;
  if (!exact.of(x, n)) return false;
  if (f.inexact > 0) {
    alignas(64) float error[kBlock];
    subtract(x, r, error, n);
    if (!errors.of(error, n)) return false;
  }
  CountFlags found;
  found.zero_in = f.zero_in;
  found.underflow = f.underflow;
  found.to_zero = f.to_zero;
  found.subnormal = f.subnormal;
  found.zeros = f.zeros;
  found.inexact = f.inexact;
  add(found, work);
  touch(exact, work);
  if (f.inexact == 0) {
    for (int64_t i = 0; i < n; ++i) add_square(exact, i, work.exact);
    return true;
  }
  touch(errors, work);
  for (int64_t i = 0; i < n; ++i) {
    add_square(exact, i, work.exact);
    add_square(errors, i, work.error);
  }
  return true;
}

void count_floats(const CountLimits& limits, const float* exact, const float* rounded, int64_t n,
                  CountWork& work) {
  const double bound = limits.highest < -limits.lowest ? limits.highest : -limits.lowest;
  const FloatLimits narrow{static_cast<float>(bound), static_cast<float>(limits.smallest),
                           static_cast<float>(limits.normal)};
  const bool fits = double{narrow.bound} == bound && double{narrow.smallest} == limits.smallest &&
      double{narrow.normal} == limits.normal;
  for (int64_t first = 0; first < n; first += kBlock) {
    const float *x = exact + first, *r = rounded + first;
    const int64_t m = n - first < kBlock ? n - first : kBlock;
    if (!fits || !count_float_block(narrow, x, r, m, work)) count_block(limits, x, r, m, work);
  }
}

} // namespace

void fill_count(CpuKernels& k) {
  k.on_float.count = &count_floats;
  k.on_double.count = &count_doubles;
}

} // namespace at::formats::CPU_CAPABILITY
