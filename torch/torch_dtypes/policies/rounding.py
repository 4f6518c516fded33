"""The rounding mode of a block of code."""

from __future__ import annotations

import torch

from .. import _C
from ..formats.arguments import mode_and_bits
from .autocast import in_autocast_of_ours
from .overrides import Override

__all__ = ["rounding"]

_IDLE = (
    "expected something to be rounded to a number format in the block of rounding({0!r}), but "
    "got none on its thread: stock tensors obey no rounding mode. Use "
    "model.to(torch_dtypes.dtype('e8m23')), which has float32's numbers, or another format "
    "dtype; torch_dtypes.quantize_(model, ...); or torch_dtypes.fuzzy(model, {0!r}) around "
    "float32 code"
)


def rounding(mode: str | int) -> Override:
    """Rounds every result of a number format by ``mode`` in the block, whatever the dtypes' own
    modes are::

        with torch_dtypes.rounding("toward_zero"):
            y = model(x)

    Holds for the calling thread, for forward and (when ``backward()`` is called in the block)
    backward; nests, and ends with the block also when an exception leaves it. Can decorate a
    function, and can be kept and used many times. Casts, operators and factories all obey it; what
    only moves or selects values rounds nothing.

    Args:
        mode: one of ``ROUNDING_MODES``, or Pychop's number from 1 to 9; or ``"stochastic_a4"``, the
            mode ``stochastic`` with 4 random bits by IEEE P3109's definition a (or b, or c), as
            names of dtypes have it. (``"stochastic"`` leaves their number to each dtype.)

    Raises:
        ValueError: not a mode.

    Warns:
        UserWarning: nothing on this thread was rounded to a format in the block, as around a model
            of float32.

    Example::

        >>> with torch_dtypes.rounding("up"):
        ...     print(torch.tensor([1.01]).to(torch.q43))
        tensor([1.1250], dtype=torch.q43)
    """
    return Override(_exchange, mode_and_bits(mode), "rounding", _IDLE, mode)


def rounding_block(mode: str | int) -> Override:
    """Is ``rounding`` for this package's own code, some of which rounds nothing: no warning."""
    return Override(_exchange, mode_and_bits(mode))


def own_modes() -> Override:
    """A block in which every dtype rounds by its own mode, whatever block is around it."""
    return Override(_exchange, (None, (0, _C.FewBits.a)))


def _exchange(said: tuple) -> tuple:
    """Sets a thread's mode and its number of random bits, and returns what they were."""
    mode, bits = said
    if in_autocast_of_ours():
        torch.clear_autocast_cache()  # of weights that another mode has rounded
    return _C.set_rounding_override(mode), _C.set_few_bits_override(bits)
