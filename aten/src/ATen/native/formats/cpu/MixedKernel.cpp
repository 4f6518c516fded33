// Loops over arithmetic of float32 values with one float64 number. Each returns whether all results
// are decided; if not, the results are undefined.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
#include <immintrin.h>
#endif

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

bool binary_mixed(BinaryOp op, const float* a, const float* b, double s, float* out, int64_t n) {
  return with_operation(op, [=](auto f) {
    if (!a)
      return each_of_one(b, out, n, [=](float x) TD_INLINE_LAMBDA { return f.mixed_first(s, x); });
    return each_of_one(a, out, n,
                       [=, r = 1 / s](float x) TD_INLINE_LAMBDA { return f.mixed(x, s, r); });
  });
}

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
// The processor rounds down or up as long as this object lives, and flushes nothing to 0.
class Directed {
 public:
  static constexpr unsigned down = 1U << 13, up = 1U << 14;

  explicit Directed(unsigned direction) : before_(_mm_getcsr()) {
    _mm_setcsr((before_ & ~kChanged) | direction);
  }
  ~Directed() { _mm_setcsr((_mm_getcsr() & ~kChanged) | (before_ & kChanged)); }
  Directed(const Directed&) = delete;
  Directed& operator=(const Directed&) = delete;

 private:
  static constexpr unsigned kChanged =
      down | up | 1U << 15 | 1U << 6; // also the flags for flushing
  unsigned before_;
};

// Not inlined, so that compilers move no operation out of the scope of Directed.
__attribute__((noinline)) void add_products(const double* __restrict x, const float* __restrict y,
                                            double number, float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(fused(number, x[i], static_cast<double>(y[i])));
}
__attribute__((noinline)) void add_products_to_odd(const double* __restrict x,
                                                   const float* __restrict y, double number,
                                                   const float* __restrict down,
                                                   float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = odd_of(down[i], static_cast<float>(fused(number, x[i], static_cast<double>(y[i]))));
}
template <typename Each>
__attribute__((noinline)) void factors(double* __restrict x, int64_t n, Each each) {
  for (int64_t i = 0; i < n; ++i) x[i] = each(i);
}

// Sums to odd from both neighbours in float32: rounded in one direction, float64's digits do not
// matter. Always decided.
bool ternary_mixed(TernaryOp op, const float* a, const float* b, const float* c, double s,
                   float* out, int64_t n) {
  constexpr int64_t block = 1024;
  alignas(64) double x[block];
  alignas(64) float down[block];
  with_operation(op, [=, &x, &down](auto f) {
    constexpr bool number_is_a = f.kNumber == operations::Place::A,
                   number_is_c = f.kNumber == operations::Place::C;
    for (int64_t done = 0; done < n; done += block) {
      const int64_t m = n - done < block ? n - done : block;
      factors(x, m, [=](int64_t i) TD_INLINE_LAMBDA {
        return f.mixed(s, number_is_a ? 0 : a[done + i], b[done + i], number_is_c ? 0 : c[done + i],
                       Factor());
      });
      const float* y = (number_is_c ? a : c) + done;
      {
        const Directed direction(Directed::down);
        add_products(x, y, s, down, m);
      }
      {
        const Directed direction(Directed::up);
        add_products_to_odd(x, y, s, down, out + done, m);
      }
    }
  });
  return true;
}
#else
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

bool ternary_mixed(TernaryOp op, const float* a, const float* b, const float* c, double s,
                   float* out, int64_t n) {
  return with_operation(op, [=](auto f) {
    if constexpr (f.kNumber == operations::Place::A)
      return each_of_two(b, c, out, n,
                         [=](float y, float z) TD_INLINE_LAMBDA { return f.mixed(s, 0, y, z); });
    else if constexpr (f.kNumber == operations::Place::C)
      return each_of_two(a, b, out, n,
                         [=](float x, float y) TD_INLINE_LAMBDA { return f.mixed(s, x, y, 0); });
    else
      return each_of_three(a, b, c, out, n, [=](float x, float y, float z) TD_INLINE_LAMBDA {
        return f.mixed(s, x, y, z);
      });
  });
}
#endif

} // namespace

void fill_mixed(CpuKernels& k) {
  k.binary_mixed = &binary_mixed;
  k.ternary_mixed = &ternary_mixed;
}

} // namespace at::formats::CPU_CAPABILITY
