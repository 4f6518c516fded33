"""``show``: what a number format is, as a card, a comparison and pictures."""

from .card import Card, card
from .comparison import Comparison, show

__all__ = ["Card", "Comparison", "card", "show"]
