"""Installs hooks of builtins, in front of which torch/csrc/formats/hooks/Trampolines.cpp puts C
functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ... import _C
from ..table import INSTALLERS, Hook, Kind

When = _C.When  # the reasons for which a builtin calls the replacement of its row

# Classes of most calls' arguments, which do not say what a call means.
_SAY_NOTHING = frozenset(
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


def _says_what_calls_mean(kind: type) -> bool:
    """Whether stock asks a class, by its ``__torch_function__``, what a call with it means."""
    disabled = torch._C._disabled_torch_function_impl
    asked = getattr(kind, "__torch_function__", disabled)
    return asked is not disabled and torch._C._is_torch_function_enabled()


def _ask_classes(replacement: Callable, skipped: int) -> Callable:
    """Return the replacement, but let stock ask the class of an argument where it would.

    What such a class calls comes here again, as a call without such classes. The first ``skipped``
    arguments are in the stock function already, as a method's tensor is.
    """

    @functools.wraps(replacement)
    def asking(stock, *args, **kwargs):
        for value in (*args, *kwargs.values()):
            kind = type(value)
            if kind not in _SAY_NOTHING and _says_what_calls_mean(kind):
                return stock(*args[skipped:], **kwargs)
        return replacement(stock, *args, **kwargs)

    return asking


def _install_builtin(row: Hook, _owner: Any, stock: Any, replacement: Callable | None) -> None:
    # A static method, and a method of pybind11's, has the builtin in __func__.
    _C.hook(getattr(stock, "__func__", stock), replacement, int(row.reasons))


def _install_asking(row: Hook, owner: Any, stock: Any, replacement: Callable) -> None:
    skipped = int(isinstance(owner, type))
    _install_builtin(row, owner, stock, _ask_classes(replacement, skipped))


INSTALLERS[Kind.BUILTIN] = _install_builtin
INSTALLERS[Kind.ASKING] = _install_asking
