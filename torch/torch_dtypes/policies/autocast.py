"""Where torch.autocast has a dtype of ours."""

from __future__ import annotations

import contextlib

import torch

from .. import _C

AUTOCAST_DEVICES = ("cpu", "cuda")  # where torch.autocast may have a dtype of ours


def own_autocast_dtype(kind: str) -> torch.dtype | None:
    """The dtype of ours to which autocast casts on a device of that type, where the calling code
    runs within one that has one and is not off."""
    low = (
        torch.get_autocast_dtype(kind)
        if kind in AUTOCAST_DEVICES and torch.is_autocast_enabled(kind)
        else None
    )
    return None if low is None or _C.format_of(low) is None else low


def in_autocast_of_ours() -> list[str]:
    """The types of the devices on which the calling code runs within an autocast with a dtype of
    ours."""
    return [kind for kind in AUTOCAST_DEVICES if own_autocast_dtype(kind) is not None]


@contextlib.contextmanager
def out_of_autocast(kinds):
    """A block in which autocast is off on these devices."""
    with contextlib.ExitStack() as blocks:
        for kind in kinds:
            blocks.enter_context(torch.autocast(kind, enabled=False))
        yield
