"""``observe``: count what rounding does to a model's numbers, layer by layer and pass by pass."""

from .counts import RoundingCounts
from .observing import observe
from .statistics import Statistics

__all__ = ["RoundingCounts", "Statistics", "observe"]
