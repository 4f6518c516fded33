// Codecs from float32 for the most common formats and modes: to nearest even, and stochastic. A
// kernel has one of them, in a third of the instructions of Codec.h's; a thread takes several
// elements.
#pragma once
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Draws.h>
#include <ATen/native/formats/cuda/PackedDecode.h>
#include <c10/formats/codec/AdditionEncoder.h>
#include <c10/formats/codec/FastConstantMode.h>

namespace at::formats::cuda {

using c10::formats::AdditionEncoder;

// The format with rounding to nearest; it decodes like the format in any mode.
inline Format to_nearest(Format f) {
  f.rounding = Rounding::NearestEven;
  f.random_bits = 0;
  f.few_bits = {};
  return f;
}

// ---- to nearest even ----

template <typename EncodeFast, typename DecodeFast, typename DecodePacked>
struct Codec {
  using PackedDecode = DecodePacked;
  static constexpr bool posits = std::is_same_v<DecodePacked, PackedPositDecoder>;
  using Encode = EncodeFast;
  using Decode = DecodeFast;
  Encode encode;
  Decode decode;
  explicit Codec(const Format& f) : encode(f), decode(f) {}
  static bool serves(const Format& f) {
    return f.rounding == Rounding::NearestEven && Encode::serves(f) && Decode::serves(f);
  }
};
using NearestFloats = Codec<c10::formats::ConstantModeFloatEncoder<float, Rounding::NearestEven>,
                            c10::formats::IeeeFloatDecoder<float>, PackedFloatDecoder>;
using NearestPosits = Codec<c10::formats::ConstantModePositEncoder<float, Rounding::NearestEven>,
                            PositDecoder<float>, PackedPositDecoder>;

inline bool has_codec(const Format& f) {
  return f.itemsize() <= 4 && (NearestFloats::serves(f) || NearestPosits::serves(f));
}

// Calls body with the format's codec, if it has one, and an unsigned number as wide as the codes.
template <typename Body>
Status with_codec(const Format& f, const Body& body) {
  const auto with_width = [&](const auto& codec) {
    switch (f.itemsize()) {
      case 1: return body(codec, uint8_t{});
      case 2: return body(codec, uint16_t{});
      default: return body(codec, uint32_t{});
    }
  };
  return NearestFloats::serves(f) ? with_width(NearestFloats(f)) : with_width(NearestPosits(f));
}

// ---- at random ----

template <typename EncodeFast, typename NearestCodec>
struct DrawnCodec {
  using Nearest = NearestCodec;
  EncodeFast fast;
  Format format;
  typename Nearest::Decode decode;
  explicit DrawnCodec(const Format& f) : fast(f), format(on_device(f)), decode(to_nearest(f)) {}
  static bool serves(const Format& f) {
    return EncodeFast::serves(f) && Nearest::serves(to_nearest(f));
  }

  template <typename Code>
  TD_INLINE void encode(const float (&x)[kOfBlock], const Draw& draw,
                        Code (&codes)[kOfBlock]) const {
    uint32_t undecided = 0; // bit j: element j
    TD_UNROLL
    for (int j = 0; j < kOfBlock; ++j) {
      const auto found = fast(x[j], draw.half[j]);
      codes[j] = static_cast<Code>(found.code);
      undecided |= found.undecided & 1U << j; // a mask
    }
    if (undecided == 0) return;
    TD_UNROLL
    for (int j = 0; j < kOfBlock; ++j) {
      if (undecided >> j & 1)
        codes[j] = static_cast<Code>(
            exactly(format, x[j], draw.seed, draw.word + static_cast<uint64_t>(j) * kApart));
    }
  }

 private:
  TD_HOST_DEVICE TD_NOINLINE static uint64_t exactly(const Format& f, float x, uint64_t seed,
                                                     uint64_t word) {
    return encode_any(f, c10::formats::unpack(static_cast<double>(x)),
                      c10::formats::random_word(seed, word));
  }
};
using DrawnFloats = DrawnCodec<c10::formats::StochasticIeeeEncoder, NearestFloats>;
using DrawnPosits = DrawnCodec<c10::formats::StochasticPositEncoder<float>, NearestPosits>;

inline bool has_drawn_codec(const Format& f) {
  if (f.rounding != Rounding::Stochastic || f.random_bits != 0 ||
      f.overflow == c10::formats::Overflow::Wrap || f.itemsize() > 2)
    return false;
  return DrawnFloats::serves(f) || DrawnPosits::serves(f);
}

template <typename Body>
Status with_drawn_codec(const Format& f, const Body& body) {
  const auto with_width = [&](const auto& codec) {
    return f.itemsize() == 1 ? body(codec, uint8_t{}) : body(codec, uint16_t{});
  };
  return DrawnFloats::serves(f) ? with_width(DrawnFloats(f)) : with_width(DrawnPosits(f));
}

// ---- the same, where many numbers are decoded too ----

// Decodes codes of 8 or 16 bits; those of 8 bits by a table of all numbers.
template <typename Codec, typename Code>
struct PackedNumbers {
  static constexpr bool has_values = sizeof(Code) == 1;
  struct Shared {
    float values[has_values ? 256 : 1];
  };
  typename Codec::Decode by_codec;
  typename Codec::PackedDecode value_of;

  PackedNumbers(const Format& f, const typename Codec::Decode& by_codec)
      : by_codec(by_codec),
        value_of(to_nearest(f)) {}

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    for (int code = thread; has_values && code < 256; code += threads)
      shared.values[code] = by_codec(static_cast<uint32_t>(code));
  }
  template <int width>
  TD_INLINE float decode(const Pack<Code, width>& codes, int i, const Shared& shared) const {
    if constexpr (has_values) return shared.values[codes.at[i]];
    else return value_of(at_top(codes, i, value_of.unused));
  }
};

// Whether PackedNumbers decodes the format's codes, in any rounding mode.
inline bool has_packed_numbers(const Format& f) {
  const Format nearest = to_nearest(f);
  return has_codec(nearest) &&
      (f.itemsize() != 2 || PackedFloatDecoder::serves(nearest) ||
       PackedPositDecoder::serves(nearest));
}

// Encodes to nearest even by magic numbers, and asks the codec about undecided numbers.
template <typename Codec, typename Code>
struct PackedCodec {
  using Numbers = PackedNumbers<Codec, Code>;
  struct Shared {
    AdditionEncoder::Table codes;
    typename Numbers::Shared numbers;
  };
  Codec codec;
  AdditionEncoder magic;
  Numbers numbers;

  PackedCodec(const Format& f, const Codec& codec)
      : codec(codec),
        magic(f),
        numbers(f, codec.decode) {}

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    magic.fill(shared.codes, thread, threads);
    numbers.prepare(shared.numbers, thread, threads);
  }
  template <int width>
  TD_INLINE float decode(const Pack<Code, width>& codes, int i, const Shared& shared) const {
    return numbers.decode(codes, i, shared.numbers);
  }
  template <int n>
  TD_INLINE void encode(const float (&x)[n], Code (&codes)[n], const Shared& shared) const {
    bool undecided = false;
    for (int i = 0; i < n; ++i) {
      const auto found = magic.template encode<Codec::posits>(x[i], shared.codes);
      codes[i] = static_cast<Code>(found.code);
      undecided |= found.undecided;
    }
    if (undecided) { // copies, because the call's arguments are written to memory by every pack
      float again[n];
      Code found[n];
      for (int i = 0; i < n; ++i) again[i] = x[i];
      all_by_codec(again, found);
      for (int i = 0; i < n; ++i) codes[i] = found[i];
    }
  }

 private:
  template <int n>
  TD_HOST_DEVICE TD_NOINLINE void all_by_codec(const float (&x)[n], Code (&codes)[n]) const {
    for (int i = 0; i < n; ++i) codes[i] = static_cast<Code>(codec.encode(with_plain_nan(x[i])));
  }
};
template <typename Codec>
struct PackedCodec<Codec, uint32_t> {
  struct Shared {};
  Codec codec;

  PackedCodec(const Format&, const Codec& codec) : codec(codec) {}

  TD_HOST_DEVICE void prepare(Shared&, int, int) const {}
  template <int width>
  TD_INLINE float decode(const Pack<uint32_t, width>& codes, int i, const Shared&) const {
    return codec.decode(codes.at[i]);
  }
  template <int n>
  TD_INLINE void encode(const float (&x)[n], uint32_t (&codes)[n], const Shared&) const {
    for (int i = 0; i < n; ++i) codes[i] = codec.encode(with_plain_nan(x[i]));
  }
};

// Encodes at random.
template <typename Codec, typename Code>
struct PackedDrawnCodec {
  using Numbers = PackedNumbers<typename Codec::Nearest, Code>;
  using Shared = typename Numbers::Shared;
  Codec codec;
  Numbers numbers;

  PackedDrawnCodec(const Format& f, const Codec& codec) : codec(codec), numbers(f, codec.decode) {}

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    numbers.prepare(shared, thread, threads);
  }
  template <int width>
  TD_INLINE float decode(const Pack<Code, width>& codes, int i, const Shared& shared) const {
    return numbers.decode(codes, i, shared);
  }
  TD_INLINE void encode(const float (&x)[kOfBlock], const Draw& draw,
                        Code (&codes)[kOfBlock]) const {
    float plain[kOfBlock];
    TD_UNROLL
    for (int i = 0; i < kOfBlock; ++i) plain[i] = with_plain_nan(x[i]);
    codec.encode(plain, draw, codes);
  }
};

} // namespace at::formats::cuda
