"""Which stock builtins run through us, when, and what then happens.

Each hooked builtin stays the object that it was; a C function in front of it (torch/csrc/formats/Trampolines.cpp) tests for one of the
reasons below and runs the implementation named here, or else the stock function at once.
"""

from __future__ import annotations

import torch

from . import _C, _conversion, _factories, _promotion, _serialization

# Reasons and guards: see torch/csrc/formats/Trampolines.h.
DTYPE_KEYWORD, DTYPE_ANYWHERE, DEFAULT_DTYPE, OWN_SELF, OWN_ARGUMENT = 1, 2, 4, 8, 16
GUARD_KEYWORD, GUARD_ANYWHERE, GUARD_ALWAYS = 32, 64, 128

_FLOAT_FACTORIES = (
    "linspace logspace eye rand randn normal bartlett_window blackman_window hamming_window hann_window kaiser_window empty_permuted"
).split()
_LIKE = "zeros_like ones_like empty_like full_like rand_like randn_like randint_like".split()
_NEW = "new_zeros new_ones new_empty new_full new_empty_strided".split()
# Operators with a dtype= argument: the dtype travels through the dispatcher; only a stock one written by the user needs the guard.
_WITH_DTYPE = "sum nansum mean prod cumsum cumprod logcumsumexp softmax log_softmax norm var std nanmean".split()


def _hook(owner: object, name: str, implementation, when: int) -> None:
    builtin = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if builtin is not None:  # not every supported version of torch has every function
        _C.hook(builtin, implementation, when)


def install() -> None:
    """Patches dtype, finfo and Tensor.dtype, registers the operators and hooks the builtins. Called once, at import."""
    _C.patch(_serialization.reduce_dtype)
    base = torch._C.TensorBase
    functions, nn_functions = torch._C._VariableFunctions, torch._C._nn

    # Factories
    for name in ("zeros", "empty", "empty_strided"):
        _hook(torch, name, _factories.bits(name), DTYPE_KEYWORD | DEFAULT_DTYPE)
    for name in ("ones", "full"):
        _hook(torch, name, getattr(_factories, name), DTYPE_KEYWORD | DEFAULT_DTYPE)
    for name in ("tensor", "scalar_tensor", "asarray"):
        _hook(torch, name, getattr(_factories, name), DTYPE_KEYWORD | DEFAULT_DTYPE)
    _hook(torch, "as_tensor", _factories.as_tensor, DTYPE_ANYWHERE | DEFAULT_DTYPE)
    _hook(torch, "arange", _factories.arange, DTYPE_KEYWORD | DEFAULT_DTYPE)
    _hook(torch, "range", _factories.arange, DTYPE_KEYWORD | DEFAULT_DTYPE)
    _hook(torch, "randint", _factories.through_float64("randint"), DTYPE_KEYWORD)
    _hook(torch, "randperm", _factories.through_float64("randperm"), DTYPE_KEYWORD)
    _hook(torch, "rand", _factories.rand, DTYPE_KEYWORD | DEFAULT_DTYPE)
    for name in _FLOAT_FACTORIES:
        if name not in ("rand",):
            _hook(torch, name, _factories.through_float64(name), DTYPE_KEYWORD | DEFAULT_DTYPE)
    for name in _LIKE:
        _hook(torch, name, _factories.like(name), DTYPE_KEYWORD | GUARD_KEYWORD)
    for name in _NEW:
        _hook(base, name, _factories.new(name), DTYPE_KEYWORD | GUARD_KEYWORD)
    _hook(base, "new_tensor", _factories.new_tensor, DTYPE_KEYWORD | OWN_SELF)
    _hook(base, "new", _factories.legacy_new, OWN_SELF)

    _hook(base, "set_", _conversion.set_, OWN_SELF)

    # Conversions
    _hook(base, "to", _conversion.to, OWN_ARGUMENT | GUARD_ANYWHERE)
    _hook(base, "type", _conversion.type_, OWN_SELF)
    for name in ("float", "double", "half", "bfloat16"):
        _hook(base, name, None, GUARD_ALWAYS)
    _hook(base, "view", None, GUARD_ANYWHERE)
    _hook(nn_functions, "_parse_to", _conversion.parse_to, DTYPE_ANYWHERE | OWN_ARGUMENT)
    for name in _WITH_DTYPE:
        _hook(functions, name, None, GUARD_KEYWORD)
        _hook(base, name, None, GUARD_KEYWORD)

    # Type promotion and the default dtype
    for name in ("promote_types", "can_cast"):
        _hook(torch, name, getattr(_promotion, name), DTYPE_ANYWHERE)
    _hook(torch, "result_type", _promotion.result_type, OWN_SELF | OWN_ARGUMENT)
    _hook(torch._C, "_set_default_dtype", _promotion.set_default_dtype, DTYPE_ANYWHERE | DEFAULT_DTYPE)
    _hook(torch, "get_default_dtype", _promotion.get_default_dtype, DEFAULT_DTYPE)

    # Readers of raw memory
    _hook(base, "tolist", _conversion.tolist, OWN_SELF)
    _hook(base, "numpy", _conversion.numpy, OWN_SELF)
    _hook(torch._C, "_to_dlpack", _conversion.to_dlpack, OWN_SELF)
    _hook(torch._C, "_to_dlpack_versioned", _conversion.to_dlpack, OWN_SELF)

    _serialization.install()
