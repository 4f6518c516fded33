// Branch-free encoders from a machine float type T (float or double) to codes, for every
// deterministic rounding mode, written so that compilers vectorise loops over them. They agree bit
// for bit with ExactCodec.h wherever FastDecode.h's counterparts do.
//
// A loop reads the format from plain numbers made before it, because deriving them inside would
// take branches.
#pragma once
#include <c10/formats/codec/MachineBits.h>
#include <c10/formats/codec/RoundBits.h>

namespace c10::formats {

// A rounding mode as masks, for modes whose row says so (FastPath::Masks, Constant and Coin); any
// other would have no mask and round toward zero. The caller tosses StochasticEqual's coin.
// (CodeMover takes exactly the formats for which this is right.) With `ones` all ones below the
// last place kept, a number plus addend(), cut at that place, is rounded.
template <typename T>
struct DirectedMode {
  using Bits = typename Machine<T>::Bits;
  Bits near, even, away_positive, away_negative, up_positive, up_negative, to_odd, equal;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit DirectedMode(Rounding r)
      : near(mask(r == Rounding::NearestEven || r == Rounding::NearestZero ||
                  r == Rounding::NearestAway || r == Rounding::NearestUp)),
        even(mask(r == Rounding::NearestEven)),
        away_positive(mask(r == Rounding::NearestAway || r == Rounding::NearestUp)),
        away_negative(mask(r == Rounding::NearestAway)),
        up_positive(mask(r == Rounding::Up)),
        up_negative(mask(r == Rounding::Down)),
        to_odd(mask(r == Rounding::ToOdd)),
        equal(mask(r == Rounding::StochasticEqual)) {}

  TD_INLINE static Bits mask(bool on) { return Bits{0} - Bits{on}; }

  // odd: whether the last place kept is odd (0 if nothing is cut off); sign, coin: masks.
  TD_INLINE Bits addend(Bits ones, Bits odd, Bits sign, Bits coin) const {
    const Bits up = select(sign, up_negative, up_positive) | (to_odd & (odd - 1)) | (equal & coin);
    return ((ones >> 1) & near) + (odd & even) +
        (ones & 1 & select(sign, away_negative, away_positive)) + (ones & up);
  }
};

// The most common mode, with fewer instructions.
template <typename T>
struct NearestEvenMode {
  using Bits = typename Machine<T>::Bits;
  TD_HOST_DEVICE __attribute__((always_inline)) explicit NearestEvenMode(Rounding) {}
  TD_INLINE Bits addend(Bits ones, Bits odd, Bits, Bits) const { return (ones >> 1) + odd; }
};

// The digits of a magnitude with its leading one, and the exponent of that one. A subnormal has the
// smallest exponent and no leading one.
template <typename T>
TD_INLINE typename Machine<T>::Bits significand_of(typename Machine<T>::Bits magnitude) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  return (magnitude & ((Bits{1} << M::fraction) - 1)) |
      ((mask_nonzero<T>(magnitude >> M::fraction) & 1) << M::fraction);
}
template <typename T>
TD_INLINE typename Machine<T>::Signed exponent_of(typename Machine<T>::Bits magnitude) {
  using M = Machine<T>;
  const auto field = static_cast<typename M::Signed>(magnitude >> M::fraction);
  return (field > 1 ? field : 1) - M::bias;
}

// A significand rounded without its last `shift` digits. From fraction + 2 on, every shift leaves
// less than a half. turned: 1 if odd significands count as even and even ones as odd.
template <typename T, typename Mode>
TD_INLINE typename Machine<T>::Bits shorten(typename Machine<T>::Bits significand,
                                            typename Machine<T>::Signed shift,
                                            typename Machine<T>::Bits turned,
                                            typename Machine<T>::Bits sign,
                                            typename Machine<T>::Bits coin, const Mode& mode) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  shift = shift < M::fraction + 2 ? shift : M::fraction + 2;
  const Bits odd =
      ((significand >> shift) ^ turned) & mask_nonzero<T>(static_cast<Bits>(shift)) & 1;
  return (significand + mode.addend((Bits{1} << shift) - 1, odd, sign, coin)) >> shift;
}

// For formats with nothing between 0 and the smallest positive number, 2^exponent: magnitudes (as
// bits) above this one round away from 0, which counts as even.
template <typename T>
TD_HOST_DEVICE inline typename Machine<T>::Bits gap_threshold(Rounding r, bool negative,
                                                              int exponent) {
  using Bits = typename Machine<T>::Bits;
  constexpr Bits never = ~Bits{0} >> 1;
  const Bits half = bits_as<Bits>(power_of_two<T>(exponent - 1));
  switch (r) {
    case Rounding::NearestAway: return half - 1;
    case Rounding::NearestUp: return negative ? half : half - 1;
    case Rounding::Up: return negative ? never : 0;
    case Rounding::Down: return negative ? 0 : never;
    case Rounding::TowardZero: return never;
    case Rounding::ToOdd: return 0;
    default: return half;
  }
}

// Posits: the machine number's exponent and fraction, as one fixed-point number b = e.f, are
// already the posit's (k, x).f.
//   1. Clamp b to [minpos, maxpos]: then rounding can reach neither zero nor NaR.
//   2. k = b >> (fraction + es), tail = the bits below.
//   3. word = '10' (k >= 0) or '01' (k < 0), then the tail; an arithmetic shift right by k or
//      -k - 1 makes the regime's run. Bits shifted out are kept as one sticky bit.
//   4. Round the top bits - 1 bits as an integer.
template <typename T, typename Mode>
struct PositEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  int64_t max_exponent;
  Bits nan_code, code_mask, largest; // largest: machine numbers above this magnitude are NaR
  Bits minpos, to_zero, gap_positive, gap_negative; // for underflow to zero
  int bits, es;
  Mode mode;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit PositEncoder(const Format& f)
      : max_exponent(f.max_exponent()),
        nan_code(static_cast<Bits>(f.nan_code())),
        code_mask(static_cast<Bits>(f.code_mask())),
        largest(largest_number<T>(f)),
        minpos(bits_as<Bits>(power_of_two<T>(-f.max_exponent()))),
        to_zero(Bits{0} - (f.underflow == Underflow::Zero)),
        gap_positive(gap_threshold<T>(f.rounding, false, -f.max_exponent())),
        gap_negative(gap_threshold<T>(f.rounding, true, -f.max_exponent())),
        bits(f.bits),
        es(f.es),
        mode(f.rounding) {}

  TD_INLINE Bits operator()(T x, Bits coin = 0) const {
    constexpr int W = M::width;
    const int low_bits = M::fraction + es;
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Signed limit = static_cast<Signed>(Bits(max_exponent) << M::fraction);
    const Signed b = held_within(exponent_fraction<T>(a), limit);
    const Signed k = b >> low_bits;
    const Bits tail = static_cast<Bits>(b) & ((Bits{1} << low_bits) - 1);
    const Bits word =
        ((Bits(2) - (static_cast<Bits>(k) >> (W - 1))) << (W - 2)) | (tail << (W - 2 - low_bits));
    const Bits run = static_cast<Bits>(k ^ (k >> (W - 1)));
    const Bits lost = word ^ ((word >> run) << run);
    const Bits string =
        static_cast<Bits>(static_cast<Signed>(word) >> run) | (mask_nonzero<T>(lost) & 1);
    const int drop = W - (bits - 1);
    const Bits odd = (string >> drop) & 1;
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (W - 1));
    Bits code = (string + mode.addend((Bits{1} << drop) - 1, odd, sign, coin)) >> drop;
    const Bits above_gap = mask_less<T>(select(sign, gap_negative, gap_positive), a) & 1;
    code = select(to_zero & mask_less<T>(a, minpos), above_gap, code);
    code = (code ^ sign) - sign;
    code &= mask_nonzero<T>(a);
    code = select(mask_less<T>(largest, a), nan_code, code);
    return code & code_mask;
  }
};

// Floats: see float_magnitude in ExactCodec.h for the algebra. A subnormal machine number has its
// type's smallest exponent and no leading bit. The same formula takes it, because the format's
// smallest exponent is never below the machine's.
template <typename T, typename Mode>
struct FloatEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  // The smallest normal number, a mask, and thresholds below it.
  Bits smallest, flush, gap_positive, gap_negative;
  Signed min_exponent, beyond_exponent;
  Bits max_code, overflow_code, beyond_positive, beyond_negative, nan_code, unsigned_zero;
  Bits by_code; // 1: the code decides between odd and even, see ExactCodec.h
  int man_bits, sign_bit;
  Mode mode;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit FloatEncoder(const Format& f)
      : smallest(bits_as<Bits>(power_of_two<T>(f.min_exponent()))),
        flush(Bits{0} - (f.subnormals == Subnormals::Flush)),
        gap_positive(gap_threshold<T>(f.rounding, false, f.min_exponent())),
        gap_negative(gap_threshold<T>(f.rounding, true, f.min_exponent())),
        min_exponent(f.min_exponent()),
        beyond_exponent(f.max_exponent() + 1),
        max_code(static_cast<Bits>(f.max_code())),
        overflow_code(static_cast<Bits>(f.overflow_code())),
        beyond_positive(
            static_cast<Bits>(stops_at_max(f.rounding, false) ? f.max_code() : f.overflow_code())),
        beyond_negative(
            static_cast<Bits>(stops_at_max(f.rounding, true) ? f.max_code() : f.overflow_code())),
        nan_code(static_cast<Bits>(f.nan_code())),
        unsigned_zero(Bits{0} - f.unsigned_zero()),
        by_code(f.unsigned_zero() && f.man_bits == 0),
        man_bits(f.man_bits),
        sign_bit(f.bits - 1),
        mode(f.rounding) {}

  TD_INLINE Bits operator()(T x, Bits coin = 0) const {
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (M::width - 1));
    Signed e = exponent_of<T>(a);
    // Larger ones exceed the largest finite value as this one does.
    e = e < beyond_exponent ? e : beyond_exponent;
    const Signed up = e > min_exponent ? e : min_exponent;
    const Bits q = shorten<T>(significand_of<T>(a), M::fraction - man_bits + (up - e),
                              static_cast<Bits>(up - min_exponent) & by_code, sign, coin, mode);
    Bits code = (Bits(up - min_exponent) << man_bits) + q;
    const Bits flushed = (mask_less<T>(select(sign, gap_negative, gap_positive), a) & 1)
        << man_bits;
    code = select(flush & mask_less<T>(a, smallest), flushed, code);
    code =
        select(mask_less<T>(max_code, code), select(sign, beyond_negative, beyond_positive), code);
    code = select(mask_less<T>(infinity_bits<T>() - 1, a), overflow_code, code);
    code = select(mask_less<T>(infinity_bits<T>(), a), nan_code, code);
    const Bits signed_code = ~unsigned_zero | mask_nonzero<T>(code);
    return code | ((sign & signed_code & 1) << sign_bit);
  }
};

// Fixed point that saturates: the significand is cut at the last place, then limited to the range.
template <typename T, typename Mode>
struct FixedEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Bits beyond; // the first power of two above all values, as a machine number
  Bits max_code, lowest, code_mask;
  int frac_bits;
  Mode mode;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit FixedEncoder(const Format& f)
      : beyond(bits_as<Bits>(power_of_two<T>(f.int_bits))),
        max_code(static_cast<Bits>(f.max_code())),
        lowest(static_cast<Bits>(f.lowest_magnitude())),
        code_mask(static_cast<Bits>(f.code_mask())),
        frac_bits(f.frac_bits),
        mode(f.rounding) {}

  TD_INLINE Bits operator()(T x, Bits coin = 0) const {
    const Bits u = bits_as<Bits>(x);
    const Bits magnitude = u & (~Bits{0} >> 1);
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (M::width - 1));
    const Bits a = select(mask_less<T>(magnitude, beyond), magnitude, beyond);
    const Bits q = shorten<T>(significand_of<T>(a), M::fraction - frac_bits - exponent_of<T>(a), 0,
                              sign, coin, mode);
    const Bits limit = select(sign, lowest, max_code);
    Bits code = select(mask_less<T>(limit, q), limit, q);
    code = (code ^ sign) - sign;
    return code & code_mask & ~mask_less<T>(infinity_bits<T>(), magnitude); // NaN: 0
  }
};

} // namespace c10::formats
