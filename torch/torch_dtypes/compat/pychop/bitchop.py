"""Pychop's rounding to floats that shows the fields of the results' codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .arrays import take
from .chop import ieee_float
from .chopper import Chopper, find_mode

__all__ = ["Bitchop"]


class Bitchop(Chopper):
    """Rounds arrays of float32 or float64 to floats of ``exp_bits`` exponent and ``sig_bits``
    fraction bits. After a call ``sign``, ``exponent`` (biased), ``significand`` (the fraction's
    bits), ``is_denormal`` and ``rounding_value`` are those of the results.

    Args:
        rmode, subnormal, random_state, verbose: as in ``Chop``.
        device: changes nothing: results are where the array is.

    Raises:
        ValueError: an argument out of range, or an array of another dtype.
        OverflowError: a number rounds to an infinity, or is none.
    """

    def __init__(
        self,
        exp_bits: int,
        sig_bits: int,
        rmode: int | str = "nearest_even",
        subnormal: bool = True,
        random_state: int | None = 42,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self._mode = find_mode(rmode)
        self._target = ieee_float(exp_bits, sig_bits, subnormal).name
        self.exp_bits, self.sig_bits, self.rmode = exp_bits, sig_bits, rmode
        self.subnormal, self.random_state = subnormal, random_state
        self.u = 2.0 ** -(sig_bits + 1)
        self._seed(random_state)
        self._announce(verbose)

    def __call__(self, values: Any) -> Any:
        x = take(values)
        if str(x.dtype).removeprefix("torch.") not in ("float32", "float64"):
            raise ValueError(f"expected an array of float32 or float64, but got {x.dtype}")
        result = super().__call__(x)
        flat = np.asarray(result.detach() if isinstance(result, torch.Tensor) else result)
        if not np.isfinite(flat).all():
            raise OverflowError(
                f"expected numbers within the range of {self._target}, but got one beyond; round "
                "by Chop to have infinities"
            )
        self.value, self.rounding_value = values, result
        self._find_fields(flat.astype(np.float64))
        return result

    def _find_fields(self, x: np.ndarray) -> None:
        bias = 2 ** (self.exp_bits - 1) - 1
        exponents = np.maximum(np.frexp(x)[1] - 1, 1 - bias)
        digits = np.ldexp(np.abs(x), self.sig_bits - exponents).astype(np.int64)
        normal = digits >> self.sig_bits
        self.sign = np.signbit(x).astype(np.uint8)
        self.exponent = np.where(normal, exponents + bias, 0)
        self.significand = digits - (normal << self.sig_bits)
        self.is_denormal = (normal == 0) & (digits > 0)

    def __str__(self) -> str:
        fields = (self.value, self.sign, self.exponent, self.significand, self.rounding_value)
        return "\n".join(
            f"value: {value}, sign: {s}, exp: {e}, sig: {f:0{self.sig_bits}b}, rounded: {rounded}"
            for value, s, e, f, rounded in zip(*(np.ravel(part) for part in fields), strict=True)
        )
