// + - * / of float32 numbers with random rounding to float32, in one pass from operands to results.
// The bits are those of decoding, arithmetic rounded to odd and encoding in turn.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/Loops.h>
#include <ATen/native/formats/cpu/RandomBlock.h>
#include <c10/formats/codec/ExactCodec.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

// An operand's elements, or one number instead.
struct Elements {
  const float* data;
  TD_INLINE float operator[](int64_t i) const { return data[i]; }
  Elements from(int64_t i) const { return {data + i}; }
};
struct Number {
  float value;
  TD_INLINE float operator[](int64_t) const { return value; }
  Number from(int64_t) const { return *this; }
};

// Rounds in lanes of 32 bits, if the operation has its result's parts. Returns whether any element
// is undecided.
template <typename Op, typename A, typename B>
__attribute__((noinline)) bool round_parts(A a, B b, const uint32_t* __restrict random,
                                           uint32_t* __restrict out, int64_t n, Op op) {
  uint32_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const MaybeCode<float> r = rounded_binary32(op.parts(a[i], b[i]), random[i]);
    out[i] = r.code;
    undecided |= r.undecided;
  }
  return undecided != 0;
}

// The result rounded to odd in float64; results of float32 numbers stay within its range.
template <typename Op>
TD_INLINE double odd_of_floats(Op op, double x, double y) {
  if constexpr (requires { op.odd_of_floats(x, y); }) return op.odd_of_floats(x, y);
  else return op.odd(x, y);
}

// Rounds by way of float64.
template <typename Op, typename A, typename B>
__attribute__((noinline)) bool round_stochastically(A a, B b, const uint32_t* __restrict random,
                                                    uint32_t* __restrict out, int64_t n, Op op) {
  uint64_t undecided = 0;
  for (int64_t i = 0; i < n; ++i) {
    const MaybeCode<double> r =
        Binary32StochasticEncoder()(odd_of_floats(op, a[i], b[i]), random[i]);
    out[i] = static_cast<uint32_t>(r.code);
    undecided |= r.undecided;
  }
  return undecided != 0;
}

template <typename Op, typename A, typename B>
__attribute__((noinline)) void move_results(A a, B b, const uint32_t* __restrict random,
                                            uint32_t* __restrict out, int64_t n, Op op) {
  for (int64_t i = 0; i < n; ++i) out[i] = moved_binary32(op.nearest(a[i], b[i]), random[i]);
}

template <typename Op, typename A, typename B>
void perturb(const Format& f, A a, B b, uint32_t* codes, int64_t n, const RandomWords& words,
             Op op) {
  RandomBlock high;
  uint32_t results[kRandomBlock]; // codes may be an operand, which undecided elements read again
  for (int64_t done = 0; done < n; done += kRandomBlock) {
    const int64_t m = n - done < kRandomBlock ? n - done : kRandomBlock;
    const uint32_t* h = high.fill(words, done, m, 0);
    const A x = a.from(done);
    const B y = b.from(done);
    if (f.rounding == Rounding::UpDown) {
      move_results(x, y, h, results, m, op);
      __builtin_memcpy(codes + done, results, m * sizeof(uint32_t));
      continue;
    }
    if constexpr (requires { op.parts(1.0f, 1.0f); }) {
      if (!round_parts(x, y, h, results, m, op)) {
        __builtin_memcpy(codes + done, results, m * sizeof(uint32_t));
        continue;
      }
    }
    if (round_stochastically(x, y, h, results, m, op)) {
      for (int64_t i = 0; i < m; ++i) {
        const double result = odd_of_floats(op, x[i], y[i]);
        if (Binary32StochasticEncoder()(result, h[i]).undecided == 0) continue;
        const uint64_t word = random_word(words.seed.number, words.first + (done + i) * words.step);
        results[i] = static_cast<uint32_t>(encode(f, unpack(result), word));
      }
    }
    __builtin_memcpy(codes + done, results, m * sizeof(uint32_t));
  }
}

void binary_binary32(const Format& f, BinaryOp op, const float* a, const float* b, float number,
                     uint32_t* codes, int64_t n, const RandomWords& words) {
  with_operation(op, [&](auto operation) {
    if (!a) return perturb(f, Number{number}, Elements{b}, codes, n, words, operation);
    if (!b) return perturb(f, Elements{a}, Number{number}, codes, n, words, operation);
    return perturb(f, Elements{a}, Elements{b}, codes, n, words, operation);
  });
}

} // namespace

void fill_binary32(CpuKernels& k) {
  k.binary_binary32 = &binary_binary32;
}

} // namespace at::formats::CPU_CAPABILITY
