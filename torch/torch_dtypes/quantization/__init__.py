"""What numbers can be rounded to: number formats, blocks with scales, integers; and where scales come from. Models that round by rules."""

from .cast import Cast
from .convert import dequantize_, quantize_
from .integers import IntegerFormat, integer_format
from .summary import Summary, summary
from .targets import FormatTarget, Target, target

__all__ = [
    "Cast",
    "FormatTarget",
    "IntegerFormat",
    "Summary",
    "Target",
    "dequantize_",
    "integer_format",
    "quantize_",
    "summary",
    "target",
]
