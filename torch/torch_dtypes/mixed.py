"""What layers do with operands of several dtypes: raise, as stock layers do, or promote."""

from __future__ import annotations

from . import _C
from ._overrides import Override

__all__ = ["mixed_operands", "set_mixed_operands"]

_MODES = {"raise": _C.MixedOperands.raises, "promote": _C.MixedOperands.promotes}


def _mode(mode: str) -> _C.MixedOperands:
    if not isinstance(mode, str) or mode not in _MODES:
        raise ValueError(f'expected "raise" or "promote", but got {mode!r}')
    return _MODES[mode]


def mixed_operands(mode: str) -> Override:
    """What matrix products, convolutions, attention, recurrent and other layers do in the block with a stock floating tensor beside one of
    a number format::

        with torch_dtypes.mixed_operands("promote"):
            y = posit_layer(float32_images)     # float32, as type promotion has it

    Args:
        mode: ``"raise"``, the default: an error, as stock layers raise for bfloat16 beside float32. Normalisation layers with float32
            parameters and an input of a number format are allowed: their result is of that format. ``"promote"``: the result's dtype is
            type promotion's, for tensors with dimensions the stock one, and so is the arithmetic: rounding modes and accumulation
            policies do not hold there. Elementwise operators promote in either mode.

    Holds for the calling thread, nests, can decorate a function, and can be kept and used many times.

    Raises:
        ValueError: another mode.

    Example::

        >>> layer, x = torch.nn.Linear(2, 1).to(torch.posit16es2), torch.ones(1, 2)
        >>> with torch_dtypes.mixed_operands("promote"):
        ...     print(layer(x).dtype)
        torch.float32
    """
    return Override(_C.set_mixed_operands_override, _mode(mode))


def set_mixed_operands(mode: str) -> None:
    """Makes ``mode`` what holds where no block says otherwise, in all threads of the process, until it is set anew. See
    ``mixed_operands``.

    Args:
        mode: ``"raise"``, the default, or ``"promote"``.

    Raises:
        ValueError: another mode.

    Example::

        >>> torch_dtypes.set_mixed_operands("promote")
        >>> (torch.ones(1, 2) @ torch.ones(2, 1).to(torch.posit16es2)).dtype
        torch.float32
        >>> torch_dtypes.set_mixed_operands("raise")
    """
    _C.set_mixed_operands_default(_mode(mode))
