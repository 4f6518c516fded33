"""``torch-dtypes bench``: what a dtype costs, as ratios to stock PyTorch (or another library) in
the same run.

Cases are timed in turn, round after round (a cast to bfloat16, a cast to each dtype, and again), so
that whatever else the machine does falls on all of them alike; medians over the rounds are
compared. A case is a line of Python, so the results can say what was run.
"""

from .measuring import Group, NotMeasuredError, Row, Sizes
from .running import run
from .suites import DEFAULT_SUITES, SUITES

__all__ = ["DEFAULT_SUITES", "SUITES", "Group", "NotMeasuredError", "Row", "Sizes", "run"]
