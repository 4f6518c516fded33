"""``torch-dtypes bench``: measure the cost of a dtype, in ratios to stock PyTorch (or another
library) in the same run.

Cases are timed in turn, round after round: a cast to bfloat16, a cast to each dtype, and again. So
other load of the machine affects all alike. The medians over the rounds are compared. A case is a
line of Python, so that results can tell what ran.
"""

from .measuring import Group, NotMeasuredError, Row, Sizes
from .running import run
from .suites import DEFAULT_SUITES, SUITES

__all__ = ["DEFAULT_SUITES", "SUITES", "Group", "NotMeasuredError", "Row", "Sizes", "run"]
