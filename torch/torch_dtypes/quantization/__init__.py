"""What numbers can be rounded to: number formats, blocks with scales, integers; and where scales come from. Models that round by rules."""

from ..targets.block_tensors import BlockTensor, quantize
from ..targets.blocks import BlockFormat, block_float, block_format
from ..targets.integers import IntegerFormat, integer_format
from ..targets.lookup import FormatTarget, Target, target
from .cast import Cast
from .convert import dequantize_, quantize_
from .scales import Calibration, calibration
from .summary import Summary, summary

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
