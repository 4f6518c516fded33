"""torch.compile: which frames are compiled by themselves, known as soon as dynamo is imported.

``torch.compile(module)`` asks that of the module's forward when it is called, and puts a frame of its own around one that is not.
"""

from __future__ import annotations

from .._overlay import graphs, table


def install(module) -> None:
    """module: torch._dynamo.trace_rules."""
    table.install(graphs.RULES)


def install_packages(module) -> None:
    """module: torch.export.pt2_archive._package."""
    table.install(graphs.PACKAGES)
