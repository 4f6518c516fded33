"""torch.autocast with a format dtype."""

from __future__ import annotations

import contextlib

import torch

from .. import _C

AUTOCAST_DEVICES = ("cpu", "cuda")  # device types for which torch.autocast takes a format dtype


def find_autocast_dtype(kind: str) -> torch.dtype | None:
    """Return the format dtype to which autocast now casts on a device of that type; None if it is
    off or has a stock dtype."""
    low = (
        torch.get_autocast_dtype(kind)
        if kind in AUTOCAST_DEVICES and torch.is_autocast_enabled(kind)
        else None
    )
    return None if low is None or _C.format_of(low) is None else low


def find_autocast_devices() -> list[str]:
    """Return the types of the devices for which autocast is on with a format dtype."""
    return [kind for kind in AUTOCAST_DEVICES if find_autocast_dtype(kind) is not None]


@contextlib.contextmanager
def out_of_autocast(kinds):
    """Run a block in which autocast is off on these devices."""
    with contextlib.ExitStack() as blocks:
        for kind in kinds:
            blocks.enter_context(torch.autocast(kind, enabled=False))
        yield
