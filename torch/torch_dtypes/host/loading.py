"""Loads the package once per process: hooks stay in PyTorch and cannot be installed twice."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator

import torch

from .. import _C

_PACKAGE = __package__.partition(".")[0]


@contextlib.contextmanager
def pause_collection() -> Iterator[None]:
    """Pause garbage collection: one over all objects of torch takes as long as the imports."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def restore() -> bool:
    """Return whether the process has loaded this package before.

    That is so after importlib.reload, or when it was deleted from sys.modules. The modules of the
    first load, which PyTorch calls, then become the package's again.

    Raises:
        ImportError: an earlier load failed after it had begun to install, or another copy of the
            package is loaded.
    """
    first = _C.first_load
    if "modules" in first:
        sys.modules.update(first["modules"])
        return True
    if "error" in first:
        raise ImportError(
            f"expected a process in which {_PACKAGE} has not failed to load, but got one in which "
            f"it did, with {first['error']}. "
            "PyTorch itself works; fix the cause and start a new process."
        )
    frame = sys._getframe()
    while frame := frame.f_back:
        if (
            frame.f_code.co_name == "_legacy_load"
            and frame.f_globals["__name__"] == "torch.serialization"
        ):
            raise ImportError(
                f"expected {_PACKAGE} to be imported before torch.load reads format tensors from "
                "a file of the old layout (not a zip file), but got an import in the middle of "
                f"the file; import {_PACKAGE} first"
            )
    for dtype in _C.builtin_dtypes():
        # Inside PyTorch's own tree, torch has these same dtypes.
        if getattr(torch, name := _C.name_of(dtype), dtype) is not dtype:
            raise ImportError(
                f"expected a torch without torch.{name}, but got one that has it; load one copy "
                f"of {_PACKAGE} only"
            )
    return False


def install(*parts: Callable[[], None]) -> None:
    """Run the parts in turn and record the outcome, which restore() reads."""
    try:
        for part in parts:
            part()
    except BaseException as error:
        _C.first_load["error"] = f"{type(error).__name__}: {error}"
        raise
    inside = f"{_PACKAGE}."
    _C.first_load["modules"] = {
        name: m for name, m in sys.modules.items() if name == _PACKAGE or name.startswith(inside)
    }
