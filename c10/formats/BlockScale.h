// The power of two by which a block of numbers is divided, so that its largest magnitude fits an
// element's format.
#pragma once
#include <c10/formats/codec/MachineBits.h>

#include <cstdint>

namespace c10::formats {

struct BlockScale {
  int emax, lowest, highest; // exponents: of the element's largest power of two, and of the scales
  // If absmax's significand in [1/2, 1) is above this (or equal to it, if `included`), the scale is
  // doubled.
  double threshold;
  bool included;

  // The exponent of the scale for a finite magnitude.
  TD_HOST_DEVICE int operator()(float absmax) const {
    if (absmax == 0) return lowest;
    const uint64_t bits = bits_as<uint64_t>(static_cast<double>(absmax)); // a normal number
    const int exponent = static_cast<int>(bits >> 52) - 1022;
    const double fraction =
        bits_as<double>((bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1022} << 52));
    const bool twice = included ? fraction >= threshold : fraction > threshold;
    const int scale = exponent - 1 - emax + static_cast<int>(twice);
    const int bounded = scale > highest ? highest : scale;
    return scale < lowest ? lowest : bounded;
  }
};

// 2^exponent, down to float32's smallest subnormal number.
TD_HOST_DEVICE inline float power_of_two(int exponent) {
  return static_cast<float>(bits_as<double>(static_cast<uint64_t>(exponent + 1023) << 52));
}

} // namespace c10::formats
