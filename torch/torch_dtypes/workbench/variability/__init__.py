"""Find where a float32 program loses digits: repeat it under random rounding, compare the runs, and
name the modules responsible."""

from .digits import Digits, significant_digits
from .results import Variability
from .study import variability

__all__ = ["Digits", "Variability", "significant_digits", "variability"]
