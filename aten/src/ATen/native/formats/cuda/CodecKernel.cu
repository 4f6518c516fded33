// Casts: codes to numbers and back, numbers rounded to a format's.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <c10/formats/BitFlips.h>
#include <c10/formats/NextCode.h>
#include <c10/formats/OddArithmetic.h>

#include <cmath>

namespace at::formats::cuda {
namespace {

template <typename T, typename Code>
struct Decode {
  const Code* codes;
  T* values;
  Decoder<T> decode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = *reinterpret_cast<const Pack<Code, width>*>(codes + i);
    Pack<T, width> out;
    for (int j = 0; j < width; ++j) out.at[j] = decode(static_cast<typename Machine<T>::Bits>(in.at[j]));
    *reinterpret_cast<Pack<T, width>*>(values + i) = out;
  }
};

template <typename T, typename Value, typename Code>
struct Encode {
  const Value* values;
  Code* codes;
  Encoder<T> encode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = *reinterpret_cast<const Pack<Value, width>*>(values + i);
    Pack<Code, width> out;
    for (int j = 0; j < width; ++j) out.at[j] = static_cast<Code>(encode(static_cast<T>(in.at[j]), i + j));
    *reinterpret_cast<Pack<Code, width>*>(codes + i) = out;
  }
};

// Integers have digits that no machine number has: by the generic codec.
template <typename Integer, typename Code>
struct EncodeInteger {
  const Integer* values;
  Code* codes;
  Format format;
  RandomWords words;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    const uint64_t word = words.first + static_cast<uint64_t>(i) * words.step;
    codes[i] = static_cast<Code>(encode_any(format, c10::formats::unpack(values[i]), drawn_word(format, words.seed, word)));
  }
};

template <typename T, typename Value>
struct Chop {
  const Value* values;
  Value* results;
  Encoder<T> encode;
  Decoder<T> decode;
  template <int width>
  TD_HOST_DEVICE void run(int64_t i) const {
    const auto in = *reinterpret_cast<const Pack<Value, width>*>(values + i);
    Pack<Value, width> out;
    for (int j = 0; j < width; ++j) {
      out.at[j] = static_cast<Value>(decode(static_cast<typename Machine<T>::Bits>(encode(static_cast<T>(in.at[j]), i + j))));
    }
    *reinterpret_cast<Pack<Value, width>*>(results + i) = out;
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

// As the CPU's narrow_to_odd.
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
    auto pack = *reinterpret_cast<const Pack<Code, width>*>(codes + i);
    for (int j = 0; j < width; ++j) pack.at[j] = table[pack.at[j]];
    *reinterpret_cast<Pack<Code, width>*>(out + i) = pack;
  }
};

// Whether packs of four may be read and written at all of these.
template <typename... T>
bool four_at(const T*... pointers) {
  return (is_aligned(pointers, 4 * sizeof(T)) && ...);
}

template <typename T>
Status decode_all(const Format& f, const void* codes, T* values, int64_t n, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    const auto* from = static_cast<const Code*>(codes);
    return for_each_packed(n, four_at(from, values), stream, Decode<T, Code>{from, values, Decoder<T>(f)});
  });
}

template <typename T, typename Value>
Status encode_as(const Format& f, const Value* values, void* codes, int64_t n, const RandomWords& words, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    auto* to = static_cast<Code*>(codes);
    return for_each_packed(n, four_at(values, to), stream, Encode<T, Value, Code>{values, to, Encoder<T>(f, words)});
  });
}

// A format with numbers that float32 lacks is reached by way of double, exactly.
Status encode_float(const Format& f, const float* values, void* codes, int64_t n, const RandomWords& words, Stream stream) {
  return f.fits_float() ? encode_as<float>(f, values, codes, n, words, stream) : encode_as<double>(f, values, codes, n, words, stream);
}

template <typename Integer>
Status encode_integers(const Format& f, const Integer* values, void* codes, int64_t n, const RandomWords& words, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    return for_each(n, stream, EncodeInteger<Integer, Code>{values, static_cast<Code*>(codes), on_device(f), words});
  });
}

template <typename T, typename Value>
Status chop_as(const Format& f, const Value* values, Value* results, int64_t n, const RandomWords& words, double flip_prob, const Seed& flip_seed,
               Stream stream) {
  const Encoder<T> encode(f, words);
  const Decoder<T> decode(f);
  if (flip_prob <= 0) return for_each_packed(n, four_at(values, results), stream, Chop<T, Value>{values, results, encode, decode});
  const auto limit = static_cast<uint64_t>(std::ldexp(flip_prob, 32));
  return for_each(n, stream, ChopAndFlip<T, Value>{values, results, encode, decode, on_device(f), limit, flip_seed});
}

Status chop_float(const Format& f, const float* values, float* results, int64_t n, const RandomWords& words, double flip_prob, const Seed& flip_seed,
                  Stream stream) {
  return (f.fits_float() ? &chop_as<float, float> : &chop_as<double, float>)(f, values, results, n, words, flip_prob, flip_seed, stream);
}

Status narrow_to_odd(const double* values, float* results, int64_t n, Stream stream) {
  return for_each(n, stream, NarrowToOdd{values, results});
}

template <typename Code>
Status look_up_as(const void* table, const void* codes, void* out, int64_t n, Stream stream) {
  const auto* from = static_cast<const Code*>(codes);
  auto* to = static_cast<Code*>(out);
  return for_each_packed(n, four_at(from, to), stream, LookUp<Code>{static_cast<const Code*>(table), from, to});
}

Status look_up(const void* table, const void* codes, int itemsize, void* out, int64_t n, Stream stream) {
  return (itemsize == 1 ? &look_up_as<uint8_t> : &look_up_as<uint16_t>)(table, codes, out, n, stream);
}

template <typename Code>
struct NextCodes {
  Format format;
  const Code* codes;
  const double *from, *towards;
  Code* out;
  TD_HOST_DEVICE void operator()(int64_t i) const { out[i] = static_cast<Code>(c10::formats::next_code(format, codes[i], from[i], towards[i])); }
};

Status next_codes(const Format& f, const void* codes, const double* from, const double* towards, void* out, int64_t n, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    return for_each(n, stream, NextCodes<Code>{f, static_cast<const Code*>(codes), from, towards, static_cast<Code*>(out)});
  });
}

} // namespace

void fill_codec(CudaKernels& k) {
  k.decode_float = &decode_all<float>;
  k.decode_double = &decode_all<double>;
  k.encode_float = &encode_float;
  k.encode_double = &encode_as<double, double>;
  k.encode_int64 = &encode_integers<int64_t>;
  k.encode_uint64 = &encode_integers<uint64_t>;
  k.chop_float = &chop_float;
  k.chop_double = &chop_as<double, double>;
  k.narrow_to_odd = &narrow_to_odd;
  k.look_up = &look_up;
  k.next_codes = &next_codes;
}

} // namespace at::formats::cuda
