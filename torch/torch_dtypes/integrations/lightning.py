"""Lightning (2.x; lightning, pytorch_lightning, lightning_fabric): precision="posit16es2".

Trainer and Fabric use Lightning's own plugin for half precision in another dtype: the module's
parameters, inputs and new tensors have that dtype.
"""

from __future__ import annotations

import functools
import importlib

import torch

from .. import _C
from ..formats import dtypes


def precision_name(stock, precision):
    """Return a format's own name as a precision; Lightning names the others."""
    if isinstance(precision, torch.dtype) and _C.format_of(precision) is not None:
        return _C.name_of(precision)
    if not isinstance(precision, str):
        return stock(precision)
    try:
        return stock(precision)
    except ValueError as error:
        try:
            dtypes.format_of(precision)
        except ValueError:
            raise ValueError(
                f"{error} Or use the name of a number format, such as 'posit16es2'."
            ) from None
        return _C.name_of(dtypes.dtype(precision))


def make_plugin(stock):
    """Make Lightning's plugin for half precision in the format that a precision names."""
    # The modules of the connectors of Fabric and of the Trainer.
    package, in_trainer, _ = stock.__module__.partition(".trainer.")
    flag = "_precision_flag" if in_trainer else "_precision_input"
    plugins = f"{package.removesuffix('.connector')}.plugins.precision.half"

    @functools.wraps(stock)
    def check_and_init_precision(self):
        name = getattr(self, flag)
        if (
            not isinstance(name, str)
            or (dtype := getattr(torch, name, None)) is None
            or not dtypes.is_format_dtype(dtype)
        ):
            return stock(self)
        half = importlib.import_module(plugins).HalfPrecision
        plugin = type(
            "FormatPrecision",
            (half,),
            {"__doc__": "Lightning's plugin of half precision, in a number format."},
        )()
        plugin.precision, plugin._desired_input_dtype = name, dtype
        return plugin

    return check_and_init_precision
