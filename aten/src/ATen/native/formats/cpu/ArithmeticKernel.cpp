// Loops over the arithmetic that rounds to odd.
#include <ATen/native/formats/cpu/CapabilityKernels.h>
#include <ATen/native/formats/cpu/ShortCodec.h>
#include <c10/formats/codec/AdditionRound.h>

#include <array>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

template <typename T>
void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) {
  with_operation(op, [=](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f.odd(a[i], b[i]);
  });
}

template <typename T>
void ternary(TernaryOp op, const T* a, const T* b, const T* c, T s, T* out, int64_t n) {
  with_operation(fuse_unscaled(op, s), [=](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f.odd(a[i], b[i], c[i], s);
  });
}

template <typename T>
void unary(UnaryOp op, const T* a, T* out, int64_t n) {
  with_operation(op, [=](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f.odd(a[i]);
  });
}

// Whether float32's rounding of sums changes no result. For posits that takes a while to decide.
bool sums_in_float(const Format& f) {
  constexpr int kBits = 17, kEs = 8;
  if (!f.is_posit()) return FloatAdditionRounder::sums_in_float(f);
  if (f.bits >= kBits || f.es >= kEs) return false;
  static const auto known = [] {
    std::array<std::array<bool, kEs>, kBits> posits{};
    for (int bits = 3; bits < kBits; ++bits) {
      for (int es = 0; es < kEs; ++es)
        posits[bits][es] = PositAdditionRounder::sums_in_float(posit_format(bits, es));
    }
    return posits;
  }();
  return known[f.bits][f.es];
}

bool binary_to_codes(const Format& f, BinaryOp op, const float* a, const float* b, void* codes,
                     int64_t n) {
  switch (op) {
    case BinaryOp::Add: return sums_in_float(f) && encode_short(f, Sum(), a, b, codes, n);
    case BinaryOp::Sub: return sums_in_float(f) && encode_short(f, Difference(), a, b, codes, n);
    case BinaryOp::Mul: // exact
      return 2 * f.significand_bits() <= 24 && encode_short(f, Product(), a, b, codes, n);
    case BinaryOp::Div: break;
  }
  return false;
}

void narrow(const double* a, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float s = static_cast<float>(a[i]);
    // Beyond float32's range the nearest number is on the same side of the narrower type's limits,
    // which is all that counts. Of `missing` only the sign counts; as a float it could vanish.
    const double missing = a[i] - static_cast<double>(s);
    out[i] = to_odd(s, static_cast<float>((missing > 0) - (missing < 0)));
  }
}

} // namespace

void fill_arithmetic(CpuKernels& k) {
  k.on_float.binary = &binary<float>;
  k.on_double.binary = &binary<double>;
  k.on_float.ternary = &ternary<float>;
  k.on_double.ternary = &ternary<double>;
  k.on_float.unary = &unary<float>;
  k.on_double.unary = &unary<double>;
  k.binary_to_codes = &binary_to_codes;
  k.narrow_to_odd = &narrow;
}

} // namespace at::formats::CPU_CAPABILITY
