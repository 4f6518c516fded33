"""Packages of AOTInductor, of programs in number formats: what makes and what loads them."""

from __future__ import annotations

from .._overlay import programs, table


def install(module) -> None:
    """module: torch._inductor, or torch.export.pt2_archive._package."""
    table.install(row for row in programs.PACKAGES if f"{row.owner}.".startswith(f"{module.__name__}."))
