// Branch-free decoders from codes to a machine float type T (float or double), written so that
// compilers vectorise loops over them. They agree bit for bit with ExactCodec.h, for every format
// with fits_float() (T = float) or any supported format (T = double). test/numbers/test_codec.py
// checks it.
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cstdint>
#include <type_traits>

namespace c10::formats {

// Posits: the machine's conversion of integers finds the run. A code of a number up to 1 begins
// with zeros. As a T, its exponent has their count and its fraction the bits behind them. As one
// number exponent.fraction, shifted by es, that is the posit's own, less a constant.
// Codes of numbers above 1 begin with ones. Their distance from NaR's code begins with zeros, and
// the number falls as the distance grows. Integer: signed, has all codes.
template <typename T, typename Integer = int32_t>
struct PositDecoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  using Unsigned = std::make_unsigned_t<Integer>;
  static constexpr int kIntegerBits = 8 * sizeof(Integer);
  int unused, es; // unused: bits of Integer above a code

  TD_HOST_DEVICE __attribute__((always_inline)) explicit PositDecoder(const Format& f)
      : unused(kIntegerBits - f.bits),
        es(f.es) {}

  // Whether T has all codes.
  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return f.bits <= M::fraction + 1 && f.bits <= kIntegerBits;
  }

  TD_INLINE T operator()(Bits code) const {
    constexpr T one = Unsigned{1} << (kIntegerBits - 2); // 1's code at Integer's top
    const T number = static_cast<T>(static_cast<Integer>(static_cast<Unsigned>(code) << unused));
    const T above = magnitude(number) - one;
    // from 0 or NaR, whichever is nearer
    const Bits distance = bits_as<Bits>(one - magnitude(above));
    const Bits below =
        static_cast<Bits>(static_cast<Signed>(bits_as<Bits>(above)) >> (M::width - 1));
    Bits value =
        (((bits_as<Bits>(one) - distance) << es) ^ below) - below + (Bits{M::bias} << M::fraction);
    value |= bits_as<Bits>(number) & ~(~Bits{0} >> 1);
    value = select(~mask_nonzero<T>(distance), ~below & nan_bits<T>(), value);
    return bits_as<T>(value);
  }
};

// Floats with subnormals and two zeros. Field and fraction are moved to the machine's place and
// rebiased. A subnormal is a normal number of the smallest binade minus that binade's leading one,
// an exact subtraction. The smaller of the two results is always right.
template <typename T>
struct IeeeFloatDecoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Bits magnitude_mask, smallest, rebias;
  // All ones but the sign if the format's smallest binade is the machine's; then the subtraction
  // must not count.
  Bits same;
  Bits above_max, above_infinity;
  int left, sign_left;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit IeeeFloatDecoder(const Format& f)
      : magnitude_mask(static_cast<Bits>(f.sign_code() - 1) << (M::fraction - f.man_bits)),
        smallest(static_cast<Bits>(f.min_exponent() + M::bias) << M::fraction),
        rebias(static_cast<Bits>(M::bias - f.bias) << M::fraction),
        same(same_binade<T>(f) ? ~Bits{0} >> 1 : 0),
        above_max(static_cast<Bits>(f.max_code()) << (M::fraction - f.man_bits)),
        above_infinity(static_cast<Bits>(f.max_code() + f.has_infinity())
                       << (M::fraction - f.man_bits)),
        left(M::fraction - f.man_bits),
        sign_left(M::width - f.bits) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    if (f.kind != Kind::Float || f.subnormals != Subnormals::Gradual || f.unsigned_zero() ||
        f.bits > M::width)
      return false;
    if (f.bias > M::bias || f.man_bits > M::fraction) return false;
    if (same_binade<T>(f)) return true;
    const int largest_field = (1 << f.exp_bits) - 1 + f.min_exponent() + M::bias;
    return f.min_exponent() - f.man_bits >= 1 - M::bias && largest_field <= 2 * M::bias + 1;
  }

  TD_INLINE T operator()(Bits code) const {
    const Bits m = (code << left) & magnitude_mask;
    const Signed normal = static_cast<Signed>(m + rebias);
    const Signed subnormal =
        static_cast<Signed>(bits_as<Bits>(bits_as<T>(m + smallest) - bits_as<T>(smallest)) | same);
    Bits value = static_cast<Bits>(normal < subnormal ? normal : subnormal);
    value = select(mask_less<T>(above_max, m), infinity_bits<T>(), value);
    value = select(mask_less<T>(above_infinity, m), nan_bits<T>(), value);
    return bits_as<T>(value | ((code << sign_left) & (Bits{1} << (M::width - 1))));
  }
};

// Any float in the same way, with masks for its properties.
template <typename T>
struct FloatDecoder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  Bits sign_code, smallest_code, smallest, rebias, max_code;
  Bits same, gradual, has_infinity, unsigned_zero; // masks
  int left;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit FloatDecoder(const Format& f)
      : sign_code(static_cast<Bits>(f.sign_code())),
        // A decoder made for a wider format is never used.
        smallest_code(f.man_bits < M::width ? Bits{1} << f.man_bits : Bits{0}),
        smallest(Bits(f.min_exponent() + M::bias) << M::fraction),
        rebias(static_cast<Bits>(M::bias - f.bias) << M::fraction),
        max_code(static_cast<Bits>(f.max_code())),
        same(Bits{0} - Bits(same_binade<T>(f))),
        gradual(Bits{0} - Bits(f.subnormals == Subnormals::Gradual)),
        has_infinity(Bits{0} - Bits(f.has_infinity())),
        unsigned_zero(Bits{0} - Bits(f.unsigned_zero())),
        left(M::fraction - f.man_bits) {}

  TD_INLINE T operator()(Bits code) const {
    const Bits magnitude = code & (sign_code - 1);
    const Bits moved = magnitude << left;
    const T difference = bits_as<T>(moved + smallest) - bits_as<T>(smallest);
    // If the format's smallest binade is the machine's, its subnormals are too, and processors told
    // to flush subnormals would lose them.
    const Bits subnormal = select(same, moved, bits_as<Bits>(difference)) & gradual;
    Bits value = select(mask_less<T>(magnitude, smallest_code), subnormal, moved + rebias);
    const Bits is_infinity = ~mask_nonzero<T>(magnitude - max_code - 1) & has_infinity;
    value = select(mask_less<T>(max_code, magnitude),
                   select(is_infinity, infinity_bits<T>(), nan_bits<T>()), value);
    const Bits negative = mask_nonzero<T>(code & sign_code); // ignores bits above the sign
    const Bits minus_zero_nan = ~mask_nonzero<T>(magnitude) & negative & unsigned_zero;
    value = select(minus_zero_nan, nan_bits<T>(), value);
    return bits_as<T>(value | (negative & ~minus_zero_nan & ~(~Bits{0} >> 1)));
  }
};

// Fixed point: a sign-extended integer times the last place.
template <typename T>
struct FixedDecoder {
  using Bits = typename Machine<T>::Bits;
  Bits sign_code, code_mask;
  T last_place;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit FixedDecoder(const Format& f)
      : sign_code(f.is_signed ? static_cast<Bits>(f.sign_code()) : Bits{0}),
        code_mask(static_cast<Bits>(f.code_mask())),
        last_place(power_of_two<T>(-f.frac_bits)) {}

  TD_INLINE T operator()(Bits code) const {
    const Bits extended = ((code & code_mask) ^ sign_code) - sign_code;
    return static_cast<T>(static_cast<typename Machine<T>::Signed>(extended)) * last_place;
  }
};

} // namespace c10::formats
