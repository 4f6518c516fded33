"""Targets of rounding: formats, blocks with scales, integers; and ``chop``."""
