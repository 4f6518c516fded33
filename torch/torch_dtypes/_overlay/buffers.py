"""Buffers of modules on their way to a dtype without infinities: those of a mask that a model holds are numbers that its author has written."""

from __future__ import annotations

import functools

import torch

from .. import _C
from .table import Replaced


def _write_infinities(given: object, kept: object) -> None:
    """The infinities of a stock tensor, put once more into what a cast has made of it, as the numbers that they are."""
    if type(given) is not torch.Tensor or type(kept) is not torch.Tensor or given.is_meta or kept.is_meta or given.layout is not torch.strided:
        return
    form = _C.format_of(kept.dtype)
    if form is None or not form.infinity_is_nan or not given.is_floating_point() or _C.format_of(given.dtype) is not None:
        return
    with torch.no_grad():
        for infinity in (float("inf"), float("-inf")):
            if (there := given == infinity).any():
                kept.masked_fill_(there.to(kept.device), infinity)


def applying(stock):
    """Module._apply, behind Module.to, type and their kin: a mask of -inf that a module has as a buffer is as it were written in the new dtype
    (torch_dtypes.set_fill_infinity); a cast would make NaN of it, and so of all that attends."""

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        given = dict(self._buffers.items())
        result = stock(self, fn, recurse)
        for name, tensor in given.items():
            _write_infinities(tensor, self._buffers[name])
        return result

    return apply


def loading(stock):
    """Module._load_from_state_dict, which copies a float32 checkpoint's mask into a buffer of ours."""

    @functools.wraps(stock)
    def load(self, state_dict, prefix, *args, **kwargs):
        stock(self, state_dict, prefix, *args, **kwargs)
        for name, kept in self._buffers.items():
            _write_infinities(state_dict.get(prefix + name), kept)

    return load


HOOKS = [
    Replaced("torch.nn.modules.module.Module", "_apply", applying),
    Replaced("torch.nn.modules.module.Module", "_load_from_state_dict", loading),
]
