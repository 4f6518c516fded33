// Casts: codes to numbers and back, and numbers rounded to a format's.
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/PackedCodec.h>
#include <c10/formats/arithmetic/OddArithmetic.h>
#include <c10/formats/codec/BitFlips.h>
#include <c10/formats/codec/NextCode.h>

#include <cmath>

namespace at::formats::cuda {
namespace {

// ---- formats that have a codec ----

template <typename Codec, typename Code>
struct FlatDecode {
  using From = Code;
  using To = float;
  const Code* codes;
  float* values;
  typename Codec::Decode decode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = load<width>(codes + i);
    Pack<float, width> out;
    for (int j = 0; j < width; ++j) out.at[j] = decode(in.at[j]);
    store(values + i, out);
  }
};

template <typename Codec, typename Code>
struct FlatEncode {
  using From = float;
  using To = Code;
  const float* values;
  Code* codes;
  typename Codec::Encode encode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = load<width>(values + i);
    Pack<Code, width> out;
    for (int j = 0; j < width; ++j) out.at[j] = static_cast<Code>(encode(in.at[j]));
    store(codes + i, out);
  }
};

template <typename Codec>
struct FlatChop {
  const float* values;
  float* results;
  Codec codec;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = load<width>(values + i);
    Pack<float, width> out;
    for (int j = 0; j < width; ++j) out.at[j] = codec.decode(codec.encode(in.at[j]));
    store(results + i, out);
  }
};

template <typename Codec, typename Code>
struct DrawnEncode {
  const float* values;
  Code* codes;
  Codec codec;
  TD_INLINE void run(int64_t i, const Draw& draw) const {
    const auto in = load_apart(values + i, draw);
    Pack<Code, kOfBlock> out;
    codec.encode(in.at, draw, out.at);
    store_apart(codes + i, out, draw);
  }
};

template <typename Codec, typename Code>
struct DrawnChop {
  const float* values;
  float* results;
  Codec codec;
  TD_INLINE void run(int64_t i, const Draw& draw) const {
    const auto in = load_apart(values + i, draw);
    Code drawn[kOfBlock];
    codec.encode(in.at, draw, drawn);
    Pack<float, kOfBlock> out;
    for (int j = 0; j < kOfBlock; ++j) out.at[j] = codec.decode(drawn[j]);
    store_apart(results + i, out, draw);
  }
};

// ---- all others ----

template <typename T>
struct Decode {
  CodesIn codes;
  T* values;
  Decoder<T> decode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    values[i] = decode(static_cast<typename Machine<T>::Bits>(codes.at(i)));
  }
};

template <typename T, typename Value>
struct Encode {
  const Value* values;
  CodesOut codes;
  Encoder<T> encode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    codes.put(i, encode(static_cast<T>(values[i]), i));
  }
};

// By the generic codec, because integers have digits that no machine number has.
template <typename Integer>
struct EncodeInteger {
  const Integer* values;
  CodesOut codes;
  Format format;
  RandomWords words;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    const uint64_t word = words.first + static_cast<uint64_t>(i) * words.step;
    codes.put(
        i,
        encode_any(format, c10::formats::unpack(values[i]), drawn_word(format, words.seed, word)));
  }
};

template <typename T, typename Value>
struct Chop {
  const Value* values;
  Value* results;
  Encoder<T> encode;
  Decoder<T> decode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    results[i] = static_cast<Value>(
        decode(static_cast<typename Machine<T>::Bits>(encode(static_cast<T>(values[i]), i))));
  }
};

template <typename T, typename Value>
struct ChopAndFlip {
  const Value* values;
  Value* results;
  Encoder<T> encode;
  Decoder<T> decode;
  Format format;
  uint64_t limit;
  Seed seed;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    uint64_t code = encode(static_cast<T>(values[i]), i);
    const uint64_t word = c10::formats::random_word(seed.drawn(), static_cast<uint64_t>(i));
    if (word >> 32 < limit) code = c10::formats::flipped(format, code, static_cast<uint32_t>(word));
    results[i] = static_cast<Value>(decode(static_cast<typename Machine<T>::Bits>(code)));
  }
};

// Narrows as the CPU's narrow_to_odd does.
struct NarrowToOdd {
  const double* values;
  float* results;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    const float s = static_cast<float>(values[i]);
    const double missing = values[i] - static_cast<double>(s);
    results[i] = c10::formats::to_odd(s, static_cast<float>((missing > 0) - (missing < 0)));
  }
};

template <typename Code>
struct LookUp {
  const Code *table, *codes;
  Code* out;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    auto pack = load<width>(codes + i);
    for (int j = 0; j < width; ++j) pack.at[j] = table[pack.at[j]];
    store(out + i, pack);
  }
};

// Whether packs of four may be read and written at all of these pointers.
template <typename... T>
bool four_at(const T*... pointers) {
  return (is_aligned(pointers, 4 * sizeof(T)) && ...);
}

template <typename T>
Status decode_all(const Format& f, const void* codes, T* values, int64_t n, Stream stream) {
  if constexpr (std::is_same_v<T, float>) {
    if (const Format nearest = to_nearest(f); has_codec(nearest)) {
      return with_codec(nearest, [&](const auto& codec, auto code) {
        const auto* from = static_cast<const decltype(code)*>(codes);
        const FlatDecode<std::decay_t<decltype(codec)>, decltype(code)> body{from, values,
                                                                             codec.decode};
        return for_each_packed(n, four_at(from, values), stream, body);
      });
    }
  }
  return for_each(n, stream, Decode<T>{{codes, f.itemsize()}, values, Decoder<T>(f)});
}

template <typename T, typename Value>
Status encode_as(const Format& f, const Value* values, void* codes, int64_t n,
                 const RandomWords& words, Stream stream) {
  return for_each(n, stream, Encode<T, Value>{values, {codes, f.itemsize()}, Encoder<T>(f, words)});
}

// A format with numbers that float32 lacks is encoded by way of double, exactly.
Status encode_float(const Format& f, const float* values, void* codes, int64_t n,
                    const RandomWords& words, Stream stream) {
  if (!f.fits_float()) return encode_as<double>(f, values, codes, n, words, stream);
  if (has_drawn_codec(f) && draws_by_blocks(words)) {
    return with_drawn_codec(f, [&](const auto& codec, auto code) {
      using Code = decltype(code);
      return for_each_drawn(n, words, stream,
                            DrawnEncode<std::decay_t<decltype(codec)>, Code>{
                                values, static_cast<Code*>(codes), codec});
    });
  }
  if (!has_codec(f)) return encode_as<float>(f, values, codes, n, words, stream);
  return with_codec(f, [&](const auto& codec, auto code) {
    auto* to = static_cast<decltype(code)*>(codes);
    const FlatEncode<std::decay_t<decltype(codec)>, decltype(code)> body{values, to, codec.encode};
    return for_each_packed(n, four_at(values, to), stream, body);
  });
}

// ---- several at once ----

// Launches bodies of one kind, on packs of `width` elements.
template <typename Body, int width, typename Codec>
Status launch_packs(const Cast* casts, int count, Stream stream, const Codec& codec) {
  const auto one = [&](int k) {
    const Cast& cast = casts[k < count ? k : count - 1];
    return Packed<Body, width>{{static_cast<const typename Body::From*>(cast.from),
                                static_cast<typename Body::To*>(cast.to), codec},
                               cast.n};
  };
  static_assert(kMostCasts == 4);
  Several<Packed<Body, width>, kMostCasts> all{{one(0), one(1), one(2), one(3)}, {}};
  int64_t packs = 0;
  for (int k = 0; k < kMostCasts; ++k)
    all.end[k] = packs += k < count ? (casts[k].n + width - 1) / width : 0;
  return for_each(packs, stream, all);
}

template <typename Body, typename Codec>
Status launch_casts(const Cast* casts, int count, Stream stream, const Codec& codec) {
  bool aligned = true;
  for (int k = 0; k < count; ++k) {
    aligned = aligned &&
        four_at(static_cast<const typename Body::From*>(casts[k].from),
                static_cast<typename Body::To*>(casts[k].to));
  }
  return aligned ? launch_packs<Body, 4>(casts, count, stream, codec)
                 : launch_packs<Body, 1>(casts, count, stream, codec);
}

Status decode_floats(const Format& f, const Cast* casts, int count, Stream stream) {
  const Format nearest = to_nearest(f);
  if (count > 1 && has_codec(nearest)) {
    return with_codec(nearest, [&](const auto& codec, auto code) {
      return launch_casts<FlatDecode<std::decay_t<decltype(codec)>, decltype(code)>>(
          casts, count, stream, codec.decode);
    });
  }
  Status status = 0;
  for (int k = 0; k < count && status == 0; ++k)
    status = decode_all(f, casts[k].from, static_cast<float*>(casts[k].to), casts[k].n, stream);
  return status;
}

Status encode_floats(const Format& f, const Cast* casts, int count, Stream stream) {
  if (count > 1 && f.fits_float() && has_codec(f)) {
    return with_codec(f, [&](const auto& codec, auto code) {
      return launch_casts<FlatEncode<std::decay_t<decltype(codec)>, decltype(code)>>(
          casts, count, stream, codec.encode);
    });
  }
  Status status = 0;
  for (int k = 0; k < count && status == 0; ++k) {
    status = encode_float(f, static_cast<const float*>(casts[k].from), casts[k].to, casts[k].n, {},
                          stream);
  }
  return status;
}

template <typename Integer>
Status encode_integers(const Format& f, const Integer* values, void* codes, int64_t n,
                       const RandomWords& words, Stream stream) {
  return for_each(n, stream,
                  EncodeInteger<Integer>{values, {codes, f.itemsize()}, on_device(f), words});
}

template <typename T, typename Value>
Status chop_as(const Format& f, const Value* values, Value* results, int64_t n,
               const RandomWords& words, double flip_prob, const Seed& flip_seed, Stream stream) {
  const Encoder<T> encode(f, words);
  const Decoder<T> decode(f);
  if (flip_prob <= 0) return for_each(n, stream, Chop<T, Value>{values, results, encode, decode});
  const auto limit = static_cast<uint64_t>(std::ldexp(flip_prob, 32));
  return for_each(
      n, stream,
      ChopAndFlip<T, Value>{values, results, encode, decode, on_device(f), limit, flip_seed});
}

Status chop_float(const Format& f, const float* values, float* results, int64_t n,
                  const RandomWords& words, double flip_prob, const Seed& flip_seed,
                  Stream stream) {
  if (!f.fits_float())
    return chop_as<double>(f, values, results, n, words, flip_prob, flip_seed, stream);
  if (flip_prob <= 0 && has_drawn_codec(f) && draws_by_blocks(words)) {
    return with_drawn_codec(f, [&](const auto& codec, auto code) {
      return for_each_drawn(
          n, words, stream,
          DrawnChop<std::decay_t<decltype(codec)>, decltype(code)>{values, results, codec});
    });
  }
  if (flip_prob > 0 || !has_codec(f))
    return chop_as<float>(f, values, results, n, words, flip_prob, flip_seed, stream);
  return with_codec(f, [&](const auto& codec, auto) {
    return for_each_packed(n, four_at(values, results), stream,
                           FlatChop<std::decay_t<decltype(codec)>>{values, results, codec});
  });
}

Status narrow_to_odd(const double* values, float* results, int64_t n, Stream stream) {
  return for_each(n, stream, NarrowToOdd{values, results});
}

template <typename Code>
Status look_up_as(const void* table, const void* codes, void* out, int64_t n, Stream stream) {
  const auto* from = static_cast<const Code*>(codes);
  auto* to = static_cast<Code*>(out);
  return for_each_packed(n, four_at(from, to), stream,
                         LookUp<Code>{static_cast<const Code*>(table), from, to});
}

Status look_up(const void* table, const void* codes, int itemsize, void* out, int64_t n,
               Stream stream) {
  return (itemsize == 1 ? &look_up_as<uint8_t> : &look_up_as<uint16_t>)(table, codes, out, n,
                                                                        stream);
}

struct NextCodes {
  Format format;
  CodesIn codes;
  const double *from, *towards;
  CodesOut out;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    out.put(i, c10::formats::next_code(format, codes.at(i), from[i], towards[i]));
  }
};

Status next_codes(const Format& f, const void* codes, const double* from, const double* towards,
                  void* out, int64_t n, Stream stream) {
  return for_each(n, stream,
                  NextCodes{f, {codes, f.itemsize()}, from, towards, {out, f.itemsize()}});
}

} // namespace

void fill_codec(CudaKernels& k) {
  k.on_float.decode = &decode_all<float>;
  k.on_double.decode = &decode_all<double>;
  k.on_float.encode = &encode_float;
  k.on_double.encode = &encode_as<double, double>;
  k.decode_floats = &decode_floats;
  k.encode_floats = &encode_floats;
  k.encode_int64 = &encode_integers<int64_t>;
  k.encode_uint64 = &encode_integers<uint64_t>;
  k.on_float.chop = &chop_float;
  k.on_double.chop = &chop_as<double, double>;
  k.narrow_to_odd = &narrow_to_odd;
  k.look_up = &look_up;
  k.next_codes = &next_codes;
}

} // namespace at::formats::cuda
