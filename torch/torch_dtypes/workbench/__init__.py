"""What answers questions about a format: ``show`` says what it is, ``vectors`` what it computes,
``sweep`` whether a network bears it, ``observe`` what it does to a model's numbers.

It needs rich, matplotlib and jinja2 for what it prints, draws and writes, each at its call.
"""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .cards.card import Card, card
    from .cards.comparison import Comparison, show
    from .observation import RoundingCounts, Statistics, observe
    from .sweeps import sweep
    from .vectors import dump_vectors

__all__ = [
    "Card",
    "Comparison",
    "RoundingCounts",
    "Statistics",
    "card",
    "dump_vectors",
    "observe",
    "show",
    "sweep",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".cards.card": "Card card",
        ".observation": "RoundingCounts Statistics observe",
        ".cards.comparison": "Comparison show",
        ".sweeps": "sweep",
        ".vectors": "dump_vectors",
    },
)
