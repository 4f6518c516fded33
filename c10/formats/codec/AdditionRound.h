// float32 numbers to the nearest of a format, ties to even, by adding a number and taking it off
// again: the shortest way where additions cost less than operations on bits, as on a GPU.
//
// x + m has its last place where m has it: with m = 1.5 * 2^23 last places of the format at x, the
// addition rounds x as the format does, and the subtraction is exact. A rounder answers NaN where
// it does not know: a NaN goes through all additions that follow, so that a sum says at its end
// whether each step was right, and whoever asked computes that one sum in another way.
//
// A product need not be exact: m is added to it in one operation, and chosen by what float32 makes
// of it. Where that is a power of two which the product itself does not reach, it is so near that
// both binades' last places round it to that power.
#pragma once
#include <c10/formats/FormatLimits.h>
#include <c10/formats/arithmetic/OddArithmetic.h>

namespace c10::formats {

// Floats with subnormals. Numbers are taken and given times 2^scale, by which the magic number of
// the topmost binade, where a result may be beyond the largest number, is infinite or NaN; and
// infinity less infinity is NaN.
struct FloatAdditionRounder {
  struct Table {}; // none
  static constexpr bool is_scaled = true;

  // A right factor with the scale, but for the 2 that the left one has (the format's largest number
  // stays finite by that); and once more, times what lies between a number's exponent and that of
  // its magic number.
  struct Right {
    float scaled, towards_magic;
  };

  int scale;
  float factor, least; // of a number's power of two; where numbers are subnormal
  float right_scale, right_magic;

  explicit FloatAdditionRounder(const Format& f)
      : scale(scale_of(f)),
        factor(1.5F * power_of_two<float>(23 - f.man_bits)),
        least(1.5F * power_of_two<float>(23 + f.lsb_exponent() + scale)),
        right_scale(power_of_two<float>(scale - 1)),
        right_magic(power_of_two<float>(scale - 1 + 23 - f.man_bits)) {}

  // Of formats whose arithmetic float32 can do, so that neither products nor scaled ones leave its
  // range.
  static bool serves(const Format& f) {
    return f.kind == Kind::Float && f.rounding == Rounding::NearestEven &&
        f.subnormals == Subnormals::Gradual && f.overflow != Overflow::Wrap && f.man_bits >= 1 &&
        f.max_exponent() >= 0 && f.arithmetic_in_float() && scale_of(f) < 127;
  }

  // Whether the format's numbers are added up in float32 and then rounded as their exact sums are:
  // Figueroa, "When is double rounding innocuous?", SIGNUM 30(3), 1995 (24 >= 2 p + 2, with
  // subnormal numbers too).
  static bool sums_in_float(const Format& f) { return 2 * f.significand_bits() + 2 <= 24; }

  TD_HOST_DEVICE void fill(Table&, int, int) const {}

  TD_INLINE float rounded(float x, const Table& table) const {
    return __builtin_copysignf(unsigned_rounded(x, table), x);
  }
  // A 0, or what is rounded to 0, may be +0.
  TD_INLINE float unsigned_rounded(float x, const Table&) const {
    return add_and_take(x, __builtin_fmaxf(magic(x), least));
  }
  // Of multiples of the smallest positive number, by a magic number less.
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
  // 1.5 times the power of two of a positive number; NaN of infinity.
  TD_INLINE static float one_and_a_half(float x) {
#ifdef __CUDA_ARCH__
    // In one instruction, which the compiler does not find: it takes one constant in an
    // instruction's text, and one from a register.
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
        : "=r"(bits)
        : "r"(bits_as<uint32_t>(x)), "r"(infinity_bits<float>()), "r"(1U << 22));
    return bits_as<float>(bits);
#else
    return bits_as<float>((bits_as<uint32_t>(x) & infinity_bits<float>()) | 1U << 22);
#endif
  }
  static int scale_of(const Format& f) { return 128 - (23 - f.man_bits) - f.max_exponent(); }
};

// Posits, as long as the cut is in the fraction, or right behind the exponent: of a wide range, at
// whose ends few sums and products are. What is rounded is 0 or a normal number.
struct PositAdditionRounder {
  struct Table {
    float of_exponent[256];
  };
  static constexpr bool is_scaled = false;
  using Right = float; // a right factor is taken as it is

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

  // As FloatAdditionRounder's, for posits of up to 12 digits, which have fewer where it counts. Say
  // float32 rounds the sum of a and a smaller b, between 2^r and 2^(r + 1), to the middle m of two
  // posits, from which it is not more than 2^(r - 24) away. a is not m, since a is a posit, of at
  // least 2^(r - 1); so b is at least half of what multiples of a's last place and m lie apart. If
  // b's last place, and so every b's of this size, is above 2^(r - 24), b reaches m or stays
  // farther away.
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
  // Of the fraction of numbers from 2^e on; below 0 where the exponent has not all of its own.
  static int digits(const Format& f, int e) {
    const int k = e >> f.es;
    return f.bits - 1 - (k < 0 ? 1 - k : k + 2) - f.es;
  }

  // A tie between 2^e and 2^(e + 1), where there is no fraction, goes to the even one of their
  // codes, of which the last digit is the exponent's, or the one that ends the regime. The addition
  // gives the even number of last places, which an odd magic number turns around.
  static float magic(const Format& f, int e) {
    const float even = 1.5F * power_of_two<float>(e - digits(f, e) + 23);
    const bool odd_code = f.es > 0 ? (e & 1) != 0 : e < 0;
    return digits(f, e) == 0 && !odd_code ? even + power_of_two<float>(e) : even;
  }
};

// The same to the ends of the range, for posits of few bits, of which products and sums are there
// often: 2^-6 is posit8es0's smallest number. Where the exponent is cut, or what is rounded beyond
// the outermost number, all of a binade is one of two numbers, by whether it is below a threshold;
// all between neighbours goes to one of them there, so that a product or sum that float32 rounds
// does not come to a threshold: its terms have the digits that the regime leaves them.
struct PositAdditionRounderToEnds {
  struct alignas(16) Row { // read in one access
    float magic;                   // NaN where the threshold decides
    float threshold, below, above; // of magnitudes; NaN where the magic number serves
  };
  struct Table {
    // Of all of float32's: operands may have a wider range than what their product is rounded to.
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

  // Of formats whose ends are near: those of posit16es1 are 2^28 and 2^-28.
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

  // The binade from 2^e on, by what the codec makes of its ends.
  static Row cut(const Format& f, int e) {
    const float nan = bits_as<float>(nan_bits<float>());
    const auto number = [&](float x) {
      return static_cast<float>(value_of(f, encode(f, unpack(static_cast<double>(x)))));
    };
    const float first = power_of_two<float>(e),
                second = bits_as<float>(bits_as<uint32_t>(first) + 1);
    const float last = bits_as<float>(bits_as<uint32_t>(2 * first) - 1);
    const float below = number(first), above = number(second);
    if (above != number(last)) return {nan, 0, nan, nan}; // several numbers: not known
    return {nan, below == above ? 0 : second, below, above};
  }
};

} // namespace c10::formats
