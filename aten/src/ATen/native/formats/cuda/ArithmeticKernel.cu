// + - * / sqrt and fused multiply-add of codes: decoded, computed to odd in float32 or float64, rounded once.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/Odd.h>

namespace at::formats::cuda {
namespace {

template <typename T, typename Code>
struct Binary {
  BinaryOp op;
  const Code *a, *b;
  Code* out;
  Odd<T> odd;
  Decoder<T> decode;
  Encoder<T> encode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    out[i] = static_cast<Code>(encode(with_plain_nan(odd.binary(op, decode(a[i]), decode(b[i]))), i));
  }
};

template <typename T, typename Code>
struct Ternary {
  TernaryOp op;
  const Code *a, *b, *c;
  Code* out;
  T s;
  Decoder<T> decode;
  Encoder<T> encode;
  TD_HOST_DEVICE void operator()(int64_t i) const {
    out[i] = static_cast<Code>(encode(with_plain_nan(ternary_odd(op, decode(a[i]), decode(b[i]), decode(c[i]), s)), i));
  }
};

template <typename T, typename Code>
struct Root {
  const Code* a;
  Code* out;
  Decoder<T> decode;
  Encoder<T> encode;
  TD_HOST_DEVICE void operator()(int64_t i) const { out[i] = static_cast<Code>(encode(with_plain_nan(c10::formats::sqrt_odd(decode(a[i]))), i)); }
};

// body(code, number): of the types of the codes and of the arithmetic.
template <typename Body>
Status with_types(const Format& f, bool in_float, const Body& body) {
  return with_code_type(f, [&](auto code) { return in_float ? body(code, float{}) : body(code, double{}); });
}

Status binary(const Format& f, BinaryOp op, const void* a, const void* b, void* out, int64_t n, const RandomWords& words, Stream stream) {
  return with_types(f, f.arithmetic_in_float(), [&](auto code, auto number) {
    using Code = decltype(code);
    using T = decltype(number);
    const Binary<T, Code> body{op,
                               static_cast<const Code*>(a),
                               static_cast<const Code*>(b),
                               static_cast<Code*>(out),
                               Odd<T>(f.rounding),
                               Decoder<T>(f),
                               Encoder<T>(f, words)};
    return for_each(n, stream, body);
  });
}

Status ternary(const Format& f, TernaryOp op, const void* a, const void* b, const void* c, double s, void* out, int64_t n, const RandomWords& words,
               Stream stream) {
  // Two roundings in a row are as good as one only if the first loses nothing: a product of short values, no quotient and no difference.
  const bool product = op == TernaryOp::Fma || op == TernaryOp::Addcmul;
  return with_types(f, f.arithmetic_in_float() && f.significand_bits() <= 12 && product && s == 1, [&](auto code, auto number) {
    using Code = decltype(code);
    using T = decltype(number);
    const Ternary<T, Code> body{op,
                                static_cast<const Code*>(a),
                                static_cast<const Code*>(b),
                                static_cast<const Code*>(c),
                                static_cast<Code*>(out),
                                static_cast<T>(s),
                                Decoder<T>(f),
                                Encoder<T>(f, words)};
    return for_each(n, stream, body);
  });
}

Status square_roots(const Format& f, const void* a, void* out, int64_t n, const RandomWords& words, Stream stream) {
  return with_types(f, f.arithmetic_in_float(), [&](auto code, auto number) {
    using Code = decltype(code);
    using T = decltype(number);
    return for_each(n, stream, Root<T, Code>{static_cast<const Code*>(a), static_cast<Code*>(out), Decoder<T>(f), Encoder<T>(f, words)});
  });
}

} // namespace

void fill_arithmetic(CudaKernels& k) {
  k.binary = &binary;
  k.ternary = &ternary;
  k.sqrt = &square_roots;
}

} // namespace at::formats::cuda
