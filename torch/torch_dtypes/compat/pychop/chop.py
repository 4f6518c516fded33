"""Pychop's rounding to IEEE-style floats."""

from __future__ import annotations

from ...formats.arguments import integer
from ..floats import Float
from .chopper import Chopper, find_mode

__all__ = ["Chop", "LightChop"]


class Chop(Chopper):
    """Rounds arrays to floats of ``exp_bits`` exponent and ``sig_bits`` fraction bits, with
    infinities and NaN.

    Overflow is IEEE 754's: the largest number toward zero, else an infinity. NaN stays NaN.

    Args:
        exp_bits: 2 to 10, or 11.
        sig_bits: 1 to 52, without the hidden bit.
        rmode: 1 nearest even, 2 up, 3 down, 4 toward zero, 5 stochastic, 6 and 10 up or down with
            equal probability, 7 and 8 nearest with ties to zero and away, 9 to odd.
        subnormal: False: 0 is the only number below the smallest normal one.
        chunk_size: changes nothing.
        random_state: the seed of this object's own random numbers; None: another one each time.
        verbose: whether to print the unit roundoff ``u``.

    Raises:
        TypeError: a number of bits is no integer.
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        exp_bits: int,
        sig_bits: int,
        rmode: int = 1,
        subnormal: bool = True,
        chunk_size: int = 800,
        random_state: int | None = 42,
        verbose: int = 0,
    ) -> None:
        self._mode = find_mode(rmode)
        self._target = ieee_float(exp_bits, sig_bits, subnormal).name
        self.exp_bits, self.sig_bits, self.rmode = exp_bits, sig_bits, rmode
        self.subnormal, self.chunk_size, self.random_state = subnormal, chunk_size, random_state
        self.u = 2.0 ** -(sig_bits + 1)
        self._seed(random_state)
        self._announce(verbose)


def ieee_float(exp_bits: int, sig_bits: int, subnormal: bool) -> Float:
    """Return the float of IEEE 754's kind with so many bits."""
    exp_bits = integer("exp_bits", exp_bits, 2, 11)
    sig_bits = integer("sig_bits", sig_bits, 1, 52)
    return Float(sig_bits + 1, 2 ** (exp_bits - 1) - 1, bool(subnormal))


LightChop = Chop  # its name in older releases
