"""Installs hooks of builtins by torch/csrc/formats/hooks/Trampolines.cpp."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ... import _C
from ..table import INSTALLERS, Hook, Kind

When = _C.When  # the reasons for which a builtin calls the replacement of its row

# Classes of most calls' arguments, which do not change a call's meaning.
_NEUTRAL_CLASSES = frozenset(
    (
        torch.Tensor,
        torch.nn.Parameter,
        torch.dtype,
        torch.device,
        torch.Size,
        tuple,
        list,
        int,
        float,
        bool,
        str,
        type(None),
    )
)


def _overrides_calls(kind: type) -> bool:
    """Return whether PyTorch calls a class's ``__torch_function__`` for a call with it."""
    disabled = torch._C._disabled_torch_function_impl
    asked = getattr(kind, "__torch_function__", disabled)
    return asked is not disabled and torch._C._is_torch_function_enabled()


def _ask_classes(replacement: Callable, skipped: int) -> Callable:
    """Return the replacement, but call the stock function where it would ask an argument's class.

    Calls from such a class come here again, without such classes. The first ``skipped`` arguments
    are bound in the stock function already, as a method's tensor is.
    """

    @functools.wraps(replacement)
    def call(stock, *args, **kwargs):
        for value in (*args, *kwargs.values()):
            kind = type(value)
            if kind not in _NEUTRAL_CLASSES and _overrides_calls(kind):
                return stock(*args[skipped:], **kwargs)
        return replacement(stock, *args, **kwargs)

    return call


def _install_builtin(row: Hook, _owner: Any, stock: Any, replacement: Callable | None) -> None:
    # A static method, and a method of pybind11, has the builtin in __func__.
    _C.hook(getattr(stock, "__func__", stock), replacement, int(row.reasons))


def _install_asking(row: Hook, owner: Any, stock: Any, replacement: Callable) -> None:
    skipped = int(isinstance(owner, type))
    _install_builtin(row, owner, stock, _ask_classes(replacement, skipped))


INSTALLERS[Kind.BUILTIN] = _install_builtin
INSTALLERS[Kind.ASKING] = _install_asking
