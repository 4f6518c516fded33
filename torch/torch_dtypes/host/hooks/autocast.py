"""torch.autocast("cpu" or "cuda", dtype=<one of ours>): its operators run in the dtype, as they do
in bfloat16.

Stock's kernels for autocast take any dtype number; what stands in the way is Python's: the check of
the dtype where an autocast is made, and the functions that look the number up in PyTorch's table of
dtypes, which ends before ours.
"""

from __future__ import annotations

import ast

import torch

from ... import _C
from ...policies.autocast import AUTOCAST_DEVICES
from ..exchange import compile_as, parse_source
from ..table import Hook, Kind
from .trampolines import When

# Where stock asks for a dtype that it does not know, and where it goes by CUDA's own questions and
# asks none.
_UNKNOWN, _CUDA = "self.fast_dtype not in device_supported_dtypes", "self.device == 'cuda'"
_NAME = "_torch_dtypes_takes"


def _takes(device_type: str, dtype: torch.dtype) -> bool:
    """Whether a dtype is ours and may be an autocast's.

    Stock disables an autocast of a dtype that it does not take, with a warning, and goes on in
    float32; one of ours is not left behind so.

    Raises:
        ValueError: it is ours and not narrower than float32, as which it is stored; or the device
            is neither the CPU nor a GPU of CUDA's.
    """
    if not isinstance(dtype, torch.dtype) or (fmt := _C.format_of(dtype)) is None:
        return False
    if device_type not in AUTOCAST_DEVICES:
        raise ValueError(
            f"expected device_type 'cpu' or 'cuda' in torch.autocast with {dtype}, but got "
            f"{device_type!r}: there it takes stock dtypes"
        )
    if fmt.itemsize > 2:
        raise ValueError(
            f"expected a dtype stored in 8 or 16 bits in torch.autocast, but got {dtype}, stored "
            f"in {8 * fmt.itemsize}, as float32 is or wider; use model.to({dtype}), or a narrower "
            "one (torch.posit16es2, torch.q43) here"
        )
    return True


def _with_tests(function):
    """The code of autocast.__init__ with one more test, in the branches that it takes for dtypes
    that it does not know and for CUDA: others pay nothing."""
    tree = parse_source(function)
    found = {
        text: node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and (text := ast.unparse(node.test)) in (_UNKNOWN, _CUDA)
    }
    if found.keys() != {_UNKNOWN, _CUDA}:
        raise ImportError(
            f"expected torch.autocast.__init__ to ask whether {_UNKNOWN} and whether {_CUDA}"
        )
    unknown, cuda = found[_UNKNOWN], found[_CUDA]
    ask = ast.parse(f"{_NAME}(self.device, self.fast_dtype)", mode="eval").body
    unknown.test = ast.copy_location(
        ast.BoolOp(ast.And(), [unknown.test, ast.UnaryOp(ast.Not(), ask)]), unknown.test
    )
    cuda.body.insert(0, ast.copy_location(ast.Expr(ask), cuda.body[0]))
    return compile_as(function, tree)


def get_dtype(stock, device_type: str = "cpu") -> torch.dtype:
    """torch.get_autocast_dtype, whose table ends before our dtypes."""
    own = _C.autocast_dtype(device_type) if device_type in AUTOCAST_DEVICES else None
    return stock(device_type) if own is None else own


def get_cpu_dtype(stock) -> torch.dtype:
    """torch.get_autocast_cpu_dtype, likewise."""
    return _C.autocast_dtype("cpu") or stock()


def get_gpu_dtype(stock) -> torch.dtype:
    """torch.get_autocast_gpu_dtype, likewise."""
    return _C.autocast_dtype("cuda") or stock()


def _any_own() -> bool:
    return any(_C.autocast_dtype(kind) is not None for kind in AUTOCAST_DEVICES)


def set_cache_enabled(stock, enabled: bool) -> None:
    """torch.set_autocast_cache_enabled, by which blocks begin and end: PyTorch's cache of cast
    weights knows one dtype per tensor, and is off in blocks of ours, which have their own."""
    if _any_own():
        _C.set_autocast_cache(bool(enabled))
    else:
        stock(enabled)


def is_cache_enabled(stock) -> bool:
    """torch.is_autocast_cache_enabled: what the user has set, while PyTorch's cache is off."""
    return _C.autocast_cache() if _any_own() else stock()


def clear_cache(stock) -> None:
    """torch.clear_autocast_cache, by which the outermost block ends: of our cache, too."""
    _C.clear_autocast_casts()
    stock()


def let_ours_pass(function) -> None:
    """torch.autocast's constructor: its own code with one more test, in the branches that it takes
    for dtypes that it does not know and for CUDA."""
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
    Hook("torch.amp.autocast_mode.autocast.__init__", Kind.TOLD, let_ours_pass),
]
