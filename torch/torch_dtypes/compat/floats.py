"""Floats as Higham and Pranesh's chop describes them: by the bits of their significand and their
largest exponent.

Source: "Simulating low precision floating-point arithmetic", SISC 41 (2019).
"""

from __future__ import annotations

import dataclasses

import torch

from ..formats.arguments import integer, mode_name
from ..formats.naming import bias_name
from ..targets.chop import chop
from ..targets.gradients import straight_through

# Whether a positive and a negative value beyond the largest finite magnitude becomes an infinity.
# The other modes have rounded to within that magnitude, or not, before this is asked.
_TO_INFINITY = {
    "up": (True, False),
    "down": (False, True),
    "toward_zero": (False, False),
    "to_odd": (False, False),
}


@dataclasses.dataclass(frozen=True)
class Float:
    """A format by chop's parameters.

    Args:
        t: bits of the significand, the hidden one included, 2 to 53.
        emax: the largest exponent, 1 to 511, or 1023. A normal number's smallest is 1 - emax.
        subnormal: False: zero is the only number below 2^(1 - emax).
        explim: False: exponents have no limits.
    """

    t: int
    emax: int
    subnormal: bool = True
    explim: bool = True

    def __post_init__(self):
        object.__setattr__(self, "t", integer("the significand's bits", self.t, 2, 53))
        emax = 1023 if self.emax == 1023 else integer("the largest exponent", self.emax, 1, 511)
        object.__setattr__(self, "emax", emax)

    @property
    def name(self) -> str | None:
        """The name of the format of this package with the same numbers; None if there is none."""
        bits = (self.emax + 1).bit_length()
        return self._name(bits) if self.explim and self.emax == 2 ** (bits - 1) - 1 else None

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return 2.0**self.emax * (2 - 2.0 ** (1 - self.t))

    def round(
        self,
        x: torch.Tensor,
        rounding: str | int = "nearest_even",
        *,
        flip_prob: float = 0.0,
        generator: torch.Generator | None = None,
        draws: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Round the tensor x as ``torch_dtypes.chop`` does.

        Args:
            draws: numbers from 0 to 1 in x's shape, for the modes ``stochastic`` and
                ``stochastic_equal``: a value goes away from zero where its number is below the
                probability of that. They take the place of the generator.
        """
        mode, how = mode_name(rounding), {"flip_prob": flip_prob, "generator": generator}
        if draws is not None and mode not in ("stochastic", "stochastic_equal"):
            raise ValueError(f"expected a stochastic mode with random numbers, but got {mode!r}")
        if draws is not None and draws.shape != x.shape:
            raise ValueError(
                f"expected random numbers of shape {tuple(x.shape)}, but got {tuple(draws.shape)}"
            )
        if not self.explim and x.dtype is not torch.float64 and draws is None:
            return chop(x, f"e11m{self.t - 1}", mode, **how)  # its exponents end beyond float32's
        if not self.explim:
            significands, exponents = torch.frexp(x.detach())
            rounded = _round(significands, f"e11m{self.t - 1}", mode, draws, how)
            return straight_through(x, torch.ldexp(rounded, exponents))
        if draws is None and self.name is not None:
            return chop(x, self.name, mode, **how)
        # The format of more exponent bits, with the same smallest numbers.
        name = self._name(min(11, (2 * self.emax + 2).bit_length()))
        return straight_through(x, self._limit(x, _round(x.detach(), name, mode, draws, how), mode))

    def _name(self, exp_bits: int) -> str:
        bias = bias_name(None if self.emax == 2 ** (exp_bits - 1) - 1 else self.emax)
        return f"e{exp_bits}m{self.t - 1}{bias}{'' if self.subnormal else '_flush'}"

    def _limit(self, x: torch.Tensor, rounded: torch.Tensor, mode: str) -> torch.Tensor:
        """Replace finite values beyond the largest finite number."""
        for sign, to_infinity in zip((1, -1), _TO_INFINITY.get(mode, (True, True)), strict=True):
            limit = sign * (torch.inf if to_infinity else self.largest)
            beyond = (sign * rounded > self.largest) & (to_infinity | x.isfinite())
            rounded = torch.where(beyond, limit, rounded)
        return rounded


def _round(x, name, mode, draws, how):
    if draws is None:
        return chop(x, name, mode, **how)
    magnitude = x.abs()
    low, high = chop(magnitude, name, "toward_zero"), chop(magnitude, name, "up")
    likely = 0.5 if mode == "stochastic_equal" else (magnitude - low) / (high - low)
    rounded = torch.where((draws < likely) & (low != magnitude), high, low).copysign(x)
    return chop(rounded, name, **how) if how["flip_prob"] else rounded  # which only flips bits
