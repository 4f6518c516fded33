"""Tools that answer questions about a format. ``show`` describes it, ``vectors`` lists its results,
``sweep`` trains networks in it, ``observe`` counts its effects on a model's numbers, ``solve``
refines solutions of linear systems with factors in it.

rich, matplotlib and jinja2 print, draw and write; each call imports those that it needs.
"""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from .cards.card import BlockCard, Card, card
    from .cards.comparison import Comparison, show
    from .datasheets import Datasheet, datasheet
    from .observation import RoundingCounts, Statistics, observe
    from .solving import Solutions, solve
    from .sweeps import sweep
    from .vectors import dump_vectors

__all__ = [
    "BlockCard",
    "Card",
    "Comparison",
    "Datasheet",
    "RoundingCounts",
    "Solutions",
    "Statistics",
    "card",
    "datasheet",
    "dump_vectors",
    "observe",
    "show",
    "solve",
    "sweep",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        ".cards.card": "BlockCard Card card",
        ".observation": "RoundingCounts Statistics observe",
        ".cards.comparison": "Comparison show",
        ".datasheets": "Datasheet datasheet",
        ".solving": "Solutions solve",
        ".sweeps": "sweep",
        ".vectors": "dump_vectors",
    },
)
