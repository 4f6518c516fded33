"""What answers questions about a format: ``show`` says what it is.

Imported when it is first used: it needs rich, matplotlib and jinja2 for what it prints, draws and writes, each at its call.
"""

from .cards import Card, card
from .showing import Comparison, show

__all__ = ["Card", "Comparison", "card", "show"]
