"""``show``: describe a number format by a card, a comparison and pictures."""

from .card import Card, card
from .comparison import Comparison, show

__all__ = ["Card", "Comparison", "card", "show"]
