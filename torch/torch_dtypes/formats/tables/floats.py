"""Unusual floats of at most 16 bits, as tables. They have no sign, normal numbers in the lowest
binade, infinities that stay while finite numbers saturate, or exponents only.

Sources: OCP Microscaling Formats 1.0, section 5.4 (e8m0); Agrawal et al., "DLFloat", ARITH 2019;
IEEE P3109 (Binary<K>p<P>{s,u}{e,f} with SatNone, SatFinite and SatPropagate).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .definition import Definition, End
from .making import named


@dataclass(frozen=True)
class TabledFloat:
    """The parameters of float_format, and the table that follows from them."""

    exp_bits: int
    man_bits: int
    bias: int
    signed: bool
    subnormals: bool | str
    specials: str
    overflow: str

    @property
    def magnitude_bits(self) -> int:
        return self.exp_bits + self.man_bits

    @property
    def one_zero(self) -> bool:
        """Whether NaN has the code of minus zero."""
        return self.signed and self.specials in ("fnuz", "p3109")

    @property
    def largest(self) -> int:
        """The code of the largest finite value."""
        ones = (1 << self.magnitude_bits) - 1
        if self.specials == "ieee":
            return ones - (1 << self.man_bits)
        nans = 0 if self.specials == "none" or self.one_zero else 1
        return ones - nans - (self.specials == "p3109")

    @property
    def nan_code(self) -> int | None:
        if self.one_zero:
            return 1 << self.magnitude_bits
        if self.specials == "none":
            return None
        return (
            self.largest + 1 + (1 << (self.man_bits - 1))
            if self.specials == "ieee"
            else (1 << self.magnitude_bits) - 1
        )

    @property
    def has_infinity(self) -> bool:
        return self.specials in ("ieee", "p3109")

    def magnitude(self, code: int) -> float:
        """Return the value of a code without a sign. Codes beyond the largest continue the
        exponents."""
        field, fraction = code >> self.man_bits, code & ((1 << self.man_bits) - 1)
        if field == 0 and self.subnormals != "normal":
            return math.ldexp(fraction, 1 - self.bias - self.man_bits) if self.subnormals else 0.0
        return (
            math.ldexp(fraction + (1 << self.man_bits), field - self.bias - self.man_bits)
            if code
            else 0.0
        )

    def _exists(self, code: int) -> bool:
        return code <= self.largest and (
            self.subnormals is not False or code == 0 or code >> self.man_bits > 0
        )

    def definition(self) -> Definition:
        infinite = self.largest + 1 if self.has_infinity else None
        values = [
            self.magnitude(c) if self._exists(c) else math.nan
            for c in range(1 << self.magnitude_bits)
        ]
        if infinite is not None:
            values[infinite] = math.inf
        sign = 1 << self.magnitude_bits
        if self.signed:
            values += [-v for v in values]
            if self.one_zero:
                values[sign] = math.nan
        nan_code = self.largest if self.nan_code is None else self.nan_code
        beyond = {
            "ieee": infinite if self.has_infinity else self.nan_code,
            "saturate": None,
            "propagate": None,
        }[self.overflow]
        if self.overflow == "saturate" or self.specials == "none":
            infinity = self.largest
        else:
            infinity = infinite if self.has_infinity else nan_code
        following = self.magnitude(self.largest + 1)

        def end(sign: int, x: float) -> End:
            if beyond is None:
                return End(None, infinity | sign)
            return End(
                beyond if beyond == nan_code else beyond | sign,
                infinity if infinity == nan_code else infinity | sign,
                x,
            )

        if self.signed:
            return Definition(
                tuple(values), nan_code, high=end(0, following), low=end(sign, -following)
            )
        smallest = next(v for v in values if v > 0)
        if self.nan_code is None or self.overflow == "saturate":
            low = End(None, 0)
        elif self.overflow == "propagate":
            low = End(None, nan_code)
        else:
            low = End(nan_code, nan_code, -smallest)
        return Definition(
            tuple(values),
            nan_code,
            high=end(0, following),
            low=low,
            negative_is_nan=low.code is not None,
        )


@named(r"e([2-9]|10)m0")
def exponents(exp_bits: int) -> Definition:
    """Define powers of two, 2^(code - bias), and one NaN, without zero, sign or infinity.

    Numbers below the smallest one become the smallest, those below 0 become NaN. A tie rounds up,
    as in ml_dtypes and PyTorch: its neighbours are 1 and 2 times the lower one, and 2 is even.
    (OCP's text leaves casts open.)
    """
    count, bias = 1 << exp_bits, 2 ** (exp_bits - 1) - 1
    values = (*(math.ldexp(1, c - bias) for c in range(count - 1)), math.nan)
    return Definition(
        values,
        count - 1,
        "away",
        high=End(count - 1, count - 1, math.ldexp(1, count - 1 - bias)),
        negative_is_nan=True,
    )
