"""Breaks the number layer in one place at a time and shows that the oracle of test/ notices.

    python tools/mutate.py [words of a mutation's name]

Copies c10/ to a temporary folder, compiles a check that needs no PyTorch against it (g++, or what CXX names), and feeds it inputs with
the codes that test/support/oracle.py expects. The unbroken layer must pass and every broken one fail; the exit status is 1 otherwise.
"""

import sys
from fractions import Fraction
from math import isqrt
from pathlib import Path

import mutating
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "support"))
import oracle  # noqa: E402
import oracle_stochastic  # noqa: E402
import tapered_cases  # noqa: E402
from oracle import binary, posit  # noqa: E402

EXACT, ROUND, ODD = "formats/ExactCodec.h", "formats/RoundBits.h", "formats/OddArithmetic.h"
ENCODE, DECODE, STOCHASTIC = "formats/FastEncode.h", "formats/FastDecode.h", "formats/FastStochastic.h"
ORDINARY, ROUNDER, MIXED = "formats/FastOrdinary.h", "formats/FastRound.h", "formats/MixedArithmetic.h"
MACHINE, TAKUM = "formats/MachineBits.h", "formats/Takum.h"
MUTATIONS = [  # what, file, old text, new text
    ("tie to odd", ROUND, "half && (rest || odd)", "half && (rest || !odd)"),
    ("sticky bit dropped", EXACT, "sticky || lost};", "sticky};"),
    ("rest dropped", ROUND, "(fraction << 1) != 0 || sticky", "sticky"),
    ("regime off by one", EXACT, "const int run = k >= 0 ? k + 1 : -k;", "const int run = k >= 0 ? k + 1 : 1 - k;"),
    ("regime off by one in decoding", EXACT, "ones ? run - 1 : -run", "ones ? run - 1 : 1 - run"),
    ("small posit to zero", EXACT, "if (code == 0 && !to_zero) code = 1;", ""),
    ("small posit to the second smallest", EXACT, "} else {\n    code = 1;", "} else {\n    code = 2;"),
    ("saturated to NaR", EXACT, "= f.max_code();\n  } else if", "= f.nan_code();\n  } else if"),
    ("infinity NaR where posits saturate", EXACT, "u.cls == Class::Infinite && f.infinity_is_nan()", "u.cls == Class::Infinite"),
    ("infinity saturated without its sign", EXACT, "return u.negative ? (0 - f.max_code()) & f.code_mask() : f.max_code();", "return f.max_code();"),
    ("overflow one code late", EXACT, "if (code > f.max_code()) return beyond;", "if (code > f.max_code() + 1) return beyond;"),
    ("subnormal shift", EXACT, "63 - f.man_bits + (e - u.exponent)", "63 - f.man_bits + (e - u.exponent) / 2"),
    ("carry lost", EXACT, "code = base + rounded(", "code = base | rounded("),
    ("sign of zero", EXACT, "magnitude == 0 && f.unsigned_zero() ? 0", "magnitude == 0 ? 0"),
    ("NaN code", "formats/NumberFormat.h", "max_code() + 1 + (uint64_t{1} << (man_bits - 1))", "max_code() + 2"),
    ("to odd the other way", ROUND, "!odd && (half || rest)", "odd && (half || rest)"),
    ("up for negatives", ROUND, "return !negative && (half || rest)", "return negative && (half || rest)"),
    ("stops at the largest when rounding up", ROUND, "case Rounding::Up: return negative;", "case Rounding::Up: return !negative;"),
    ("flush at a half", EXACT, "exponent - u.exponent + 63", "exponent - u.exponent + 64"),
    ("takum: length of the characteristic", TAKUM, "c >= 0 ? c + 1 : -c", "c >= 0 ? c + 1 : 1 - c"),
    ("takum: characteristic below 0", TAKUM, "c - 1 + (2 << r);", "c + (2 << r);"),
    ("takum: a digit short", EXACT, "63 - (f.bits - 5 - head.r), u.sticky", "64 - (f.bits - 5 - head.r), u.sticky"),
    ("takum: tiny to zero", EXACT, "return x == 0 ? 1 :", "return x == 0 ? 0 :"),
    ("takum: moved from beyond the end", EXACT, "moved(f, within(code), random)", "moved(f, code, random)"),
    ("takum: the last binade is beyond", EXACT, "if (u.exponent > f.max_exponent()) code", "if (u.exponent >= f.max_exponent()) code"),
    ("takum: infinity saturates", EXACT, "if (u.cls != Class::Finite) return f.nan_code();", "if (u.cls == Class::NaN) return f.nan_code();"),
    ("takum: decoded regime", TAKUM, "upwards ? regime : 7 - regime, p", "upwards ? regime : 8 - regime, p"),
    ("takum: decoded below 0", TAKUM, "1 - (2 << r) + tail", "1 - (1 << r) + tail"),
    ("bounded posit: every regime ends", EXACT, "!f.is_bounded_posit() || run < f.regime_max;", "true;"),
    ("bounded posit: the longest regime ends", EXACT, "run < f.regime_max;", "run <= f.regime_max;"),
    ("bounded posit: decoded regimes end", EXACT, "!f.is_bounded_posit() || equal < f.regime_max;", "true;"),
    ("bounded posit: a decoded run beyond its length", EXACT, "ends ? equal : f.regime_max", "equal"),
    ("bounded posit: the last binade is beyond", "formats/NumberFormat.h", "<< exp_bits) - 1;", "<< exp_bits) - 2;"),
    ("bounded posit: the first binade", "formats/NumberFormat.h", "return -(regime_max << exp_bits);", "return 1 - (regime_max << exp_bits);"),
    ("fast: sticky bit dropped", ENCODE, "| (mask_nonzero<T>(lost) & 1)", ""),
    ("fast: tie away", ENCODE, "return (ones >> 1) + odd;", "return (ones >> 1) + 1;"),
    ("fast: tie to zero goes away", ENCODE, "(ones & 1 & away)", "(ones & 1)"),
    ("fast: up and down by magnitude", ENCODE, "select(sign, up_negative, up_positive)", "(up_negative | up_positive)"),
    ("fast: shift limit", ENCODE, "shift < M::fraction + 2 ? shift : M::fraction + 2", "shift < M::fraction ? shift : M::fraction"),
    ("fast: NaR where maxpos", ENCODE, "held_within(exponent_fraction<T>(a), limit)", "exponent_fraction<T>(a)"),
    ("fast: infinity saturates", ENCODE, "infinity_bits<T>() - 1, a), overflow_code", "infinity_bits<T>() - 1, a), max_code"),
    ("fast: infinity NaR where posits saturate", MACHINE, "infinity_bits<T>() - f.infinity_is_nan()", "infinity_bits<T>() - 1"),
    ("fast: infinity of posits saturates", MACHINE, "infinity_bits<T>() - f.infinity_is_nan()", "infinity_bits<T>()"),
    ("fast: directed overflow", ENCODE, "select(sign, beyond_negative, beyond_positive)", "overflow_code"),
    ("fast: flushed tie up", ENCODE, "default: return half;", "default: return half - 1;"),
    ("fast: subnormals decoded as normals", DECODE, "mask_less<T>(magnitude, smallest_code)", "mask_less<T>(magnitude, 1)"),
    ("fast: exponent bits of posits", DECODE, "(W - 1 - M::fraction - es)", "(W - 1 - M::fraction)"),
    ("fast: regime of ones", DECODE, "(run ^ ~ones) + ones", "(run ^ ~ones)"),
    ("ordinary: the larger result", DECODE, "normal < subnormal ? normal", "normal > subnormal ? normal"),
    ("ordinary: infinity a NaN", DECODE, "f.max_code() + f.has_infinity()", "f.max_code()"),
    ("ordinary: the smaller result", ORDINARY, "normal > below ? normal", "normal < below ? normal"),
    ("ordinary: tie away", ORDINARY, "default: return half + odd;", "default: return half + 1;"),
    ("ordinary: overflow not held", ORDINARY, "code = code < most ? code : most;", ""),
    ("ordinary: NaN as infinity", ORDINARY, "infinity_bits<T>(), a), nan,", "infinity_bits<T>(), a), overflow,"),
    ("ordinary: sticky bit dropped", ORDINARY, "((static_cast<Bits>(b) & below_sticky) + below_sticky)", "0"),
    ("ordinary: one digit gathered too many", ORDINARY, "(f.bits - 1 - f.exp_bits))) - 1", "(f.bits - 2 - f.exp_bits))) - 1"),
    ("ordinary: NaR where maxpos", ORDINARY, "held_within(exponent_fraction<T>(a), limit)", "exponent_fraction<T>(a)"),
    ("ordinary: zero as minpos", ORDINARY, "string &= mask_nonzero<T>(a);", ""),
    ("ordinary: zero as smallest", ORDINARY, "magnitude &= mask_nonzero<T>(a);", ";"),
    ("ordinary: subnormal in the nearest mode", ORDINARY, "code + correction(", "code + 0 * correction("),
    ("ordinary: subnormal tie to zero", ORDINARY, "Bits{0} - negative(error + below_half)", "0"),
    ("ordinary: subnormal tie away", ORDINARY, "return negative(below_half - error);", "return 0;"),
    ("ordinary: up by magnitude", ORDINARY, "twos_complement ? ones : select(sign, offset, ones)", "ones"),
    ("ordinary: negative posit cut", ORDINARY, "twos_complement ? select(sign, ones, offset) : offset", "offset"),
    ("ordinary: even stays", ORDINARY, "select(odd - 1, ones, offset)", "offset"),
    ("ordinary: directed infinity", ORDINARY, "infinity_bits<T>() - 1, a), overflow,", "infinity_bits<T>() - 1, a), finite,"),
    ("round: digits kept", ROUNDER, "sign)) & kept;", "sign));"),
    ("round: beyond the largest", ROUNDER, "mask_less<T>(end.largest, m)", "Bits{0}"),
    ("round: subnormal as normal", ROUNDER, "select(mask_less<T>(a, encoder.smallest), below, normal)", "normal"),
    ("ordinary stochastic: carry of the fraction", STOCHASTIC, "(random >> (32 - cut))", "(random >> (33 - cut))"),
    ("ordinary stochastic: fixed point", STOCHASTIC, "(random >> (32 - spare))", "(random >> (33 - spare))"),
    ("ordinary stochastic: the other half forgotten", STOCHASTIC, "sign_code), undecided};", "sign_code), 0};"),
    ("stochastic: off by one in probability", ROUND, "c.fraction + random < c.fraction", "c.fraction + random + 1 <= c.fraction"),
    ("stochastic: by the string between powers of two", EXACT, "Rounding::Stochastic && exponent_bits_cut", "Rounding::UpDown && exponent_bits_cut"),
    ("stochastic: equal moves exact values", ROUND, "(half || rest) && random >> 63", "random >> 63"),
    ("stochastic: up-down moves zero", EXACT, "f.rounding != Rounding::UpDown || magnitude == 0", "f.rounding != Rounding::UpDown"),
    ("fast stochastic: posits beyond the straight part", STOCHASTIC, "(b >> (W - 1))), linear) & mask", "(b >> (W - 1))), ~Bits{0} >> 1) & mask"),
    ("fast stochastic: bits pushed out", STOCHASTIC, "linear) & mask_nonzero<T>(~sum & behind);", "linear);"),
    ("fast stochastic: carry", STOCHASTIC, "(a | b) & ~(a + b)", "(a | b) & (a + b)"),
    ("fast stochastic: place of the fraction", STOCHASTIC, "(top << left) >> right", "(top << left) >> (right + 1)"),
    ("odd: not moved", ODD, "return bits_as<T>(bits + ((inwards | 1) & moves));", "return s;"),
    ("odd: wrong direction", ODD, "((inwards | 1) & moves)", "((~inwards | 1) & moves)"),
    ("odd: remainder's sign", ODD, "bits_as<typename Machine<T>::Bits>(remainder) ^ sign", "bits_as<typename Machine<T>::Bits>(remainder)"),
    ("odd: product's error lost", ODD, "to_odd(p, fused(a, b, -p))", "to_odd(p, T{0})"),
    ("odd: root's remainder", ODD, "to_odd(s, fused(-s, s, a))", "to_odd(s, fused(s, s, -a))"),
    ("odd: sum's error lost", ODD, "return (a - a_part) + (b - b_part);", "return (a - a_part);"),
    ("mixed: not moved", MIXED, "bits + ((inwards | 1) & moves)", "bits"),
    ("mixed: wrong direction", MIXED, "(inwards | 1) & moves", "(~inwards | 1) & moves"),
    ("mixed: product's error lost", MIXED, "odd_float(product, fused(x, number, -product))", "odd_float(product, 0.0)"),
    ("mixed: sum's error lost", MIXED, "odd_float(sum, two_sum_error(x, number, sum))", "odd_float(sum, 0.0)"),
    ("mixed: fused error's high part lost", MIXED, "((high - result) + high_error) + low_error", "(high - result) + low_error"),
    ("mixed: fused error's low part lost", MIXED, "((high - result) + high_error) + low_error", "((high - result) + high_error)"),
    ("mixed: remainder's sign", MIXED, "^ (high_half(number) & 0x80000000)", ""),
    ("mixed: undecided quotient taken", MIXED, "~mask_nonzero<float>(lacks & 0x7FFFFFFF));", "0);"),
]  # fmt: skip

CHECK = r"""
#include <c10/formats/ExactCodec.h>
#include <c10/formats/FastDecode.h>
#include <c10/formats/FastEncode.h>
#include <c10/formats/FastRound.h>
#include <c10/formats/FastStochastic.h>
#include <c10/formats/MixedArithmetic.h>
#include <c10/formats/OddArithmetic.h>
#include <cstdio>
#include <cstring>
using namespace c10::formats;
static Format f;
static long wrong = 0;
static void see(uint64_t found, uint64_t expected, const char* what, double x) {
  if (found != expected && wrong++ < 3) std::printf("%s %a: %llx, expected %llx\n", what, x, (unsigned long long)found, (unsigned long long)expected);
}
template <typename T, template <typename> class Mode> static uint64_t encode_by(T x) {
  return f.is_posit() ? PositEncoder<T, Mode<T>>(f)(x) : FloatEncoder<T, Mode<T>>(f)(x);
}
template <typename T> static uint64_t encode_fast(T x) {
  return f.rounding == Rounding::NearestEven ? encode_by<T, NearestEvenMode>(x) : encode_by<T, DirectedMode>(x);
}
// Where one of the shorter decoders, encoders and rounders serves, it must be right too.
template <typename T> static T decode_ordinary(uint64_t code) {
  return OrdinaryFloatDecoder<T>::serves(f) ? OrdinaryFloatDecoder<T>(f)(code) : f.is_posit() ? PositDecoder<T>(f)(code) : FloatDecoder<T>(f)(code);
}
template <typename T> static T decode_fast(uint64_t code) {
  return f.is_posit() ? PositDecoder<T>(f)(code) : FloatDecoder<T>(f)(code);
}
template <typename T, Rounding mode> static void round_ordinary(T x, uint64_t code) {
  if (f.rounding != mode) return;
  if (OrdinaryFloatEncoder<T, mode>::serves(f)) see(OrdinaryFloatEncoder<T, mode>(f)(x), code, "ordinary encode", x);
  if (OrdinaryPositEncoder<T, mode>::serves(f)) see(OrdinaryPositEncoder<T, mode>(f)(x), code, "ordinary encode", x);
  if (!OrdinaryFloatRounder<T, mode>::serves(f)) return;
  const T found = OrdinaryFloatRounder<T, mode>(f)(x), expected = decode_fast<T>(code);
  const auto same = bits_as<typename Machine<T>::Bits>(found) == bits_as<typename Machine<T>::Bits>(expected);
  see(same || (found != found && expected != expected), 1, "round", x);
}
template <typename T> static void round_ordinary(T x, uint64_t code) {
  round_ordinary<T, Rounding::NearestEven>(x, code);
  round_ordinary<T, Rounding::NearestZero>(x, code);
  round_ordinary<T, Rounding::NearestAway>(x, code);
  round_ordinary<T, Rounding::Up>(x, code);
  round_ordinary<T, Rounding::Down>(x, code);
  round_ordinary<T, Rounding::TowardZero>(x, code);
  round_ordinary<T, Rounding::ToOdd>(x, code);
}
// The proportional mode's fast code where it is decided, else the expected one.
template <typename T> static uint64_t draw(T x, uint64_t word, uint64_t expected) {
  const auto random = typename Machine<T>::Bits(word >> (64 - Machine<T>::width));
  if constexpr (sizeof(T) == 4) {
    if (OrdinaryStochasticEncoder::serves(f)) {
      const auto r = OrdinaryStochasticEncoder(f)(x, random);
      if (!r.undecided) see(r.code, expected, "ordinary stochastic encode", x);
    }
  }
  if (StochasticFloatEncoder<T>::serves(f)) {
    const auto r = StochasticFloatEncoder<T>(f)(x, random);
    return r.undecided ? expected : r.code;
  }
  if (!StochasticPositEncoder<T>::serves(f)) return expected;
  const auto r = StochasticPositEncoder<T>(f)(x, random);
  return r.undecided ? expected : r.code;
}
template <typename T> static T operate(char op, T a, T b, T c) {
  switch (op) {
    case '+': return add_odd(a, b);
    case '*': return multiply_odd(a, b);
    case '/': return divide_odd(a, b);
    case 's': return sqrt_odd(a);
    default: return fma_odd(a, b, c);
  }
}
static MixedResult operate_mixed(char op, double number, float a, float b, float c) {
  switch (op) {
    case '+': return add_mixed(a, number);
    case '*': return multiply_mixed(a, number);
    case '/': return divide_mixed(a, number, 1 / number);
    case 'r': return divide_number_mixed(number, a);
    case 'f': return fma_mixed(number, a, b);
    case 'c': return addcmul_mixed(number, a, b, c);
    case 'd': return addcdiv_mixed(number, a, b, c);
    default: return lerp_mixed(number, a, b);
  }
}
int main() {
  char line[200];
  while (std::fgets(line, sizeof line, stdin)) {
    unsigned long long bits, code, a, b, c, word;
    int kind, width, e, m, bias, sub, spec, over, mode;
    char op;
    if (std::sscanf(line, "F %d %d %d %d %d %d %d %d %d", &kind, &width, &e, &m, &bias, &sub, &spec, &over, &mode) == 9) {
      f = kind ? float_format(e, m) : posit_format(width, e);
      if (kind) {
        f.bias = bias;
        f.subnormals = Subnormals(sub);
        f.specials = Specials(spec);
        f.overflow = Overflow(over);
      } else {
        f.infinity = Infinity(over);
      }
      f.rounding = Rounding(mode);
    } else if (std::sscanf(line, "T %d %d", &width, &mode) == 2) {
      f = takum_format(width);
      f.rounding = Rounding(mode);
    } else if (std::sscanf(line, "B %d %d %d %d", &width, &e, &m, &mode) == 4) {
      f = bounded_posit_format(width, e, m);
      f.rounding = Rounding(mode);
    } else if (std::sscanf(line, "G %llx %llx %llx", &bits, &word, &code) == 3) {
      see(encode(f, unpack(double_from_bits(bits)), word), code, "tapered encode", double_from_bits(bits));
      const double back = to_double(decode(f, code));
      Format nearest = f;
      nearest.rounding = Rounding::NearestEven;
      see(encode(nearest, unpack(back)), code, "tapered decode", back);
    } else if (std::sscanf(line, "H %llx %llx", &code, &bits) == 2) {
      see(double_bits(to_double(decode(f, code))), bits, "tapered decode", double_from_bits(bits));
    } else if (std::sscanf(line, "E %llx %llx", &bits, &code) == 2) {
      const double x = double_from_bits(bits);
      see(encode(f, unpack(x)), code, "encode", x);
      see(encode_fast<double>(x), code, "fast encode", x);
      round_ordinary<double>(x, code);
      if (!f.fits_float() || !(double(float(x)) == x || x != x)) continue;
      see(encode_fast<float>(float(x)), code, "fast encode float", x);
      round_ordinary<float>(float(x), code);
    } else if (std::sscanf(line, "R %llx %llx %llx", &bits, &word, &code) == 3) {
      const double x = double_from_bits(bits);
      see(encode(f, unpack(x), word), code, "stochastic encode", x);
      if (f.rounding != Rounding::Stochastic) continue;
      see(draw<double>(x, word, code), code, "fast stochastic encode", x);
      if (f.fits_float() && double(float(x)) == x) see(draw<float>(float(x), word, code), code, "fast stochastic encode float", x);
    } else if (std::sscanf(line, "D %llx %llx", &code, &bits) == 2) {
      const double x = double_from_bits(bits);
      const auto same = [&](double y, const char* what) { x != x ? see(y != y, 1, what, x) : see(double_bits(y), bits, what, x); };
      same(to_double(decode(f, code)), "decode");
      same(decode_fast<double>(code), "fast decode");
      same(decode_ordinary<double>(code), "ordinary decode");
      if (!f.fits_float()) continue;
      same(decode_fast<float>(code), "fast decode float");
      same(decode_ordinary<float>(code), "ordinary decode float");
    } else if (std::sscanf(line, "A %c %llx %llx %llx %llx", &op, &a, &b, &c, &code) == 5) {
      const double x = to_double(decode(f, a)), y = to_double(decode(f, b)), z = to_double(decode(f, c));
      see(encode(f, unpack(operate<double>(op, x, y, z))), code, "double arithmetic", x);
      if (op != 'f' || f.significand_bits() <= 12) see(encode(f, unpack(double(operate<float>(op, x, y, z)))), code, "float arithmetic", x);
    } else if (std::sscanf(line, "M %c %llx %llx %llx %llx %llx", &op, &bits, &a, &b, &c, &code) == 6) {
      const double x = to_double(decode(f, a)), y = to_double(decode(f, b)), z = to_double(decode(f, c));
      const MixedResult r = operate_mixed(op, double_from_bits(bits), x, y, z);
      if (!r.undecided) see(encode(f, unpack(double(r.value))), code, "mixed arithmetic", x);
    }
  }
  if (wrong) std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
"""

FORMATS = [
    posit(8, 0), posit(8, 2), posit(8, 1, infinity="saturate"), posit(6, 1), posit(5, 3), posit(12, 2), posit(16, 1),
    binary(4, 3), binary(5, 2), binary(5, 5), binary(8, 4),
    binary(4, 3, specials="fn"), binary(4, 3, specials="fn", bias=8, overflow="saturate"), binary(2, 1, specials="none"),
    binary(4, 3, subnormals=False), binary(3, 0, specials="fn"), binary(9, 4), binary(5, 2, overflow="saturate"),
]  # fmt: skip


def header(spec, mode):
    specials = {"ieee": 0, "fn": 1, "none": 2, "fnuz": 3, "p3109": 4}[spec.specials]
    options = int(not spec.subnormals), specials, int("saturate" in (spec.overflow, spec.infinity)), mode
    return " ".join(map(str, ("F", int(not spec.posit), spec.bits, spec.exp_bits, spec.man_bits, spec.bias, *options)))


def arithmetic(spec, count, rng):
    """Operands of a format with more than half of float32's digits: sums, products, quotients and roots beside its boundaries."""
    ones = (2 ** (spec.exp_bits - 1) - 1) << spec.man_bits  # the code of 1
    digits = 1 << spec.man_bits
    for op in "+*/sf":
        for _ in range(count):
            a, b, c = (ones + int(i) for i in rng.integers(0, 2 * digits, 3))
            if op in "+f" and rng.random() < 0.7:  # half a unit in a's last place, and a little
                a, b = ones + int(rng.integers(0, digits)), ones - (spec.man_bits + 1) * digits + int(rng.integers(-3, 4))
            if op == "f":
                b, c = (b, spec.signed(a, True)) if rng.random() < 0.5 else (ones, b)
            elif op != "s":
                a, b = (spec.signed(k, bool(rng.integers(2))) for k in (a, b))
            x, y, z = (Fraction(spec.decode(k)) for k in (a, b, c))
            if op == "s":
                code = spec.encode(odd_root(x, spec.man_bits + 60))
            else:
                r = {"+": x + y, "*": x * y, "/": x / y, "f": x * y + z}[op]
                code = spec.encode(r)
            yield f"A {op} {a:x} {b:x} {c:x} {code:x}"


def with_number(spec, mode, count, rng):
    """Values of a format with a float64 number, near enough to short decimal fractions that results come close to short numbers."""
    largest = spec.largest
    for op in "+*/rfcdl":
        for _ in range(count):
            number = float(rng.choice([0.1, 0.001, 0.9, 0.999, -0.1, -0.3, 1 / 3, 1e-8, 1e-17, 125.1, 0.5, 7.0]))
            codes = [int(k) for k in rng.integers(1, largest, 3)]
            if rng.random() < 0.6:  # small multiples of 5, whose tenths are short
                codes = [spec.encode(Fraction(int(5 * k))) for k in rng.integers(1, 60, 3)]
            a, b, c = (spec.signed(k, bool(rng.integers(2))) for k in codes)
            x, y, z = (Fraction(spec.decode(k)) for k in (a, b, c))
            s = Fraction(number)
            r = {"+": x + s, "*": x * s, "/": x / s, "r": s / x, "f": s * x + y, "c": s * x * y + z}.get(op)
            if op == "d":
                r = s * Fraction(float(x) / float(y)) + z
            if op == "l":
                r = x + s * Fraction(float(y) - float(x))
            if r:
                yield f"M {op} {np.float64(number).view(np.uint64):x} {a:x} {b:x} {c:x} {spec.encode(r, mode):x}"


def threshold(encode):
    """The last word that gives the code of word 0 and the one behind it."""
    low, high = 0, 2**64 - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if encode(middle) == encode(0) else (low, middle)
    return low, high


def stochastic(spec, mode, x, rng):
    """Each value with words at the ends, about a half, and a seeded one; some with the words between which the code changes."""
    for i, value in enumerate(x.tolist()):
        words = [0, 2**64 - 1, 2**63, 2**63 - 1, int(rng.integers(0, 2**64, dtype=np.uint64))]
        if i < 120 and mode == "stochastic":
            words += threshold(lambda word: oracle_stochastic.encode(spec, value, mode, word))  # noqa: B023
        for word in words:
            code = oracle_stochastic.encode(spec, value, mode, word)
            yield f"R {np.float64(value).view(np.uint64):x} {word:x} {code:x}"


def odd_root(x, digits):
    """The root of x if it is a multiple of 2^-digits, else a number between the same two of them."""
    n = int(x * (1 << 2 * digits))
    return Fraction(2 * isqrt(n) + (isqrt(n) ** 2 != n), 1 << (digits + 1))


def lines():
    rng = np.random.default_rng(0)
    yield from tapered_cases.lines()
    for spec in FORMATS:
        t = oracle.table(spec)
        x = t.inputs()
        for mode, mode_name in enumerate(oracle.MODES):
            if mode and spec.bits > 8:
                continue
            yield header(spec, mode)
            some = x if len(x) < 20000 else rng.choice(x, 20000)
            codes = t.encode(some, mode_name).tolist()
            yield from (f"E {bits:x} {code:x}" for bits, code in zip(some.view(np.uint64).tolist(), codes, strict=True))
        values = t.decode()
        yield from (f"D {code:x} {bits:x}" for code, bits in enumerate(values.view(np.uint64).tolist()))
        for mode, mode_name in enumerate(oracle_stochastic.MODES, len(oracle.MODES)):
            yield header(spec, mode)
            long_fractions = np.ldexp(1.5 + 2.0**-52 + rng.integers(0, 2**20, 60) / 2**21, rng.integers(-28, 28, 60))
            lowest = -8 if spec.posit else 1 - spec.bias
            tiny = np.ldexp(1 + rng.integers(0, 2**23, 40) / 2**23, rng.integers(lowest - 24, lowest, 40))  # float32 numbers, most of them
            yield from stochastic(spec, mode_name, np.concatenate([long_fractions, tiny, rng.choice(x, 400)]), rng)
    for spec in (binary(6, 13), binary(5, 10)):
        yield header(spec, 0)
        yield from arithmetic(spec, 4000, rng)
    for spec in (binary(5, 5), binary(5, 10), posit(12, 2), posit(16, 2)):
        for mode in ("nearest_even", "up", "to_odd"):
            yield header(spec, oracle.MODES.index(mode))
            yield from with_number(spec, mode, 300, rng)


def main():
    words = " ".join(sys.argv[1:])
    mutating.try_each([(what, f"c10/{file}", *texts) for what, file, *texts in MUTATIONS if words in what], CHECK, lines(), ["c10"], ["-O1"])


if __name__ == "__main__":
    main()
