"""Where torch.autocast has a dtype of ours."""

from __future__ import annotations

import contextlib

import torch

from . import _C

AUTOCAST_DEVICES = ("cpu", "cuda")  # where torch.autocast may have a dtype of ours


def in_autocast_of_ours() -> list[str]:
    """The types of the devices on which the calling code runs within an autocast with a dtype of ours."""
    return [kind for kind in AUTOCAST_DEVICES if torch.is_autocast_enabled(kind) and _C.format_of(torch.get_autocast_dtype(kind)) is not None]


@contextlib.contextmanager
def out_of_autocast(kinds):
    """A block in which autocast is off on these devices."""
    with contextlib.ExitStack() as blocks:
        for kind in kinds:
            blocks.enter_context(torch.autocast(kind, enabled=False))
        yield
