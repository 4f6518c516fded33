// Rounds float32 numbers to the nearest of a format, ties to even, by adding a number and
// subtracting it again. That is the shortest way where additions cost less than operations on bits,
// as on a GPU.
//
// The last place of x + m is that of m. With m = 1.5 * 2^23 last places of the format at x, the
// addition rounds x as the format does, and the subtraction is exact. If a rounder cannot decide,
// it returns NaN. NaN passes through all later additions, so a sum tells at its end whether each
// step was right; if not, the caller computes it in another way.
//
// A product need not be exact: m is added to it in one operation, and chosen by the product's
// float32 value. That value may be a power of two that the product itself does not reach. The
// product is then so near that the last places of both binades round it to that power.
#pragma once
#include <c10/formats/FormatLimits.h>
#include <c10/formats/arithmetic/OddArithmetic.h>

#include <type_traits>

namespace c10::formats {

// The magic numbers of floats with subnormals, for inputs and outputs in T that are numbers times
// 2^scale. The magic number of the topmost binade, where a result may exceed the largest number, is
// then infinite or NaN, and infinity minus infinity is NaN.
template <typename T>
struct MagicNumbers {
  int scale;
  T factor, least; // factor: from a power of two to its magic number; least: that of subnormals

  explicit MagicNumbers(const Format& f)
      : scale(scale_of(f)),
        factor(T(1.5) * power_of_two<T>(fraction - f.man_bits)),
        least(T(1.5) * power_of_two<T>(fraction + f.lsb_exponent() + scale)) {}

  // Only formats whose arithmetic T can do, so that products, also scaled ones, stay in range.
  static bool serves(const Format& f) {
    const bool arithmetic =
        std::is_same_v<T, float> ? f.arithmetic_in_float() : f.arithmetic_in_double();
    return f.kind == Kind::Float && f.rounding == Rounding::NearestEven &&
        f.subnormals == Subnormals::Gradual && f.overflow != Overflow::Wrap && f.man_bits >= 1 &&
        f.max_exponent() >= 0 && arithmetic && scale_of(f) < Machine<T>::bias;
  }

  // Whether sums in T, rounded afterwards, equal the rounded exact sums: Figueroa, "When is double
  // rounding innocuous?", SIGNUM 30(3), 1995 (24 >= 2 p + 2 for float32, also with subnormal
  // numbers).
  static bool serves_sums(const Format& f) { return 2 * f.significand_bits() + 1 <= fraction; }

 protected:
  static constexpr int fraction = Machine<T>::fraction;

 private:
  static int scale_of(const Format& f) {
    return Machine<T>::bias + 1 - (fraction - f.man_bits) - f.max_exponent();
  }
};

// Floats with subnormals.
struct FloatAdditionRounder : MagicNumbers<float> {
  struct Table {}; // none
  static constexpr bool is_scaled = true;

  // scaled: a right factor times the scale, without the 2 that the left factor has (so the format's
  // largest number stays finite). towards_magic: the scaled factor times the ratio of a magic
  // number to its number.
  struct Right {
    float scaled, towards_magic;
  };

  float right_scale, right_magic;

  explicit FloatAdditionRounder(const Format& f)
      : MagicNumbers(f),
        right_scale(power_of_two<float>(scale - 1)),
        right_magic(power_of_two<float>(scale - 1 + fraction - f.man_bits)) {}

  static bool sums_in_float(const Format& f) { return serves_sums(f); }

  TD_HOST_DEVICE void fill(Table&, int, int) const {}

  TD_INLINE float rounded(float x, const Table& table) const {
    return __builtin_copysignf(unsigned_rounded(x, table), x);
  }
  // A result of 0 may be +0 instead of -0.
  TD_INLINE float unsigned_rounded(float x, const Table&) const {
    return add_and_take(x, __builtin_fmaxf(magic(x), least));
  }
  // The same for multiples of the smallest positive number, with one magic number less.
  TD_INLINE float unsigned_rounded_multiple(float x, const Table&) const {
    return add_and_take(x, magic(x));
  }

  TD_INLINE float left(float x) const { return x + x; }
  TD_INLINE Right right(float y) const { return {y * right_scale, y * right_magic}; }
  TD_INLINE float rounded_product(float x, const Right& y, const Table& table) const {
    return __builtin_copysignf(unsigned_rounded_product(x, y, table), x * y.towards_magic);
  }
  TD_INLINE float unsigned_rounded_product(float x, const Right& y, const Table&) const {
    const float m = one_and_a_half(__builtin_fmaxf(__builtin_fabsf(x * y.towards_magic), least));
    return fused(x, y.scaled, m) - m;
  }

 private:
  TD_INLINE float magic(float x) const {
    return bits_as<float>(bits_as<uint32_t>(x) & infinity_bits<float>()) * factor;
  }
  TD_INLINE static float add_and_take(float x, float magic) { return (x + magic) - magic; }
  // 1.5 times the power of two of a positive number; NaN for infinity.
  TD_INLINE static float one_and_a_half(float x) {
#ifdef __CUDA_ARCH__
    // One instruction, which the compiler does not find: it takes one constant from the
    // instruction's text and one from a register.
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
        : "=r"(bits)
        : "r"(bits_as<uint32_t>(x)), "r"(infinity_bits<float>()), "r"(1U << 22));
    return bits_as<float>(bits);
#else
    return bits_as<float>((bits_as<uint32_t>(x) & infinity_bits<float>()) | 1U << 22);
#endif
  }
};

// Posits, as long as the cut is in the fraction or right behind the exponent. Meant for wide
// ranges, where few sums and products are near the ends. The input is 0 or a normal number.
struct PositAdditionRounder {
  struct Table {
    float of_exponent[256];
  };
  static constexpr bool is_scaled = false;
  using Right = float; // a right factor stays as it is

  int scale{0};
  Table table;

  explicit PositAdditionRounder(const Format& f) {
    for (int field = 0; field < 256; ++field) {
      const int e = field - Machine<float>::bias;
      table.of_exponent[field] =
          field < 255 && digits(f, e) >= 0 ? magic(f, e) : bits_as<float>(nan_bits<float>());
    }
    table.of_exponent[0] = 0; // 0 + 0 - 0
  }

  static bool serves(const Format& f) {
    return f.is_posit() && f.rounding == Rounding::NearestEven && f.arithmetic_in_float();
  }

  // As in FloatAdditionRounder, for posits of up to 12 digits, which have fewer where it matters.
  // Assume that float32 rounds the sum of a and a smaller b, between 2^r and 2^(r + 1), to the
  // middle m of two posits. The sum is then at most 2^(r - 24) away from m.
  // a is a posit of at least 2^(r - 1), so it is not m. So b is at least half of the distance
  // between multiples of a's last place and m. If the last place of b, and of every number of this
  // size, is above 2^(r - 24), b either reaches m or stays farther away.
  static bool sums_in_float(const Format& f) {
    for (int r = -f.max_exponent(); r <= f.max_exponent(); ++r) {
      if (digits(f, r) < 0) continue;
      const int most = digits(f, r) > digits(f, r - 1) ? digits(f, r) : digits(f, r - 1),
                b = r - 1 - most - 1;
      const int last_place = b - (digits(f, b) > 0 ? digits(f, b) : 0);
      if (last_place < r - 23) return false;
    }
    return true;
  }

  TD_HOST_DEVICE void fill(Table& shared, int thread, int threads) const {
    for (int i = thread; i < 256; i += threads) shared.of_exponent[i] = table.of_exponent[i];
  }

  TD_INLINE float rounded(float x, const Table& shared) const {
    const float m = magic(x, shared);
    return (x + m) - m; // posits have one 0, which is +0 here
  }
  TD_INLINE float unsigned_rounded(float x, const Table& shared) const {
    return rounded(x, shared);
  }
  TD_INLINE float unsigned_rounded_multiple(float x, const Table& shared) const {
    return rounded(x, shared);
  }

  TD_INLINE float left(float x) const { return x; }
  TD_INLINE Right right(float y) const { return y; }
  TD_INLINE float rounded_product(float x, Right y, const Table& shared) const {
    const float m = magic(x * y, shared);
    return fused(x, y, m) - m;
  }
  TD_INLINE float unsigned_rounded_product(float x, Right y, const Table& shared) const {
    return rounded_product(x, y, shared);
  }

 private:
  friend struct PositAdditionRounderToEnds;
  TD_INLINE static float magic(float x, const Table& shared) {
    return shared.of_exponent[bits_as<uint32_t>(x) >> 23 & 255];
  }
  // Fraction digits of numbers from 2^e on; below 0 if the exponent itself is cut.
  static int digits(const Format& f, int e) {
    const int k = e >> f.es;
    return f.bits - 1 - (k < 0 ? 1 - k : k + 2) - f.es;
  }

  // Without a fraction, a tie between 2^e and 2^(e + 1) goes to the even code, whose last digit is
  // the exponent's or ends the regime. The addition gives the even number of last places; an odd
  // magic number reverses that.
  static float magic(const Format& f, int e) {
    const float even = 1.5F * power_of_two<float>(e - digits(f, e) + 23);
    const bool odd_code = f.es > 0 ? (e & 1) != 0 : e < 0;
    return digits(f, e) == 0 && !odd_code ? even + power_of_two<float>(e) : even;
  }
};

// The same up to the ends of the range, for posits of few bits, whose products and sums are often
// there: 2^-6 is posit8es0's smallest number. If the exponent is cut, or the input is beyond the
// outermost number, a whole binade rounds to two numbers, divided by a threshold. There, all
// numbers between neighbours round to one of them. So a rounded product or sum of float32 never
// comes to a threshold: its terms have only the digits that the regime leaves them.
struct PositAdditionRounderToEnds {
  struct alignas(16) Row { // read in one access
    float magic; // NaN if the threshold decides.
    float threshold, below, above; // Magnitudes; NaN if the magic number decides.
  };
  struct Table {
    // For all of float32's exponents: operands may have a wider range than their product's format.
    Row of_exponent[256];
  };
  static constexpr bool is_scaled = false;
  using Right = float;

  int scale{0};
  Table table;

  explicit PositAdditionRounderToEnds(const Format& f) {
    const float nan = bits_as<float>(nan_bits<float>());
    const int beyond = f.max_exponent() + 1;
    const Row largest = cut(f, beyond), smallest = cut(f, -beyond - 1);
    for (int field = 1; field < 255; ++field) {
      const int e = field - Machine<float>::bias;
      if (e > beyond) table.of_exponent[field] = largest;
      else if (e < -beyond - 1) table.of_exponent[field] = smallest;
      else
        table.of_exponent[field] = PositAdditionRounder::digits(f, e) >= 0
            ? Row{PositAdditionRounder::magic(f, e), 0, nan, nan}
            : cut(f, e);
    }
    table.of_exponent[0] = {0, 0, nan, nan}; // 0 + 0 - 0
    table.of_exponent[255] = {nan, 0, nan, nan};
  }

  // Only formats whose ends are near: posit16es1's are 2^28 and 2^-28.
  static bool serves(const Format& f) {
    return PositAdditionRounder::serves(f) && f.bits <= 16 && f.max_exponent() < 32;
  }
  static bool sums_in_float(const Format& f) { return PositAdditionRounder::sums_in_float(f); }

  TD_HOST_DEVICE void fill(Table& shared, int thread, int threads) const {
    for (int i = thread; i < 256; i += threads) shared.of_exponent[i] = table.of_exponent[i];
  }

  TD_INLINE float rounded(float x, const Table& shared) const {
    const Row row = of(x, shared);
    return or_end((x + row.magic) - row.magic, x, row);
  }
  TD_INLINE float unsigned_rounded(float x, const Table& shared) const {
    return rounded(x, shared);
  }
  TD_INLINE float unsigned_rounded_multiple(float x, const Table& shared) const {
    return rounded(x, shared);
  }

  TD_INLINE float left(float x) const { return x; }
  TD_INLINE Right right(float y) const { return y; }
  TD_INLINE float rounded_product(float x, Right y, const Table& shared) const {
    const float product = x * y;
    const Row row = of(product, shared);
    return or_end(fused(x, y, row.magic) - row.magic, product, row);
  }
  TD_INLINE float unsigned_rounded_product(float x, Right y, const Table& shared) const {
    return rounded_product(x, y, shared);
  }

 private:
  TD_INLINE static Row of(float x, const Table& shared) {
    return shared.of_exponent[bits_as<uint32_t>(x) >> 23 & 255];
  }
  TD_INLINE static float or_end(float rounded, float x, const Row& row) {
    const float below = row.below, above = row.above;
    const float end = __builtin_copysignf(__builtin_fabsf(x) < row.threshold ? below : above, x);
    return rounded == rounded ? rounded : end;
  }

  // The row of the binade from 2^e on, from the codec's results at its ends.
  static Row cut(const Format& f, int e) {
    const float nan = bits_as<float>(nan_bits<float>());
    const auto number = [&](float x) {
      return static_cast<float>(value_of(f, encode(f, unpack(static_cast<double>(x)))));
    };
    const float first = power_of_two<float>(e),
                second = bits_as<float>(bits_as<uint32_t>(first) + 1);
    const float last = bits_as<float>(bits_as<uint32_t>(2 * first) - 1);
    const float below = number(first), above = number(second);
    if (above != number(last)) return {nan, 0, nan, nan}; // several numbers: undecided
    return {nan, below == above ? 0 : second, below, above};
  }
};

} // namespace c10::formats
