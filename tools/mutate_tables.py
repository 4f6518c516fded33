"""Breaks the code of tables of values in one place at a time and shows that exact rationals notice.

    python tools/mutate_tables.py [words of a mutation's name]

As tools/mutate.py does, for ValueTable, TableCodec, TableSteps and the loops over them: a check that needs no PyTorch is compiled against a
copy, with the vector unit of this processor, and fed what test/support/oracle_tables.py expects. The exit status is 1 where a broken copy passes.
"""

import math
import sys
from fractions import Fraction
from pathlib import Path

import mutating
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "support"))
from oracle_stochastic import random_words  # noqa: E402
from oracle_tables import DETERMINISTIC, STOCHASTIC, Beyond, TableOracle  # noqa: E402

TABLE, CODEC = "c10/formats/ValueTable.cpp", "c10/formats/TableCodec.h"
STEPS, HEADER = "c10/formats/TableSteps.cpp", "c10/formats/TableSteps.h"
SEARCH, DRAWS = "aten/src/ATen/native/formats/cpu/TableSearch.h", "aten/src/ATen/native/formats/cpu/TableDraws.h"
VECTOR = "avx512: "  # mutations of loops that only such a processor runs
MUTATIONS = [  # what, file, old text, new text
    ("midpoint of opposite numbers", TABLE, "if (a == -b) return {};", ""),
    ("midpoint without its sign", TABLE, "sum.negative = negative;", "sum.negative = false;"),
    ("midpoint a binade too high", TABLE, "sum.exponent -= 1;", ""),
    ("zeros in the other order", TABLE, "(x == y && std::signbit(x) && !std::signbit(y))", "(x == y && !std::signbit(x) && std::signbit(y))"),
    ("minus zero is zero", TABLE, "      t.view.plus_zero = code;\n    } else", "      t.view.plus_zero = t.view.minus_zero = code;\n    } else"),
    ("odd where both codes are", TABLE, "lower != upper ? lower : i & 1", "lower"),
    ("boundaries given are not taken", TABLE, "boundaries.push_back(unpack(d.boundaries[i]));", "boundaries.push_back(unpack(t.values[i]));"),
    ("limit beyond is not taken", TABLE, "std::isnan(end.limit) ? midpoint", "true ? midpoint"),
    ("smallest is the largest", TABLE, "!(t.smallest <= v)", "!(t.smallest >= v)"),
    ("boundaries' digits count as values'", TABLE, "lsb = std::min(lsb, e.lsb + 1), bits = std::max(bits, e.bits - 1);", "see_value(to_double(u));"),
    ("fits float though subnormal there", TABLE, "(v == 0 || std::fabs(v) >= 0x1p-126)", "true"),
    ("largest exponent without what follows", TABLE, "t.max_exponent = std::max(t.max_exponent, top);", ""),
    ("next code the other way", TABLE, "const int64_t to = rank + (up ? 1 : -1);", "const int64_t to = rank + (up ? -1 : 1);"),
    ("next code of an infinity", TABLE, "(v > 0) != up", "(v > 0) == up"),
    ("next code beyond the end", TABLE, "return end.saturates ? code : end.code;", "return code;"),
    ("next zero without its sign", TABLE, "!up ? false : true", "false"),
    ("comparison without the exponent", CODEC, "if (a.exponent != b.exponent) larger", "if (false) larger"),
    ("comparison without what is beyond 64 bits", CODEC, "int{a.sticky} - int{b.sticky}", "0"),
    ("comparison of negatives", CODEC, "return a.negative ? -larger : larger;", "return larger;"),
    ("distance of opposite signs", CODEC, "const bool adds = a.negative != b.negative;", "const bool adds = false;"),
    ("distance without what is lost", CODEC, "- (lost && !adds ? 1 : 0)", ""),
    ("proportion an exponent off", CODEC, "below == 0 ? 0 : below - 1", "below == 0 ? 0 : below"),
    ("proportion of equals", CODEC, "below == 0 ? 64 : 63", "63"),
    ("up-down the other way", CODEC, "(random >> 63 != 0) == below ? -1 : 1", "(random >> 63 != 0) == below ? 1 : -1"),
    ("up-down to zero where minpos stays", CODEC, "if (to == t.zero && t.minpos) return code_of_rank(t, rank, negative);", ""),
    ("up-down moves zero", CODEC, "if (rank == t.zero) return code_of_rank(t, rank, negative);\n", ""),
    ("up-down beyond the lowest", CODEC, "t.low.saturates ? t.codes[0] : t.low.code;", "t.codes[0];"),
    ("negatives are numbers", CODEC, "if (refused && t.zero != 0) return f.nan_code();", ""),
    ("infinity of the other sign", CODEC, "u.negative ? t.low.infinity", "!u.negative ? t.low.infinity"),
    ("zero without its sign", CODEC, "return negative ? t.minus_zero : t.plus_zero;", "return t.plus_zero;"),
    ("minpos below which is zero", CODEC, "if (!beyond && t.minpos && inner == t.zero) {", "if (false) {"),
    ("refused numbers stop", CODEC, "if (beyond && !refused && stops", "if (beyond && stops"),
    ("far beyond is rounded", CODEC, "(outwards_is_down ? -1 : 1) >= 0) return end.code;", "(outwards_is_down ? -1 : 1) >= 2) return end.code;"),
    ("inner neighbour by place", CODEC, "(std::fabs(lower) == std::fabs(upper) && u.negative)", "std::fabs(lower) == std::fabs(upper)"),
    ("stochastic from the outer end", CODEC, "lower_is_inner ? lower : upper)), dist", "lower_is_inner ? upper : lower)), dist"),
    ("tie on the far side", CODEC, "side >= 0 ? uint64_t{1} << 63", "side > 0 ? uint64_t{1} << 63"),
    ("ties up go down", CODEC, "case Ties::Up: c.kept = !outwards_is_down;", "case Ties::Up: c.kept = outwards_is_down;"),
    ("to odd by the rule for ties", CODEC, "if (f.rounding == Rounding::ToOdd) {", "if (false) {"),
    ("odd by the outer one", CODEC, "(t.lower_is_odd[at] != 0) == lower_is_inner;", "t.lower_is_odd[at] != 0;"),
    ("steps without the next number", STEPS, "k <= key + 1; ++k", "k <= key; ++k"),
    ("steps without the number itself", STEPS, "Key k = key; k", "Key k = key + 1; k"),
    ("steps without what follows", STEPS, "ends.push_back(t.definition.high.next);", ";"),
    ("steps without boundaries", STEPS, "places.push_back(to_double(b));", ";"),
    ("steps without the limit", STEPS, "places.push_back(to_double(t.view.high_limit));", ";"),
    ("steps of one coin for both", STEPS, "const uint64_t word = coin ? ~uint64_t{0} : 0;", "const uint64_t word = 0;"),
    ("float64's buckets: one round short", STEPS, "= std::bit_width(largest);", "= std::bit_width(largest) / 2;"),
    ("float64's subnormal numbers", STEPS, "s.begin.first[bucket] = static_cast<int32_t>(n + 1);", ";"),
    ("runs of negative numbers one off", STEPS, "number_of<float>(s.thresholds[i] - 1)", "number_of<float>(s.thresholds[i])"),
    ("runs without NaN", STEPS, "  add(infinity + 1, s.nan_code);\n", ""),
    ("runs without negative NaN", STEPS, "  add(sign + infinity + 1, s.nan_code);\n", ""),
    ("bucket of two thresholds is decided", STEPS, "b.undecided = thresholds > 1;", "b.undecided = false;"),
    ("numbers next to 0 are zeros", STEPS, "to.smallest = true, ", ""),
    ("small codes that are not", STEPS, "r.code > 0xFF", "r.code > 0x1FF"),
    ("gap by its upper end", STEPS, "std::lower_bound(ends.begin(), ends.end(), x) :", "std::upper_bound(ends.begin(), ends.end(), x) :"),
    ("gap across 0 is one", STEPS, "const double from = lower < 0 && upper > 0 && negative ? lower : upper;", "const double from = upper;"),
    ("gap with another's sign", STEPS, "place != last || negative != last_negative", "place != last"),
    ("gap below the range from the outer end", STEPS, "lower_is_inner = false;", ";"),
    ("gap above the range from the outer end", STEPS, "lower_is_inner = true;", ";"),
    ("zero in a gap of one code", STEPS, "return gap.scale == 0 ? always(x) : gap;", "return gap;"),
    ("no margin where the width is no power of two", STEPS, "is_power_of_two(width) && differences", "differences"),
    ("no margin where the difference is rounded", STEPS, "return inner == 0 || (std::signbit", "return true || (std::signbit"),
    ("no margin at all", STEPS, "0x1p-18f, inner_code", "0, inner_code"),
    ("products out of range", STEPS, "width.exponent < -900 || width.exponent > 1000", "false"),
    ("run before the bucket", HEADER, "runs[run + 1].begin <= u) ++run;", "runs[run + 1].begin < u) ++run;"),
    ("numbers next to 0: one too few", HEADER, "(u & 0x7FFFFFFF) - 1 < 0xFFFF", "(u & 0x7FFFFFFF) - 1 < 0xFFFE"),
    ("small: at the threshold", SEARCH, "bits_as<uint32_t>(values[done + i]) << 16 | 0xFFFF;", "bits_as<uint32_t>(values[done + i]) << 16;"),
    ("large: at the threshold", SEARCH, "(uint64_t{u} << kAbove | ones) >= bucket", "(uint64_t{u} << kAbove) >= bucket"),
    ("large: undecided is taken", SEARCH, "return (seen & TableBuckets::kUndecided) != 0;", "return false;"),
    ("smallest are taken", SEARCH, "return any != 0;", "return false;"),
    ("float64: undecided is taken", SEARCH, "return undecided < 0;", "return false;"),
    ("float64: NaN", SEARCH, "> infinity_bits<double>() ? nan_code : step", "> ~uint64_t{0} ? nan_code : step"),
    ("one coin for all", DRAWS, "h[i] >> 31 ? other[i]", "h[0] >> 31 ? other[i]"),
    ("coin the other way", DRAWS, "h[i] >> 31 ? other[i] : codes[done + i]", "h[i] >> 31 ? codes[done + i] : other[i]"),
    ("draw: lower half forgotten", DRAWS, "double centre{-0.5}, reach{0.5};", "double centre{0}, reach{0};"),
    ("draw: more than half a word forgotten", DRAWS, "if (n > 32) centre = 0, reach = 2;", "if (n > 32) centre = reach = 0;"),
    ("draw: all of the word", DRAWS, "mask = ~(bit - 1);", ""),
    ("draw: ties of C away", DRAWS, "if (f.few_bits == FewBits::C) last = bit;", ""),
    ("draw: B as A", DRAWS, "f.few_bits != FewBits::A", "f.few_bits == FewBits::C"),
    ("draw: just out stays", DRAWS, "(static_cast<uint32_t>(beyond == 0) & ", "(0 & "),
    ("draw: margin forgotten", DRAWS, "reach + static_cast<double>(gap.margin)", "reach"),
    (VECTOR + "small at the threshold", SEARCH, "_mm512_maskz_slli_epi32(all, u, 16), ones)", "_mm512_maskz_slli_epi32(all, u, 16), last_byte)"),
    (VECTOR + "large at the threshold", SEARCH, "kAbove), below);", "kAbove), _mm512_setzero_si512());"),
    (VECTOR + "large undecided is taken", SEARCH, "any = _mm512_or_si512(any, code);", ""),
    (VECTOR + "large: upper half", SEARCH, "_mm512_maskz_extracti64x4_epi64(half, place, 1)", "_mm512_maskz_extracti64x4_epi64(half, place, 0)"),
    (VECTOR + "values by more than their codes' bits", SEARCH, "_mm512_and_si512(code, kept)", "code"),
]  # fmt: skip

CHECK = r"""
#include <ATen/native/formats/cpu/Loops.h>
#include <ATen/native/formats/cpu/TableDraws.h>
#include <cstdio>
#include <iostream>
using namespace at::formats::CPU_CAPABILITY;
static long wrong = 0;
static double number() {
  std::string s;
  std::cin >> s;
  return std::strtod(s.c_str(), nullptr);
}
static void see(uint64_t found, uint64_t expected, const char* what, double x) {
  if (found != expected && wrong++ < 3) std::printf("%s %a: %llx, expected %llx\n", what, x, (unsigned long long)found, (unsigned long long)expected);
}
template <typename T, typename Code>
static void casts(const Format& f, const std::vector<double>& numbers, const std::vector<uint32_t>& codes, uint64_t seed, const char* what) {
  const std::vector<T> x(numbers.begin(), numbers.end());
  constexpr size_t chunk = 1061; // more than a block, and a rest for each loop
  for (size_t begin = 0; begin < x.size(); begin += chunk) {
    const size_t n = std::min(chunk, x.size() - begin);
    std::vector<Code> found(n);
    encode_table_all(f, x.data() + begin, found.data(), int64_t(n), RandomWords{seed, begin, 1});
    for (size_t i = 0; i < n; ++i) see(found[i], codes[begin + i], what, numbers[begin + i]);
  }
}
template <typename T>
static void decodes(const Format& f, const std::vector<double>& values) {
  std::vector<uint8_t> small;
  std::vector<uint16_t> codes;
  for (size_t c = 0; c < values.size(); ++c) small.push_back(uint8_t(c | (f.bits < 8 ? 0x80 : 0))), codes.push_back(uint16_t(c));
  std::vector<T> found(values.size());
  decode_table_all(f, f.bits <= 8 ? static_cast<const void*>(small.data()) : codes.data(), found.data(), int64_t(values.size()));
  for (size_t c = 0; c < values.size(); ++c) {
    if (found[c] == found[c] || values[c] == values[c]) see(bits_as<uint64_t>(double(found[c])), bits_as<uint64_t>(values[c]), "decode", double(c));
  }
}
int main() {
  const Unpacked below_one = distance(unpack(1.0), unpack(0x1p-200));
  see(below_one.significand, ~uint64_t{0}, "distance", 0);
  see(below_one.sticky && below_one.exponent == -1, true, "distance", 0);
  std::string word;
  Format f;
  while (std::cin >> word) {
    if (word == "T") {
      TableDefinition d;
      int ties;
      size_t n, boundaries;
      std::cin >> d.name >> d.bits >> ties >> d.minpos >> d.negative_is_nan >> d.nan_code >> n >> boundaries;
      d.ties = Ties(ties);
      while (n--) d.values.push_back(number());
      while (boundaries--) d.boundaries.push_back(number());
      for (TableEnd* e : {&d.high, &d.low}) std::cin >> e->saturates >> e->code >> e->infinity, e->next = number(), e->limit = number();
      f = make_table_format(d);
      std::vector<double> values = d.values;
      values.resize(size_t{1} << d.bits, std::nan(""));
      decodes<double>(f, values);
      if (f.fits_float()) decodes<float>(f, values);
    } else if (word == "F") { // facts
      const ValueTable& t = table_of(f);
      const double facts[] = {double(t.max_code), double(t.lowest_code), t.smallest, double(t.max_exponent), double(t.min_exponent),
                              double(t.lsb_exponent), double(t.significand_bits), double(t.fits_float)};
      int i = 0;
      for (const double found : facts) {
        const double expected = number();
        see(found == expected || (found != found && expected != expected), 1, "fact", i++);
      }
    } else if (word == "N") {
      uint64_t code, up, down;
      std::cin >> code >> up >> down;
      see(next_code_of_table(f, code, true), up, "next up", double(code));
      see(next_code_of_table(f, code, false), down, "next down", double(code));
    } else { // casts
      int mode, bits, few;
      uint64_t seed;
      size_t n;
      std::cin >> mode >> bits >> few >> seed >> n;
      f.rounding = Rounding(mode), f.random_bits = uint8_t(bits), f.few_bits = FewBits(few);
      std::vector<double> x(n);
      std::vector<uint32_t> codes(n);
      for (size_t i = 0; i < n; ++i) {
        x[i] = number();
        std::cin >> codes[i];
        see(encode(f, unpack(x[i]), random_word(seed, i)), codes[i], "encode", x[i]);
      }
      const bool narrow = word == "C4";
      if (f.itemsize() == 1) narrow ? casts<float, uint8_t>(f, x, codes, seed, "cast of float32") : casts<double, uint8_t>(f, x, codes, seed, "cast");
      else narrow ? casts<float, uint16_t>(f, x, codes, seed, "cast of float32") : casts<double, uint16_t>(f, x, codes, seed, "cast");
    }
  }
  if (wrong) std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
"""

INF, NAN = math.inf, math.nan
POWERS = [2.0**k for k in range(-148, 127, 11)]
rng = np.random.default_rng(0)


def saturating(values, **options):
    """An oracle whose infinities become the outermost values, unless they are among the values."""
    codes = {v: c for c, v in enumerate(values)}
    finite = [v for v in values if math.isfinite(v)]
    high, low = (Beyond(None, codes.get(sign * INF, codes[end])) for sign, end in ((1, max(finite)), (-1, min(finite))))
    return TableOracle(values, options.pop("nan", 0), **{"high": high, "low": low} | options)


def ending(values, high, low, **options):
    """One whose numbers beyond the range become codes: (code, infinity, next, limit or None)."""
    ordered = sorted(v for v in values if math.isfinite(v))

    def end(given, outermost):
        code, infinity, following, limit = given
        return Beyond(code, infinity, Fraction(following), (Fraction(outermost) + Fraction(following)) / 2 if limit is None else Fraction(limit))

    return TableOracle(values, options.pop("nan", 0), high=end(high, ordered[-1]), low=end(low, ordered[0]), **options)


ORACLES = {
    "even": saturating([-6.0, -4.0, -3.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, NAN], nan=15),
    "unordered": saturating([3.0, -1.5, 0.0, 7.25, -(2.0**-30), 1e6, 0.1], ties="zero"),
    "opposite": saturating([-1.0, 1.0]),
    "across": saturating([-1.0, 3.0, 3.5, -2.0], ties="up"),
    "zeros": ending([0.0, 1.0, 2.5, INF, -0.0, -1.0, -2.5, -INF], (3, 3, 4.0, None), (7, 7, -4.0, None)),
    "wide": saturating([1e-200, 1.0, -1e300, 1e-3, 1e-310 + 2.0**-1000, 1.5e308, -1.5e308], ties="up"),
    "boundaries": saturating([0.0, 1.0, 2.0, 4.0], boundaries=[Fraction(0.9), Fraction(1), Fraction(3.9)], ties="down"),
    "ending": ending([-4.0, -1.0, 0.0, 2.0, NAN], (4, 4, 10.0, 9.0), (2, 2, -6.0, -5.0), ties="away", nan=4,
                     boundaries=[Fraction(-2), Fraction(-1, 2), Fraction(1, 2)]),
    "one sided": ending([2.0, 4.0, NAN], (2, 2, 6.0, None), (2, 2, 0.0, None), nan=2),
    "negative": ending([-4.0, -2.0, NAN], (2, 2, 0.0, None), (2, 2, -6.0, None), nan=2),
    "extremes": saturating([-1.7e308, 1.7e308]),
    "tiny": saturating([2.0**-1000, 1.5 * 2.0**-1000]),
    "unsigned": ending([0.0, 1.0, 2.0, NAN], (3, 3, 3.0, None), (3, 3, -1.0, None), nan=3, negative_is_nan=True),
    "scales": saturating([2.0**k for k in range(-127, 128)] + [NAN], nan=255, negative_is_nan=True),
    "tapered": saturating([0.0, *POWERS, *(-p for p in POWERS)], minpos=True),
    "subnormal": saturating([0.0, *(k * 2.0**-149 for k in (1, 2, 3, 5, 70000, 70002)), 2.0**-126, -(2.0**-140), -(2.0**-149)]),
    "neighbours": saturating([1.0, 1 + 2**-52, 1 + 2**-51, 1 + 2**-23, 1 + 2**-22, 1 + 3 * 2**-23, -1.0, -1 - 2**-23, 3e-308]),
    "crowd": saturating(rng.standard_normal(700).tolist() + (1 + rng.integers(0, 2**13, 60) * 2.0**-22).cumsum().tolist()),
    "short": saturating([0.1, 0.7, 0.25, 1 / 3]),
    "third": saturating([0.0, 3.0]),
    "near": saturating([2.0**-60, 1.0]),
}  # fmt: skip


def text(x):
    if math.isnan(x):
        return "-nan" if math.copysign(1, x) < 0 else "nan"
    return float(x).hex() if math.isfinite(x) else ("-inf" if x < 0 else "inf")


def definition(name, o):
    bits = max(1, (len(o.values) - 1).bit_length())
    own = [(a + b) / 2 for a, b in zip(o.ordered, o.ordered[1:], strict=False)] != o.boundaries
    yield f"T {name.replace(' ', '_')} {bits} {['even', 'zero', 'away', 'up', 'down'].index(o.ties)} {int(o.minpos)} {int(o.negative_is_nan)}"
    yield f"{o.nan_code} {len(o.values)} {len(o.boundaries) if own else 0}"
    yield " ".join(map(text, o.values))
    yield " ".join(text(float(b)) for b in o.boundaries) if own else ""
    for end in (o.high, o.low):
        yield f"1 0 {end.infinity} 0 nan" if end.code is None else f"0 {end.code} {end.infinity} {text(float(end.next))} {text(float(end.limit))}"
    for code in range(1 << bits):
        yield f"N {code} {neighbour(o, code, True)} {neighbour(o, code, False)}"
    facts = facts_of(o)
    if facts:
        yield "F " + " ".join(text(float(x)) for x in facts)


def neighbour(o, code, up):
    v = o.values[code] if code < len(o.values) else NAN
    last = len(o.ordered) - 1
    if not math.isfinite(v):
        return o.code(0, False) if v == -INF and up else o.code(last, False) if v == INF and not up else code
    to = o.ordered.index(Fraction(v)) + (1 if up else -1)
    if not 0 <= to <= last:
        end = o.high if up else o.low
        return code if end.code is None else end.code
    return o.code(to, up)  # zero comes up from below as -0, and down as +0


def facts_of(o):
    """Largest and lowest code, smallest positive value, exponents, digits; None where a boundary has more digits than a machine word."""

    def extent(q):
        n, d = abs(q.numerator), q.denominator.bit_length() - 1
        zeros = (n & -n).bit_length() - 1
        return n.bit_length() - 1 - d, zeros - d, n.bit_length() - zeros  # exponent, last digit's, digits

    ends = [e for e in (o.high, o.low) if e.code is not None]
    numbers = [extent(v) for v in [*o.ordered, *(e.next for e in ends)] if v]
    limits = [extent(b) for b in [*o.boundaries, *(e.limit for e in ends)] if b]
    if any(digits > 64 for _, _, digits in limits):
        return None
    values = [extent(v)[0] for v in o.ordered if v]
    positive = [float(v) for v in o.ordered if v > 0]
    last = min([n[1] for n in numbers] + [b[1] + 1 for b in limits])
    digits = max([n[2] for n in numbers] + [b[2] - 1 for b in limits])
    fits = all(float(np.float32(float(v))) == v and (v == 0 or abs(v) >= 2.0**-126) for v in o.ordered if abs(v) < 3.5e38) and max(values) < 128
    edge = [o.code(len(o.ordered) - 1, False), o.code(0, False)]
    return [*edge, min(positive, default=NAN), max(n[0] for n in numbers), min(values), last, digits, fits]


def cases(o):
    """Casts in every mode, of what the oracle lists, of their parts, of float32's neighbours, and of numbers at the edge of their words."""
    x = np.array(o.inputs())
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.concatenate([x, -x, x * 1.03125, x * 1.5]) if len(x) < 150 else np.concatenate([rng.choice(x, 600), [INF, -INF, NAN, 0.0, -0.0]])
        near = x.astype(np.float32).view(np.uint32)
        bits = np.concatenate([near, near + 1, near - 1, rng.integers(0, 2**32, 200, dtype=np.uint32), np.arange(0, 140000, 5997, dtype=np.uint32)])
        singles = np.concatenate([bits, bits[::3] & np.uint32(0x807FFFFF), [1, 65535, 65536]]).astype(np.uint32).view(np.float32).astype(np.float64)
    for kind, numbers in (("C8", x), ("C4", singles)):
        for mode, name in enumerate((*DETERMINISTIC, *STOCHASTIC)):
            yield from casts(o, kind, mode, name, None, numbers)
    stochastic = len(DETERMINISTIC) + STOCHASTIC.index("stochastic")
    for few in [None, *((kind, n) for kind in "abc" for n in (1, 3, 40))]:
        yield from casts(o, "C8", stochastic, "stochastic", few, np.array(list(at_the_edge(o, few))))


def at_the_edge(o, few):
    """float64 numbers whose part of their gap is 1 less what their random words say, and others nearby."""
    taken, half = (few[1], Fraction(few[0] != "a", 2)) if few else (64, Fraction(0))
    # The codec takes distances by their 64 leading bits, and cannot tell the edges of a gap between numbers that are further apart.
    pairs = [sorted(map(abs, pair)) for pair in zip(o.ordered, o.ordered[1:], strict=False)]
    places = [i for i, (a, b) in enumerate(pairs) if a == 0 or b <= a * 2**11][:: max(1, len(pairs) // 40)]
    for i, word in enumerate(random_words(SEED, 0, 600 if places else 0)):
        place = places[i % len(places)]
        inner, outer = sorted(o.ordered[place : place + 2], key=abs)
        part = 1 - ((int(word) >> (64 - taken)) + half) / Fraction(2**taken)
        edge = np.float64(float(inner + (outer - inner) * part)).view(np.int64)
        yield float((edge + np.int64([0, 1, -1, 3, -3, 1 << 10, -(1 << 10), 1 << 21, -(1 << 21), 1 << 30][i // len(places) % 10])).view(np.float64))


SEED = 5


def casts(o, kind, mode, name, few, numbers):
    words = random_words(SEED, 0, len(numbers))
    yield f"{kind} {mode} {few[1] if few else 0} {'abc'.index(few[0]) if few else 0} {SEED} {len(numbers)}"
    for x, word in zip(numbers.tolist(), words, strict=True):
        yield f"{text(x)} {o.encode(x, name, int(word), few)}"


def main():
    words = " ".join(sys.argv[1:])
    avx512 = "avx512bw" in Path("/proc/cpuinfo").read_text().split()
    options = ["-O0", f"-DCPU_CAPABILITY={'AVX512' if avx512 else 'DEFAULT'}", f"-DCPU_CAPABILITY_{'AVX512' if avx512 else 'DEFAULT'}"]
    options += ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512cd", "-mfma"] if avx512 else []
    lines = (line for name, o in ORACLES.items() for part in (definition(name, o), cases(o)) for line in part)
    mutations = [m for m in MUTATIONS if words in m[0] and (avx512 or not m[0].startswith(VECTOR))]
    mutating.try_each(mutations, CHECK, lines, ["c10", "aten/src/ATen/native/formats/cpu"], options, [STEPS, TABLE])


if __name__ == "__main__":
    main()
