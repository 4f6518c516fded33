// float32 itself as a format: its values are its codes. Random rounding to it is one addition to a
// float64 number's fraction.
#pragma once
#include <c10/formats/codec/FastStochastic.h>

namespace c10::formats {

// Whether a format's codes are float32's, in any rounding mode.
TD_HOST_DEVICE constexpr bool is_binary32(const Format& f) {
  return f.kind == Kind::Float && f.bits == 32 && f.exp_bits == 8 && f.man_bits == 23 &&
      f.bias == 127 && f.specials == Specials::Ieee && f.overflow == Overflow::Ieee &&
      f.subnormals == Subnormals::Gradual && f.is_signed;
}

// float64, exact or rounded to odd, to float32's code in the mode `stochastic`. `high` is the high
// half of the element's word. If the result is normal, 29 digits are cut off, so the first 29 bits
// of the high half decide.
// Subnormal results: adding 2^-126 moves their last place to that of 2^-126. Undecided if that
// loses digits.
struct Binary32StochasticEncoder {
  TD_INLINE MaybeCode<double> operator()(double x, uint32_t high) const {
    using M = Machine<double>;
    using Bits = uint64_t;
    constexpr int cut = M::fraction - 23;
    constexpr Bits smallest = Bits{1023 - 126} << M::fraction;
    const Bits u = bits_as<Bits>(x);
    const Bits a = u & (~Bits{0} >> 1);
    const double magnitude = bits_as<double>(a), shifted = magnitude + 0x1p-126;
    const Bits below = mask_less<double>(a, smallest);
    const Bits held = select(below, bits_as<Bits>(shifted), a);
    const Bits base = select(below, smallest >> cut, (smallest >> cut) - (Bits{1} << 23));
    Bits code = ((held + (high >> 3)) >> cut) - base;
    code = select(mask_less<double>(Bits{0x7F800000}, code), Bits{0x7F800000}, code);
    code = select(mask_less<double>(infinity_bits<double>(), a), Bits{0x7FC00000}, code);
    const Bits lost = mask_nonzero<double>(bits_as<Bits>(shifted - 0x1p-126) ^ a);
    return {code | (u >> 63 << 31), below & lost};
  }
};

// The second half of the mode `up_down`, for a result rounded to nearest even: one code away from 0
// or back. `coin` is the high half of the word.
TD_INLINE uint32_t moved_binary32(float nearest, uint32_t coin) {
  const uint32_t u = bits_as<uint32_t>(nearest), a = u & 0x7FFFFFFF;
  const uint32_t moves = mask_nonzero<float>(a) & mask_less<float>(a, infinity_bits<float>());
  const uint32_t up = static_cast<uint32_t>(static_cast<int32_t>(coin) >> 31);
  const uint32_t code = u + (((up & 2) - 1) & moves);
  return select(mask_less<float>(infinity_bits<float>(), a), (u & 0x80000000) | 0x7FC00000, code);
}

// The nearest float32 number to a result, and its error; known: a mask, all ones if `lacks` is
// exact.
struct NearestAndRest {
  float nearest, lacks;
  uint32_t known;
};

// The mode `stochastic` in lanes of 32 bits, with the encoder's bits. The distance of a result
// above its nearest number (below 0 if the result is smaller) is counted in units of 2^-29 of the
// last place. It is cut to an integer, to odd. Adding the word's first 29 bits to it carries
// upwards, or borrows.
// Just below a power of two the last place is half as large. Undecided: small, infinite and NaN
// results.
TD_INLINE MaybeCode<float> rounded_binary32(const NearestAndRest& r, uint32_t high) {
  // From this exponent field on, 2^29 divided by the last place is a float32 number.
  constexpr uint32_t lowest = 52;
  const uint32_t u = bits_as<uint32_t>(r.nearest), m = u & 0x7FFFFFFF, sign = u & 0x80000000;
  const uint32_t rest = bits_as<uint32_t>(r.lacks) ^ sign;
  const uint32_t inwards = static_cast<uint32_t>(static_cast<int32_t>(rest) >> 31);
  const uint32_t exponent = (m + inwards) >> 23;
  const float units =
      bits_as<float>(rest) * bits_as<float>(((254 + lowest - exponent) & 0xFF) << 23);
  const int32_t whole = static_cast<int32_t>(units);
  const uint32_t rest_of_units = bits_as<uint32_t>(units - static_cast<float>(whole));
  // the conversion rounded towards 0
  const int32_t below = static_cast<int32_t>(rest_of_units) >> 31;
  const int32_t cut =
      (whole + below) | static_cast<int32_t>(mask_nonzero<float>(rest_of_units & 0x7FFFFFFF) & 1);
  const uint32_t code = m + static_cast<uint32_t>((cut + static_cast<int32_t>(high >> 3)) >> 29);
  const uint32_t exact = ~mask_nonzero<float>(rest & 0x7FFFFFFF);
  const uint32_t vanished = ~mask_nonzero<float>(bits_as<uint32_t>(units) & 0x7FFFFFFF) & ~exact;
  const uint32_t finite = mask_less<float>(m, infinity_bits<float>());
  const uint32_t large = ~mask_less<float>(exponent, lowest);
  const uint32_t decided = r.known & finite & (large | exact) & ~vanished;
  return {select(exact, m, code) | sign, ~decided};
}

} // namespace c10::formats
