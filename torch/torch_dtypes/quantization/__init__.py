"""Layers that round their numbers by rules, and the scales for this."""

from typing import TYPE_CHECKING

from ..formats.lazy import attach

if TYPE_CHECKING:
    from ..targets.block_targets import BlockFormat
    from ..targets.block_tensors import BlockTensor, quantize
    from ..targets.blocks import block_float, block_format
    from ..targets.integers import IntegerFormat, integer_format
    from ..targets.lookup import FormatTarget, Target, target
    from .attention import is_attention
    from .cast import Cast
    from .convert import dequantize_, quantize_
    from .recipes import RECIPES, Recipe, recipe
    from .scales import Calibration, calibration
    from .summary import Summary, summary
    from .switching import switch_at

__all__ = [
    "RECIPES",
    "BlockFormat",
    "BlockTensor",
    "Calibration",
    "Cast",
    "FormatTarget",
    "IntegerFormat",
    "Recipe",
    "Summary",
    "Target",
    "block_float",
    "block_format",
    "calibration",
    "dequantize_",
    "integer_format",
    "is_attention",
    "quantize",
    "quantize_",
    "recipe",
    "summary",
    "switch_at",
    "target",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "..targets.block_targets": "BlockFormat",
        "..targets.block_tensors": "BlockTensor quantize",
        "..targets.blocks": "block_float block_format",
        "..targets.integers": "IntegerFormat integer_format",
        "..targets.lookup": "FormatTarget Target target",
        ".attention": "is_attention",
        ".cast": "Cast",
        ".convert": "dequantize_ quantize_",
        ".recipes": "RECIPES Recipe recipe",
        ".scales": "Calibration calibration",
        ".summary": "Summary summary",
        ".switching": "switch_at",
        ".shared_scales": "",
    },
)
