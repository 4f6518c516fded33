// Loops over the codecs: the fast path for nearest-even rounding, the generic one for every other mode.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/FormatDispatch.h>
#include <c10/util/FastCodec.h>

#include <cstring>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

// Calls body with an unsigned type as wide as the format's codes in memory.
template <typename Body>
inline void with_code_type(const Format& f, Body&& body) {
  switch (f.itemsize()) {
    case 1: return body(uint8_t{});
    case 2: return body(uint16_t{});
    case 4: return body(uint32_t{});
    default: return body(uint64_t{});
  }
}

#define TD_INLINE_LAMBDA __attribute__((always_inline))

// The loop itself, with its bounds and pointers as plain locals: codes are bytes to the compiler, which may alias anything it sees
// through a reference. Not inlined: one loop a function, with parameters that are known not to overlap, is what compilers vectorise.
template <typename In, typename Out, typename Each>
__attribute__((noinline)) void transform(const In* __restrict in, Out* __restrict out, int64_t n, Each each) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(each(in[i]));
}

template <typename T>
void decode_all(const Format& f, const void* codes, T* values, int64_t n) {
  AT_DISPATCH_ALL_FORMATS(f, [=](auto tag) {
    const Format format = tag;
    with_code_type(format, [=](auto code) {
      using Code = decltype(code);
      const Code* in = static_cast<const Code*>(codes);
      if constexpr (sizeof(T) >= sizeof(Code)) {
        if (format.is_posit()) {
          transform(in, values, n, [tag](Code c) TD_INLINE_LAMBDA { return decode_posit_fast<T>(tag, c); });
        } else {
          transform(in, values, n, [tag](Code c) TD_INLINE_LAMBDA { return decode_float_fast<T>(tag, c); });
        }
      }
    });
  });
}

template <typename T>
void encode_all(const Format& f, const T* values, void* codes, int64_t n) {
  if (f.rounding != Rounding::NearestEven) {
    return with_code_type(f, [=, &f](auto code) {
      using Code = decltype(code);
      transform(values, static_cast<Code*>(codes), n, [f](T x) { return encode(f, unpack(static_cast<double>(x))); });
    });
  }
  AT_DISPATCH_ALL_FORMATS(f, [=](auto tag) {
    const Format format = tag;
    with_code_type(format, [=](auto code) {
      using Code = decltype(code);
      Code* out = static_cast<Code*>(codes);
      if constexpr (sizeof(T) >= sizeof(Code)) {
        if (format.is_posit()) {
          transform(values, out, n, [constants = PositConstants(tag)](T x) TD_INLINE_LAMBDA { return encode_posit_fast<T>(constants, x); });
        } else {
          transform(values, out, n, [constants = FloatConstants<T>(tag)](T x) TD_INLINE_LAMBDA { return encode_float_fast<T>(constants, x); });
        }
      }
    });
  });
}

template <typename T>
void encode_integers(const Format& f, const T* values, void* codes, int64_t n) {
  with_code_type(f, [=, &f](auto code) {
    using Code = decltype(code);
    transform(values, static_cast<Code*>(codes), n, [f](T x) { return encode(f, unpack(x)); });
  });
}

void encode_floats(const Format& f, const float* values, void* codes, int64_t n) {
  if (f.fits_float()) return encode_all<float>(f, values, codes, n);
  // Its exponents or fraction are wider than float32's: by way of double, in blocks.
  constexpr int64_t block = 512;
  double wide[block];
  for (int64_t done = 0; done < n; done += block) {
    const int64_t m = n - done < block ? n - done : block;
    for (int64_t i = 0; i < m; ++i) wide[i] = static_cast<double>(values[done + i]);
    encode_all<double>(f, wide, static_cast<char*>(codes) + done * f.itemsize(), m);
  }
}

} // namespace

void fill_codec(CpuKernels& k) {
  k.decode_float = &decode_all<float>;
  k.decode_double = &decode_all<double>;
  k.encode_float = &encode_floats;
  k.encode_double = &encode_all<double>;
  k.encode_int64 = &encode_integers<int64_t>;
  k.encode_uint64 = &encode_integers<uint64_t>;
}

} // namespace at::formats::CPU_CAPABILITY
