"""Buffers of modules on their way to a dtype without infinities: those of a mask that a model holds are numbers that its author has written.
So are those of a parameter that takes no gradient, which is how many a model holds its mask."""

from __future__ import annotations

import functools

from torch import nn

from .._stock_functions import write_infinities
from .table import Replaced


def _frozen(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module._parameters.items() if type(p) is nn.Parameter and not p.requires_grad}


def applying(stock):
    """Module._apply, behind Module.to, type and their kin: a mask of -inf that a module has as a buffer or a frozen parameter is as it were
    written in the new dtype (torch_dtypes.set_fill_infinity); a cast would make NaN of it, and so of all that attends."""

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        given = dict(self._buffers.items())
        frozen = {name: p.detach() for name, p in _frozen(self).items()}  # the numbers of before: the parameter is given its new ones
        result = stock(self, fn, recurse)
        for name, tensor in given.items():
            write_infinities(tensor, self._buffers[name])
        for name, tensor in frozen.items():
            write_infinities(tensor, self._parameters[name])
        return result

    return apply


def loading(stock):
    """Module._load_from_state_dict, which copies a float32 checkpoint's mask into a buffer or a frozen parameter of ours."""

    @functools.wraps(stock)
    def load(self, state_dict, prefix, *args, **kwargs):
        stock(self, state_dict, prefix, *args, **kwargs)
        for name, kept in (*self._buffers.items(), *_frozen(self).items()):
            write_infinities(state_dict.get(prefix + name), kept)

    return load


HOOKS = [
    Replaced("torch.nn.modules.module.Module", "_apply", applying),
    Replaced("torch.nn.modules.module.Module", "_load_from_state_dict", loading),
]
