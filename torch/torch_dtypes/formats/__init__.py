"""Number formats and their dtypes: names, parameters, codes. All other rooms import this one."""

from .lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        ".dtypes": "ROUNDING_MODES builtin_dtypes dtype format_of is_format_dtype with_rounding",
        ".layouts": "fixed_format float_format posit_format",
        ".tables": "lns_format table_format takum_format",
    },
)
