// Loops over arithmetic of float32 values with one float64 number. Each returns whether all results
// are decided; if not, the results are undefined.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

template <typename Each>
__attribute__((noinline)) bool each_of_one(const float* __restrict x, float* __restrict out,
                                           int64_t n, Each each) {
  uint32_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const MixedResult r = each(x[i]);
    out[i] = r.value;
    undecided |= r.undecided;
  }
  return undecided == 0;
}
template <typename Each>
__attribute__((noinline)) bool each_of_two(const float* __restrict x, const float* __restrict y,
                                           float* __restrict out, int64_t n, Each each) {
  uint32_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const MixedResult r = each(x[i], y[i]);
    out[i] = r.value;
    undecided |= r.undecided;
  }
  return undecided == 0;
}
template <typename Each>
__attribute__((noinline)) bool each_of_three(const float* __restrict x, const float* __restrict y,
                                             const float* __restrict z, float* __restrict out,
                                             int64_t n, Each each) {
  uint32_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const MixedResult r = each(x[i], y[i], z[i]);
    out[i] = r.value;
    undecided |= r.undecided;
  }
  return undecided == 0;
}

bool binary_mixed(BinaryOp op, const float* a, const float* b, double s, float* out, int64_t n) {
  return with_operation(op, [=](auto f) {
    if (!a)
      return each_of_one(b, out, n, [=](float x) TD_INLINE_LAMBDA { return f.mixed_first(s, x); });
    return each_of_one(a, out, n,
                       [=, r = 1 / s](float x) TD_INLINE_LAMBDA { return f.mixed(x, s, r); });
  });
}

template <typename Operation, typename Sum>
bool ternary_by(Operation f, Sum sum, const float* a, const float* b, const float* c, double s,
                float* out, int64_t n) {
  if constexpr (f.kNumber == operations::Place::A)
    return each_of_two(b, c, out, n,
                       [=](float y, float z) TD_INLINE_LAMBDA { return f.mixed(s, 0, y, z, sum); });
  else if constexpr (f.kNumber == operations::Place::C)
    return each_of_two(a, b, out, n,
                       [=](float x, float y) TD_INLINE_LAMBDA { return f.mixed(s, x, y, 0, sum); });
  else
    return each_of_three(a, b, c, out, n, [=](float x, float y, float z) TD_INLINE_LAMBDA {
      return f.mixed(s, x, y, z, sum);
    });
}

// A few elements tell how likely it is that all are decided. With 0.1 and its like, one in twelve
// is not: the products with multiples of 5 are short.
bool ternary_mixed(TernaryOp op, const float* a, const float* b, const float* c, double s,
                   float* out, int64_t n) {
  constexpr int64_t sample = 64;
  return with_operation(op, [=](auto f) {
    const auto likely = [=](int64_t m) {
      return ternary_by(f, LikelyFusedSum(), a, b, c, s, out, m);
    };
    return (likely(n < sample ? n : sample) && (n <= sample || likely(n))) ||
        ternary_by(f, FusedSum(), a, b, c, s, out, n);
  });
}

} // namespace

void fill_mixed(CpuKernels& k) {
  k.binary_mixed = &binary_mixed;
  k.ternary_mixed = &ternary_mixed;
}

} // namespace at::formats::CPU_CAPABILITY
