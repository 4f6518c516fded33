// Loops over the arithmetic that rounds to odd.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <c10/formats/ExactCodec.h>
#include <c10/formats/OddArithmetic.h>
#include <c10/formats/WideArithmetic.h>
#include <c10/formats/ZeroSums.h>

#include <cstring>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

template <typename T>
void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) {
  const auto each = [=](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  };
  switch (op) {
    case BinaryOp::Add: return each([](T x, T y) { return add_odd(x, y); });
    case BinaryOp::Sub: return each([](T x, T y) { return add_odd(x, -y); });
    case BinaryOp::Mul: return each([](T x, T y) { return multiply_odd(x, y); });
    case BinaryOp::Div: return each([](T x, T y) { return divide_odd(x, y); });
  }
}

template <typename T>
void ternary(TernaryOp op, const T* a, const T* b, const T* c, T s, T* out, int64_t n) {
  const auto each = [=](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i], c[i]);
  };
  switch (op) {
    case TernaryOp::Fma: return each([](T x, T y, T z) { return fma_odd(x, y, z); });
    case TernaryOp::Addcdiv: return each([s](T x, T y, T z) { return fma_odd(s, x / y, z); });
    case TernaryOp::Addcmul:
      if (s == 1) return each([](T x, T y, T z) { return fma_odd(x, y, z); });
      return each([s](T x, T y, T z) { return fma_odd(s, multiply_odd(x, y), z); });
    case TernaryOp::Lerp: return each([](T x, T y, T w) { return fma_odd(w, y - x, x); });
  }
}

template <typename T>
void square_roots(const T* a, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = sqrt_odd(a[i]);
}

void narrow(const double* a, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float s = static_cast<float>(a[i]);
    // Beyond float32's range what matters (which side of the narrower type's limits) is unchanged by the nearest rounding.
    const double missing = a[i] - static_cast<double>(s); // only its sign counts; as a float it could vanish
    out[i] = to_odd(s, static_cast<float>((missing > 0) - (missing < 0)));
  }
}

template <typename Each>
void wide(const Format& f, void* codes, int64_t n, const RandomWords& words, Each each) {
  char* out = static_cast<char*>(codes);
  const bool stochastic = is_stochastic(f.rounding);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t random = stochastic ? random_word(words.seed.number, words.first + i * words.step) : 0;
    const uint64_t code = encode(f, each(i), random); // little-endian: its low bytes come first
    std::memcpy(out + i * f.itemsize(), &code, f.itemsize());
  }
}

void binary_wide(const Format& f, BinaryOp op, const double* a, const double* b, void* codes, int64_t n, const RandomWords& words) {
  const bool signs = signs_zero_sums(f.rounding);
  const auto sum = [signs](double x, double y) {
    Unpacked u = add_wide(x, y);
    if (signs && u.cls == Class::Zero) u.negative = std::signbit(x) || std::signbit(y);
    return u;
  };
  switch (op) {
    case BinaryOp::Add: return wide(f, codes, n, words, [=](int64_t i) { return sum(a[i], b[i]); });
    case BinaryOp::Sub: return wide(f, codes, n, words, [=](int64_t i) { return sum(a[i], -b[i]); });
    case BinaryOp::Mul: return wide(f, codes, n, words, [=](int64_t i) { return multiply_wide(a[i], b[i]); });
    case BinaryOp::Div: return wide(f, codes, n, words, [=](int64_t i) { return divide_wide(a[i], b[i]); });
  }
}

void ternary_wide(const Format& f, TernaryOp op, const double* a, const double* b, const double* c, double s, void* codes, int64_t n,
                  const RandomWords& words) {
  using L = long double;
  const bool signs = signs_zero_sums(f.rounding);
  const auto each = [=](auto sum) {
    wide(f, codes, n, words, [=](int64_t i) {
      Unpacked u = sum(i);
      if (signs && u.cls == Class::Zero) u.negative = !terms_are_positive(op, a[i], b[i], c[i], s);
      return u;
    });
  };
  switch (op) {
    case TernaryOp::Fma: return each([=](int64_t i) { return fma_wide(a[i], b[i], c[i]); });
    case TernaryOp::Addcdiv: return each([=](int64_t i) { return fma_wide(s, L{a[i]} / b[i], c[i]); });
    case TernaryOp::Addcmul: return each([=](int64_t i) { return s == 1 ? fma_wide(a[i], b[i], c[i]) : fma_wide(s, L{a[i]} * b[i], c[i]); });
    case TernaryOp::Lerp: return each([=](int64_t i) { return fma_wide(c[i], L{b[i]} - a[i], a[i]); });
  }
}

void sqrt_wide_all(const Format& f, const double* a, void* codes, int64_t n, const RandomWords& words) {
  wide(f, codes, n, words, [=](int64_t i) { return sqrt_wide(a[i]); });
}

} // namespace

void fill_arithmetic(CpuKernels& k) {
  k.binary_float = &binary<float>;
  k.binary_double = &binary<double>;
  k.ternary_float = &ternary<float>;
  k.ternary_double = &ternary<double>;
  k.sqrt_float = &square_roots<float>;
  k.sqrt_double = &square_roots<double>;
  k.binary_wide = &binary_wide;
  k.ternary_wide = &ternary_wide;
  k.sqrt_wide = &sqrt_wide_all;
  k.narrow_to_odd = &narrow;
}

} // namespace at::formats::CPU_CAPABILITY
