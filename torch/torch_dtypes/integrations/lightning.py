"""Lightning (2.x; lightning, pytorch_lightning, lightning_fabric): precision="posit16es2" in Trainer and Fabric.

It is Lightning's own plugin of half precision in another dtype: the module's parameters, inputs and new tensors have that dtype.
"""

from __future__ import annotations

import functools
import importlib

import torch

from .. import _C, formats
from .._exchange import exchange_code


def _convert_precision_to_unified_args(precision):
    return _torch_dtypes_precision(precision)  # noqa: F821


def precision_name(stock, precision):
    """The flag's one name for a precision: a format's own, as Lightning's for those that it knows."""
    if isinstance(precision, torch.dtype) and _C.format_of(precision) is not None:
        return _C.name_of(precision)
    if not isinstance(precision, str):
        return stock(precision)
    try:
        return stock(precision)
    except ValueError as error:
        try:
            formats.format_of(precision)
        except ValueError:
            raise ValueError(f"{error} Or the name of a number format, such as 'posit16es2'.") from None
        return _C.name_of(formats.dtype(precision))


def _checking(stock, flag: str, plugins: str):
    @functools.wraps(stock)
    def check_and_init_precision(self):
        name = getattr(self, flag)
        if not isinstance(name, str) or (dtype := getattr(torch, name, None)) is None or not formats.is_format_dtype(dtype):
            return stock(self)
        half = importlib.import_module(plugins).HalfPrecision
        plugin = type("FormatPrecision", (half,), {"__doc__": "Lightning's plugin of half precision, in a number format."})()
        plugin.precision, plugin._desired_input_dtype = name, dtype
        return plugin

    return check_and_init_precision


def _extend(connector: type, flag: str, plugins: str) -> None:
    connector._check_and_init_precision = _checking(connector._check_and_init_precision, flag, plugins)


def install(module) -> None:
    """For the module of Fabric's connector, or of the Trainer's."""
    name = module.__name__
    if ".trainer." in name:
        _extend(module._AcceleratorConnector, "_precision_flag", name.split(".trainer.")[0] + ".plugins.precision.half")
    else:
        exchange_code(module._convert_precision_to_unified_args, _convert_precision_to_unified_args, "_torch_dtypes_precision", precision_name)
        _extend(module._Connector, "_precision_input", module.__package__ + ".plugins.precision.half")
