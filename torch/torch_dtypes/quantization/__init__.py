"""What numbers can be rounded to: number formats, blocks with scales, integers; and where scales come from. Models that round by rules."""

from .block_tensors import BlockTensor, quantize
from .blocks import BlockFormat, block_float, block_format
from .cast import Cast
from .convert import dequantize_, quantize_
from .integers import IntegerFormat, integer_format
from .scales import Calibration, calibration
from .summary import Summary, summary
from .targets import FormatTarget, Target, target

__all__ = [
    "BlockFormat",
    "BlockTensor",
    "Calibration",
    "Cast",
    "FormatTarget",
    "IntegerFormat",
    "Summary",
    "Target",
    "block_float",
    "block_format",
    "calibration",
    "dequantize_",
    "integer_format",
    "quantize",
    "quantize_",
    "summary",
    "target",
]
