"""What answers questions about a format: ``show`` says what it is, ``vectors`` what it computes,
``sweep`` whether a network bears it, ``observe`` what it does to a model's numbers.

It needs rich, matplotlib and jinja2 for what it prints, draws and writes, each at its call.
"""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .cards import Card, card
    from .observation import RoundingCounts, Statistics, observe
    from .showing import Comparison, show
    from .sweeps import sweep
    from .vectors import dump_vectors

__all__ = ["Card", "Comparison", "RoundingCounts", "Statistics", "card", "dump_vectors", "observe", "show", "sweep"]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".cards": "Card card",
        ".observation": "RoundingCounts Statistics observe",
        ".showing": "Comparison show",
        ".sweeps": "sweep",
        ".vectors": "dump_vectors",
    },
)
