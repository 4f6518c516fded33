"""Buffers of modules on their way to a dtype without infinities: those of a mask that a model holds
are numbers that its author has written. So are those of a parameter that takes no gradient, which
is how many a model holds its mask. And running statistics on their way to few digits."""

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

# Significant bits with which running statistics stand still far from where they should be
# (docs/reference/optimizers.md).
_FEW = 4


class _Moves(threading.local):
    """The conversions of modules that run on this thread, within one another."""

    depth = 0
    # The first layer whose statistics came to few digits, and their dtype.
    still: tuple[str, torch.dtype] | None = None


_moves = _Moves()


def _stands_still(module: nn.Module, given: dict) -> torch.dtype | None:
    """The dtype of few digits to which a layer's running statistics came in training mode, or
    None."""
    # A script module has no dict there.
    before, now = given.get("running_var"), dict(module._buffers.items()).get("running_var")
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
        f"{dtype}: an update, a tenth of a difference, is below "
        "half a unit in the last place, so that training goes well and evaluation does not. Keep "
        "such layers in float32, beside which others may be of any dtype: [m.float() for m in "
        "model.modules() if hasattr(m, 'running_var')] after model.to(dtype); or use "
        "torch_dtypes.quantize_",
        stacklevel=level,
    )


def _frozen(module: nn.Module) -> dict[str, nn.Parameter]:
    return {
        name: p
        for name, p in module._parameters.items()
        if type(p) is nn.Parameter and not p.requires_grad
    }


def applying(stock):
    """Module._apply, behind Module.to, type and their kin: a mask of -inf that a module has as a
    buffer or a frozen parameter is as it were written in the new dtype; a cast would make NaN of
    it, and so of all that attends. Running statistics that come to few digits are said once a
    call."""

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        given = dict(self._buffers.items())
        # The numbers of before: the parameter is given its new ones.
        frozen = {name: p.detach() for name, p in _frozen(self).items()}
        _moves.depth += 1
        try:
            result = stock(self, fn, recurse)
        finally:
            _moves.depth -= 1
        if (dtype := _stands_still(self, given)) is not None:
            _moves.still = _moves.still or (type(self).__name__, dtype)
        if not _moves.depth and (still := _moves.still) is not None:
            _moves.still = None
            _warn_of_statistics(*still)
        for name, tensor in given.items():
            write_infinities(tensor, self._buffers[name])
        for name, tensor in frozen.items():
            write_infinities(tensor, self._parameters[name])
        return result

    return apply


def loading(stock):
    """Module._load_from_state_dict, which copies a float32 checkpoint's mask into a buffer or a
    frozen parameter of ours."""

    @functools.wraps(stock)
    def load(self, state_dict, prefix, *args, **kwargs):
        stock(self, state_dict, prefix, *args, **kwargs)
        for name, kept in (*self._buffers.items(), *_frozen(self).items()):
            write_infinities(state_dict.get(prefix + name), kept)

    return load


HOOKS = [
    Hook("torch.nn.modules.module.Module._apply", Kind.REPLACED, applying),
    Hook("torch.nn.modules.module.Module._load_from_state_dict", Kind.REPLACED, loading),
]
