// A row of block sums in lanes. Products of two values are exact in T. Scaled by a power of two, a
// product has the kept bits before its point: its conversion to an integer cuts it, and integers
// add up exactly.
#include <ATen/native/formats/cpu/BlockKernel.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace at::formats::CPU_CAPABILITY {

void fill_block(BlockKernels& kernels);

namespace {

#define TD_LOOP __attribute__((noinline)) void

// 2^exponent, if that is neither subnormal nor infinite.
__attribute__((always_inline)) inline double power(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}
__attribute__((always_inline)) inline int32_t exponent_of(double x) {
  return static_cast<int32_t>((std::bit_cast<uint64_t>(x) >> 52) & 0x7ff) - 1023;
}

TD_LOOP start_exponents(const double* __restrict sums, int16_t* __restrict largest, int least,
                        int low, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    // 0 counts as the smallest numbers: `least` is no smaller, and nothing is cut off there.
    const int32_t e = std::max(exponent_of(sums[i]), low);
    largest[i] = static_cast<int16_t>(sums[i] == 0 ? least : std::max(e, least));
  }
}

TD_LOOP raise(const int16_t* __restrict b, int16_t a, int16_t* __restrict largest, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto e = static_cast<int16_t>(a + b[i]);
    largest[i] = e > largest[i] ? e : largest[i];
  }
}

template <typename T>
TD_LOOP scales(const int16_t* __restrict largest, T* __restrict scale, int bits, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(T) == 4) {
      scale[i] = std::bit_cast<float>(static_cast<uint32_t>(bits - largest[i] + 127) << 23);
    } else {
      scale[i] = power(bits - largest[i]);
    }
  }
}

template <typename T>
TD_LOOP add_term(const T* __restrict b, T a, const T* __restrict scale, int32_t* __restrict sum,
                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<int32_t>(a * scale[i] * b[i]);
}

// Adds four terms at a time, so that the sums go through memory less often. step: from one term of
// a to the next.
template <typename T>
TD_LOOP add_terms(const T* __restrict b, int64_t stride, const T* __restrict a, int64_t step,
                  const T* __restrict scale, int32_t* __restrict sum, int64_t n) {
  const T *b1 = b + stride, *b2 = b1 + stride, *b3 = b2 + stride;
  const T a0 = a[0], a1 = a[step], a2 = a[2 * step], a3 = a[3 * step];
  for (int64_t i = 0; i < n; ++i) {
    const T s = scale[i];
    sum[i] += static_cast<int32_t>(a0 * s * b[i]) + static_cast<int32_t>(a1 * s * b1[i]) +
        static_cast<int32_t>(a2 * s * b2[i]) + static_cast<int32_t>(a3 * s * b3[i]);
  }
}

TD_LOOP collect(int32_t* __restrict sum, double* __restrict total, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    total[i] += static_cast<double>(sum[i]);
    sum[i] = 0;
  }
}

// Rounds a sum to a register with exponents from s.low on, in units of its last place.
template <bool nearest>
__attribute__((always_inline)) inline double held_in(const BlockSettings& s, double value) {
  const int32_t e = std::max(exponent_of(value), s.low) - s.man_bits;
  const double units = value * power(-e);
  return (nearest ? std::nearbyint(units) : std::trunc(units)) * power(e);
}

// Aligns what the registers hold as the products are aligned, and adds it to them.
template <bool nearest>
TD_LOOP finish(const BlockSettings s, const int16_t* __restrict largest,
               const double* __restrict total, double* __restrict sums,
               uint8_t* __restrict overflowed, int64_t n) {
  const double beyond = power(s.high) * 2;
  for (int64_t i = 0; i < n; ++i) {
    const auto held =
        static_cast<double>(static_cast<int32_t>(sums[i] * power(s.bits - largest[i])));
    // The addition makes a negative zero positive.
    const double rounded =
        held_in<nearest>(s, (total[i] + held) * power(largest[i] - s.bits)) + 0.0;
    const bool over = std::fabs(rounded) >= beyond;
    overflowed[i] |= over;
    sums[i] = over ? 0 : rounded;
  }
}

// Adds two groups' sums (the second may have no terms), cut downwards at the larger of their
// exponents. Then adds that sum and the register in the same way.
template <bool nearest>
TD_LOOP finish_late(const BlockSettings s, const int16_t* __restrict first,
                    const int16_t* __restrict second, const double* __restrict sum_first,
                    const double* __restrict sum_second, double* __restrict sums,
                    uint8_t* __restrict overflowed, int64_t n) {
  constexpr int32_t kNowhere = -500; // no exponent is so small
  const double beyond = power(s.high) * 2;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t e0 = first[i] == s.none ? kNowhere : first[i],
                  e1 = second[i] == s.none ? kNowhere : second[i], e = std::max(e0, e1);
    const double together =
        std::floor(sum_first[i] * power(e0 - e)) + std::floor(sum_second[i] * power(e1 - e));
    const int32_t own = sums[i] == 0 ? kNowhere : std::max(exponent_of(sums[i]), s.low),
                  all = std::max(std::max(e, own), s.least);
    const double kept = std::floor(together * power(e - all + s.late_bits - s.bits));
    const bool left_out = s.interleave > 1 && own < all - s.bits - 1;
    const double held =
        left_out ? 0 : std::floor(sums[i] * power(s.bits - all)) * power(s.late_bits - s.bits);
    const double sum = (kept + held) * power(all - s.late_bits);
    // Counts bits from the sum's own leading digit.
    const int32_t last = std::max(std::max(exponent_of(sum), s.low), all) - s.late_bits;
    const double rounded = held_in<nearest>(s, std::floor(sum * power(-last)) * power(last));
    // A product may be beyond the register's range.
    const bool over = std::fabs(rounded) >= beyond || e >= s.high;
    overflowed[i] |= over;
    sums[i] = over ? 0 : rounded;
  }
}

template <typename T>
struct Lanes {
  alignas(64) int16_t largest[kBlockLanes];
  alignas(64) T scale[kBlockLanes];
  alignas(64) int32_t sum[kBlockLanes];
  alignas(64) double total[kBlockLanes];

  // Adds up the terms begin, begin + step, ... of a row into total. They are aligned to the largest
  // of their exponents and the exponents in `largest`.
  void align(const BlockSettings& s, const BlockRow<T>& r, int64_t begin, int64_t end,
             int64_t step) {
    for (int64_t i = begin; i < end; i += step) {
      if (r.a[i] != 0) raise(r.b_exponents + i * r.stride, r.a_exponents[i], largest, r.n);
    }
    scales(largest, scale, s.bits, r.n);
    std::fill_n(total, r.n, 0.0);
    for (int64_t from = begin; from < end; from += s.group * step) {
      const int64_t to = std::min(end, from + s.group * step);
      int64_t i = from;
      for (; i + 3 * step < to; i += 4 * step)
        add_terms(r.b + i * r.stride, r.stride * step, r.a + i, step, scale, sum, r.n);
      for (; i < to; i += step) add_term(r.b + i * r.stride, r.a[i], scale, sum, r.n);
      collect(sum, total, r.n);
    }
  }
};

template <typename T>
void late_row(const BlockSettings& s, const BlockRow<T>& r) {
  Lanes<T> groups[2];
  for (Lanes<T>& group : groups) {
    std::fill_n(group.sum, r.n, 0);
    std::fill_n(group.total, r.n, 0.0);
    std::fill_n(group.largest, r.n, static_cast<int16_t>(s.none));
  }
  const auto finish_row = s.nearest ? finish_late<true> : finish_late<false>;
  for (int64_t begin = 0; begin < r.k; begin += s.terms) {
    const int64_t end = std::min(r.k, begin + s.terms);
    for (int64_t g = 0; g < s.interleave; ++g) {
      std::fill_n(groups[g].largest, r.n, static_cast<int16_t>(s.none));
      groups[g].align(s, r, std::min(begin + g, end), end, s.interleave);
    }
    finish_row(s, groups[0].largest, groups[1].largest, groups[0].total, groups[1].total, r.sums,
               r.overflowed, r.n);
  }
}

template <typename T>
void row(const BlockSettings& s, const BlockRow<T>& r) {
  if (s.late) return late_row(s, r);
  Lanes<T> lanes;
  std::fill_n(lanes.sum, r.n, 0);
  const auto finish_row = s.nearest ? finish<true> : finish<false>;
  for (int64_t begin = 0; begin < r.k; begin += s.terms) {
    start_exponents(r.sums, lanes.largest, s.least, s.low, r.n);
    lanes.align(s, r, begin, std::min(r.k, begin + s.terms), 1);
    finish_row(s, lanes.largest, lanes.total, r.sums, r.overflowed, r.n);
  }
}

} // namespace

void fill_block(BlockKernels& kernels) {
  kernels.row_float = row<float>;
  kernels.row_double = row<double>;
}

} // namespace at::formats::CPU_CAPABILITY
