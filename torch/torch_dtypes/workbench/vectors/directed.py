"""Operands of hard cases, drawn at random near ties, cancellation, the ends of the range,
subnormals and specials."""

from __future__ import annotations

import torch

from ... import _C
from .flags import finite_values

# The classes of 16 vectors.
_CLASSES = (
    ("any",) * 4
    + ("special",) * 2
    + ("tie",) * 4
    + ("cancellation",) * 2
    + ("small",) * 2
    + ("large",) * 2
)


def _longer(fmt: _C.Format) -> _C.Format | None:
    """Return the tapered format with one bit more; None for other formats, or if float64 lacks its
    values."""
    if not fmt.is_tapered:
        return None
    if fmt.kind == _C.Kind.takum:
        return _C.Format.takum(fmt.bits + 1)
    longer = _C.Format.posit(fmt.bits + 1, fmt.es)
    return longer if fmt.bits < 64 and longer.fits_double else None


def _fraction_bits(fmt: _C.Format) -> int:
    """Return the length of the longest fraction in a code."""
    if fmt.kind == _C.Kind.table:
        return 0
    return fmt.frac_bits if fmt.kind == _C.Kind.fixed else fmt.significand_bits - 1


class Directed:
    """Draws operands of one operation.

    Args:
        operation: the operation's name. operand, result: the formats.
        seed: the seed; the same one draws the same operands.

    A vector of the classes *tie*, *small* and *large* aims at a result. A tie is half way between
    two numbers of the result's format (for posits, the posit of one more bit). The others are near
    an end of its range. It draws all operands but the last, and chooses the last, or a neighbour of
    it, to bring the exact result nearest to the aim. *cancellation* aims at sums that are small
    relative to the operands, or at results near 1. *special* operands are zeros, NaN, infinities,
    the first and last numbers, and numbers around 1 and around the smallest normal one.
    """

    def __init__(self, operation: str, operand: _C.Format, result: _C.Format, seed: int):
        self.operation, self.operand, self.result = operation, operand, result
        self.codes = 2**operand.bits
        self.generator = torch.Generator().manual_seed(seed)
        self.ladder = None if result.kind != _C.Kind.table else _ladder(result)
        self.specials = self._special_codes()
        self.nearest = _C.Format(operand)
        self.nearest.rounding = _C.Rounding.nearest_even

    # ---- draws ----

    def _integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def _any(self, *shape: int) -> torch.Tensor:
        return self._integers(0, self.codes, *shape)

    def _special(self, *shape: int) -> torch.Tensor:
        return self.specials[self._integers(0, len(self.specials), *shape)]

    def _short(self, cleared: torch.Tensor) -> torch.Tensor:
        """Draw codes whose last bits are 0: numbers with few significant bits."""
        return (self._any(len(cleared)) >> cleared) << cleared

    def _special_codes(self) -> torch.Tensor:
        fmt, sign = self.operand, self.codes // 2
        one = _C.encode_exact(fmt, torch.ones(1, dtype=torch.float64)).item()
        if fmt.kind == _C.Kind.table:
            values = _C.decode_exact(fmt, torch.arange(self.codes))
            order = values.abs().sort().indices  # by magnitude, NaN last
            chosen = torch.cat(
                [
                    order[:6],
                    order[-6:],
                    torch.tensor(
                        [one, _C.encode_exact(fmt, -torch.ones(1, dtype=torch.float64)).item()]
                    ),
                ]
            )
            return chosen.unique()
        around = [0, one, fmt.max_code, 1 << max(_fraction_bits(fmt), 0), sign, self.codes]
        codes = {
            (code + step + negative) % self.codes
            for code in around
            for step in (-2, -1, 0, 1, 2)
            for negative in (0, sign)
        }
        codes |= {
            _C.encode_exact(fmt, torch.tensor([x], dtype=torch.float64)).item()
            for x in (torch.nan, torch.inf, -torch.inf)
        }
        return torch.tensor(sorted(codes))

    # ---- vectors ----

    def draw(self, n: int) -> list[torch.Tensor]:
        """Draw the operands' codes of n vectors, in random order."""
        classes = [getattr(self, f"_{_CLASSES[i]}_vectors")(n // 16) for i in range(16)]
        order = torch.randperm(n // 16 * 16, generator=self.generator)
        return [
            torch.cat([columns[j] for columns in classes])[order] for j in range(len(classes[0]))
        ]

    def draw_dots(self, n: int, terms: int) -> list[torch.Tensor]:
        """Draw the operands' codes of n dot products: mostly normal numbers, and also any codes,
        sums that cancel, or a special number."""
        normal = torch.randn(n, 2 * terms, generator=self.generator, dtype=torch.float64)
        codes = self._encode(normal)
        kind = self._integers(0, 8, n, 1)
        codes = torch.where(kind == 0, self._any(n, 2 * terms), codes)
        # Negate the first half of the terms in the second half.
        half = terms // 2
        if half:
            values = _C.decode_exact(self.operand, codes)
            a, b = values[:, :half], -values[:, terms : terms + half]
            opposed = codes.clone()
            opposed[:, half : 2 * half] = self._encode(a)
            opposed[:, terms + half : terms + 2 * half] = (
                self._encode(b) + self._integers(0, 2, n, half)
            ) % self.codes
            codes = torch.where((kind == 1) | (kind == 2), opposed, codes)
        places = torch.nn.functional.one_hot(self._integers(0, 2 * terms, n), 2 * terms).bool()
        codes = torch.where((kind == 3) & places, self._special(n, 1), codes)
        return list(codes.unbind(1))

    def _any_vectors(self, n: int) -> list[torch.Tensor]:
        return [self._any(n) for _ in range(self._arity)]

    def _special_vectors(self, n: int) -> list[torch.Tensor]:
        # The index of an operand that is certainly special
        chosen = self._integers(0, self._arity, n)
        coin = [self._integers(0, 2, n) for _ in range(self._arity)]
        return [
            torch.where((chosen == i) | (coin[i] == 1), self._special(n), self._any(n))
            for i in range(self._arity)
        ]

    def _tie_vectors(self, n: int) -> list[torch.Tensor]:
        fraction = min(
            max(_fraction_bits(self.operand), self.operand.significand_bits - 1), self.operand.bits
        )
        cleared = self._integers(0, fraction + 1, n)
        first = self._short(cleared)
        if self.operation in ("mul", "fma"):
            # A product with one bit more than fits, or with exactly as many as fit.
            second = self._short(fraction - cleared)
            if self.operation == "mul":
                return [first, second]
            product = _C.decode_exact(self.operand, first) * _C.decode_exact(self.operand, second)
            return self._aim([first, second], self._boundary(self._code_of_result(product)))
        if self.operation in ("add", "sub"):
            first = self._any(n)  # the aim is half a unit in its last place away
            return self._aim(
                [first], self._boundary(self._code_of_result(_C.decode_exact(self.operand, first)))
            )
        return self._aim(
            [self._any(n) for _ in range(self._arity - 1)],
            self._boundary(self._any_result(n)),
            wander=4,
        )

    def _cancellation_vectors(self, n: int) -> list[torch.Tensor]:
        drawn = [self._any(n) for _ in range(self._arity - 1)]
        target = (
            torch.zeros(n, dtype=torch.float64)
            if self.operation in ("add", "sub", "fma")
            else self._signed(torch.ones(n, dtype=torch.float64))
        )
        return self._aim(drawn, target, wander=1)

    def _small_vectors(self, n: int) -> list[torch.Tensor]:
        first = 2 ** max(min(_fraction_bits(self.result) + 1, self.result.bits - 2, 6), 0)
        codes = self._integers(0, first, n)
        # Among the subnormal numbers, and around the smallest normal one.
        if self.result.kind == _C.Kind.float:
            codes = torch.where(
                self._integers(0, 2, n) == 0,
                codes,
                (1 << self.result.man_bits) - 4 + self._integers(0, 8, n),
            ).clamp(min=0)
        # Below the smallest number.
        codes = torch.where(self._integers(0, 2, n) == 0, codes, self._integers(0, 2, n))
        target = self._signed(self._boundary(codes))
        drawn = [self._any(n) for _ in range(self._arity - 1)]
        # Add two small numbers: a large product less a number is seldom small.
        if self.operation == "fma":
            product = self._encode(target / _C.decode_exact(self.operand, drawn[0]))
            return [drawn[0], product, self._encode(target * self._integers(-2, 3, n))]
        return self._aim(drawn, target, wander=2)

    def _large_vectors(self, n: int) -> list[torch.Tensor]:
        codes = (self._last - self._integers(0, 4, n)).clamp(min=0)
        beyond = torch.rand(n, generator=self.generator, dtype=torch.float64) ** 4 + 1
        target = self._boundary(codes).clamp(max=torch.finfo(torch.float64).max / 2) * beyond
        drawn = [self._any(n) for _ in range(self._arity - 1)]
        return self._aim(drawn, self._signed(target), wander=2)

    # ---- aims ----

    @property
    def _arity(self) -> int:
        return {"sqrt": 1, "cast": 1, "fma": 3}.get(self.operation, 2)

    def _signed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self._integers(0, 2, *x.shape) == 0, x, -x)

    def _encode(self, x: torch.Tensor) -> torch.Tensor:
        return _C.encode_exact(self.nearest, x)

    @property
    def _last(self) -> int:
        """Code of the largest magnitude. For tables, all result codes here are places in the
        ladder."""
        return self.result.max_code if self.ladder is None else len(self.ladder[0]) - 1

    def _any_result(self, n: int) -> torch.Tensor:
        return self._integers(0, max(self._last, 1), n)

    def _code_of_result(self, x: torch.Tensor) -> torch.Tensor:
        """Return the codes of the largest magnitudes at or below the given ones."""
        if self.ladder is not None:
            return (
                torch.searchsorted(self.ladder[0], x.abs().nan_to_num(1.0), right=True) - 1
            ).clamp(0, self._last)
        cut = _C.Format(self.result)
        cut.rounding = _C.Rounding.toward_zero
        return _C.encode_exact(cut, x.abs().nan_to_num(1.0)).clamp(max=self.result.max_code)

    def _boundary(self, code: torch.Tensor) -> torch.Tensor:
        """Return the magnitude at which rounding changes from a code to the next. It is half way;
        for posits and takums the number of one more bit; for tables the ladder's boundary."""
        if self.ladder is not None:
            return self.ladder[1][code.clamp(max=self._last)]
        if longer := _longer(self.result):
            return _C.decode_exact(longer, 2 * code + 1)
        values = _C.decode_exact(self.result, code)
        above = _C.decode_exact(self.result, (code + 1).clamp(max=self.result.max_code))
        below = _C.decode_exact(self.result, (code - 1).clamp(min=0))
        return values + torch.where(above > values, above - values, values - below) / 2

    def _aim(
        self, drawn: list[torch.Tensor], target: torch.Tensor, wander: int = 0
    ) -> list[torch.Tensor]:
        """Append the last operand, the one that comes nearest to the target, up to ``wander`` codes
        off."""
        values = [_C.decode_exact(self.operand, c) for c in drawn]
        a = values[0] if values else target
        last = {
            "add": lambda: target - a,
            "sub": lambda: a - target,
            "mul": lambda: target / a,
            "div": lambda: a / target,
            "sqrt": lambda: target * target,
            "fma": lambda: target - a * values[1],
            "cast": lambda: target,
        }[self.operation]()
        if self.operation in ("add", "sub") and not wander:
            # The tie on the other side.
            last = torch.where(self._integers(0, 2, len(last)) == 0, last, -last)
        codes = self._encode(last)
        if wander:
            codes = (codes + self._integers(-wander, wander + 1, len(codes))) % self.codes
        return [*drawn, codes]


def _ladder(fmt: _C.Format) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a table's numbers from 0 up (negated if there are none above 0), and the boundary
    above each. A boundary is the last float64 number that rounds to nearest to the lower number or
    below. That of the last number is as far away as half the distance below it."""
    values = finite_values(fmt)
    sign = 1.0 if (values > 0).any() else -1.0
    steps = torch.cat(
        [torch.zeros(1, dtype=torch.float64), (values * sign)[values * sign > 0]]
    ).unique()
    nearest = _C.Format(fmt)
    nearest.rounding = _C.Rounding.nearest_even
    low, high = steps[:-1].clone(), steps[1:].clone()
    for _ in range(120):  # enough steps, since from 0 on they halve the exponent too
        middle = low + (high - low) / 2
        below = (
            _C.decode_exact(nearest, _C.encode_exact(nearest, middle * sign)) * sign <= steps[:-1]
        )
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    last = steps[-1:] + (steps[-1:] - steps[-2:-1]) / 2
    return steps, torch.cat([low, last.clamp(max=torch.finfo(torch.float64).max)])
