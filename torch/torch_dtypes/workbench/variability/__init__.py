"""Where a float32 program's digits go: repeated runs under random rounding, what they say, and
which modules are responsible."""

from .digits import Digits, significant_digits
from .results import Variability
from .study import variability

__all__ = ["Digits", "Variability", "significant_digits", "variability"]
