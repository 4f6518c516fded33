"""torch.autocast("cpu", dtype=<one of ours>): its operators run in the dtype, as they do in bfloat16.

Stock's kernels for autocast take any dtype number; what stands in the way is Python's: the check of the dtype where an autocast is made, and the
functions that look the number up in PyTorch's table of dtypes, which ends before ours.
"""

from __future__ import annotations

import ast
import inspect
import textwrap

import torch

from .. import _C
from .table import Builtin, Registered, When

_TEST = "self.fast_dtype not in device_supported_dtypes"
_NAME = "_torch_dtypes_is_lower"


def _is_lower(device_type: str, dtype: torch.dtype) -> bool:
    """Whether autocast may take the dtype: ours, on the CPU, narrower than float32, as which it is stored where it is not."""
    return device_type == "cpu" and (fmt := _C.format_of(dtype)) is not None and fmt.itemsize <= 2


def _with_test(function):
    """The code of autocast.__init__ with one more test, in the branch that it takes for dtypes that it does not know: stock ones pay nothing."""
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source)
    (test,) = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == _TEST] or [None]
    if test is None:
        raise ImportError(f"expected torch.autocast.__init__ to ask whether {_TEST}, as in torch 2.13")
    ours = ast.parse(f"not {_NAME}(self.device, self.fast_dtype)", mode="eval").body
    test.test = ast.copy_location(ast.BoolOp(ast.And(), [test.test, ours]), test.test)
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    made: dict = {}
    exec(compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec"), function.__globals__, made)
    return made[function.__name__].__code__.replace(co_qualname=function.__qualname__)


def get_dtype(stock, device_type: str = "cpu") -> torch.dtype:
    """torch.get_autocast_dtype, whose table ends before our dtypes."""
    return _C.autocast_dtype() if device_type == "cpu" else stock(device_type)


def get_cpu_dtype(stock) -> torch.dtype:
    """torch.get_autocast_cpu_dtype, likewise."""
    return _C.autocast_dtype()


def let_ours_pass(function) -> None:
    """torch.autocast's constructor: its own code with one more test, in the branch that it takes for dtypes that it does not know."""
    code = _with_test(function)
    function.__globals__[_NAME] = _is_lower
    function.__code__ = code


HOOKS = [
    Builtin("torch", "get_autocast_dtype", get_dtype, When.OWN_AUTOCAST),
    Builtin("torch", "get_autocast_cpu_dtype", get_cpu_dtype, When.OWN_AUTOCAST),
    Registered("torch.amp.autocast_mode.autocast", "__init__", let_ours_pass),
]
