"""Hooks of modules whose buffers or frozen parameters are cast to a dtype without infinities.

A model holds its attention mask in such a tensor, whose infinities its author has written. Running
statistics cast to few digits are here too, for a warning.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings

import torch
from torch import nn

from ... import _C
from ..stock_functions import write_infinities
from ..table import Hook, Kind

# With so few significant bits, running statistics stay far from their true values
# (docs/reference/optimizers.md).
_FEW = 4


class _Moves(threading.local):
    """The nested conversions of modules on this thread."""

    depth = 0
    # The first layer whose statistics were cast to few digits, and their dtype.
    still: tuple[str, torch.dtype] | None = None


_moves = _Moves()


def _stands_still(module: nn.Module, buffers: dict) -> torch.dtype | None:
    """Return the dtype with few digits to which running statistics were cast in training mode."""
    # The buffers of a script module are no dict.
    before, now = buffers.get("running_var"), dict(module._buffers.items()).get("running_var")
    if (
        not module.training
        or not isinstance(before, torch.Tensor)
        or not isinstance(now, torch.Tensor)
        or now.dtype is before.dtype
    ):
        return None
    fmt = _C.format_of(now.dtype)
    has_few = fmt is not None and (
        fmt.significand_bits <= _FEW or (fmt.bits <= 8 and fmt.kind != _C.Kind.float)
    )
    return now.dtype if has_few else None


def _warn_of_statistics(layer: str, dtype: torch.dtype) -> None:
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename in (
        __file__,
        nn.Module.to.__code__.co_filename,
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"expected running statistics in a dtype with more digits, but got those of {layer} in "
        f"{dtype}: an update, a tenth of a difference, is below half a unit in the last place, so "
        "that training goes well and evaluation does not. Keep such layers in float32 ("
        "[m.float() for m in model.modules() if hasattr(m, 'running_var')] after "
        "model.to(dtype)), beside others of any dtype; or use torch_dtypes.quantize_",
        stacklevel=level,
    )


def _list_frozen(module: nn.Module) -> dict[str, nn.Parameter]:
    return {
        name: p
        for name, p in module._parameters.items()
        if type(p) is nn.Parameter and not p.requires_grad
    }


def extend_apply(stock):
    """Keep the -inf of a mask in Module.to and its kin, where a cast would make it NaN.

    The mask is a buffer or a frozen parameter, and keeps the format's number for -inf. Running
    statistics that are cast to few digits give one warning a call.
    """

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        buffers = dict(self._buffers.items())
        # The numbers before the call, which gives the parameter new ones.
        frozen = {name: p.detach() for name, p in _list_frozen(self).items()}
        _moves.depth += 1
        try:
            result = stock(self, fn, recurse)
        finally:
            _moves.depth -= 1
        if (dtype := _stands_still(self, buffers)) is not None:
            _moves.still = _moves.still or (type(self).__name__, dtype)
        if not _moves.depth and (still := _moves.still) is not None:
            _moves.still = None
            _warn_of_statistics(*still)
        for name, tensor in buffers.items():
            write_infinities(tensor, self._buffers[name])
        for name, tensor in frozen.items():
            write_infinities(tensor, self._parameters[name])
        return result

    return apply


def extend_load(stock):
    """Keep the -inf of a float32 checkpoint's mask in a format buffer or frozen parameter."""

    @functools.wraps(stock)
    def load(self, state_dict, prefix, *args, **kwargs):
        stock(self, state_dict, prefix, *args, **kwargs)
        for name, kept in (*self._buffers.items(), *_list_frozen(self).items()):
            write_infinities(state_dict.get(prefix + name), kept)

    return load


HOOKS = [
    Hook("torch.nn.modules.module.Module._apply", Kind.REPLACED, extend_apply),
    Hook("torch.nn.modules.module.Module._load_from_state_dict", Kind.REPLACED, extend_load),
]
