// Rounds machine numbers to values of a format (in its mode) without codes. Agrees bit for bit with
// an encoder followed by a decoder.
#pragma once
#include <c10/formats/codec/FastConstantMode.h>
#include <c10/formats/codec/FastDecode.h>

namespace c10::formats {

// The floats of ConstantModeFloatEncoder: the digits behind the last place are rounded away in
// place.
template <typename T, Rounding mode>
struct ConstantModeFloatRounder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  using Encoder = ConstantModeFloatEncoder<T, mode>;
  using Decoder = IeeeFloatDecoder<T>;
  Encoder encoder;
  ConstantModeAddend<T, mode, false> addend;
  ConstantModeEnd<T, mode> end;
  Bits kept;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit ConstantModeFloatRounder(const Format& f)
      : encoder(f),
        addend((Bits{1} << encoder.cut) - 1, 0),
        end{value(f, f.max_code()), value(f, f.overflow_code()), value(f, f.nan_code())},
        kept(~Bits{0} << encoder.cut) {}

  TD_HOST_DEVICE static Bits value(const Format& f, uint64_t code) {
    return bits_as<Bits>(Decoder(f)(static_cast<Bits>(code)));
  }

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return Encoder::serves(f) && Decoder::serves(f) && f.max_exponent() <= M::bias;
  }

  TD_INLINE T operator()(T x) const {
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (M::width - 1));
    const Bits below = bits_as<Bits>(
        bits_as<T>(encoder.subnormal(a, sign) + bits_as<Bits>(encoder.magic)) - encoder.magic);
    const Bits normal = (a + addend((a >> encoder.cut) & 1, sign)) & kept;
    Bits m = select(mask_less<T>(a, encoder.smallest), below, normal);
    m = select(mask_less<T>(end.largest, m), end.limit(sign), m);
    if constexpr (mode != Rounding::NearestEven) m &= mask_nonzero<T>(a);
    return bits_as<T>(end(m, a) | (u & (Bits{1} << (M::width - 1))));
  }
};

// The float whose subnormals and first binade are the magnitudes of a fixed-point format, in its
// mode. Its range, NaN and minus zero are other ones.
TD_HOST_DEVICE constexpr Format float_of_fixed(const Format& f) {
  Format result = float_format(2, f.significand_bits());
  result.bias = static_cast<int16_t>(1 - f.int_bits);
  result.rounding = f.rounding;
  return result;
}

// Fixed point that saturates, rounded as that float. The range, NaN (0) and the sign of zero (+)
// are put right afterwards.
template <typename T, Rounding mode>
struct ConstantModeFixedRounder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  using Float = ConstantModeFloatRounder<T, mode>;
  Float rounder;
  Bits lowest, highest; // magnitudes, as machine numbers

  TD_HOST_DEVICE __attribute__((always_inline)) explicit ConstantModeFixedRounder(const Format& f)
      : rounder(float_of_fixed(f)),
        lowest(magnitude(f, f.lowest_magnitude())),
        highest(magnitude(f, f.max_code())) {}

  TD_HOST_DEVICE static Bits magnitude(const Format& f, uint64_t units) {
    return bits_as<Bits>(static_cast<T>(units) * power_of_two<T>(-f.frac_bits));
  }

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return f.is_fixed() && f.overflow == Overflow::Saturate &&
        f.significand_bits() < Machine<T>::fraction && Float::serves(float_of_fixed(f));
  }

  TD_INLINE T operator()(T x) const {
    const Bits u = bits_as<Bits>(rounder(x));
    const Bits a = u & (~Bits{0} >> 1);
    const Bits sign = static_cast<Bits>(static_cast<Signed>(u) >> (M::width - 1));
    const Bits limit = select(sign, lowest, highest);
    const Bits m = select(mask_less<T>(limit, a), limit, a) & ~mask_less<T>(infinity_bits<T>(), a);
    return bits_as<T>(m | (u & (Bits{1} << (M::width - 1)) & mask_nonzero<T>(m)));
  }
};

// Posits of at most half the machine number's width, to nearest even, if they keep a fraction. Then
// the last place is a power of two, and adding and subtracting 1.5 * 2^fraction of it rounds.
// Others (long regimes, NaR) are undecided.
template <typename T>
struct NearestPositRounder {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Signed = typename M::Signed;
  Signed most; // the longest run that leaves a fraction, less one
  Bits magic; // the magic number for a run of one, divided by a number's exponent
  int es;

  TD_HOST_DEVICE __attribute__((always_inline)) explicit NearestPositRounder(const Format& f)
      : most(f.bits - 4 - f.es),
        magic((static_cast<Bits>(M::fraction - (f.bits - 3 - f.es)) << M::fraction) +
              (Bits{1} << (M::fraction - 1))),
        es(f.es) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return f.is_posit() && f.underflow == Underflow::Minpos && 2 * f.bits <= M::width &&
        f.rounding == Rounding::NearestEven && f.max_exponent() < M::bias - M::fraction &&
        (f.bits - 3 - f.es) << f.es >= least;
  }
  // Numbers between 2^-least and 2^least keep a fraction; most numbers of a block are there. With
  // shorter posits nearly every block would have an undecided number, and all the work would be
  // wasted.
  static constexpr int least = 20;

  // undecided: set in its sign bit.
  TD_INLINE T operator()(T x, Bits& undecided) const {
    constexpr Bits exponents = Bits(2 * M::bias + 1) << M::fraction;
    const Bits a = bits_as<Bits>(x) & (~Bits{0} >> 1);
    const Signed k = exponent_fraction<T>(a) >> (M::fraction + es);
    const Signed run = k ^ (k >> (M::width - 1)); // the run's length less one
    undecided |= static_cast<Bits>(most - run) & mask_nonzero<T>(a);
    const T c = bits_as<T>((a & exponents) + (static_cast<Bits>(run) << M::fraction) + magic);
    return (x + c) - c;
  }
};

} // namespace c10::formats
