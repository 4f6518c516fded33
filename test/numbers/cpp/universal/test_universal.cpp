// Compares posits with the Universal library's: conversion, + - * / and the quire, for codes and
// for seeded random pairs. Built where CMake is given -DUNIVERSAL_INCLUDE_DIR=<its include/sw>; the
// library (MIT licence) is not part of this project.
#include <universal/number/posit/posit.hpp>

#include <c10/formats/arithmetic/OddArithmetic.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/sums/ExactSum.h>

#include <cstdio>
#include <random>
#include <vector>

namespace f = c10::formats;

static long wrong = 0;

template <unsigned bits, unsigned es>
struct Check {
  using Posit = sw::universal::posit<bits, es>;
  f::Format format = f::posit_format(bits, es);
  std::mt19937_64 random{bits * 10 + es};

  double value(uint64_t code) const { return f::to_double(f::decode(format, code)); }
  static Posit posit(uint64_t code) {
    Posit p;
    p.setbits(code);
    return p;
  }
  uint64_t code(const Posit& p) const {
    return static_cast<uint64_t>(p.bits()) & format.code_mask();
  }

  void see(const char* what, uint64_t ours, uint64_t theirs, uint64_t a, uint64_t b) {
    if (ours == theirs) return;
    if (wrong++ < 20) {
      std::printf("posit<%u,%u> %s of %llx and %llx: %llx, Universal has %llx\n", bits, es, what,
                  (unsigned long long)a, (unsigned long long)b, (unsigned long long)ours,
                  (unsigned long long)theirs);
    }
  }
  uint64_t encode(double x) const { return f::encode(format, f::unpack(x)); }

  void pair(uint64_t a, uint64_t b) {
    const double x = value(a), y = value(b);
    const Posit p = posit(a), q = posit(b);
    see("+", encode(f::add_odd(x, y)), code(p + q), a, b);
    see("-", encode(f::add_odd(x, -y)), code(p - q), a, b);
    see("*", encode(f::multiply_odd(x, y)), code(p * q), a, b);
    if (y != 0) see("/", encode(f::divide_odd(x, y)), code(p / q), a, b);
  }

  void dots(int count, int length) {
    for (int i = 0; i < count; ++i) {
      std::vector<Posit> x, y;
      f::ExactSum sum(format);
      for (int j = 0; j < length; ++j) {
        const uint64_t a = random() & format.code_mask(), b = random() & format.code_mask();
        if (a == format.nan_code() || b == format.nan_code()) continue;
        x.push_back(posit(a));
        y.push_back(posit(b));
        sum.add(f::term_of(format, value(a)), f::term_of(format, value(b)));
      }
      see("dot product", f::encode(format, sum.value()), code(fdp(x, y)), i, length);
    }
  }

  void run(bool all, int pairs) {
    for (int i = 0; i < 200000; ++i) { // doubles of all exponents in the range
      const double x =
          std::ldexp(1 + (random() >> 12) * 0x1p-52,
                     int(random() % (2 * format.max_exponent() + 8)) - format.max_exponent() - 4);
      see("conversion", encode(i % 2 ? x : -x), code(Posit(i % 2 ? x : -x)), f::double_bits(x), 0);
    }
    const uint64_t codes = format.code_mask() + 1;
    for (uint64_t a = 0; all && a < codes; ++a) {
      for (uint64_t b = 0; b < codes; ++b) {
        if (a != format.nan_code() && b != format.nan_code()) pair(a, b);
      }
    }
    for (int i = 0; i < pairs; ++i) {
      const uint64_t a = random() & format.code_mask(),
                     b = i % 2 ? random() & format.code_mask()
                               : (a ^ (random() & 255)) & format.code_mask();
      if (a != format.nan_code() && b != format.nan_code()) pair(a, b);
    }
    dots(300, 50);
  }
};

int main() {
  Check<8, 0>().run(true, 0);
  Check<8, 1>().run(true, 0);
  Check<8, 2>().run(true, 0);
  Check<16, 1>().run(false, 300000);
  Check<16, 2>().run(false, 300000);
  Check<32, 2>().run(false, 300000);
  if (wrong) std::printf("%ld differ\n", wrong);
  return wrong != 0;
}
