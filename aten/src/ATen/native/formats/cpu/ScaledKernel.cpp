// Largest magnitudes, scales and roundings of blocks, in loops that compilers vectorise: each has
// parameters that do not overlap, and runs of common lengths are constants.
#include <ATen/native/formats/cpu/ScaledKernel.h>

#include <c10/formats/codec/FastDecode.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace at::formats::CPU_CAPABILITY {

void fill_scaled(ScaledKernels& kernels);

namespace {

using namespace c10::formats;

#define TD_LOOP __attribute__((noinline)) void

constexpr int32_t kMagnitude = 0x7fff'ffff;

TD_INLINE int32_t magnitude_of(float x) {
  return bits_as<int32_t>(x) & kMagnitude;
}
TD_INLINE int32_t magnitude_of(int32_t bits) {
  return bits;
}

// ---- largest magnitudes ----

TD_LOOP raise(const float* __restrict x, int32_t* __restrict most, int64_t n) {
  for (int64_t i = 0; i < n; ++i) most[i] = std::max(most[i], magnitude_of(x[i]));
}

// Two rows at a time, so that the maxima go through memory less often.
TD_LOOP raise_by_two(const float* __restrict x, const float* __restrict y, int32_t* __restrict most,
                     int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    most[i] = std::max(most[i], std::max(magnitude_of(x[i]), magnitude_of(y[i])));
}

void find_in_columns(const float* x, int64_t rows, int64_t stride, int64_t n, int32_t* most) {
  std::fill_n(most, n, 0);
  int64_t r = 0;
  for (; r + 1 < rows; r += 2) raise_by_two(x + r * stride, x + (r + 1) * stride, most, n);
  if (r < rows) raise(x + r * stride, most, n);
}

// Eight numbers in a vector unit. Compilers do not find the shuffles below by themselves. All
// functions with such arguments are inlined, so that their ABI does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
typedef int32_t Eight __attribute__((vector_size(32)));
typedef float EightFloats __attribute__((vector_size(32)));

template <typename T>
TD_INLINE Eight load(const T* x) {
  Eight v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
template <typename T>
TD_INLINE void store(T* x, Eight v) {
  __builtin_memcpy(x, &v, sizeof v);
}
template <typename T>
TD_INLINE Eight magnitudes_at(const T* x) {
  return load(x) & kMagnitude;
}
TD_INLINE Eight larger(Eight a, Eight b) {
  return a > b ? a : b;
}
// The larger ones of neighbours. Results of a and b take turns by two; a second call on such
// results makes the maxima of four.
TD_INLINE Eight larger_neighbours(Eight a, Eight b) {
  return larger(__builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14),
                __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15));
}

// Finds the largest magnitudes of eight runs of four.
template <typename T>
TD_LOOP find_in_fours(const T* __restrict x, int32_t* __restrict most, int64_t count) {
  for (int64_t b = 0; b < count; b += 8, x += 32) {
    const Eight fours =
        larger_neighbours(larger_neighbours(magnitudes_at(x), magnitudes_at(x + 8)),
                          larger_neighbours(magnitudes_at(x + 16), magnitudes_at(x + 24)));
    store(most + b, __builtin_shufflevector(fours, fours, 0, 4, 1, 5, 2, 6, 3, 7));
  }
}

// The same for runs of eights.
template <typename T>
TD_LOOP find_in_eights(const T* __restrict x, int64_t run, int32_t* __restrict most,
                       int64_t count) {
  for (int64_t b = 0; b < count; b += 8) {
    Eight v[8];
    for (Eight& of_run : v) {
      of_run = magnitudes_at(x);
      for (int64_t i = 8; i < run; i += 8) of_run = larger(of_run, magnitudes_at(x + i));
      x += run;
    }
    const Eight low =
                    larger_neighbours(larger_neighbours(v[0], v[1]), larger_neighbours(v[2], v[3])),
                high =
                    larger_neighbours(larger_neighbours(v[4], v[5]), larger_neighbours(v[6], v[7]));
    store(most + b,
          larger(__builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11),
                 __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15)));
  }
}

template <typename T>
__attribute__((noinline)) int32_t find_in_run(const T* x, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return largest;
}

template <typename T>
void find_in_runs(const T* x, int64_t n, int64_t run, int32_t* most) {
  int64_t done = n / run & ~int64_t{7};
  if (run == 4) find_in_fours(x, most, done);
  else if (run % 8 == 0) find_in_eights(x, run, most, done);
  else done = 0;
  for (; done * run < n; ++done)
    most[done] = find_in_run(x + done * run, std::min(run, n - done * run));
}

// ---- scales ----

// The scale, or NaN if the largest magnitude of a block is not finite. By masks: compilers make
// branches of other choices, and do not vectorise these.
TD_INLINE float unless_nan(int32_t most, float scale) {
  const uint32_t finite = mask_less<float>(static_cast<uint32_t>(most), kInfiniteMagnitude);
  return bits_as<float>(select(finite, bits_as<uint32_t>(scale), nan_bits<float>()));
}

TD_LOOP by_powers(const BlockScale& scale, const int32_t* __restrict most,
                  float* __restrict inverse, float* __restrict factor, int64_t n) {
  const BlockScale s = scale;
  for (int64_t i = 0; i < n; ++i) {
    const int exponent = s(most[i]);
    inverse[i] = unless_nan(most[i], scale_value(-exponent));
    factor[i] = unless_nan(most[i], scale_value(exponent));
  }
}

TD_LOOP divide(const int32_t* __restrict most, float full, float encode, float* __restrict own,
               int64_t n) {
  for (int64_t i = 0; i < n; ++i) own[i] = bits_as<float>(most[i]) / full * encode;
}

TD_LOOP by_numbers(const int32_t* __restrict most, const float* __restrict own, float above,
                   float* __restrict inverse, float* __restrict factor, int64_t n) {
  constexpr float kSmallestNormal = 0x1p-126F;
  for (int64_t i = 0; i < n; ++i) {
    const float product = own[i] * above;
    const float held = product < kSmallestNormal ? kSmallestNormal : product;
    const float scale = unless_nan(most[i], held);
    factor[i] = scale;
    inverse[i] = 1 / scale;
  }
}

// Rounds positive normal numbers to some significant bits, to nearest even.
template <int digits>
TD_INLINE float round_to_digits(float x) {
  constexpr int cut = 24 - digits;
  const auto bits = bits_as<int32_t>(x);
  const int32_t up = (1 << (cut - 1)) - 1 + ((bits >> cut) & 1);
  return bits_as<float>((bits + up) & -(1 << cut));
}

TD_LOOP by_sevenths(const int32_t* __restrict most, float* __restrict reciprocal,
                    float* __restrict own, int64_t n) {
  constexpr float kSmallest = 0x1p-48F, kLargest = 49152, kSeventh = 73.0F / 512;
  for (int64_t i = 0; i < n; ++i) {
    const auto ratio = bits_as<int32_t>(bits_as<float>(most[i]) * kSeventh);
    const int32_t held =
        std::min(std::max(ratio, bits_as<int32_t>(kSmallest)), bits_as<int32_t>(kLargest));
    const float scale = round_to_digits<3>(round_to_digits<8>(bits_as<float>(held)));
    const float inverse = round_to_digits<8>(1 / scale);
    own[i] = unless_nan(most[i], scale);
    reciprocal[i] = unless_nan(most[i], inverse);
  }
}

// 1 << 23, which doubles a power of two if added to its bits, where a magnitude reaches the bound.
TD_INLINE int32_t one_exponent_from(uint32_t bound, float magnitude) {
  return static_cast<int32_t>(mask_less<float>(bound - 1, bits_as<uint32_t>(magnitude)) & 1U << 23);
}

// A pair has a step of 2 if one of its products reaches 4. A group has another if its product,
// divided by the pair's step, reaches 2.
template <int step>
TD_LOOP by_pairs(const int32_t* __restrict most, int64_t to_second,
                 const float* __restrict reciprocal, const float* __restrict own,
                 float* __restrict inverse, float* __restrict factor, int64_t n) {
  const int64_t next = step == 2 ? 1 : to_second;
  const auto kOne = bits_as<int32_t>(1.0F);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t one = i * step, two = one + next;
    const float r = reciprocal[i], s = own[i];
    const float a = bits_as<float>(most[one]) * r, b = bits_as<float>(most[two]) * r;
    const int32_t pair = one_exponent_from(bits_as<uint32_t>(4.0F), a > b ? a : b);
    const uint32_t bound = bits_as<uint32_t>(2.0F) + static_cast<uint32_t>(pair);
    const int32_t up1 = pair + one_exponent_from(bound, a),
                  up2 = pair + one_exponent_from(bound, b);
    inverse[one] = r * bits_as<float>(kOne - up1);
    inverse[two] = r * bits_as<float>(kOne - up2);
    factor[one] = s * bits_as<float>(kOne + up1);
    factor[two] = s * bits_as<float>(kOne + up2);
  }
}

void by_groups(const int32_t* most, int64_t to_second, const float* reciprocal, const float* own,
               float* inverse, float* factor, int64_t n) {
  const auto loop = to_second == 1 ? by_pairs<2> : by_pairs<1>;
  loop(most, to_second, reciprocal, own, inverse, factor, n);
}

// ---- rounding ----

// Rounds to nearest even where all numbers beyond the largest become the largest. The last place of
// a number is a power of two; adding and subtracting 2^23 of it rounds. Takes no NaN: only blocks
// whose scale is NaN have one, and there any result is right.
struct SaturatingRounder {
  int32_t largest; // as the bits of a float, as the next
  int32_t least; // the power of two from which on a number has all fraction bits
  int32_t to_magic; // from a power of two to 2^23 of its numbers' last place
  float zero; // +0 for formats without a negative zero, else -0

  explicit SaturatingRounder(const Format& f)
      : largest(bits_as<int32_t>(
            f.is_fixed() ? std::ldexp(static_cast<float>(f.max_code()), -f.frac_bits)
                         : IeeeFloatDecoder<float>(f)(static_cast<uint32_t>(f.max_code())))),
        least(bits_as<int32_t>(
            power_of_two<float>(f.is_fixed() ? f.max_exponent() : f.min_exponent()))),
        to_magic((23 - digits(f)) << 23),
        zero(f.is_fixed() ? 0.0F : -0.0F) {}

  static int digits(const Format& f) {
    return f.is_fixed() ? f.significand_bits() - 1 : f.man_bits;
  }
  static bool serves(const Format& f) {
    if (f.rounding != Rounding::NearestEven) return false;
    const bool is_float = f.kind == Kind::Float && f.subnormals == Subnormals::Gradual &&
        !f.unsigned_zero() && f.man_bits > 0 && f.overflow_code() == f.max_code() &&
        IeeeFloatDecoder<float>::serves(f);
    const bool is_fixed = f.is_fixed() && f.is_signed && f.symmetric &&
        f.overflow == Overflow::Saturate && f.significand_bits() > 0;
    return (is_float || is_fixed) && digits(f) < 23 && f.max_exponent() + 23 - digits(f) <= 127 &&
        (is_fixed ? f.max_exponent() : f.min_exponent()) >= -126;
  }

  // Takes one number, or eight.
  template <typename T>
  TD_INLINE T operator()(T x) const {
    using Bits = std::conditional_t<sizeof(T) == 4, int32_t, Eight>;
    const Bits bits = bits_as<Bits>(x), most = Bits{} + largest, lowest = Bits{} + least;
    const Bits magnitude = bits & kMagnitude;
    const Bits held = magnitude < most ? magnitude : most;
    const Bits power = held & kInfiniteMagnitude;
    const T magic = bits_as<T>((power < lowest ? lowest : power) + to_magic);
    const T rounded = (bits_as<T>(held) + magic) - magic;
    return bits_as<T>(bits_as<Bits>(rounded) | (bits & ~kMagnitude)) + zero;
  }
};

// Scales by column.
TD_LOOP round_columns(SaturatingRounder round, const float* __restrict x,
                      const float* __restrict inverse, const float* __restrict factor,
                      float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = round(x[i] * inverse[i]) * factor[i];
}

template <int run>
TD_LOOP round_whole_runs(SaturatingRounder round, const float* __restrict x,
                         const float* __restrict inverse, const float* __restrict factor,
                         float* __restrict out, int64_t count) {
  for (int64_t b = 0; b < count; ++b) {
    const float down = inverse[b], up = factor[b];
    for (int i = 0; i < run; ++i) out[b * run + i] = round(x[b * run + i] * down) * up;
  }
}

TD_LOOP round_run(SaturatingRounder round, const float* __restrict x, float down, float up,
                  float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = round(x[i] * down) * up;
}

// Repeats eight numbers four times each.
TD_LOOP spread_fours(const float* __restrict x, float* __restrict out, int64_t count) {
  for (int64_t b = 0; b < count; b += 8, out += 32) {
    const Eight v = load(x + b);
    store(out, __builtin_shufflevector(v, v, 0, 0, 0, 0, 1, 1, 1, 1));
    store(out + 8, __builtin_shufflevector(v, v, 2, 2, 2, 2, 3, 3, 3, 3));
    store(out + 16, __builtin_shufflevector(v, v, 4, 4, 4, 4, 5, 5, 5, 5));
    store(out + 24, __builtin_shufflevector(v, v, 6, 6, 6, 6, 7, 7, 7, 7));
  }
}

void spread(const float* x, int64_t run, float* out, int64_t n) {
  int64_t done = run == 4 ? n / run & ~int64_t{7} : 0;
  spread_fours(x, out, done);
  for (; done * run < n; ++done)
    std::fill_n(out + done * run, std::min(run, n - done * run), x[done]);
}

TD_LOOP multiply(const float* __restrict x, const float* __restrict factor, float* __restrict out,
                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor[i];
}

// Calls body with the run's length as a constant if it is common, else with 0.
template <typename Body>
TD_INLINE void with_run(int64_t run, Body body) {
  switch (run) {
    case 4: return body(std::integral_constant<int, 4>());
    case 8: return body(std::integral_constant<int, 8>());
    case 16: return body(std::integral_constant<int, 16>());
    case 32: return body(std::integral_constant<int, 32>());
    case 64: return body(std::integral_constant<int, 64>());
    case 128: return body(std::integral_constant<int, 128>());
    default: return body(std::integral_constant<int, 0>());
  }
}

// Rounds the two runs of four that begin with number 8 * part.
template <int part>
TD_INLINE void round_two_fours(const SaturatingRounder& round, const float* x, Eight down, Eight up,
                               float* out) {
  constexpr int a = 2 * part, b = a + 1;
  const auto inverse =
      bits_as<EightFloats>(__builtin_shufflevector(down, down, a, a, a, a, b, b, b, b));
  const auto factor = bits_as<EightFloats>(__builtin_shufflevector(up, up, a, a, a, a, b, b, b, b));
  const auto values = bits_as<EightFloats>(load(x + 8 * part));
  store(out + 8 * part, bits_as<Eight>(round(values * inverse) * factor));
}

TD_LOOP round_fours(SaturatingRounder round, const float* __restrict x,
                    const float* __restrict inverse, const float* __restrict factor,
                    float* __restrict out, int64_t count) {
  for (int64_t b = 0; b < count; b += 8) {
    const Eight down = load(inverse + b), up = load(factor + b);
    round_two_fours<0>(round, x + 4 * b, down, up, out + 4 * b);
    round_two_fours<1>(round, x + 4 * b, down, up, out + 4 * b);
    round_two_fours<2>(round, x + 4 * b, down, up, out + 4 * b);
    round_two_fours<3>(round, x + 4 * b, down, up, out + 4 * b);
  }
}

bool round_tile(const Format& f, const ScaledTile& t, const float* x, const float* inverse,
                const float* factor, float* out) {
  if (!SaturatingRounder::serves(f)) return false;
  const SaturatingRounder round(f);
  const int64_t runs = t.runs();
  for (int64_t r = 0; r < t.rows; ++r) {
    const float *from = x + r * t.stride, *down = inverse + r / t.together * runs,
                *up = factor + r / t.together * runs;
    float* to = out + r * t.stride;
    if (t.run == 1) {
      round_columns(round, from, down, up, to, t.columns);
      continue;
    }
    with_run(t.run, [&](auto length) {
      int64_t done = 0;
      if constexpr (length.value == 4) {
        done = t.columns / 4 & ~int64_t{7};
        round_fours(round, from, down, up, to, done);
      } else if constexpr (length.value != 0) {
        done = t.columns / length.value;
        round_whole_runs<length.value>(round, from, down, up, to, done);
      }
      for (; done < runs; ++done)
        round_run(round, from + done * t.run, down[done], up[done], to + done * t.run,
                  std::min(t.run, t.columns - done * t.run));
    });
  }
  return true;
}

TD_LOOP mark(const MarkLimits& limits, const float* __restrict exact,
             const float* __restrict rounded, const float* __restrict quotients,
             int32_t* __restrict nonzero, int32_t* __restrict beyond, int32_t* __restrict gone,
             Marks& sums, int64_t n) {
  const MarkLimits l = limits;
  int32_t overflow = 0, saturated = 0, underflow = 0, subnormal = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = magnitude_of(exact[i]);
    const float q = quotients[i], size = __builtin_fabsf(q), r = rounded[i];
    const int32_t finite = magnitude < kInfiniteMagnitude, zero = magnitude == 0,
                  zero_result = r == 0, finite_result = magnitude_of(r) < kInfiniteMagnitude;
    const int32_t outside = finite & (int32_t{q < l.lowest} | int32_t{q > l.highest});
    const int32_t counted = finite & (zero ^ 1), lost = counted & zero_result;
    const int32_t small = size < l.smallest, reaches = size >= l.smallest,
                  below_normal = size < l.normal;
    nonzero[i] += counted;
    beyond[i] += outside;
    gone[i] += lost;
    overflow += outside | (finite & (finite_result ^ 1));
    saturated += outside & finite_result;
    underflow += (outside ^ 1) & ((counted & small) | lost);
    subnormal += counted & reaches & below_normal & (zero_result ^ 1);
  }
  sums.overflow += overflow;
  sums.saturated += saturated;
  sums.underflow += underflow;
  sums.subnormal += subnormal;
}

} // namespace

void fill_scaled(ScaledKernels& kernels) {
  kernels.find_in_columns = find_in_columns;
  kernels.find_in_runs = find_in_runs<float>;
  kernels.find_among = find_in_runs<int32_t>;
  kernels.by_powers = by_powers;
  kernels.divide = divide;
  kernels.by_numbers = by_numbers;
  kernels.by_sevenths = by_sevenths;
  kernels.by_groups = by_groups;
  kernels.spread = spread;
  kernels.multiply = multiply;
  kernels.round = round_tile;
  kernels.mark = mark;
}

} // namespace at::formats::CPU_CAPABILITY
