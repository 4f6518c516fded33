// Casts: codes to numbers and back, numbers rounded to a format's.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>

namespace at::formats::cuda {
namespace {

template <typename T, typename Code>
struct Decode {
  const Code* codes;
  T* values;
  Decoder<T> decode;
  TD_HOST_DEVICE void operator()(int64_t i) const { values[i] = decode(static_cast<typename Machine<T>::Bits>(codes[i])); }
};

template <typename T, typename Value, typename Code>
struct Encode {
  const Value* values;
  Code* codes;
  Encoder<T> encode;
  TD_HOST_DEVICE void operator()(int64_t i) const { codes[i] = static_cast<Code>(encode(static_cast<T>(values[i]), i)); }
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
  TD_HOST_DEVICE void operator()(int64_t i) const {
    results[i] = static_cast<Value>(decode(static_cast<typename Machine<T>::Bits>(encode(static_cast<T>(values[i]), i))));
  }
};

template <typename T>
Status decode_all(const Format& f, const void* codes, T* values, int64_t n, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    return for_each(n, stream, Decode<T, Code>{static_cast<const Code*>(codes), values, Decoder<T>(f)});
  });
}

template <typename T, typename Value>
Status encode_as(const Format& f, const Value* values, void* codes, int64_t n, const RandomWords& words, Stream stream) {
  return with_code_type(f, [&](auto code) {
    using Code = decltype(code);
    return for_each(n, stream, Encode<T, Value, Code>{values, static_cast<Code*>(codes), Encoder<T>(f, words)});
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
    return for_each(n, stream, EncodeInteger<Integer, Code>{values, static_cast<Code*>(codes), f, words});
  });
}

template <typename T, typename Value>
Status chop_as(const Format& f, const Value* values, Value* results, int64_t n, const RandomWords& words, Stream stream) {
  return for_each(n, stream, Chop<T, Value>{values, results, Encoder<T>(f, words), Decoder<T>(f)});
}

Status chop_float(const Format& f, const float* values, float* results, int64_t n, const RandomWords& words, Stream stream) {
  return f.fits_float() ? chop_as<float>(f, values, results, n, words, stream) : chop_as<double>(f, values, results, n, words, stream);
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
}

} // namespace at::formats::cuda
