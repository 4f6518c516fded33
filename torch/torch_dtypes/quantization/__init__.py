"""What numbers can be rounded to: number formats, blocks with scales, integers; and where scales come from."""

from .integers import IntegerFormat, integer_format
from .targets import FormatTarget, Target, target

__all__ = ["FormatTarget", "IntegerFormat", "Target", "integer_format", "target"]
