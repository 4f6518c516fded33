"""Loading once a process: what is installed in PyTorch stays there, and cannot be installed a
second time over itself."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator

import torch

from .. import _C

_PACKAGE = __package__.partition(".")[0]


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """A block without garbage collections: one over all that torch made takes as long as the
    imports."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def restore() -> bool:
    """Whether the process has this package loaded, as after importlib.reload or where it was
    deleted from sys.modules. The modules of the first load, which PyTorch calls, are then the
    package's again.

    Raises:
        ImportError: a load before this one failed after it had begun to install, or another copy of
            the package is loaded.
    """
    first = _C.first_load
    if "modules" in first:
        sys.modules.update(first["modules"])
        return True
    if "error" in first:
        raise ImportError(
            f"expected a process in which {_PACKAGE} loads for the first time, but got one in "
            f"which that failed, with {first['error']}. "
            "PyTorch itself works; mend the cause and start a new process."
        )
    frame = sys._getframe()
    while frame := frame.f_back:
        if (
            frame.f_code.co_name == "_legacy_load"
            and frame.f_globals["__name__"] == "torch.serialization"
        ):
            raise ImportError(
                f"expected {_PACKAGE} to be imported before torch.load reads format tensors from "
                "a file of the old layout (not a zip file), but got the first of them in the "
                f"file; import {_PACKAGE} first"
            )
    for made in _C.builtin_dtypes():
        # Inside PyTorch's own tree it is that one.
        if getattr(torch, name := _C.name_of(made), made) is not made:
            raise ImportError(
                f"expected a torch without torch.{name}, but got one that has it: is another copy "
                f"of {_PACKAGE} loaded?"
            )
    return False


def install(*parts: Callable[[], None]) -> None:
    """Runs the parts in turn and notes how it went, for restore() to read."""
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
