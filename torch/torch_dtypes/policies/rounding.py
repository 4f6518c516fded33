"""rounding: the rounding mode of a block of code."""

from __future__ import annotations

import torch

from .. import _C
from ..formats.arguments import mode_and_bits
from .autocast import find_autocast_devices
from .overrides import Override

__all__ = ["rounding"]

_IDLE = (
    "expected something to be rounded to a number format in the block of rounding({0!r}), but "
    "got none on its thread, since the mode does not affect stock tensors; use a format dtype, as "
    "in model.to(torch_dtypes.dtype('e8m23')), which has float32's values, "
    "torch_dtypes.quantize_(model, ...), or torch_dtypes.fuzzy(model, {0!r}) around float32 code"
)


def rounding(mode: str | int) -> Override:
    """Round every result of a number format by ``mode`` in a block, instead of by the dtypes' own
    modes::

        with torch_dtypes.rounding("toward_zero"):
            y = model(x)

    The mode holds on the calling thread, for casts, operators and factories, and for backward
    passes that start in the block. Operations that only move or select values do not round. Blocks
    nest, and an exception ends them too. The result can decorate a function and be used many times.

    Args:
        mode: one of ``ROUNDING_MODES``, or Pychop's number from 1 to 9. ``"stochastic_a4"``, as in
            names of dtypes, is ``stochastic`` with 4 random bits by IEEE P3109's definition a (or
            b, or c). ``"stochastic"`` leaves the number of bits to each dtype.

    Raises:
        ValueError: not a mode.

    Warns:
        UserWarning: the block rounded nothing to a format on this thread, as around a float32
            model.

    Example::

        >>> with torch_dtypes.rounding("up"):
        ...     print(torch.tensor([1.01]).to(torch.q43))
        tensor([1.1250], dtype=torch.q43)
    """
    return Override(_exchange, mode_and_bits(mode), "rounding", _IDLE, mode)


def rounding_block(mode: str | int) -> Override:
    """Return ``rounding`` for this package's own code, without the warning of idle blocks."""
    return Override(_exchange, mode_and_bits(mode))


def own_modes() -> Override:
    """Return a block in which every dtype rounds by its own mode, even inside another block."""
    return Override(_exchange, (None, (0, _C.FewBits.a)))


def _exchange(mode_and_bits: tuple) -> tuple:
    """Set a thread's mode and number of random bits, and return the previous ones."""
    mode, bits = mode_and_bits
    if find_autocast_devices():
        torch.clear_autocast_cache()  # it has weights that another mode rounded
    return _C.set_rounding_override(mode), _C.set_few_bits_override(bits)
