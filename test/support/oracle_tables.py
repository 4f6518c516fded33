"""Tables of values by their definition, in exact rationals: the code of a number, in every mode,
for given random words."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

from oracle import flip_coin, goes_out
from rationals import Fraction

STOCHASTIC = ("stochastic", "stochastic_equal", "up_down")


@dataclass
class Beyond:
    """One end of the range. `code` is None where numbers beyond it saturate; `next` is the value
    that would follow, and `limit` the boundary before it."""

    code: int | None = None
    infinity: int = 0
    next: Fraction = Fraction(0)
    limit: Fraction = Fraction(0)


@dataclass
class TableOracle:
    values: list[float]
    nan_code: int
    ties: str = "even"
    boundaries: list[Fraction] | None = None
    high: Beyond = field(default_factory=Beyond)
    low: Beyond = field(default_factory=Beyond)
    minpos: bool = False
    negative_is_nan: bool = False

    def __post_init__(self):
        finite = {}
        for code, v in enumerate(self.values):
            if math.isfinite(v):
                finite.setdefault(Fraction(v), []).append((math.copysign(1, v) < 0, code))
        self.ordered = sorted(finite)
        self.codes = [dict(finite[v]) for v in self.ordered]  # by sign: two codes for two zeros
        if self.boundaries is None:
            self.boundaries = [
                (a + b) / 2 for a, b in zip(self.ordered, self.ordered[1:], strict=False)
            ]

    def code(self, place: int, negative: bool) -> int:
        codes = self.codes[place]
        return codes.get(negative, next(iter(codes.values())))

    def _step(self, place: int, negative: bool, outwards: bool) -> int:
        """Return in up_down the code of the next value, away from 0 or towards it."""
        value = self.ordered[place]
        if value == 0:
            return self.code(place, negative)
        to = place + (1 if outwards == (value > 0) else -1)
        if to < 0 or to >= len(self.ordered):
            end = self.high if to > 0 else self.low
            return self.code(place, negative) if end.code is None else end.code
        if self.minpos and self.ordered[to] == 0:
            to = place
        return self.code(to, negative)

    def encode(
        self, x: float | Fraction, mode: str, word: int = 0, few: tuple[str, int] | None = None
    ) -> int:
        if isinstance(x, float):
            if math.isnan(x):
                return self.nan_code
        if self.negative_is_nan and x < 0 and Fraction(0) not in self.ordered:
            return self.nan_code
        if isinstance(x, float):
            if math.isinf(x):
                return (self.high if x > 0 else self.low).infinity
        negative = math.copysign(1, x) < 0 if isinstance(x, float) else x < 0
        return self._encode(Fraction(x), negative, mode, word, few)

    def _encode(self, x, negative, mode, word, few):
        def final(place):
            return (
                self._step(place, negative, word >= 2**63)
                if mode == "up_down"
                else self.code(place, negative)
            )

        last = len(self.ordered) - 1
        at = bisect_right(self.ordered, x) - 1
        if at >= 0 and self.ordered[at] == x:
            return final(at)
        if at < 0 or at == last:
            return self._beyond(x, at < 0, negative, mode, word, few, final)
        lower, upper = self.ordered[at], self.ordered[at + 1]
        if self.minpos and 0 in (lower, upper):
            return final(at if upper == 0 else at + 1)
        inner_is_lower = abs(lower) < abs(upper) or (abs(lower) == abs(upper) and negative)
        inner, outer = (at, at + 1) if inner_is_lower else (at + 1, at)
        lower_code, upper_code = (
            self.code(at, negative) if lower else min(self.codes[at].values()),
            None,
        )
        upper_code = self.code(at + 1, negative) if upper else min(self.codes[at + 1].values())
        beside_zero = 0 in (lower, upper)
        if lower_code % 2 != upper_code % 2:
            lower_is_odd = lower_code % 2 == 1
        else:
            lower_is_odd = lower != 0 if beside_zero else at % 2 == 1
        out = self._goes_out(
            x,
            self.ordered[inner],
            self.ordered[outer],
            self.boundaries[at],
            lower_is_odd == inner_is_lower,
            mode,
            word,
            few,
        )
        return final(outer if out else inner)

    def _beyond(self, x, below, negative, mode, word, few, final):
        end, place = (self.low, 0) if below else (self.high, len(self.ordered) - 1)
        if end.code is None:
            return final(place)
        refused = self.negative_is_nan and x < 0
        if not refused and (
            mode in ("toward_zero", "to_odd") or mode == ("up" if below else "down")
        ):
            return self.code(place, negative)
        if (x <= end.next) if below else (x >= end.next):
            return end.code
        inner_code = self.code(place, negative)
        if self._goes_out(
            x, self.ordered[place], end.next, end.limit, inner_code % 2 == 1, mode, word, few
        ):
            return end.code
        return final(place)

    def _goes_out(self, x, inner, outer, boundary, inner_is_odd, mode, word, few) -> bool:
        """Tell whether x, between two values, goes to the one further from 0."""
        if mode.startswith("stochastic"):
            share = (x - inner) / (outer - inner)
            if mode == "stochastic_equal" or few is None:
                return flip_coin(mode, share, word)
            kind, n = few
            scaled = share * 2**n
            cut = {
                "a": math.floor(scaled),
                "b": math.floor(scaled + Fraction(1, 2)),
                "c": round(scaled),
            }[kind]
            return cut + (word >> (64 - n)) >= 2**n
        negative, side = outer < inner, (x > boundary) - (x < boundary)
        if mode in ("nearest_even", "up_down") and self.ties != "even":
            mode = "nearest_up" if self.ties == "down" else f"nearest_{self.ties}"
            return goes_out(
                mode, -side if negative else side, inner_is_odd, negative ^ (self.ties == "down")
            )
        return goes_out(mode, -side if negative else side, inner_is_odd, negative)

    def inputs(self) -> list[float]:
        """Return every value and boundary with its float64 neighbours, numbers beyond the range,
        signs of 0, infinities, NaN."""
        points = [*self.ordered, *self.boundaries]
        for end in (self.high, self.low):
            if end.code is not None:
                points += [end.next, end.limit]
        x = []
        for p in points:
            f = float(p)
            x += [f, math.nextafter(f, math.inf), math.nextafter(f, -math.inf)]
        edge = max(abs(float(self.ordered[0])), abs(float(self.ordered[-1])))
        return [
            *x,
            0.0,
            -0.0,
            5e-324,
            -5e-324,
            edge * 1.1,
            edge * -1.1,
            edge * 9,
            edge * -9,
            1e308,
            -1e308,
            math.inf,
            -math.inf,
            math.nan,
        ]


def of_definition(d) -> TableOracle:
    """Build the oracle from a torch_dtypes.formats.tables.definition.Definition."""
    finite = [(v, c) for c, v in enumerate(d.values) if math.isfinite(v)]

    def end(given, outermost):
        value, code = outermost
        infinity = code if given.infinity is None else given.infinity
        if given.code is None:
            return Beyond(None, infinity)
        limit = (
            (Fraction(value) + Fraction(given.next)) / 2
            if given.limit is None
            else Fraction(given.limit)
        )
        return Beyond(given.code, infinity, Fraction(given.next), limit)

    boundaries = None
    if d.boundaries is not None:
        # float64's results rounded to odd are on the same side of a boundary as of its 52 bits. On
        # those bits, the rest decides.
        rests = d.rests or (0.0,) * len(d.boundaries)
        boundaries = [
            Fraction(b) + Fraction(rest) / 2**4000
            for b, rest in zip(d.boundaries, rests, strict=True)
        ]
    ends = {"high": end(d.high, max(finite)), "low": end(d.low, min(finite))}
    return TableOracle(
        list(d.values),
        d.nan_code,
        d.ties,
        boundaries,
        minpos=d.minpos,
        negative_is_nan=d.negative_is_nan,
        **ends,
    )
