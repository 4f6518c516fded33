// The power of two by which a block of numbers is divided, so that its largest magnitude fits an
// element's format.
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cmath>
#include <cstdint>

namespace c10::formats {

struct BlockScale {
  int emax, lowest, highest; // exponents: of the element's largest power of two, and of the scales
  int doubled_from; // fraction field of a magnitude from which its scale doubles; 2^23: never

  // threshold: if absmax's significand in [1/2, 1) is above it (or equal to it, if `included`), the
  // scale doubles.
  static BlockScale make(int emax, int lowest, int highest, double threshold, bool included) {
    const double field = std::ldexp(threshold, 24) - std::ldexp(1.0, 23);
    const double from = included ? std::ceil(field) : std::floor(field) + 1;
    return {emax, lowest, highest, static_cast<int>(from)};
  }

  // The exponent of the scale for a finite float32 magnitude, given by its bits. By masks, so that
  // compilers vectorise loops over it.
  TD_INLINE int operator()(int32_t magnitude) const {
    const auto bits = static_cast<uint32_t>(magnitude);
    constexpr uint32_t kNormal = uint32_t{1} << 23, kFraction = kNormal - 1;
    // Exponent and fraction as one fixed-point number. Those of a subnormal number follow from its
    // integer, in units of 2^-149.
    const uint32_t subnormal = bits_as<uint32_t>(static_cast<float>(magnitude)) - (276U << 23);
    const uint32_t number = select(mask_less<float>(bits, kNormal), subnormal, bits - (127U << 23));
    const int twice =
        mask_less<float>(static_cast<uint32_t>(doubled_from) - 1, number & kFraction) & 1;
    const int scale = (static_cast<int32_t>(number) >> 23) - emax + twice;
    const int bounded = scale > highest ? highest : scale;
    const int held = bounded < lowest ? lowest : bounded;
    return static_cast<int>(select(mask_nonzero<float>(bits), static_cast<uint32_t>(held),
                                   static_cast<uint32_t>(lowest)));
  }
};

// 2^exponent from 2^-127 to 2^127.
TD_INLINE float scale_value(int exponent) {
  constexpr int32_t kSubnormal = 1 << 22;
  const int32_t bits = (exponent + 127) * (1 << 23);
  return bits_as<float>(bits < kSubnormal ? kSubnormal : bits);
}

} // namespace c10::formats
