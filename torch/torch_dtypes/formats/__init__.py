"""Number formats and their dtypes: names, parameters, codes. The room below all others."""

from .lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        ".dtypes": "ROUNDING_MODES builtin_dtypes dtype fixed_format float_format format_of "
        "is_format_dtype lns_format posit_format table_format takum_format with_rounding"
    },
)
