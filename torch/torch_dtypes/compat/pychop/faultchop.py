"""Pychop's rounding by the options of Higham's chop: without exponent limits, with flipped bits,
and with given random numbers.

Source: Higham, Pranesh, "Simulating low precision floating-point arithmetic", SISC 41 (2019).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch

from ...formats.arguments import outline
from ..floats import Float
from .arrays import library, take
from .chop import ieee_float
from .chopper import RANDOM, Chopper, find_mode

__all__ = ["Customs", "FaultChop", "Options"]


@dataclasses.dataclass
class Customs:
    """A float by ``t`` and ``emax`` (bits of the significand with the hidden one, largest
    exponent), or by ``exp_bits`` and ``sig_bits`` (without the hidden bit)."""

    emax: int | None = None
    t: int | None = None
    exp_bits: int | None = None
    sig_bits: int | None = None


@dataclasses.dataclass
class Options:
    """The options of a ``FaultChop``."""

    t: int
    emax: int
    prec: str
    subnormal: bool
    rmode: int
    flip: bool
    explim: bool
    p: float


# Names of formats, and their t and emax.
PRECISIONS = {
    **dict.fromkeys(("q43", "fp8-e4m3"), (4, 7)),
    **dict.fromkeys(("q52", "fp8-e5m2"), (3, 15)),
    **dict.fromkeys(("h", "half", "fp16"), (11, 15)),
    **dict.fromkeys(("b", "bfloat16", "bf16"), (8, 127)),
    **dict.fromkeys(("t", "tf32"), (11, 127)),
    **dict.fromkeys(("s", "single", "fp32"), (24, 127)),
    **dict.fromkeys(("d", "double", "fp64"), (53, 1023)),
}


class FaultChop(Chopper):
    """Rounds arrays to a float, and flips bits of the results.

    Overflow is IEEE 754's: the largest number toward zero, else an infinity. NaN stays NaN.

    Args:
        prec: the name of a format, from ``"q43"`` to ``"fp64"``.
        subnormal: False: 0 is the only number below the smallest normal one. Default: True, but for
            ``"b"`` and ``"bfloat16"``.
        rmode: as in ``Chop``.
        flip, p: with ``flip``, the probability p with which one random bit of a result's fraction
            is flipped.
        explim: False: exponents have no limits.
        randfunc: a function of a number of elements, and for tensors of ``device=``, that returns
            as many numbers from 0 to 1. In modes 5 and 6 an element goes away from zero where its
            number is below the probability of that.
        customs: a float in the place of ``prec``.
        random_state: the seed of this object's own random numbers; None: another one each time.
        verbose: whether to print the unit roundoff ``u``.

    Raises:
        NotImplementedError: an unknown ``rmode``.
        ValueError: an unknown ``prec``, or a number out of range.
    """

    def __init__(
        self,
        prec: str = "h",
        subnormal: bool | None = None,
        rmode: int | str = 1,
        flip: bool = False,
        explim: int = 1,
        p: float = 0.5,
        randfunc: Callable | None = None,
        customs: Customs | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self._mode = find_mode(rmode, NotImplementedError)
        self.subnormal = prec not in ("b", "bfloat16") if subnormal is None else subnormal
        self._float = _find_float(prec, customs, bool(self.subnormal), bool(explim))
        self.t, self.emax = self._float.t, self._float.emax
        self.u = 2.0**-self.t
        self.prec, self.rmode, self.flip, self.explim, self.p = prec, rmode, flip, explim, p
        self.randfunc, self.customs, self.random_state = randfunc, customs, random_state
        self._flip_prob = p if flip else 0.0
        # Other calls of ``chop`` need no name.
        drawn = randfunc is not None and self._mode in RANDOM
        self._target = None if drawn else self._float.name
        self._seed(random_state)
        self._announce(verbose)

    def __call__(self, X):
        """Round X. The gradient passes straight through."""
        if self._target is not None:
            return super().__call__(X)
        x = take(X)
        if isinstance(x, torch.Tensor) and not x.is_complex():
            return self._round(x, lambda count: self.randfunc(count, device=x.device))
        values = np.asarray(x)
        if values.dtype.kind not in "fiu":
            raise TypeError(
                "expected real numbers without exponent limits or with randfunc, but got "
                f"{outline(x)}; round the real and the imaginary part"
            )
        exact = values if values.dtype.kind == "f" else values.astype(np.float64)
        result = self._round(torch.from_numpy(exact.copy()), self.randfunc).numpy()
        return result if isinstance(x, np.ndarray) else library(x).asarray(result)

    def _round(self, x: torch.Tensor, draw: Callable) -> torch.Tensor:
        draws = None
        if self.randfunc is not None and self._mode in RANDOM:
            draws = torch.as_tensor(draw(x.numel()), dtype=torch.float64, device=x.device)
            if draws.numel() != x.numel():
                raise ValueError(
                    f"expected {x.numel()} numbers from randfunc, but got {draws.numel()}"
                )
            draws = draws.reshape(x.shape)
        return self._float.round(
            x, self._mode, flip_prob=self._flip_prob, generator=self._generator, draws=draws
        )

    @property
    def options(self) -> Options:
        return Options(
            self.t,
            self.emax,
            self.prec,
            self.subnormal,
            self.rmode,
            self.flip,
            self.explim,
            self.p,
        )


def _find_float(prec: str, customs: Customs | None, subnormal: bool, explim: bool) -> Float:
    if customs is None:
        if not isinstance(prec, str) or prec not in PRECISIONS:
            raise ValueError(f"expected prec as one of {', '.join(PRECISIONS)}, but got {prec!r}")
        return Float(*PRECISIONS[prec], subnormal, explim)
    t, emax = customs.t, customs.emax
    if customs.sig_bits is not None:
        t = customs.sig_bits + 1
    if customs.exp_bits is not None:
        emax = ieee_float(customs.exp_bits, 1, True).emax
    return Float(t, emax, subnormal, explim)
