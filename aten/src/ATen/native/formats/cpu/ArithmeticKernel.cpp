// Loops over the arithmetic that rounds to odd.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

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
  k.narrow_to_odd = &narrow;
}

} // namespace at::formats::CPU_CAPABILITY
