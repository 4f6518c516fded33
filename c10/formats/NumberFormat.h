// A number format as plain data: the meaning of a code (the bits), and how values are rounded to
// it.
//
// All of c10/ here knows no tensor and includes nothing of PyTorch, so it compiles for host and
// device and can be tested alone.
//
// Sources:
// - IEEE 754-2019 (binary interchange formats);
// - OCP MX 1.0 section 5.3 (e4m3fn, e2m3, e3m2, e2m1);
// - IEEE P3109 interim report (8-bit formats with one NaN at the code of minus zero);
// - Posit Standard (2022) sections 3 and 4;
// - Hunhold, "Beating posits at their own game: takum arithmetic" (CoNGA 2024), definitions 2 and
//   6.
#pragma once
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define TD_HOST_DEVICE __host__ __device__
#else
#define TD_HOST_DEVICE
#endif
// For code inside hot loops: compilers do not vectorise a loop with a call.
#define TD_INLINE TD_HOST_DEVICE inline __attribute__((always_inline))
#define TD_METHOD TD_HOST_DEVICE __attribute__((always_inline)) constexpr

namespace c10::formats {

// Table: any set of values, each with its code (ValueTable.h). Takum: linear takums of more than 16
// bits; shorter ones are tables.
enum class Kind : uint8_t { Posit, Float, Fixed, Table, Takum };
// Codes that are not finite numbers. Ieee: infinities and NaNs in the topmost binade. Fn: one NaN,
// all ones. None: every code is finite. Fnuz: one NaN, in the place of minus zero. P3109: that NaN,
// and infinities at the largest magnitudes.
enum class Specials : uint8_t { Ieee, Fn, None, Fnuz, P3109 };
// The result for values beyond the largest finite one. Ieee: infinity (NaN if the format has none).
// Saturate: the largest finite value. Wrap: the rounded integer modulo 2^bits, for fixed point
// only.
enum class Overflow : uint8_t { Ieee, Saturate, Wrap };
// Floats below the smallest normal number. Gradual: subnormals, as in IEEE 754. Flush: only 0.
enum class Subnormals : uint8_t { Gradual, Flush };
// Posits below minpos. Minpos: a nonzero value never becomes 0, in any mode. Zero: 0 and minpos are
// neighbours like any two floats.
enum class Underflow : uint8_t { Minpos, Zero };
// The result for an infinity in a posit. Nan: NaR, as in the standard. Saturate: the outermost
// number of its sign. (For floats without infinities `overflow` decides.)
enum class Infinity : uint8_t { Nan, Saturate };

// How the mode `stochastic`, with few random bits, treats the discarded fraction (IEEE P3109). A:
// cut to that many bits. B: rounded to them, ties up. C: rounded, ties to even.
enum class FewBits : uint8_t { A, B, C };

// The fast codec for a rounding mode, in addition to the generic one. None: there is no other, as
// for a new mode.
enum class FastPath : uint8_t {
  None,
  Masks, // DirectedMode and gap_threshold in FastEncode.h.
  Constant, // Those, and FastConstantMode.h, which has the mode as a compile-time constant.
  Proportional, // FastStochastic.h.
  Coin, // The masks, with a coin for each element.
  Moved, // Nearest even, then CodeMover in FastStochastic.h.
};
// A mode's random bits for each element: nothing, or a random word.
enum class Draws : uint8_t { Nothing, Word };

// The rounding modes, one row each; no other place names them all. From here expand enumerators,
// Python's names and numbers, bindings, dispatch and the tests' lists. docs/numerics.md defines
// each in one line of maths; c10/formats/codec/RoundBits.h decides by them.
//
//   AT_FORALL_ROUNDING_MODES(_)  rows _(enumerator, name, Pychop's number or 0, draws, fast path)
//
// Stochastic: rounds up with a probability equal to the discarded fraction, so that the expected
// result is the exact value. StochasticEqual: rounds up with probability 1/2 if anything is
// discarded. UpDown: rounds to nearest even, then moves one code up or down with probability 1/2
// each.
#define AT_FORALL_ROUNDING_MODES(_)                   \
  _(NearestEven, nearest_even, 1, Nothing, Constant)  \
  _(NearestZero, nearest_zero, 7, Nothing, Constant)  \
  _(NearestAway, nearest_away, 8, Nothing, Constant)  \
  _(Up, up, 2, Nothing, Constant)                     \
  _(Down, down, 3, Nothing, Constant)                 \
  _(TowardZero, toward_zero, 4, Nothing, Constant)    \
  _(ToOdd, to_odd, 9, Nothing, Constant)              \
  _(NearestUp, nearest_up, 0, Nothing, Constant)      \
  _(Stochastic, stochastic, 5, Word, Proportional)    \
  _(StochasticEqual, stochastic_equal, 6, Word, Coin) \
  _(UpDown, up_down, 0, Word, Moved)

enum class Rounding : uint8_t {
#define TD_ROW(enumerator, ...) enumerator,
  AT_FORALL_ROUNDING_MODES(TD_ROW)
#undef TD_ROW
};

struct RoundingMode {
  Rounding mode;
  const char* name;
  int pychop; // Pychop's number; 0: it has no such mode
  Draws draws;
  FastPath fast_path;
};

inline constexpr RoundingMode kRoundingModes[] = {
#define TD_ROW(enumerator, name, pychop, draws, path) \
  {Rounding::enumerator, #name, pychop, Draws::draws, FastPath::path},
    AT_FORALL_ROUNDING_MODES(TD_ROW)
#undef TD_ROW
};

TD_HOST_DEVICE constexpr bool is_stochastic(Rounding r) {
  switch (r) {
#define TD_ROW(enumerator, name, pychop, draws, path) \
  case Rounding::enumerator: return Draws::draws == Draws::Word;
    AT_FORALL_ROUNDING_MODES(TD_ROW)
#undef TD_ROW
  }
  return false;
}

TD_HOST_DEVICE constexpr FastPath fast_path(Rounding r) {
  switch (r) {
#define TD_ROW(enumerator, name, pychop, draws, path) \
  case Rounding::enumerator: return FastPath::path;
    AT_FORALL_ROUNDING_MODES(TD_ROW)
#undef TD_ROW
  }
  return FastPath::None;
}

// The facts of a table that every format needs. ValueTable.h has the rest.
struct TableFacts {
  uint64_t max_code{0}, lowest_code{0}; // Codes of the outermost finite values.
  uint64_t nan_code{0}; // The code of NaN.
  uint64_t infinity_code{0}; // The code that plus infinity becomes.
  double smallest{0}; // The smallest positive value.
  int max_exponent{0}, min_exponent{0}; // Of the largest and the smallest nonzero magnitude.
  int lsb_exponent{0}; // All values are multiples of 2 to this power.
  // The most bits of any value. Numbers at which rounding changes have at most one bit more.
  int significand_bits{0};
  bool has_infinity{false}, infinity_is_nan{false}, fits_float{false};
};

struct Format {
  Kind kind{Kind::Float};
  uint8_t bits{0}; // total width of a code
  // Each layout has fields of its own; those of other layouts stay 0.
  int8_t exp_bits{0}; // floats: width of the exponent field
  int8_t man_bits{0}; // floats: width of the fraction field
  int16_t bias{0}; // floats: bias of the exponent field
  int8_t es{0}; // posits: exponent bits behind the regime
  int8_t int_bits{0}; // fixed point: bits before the point, without the sign
  int8_t frac_bits{0}; // fixed point: bits behind the point
  Subnormals subnormals{Subnormals::Gradual};
  Specials specials{Specials::Ieee};
  Overflow overflow{Overflow::Ieee};
  Underflow underflow{Underflow::Minpos};
  Infinity infinity{Infinity::Nan};
  bool is_signed{true}; // false: fixed point without a sign
  // Fixed point: the most negative number is minus the largest one, and the code below it is
  // unused.
  bool symmetric{false};
  Rounding rounding{Rounding::NearestEven};
  // The number of random bits that the mode `stochastic` draws for an element; 0: all 64.
  uint8_t random_bits{0};
  FewBits few_bits{FewBits::A};
  // For Kind::Table: a ValueTable, one for each content, which is never freed.
  const TableFacts* table{nullptr};

  constexpr bool operator==(const Format&) const = default;

  TD_METHOD bool is_posit() const { return kind == Kind::Posit; }
  TD_METHOD bool is_takum() const { return kind == Kind::Takum; }
  // Two's complement bit strings with one zero and NaR, and with fractions of several lengths.
  TD_METHOD bool is_tapered() const { return is_posit() || is_takum(); }
  TD_METHOD bool is_fixed() const { return kind == Kind::Fixed; }
  TD_METHOD bool is_table() const { return kind == Kind::Table; }
  // Floats with one zero; the code of minus zero is NaN.
  TD_METHOD bool unsigned_zero() const {
    return kind == Kind::Float && (specials == Specials::Fnuz || specials == Specials::P3109);
  }
  // Bytes that a code occupies in memory: 1, 2, 4 or 8.
  TD_METHOD int itemsize() const {
    if (bits <= 8) return 1;
    if (bits <= 16) return 2;
    return bits <= 32 ? 4 : 8;
  }

  // --- codes ---
  TD_METHOD uint64_t sign_code() const { return uint64_t{1} << (bits - 1); }
  TD_METHOD uint64_t code_mask() const { return sign_code() | (sign_code() - 1); }
  // The code of the largest finite value. Except in tables, magnitude bits are in the order of
  // values, so all smaller ones are finite too.
  TD_METHOD uint64_t max_code() const {
    if (is_table()) return table->max_code;
    if (is_fixed()) return is_signed ? sign_code() - 1 : code_mask();
    if (is_tapered() || specials == Specials::None || specials == Specials::Fnuz)
      return sign_code() - 1;
    if (specials == Specials::Fn || specials == Specials::P3109) return sign_code() - 2;
    return (((uint64_t{1} << exp_bits) - 1) << man_bits) - 1;
  }
  // The code of NaN. Tapered formats: NaR. Ieee: quiet NaN, as hardware makes it. Fn: all ones.
  // Fnuz and P3109: minus zero's code. None: there is no NaN, and the largest magnitude replaces
  // it. Fixed point: 0 replaces it, as in saturating conversions to integers.
  TD_METHOD uint64_t nan_code() const {
    if (is_table()) return table->nan_code;
    if (is_fixed()) return 0;
    if (is_tapered() || unsigned_zero()) return sign_code();
    if (specials == Specials::None) return max_code();
    if (specials == Specials::Fn || man_bits == 0) return sign_code() - 1;
    return max_code() + 1 + (uint64_t{1} << (man_bits - 1));
  }
  TD_METHOD bool has_infinity() const {
    return is_table()
        ? table->has_infinity
        : kind == Kind::Float && (specials == Specials::Ieee || specials == Specials::P3109);
  }
  TD_METHOD uint64_t overflow_code() const {
    if (is_table()) return table->infinity_code;
    if (overflow == Overflow::Saturate || specials == Specials::None) return max_code();
    return has_infinity() ? max_code() + 1 : nan_code();
  }
  // Whether rounding an infinity gives NaN.
  TD_METHOD bool infinity_is_nan() const {
    if (is_tapered()) return infinity == Infinity::Nan;
    if (is_table()) return table->infinity_is_nan;
    return kind == Kind::Float && !has_infinity() && overflow_code() != max_code();
  }
  // Fixed point: the magnitude of the most negative number, in units of the last place.
  TD_METHOD uint64_t lowest_magnitude() const {
    if (!is_signed) return 0;
    return symmetric ? max_code() : sign_code();
  }

  // --- exponents: powers of two ---
  // Posits: maxpos = 2^max_exponent, minpos = 2^-max_exponent. Others: the binade of the largest
  // finite value.
  TD_METHOD int max_exponent() const {
    if (is_table()) return table->max_exponent;
    if (is_posit()) return (bits - 2) << es;
    if (is_takum()) return 254;
    if (is_fixed()) return int_bits - 1;
    return int(max_code() >> man_bits) - bias;
  }
  // Floats: the binade of the smallest normal number. (bias counts as in IEEE 754: field 1 means
  // 2^(1 - bias).) Takums: the binade of minpos.
  TD_METHOD int min_exponent() const {
    if (is_table()) return table->min_exponent;
    if (is_takum()) return -255;
    if (is_posit()) return -max_exponent();
    return is_fixed() ? -frac_bits : 1 - bias;
  }
  // Every finite value is a multiple of 2 to this power.
  TD_METHOD int lsb_exponent() const {
    if (is_table()) return table->lsb_exponent;
    if (is_takum()) return min_exponent() - (bits - 12); // the shortest fraction
    return kind == Kind::Float ? min_exponent() - man_bits : min_exponent();
  }
  // The most bits behind the leading one in any value. For floats, posits and takums.
  TD_METHOD int longest_fraction() const {
    if (is_takum()) return bits - 5;
    if (is_posit()) return bits - 3 - es > 0 ? bits - 3 - es : 0;
    return man_bits;
  }
  TD_METHOD int significand_bits() const {
    if (is_table()) return table->significand_bits;
    return is_fixed() ? int_bits + frac_bits : longest_fraction() + 1;
  }

  // --- the machine type that holds this format ---
  // Whether every value is exactly a float32. (The codec needs a little more: a posit's values must
  // be normal, and its code must fit 24 bits.)
  TD_METHOD bool fits_float() const {
    if (is_posit()) return bits <= 24 && max_exponent() <= 126;
    if (is_fixed()) return significand_bits() <= 23;
    if (is_table()) return table->fits_float;
    return significand_bits() <= 24 && max_exponent() <= 127 && min_exponent() >= -126;
  }
  // The same for float64: a format that fails this is refused when it is made.
  TD_METHOD bool fits_double() const {
    return is_table() ||
        (significand_bits() <= 53 && max_exponent() <= 1023 && min_exponent() >= -1022);
  }
  // Fixed point: the most digits of a quotient, or of a product and a number, down to the last
  // place.
  TD_METHOD int digits_to_wrap() const {
    const int below_zero = frac_bits < 0 ? -frac_bits : 0;
    return 2 * bits + (frac_bits > bits ? frac_bits - bits : below_zero);
  }
  // Whether + - * / sqrt in float32, adjusted to odd (c10/formats/arithmetic/OddArithmetic.h),
  // round to this format as the exact results do. That needs two more significand bits, products
  // that neither overflow nor lose bits below 2^-149, and normal quotients. Wrapping needs results
  // down to the last place, however large they are. Stochastic modes see more of the fraction in
  // float64.
  TD_METHOD bool arithmetic_in_float() const {
    if (overflow == Overflow::Wrap ? digits_to_wrap() + 2 > 24 : is_stochastic(rounding))
      return false;
    return significand_bits() <= 22 && max_exponent() <= 62 && 2 * lsb_exponent() >= -126 &&
        max_exponent() - lsb_exponent() <= 125;
  }
  // The same for float64.
  TD_METHOD bool arithmetic_in_double() const {
    if (overflow == Overflow::Wrap && digits_to_wrap() + 2 > 53) return false;
    return significand_bits() <= 51 && max_exponent() <= 510 && 2 * lsb_exponent() >= -1022 &&
        max_exponent() - lsb_exponent() <= 1021;
  }
};

TD_HOST_DEVICE constexpr Format posit_format(int bits, int es) {
  Format f;
  f.kind = Kind::Posit;
  f.bits = uint8_t(bits);
  f.es = int8_t(es);
  f.specials = Specials::Fn;
  f.overflow = Overflow::Saturate;
  return f;
}

// Linear takums of 12 bits and more, whose strings have room for a fraction of zero or more bits.
TD_HOST_DEVICE constexpr Format takum_format(int bits) {
  Format f;
  f.kind = Kind::Takum;
  f.bits = uint8_t(bits);
  f.specials = Specials::Fn;
  f.overflow = Overflow::Saturate;
  return f;
}

TD_HOST_DEVICE constexpr Format float_format(int exp_bits, int man_bits) {
  Format f;
  f.bits = uint8_t(1 + exp_bits + man_bits);
  f.exp_bits = int8_t(exp_bits);
  f.man_bits = int8_t(man_bits);
  f.bias = int16_t((1 << (exp_bits - 1)) - 1);
  return f;
}

// Either number of bits may be negative. The smallest step is 2^-frac_bits; the largest value is
// just below 2^int_bits.
TD_HOST_DEVICE constexpr Format fixed_format(int int_bits, int frac_bits, bool is_signed) {
  Format f;
  f.kind = Kind::Fixed;
  f.bits = uint8_t(int_bits + frac_bits + is_signed);
  f.int_bits = int8_t(int_bits);
  f.frac_bits = int8_t(frac_bits);
  f.specials = Specials::None;
  f.overflow = Overflow::Saturate;
  f.is_signed = is_signed;
  return f;
}

TD_HOST_DEVICE constexpr Format table_format(const TableFacts* table, int bits, bool is_signed) {
  Format f;
  f.kind = Kind::Table;
  f.bits = uint8_t(bits);
  f.specials = Specials::None;
  f.overflow = Overflow::Saturate;
  f.is_signed = is_signed;
  f.table = table;
  return f;
}

} // namespace c10::formats
