"""Breaks the number layer in one place at a time and shows that the oracle of test/ notices.

    python tools/mutate.py [words of a mutation's name]

Copies c10/ to a temporary folder, compiles a check that needs no PyTorch against it (g++, or what CXX names), and feeds it inputs with
the codes that test/oracle.py expects. The unbroken layer must pass and every broken one fail; the exit status is 1 otherwise.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from math import isqrt
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test"))
import oracle  # noqa: E402
from oracle import binary, posit  # noqa: E402

EXACT, FAST, ODD, ROUND = "util/ExactCodec.h", "util/FastCodec.h", "util/OddArithmetic.h", "util/RoundBits.h"
MUTATIONS = [  # what, file, old text, new text
    ("tie to odd", ROUND, "half && (rest || odd)", "half && (rest || !odd)"),
    ("sticky bit dropped", EXACT, "sticky || (word & (half - 1)) != 0", "sticky"),
    ("regime off by one", EXACT, "k >= 0 ? k + 2 : 1 - k", "k >= 0 ? k + 2 : 2 - k"),
    ("regime off by one in decoding", EXACT, "ones ? run - 1 : -run", "ones ? run - 1 : 1 - run"),
    ("small posit to zero", EXACT, "u.exponent < -limit) {\n    code = 1;", "u.exponent < -limit) {\n    code = 0;"),
    ("saturated to NaR", EXACT, "= f.max_code();\n  } else if", "= f.nan_code();\n  } else if"),
    ("overflow one code late", EXACT, "return code > f.max_code() ? beyond", "return code > f.max_code() + 1 ? beyond"),
    ("subnormal shift", EXACT, "63 - f.man_bits + (e - u.exponent)", "63 - f.man_bits + (e - u.exponent) / 2"),
    ("carry lost", EXACT, "f.min_exponent()) << f.man_bits) + q", "f.min_exponent()) << f.man_bits) | q"),
    ("sign of zero", EXACT, "if (u.cls == Class::Zero) return sign;", "if (u.cls == Class::Zero) return 0;"),
    ("NaN code", "core/NumberFormat.h", "max_code() + 1 + (uint64_t{1} << (man_bits - 1))", "max_code() + 2"),
    ("to odd the other way", ROUND, "!odd && (half || rest)", "odd && (half || rest)"),
    ("up for negatives", ROUND, "return !negative && (half || rest)", "return negative && (half || rest)"),
    ("stops at the largest when rounding up", ROUND, "case Rounding::Up: return negative;", "case Rounding::Up: return !negative;"),
    ("flush at a half", EXACT, "u.exponent == e - 1;", "u.exponent == e - 2;"),
    ("fast: sticky bit dropped", FAST, "| (mask_nonzero<T>(lost) & 1)", ""),
    ("fast: tie away", FAST, ">> 1) + odd) >> shift", ">> 1) + 1) >> shift"),
    ("fast: shift limit", FAST, "shift < M::fraction + 2 ? shift : M::fraction + 2", "shift < M::fraction ? shift : M::fraction"),
    ("fast: NaR where maxpos", FAST, "b = b > limit ? limit : b;", ""),
    ("fast: infinity saturates", FAST, "beyond, static_cast<Bits>(f.overflow_code)", "beyond, static_cast<Bits>(f.max_code)"),
    ("fast: flushed tie up", FAST, "mask_less<T>(f.half, a)", "mask_less<T>(f.half, a + 1)"),
    ("fast: subnormals decoded as normals", FAST, "(magnitude, Bits{1} << f.man_bits), subnormal", "(magnitude, Bits{1}), subnormal"),
    ("fast: exponent bits of posits", FAST, "(W - M::fraction - f.exp_bits)", "(W - M::fraction)"),
    ("odd: not moved", ODD, "return bits_as<T>(bits + (moves ? step : Bits{0}));", "return s;"),
    ("odd: wrong direction", ODD, "outwards ? Bits{1} : ~Bits{0}", "outwards ? ~Bits{0} : Bits{1}"),
    ("odd: remainder's sign", ODD, "b < 0 ? -remainder : remainder", "remainder"),
    ("odd: product's error lost", ODD, "to_odd(p, fused(a, b, -p))", "to_odd(p, T{0})"),
    ("odd: root's remainder", ODD, "to_odd(s, fused(-s, s, a))", "to_odd(s, fused(s, s, -a))"),
    ("odd: sum's error lost", ODD, "return (a - a_part) + (b - b_part);", "return (a - a_part);"),
]  # fmt: skip

CHECK = r"""
#include <c10/util/ExactCodec.h>
#include <c10/util/FastCodec.h>
#include <c10/util/OddArithmetic.h>
#include <cstdio>
#include <cstring>
using namespace c10::formats;
static Format f;
static long wrong = 0;
static void see(uint64_t found, uint64_t expected, const char* what, double x) {
  if (found != expected && wrong++ < 3) std::printf("%s %a: %llx, expected %llx\n", what, x, (unsigned long long)found, (unsigned long long)expected);
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
int main() {
  char line[200];
  while (std::fgets(line, sizeof line, stdin)) {
    unsigned long long bits, code, a, b, c;
    int kind, width, e, m, bias, sub, spec, over, mode;
    char op;
    if (std::sscanf(line, "F %d %d %d %d %d %d %d %d %d", &kind, &width, &e, &m, &bias, &sub, &spec, &over, &mode) == 9) {
      f = kind ? float_format(e, m) : posit_format(width, e);
      if (kind) {
        f.bias = bias;
        f.subnormals = Subnormals(sub);
        f.specials = Specials(spec);
        f.overflow = Overflow(over);
      }
      f.rounding = Rounding(mode);
    } else if (std::sscanf(line, "E %llx %llx", &bits, &code) == 2) {
      const double x = double_from_bits(bits);
      see(encode(f, unpack(x)), code, "encode", x);
      if (f.rounding != Rounding::NearestEven) continue;
      see(encode_fast<double>(f, x), code, "fast encode", x);
      if (f.fits_float() && double(float(x)) == x) see(encode_fast<float>(f, float(x)), code, "fast encode float", x);
    } else if (std::sscanf(line, "D %llx %llx", &code, &bits) == 2) {
      const double x = double_from_bits(bits);
      const auto same = [&](double y, const char* what) { x != x ? see(y != y, 1, what, x) : see(double_bits(y), bits, what, x); };
      same(to_double(decode(f, code)), "decode");
      same(decode_fast<double>(f, code), "fast decode");
      if (f.fits_float()) same(decode_fast<float>(f, uint32_t(code)), "fast decode float");
    } else if (std::sscanf(line, "A %c %llx %llx %llx %llx", &op, &a, &b, &c, &code) == 5) {
      const double x = to_double(decode(f, a)), y = to_double(decode(f, b)), z = to_double(decode(f, c));
      see(encode(f, unpack(operate<double>(op, x, y, z))), code, "double arithmetic", x);
      if (op != 'f' || f.significand_bits() <= 12) see(encode(f, unpack(double(operate<float>(op, x, y, z)))), code, "float arithmetic", x);
    }
  }
  if (wrong) std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
"""

FORMATS = [
    posit(8, 0), posit(8, 2), posit(6, 1), posit(5, 3), posit(12, 2), posit(16, 1), binary(4, 3), binary(5, 2), binary(5, 5), binary(8, 4),
    binary(4, 3, specials="fn"), binary(4, 3, specials="fn", bias=8, overflow="saturate"), binary(2, 1, specials="none"),
    binary(4, 3, subnormals=False), binary(3, 0, specials="fn"), binary(9, 4), binary(5, 2, overflow="saturate"),
]  # fmt: skip


def header(spec, mode):
    specials = {"ieee": 0, "fn": 1, "none": 2}[spec.specials]
    options = int(not spec.subnormals), specials, int(spec.overflow == "saturate"), mode
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


def odd_root(x, digits):
    """The root of x if it is a multiple of 2^-digits, else a number between the same two of them."""
    n = int(x * (1 << 2 * digits))
    return Fraction(2 * isqrt(n) + (isqrt(n) ** 2 != n), 1 << (digits + 1))


def lines():
    rng = np.random.default_rng(0)
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
    for spec in (binary(6, 13), binary(5, 10)):
        yield header(spec, 0)
        yield from arithmetic(spec, 4000, rng)


def outcome(compiler, folder, vectors):
    """None if it does not compile, else whether it passes, and what it says."""
    program = folder / "check"
    compile_line = [*compiler, "-std=c++20", "-O1", "-I", folder, "-o", program, folder / "check.cpp"]
    built = subprocess.run(compile_line, capture_output=True, text=True, check=False)
    if built.returncode:
        return None, built.stderr
    with vectors.open() as lines:
        done = subprocess.run([program], stdin=lines, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout


def main():
    words = " ".join(sys.argv[1:])
    compiler = os.environ.get("CXX", "g++").split()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "check.cpp").write_text(CHECK)
        vectors = folder / "vectors"
        vectors.write_text("\n".join(lines()) + "\n")
        survivors = []
        for what, file, old, new in [("nothing", ROUND, "", ""), *(m for m in MUTATIONS if words in m[0])]:
            shutil.copytree(ROOT / "c10", folder / "c10", dirs_exist_ok=True)
            source = folder / "c10" / file
            text = source.read_text()
            if old and text.count(old) != 1:
                sys.exit(f"{what}: expected its text once in c10/{file}, but found it {text.count(old)} times: renew the mutation")
            source.write_text(text.replace(old, new) if old else text)
            passed, output = outcome(compiler, folder, vectors)
            said = output.strip().splitlines()
            print(f"{'does not compile' if passed is None else 'passes' if passed else 'caught':16} {what}: {said[0] if said else ''}", flush=True)
            if passed is not (what == "nothing"):
                survivors.append(what)
    if survivors:
        sys.exit(f"not as expected: {', '.join(survivors)}")


if __name__ == "__main__":
    main()
