"""Number formats by their definitions, in exact rationals. The module shares no code with the
implementation.

Sources: Posit Standard (2022), sections 3 and 4.1; IEEE 754-2019, sections 3.4, 4.3 and 7.4; OCP
Microscaling Formats 1.0, section 5.3; IEEE P3109, interim report (p3109; fnuz are its formats
without infinities); Jonnalagadda et al., "Closing the gap between float and posit hardware
efficiency" (2025): posits with a longest regime; oracle_takum.py: takums.

A magnitude is written as the code of a nonnegative value, which is in value order in every format.
The boundary of nearest rounding is between two neighbours. For floats it is their mean. For posits
and takums it is the value of the code between them that is one bit longer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import oracle_takum
from rationals import Fraction

MODES = (
    "nearest_even",
    "nearest_zero",
    "nearest_away",
    "up",
    "down",
    "toward_zero",
    "to_odd",
    "nearest_up",
)
WORD = 1 << 64


def goes_out(mode: str, side, odd, negative, coin=False):
    """Tell whether an inexact number goes to its neighbour further from 0, for bools and integers
    or for arrays.

    side: -1, 0, 1, below, at or above the boundary of nearest rounding, by magnitudes; odd: the
    neighbour nearer to 0 is odd; coin: what a random mode has drawn."""
    direct = {
        "up": negative ^ True,
        "down": negative,
        "toward_zero": False,
        "to_odd": odd ^ True,
        "stochastic": coin,
        "stochastic_equal": coin,
    }
    if mode in direct:
        return direct[mode]
    ties = {"nearest_zero": False, "nearest_away": True, "nearest_up": negative ^ True}
    return (side > 0) | ((side == 0) & ties.get(mode, odd))


def flip_coin(mode: str, share: Fraction, word: int) -> bool:
    """Draw the decision of a random mode, where `share` of the gap is cut off."""
    return math.floor(share * WORD) + word >= WORD if mode == "stochastic" else word >= WORD // 2


def scale(n: int, e: int) -> Fraction:
    """Return n * 2^e."""
    return Fraction(n << e) if e >= 0 else Fraction(n, 1 << -e)


def posit_value(bits: int, es: int, code: int, regime_max: int | None = None) -> Fraction | None:
    """Return ((1 - 3s) + f) * 2^((1 - 2s) * (2^es r + e + s)), section 3.3 of the standard, or None
    for NaR. regime_max equal bits end a regime, too."""
    text = format(code, f"0{bits}b")
    if "1" not in text[1:]:
        return Fraction(0) if text[0] == "0" else None
    s, body = int(text[0]), text[1:]
    run = min(len(body) - len(body.lstrip(body[0])), regime_max or bits)
    r = run - 1 if body[0] == "1" else -run
    tail = body[run:] if run == regime_max else body[run + 1 :]
    e = int(tail[:es].ljust(es, "0") or "0", 2)
    fraction = tail[es:]
    f, f_bits = int(fraction or "0", 2), len(fraction)  # f is the fraction's value times 2^f_bits
    return scale(((1 - 3 * s) << f_bits) + f, (1 - 2 * s) * ((r << es) + e + s) - f_bits)


@dataclass(frozen=True)
class Spec:
    """A format by its definition. A posit has bits and es, a takum bits, and a float exponent and
    fraction bits with options."""

    kind: str
    bits: int
    exp_bits: int
    man_bits: int = 0
    bias: int = 0
    specials: str = "ieee"
    overflow: str = "ieee"
    subnormals: bool = True
    underflow: str = "minpos"
    infinity: str = "nan"
    regime_max: int | None = None

    @property
    def posit(self) -> bool:
        """Tell whether codes are two's complements with one NaN, as in posits and takums."""
        return self.kind != "float"

    def value(self, code: int, more_bits: int = 0) -> Fraction | None:
        """Return the value of a posit's or a takum's code, or of a code with more bits."""
        bits = self.bits + more_bits
        return (
            oracle_takum.value(bits, code)
            if self.kind == "takum"
            else posit_value(bits, self.exp_bits, code, self.regime_max)
        )

    @property
    def one_zero(self) -> bool:
        """Tell whether the code of minus zero is the NaN."""
        return self.specials in ("fnuz", "p3109")

    @property
    def sign_code(self) -> int:
        return 1 << (self.bits - 1)

    @cached_property
    def nan_code(self) -> int | None:
        if self.posit:
            return self.sign_code
        ones = self.sign_code - 1
        if self.one_zero:
            return self.sign_code
        if self.specials == "none":
            return None
        if self.specials == "fn":
            return ones
        return ones - (1 << (self.man_bits - 1)) + 1  # infinity, plus the fraction's first bit

    @cached_property
    def largest(self) -> int:
        """Return the code of the largest finite value."""
        ones = self.sign_code - 1
        if self.posit or self.specials in ("none", "fnuz"):
            return ones
        return ones - 1 if self.specials in ("fn", "p3109") else ones - (1 << self.man_bits)

    @cached_property
    def overflow_code(self) -> int:
        if self.posit or self.overflow == "saturate" or self.specials == "none":
            return self.largest
        return self.largest + 1  # infinity; fn and fnuz: NaN

    def successor(self, k: int) -> int:
        return 1 << self.man_bits if k == 0 and not self.subnormals else k + 1

    @cached_property
    def _magnitudes(self) -> dict[int, Fraction]:
        """Cache of magnitudes by code, for the codes that searches try first: as many as a 16-bit
        format has."""
        return {}

    def magnitude(self, k: int) -> Fraction:
        """Return the value of the nonnegative code k. Beyond the largest, exponents go on."""
        value = self._magnitudes.get(k)
        if value is None:
            value = self._magnitude(k)
            if len(self._magnitudes) < 1 << 15:
                self._magnitudes[k] = value
        return value

    def _magnitude(self, k: int) -> Fraction:
        if self.posit:
            return self.value(k)
        field, fraction = k >> self.man_bits, k & ((1 << self.man_bits) - 1)
        if field:
            return scale(fraction + (1 << self.man_bits), field - self.bias - self.man_bits)
        return scale(fraction, 1 - self.bias - self.man_bits) if self.subnormals else Fraction(0)

    def boundary(self, k: int) -> Fraction:
        """Return the boundary where nearest rounding changes from k to its successor (for floats,
        also from the largest value to overflow)."""
        if self.posit and k:
            return self.value(2 * k + 1, 1)
        return (self.magnitude(k) + self.magnitude(self.successor(k))) / 2

    def decode(self, code: int) -> Fraction | float:
        """Return a Fraction; or -0.0, an infinity or NaN as a float."""
        if self.posit:
            value = self.value(code)
            return math.nan if value is None else value
        k = code & (self.sign_code - 1)
        negative = code >= self.sign_code
        if self.one_zero and code == self.sign_code:
            return math.nan
        if k > self.largest:
            infinite = self.specials in ("ieee", "p3109") and k == self.largest + 1
            infinity = -math.inf if negative else math.inf
            return infinity if infinite else math.nan
        value = self.magnitude(k)
        if not negative:
            return value
        return -0.0 if value == 0 else -value

    def signed(self, k: int, negative: bool) -> int:
        if self.posit:
            return (-k) % (1 << self.bits) if negative else k
        if self.one_zero and k in (0, self.sign_code):
            return k
        return k + self.sign_code if negative else k

    def special(self, x: float) -> int:
        """Return the code of a NaN, an infinity or a zero."""
        negative = math.copysign(1, x) < 0
        if self.posit:
            saturates = math.isinf(x) and self.infinity == "saturate"
            if x == 0:
                return 0
            return self.signed(self.largest, negative) if saturates else self.nan_code
        if math.isnan(x):
            return self.signed(self.largest if self.nan_code is None else self.nan_code, negative)
        return self.signed(0 if x == 0 else self.overflow_code, negative)

    def is_odd(self, k):
        """Tell whether a code, or each of an array, is odd. With one digit, every significand but
        0's is odd, and a tie goes to the larger one (IEEE 754-2019, section 4.3.1). P3109 decides
        by the code then."""
        one_digit = not self.posit and self.man_bits == 0 and not self.one_zero
        return k != 0 if one_digit else k % 2 == 1

    def encode(self, x: Fraction | float, mode: str = "nearest_even") -> int:
        """Return the code of one value."""
        if isinstance(x, float):
            if not math.isfinite(x) or x == 0:
                return self.special(x)
            x = Fraction(x)
        if x == 0:
            return 0
        return self.encode_place(*self.locate(abs(x)), x < 0, mode)

    def locate(self, m: Fraction, square: bool = False) -> tuple[int, int | None]:
        """Return the code at or below a magnitude (square: below its root), and its side of the
        boundary: -1, 0, 1, or None where exact."""
        power = 2 if square else 1
        k = bisect_right(range(1, self.largest + 1), m, key=lambda i: self.magnitude(i) ** power)
        if not self.subnormals and k < 1 << self.man_bits:
            k = 0
        if self.magnitude(k) ** power == m:
            return k, None
        if self.posit and k in (0, self.largest) and not (k == 0 and self.underflow == "zero"):
            return k, 1  # no boundary: never 0, never NaR
        boundary = self.boundary(k) ** power
        return k, (m > boundary) - (m < boundary)

    def moves(self, k: int, side: int | None, negative: bool, mode: str) -> bool:
        """Tell whether the place that locate() returned rounds to the code above."""
        if side is None or (self.posit and k == self.largest):
            return False
        if self.posit and k == 0 and self.underflow == "minpos":
            return True
        return goes_out(mode, side, self.is_odd(k), negative)

    def encode_place(self, k: int, side: int | None, negative: bool, mode: str) -> int:
        """Return the rounded code of the place that locate() returned."""
        up = self.moves(k, side, negative, mode)
        if up and k == self.largest:
            return self.signed(k if mode == "to_odd" else self.overflow_code, negative)
        return self.signed(self.successor(k) if up else k, negative)


class Table:
    """A format of at most 20 bits as sorted float64 arrays (checked to be exact), for whole arrays
    at once."""

    def __init__(self, spec: Spec):
        self.spec = spec
        first = 1 if spec.subnormals else 1 << spec.man_bits
        self.codes = np.array([0, *range(first, spec.largest + 1)])
        self.values = exact_floats(spec.magnitude(int(k)) for k in self.codes)
        upper = self.codes if not spec.posit else self.codes[:-1]
        self.boundaries = exact_floats(spec.boundary(int(k)) for k in upper)
        if spec.posit:
            self.boundaries = np.append(self.boundaries, np.inf)
            if spec.underflow == "minpos":
                self.boundaries[0] = 0.0

    def decode(self) -> np.ndarray:
        """Return the values of all codes."""
        return np.array([float(self.spec.decode(c)) for c in range(1 << self.spec.bits)])

    def encode(self, x: np.ndarray, mode: str = "nearest_even") -> np.ndarray:
        spec, m, negative = self.spec, np.abs(x), np.signbit(x)
        finite = np.isfinite(x) & (m > 0)
        at = np.searchsorted(self.values, np.where(finite, m, 0.0), side="right") - 1
        lower = self.codes[at]
        side = (m > self.boundaries[at]) * 1 - (m < self.boundaries[at])
        up = goes_out(mode, side, spec.is_odd(lower), negative) & (self.values[at] != m)
        if spec.posit:
            up = (up | ((lower == 0) & (spec.underflow == "minpos"))) & (lower != spec.largest)
        beyond = up & (lower == spec.largest)
        if mode == "to_odd":
            up &= ~beyond
            beyond[:] = False
        k = np.where(up, self.codes[np.minimum(at + 1, len(self.codes) - 1)], lower)
        k = np.where(beyond, spec.overflow_code, k)
        codes = self.signed(k, negative)
        for i in np.flatnonzero(~finite):
            codes[i] = spec.special(float(x[i]))
        return codes

    def signed(self, k: np.ndarray, negative: np.ndarray) -> np.ndarray:
        spec = self.spec
        if spec.posit:
            return np.where(negative, -k % (1 << spec.bits), k)
        one = (k == 0) | (k == spec.sign_code) if spec.one_zero else False
        return np.where(negative & ~np.asarray(one), k + spec.sign_code, k)

    def inputs(self) -> np.ndarray:
        """Return every value and every boundary with its two float64 neighbours, numbers beyond the
        range, and special values, in both signs."""
        b = self.boundaries[np.isfinite(self.boundaries) & (self.boundaries > 0)]
        top, least = float(self.values[-1]), float(self.values[1])
        extra = [
            0.0,
            np.inf,
            np.nan,
            top * 1.01,
            top * 1.9,
            min(top * 2, 1e308),
            1e300,
            np.finfo(np.float64).max,
            least / 2,
            least / 3,
            least * 0.75,
            least / 1e6,
            5e-324,
            1e-310,
            2.0**-126,
            2.0**-149,
            3 * 2.0**-149,
            2.0**-127,
        ]
        with np.errstate(over="ignore"):
            x = np.concatenate([self.values, b, np.nextafter(b, 0), np.nextafter(b, np.inf), extra])
        return np.concatenate([x, -x])

    def all_inputs(self) -> np.ndarray:
        """Return inputs() and the float64 neighbours of the values, where directed modes change."""
        x = self.values[self.values > 0]
        near = np.concatenate([np.nextafter(x, 0), np.nextafter(x, np.inf)])
        return np.concatenate([self.inputs(), near, -near])


def exact_floats(fractions) -> np.ndarray:
    """Convert fractions to float64 numbers; raise if one is inexact."""
    numbers = []
    for f in fractions:
        numbers.append(f.numerator / f.denominator)
        n, d = numbers[-1].as_integer_ratio()
        if n * f.denominator != f.numerator * d:
            raise AssertionError(f"expected a fraction that float64 has, but got {f}")
    return np.array(numbers)


def posit(bits: int, es: int, **options) -> Spec:
    return Spec("posit", bits, es, **options)


def takum(bits: int) -> Spec:
    """Return a linear takum."""
    return Spec("takum", bits, 0)


def binary(exp_bits: int, man_bits: int, *, bias: int | None = None, **options) -> Spec:
    """Return a float. The default bias is IEEE 754's, or one more as in P3109 where the code of
    minus zero is the NaN."""
    standard = 2 ** (exp_bits - 1) - (options.get("specials") not in ("fnuz", "p3109"))
    return Spec(
        "float",
        1 + exp_bits + man_bits,
        exp_bits,
        man_bits,
        standard if bias is None else bias,
        **options,
    )


@cache
def table(spec: Spec) -> Table:
    return Table(spec)


# ---- formats too wide for a table ----


def wide_codes(spec, count, seed=0):
    """Return nonnegative codes: the extremes, every run length of ones and zeros, and seeded
    ones."""
    rng = np.random.default_rng(seed)
    runs = [(1 << i) - ones for i in range(spec.bits) for ones in (0, 1)]
    ends = [0, 1, 2, 3, *range(spec.largest - 2, spec.largest + 1), *runs]
    random = rng.integers(0, spec.largest, count) >> rng.integers(0, spec.bits - 1, count)
    some = (
        {k for k in ends if 0 <= k <= spec.largest}
        | set(random.tolist())
        | {spec.largest - int(k) for k in random}
    )
    return sorted(k for k in some if k == 0 or spec.subnormals or k >= 1 << spec.man_bits)


def wide_vectors(spec, count, mode="nearest_even"):
    """Return values and their expected codes, made from the codes without a search."""
    x, codes = [], []
    for k in wide_codes(spec, count):
        v = exact_floats([spec.magnitude(k)])[0]
        near = [(v, None)]
        if not (spec.posit and (k == spec.largest or (k == 0 and spec.underflow == "minpos"))):
            b = exact_floats([spec.boundary(k)])[0]
            with np.errstate(over="ignore"):
                near += [
                    (b, 0),
                    (np.nextafter(b, 0), -1),
                    (np.nextafter(b, np.inf), 1),
                    (np.nextafter(v, np.inf), -1),
                ]
            near = [(value, side) for value, side in near if side != -1 or v < value < b]
        for value, side in near:
            x += [value, -value]
            codes += [
                spec.encode_place(k, side, False, mode),
                spec.encode_place(k, side, True, mode) if value else spec.special(-0.0),
            ]
    for value in (
        np.inf,
        np.nan,
        -np.inf,
        -np.nan,
        5e-324,
        -5e-324,
        2.0**-149,
        np.finfo(np.float64).max,
    ):
        x.append(value)
        codes.append(spec.encode(value, mode))
    return np.array(x), as_int64(codes)


def as_int64(codes):
    return np.array([c - (1 << 64) if c >> 63 else c for c in codes])
