// The most common encoders in fewer instructions than FastEncode.h's, with the same bits. Each
// tells which formats it takes: all built-in ones and nearly all others. The compiler knows the
// rounding mode, which is deterministic.
#pragma once
#include <c10/formats/codec/MachineBits.h>
#include <c10/formats/codec/RoundBits.h>

namespace c10::formats {

// Whether a mode depends on the sign, if digits count from 0 on.
TD_HOST_DEVICE constexpr bool by_sign(Rounding r) {
  return r == Rounding::Up || r == Rounding::Down;
}

// The number to add before the last digits, `ones` wide, are cut off. It includes `offset`, which
// is to be added too. twos_complement: digits count upwards in negative numbers too.
template <typename T, Rounding mode, bool twos_complement>
struct ConstantModeAddend {
  static_assert(fast_path(mode) == FastPath::Constant,
                "every switch over `mode` in this file has a case for it");
  using Bits = typename Machine<T>::Bits;
  Bits offset, ones, half; // half: of the last place kept, less one

  TD_HOST_DEVICE __attribute__((always_inline)) ConstantModeAddend(Bits ones, Bits offset)
      : offset(offset),
        ones(ones + offset),
        half((ones >> 1) + offset) {}

  // odd: whether the last digit kept is odd; sign: a mask.
  TD_INLINE Bits operator()(Bits odd, Bits sign) const {
    switch (mode) {
      case Rounding::NearestZero: return twos_complement ? half - sign : half;
      case Rounding::NearestAway: return twos_complement ? half + 1 + sign : half + 1;
      case Rounding::NearestUp: return twos_complement ? half + 1 : half + 1 + sign;
      case Rounding::Up: return twos_complement ? ones : select(sign, offset, ones);
      case Rounding::Down: return twos_complement ? offset : select(sign, ones, offset);
      case Rounding::TowardZero: return twos_complement ? select(sign, ones, offset) : offset;
      case Rounding::ToOdd: return select(odd - 1, ones, offset);
      default: return half + odd; // nearest even
    }
  }
};

// The end of magnitudes: the largest finite one, and the results for larger ones and for NaN, as
// codes or as machine numbers.
template <typename T, Rounding mode>
struct ConstantModeEnd {
  using Bits = typename Machine<T>::Bits;
  Bits largest, overflow, nan;

  // The limit for results of finite numbers.
  TD_INLINE Bits limit(Bits sign) const {
    const Bits positive = stops_at_max(mode, false) ? largest : overflow;
    return by_sign(mode) ? select(sign, stops_at_max(mode, true) ? largest : overflow, positive)
                         : positive;
  }

  // The result for a machine number of magnitude a. `finite` is the result if a is finite.
  TD_INLINE Bits operator()(Bits finite, Bits a) const {
    if constexpr (stops_at_max(mode, false) || stops_at_max(mode, true))
      finite = select(mask_less<T>(infinity_bits<T>() - 1, a), overflow, finite);
    return select(mask_less<T>(infinity_bits<T>(), a), nan, finite);
  }
};

// Floats with subnormals, a fraction, two zeros, and an overflow to the largest code or the next.
// Normal results: the machine number's field and fraction are rounded as one integer and rebiased.
// Subnormal results: the magnitude is added to a power of two with the same last place, so the
// machine rounds it to nearest even. The error of that decides whether another mode goes one code
// further or back. Below the smallest normal number this code is the larger of the two. Above it,
// where it is limited, it is the smaller one.
template <typename T, Rounding mode>
struct ConstantModeFloatEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  // The smallest normal number; 0 if the format's smallest binade is the machine's, where the path
  // for normal results is right for subnormals too.
  Bits smallest;
  Bits tiny; // a machine number that no processor flushes to 0; all below round as it does
  ConstantModeAddend<T, mode, false> addend;
  ConstantModeEnd<T, mode> end;
  Bits sign_code;
  T below_half; // of the subnormals' last place: the largest machine number below
  T magic;
  int cut, sign_shift;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit ConstantModeFloatEncoder(const Format& f)
      : smallest(same_binade<T>(f) ? 0 : bits_as<Bits>(power_of_two<T>(f.min_exponent()))),
        tiny(same_binade<T>(f) ? 0 : bits_as<Bits>(power_of_two<T>(1 - M::bias))),
        addend((Bits{1} << (M::fraction - f.man_bits)) - 1,
               Bits{0} - (static_cast<Bits>(M::bias - f.bias) << M::fraction)),
        end{static_cast<Bits>(f.max_code()), static_cast<Bits>(f.overflow_code()),
            static_cast<Bits>(f.nan_code())},
        sign_code(static_cast<Bits>(f.sign_code())),
        below_half(
            bits_as<T>(bits_as<Bits>(power_of_two<T>(f.min_exponent() - f.man_bits - 1)) - 1)),
        magic(power_of_two<T>(f.min_exponent() + M::fraction - f.man_bits)),
        cut(M::fraction - f.man_bits),
        sign_shift(M::width - f.bits) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    if (f.kind != Kind::Float || f.subnormals != Subnormals::Gradual || f.unsigned_zero() ||
        f.bits > M::width)
      return false;
    if (f.man_bits == 0 || f.man_bits >= M::fraction || f.overflow_code() > f.max_code() + 1)
      return false;
    // Machine numbers that a processor may flush to 0 are less than half of the last place, and so
    // are all errors. The power of two is a machine number.
    const int error_digits = mode == Rounding::NearestEven ? 0 : M::fraction;
    const bool in_range = f.min_exponent() - f.man_bits - 1 >= 1 - M::bias + error_digits &&
        f.min_exponent() + M::fraction - f.man_bits <= M::bias;
    return f.bias <= M::bias && (same_binade<T>(f) || in_range);
  }

  TD_INLINE static Bits negative(T x) { return bits_as<Bits>(x) >> (M::width - 1); }

  // The step from `code`, a subnormal result rounded to nearest even, to this mode's code. error:
  // the amount that the rounding removed; below 0 if it added.
  TD_INLINE Bits correction(T error, Bits code, Bits sign) const {
    switch (mode) {
      case Rounding::NearestZero: return Bits{0} - negative(error + below_half);
      case Rounding::NearestAway: return negative(below_half - error);
      case Rounding::NearestUp:
        return select(sign, Bits{0} - negative(error + below_half), negative(below_half - error));
      case Rounding::Up: return select(sign, Bits{0} - negative(error), negative(T{0} - error));
      case Rounding::Down: return select(sign, negative(T{0} - error), Bits{0} - negative(error));
      case Rounding::TowardZero: return Bits{0} - negative(error);
      case Rounding::ToOdd: return (negative(T{0} - error) - negative(error)) & ((code & 1) - 1);
      default: return 0; // nearest even
    }
  }

  // The code of a magnitude below the smallest normal number; for larger ones that number's code.
  TD_INLINE Bits subnormal(Bits a, Bits sign) const {
    // Compilers make min and max instructions of this and the next choice.
    Bits held = a < smallest ? a : smallest;
    if constexpr (mode != Rounding::NearestEven) held = held > tiny ? held : tiny;
    const T rounded = bits_as<T>(held) + magic;
    const Bits code = bits_as<Bits>(rounded) - bits_as<Bits>(magic);
    return code + correction(bits_as<T>(held) - (rounded - magic), code, sign);
  }

  TD_INLINE Bits operator()(T x) const {
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (M::width - 1));
    const Signed below = static_cast<Signed>(subnormal(a, sign));
    const Signed normal = static_cast<Signed>(a + addend((a >> cut) & 1, sign)) >> cut;
    const Signed most = static_cast<Signed>(end.limit(sign));
    Signed code = normal > below ? normal : below;
    code = code < most ? code : most;
    Bits magnitude = static_cast<Bits>(code);
    if constexpr (mode != Rounding::NearestEven) magnitude &= mask_nonzero<T>(a);
    return end(magnitude, a) | ((u >> sign_shift) & sign_code);
  }
};

// Posits of at most half the machine number's width, which never underflow. As PositEncoder, with
// two changes. Fraction bits that can only break ties are first gathered in one sticky bit, so that
// the regime's shift loses nothing. The sign is applied before rounding.
template <typename T, Rounding mode>
struct ConstantModePositEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  ConstantModeAddend<T, mode, true> addend;
  Signed limit; // maxpos as exponent.fraction
  Bits below_sticky, tail_mask, largest;
  int bits, es;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit ConstantModePositEncoder(const Format& f)
      : addend((Bits{1} << (M::width - f.bits)) - 1, 0),
        limit(static_cast<Signed>(Bits(f.max_exponent()) << M::fraction)),
        // The longest string behind sign and regime has bits - 3 digits. One more digit decides,
        // and one is sticky.
        below_sticky((Bits{1} << (M::fraction - (f.bits - 1 - f.es))) - 1),
        tail_mask((~Bits{0} >> 2) & ~(below_sticky << (M::width - 2 - M::fraction - f.es))),
        largest(largest_number<T>(f)),
        bits(f.bits),
        es(f.es) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return f.is_posit() && f.underflow == Underflow::Minpos && 2 * f.bits <= M::width;
  }

  TD_INLINE Bits operator()(T x) const {
    constexpr int W = M::width;
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Signed b = held_within(exponent_fraction<T>(a), limit);
    const Bits gathered =
        static_cast<Bits>(b) | ((static_cast<Bits>(b) & below_sticky) + below_sticky);
    const Signed k = b >> (M::fraction + es);
    const Signed negative = k >> (W - 1);
    const Bits regime = (Bits{1} << (W - 1)) ^ (static_cast<Bits>(negative) & (Bits{3} << (W - 2)));
    const Bits word = ((gathered << (W - 2 - M::fraction - es)) & tail_mask) | regime;
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (W - 1));
    Bits string = static_cast<Bits>(static_cast<Signed>(word) >> (k ^ negative)) >> 1;
    string = (string ^ sign) - sign;
    string &= mask_nonzero<T>(a);
    string = select(mask_less<T>(largest, a), Bits{1} << (W - 1), string); // NaR
    // The last step shifts whole lanes. If only the kept 16 bits were shifted, compilers would
    // narrow earlier steps and shuffle.
    const int drop = W - bits;
    return (string + addend((string >> drop) & 1, sign)) >> drop;
  }
};

} // namespace c10::formats
