"""What numbers can be rounded to: formats, blocks with scales, integers; and ``chop``."""
