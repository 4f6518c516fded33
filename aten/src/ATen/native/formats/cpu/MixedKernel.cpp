// Loops over arithmetic of float32 values with one float64 number. Each says whether all results
// are decided; if not, none is of use.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>
#include <c10/formats/arithmetic/MixedArithmetic.h>

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
  const float* x = a ? a : b;
  switch (op) {
    case BinaryOp::Mul:
      return each_of_one(x, out, n, [s](float v) TD_INLINE_LAMBDA { return multiply_mixed(v, s); });
    case BinaryOp::Add:
      return each_of_one(x, out, n, [s](float v) TD_INLINE_LAMBDA { return add_mixed(v, s); });
    case BinaryOp::Sub:
      if (a)
        return each_of_one(x, out, n, [s](float v) TD_INLINE_LAMBDA { return add_mixed(v, -s); });
      return each_of_one(x, out, n, [s](float v) TD_INLINE_LAMBDA { return add_mixed(-v, s); });
    case BinaryOp::Div:
      if (a)
        return each_of_one(
            x, out, n, [s, r = 1 / s](float v) TD_INLINE_LAMBDA { return divide_mixed(v, s, r); });
      return each_of_one(x, out, n,
                         [s](float v) TD_INLINE_LAMBDA { return divide_number_mixed(s, v); });
  }
  return false;
}

bool ternary_mixed(TernaryOp op, const float* a, const float* b, const float* c, double s,
                   float* out, int64_t n) {
  switch (op) {
    case TernaryOp::Fma:
      return each_of_two(b, c, out, n,
                         [s](float x, float y) TD_INLINE_LAMBDA { return fma_mixed(s, x, y); });
    case TernaryOp::Lerp:
      return each_of_two(a, b, out, n,
                         [s](float x, float y) TD_INLINE_LAMBDA { return lerp_mixed(s, x, y); });
    case TernaryOp::Addcmul:
      return each_of_three(a, b, c, out, n, [s](float x, float y, float z) TD_INLINE_LAMBDA {
        return addcmul_mixed(s, x, y, z);
      });
    case TernaryOp::Addcdiv:
      return each_of_three(a, b, c, out, n, [s](float x, float y, float z) TD_INLINE_LAMBDA {
        return addcdiv_mixed(s, x, y, z);
      });
  }
  return false;
}

__attribute__((noinline)) void add_pair(const float* __restrict a, const double* __restrict table,
                                        const uint8_t* __restrict high,
                                        const uint8_t* __restrict low, float* __restrict out,
                                        int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = add_mixed(a[i], table[high[i] << 8 | low[i]]).value;
}

} // namespace

void fill_mixed(CpuKernels& k) {
  k.add_pair = &add_pair;
  k.binary_mixed = &binary_mixed;
  k.ternary_mixed = &ternary_mixed;
}

} // namespace at::formats::CPU_CAPABILITY
