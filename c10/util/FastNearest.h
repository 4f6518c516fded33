// The commonest encoders once more, for rounding to nearest even alone and in fewer instructions than FastEncode.h's, with which they
// agree bit for bit. Each says which formats it serves; they are all built-in ones and nearly all others.
#pragma once
#include <c10/util/MachineBits.h>

namespace c10::formats {

// Floats with subnormals, a fraction, two zeros, and an overflow that is the largest code or the next.
//   Normal results: the machine number's field and fraction, rounded as one integer and rebiased.
//   Subnormal ones: added to a power of two whose last place is theirs, by which the machine rounds. This is the larger of the two codes
//   below the smallest normal number, and (held there) the smaller one above it.
template <typename T>
struct NearestFloatEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Bits smallest; // normal number; 0 where the format's smallest binade is the machine's and the first way is right for subnormals too
  Bits addend;   // half of the last place, less one, and the change of bias
  Signed overflow_code;
  Bits nan_code, sign_code;
  T magic;
  int cut, sign_shift;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit NearestFloatEncoder(const Format& f)
      : smallest(same_binade(f) ? 0 : bits_as<Bits>(power_of_two<T>(f.min_exponent()))),
        addend((Bits{1} << (M::fraction - f.man_bits - 1)) - 1 - (static_cast<Bits>(M::bias - f.bias) << M::fraction)),
        overflow_code(static_cast<Signed>(f.overflow_code())),
        nan_code(static_cast<Bits>(f.nan_code())),
        sign_code(static_cast<Bits>(f.sign_code())),
        magic(power_of_two<T>(f.min_exponent() + M::fraction - f.man_bits)),
        cut(M::fraction - f.man_bits),
        sign_shift(M::width - f.bits) {}

  TD_HOST_DEVICE static constexpr bool same_binade(const Format& f) { return f.min_exponent() == 1 - M::bias; }

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    if (f.kind != Kind::Float || f.subnormals != Subnormals::Gradual || f.unsigned_zero() || f.bits > M::width) return false;
    if (f.man_bits == 0 || f.man_bits >= M::fraction || f.overflow_code() > f.max_code() + 1) return false;
    // Machine numbers that a processor may flush to 0 are at most half of the last place, and the power of two is a machine number.
    const bool in_range = f.min_exponent() - f.man_bits - 1 >= 1 - M::bias && f.min_exponent() + M::fraction - f.man_bits <= M::bias;
    return f.bias <= M::bias && (same_binade(f) || in_range);
  }

  TD_INLINE Bits operator()(T x) const {
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Bits held = a < smallest ? a : smallest; // these, and the next two, become min and max instructions
    const Signed subnormal = static_cast<Signed>(bits_as<Bits>(bits_as<T>(held) + magic) - bits_as<Bits>(magic));
    const Signed normal = static_cast<Signed>(a + addend + ((a >> cut) & 1)) >> cut;
    Signed code = normal > subnormal ? normal : subnormal;
    code = code < overflow_code ? code : overflow_code;
    const Bits magnitude = select(mask_less<T>(infinity_bits<T>(), a), nan_code, static_cast<Bits>(code));
    return magnitude | ((u >> sign_shift) & sign_code);
  }
};

// Posits of at most half the machine number's width, which never underflow. As PositEncoder, with two changes: of the fraction, what can
// only break ties is first gathered in one sticky bit, so that the regime's shift loses nothing; and the sign comes before rounding,
// whose ties go to even on both sides.
template <typename T>
struct NearestPositEncoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Signed limit; // maxpos as exponent.fraction
  Bits below_sticky, tail_mask;
  int bits, es;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit NearestPositEncoder(const Format& f)
      : limit(static_cast<Signed>(Bits(f.max_exponent()) << M::fraction)),
        // The longest string behind sign and regime has bits - 3 digits; one more decides, and one is sticky.
        below_sticky((Bits{1} << (M::fraction - (f.bits - 1 - f.exp_bits))) - 1),
        tail_mask((~Bits{0} >> 2) & ~(below_sticky << (M::width - 2 - M::fraction - f.exp_bits))),
        bits(f.bits),
        es(f.exp_bits) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return f.is_posit() && f.underflow == Underflow::Minpos && 2 * f.bits <= M::width;
  }

  TD_INLINE Bits operator()(T x) const {
    constexpr int W = M::width;
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    Signed b = static_cast<Signed>(a) - static_cast<Signed>(Bits{M::bias} << M::fraction);
    b = b < -limit ? -limit : b;
    b = b > limit ? limit : b;
    const Bits gathered = static_cast<Bits>(b) | ((static_cast<Bits>(b) & below_sticky) + below_sticky);
    const Signed k = b >> (M::fraction + es);
    const Signed negative = k >> (W - 1);
    const Bits regime = (Bits{1} << (W - 1)) ^ (static_cast<Bits>(negative) & (Bits{3} << (W - 2)));
    const Bits word = ((gathered << (W - 2 - M::fraction - es)) & tail_mask) | regime;
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (W - 1));
    Bits string = static_cast<Bits>(static_cast<Signed>(word) >> (k ^ negative)) >> 1;
    string = (string ^ sign) - sign;
    string &= mask_nonzero<T>(a);
    string = select(mask_less<T>(infinity_bits<T>() - 1, a), Bits{1} << (W - 1), string); // NaR
    // The last step is a shift of whole lanes: had it been in the 16 bits that are kept, compilers would narrow earlier steps and shuffle.
    const int drop = W - bits;
    return (string + ((Bits{1} << (drop - 1)) - 1) + ((string >> drop) & 1)) >> drop;
  }
};

} // namespace c10::formats
