// Codes of up to 16 bits, sixteen at a time, to float32 and back, to nearest even. The last steps
// of an encoder handle 16 codes in one instruction; compilers, which vectorise one loop, handle 8.
// Bit for bit as FastDecode.h and FastConstantMode.h. AVX2's instructions, for AVX-512 too.
#pragma once
#include <c10/formats/codec/FastConstantMode.h>
#include <c10/formats/codec/FastDecode.h>

#include <algorithm>

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
#include <immintrin.h>
#endif

namespace at::formats::CPU_CAPABILITY {
namespace {

using c10::formats::bits_as;
using c10::formats::Format;
using c10::formats::Rounding;

// encode_short() encodes one of these.
struct Itself {};
struct Sum {};
struct Difference {};
struct Product {};

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
inline constexpr int64_t kSixteen = 16;

// Sixteen numbers, in order.
struct Floats {
  __m256 low, high;
};

TD_INLINE __m256i as_bits(__m256 x) {
  return _mm256_castps_si256(x);
}
TD_INLINE __m256 as_floats(__m256i x) {
  return _mm256_castsi256_ps(x);
}
TD_INLINE __m256i all32(uint32_t x) {
  return _mm256_set1_epi32(static_cast<int32_t>(x));
}
TD_INLINE __m256i all16(uint32_t x) {
  return _mm256_set1_epi16(static_cast<int16_t>(x));
}
// Shifts by one number of places take two steps on many processors; by one for each lane, or a
// product with 2^places, they take one.
TD_INLINE __m256i shifted_left(__m256i x, __m256i power) {
  return _mm256_mullo_epi16(x, power);
}
TD_INLINE __m256i power16(int places) {
  return all16(uint32_t{1} << places);
}

// Codes, zero-extended, from memory and back.
TD_INLINE __m256i load_codes(const uint16_t* codes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
}
TD_INLINE __m256i load_codes(const uint8_t* codes) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}
TD_INLINE void store_codes(uint16_t* codes, __m256i c) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), c);
}
TD_INLINE void store_codes(uint8_t* codes, __m256i c) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes),
                   _mm_packus_epi16(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1)));
}
TD_INLINE Floats load_floats(const float* x) {
  return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}
TD_INLINE void store_floats(float* x, Floats v) {
  _mm256_storeu_ps(x, v.low);
  _mm256_storeu_ps(x + 8, v.high);
}

// 32 bits to 16, in the order that packing gives: each half of a vector by itself. saturated:
// signed numbers keep their sign, and only 0 becomes 0.
TD_INLINE __m256i saturated(__m256i low, __m256i high) {
  return _mm256_packs_epi32(low, high);
}
TD_INLINE __m256i in_order(__m256i packed) {
  return _mm256_permute4x64_epi64(packed, 0xD8);
}

// Floats that float16 has, times a power of two: the processor converts float16, with subnormals.
struct ShortFloatDecoder {
  __m256i magnitude, sign, above_max, above_infinity;
  __m256i left, sign_left; // powers of two
  __m256 scale;

  explicit ShortFloatDecoder(const Format& f)
      : magnitude(all16((f.sign_code() - 1) << place(f))),
        sign(all16(0x8000)),
        above_max(all16(f.max_code() << place(f))),
        above_infinity(all16((f.max_code() + f.has_infinity()) << place(f))),
        left(power16(place(f))),
        sign_left(power16(16 - f.bits)),
        scale(_mm256_set1_ps(c10::formats::power_of_two<float>(kBias - f.bias))) {}

  static constexpr bool serves(const Format& f) {
    return c10::formats::IeeeFloatDecoder<float>::serves(f) && f.man_bits <= 10 &&
        (f.exp_bits < 5 || (f.exp_bits == 5 && f.max_code() >> f.man_bits < 31)) &&
        f.bias - kBias < 64 && kBias - f.bias < 64;
  }

  TD_INLINE Floats operator()(__m256i codes) const {
    const __m256i m = _mm256_and_si256(shifted_left(codes, left), magnitude);
    __m256i half = _mm256_blendv_epi8(m, all16(0x7C00), _mm256_cmpgt_epi16(m, above_max));
    half = _mm256_blendv_epi8(half, all16(0x7E00), _mm256_cmpgt_epi16(m, above_infinity));
    half = _mm256_or_si256(half, _mm256_and_si256(shifted_left(codes, sign_left), sign));
    return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scale),
            _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), scale)};
  }

 private:
  static constexpr int kBias = 15;
  static constexpr int place(const Format& f) { return 10 - f.man_bits; }
};

// As PositDecoder; distances and signs are found in 16 bits.
struct ShortPositDecoder {
  __m256i left, es;

  explicit ShortPositDecoder(const Format& f) : left(power16(16 - f.bits)), es(all32(f.es)) {}

  static constexpr bool serves(const Format& f) {
    return f.is_posit() && f.bits <= 16 && f.fits_float();
  }

  TD_INLINE Floats operator()(__m256i codes) const {
    const __m256i c = shifted_left(codes, left), nar = all16(0x8000);
    const __m256i magnitude = _mm256_abs_epi16(c);
    const __m256i distance = _mm256_min_epu16(magnitude, _mm256_sub_epi16(nar, magnitude));
    const __m256i side = _mm256_sub_epi16(magnitude, all16(kOne)); // of 1
    // The sign, or NaN's upper half.
    const __m256i upper =
        _mm256_blendv_epi8(_mm256_and_si256(c, nar), all16(c10::formats::nan_bits<float>() >> 16),
                           _mm256_cmpeq_epi16(c, nar));
    const __m256i zero = _mm256_setzero_si256();
    const __m256 p = number(_mm256_unpacklo_epi16(distance, side),
                            _mm256_unpacklo_epi16(zero, upper)),
                 q = number(_mm256_unpackhi_epi16(distance, side),
                            _mm256_unpackhi_epi16(zero, upper));
    return {_mm256_permute2f128_ps(p, q, 0x20), _mm256_permute2f128_ps(p, q, 0x31)};
  }

 private:
  static constexpr uint32_t kOne = 0x4000; // the code of 1

  TD_INLINE __m256 number(__m256i distance_and_side, __m256i upper) const {
    const __m256i distance = _mm256_and_si256(distance_and_side, all32(0xFFFF));
    const __m256i from_end = as_bits(_mm256_cvtepi32_ps(distance));
    const __m256i from_one = _mm256_sllv_epi32(
        _mm256_sub_epi32(all32(bits_as<uint32_t>(static_cast<float>(kOne))), from_end), es);
    const __m256i value = _mm256_add_epi32(_mm256_sign_epi32(from_one, distance_and_side),
                                           all32(bits_as<uint32_t>(1.0F)));
    const __m256i at_end = _mm256_cmpeq_epi32(distance, _mm256_setzero_si256());
    return as_floats(_mm256_or_si256(_mm256_andnot_si256(at_end, value), upper));
  }
};

// As ConstantModeFloatEncoder.
struct ShortFloatEncoder {
  using Encoder = c10::formats::ConstantModeFloatEncoder<float, Rounding::NearestEven>;

  __m256i smallest, magic, half, most, nan, sign_code, cut;

  explicit ShortFloatEncoder(const Format& f) : ShortFloatEncoder(Encoder(f)) {}

  static constexpr bool serves(const Format& f) {
    return f.rounding == Rounding::NearestEven && f.bits <= 16 && Encoder::serves(f);
  }

  TD_INLINE __m256i operator()(Floats x) const {
    const __m256i low = as_bits(x.low), high = as_bits(x.high);
    const __m256i a = magnitude(low), b = magnitude(high);
    __m256i code = saturated(number(a), number(b));
    code = _mm256_min_epi16(code, most);
    const __m256i infinity = all32(c10::formats::infinity_bits<float>());
    const __m256i is_nan =
        saturated(_mm256_cmpgt_epi32(a, infinity), _mm256_cmpgt_epi32(b, infinity));
    code = _mm256_blendv_epi8(code, nan, is_nan);
    const __m256i signs = _mm256_srai_epi16(saturated(low, high), 15);
    return in_order(_mm256_or_si256(code, _mm256_and_si256(signs, sign_code)));
  }

 private:
  explicit ShortFloatEncoder(const Encoder& e)
      : smallest(all32(e.smallest)),
        magic(all32(bits_as<uint32_t>(e.magic))),
        half(all32(e.addend.half)),
        most(all16(e.end.limit(0))),
        nan(all16(e.end.nan)),
        sign_code(all16(e.sign_code)),
        cut(all32(static_cast<uint32_t>(e.cut))) {}

  TD_INLINE static __m256i magnitude(__m256i bits) {
    return _mm256_and_si256(bits, all32(0x7FFFFFFF));
  }
  // The code without limit, sign and NaN.
  TD_INLINE __m256i number(__m256i a) const {
    const __m256i held = _mm256_min_epi32(a, smallest);
    const __m256i below =
        _mm256_sub_epi32(as_bits(_mm256_add_ps(as_floats(held), as_floats(magic))), magic);
    const __m256i odd = _mm256_and_si256(_mm256_srlv_epi32(a, cut), all32(1));
    const __m256i normal = _mm256_srav_epi32(_mm256_add_epi32(_mm256_add_epi32(a, half), odd), cut);
    return _mm256_max_epi32(normal, below);
  }
};

// The reverse of PositDecoder. A number's exponent and fraction, counted from 1 and shifted by es,
// are those of the code's distance from the code of 0 or of NaR as a float. Converted to an
// integer, it is rounded to the nearest code.
struct ShortPositEncoder {
  __m256i limit, low_digits, one, largest, half_turn, mask, nar, es;

  explicit ShortPositEncoder(const Format& f)
      : limit(all32(static_cast<uint32_t>(f.max_exponent()) << 23)),
        low_digits(all32((uint32_t{1} << f.es) - 1)),
        one(all32(bits_as<uint32_t>(c10::formats::power_of_two<float>(f.bits - 2)))),
        largest(all32(c10::formats::largest_number<float>(f))),
        half_turn(all16(f.sign_code())),
        mask(all16(f.code_mask())),
        nar(all16(f.nan_code())),
        es(all32(f.es)) {}

  static constexpr bool serves(const Format& f) {
    return f.rounding == Rounding::NearestEven && f.bits <= 16 && f.fits_float() &&
        c10::formats::ConstantModePositEncoder<float, Rounding::NearestEven>::serves(f);
  }

  TD_INLINE __m256i operator()(Floats x) const {
    const __m256i low = as_bits(x.low), high = as_bits(x.high);
    const __m256i a = magnitude(low), b = magnitude(high);
    const __m256i p = from_one(a), q = from_one(b);
    const __m256i distance = _mm256_packus_epi32(codes_from_end(p), codes_from_end(q));
    const __m256i below_one = _mm256_srai_epi16(saturated(p, q), 15);
    __m256i code = _mm256_blendv_epi8(_mm256_sub_epi16(half_turn, distance), distance, below_one);
    code = _mm256_sign_epi16(code, saturated(a, b)); // only 0 gives 0
    code = _mm256_sign_epi16(code, saturated(low, high));
    const __m256i is_nar =
        saturated(_mm256_cmpgt_epi32(a, largest), _mm256_cmpgt_epi32(b, largest));
    return in_order(_mm256_and_si256(_mm256_blendv_epi8(code, nar, is_nar), mask));
  }

 private:
  TD_INLINE static __m256i magnitude(__m256i bits) {
    return _mm256_and_si256(bits, all32(0x7FFFFFFF));
  }
  // Exponent and fraction as one number.
  TD_INLINE static __m256i from_one(__m256i magnitude) {
    return _mm256_sub_epi32(magnitude, all32(0x3F800000));
  }
  TD_INLINE __m256i codes_from_end(__m256i from_one) const {
    const __m256i away = _mm256_min_epi32(_mm256_abs_epi32(from_one), limit);
    // Digits that the shift drops become one sticky digit.
    const __m256i sticky =
        _mm256_or_si256(away, _mm256_add_epi32(_mm256_and_si256(away, low_digits), low_digits));
    return _mm256_cvtps_epi32(as_floats(_mm256_sub_epi32(one, _mm256_srlv_epi32(sticky, es))));
  }
};

TD_INLINE Floats combined(Itself, Floats x, Floats) {
  return x;
}
TD_INLINE Floats combined(Sum, Floats x, Floats y) {
  return {_mm256_add_ps(x.low, y.low), _mm256_add_ps(x.high, y.high)};
}
TD_INLINE Floats combined(Difference, Floats x, Floats y) {
  return {_mm256_sub_ps(x.low, y.low), _mm256_sub_ps(x.high, y.high)};
}
TD_INLINE Floats combined(Product, Floats x, Floats y) {
  return {_mm256_mul_ps(x.low, y.low), _mm256_mul_ps(x.high, y.high)};
}

template <typename Decoder, typename Code>
__attribute__((noinline)) void decode_sixteens(const Format& f, const Code* __restrict codes,
                                               float* __restrict values, int64_t n) {
  const Decoder decoder(f);
  int64_t i = 0;
  for (; i + kSixteen <= n; i += kSixteen) store_floats(values + i, decoder(load_codes(codes + i)));
  if (i == n) return;
  Code rest[kSixteen] = {};
  float decoded[kSixteen];
  std::copy(codes + i, codes + n, rest);
  store_floats(decoded, decoder(load_codes(rest)));
  std::copy_n(decoded, n - i, values + i);
}

template <typename Encoder, typename Code, typename What>
__attribute__((noinline)) void encode_sixteens(const Format& f, What what,
                                               const float* __restrict a, const float* __restrict b,
                                               Code* __restrict codes, int64_t n) {
  const Encoder encoder(f);
  int64_t i = 0;
  for (; i + kSixteen <= n; i += kSixteen)
    store_codes(codes + i, encoder(combined(what, load_floats(a + i), load_floats(b + i))));
  if (i == n) return;
  float x[kSixteen] = {}, y[kSixteen] = {};
  Code encoded[kSixteen];
  std::copy(a + i, a + n, x);
  std::copy(b + i, b + n, y);
  store_codes(encoded, encoder(combined(what, load_floats(x), load_floats(y))));
  std::copy_n(encoded, n - i, codes + i);
}

// Both return false if the format is another one.
inline bool decode_short(const Format& f, const void* codes, float* values, int64_t n) {
  const auto decode_as = [=, &f](auto code) {
    const auto* in = static_cast<const decltype(code)*>(codes);
    if (f.is_posit()) decode_sixteens<ShortPositDecoder>(f, in, values, n);
    else decode_sixteens<ShortFloatDecoder>(f, in, values, n);
  };
  if (!ShortPositDecoder::serves(f) && !ShortFloatDecoder::serves(f)) return false;
  f.itemsize() == 1 ? decode_as(uint8_t{}) : decode_as(uint16_t{});
  return true;
}
template <typename What>
bool encode_short(const Format& f, What what, const float* a, const float* b, void* codes,
                  int64_t n) {
  const auto encode_as = [=, &f](auto code) {
    auto* out = static_cast<decltype(code)*>(codes);
    if (f.is_posit()) encode_sixteens<ShortPositEncoder>(f, what, a, b, out, n);
    else encode_sixteens<ShortFloatEncoder>(f, what, a, b, out, n);
  };
  if (!ShortPositEncoder::serves(f) && !ShortFloatEncoder::serves(f)) return false;
  f.itemsize() == 1 ? encode_as(uint8_t{}) : encode_as(uint16_t{});
  return true;
}
#else
inline bool decode_short(const Format&, const void*, float*, int64_t) {
  return false;
}
template <typename What>
bool encode_short(const Format&, What, const float*, const float*, void*, int64_t) {
  return false;
}
#endif

} // namespace
} // namespace at::formats::CPU_CAPABILITY
