"""Hooks of torch.autocast("cpu" or "cuda", dtype=<format dtype>).

Its operators run in the format dtype, as they do in bfloat16. The stock autocast kernels take any
dtype number. Two things in Python do not. The constructor checks the dtype, and other functions
look its number up in PyTorch's table of dtypes, which ends before format dtypes.
"""

from __future__ import annotations

import ast

import torch

from ... import _C
from ...policies.autocast import AUTOCAST_DEVICES
from ..exchange import compile_as, parse_source
from ..table import Hook, Kind
from .trampolines import When

# The two tests in PyTorch's code: for a dtype that it does not know, and for CUDA, where it has
# questions of its own and not that one.
_UNKNOWN, _CUDA = "self.fast_dtype not in device_supported_dtypes", "self.device == 'cuda'"
_NAME = "_torch_dtypes_takes"


def _takes(device_type: str, dtype: torch.dtype) -> bool:
    """Return whether a format dtype may be an autocast's dtype.

    PyTorch disables an autocast of a dtype that it does not take, with a warning, and goes on in
    float32. A format dtype raises instead.

    Raises:
        ValueError: the format dtype is stored in 32 bits or more, so that it is not narrower than
            float32; or the device is neither the CPU nor a CUDA GPU.
    """
    if not isinstance(dtype, torch.dtype) or (fmt := _C.format_of(dtype)) is None:
        return False
    if device_type not in AUTOCAST_DEVICES:
        raise ValueError(
            f"expected device_type 'cpu' or 'cuda' in torch.autocast with {dtype}, but got "
            f"{device_type!r}; use a stock dtype there"
        )
    if fmt.itemsize > 2:
        raise ValueError(
            f"expected a dtype stored in 8 or 16 bits in torch.autocast, but got {dtype}, stored "
            f"in {8 * fmt.itemsize}; use model.to({dtype}), or a narrower dtype here, as "
            "torch.posit16es2 or torch.q43"
        )
    return True


def _with_tests(function):
    """Return the code of autocast.__init__ with one more test for format dtypes.

    It is in the branches for unknown dtypes and for CUDA, so that others pay nothing.
    """
    tree = parse_source(function)
    tests = {
        text: node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and (text := ast.unparse(node.test)) in (_UNKNOWN, _CUDA)
    }
    if tests.keys() != {_UNKNOWN, _CUDA}:
        raise ImportError(
            f"expected torch.autocast.__init__ to test {_UNKNOWN!r} and {_CUDA!r}, but got "
            f"{sorted(tests)}; use a supported release of PyTorch"
        )
    unknown, cuda = tests[_UNKNOWN], tests[_CUDA]
    ask = ast.parse(f"{_NAME}(self.device, self.fast_dtype)", mode="eval").body
    unknown.test = ast.copy_location(
        ast.BoolOp(ast.And(), [unknown.test, ast.UnaryOp(ast.Not(), ask)]), unknown.test
    )
    cuda.body.insert(0, ast.copy_location(ast.Expr(ask), cuda.body[0]))
    return compile_as(function, tree)


def get_dtype(stock, device_type: str = "cpu") -> torch.dtype:
    """Return autocast's format dtype, which PyTorch's table of dtypes lacks."""
    own = _C.autocast_dtype(device_type) if device_type in AUTOCAST_DEVICES else None
    return stock(device_type) if own is None else own


def get_cpu_dtype(stock) -> torch.dtype:
    """Return the CPU autocast's format dtype, which PyTorch's table of dtypes lacks."""
    return _C.autocast_dtype("cpu") or stock()


def get_gpu_dtype(stock) -> torch.dtype:
    """Return the CUDA autocast's format dtype, which PyTorch's table of dtypes lacks."""
    return _C.autocast_dtype("cuda") or stock()


def _any_own() -> bool:
    return any(_C.autocast_dtype(kind) is not None for kind in AUTOCAST_DEVICES)


def set_cache_enabled(stock, enabled: bool) -> None:
    """Switch the cache of cast weights where a block of autocast begins or ends.

    PyTorch's cache knows one dtype per tensor. It is off in blocks with a format dtype, which have
    a cache of their own.
    """
    if _any_own():
        _C.set_autocast_cache(bool(enabled))
    else:
        stock(enabled)


def is_cache_enabled(stock) -> bool:
    """Return the user's setting while PyTorch's own cache is off."""
    return _C.autocast_cache() if _any_own() else stock()


def clear_cache(stock) -> None:
    """Clear this package's cache of casts too, at the end of the outermost block."""
    _C.clear_autocast_casts()
    stock()


def accept_format_dtypes(function) -> None:
    """Accept format dtypes by one more test, in the branches for unknown dtypes and for CUDA."""
    code = _with_tests(function)
    function.__globals__[_NAME] = _takes
    function.__code__ = code


HOOKS = [
    Hook("torch.get_autocast_dtype", Kind.BUILTIN, get_dtype, When.OWN_AUTOCAST),
    Hook("torch.get_autocast_cpu_dtype", Kind.BUILTIN, get_cpu_dtype, When.OWN_AUTOCAST),
    Hook("torch.get_autocast_gpu_dtype", Kind.BUILTIN, get_gpu_dtype, When.OWN_AUTOCAST),
    Hook("torch.set_autocast_cache_enabled", Kind.BUILTIN, set_cache_enabled, When.OWN_AUTOCAST),
    Hook("torch.is_autocast_cache_enabled", Kind.BUILTIN, is_cache_enabled, When.OWN_AUTOCAST),
    Hook("torch.clear_autocast_cache", Kind.BUILTIN, clear_cache, When.OWN_AUTOCAST),
    Hook("torch.amp.autocast_mode.autocast.__init__", Kind.TOLD, accept_format_dtypes),
]
