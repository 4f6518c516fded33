"""Pychop's names (0.6.2) over this package.

docs/tutorials/coming_from.py lists where results differ from Pychop's, and why.
"""

from . import (
    bfp_formats,
    builtin,
    layers,
    math_func,
    mx_formats,
    optimizers,
    p3109,
    ptq,
    set_backend,
)
from .bfp_formats import (
    BFP_FORMATS,
    BFPSpec,
    BFPTensor,
    bfp_quantize,
    create_bfp_spec,
    print_bfp_format_table,
)
from .bitchop import Bitchop
from .builtin import CPArray, CPFloat, CPTensor
from .chop import Chop, LightChop
from .faultchop import Customs, FaultChop, Options
from .fixed_point import Chopf
from .float_params import float_params
from .integer import Chopi
from .layers import ChopfSTE, ChopiSTE, ChopSTE, LightChopSTE
from .math_func import *  # noqa: F403  # its 65 functions
from .mx_formats import (
    MX_FORMATS,
    MXSpec,
    MXTensor,
    compare_mx_formats,
    create_mx_spec,
    mx_quantize,
    print_mx_format_table,
)
from .p3109 import P3109, P3109Format, p3109_decode, p3109_encode, p3109_quantize
from .set_backend import backend, get_backend
from .simulate import Simulate

__version__ = "0.6.2"  # of Pychop, whose names these are
