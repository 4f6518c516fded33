// The inner loops of InstructionKernel.h: a few rows times one vector of columns, in registers.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cmath>
#include <cstring>

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
#include <immintrin.h>
#endif

namespace at::formats::CPU_CAPABILITY {
namespace {

// All functions with such arguments are inlined, so that their ABI does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kWide = 8; // numbers of 64 bits in a vector
#else
inline constexpr int kWide = 4;
#endif
inline constexpr int kVectorBytes = 8 * kWide;
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));
typedef int64_t Signed __attribute__((vector_size(kVectorBytes)));
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Halves __attribute__((vector_size(kVectorBytes)));
typedef int32_t SignedHalves __attribute__((vector_size(kVectorBytes)));

template <typename V, typename T>
TD_INLINE V load(const T* x) {
  V v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
template <typename V, typename T>
TD_INLINE void store(T* x, V v) {
  __builtin_memcpy(x, &v, sizeof v);
}
template <typename V, typename U>
TD_INLINE V as(U x) {
  V v;
  static_assert(sizeof v == sizeof x);
  __builtin_memcpy(&v, &x, sizeof v);
  return v;
}
// x - 0 is x, so compilers load it into all lanes at once; 0 + x would be an addition.
TD_INLINE Doubles broadcast(double x) {
  return x - Doubles{};
}
TD_INLINE Floats broadcast(float x) {
  return x - Floats{};
}

// ---- what vector units have instructions for ----

#if defined(CPU_CAPABILITY_AVX512)
TD_INLINE Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  return _mm512_fmadd_pd(a, b, c);
}
TD_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
// The products of the low halves. GCC 12 warns of the unmasked intrinsic's undefined operand.
TD_INLINE Words multiply_low(Words a, uint64_t b) {
  const __m512i factor = _mm512_set1_epi64(static_cast<int64_t>(b));
  return as<Words>(_mm512_maskz_mul_epu32(0xFF, as<__m512i>(a), factor));
}
TD_INLINE Words swap_halves(Words x) {
  return x << 32 | x >> 32;
}
#elif defined(CPU_CAPABILITY_AVX2)
TD_INLINE Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  return _mm256_fmadd_pd(a, b, c);
}
TD_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
TD_INLINE Words multiply_low(Words a, uint64_t b) {
  return as<Words>(_mm256_mul_epu32(as<__m256i>(a), _mm256_set1_epi64x(static_cast<int64_t>(b))));
}
TD_INLINE Words swap_halves(Words x) {
  return as<Words>(_mm256_shuffle_epi32(as<__m256i>(x), 0xB1));
}
#else
// The product of two float32 numbers is exact, so this is a fused multiply-add.
TD_INLINE Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  return a * b + c;
}
TD_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  for (int i = 0; i < 2 * kWide; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
}
TD_INLINE Words multiply_low(Words a, uint64_t b) {
  return (a & 0xFFFFFFFF) * b;
}
TD_INLINE Words swap_halves(Words x) {
  return x << 32 | x >> 32;
}
#endif

// ---- random words ----

// Mixes 64 bits by four rounds of a Feistel network, as Philox2x32 does (Philox.h), without a key:
// the arguments are random words plus multiples of a constant.
TD_INLINE Words mix_once(Words x, uint32_t multiplier) {
  return swap_halves(multiply_low(x, multiplier)) ^ (x >> 32);
}
TD_INLINE Words mix(Words x) {
  x = mix_once(mix_once(x, 0xD256D193), 0xD2511F53);
  return mix_once(mix_once(x, 0xCD9E8D57), 0xD256D193);
}

// Row i's word for `window` steps is mixed from the words of i and j. Each step has a word of
// column j, which all rows share. Their exclusive or is the step's word: any two of them are
// independent.
inline constexpr int kWindow = 32;
inline constexpr uint64_t kWindowStep = 0x9E3779B97F4A7C15, kTermStep = 0xD1B54A32D192ED03;

// Words of `terms` steps, from `step` on, of the columns with these keys.
template <typename Each>
TD_INLINE void column_words(const uint64_t* keys, uint64_t step, int64_t terms, Each each) {
  const Words key = load<Words>(keys);
  for (int64_t k = 0; k < terms; ++k) each(k, mix(key + (step + k + 1) * kTermStep));
}
TD_INLINE Words window_words(const uint64_t* columns, uint64_t row, uint64_t step) {
  return mix(load<Words>(columns) + (row + step / kWindow * kWindowStep));
}

// ---- tiles ----

inline constexpr int kTileRows = 8;

// Terms of one vector of columns, and their random words. words, products: of stochastic sums and
// products, below 2^29. present: all ones, or 0.
template <typename T, typename Word>
struct InstructionPanel {
  int64_t terms;
  uint64_t step; // the first term's index, a multiple of kWindow
  const T* b; // [terms, width], and so all that follow
  const Word *words, *products, *present;
  const uint64_t* columns; // keys, [width]
};

inline constexpr int kCut = 29; // digits
inline constexpr uint64_t kCutMask = (uint64_t{1} << kCut) - 1;

// Cuts one number of any magnitude to float32, stochastically.
inline double cut_number(double x, uint64_t random) {
  const double magnitude = std::fabs(x);
  if (!(magnitude <= 0x1p1000)) return x; // infinite or NaN
  double cut;
  if (magnitude < 0x1p-126) {
    const double units = magnitude * 0x1p149;
    cut = std::floor(units + static_cast<double>(random) * 0x1p-29) * 0x1p-149;
  } else {
    cut = as<double>((as<uint64_t>(magnitude) + random) & ~kCutMask);
  }
  return std::copysign(cut >= 0x1p128 ? HUGE_VAL : cut, x);
}

// careful: numbers may lie outside float32's normal range.
template <bool careful>
TD_INLINE Doubles cut(Doubles x, Words random) {
  Doubles result = as<Doubles>((as<Words>(x) + random) & ~kCutMask);
  if constexpr (careful) {
    constexpr int64_t smallest = int64_t{1023 - 126} << 52,
                      largest = (int64_t{1023 + 127} << 52) + ((int64_t{1} << 52) - (1 << kCut));
    const Signed a = as<Signed>(x) & INT64_MAX;
    const Signed unusual = ((a > 0) & (a < smallest)) | (a > largest);
    int64_t any = 0;
    for (int i = 0; i < kWide; ++i) any |= unusual[i];
    if (any)
      for (int i = 0; i < kWide; ++i) result[i] = cut_number(x[i], random[i]);
  }
  return result;
}

template <typename V, typename Mask>
TD_INLINE V where(Mask mask, V yes, V no) {
  return as<V>((as<Mask>(yes) & mask) | (as<Mask>(no) & ~mask));
}

// Stochastic rounding.
struct Cut {
  using T = double;
  using Word = uint64_t;
  static constexpr int width = kWide;

  // a: [terms, kTileRows]; the first `rows` of them count. sums: [rows, width].
  template <int rows, bool apart, bool careful, bool masked>
  __attribute__((noinline)) static void tile(const InstructionPanel<T, Word>& p, const T* a,
                                             const uint64_t* row_keys, T* sums) {
    Doubles acc[rows];
    Words own[rows], own_product[rows];
    for (int r = 0; r < rows; ++r) acc[r] = load<Doubles>(sums + r * width);
    for (int64_t begin = 0; begin < p.terms; begin += kWindow) {
      for (int r = 0; r < rows; ++r) {
        const Words word = window_words(p.columns, row_keys[r], p.step + begin);
        own[r] = word & kCutMask;
        if (apart) own_product[r] = word >> (64 - kCut);
      }
      const int64_t end = p.terms - begin < kWindow ? p.terms : begin + kWindow;
      for (int64_t k = begin; k < end; ++k) {
        const Doubles b = load<Doubles>(p.b + k * width);
        const Words word = load<Words>(p.words + k * width);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const Doubles factor = broadcast(a[k * kTileRows + r]);
          Doubles sum;
          if constexpr (apart) {
            const Words random = load<Words>(p.products + k * width) ^ own_product[r];
            sum = acc[r] + cut<careful>(factor * b, random);
          } else {
            sum = multiply_add(factor, b, acc[r]);
          }
          sum = cut<careful>(sum, word ^ own[r]);
          acc[r] = masked ? where(load<Words>(p.present + k * width), sum, acc[r]) : sum;
        }
      }
    }
    for (int r = 0; r < rows; ++r) store(sums + r * width, acc[r]);
  }
};

// To nearest, then one code up or down. careful: numbers may be infinite or NaN.
template <bool careful>
TD_INLINE Floats move(Floats x, Halves coins) {
  const Halves u = as<Halves>(x);
  const SignedHalves step = (as<SignedHalves>(coins) >> 31) | 1;
  SignedHalves moves = x != 0.0f;
  if constexpr (careful) moves &= as<SignedHalves>(u & 0x7FFFFFFF) < 0x7F800000;
  return as<Floats>(u + as<Halves>(step & moves));
}

// Bits of 64-bit words, from a place on.
TD_INLINE Halves narrow(const uint64_t* words, int from) {
  Halves halves{};
  for (int i = 0; i < 2 * kWide; ++i) halves[i] = static_cast<uint32_t>(words[i] >> from);
  return halves;
}

struct Move {
  using T = float;
  using Word = uint32_t;
  static constexpr int width = 2 * kWide;

  template <int rows, bool apart, bool careful, bool masked>
  __attribute__((noinline)) static void tile(const InstructionPanel<T, Word>& p, const T* a,
                                             const uint64_t* row_keys, T* sums) {
    Floats acc[rows];
    Halves own[rows], own_product[rows];
    for (int r = 0; r < rows; ++r) acc[r] = load<Floats>(sums + r * width);
    for (int64_t begin = 0; begin < p.terms; begin += kWindow) {
      for (int r = 0; r < rows; ++r) {
        uint64_t words[width];
        for (int i = 0; i < width; i += kWide)
          store(words + i, window_words(p.columns + i, row_keys[r], p.step + begin));
        own[r] = narrow(words, 0);
        if (apart) own_product[r] = narrow(words, 32);
      }
      const int64_t end = p.terms - begin < kWindow ? p.terms : begin + kWindow;
      for (int64_t k = begin; k < end; ++k) {
        const Floats b = load<Floats>(p.b + k * width);
        const int shift = static_cast<int>(k - begin);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const Floats factor = broadcast(a[k * kTileRows + r]);
          Floats sum;
          if constexpr (apart) sum = acc[r] + move<careful>(factor * b, own_product[r] << shift);
          else sum = multiply_add(factor, b, acc[r]);
          sum = move<careful>(sum, own[r] << shift);
          acc[r] = masked ? where(load<Halves>(p.present + k * width), sum, acc[r]) : sum;
        }
      }
    }
    for (int r = 0; r < rows; ++r) store(sums + r * width, acc[r]);
  }
};

} // namespace
} // namespace at::formats::CPU_CAPABILITY
