"""What numbers can be rounded to: number formats, blocks with scales, integers; and where scales come from."""

from .targets import FormatTarget, Target, target

__all__ = ["FormatTarget", "Target", "target"]
