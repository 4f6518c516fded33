// Numbers of a format as one 16-bit number or as the sum of two, which tensor cores multiply
// exactly.
#pragma once
#include <c10/formats/FormatLimits.h>
#include <c10/formats/NumberFormat.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace c10::formats {

enum class HalfType : uint8_t { Half, BFloat16 };

struct HalfParts {
  HalfType type;
  int count; // of parts: 1, or 2; the second is the first one's error
};

// The bits of a float32 number in the 16-bit type. If the type lacks it, its leading bits
// (bfloat16).
TD_HOST_DEVICE inline uint16_t bfloat16_bits(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}
TD_HOST_DEVICE inline uint16_t half_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000,
                 magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= 0x7F800000)
    return static_cast<uint16_t>(sign | (magnitude > 0x7F800000 ? 0x7E00 : 0x7C00));
  constexpr uint32_t kLeastNormal = (127 - 14) << 23;
  if (magnitude >= kLeastNormal)
    return static_cast<uint16_t>(sign | ((magnitude - ((127 - 15) << 23)) >> 13));
  // In units of the last place.
  return static_cast<uint16_t>(sign |
                               static_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p24F));
}

TD_HOST_DEVICE inline float from_bfloat16_bits(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline float from_half_bits(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
  const float sign = bits & 0x8000 ? -1.0F : 1.0F;
  if (exponent == 31)
    return fraction ? std::numeric_limits<float>::quiet_NaN()
                    : sign * std::numeric_limits<float>::infinity();
  return sign *
      std::ldexp(static_cast<float>(exponent ? fraction + 0x400 : fraction),
                 (exponent ? exponent : 1) - 25);
}

// Part i of a number, 0 or 1. Both parts of NaN are NaN.
TD_HOST_DEVICE inline uint16_t half_part(HalfType type, float x, int i) {
  if (type == HalfType::Half) return half_bits(x);
  const uint16_t leading = bfloat16_bits(x);
  return i == 0 ? leading : bfloat16_bits(x - from_bfloat16_bits(leading));
}

// How a format's numbers are such parts, found by looking at every code. Nothing if a number is
// not, or if the format has more than 16 bits. Formats with infinities have no two parts: an
// infinity times another number's part 0 is NaN.
inline std::optional<HalfParts> find_half_parts(const Format& f) {
  if (f.bits > 16) return std::nullopt;
  bool half = true, one = true, two = true;
  for (uint64_t code = 0; code < uint64_t{1} << f.bits; ++code) {
    const double value = value_of(f, code);
    if (std::isnan(value)) continue;
    const auto x = static_cast<float>(value);
    if (static_cast<double>(x) != value) return std::nullopt;
    half = half && from_half_bits(half_bits(x)) == x;
    const float leading = from_bfloat16_bits(half_part(HalfType::BFloat16, x, 0));
    one = one && leading == x;
    two = two && std::isfinite(x) &&
        leading + from_bfloat16_bits(half_part(HalfType::BFloat16, x, 1)) == x;
  }
  if (half) return HalfParts{HalfType::Half, 1};
  if (one) return HalfParts{HalfType::BFloat16, 1};
  return two ? std::optional(HalfParts{HalfType::BFloat16, 2}) : std::nullopt;
}

} // namespace c10::formats
