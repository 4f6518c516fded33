// Decodes codes of 16 bits to float32, by single GPU instructions: conversions, products,
// comparisons that choose. The results are those of the decoders of c10/formats/codec/FastDecode.h,
// whose masks suit the CPU's vector units. Only the digits of NaN differ, which GPU operations
// drop.
#pragma once
#include <ATen/native/formats/cuda/Launch.h>
#include <c10/formats/codec/FastDecode.h>

namespace at::formats::cuda {

using c10::formats::bits_as;
using c10::formats::Format;

// Moves code i of the pack to the top of 32 bits, without a mask if its neighbours are shifted out.
// unused: bits above a code in 32.
template <int width>
TD_INLINE uint32_t at_top(const Pack<uint16_t, width>& codes, int i, int unused) {
  if constexpr (width == 1) return static_cast<uint32_t>(codes.at[i]) << unused;
  uint32_t pair;
  __builtin_memcpy(&pair, codes.at + (i & ~1), sizeof pair);
  return i & 1 ? (pair & 0xffff0000) << (unused - 16) : pair << unused;
}

// Floats: their digits are a float32 number's, but for the exponent's bias. A product corrects
// that, also for subnormal numbers.
struct PackedFloatDecoder {
  int unused, right;
  uint32_t digits; // and the sign
  float largest, scale;

  explicit PackedFloatDecoder(const Format& f)
      : unused(32 - f.bits),
        right(8 - f.exp_bits),
        digits(0x80000000 | ((f.sign_code() - 1) << (23 - f.man_bits))),
        largest(bits_as<float>(static_cast<uint32_t>(f.max_code()) << (23 - f.man_bits))),
        scale(c10::formats::power_of_two<float>(127 - f.bias)) {}

  // Above the largest number come infinity, with a fraction of 0, and NaN, with other fractions.
  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    const uint64_t next = f.max_code() + 1;
    const bool next_is_whole = (next & ((uint64_t{1} << f.man_bits) - 1)) == 0;
    return f.bits <= 16 && f.bias >= 0 &&
        (next == f.sign_code() || next_is_whole == f.has_infinity()) &&
        c10::formats::IeeeFloatDecoder<float>::serves(f);
  }

  TD_INLINE float operator()(uint32_t top) const {
    const float moved = bits_as<float>(static_cast<uint32_t>(static_cast<int32_t>(top) >> right) &
                                       digits),
                value = moved * scale;
    return __builtin_fabsf(moved) > largest ? bits_as<float>(bits_as<uint32_t>(value) | 0x7f800000)
                                            : value;
  }
};

// Posits, decoded as PositDecoder does.
struct PackedPositDecoder {
  int unused;
  // 2^es; the starts of the distance's digits for numbers below 1, and from 1 on
  uint32_t scale, least, most;

  explicit PackedPositDecoder(const Format& f)
      : unused(32 - f.bits),
        scale(1U << f.es),
        least(kOne - (kTop << f.es)),
        most(kOne + (kTop << f.es)) {}

  TD_HOST_DEVICE static constexpr bool serves(const Format& f) {
    return f.is_posit() && f.bits <= 16;
  }

  TD_INLINE float operator()(uint32_t top) const {
    const float number = static_cast<float>(static_cast<int32_t>(top)),
                above = __builtin_fabsf(number) - 0x1p30F;
    const uint32_t distance = bits_as<uint32_t>(0x1p30F - __builtin_fabsf(above));
    const bool below = above < 0;
    const uint32_t value = distance * (below ? scale : 0 - scale) + (below ? least : most);
    const uint32_t none = below ? 0 : 0x7fc00000; // 0, or NaR
    return bits_as<float>(distance == 0 ? none : value | (bits_as<uint32_t>(number) & 0x80000000));
  }

 private:
  static constexpr uint32_t kOne = 127U << 23, kTop = (127U + 30) << 23; // 1 and 2^30
};

} // namespace at::formats::cuda
