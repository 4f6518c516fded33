// Loops over arithmetic, from operands to codes, for formats that float64 arithmetic rounded to odd
// does not serve in all of their range. They use float64's own operations where these give the
// result, else WideArithmetic.h.
#include <ATen/native/formats/cpu/CapabilityKernels.h>

#include <ATen/native/formats/cpu/RandomBlock.h>
#include <c10/formats/codec/Binary64.h>
#include <c10/formats/codec/ExactCodec.h>

#include <cstring>
#include <limits>

namespace at::formats::CPU_CAPABILITY {
namespace {

using namespace c10::formats;

// ---- one element after the other ----

template <typename Each>
void one_by_one(const Format& f, void* codes, int64_t n, const RandomWords& words, Each each) {
  char* out = static_cast<char*>(codes);
  const auto put = [&](int64_t i, uint64_t random) {
    Unpacked u = each(i);
    if (u.cls == Class::NaN) u.negative = false; // x86 gives the NaN of an invalid operation a sign
    // little-endian: the code's low bytes come first
    const uint64_t code = f.kind == Kind::Float ? encode_float(f, u, random) : encode(f, u, random);
    std::memcpy(out + i * f.itemsize(), &code, f.itemsize());
  };
  if (is_stochastic(f.rounding)) return with_random_words(words, n, put);
  for (int64_t i = 0; i < n; ++i) put(i, 0);
}

// ---- by float64's operations ----

// float64 itself, to nearest even: the processor has the operations.
bool is_machines_own(const Format& f) {
  return is_binary64(f) && f.rounding == Rounding::NearestEven;
}
template <typename Each>
void own_results(void* codes, int64_t n, Each each) {
  auto* __restrict out = static_cast<uint64_t*>(codes);
  for (int64_t i = 0; i < n; ++i) {
    const double result = each(i);
    out[i] = select(mask_less<double>(infinity_bits<double>(), magnitude_bits(result)),
                    kNanOfBinary64, bits_as<uint64_t>(result));
  }
}

// Whether results rounded to odd have all the digits that the format needs, provided they and their
// errors are far within float64's range. Wrapping and random rounding need more digits.
bool takes_odd(const Format& f) {
  return f.significand_bits() <= 51 && f.overflow != Overflow::Wrap && !is_stochastic(f.rounding);
}

// Whether each number is 0, infinite, NaN or from 2^-480 to 2^480. Then products, quotients and
// their errors are normal.
bool far_within(const double* x, int64_t n) {
  constexpr uint64_t least = uint64_t{1023 - 480} << 52, most = uint64_t{1023 + 480} << 52;
  uint64_t beyond = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t a = magnitude_bits(x[i]);
    const uint64_t within = ~(mask_less<double>(a, least) | mask_less<double>(most, a));
    beyond |= ~within & mask_nonzero<double>(a) & mask_less<double>(a, infinity_bits<double>());
  }
  return beyond == 0;
}

// An operation of three numbers without a float64 instruction.
template <typename Operation>
struct Formula {
  double s;
  Unpacked wide(double a, double b, double c) const { return Operation::wide(a, b, c, s); }
  bool both_positive(double a, double b, double c) const {
    return Operation::both_positive(a, b, c, s);
  }
};

// ---- the loops ----

constexpr int64_t kPiece = 256; // elements that take one path together

template <typename Op, typename... Operands>
Unpacked signed_exact(const Format& f, Op op, Operands... x) {
  Unpacked u = op.wide(x...);
  if constexpr (requires { op.both_positive(x...); }) {
    if (signs_zero_sums(f.rounding) && u.cls == Class::Zero) u.negative = !op.both_positive(x...);
  }
  return u;
}

template <typename Op, typename... Operands>
void by_odd_results(const Format& f, void* codes, int64_t n, const RandomWords& words, Op op,
                    const Operands*... x) {
  alignas(64) double results[kPiece];
  for (int64_t i = 0; i < n; ++i) results[i] = op.odd(x[i]...);
  if constexpr (requires { op.both_positive(x[0]...); }) {
    sign_zero_sums(f.rounding, results, n, [=](int64_t i) { return op.both_positive(x[i]...); });
  }
  // Drops the sign of NaN, as one_by_one does.
  for (int64_t i = 0; i < n; ++i)
    results[i] = results[i] != results[i] ? std::numeric_limits<double>::quiet_NaN() : results[i];
  encode_doubles(f, results, codes, n, words);
}

template <typename Op, typename... Operands>
void each(const Format& f, void* codes, int64_t n, const RandomWords& words, Op op,
          const Operands*... x) {
  if constexpr (requires { op.odd(x[0]...); }) {
    if (is_machines_own(f))
      return own_results(codes, n, [=](int64_t i) { return op.nearest(x[i]...); });
    if (takes_odd(f)) {
      for (int64_t first = 0; first < n; first += kPiece) {
        const int64_t m = n - first < kPiece ? n - first : kPiece;
        char* const to = static_cast<char*>(codes) + first * f.itemsize();
        const RandomWords rest{words.seed, words.first + first * words.step, words.step};
        if ((far_within(x + first, m) && ...)) by_odd_results(f, to, m, rest, op, x + first...);
        else
          one_by_one(f, to, m, rest,
                     [=, &f](int64_t i) { return signed_exact(f, op, x[first + i]...); });
      }
      return;
    }
  }
  one_by_one(f, codes, n, words, [=, &f](int64_t i) { return signed_exact(f, op, x[i]...); });
}

// ---- the kernels ----

void binary_wide(const Format& f, BinaryOp op, const double* a, const double* b, void* codes,
                 int64_t n, const RandomWords& words) {
  with_operation(op, [&](auto operation) { each(f, codes, n, words, operation, a, b); });
}

void ternary_wide(const Format& f, TernaryOp op, const double* a, const double* b, const double* c,
                  double s, void* codes, int64_t n, const RandomWords& words) {
  with_operation(fuse_unscaled(op, s), [&](auto operation) {
    if constexpr (requires { operation.nearest(*a, *b, *c); })
      each(f, codes, n, words, operation, a, b, c);
    else each(f, codes, n, words, Formula<decltype(operation)>{s}, a, b, c);
  });
}

void unary_wide(const Format& f, UnaryOp op, const double* a, void* codes, int64_t n,
                const RandomWords& words) {
  with_operation(op, [&](auto operation) { each(f, codes, n, words, operation, a); });
}

} // namespace

void fill_wide(CpuKernels& k) {
  k.binary_wide = &binary_wide;
  k.ternary_wide = &ternary_wide;
  k.unary_wide = &unary_wide;
}

} // namespace at::formats::CPU_CAPABILITY
