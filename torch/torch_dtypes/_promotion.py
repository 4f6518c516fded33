"""Type promotion and the default dtype.

One of ours with bool, an integer or a Python number is ours; with a stock floating dtype, the stock one; two formats do not mix.
"""

from __future__ import annotations

import torch

from . import _C


def _promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    ours = [d for d in (a, b) if _C.format_of(d) is not None]
    if len(ours) == 2:
        if a is b:
            return a
        raise TypeError(f"expected dtypes that promote to one, but got two number formats, {a} and {b}. Convert one tensor first.")
    other = b if ours[0] is a else a
    return other if other.is_floating_point or other.is_complex else ours[0]


def promote_types(stock, type1, type2):
    return _promote(type1, type2)


def can_cast(stock, from_, to=None, **kwargs):
    """Whether a cast is allowed under promotion's rules: not from floating to integers or bool, nor from complex to real."""
    from_ = kwargs.get("from_", from_)
    to = kwargs.get("to", to)
    if from_.is_complex and not to.is_complex:
        return False
    return not (from_.is_floating_point and not (to.is_floating_point or to.is_complex))


def result_type(stock, *args, **kwargs):
    """The dtype of an operation on the two: the higher category (bool, integer, floating, complex) wins; within one category a tensor
    with dimensions outranks one without, and that outranks a Python number."""

    def describe(x):
        if isinstance(x, torch.Tensor):
            return x.dtype, 2 if x.dim() else 1
        return {bool: torch.bool, int: torch.int64, float: torch.float64}.get(type(x), torch.complex64), 0

    def category(d):
        return 3 if d.is_complex else 2 if d.is_floating_point else 0 if d is torch.bool else 1

    (a, rank_a), (b, rank_b) = (describe(x) for x in (*args, *kwargs.values()))
    if category(a) == category(b) and rank_a != rank_b:
        return a if rank_a > rank_b else b
    return _promote(a, b)


def set_default_dtype(stock, dtype):
    if _C.format_of(dtype) is None:
        stock(dtype)
        _C.set_default_format(None)
    else:
        _C.set_default_format(dtype)


def get_default_dtype(stock):
    return _C.get_default_format()
