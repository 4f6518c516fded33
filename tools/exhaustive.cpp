// Checks + - * / of the CPU's kernels for all pairs of codes of a posit or float format, or for
// seeded random pairs of a wide format:
//
//   exhaustive <posit: bits es | float: exponent bits, fraction bits> all|<pairs> <threads>
//
// The oracle shares no code with the kernels. It reads codes by their definition, bit by bit, as
// integers times powers of two. It tests whether the exact result lies between the two boundaries
// of the kernels' code (on a boundary: whether that code is even). Boundaries are the means of
// neighbours for floats, and the posits with one more bit for posits. tools/exhaustive.py builds
// and runs it.
#include <ATen/native/formats/cpu/Kernels.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

using Int = __int128;
using at::formats::BinaryOp;

// mantissa * 2^exponent
struct Real {
  Int mantissa;
  int exponent;
};

struct Spec {
  bool posit;
  int bits, exp_bits, man_bits;
};

int bit_length(Int x) {
  const auto high = static_cast<unsigned long long>(x >> 64),
             low = static_cast<unsigned long long>(x);
  if (high) return 128 - __builtin_clzll(high);
  return low ? 64 - __builtin_clzll(low) : 0;
}

// Returns -1, 0 or 1 for x less than, equal to or greater than y; both positive.
int compare_positive(Real x, Real y) {
  const int top_x = x.exponent + bit_length(x.mantissa),
            top_y = y.exponent + bit_length(y.mantissa);
  if (top_x != top_y) return top_x < top_y ? -1 : 1;
  if (x.exponent > y.exponent) x.mantissa <<= x.exponent - y.exponent;
  if (y.exponent > x.exponent) y.mantissa <<= y.exponent - x.exponent;
  return x.mantissa < y.mantissa ? -1 : x.mantissa > y.mantissa;
}

int compare(const Real& x, const Real& y) {
  const int sign_x = (x.mantissa > 0) - (x.mantissa < 0),
            sign_y = (y.mantissa > 0) - (y.mantissa < 0);
  if (sign_x != sign_y) return sign_x < sign_y ? -1 : 1;
  if (sign_x == 0) return 0;
  return sign_x > 0 ? compare_positive(x, y)
                    : compare_positive({-y.mantissa, y.exponent}, {-x.mantissa, x.exponent});
}

// Reads a nonnegative posit code of n bits from its first bit to its last.
Real read_posit(unsigned long long code, int n, int es) {
  if (code == 0) return {0, 0};
  int at = n - 2;
  const auto bit = [&](int i) { return i >= 0 ? static_cast<int>(code >> i & 1) : 0; };
  const int first = bit(at);
  int run = 0;
  for (; at >= 0 && bit(at) == first; --at) ++run;
  --at; // the bit that ends the run
  int exponent = (first ? run - 1 : -run) * (1 << es), x = 0;
  for (int i = 0; i < es; ++i) x = 2 * x + bit(at--);
  exponent += x;
  Int mantissa = 1;
  for (; at >= 0; --at) {
    mantissa = 2 * mantissa + bit(at);
    --exponent;
  }
  return {mantissa, exponent};
}

// Reads a nonnegative float code. The code after the largest is read as if the exponents went on.
Real read_float(unsigned long long code, const Spec& s) {
  const int bias = (1 << (s.exp_bits - 1)) - 1;
  const auto field = static_cast<int>(code >> s.man_bits);
  const Int fraction = static_cast<Int>(code & ((1ULL << s.man_bits) - 1));
  if (field == 0) return {fraction, 1 - bias - s.man_bits};
  return {fraction + (Int{1} << s.man_bits), field - bias - s.man_bits};
}

struct Oracle {
  Spec spec;
  unsigned long long sign, largest;
  std::vector<Real> values, boundaries; // by code, for narrow formats

  explicit Oracle(const Spec& s)
      : spec(s),
        sign(1ULL << (s.bits - 1)),
        largest(s.posit ? sign - 1 : (((1ULL << s.exp_bits) - 1) << s.man_bits) - 1) {
    if (s.bits > 16) return;
    for (unsigned long long code = 0; code < 2 * sign; ++code) values.push_back(read_value(code));
    for (unsigned long long code = 0; code < largest + 1; ++code)
      boundaries.push_back(read_boundary(code));
  }

  Real value(unsigned long long code) const {
    return values.empty() ? read_value(code) : values[code];
  }
  // Returns the boundary between magnitude codes k and k + 1.
  Real boundary(unsigned long long k) const {
    return boundaries.empty() ? read_boundary(k) : boundaries[k];
  }

  Real read_value(unsigned long long code) const {
    const bool negative = code & sign;
    if (spec.posit && negative) code = (0 - code) & (2 * sign - 1);
    Real r = spec.posit ? read_posit(code & (sign - 1), spec.bits, spec.exp_bits)
                        : read_float(code & (sign - 1), spec);
    if (negative) r.mantissa = -r.mantissa;
    return r;
  }
  bool is_nan(unsigned long long code) const {
    return spec.posit ? code == sign : (code & (sign - 1)) > largest + 1;
  }
  bool is_infinite(unsigned long long code) const {
    return !spec.posit && (code & (sign - 1)) == largest + 1;
  }

  Real read_boundary(unsigned long long k) const {
    if (spec.posit) return read_posit(2 * k + 1, spec.bits + 1, spec.exp_bits);
    Real low = read_float(k, spec);
    const Real high = read_float(k + 1, spec);
    low.mantissa <<= 1;
    --low.exponent;
    const int shift = high.exponent - 1 - low.exponent;
    return {(low.mantissa + (high.mantissa << (1 + shift))) / 2, low.exponent};
  }

  // Returns whether the exact result fits magnitude code k. `compare_with(c)` is the sign of |exact
  // result| - c.
  template <typename CompareWith>
  bool fits(unsigned long long k, CompareWith compare_with) const {
    const bool even = k % 2 == 0;
    if (spec.posit) {
      if (k == 0) return false; // a nonzero result never becomes 0
      if (k > 1) {
        const int c = compare_with(boundary(k - 1));
        if (c < 0 || (c == 0 && !even)) return false;
      }
      if (k == largest) return true;
      const int c = compare_with(boundary(k));
      return c < 0 || (c == 0 && even);
    }
    if (k > 0) {
      const int c = compare_with(boundary(k - 1));
      if (c < 0 || (c == 0 && !even)) return false;
    }
    if (k > largest) return true;
    const int c = compare_with(boundary(k));
    return c < 0 || (c == 0 && even);
  }

  bool right(BinaryOp op, unsigned long long a, unsigned long long b,
             unsigned long long actual) const {
    const bool special = is_nan(a) || is_nan(b) || is_infinite(a) || is_infinite(b);
    const Real y = special ? Real{0, 0} : value(b);
    if (special || (op == BinaryOp::Div && y.mantissa == 0)) return right_special(op, a, b, actual);
    Real x = value(a), z = y;
    if (op == BinaryOp::Sub) z.mantissa = -z.mantissa;
    // The exact result's sign, and the comparison of its magnitude with c.
    if (is_nan(actual)) return false;
    const unsigned long long k =
        spec.posit && (actual & sign) ? (0 - actual) & (2 * sign - 1) : actual & (sign - 1);
    const bool negative = actual & sign;
    if (op == BinaryOp::Add || op == BinaryOp::Sub) return right_sum(x, z, k, negative);
    const bool zero = x.mantissa == 0 || (op == BinaryOp::Mul && y.mantissa == 0);
    // A float zero's sign is in its code only.
    const bool expected = spec.posit ? (x.mantissa < 0) != (y.mantissa < 0) : ((a ^ b) & sign) != 0;
    if (zero) return k == 0 && (spec.posit || negative == expected);
    if (negative != expected) return false;
    x.mantissa = x.mantissa < 0 ? -x.mantissa : x.mantissa;
    z.mantissa = z.mantissa < 0 ? -z.mantissa : z.mantissa;
    if (op == BinaryOp::Mul) {
      const Real product{x.mantissa * z.mantissa, x.exponent + z.exponent};
      return fits(k, [&](const Real& c) { return compare(product, c); });
    }
    return fits(k, [&](const Real& c) {
      return compare(x, Real{c.mantissa * z.mantissa, c.exponent + z.exponent});
    });
  }

  bool right_sum(const Real& x, const Real& z, unsigned long long k, bool negative) const {
    // If the operands are far apart, the smaller one only breaks ties. It is moved near, where it
    // is still less than any boundary's last place.
    Real big = x, small = z;
    if (compare_magnitude(x, z) < 0) std::swap(big, small);
    if (small.mantissa != 0 && big.exponent - small.exponent > 80)
      small = {small.mantissa < 0 ? -1 : 1, big.exponent - 80};
    int low = big.exponent;
    if (small.mantissa != 0 && small.exponent < low) low = small.exponent;
    Int sum = big.mantissa << (big.exponent - low);
    if (small.mantissa != 0) sum += small.mantissa << (small.exponent - low);
    if (sum == 0) return k == 0 && (spec.posit || zero_sign_fits(x, z, negative));
    if ((sum < 0) != negative) return false;
    const Real magnitude{sum < 0 ? -sum : sum, low};
    return fits(k, [&](const Real& c) { return compare(magnitude, c); });
  }

  // -0 is only the sum of two -0, which a Real cannot tell from 0. So both signs pass where both
  // operands are 0.
  static bool zero_sign_fits(const Real& x, const Real& z, bool negative) {
    return (x.mantissa == 0 && z.mantissa == 0) || !negative;
  }

  static int compare_magnitude(Real x, Real y) {
    x.mantissa = x.mantissa < 0 ? -x.mantissa : x.mantissa;
    y.mantissa = y.mantissa < 0 ? -y.mantissa : y.mantissa;
    return compare(x, y);
  }

  double as_double(unsigned long long code) const {
    if (is_nan(code)) return __builtin_nan("");
    const double sign_of = code & sign ? -1 : 1;
    if (is_infinite(code)) return sign_of * __builtin_inf();
    const Real r = value(code);
    if (r.mantissa == 0) return spec.posit ? 0.0 : sign_of * 0.0;
    return __builtin_ldexp(static_cast<double>(r.mantissa), r.exponent);
  }

  // Checks NaN, infinities and division by zero against IEEE arithmetic on doubles.
  bool right_special(BinaryOp op, unsigned long long a, unsigned long long b,
                     unsigned long long actual) const {
    const double x = as_double(a), y = as_double(b);
    double r = x / y;
    if (op == BinaryOp::Add) r = x + y;
    if (op == BinaryOp::Sub) r = x - y;
    if (op == BinaryOp::Mul) r = x * y;
    if (spec.posit || r != r) return is_nan(actual);
    return as_double(actual) == r && (actual & sign) == (__builtin_signbit(r) ? sign : 0);
  }
};

constexpr int kBatch = 512;

// Runs one batch of pairs through the kernels, as the elementwise engine does.
struct Batch {
  std::vector<char> codes_a, codes_b, codes_out;
  unsigned long long a[kBatch], b[kBatch];
  float fa[kBatch], fb[kBatch], fr[kBatch];
  double da[kBatch], db[kBatch], dr[kBatch];

  Batch() : codes_a(8 * kBatch), codes_b(8 * kBatch), codes_out(8 * kBatch) {}

  long check(const Oracle& oracle, const at::formats::Format& f, BinaryOp op, int n) {
    const auto& k = at::formats::cpu_kernels();
    const int width = f.itemsize();
    for (int i = 0; i < n; ++i) {
      std::memcpy(&codes_a[i * width], &a[i], width);
      std::memcpy(&codes_b[i * width], &b[i], width);
    }
    if (f.arithmetic_in_float()) {
      k.decode(f, codes_a.data(), fa, n);
      k.decode(f, codes_b.data(), fb, n);
      k.binary(op, fa, fb, fr, n);
      k.encode(f, fr, codes_out.data(), n, {});
    } else {
      k.decode(f, codes_a.data(), da, n);
      k.decode(f, codes_b.data(), db, n);
      k.binary(op, da, db, dr, n);
      k.encode(f, dr, codes_out.data(), n, {});
    }
    long wrong = 0;
    for (int i = 0; i < n; ++i) {
      unsigned long long actual = 0;
      std::memcpy(&actual, &codes_out[i * width], width);
      if (!oracle.right(op, a[i], b[i], actual) && wrong++ < 3) {
        std::fprintf(stderr, "wrong: op %d of %#llx and %#llx gave %#llx\n", int(op), a[i], b[i],
                     actual);
      }
    }
    return wrong;
  }
};

} // namespace

int main(int argc, char** argv) {
  if (argc != 6)
    return std::fprintf(stderr,
                        "expected: posit|float <bits|exponent bits> <es|fraction bits> all|<pairs> "
                        "<threads>\n"),
           2;
  const bool posit = std::strcmp(argv[1], "posit") == 0;
  const int first = std::atoi(argv[2]), second = std::atoi(argv[3]), threads = std::atoi(argv[5]);
  const Spec spec =
      posit ? Spec{true, first, second, 0} : Spec{false, 1 + first + second, first, second};
  const auto format =
      posit ? c10::formats::posit_format(first, second) : c10::formats::float_format(first, second);
  const bool all = std::strcmp(argv[4], "all") == 0;
  const unsigned long long codes = 1ULL << spec.bits,
                           pairs = all ? codes * codes : std::strtoull(argv[4], nullptr, 10);
  const Oracle oracle(spec);
  std::atomic<unsigned long long> next{0}, done{0};
  std::atomic<long> wrong{0};
  constexpr unsigned long long kTask = 1 << 20;
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      auto batch = std::make_unique<Batch>();
      for (unsigned long long task; (task = next.fetch_add(kTask)) < pairs;) {
        std::mt19937_64 random(task);
        for (unsigned long long at = task; at < task + kTask && at < pairs; at += kBatch) {
          const int n = static_cast<int>(pairs - at < kBatch ? pairs - at : kBatch);
          for (int i = 0; i < n; ++i) {
            const unsigned long long r = all ? at + i : random();
            batch->a[i] = all ? r / codes : r & (codes - 1);
            batch->b[i] = all ? r % codes : r >> (64 - spec.bits);
            // Every other random pair is close in exponent, where cancellation and ties occur.
            if (!all && i % 2)
              batch->b[i] =
                  (batch->a[i] ^ (random() & (codes - 1)) >> (random() % spec.bits)) & (codes - 1);
          }
          for (const BinaryOp op : {BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div})
            wrong += batch->check(oracle, format, op, n);
        }
        const unsigned long long so_far = done += kTask;
        std::printf("%llu\n", so_far < pairs ? so_far : pairs); // for the progress bar
        std::fflush(stdout);
      }
    });
  }
  for (auto& thread : pool) thread.join();
  std::printf("wrong %ld kernels %s\n", wrong.load(), at::formats::cpu_kernels().name);
  return wrong != 0;
}
