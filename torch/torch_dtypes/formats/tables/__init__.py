"""Formats that are lists of values: any set of at most 2^16 numbers, and published formats other
than floats, posits and fixed point."""

from . import floats, logarithmic, published, tapered  # imported, since they register names
from .constructors import lns_format, takum_format
from .custom import table_format

__all__ = [
    "floats",
    "lns_format",
    "logarithmic",
    "published",
    "table_format",
    "takum_format",
    "tapered",
]
