"""Functions that PyTorch composes in Python and that round once.

They run on values in the compute dtype, and their results are rounded at the end. For operators in
C++ the step ``Composed`` in ``OperatorFacts.cpp`` does the same. ``docs/reference/rounded-once.md``
is made from both lists.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator

import torch

from ... import _C
from ...formats.code_types import compute_type
from ..exchange import copy_stock
from ..stock_functions import has_infinity
from ..table import Hook, Kind

_LOSSES, _MASKED = "torch.nn.functional", "torch.masked._ops"
# By module, each function's name. After a colon follows an argument that must be given, or after a
# minus sign one that must not be. ``out`` may be given by name: the result is copied to it.
FUNCTIONS = {
    _LOSSES: (
        "gaussian_nll_loss",
        "huber_loss:weight",
        "kl_div",
        "l1_loss:weight",
        "local_response_norm",
        "lp_pool1d",
        "lp_pool2d",
        "lp_pool3d",
        "mse_loss:weight",
        "multilabel_soft_margin_loss",
        "normalize:-out",
        "triplet_margin_with_distance_loss:-distance_function",
    ),
    _MASKED: (
        "log_softmax",
        "logsumexp",
        "mean",
        "median",
        "norm",
        "normalize",
        "softmax",
        "softmin",
        "std",
        "var",
    ),
}

_KINDS = _C.Accumulate
_STOCK_SUMS = (_KINDS.machine, _KINDS.float32, _KINDS.float64)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _one_format(values: tuple) -> torch.dtype | None:
    """Return the one format dtype of all floating tensors among the arguments, or None.

    None also where stock functions ask a tensor's class first.
    """
    dtypes = {v.dtype for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()}
    if len(dtypes) != 1 or any(
        isinstance(v, torch.Tensor) and type(v) not in _PLAIN for v in values
    ):
        return None
    dtype = dtypes.pop()
    return None if _C.format_of(dtype) is None else dtype


def _finite(result: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Replace infinities by the outermost numbers, in a format that has none.

    Only masked elements are infinite.
    """
    if has_infinity(dtype):
        return result
    info = torch.finfo(dtype)
    return result.masked_fill(result == float("inf"), info.max).masked_fill(
        result == float("-inf"), info.min
    )


def rounded_once(
    stock: Callable, fills: bool, place: int | None, name: str, wanted: bool, *args, **kwargs
) -> torch.Tensor | None:
    """Run the stock function on values in the compute dtype, and round its result once.

    Operands of several dtypes promote or raise as in the stock function, whose operators then round
    one by one. They also do under accumulation policies that round within a sum.
    """
    values = (*args, *kwargs.values())
    dtype = _one_format(values)
    if dtype is None or (kind := _C.accumulation_of(dtype).kind) not in _STOCK_SUMS:
        return None
    asked, out = kwargs.get("dtype"), kwargs.pop("out", None)
    if (
        out is not None
        and torch.is_grad_enabled()
        and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)
    ):
        return None  # the stock function raises
    if (
        place is not None
        and ((args[place] if len(args) > place else kwargs.get(name)) is not None) != wanted
    ):
        return None
    wide = torch.float64 if kind == _KINDS.float64 else compute_type(dtype, asked)

    def value_of(v: object) -> object:
        if isinstance(v, torch.dtype):
            return wide if _C.format_of(v) is not None else v
        return v.to(wide) if isinstance(v, torch.Tensor) and v.is_floating_point() else v

    with torch._C._DisableAutocast():
        result = stock(*map(value_of, args), **{key: value_of(v) for key, v in kwargs.items()})
        own = dtype if asked is None else asked
        if _C.format_of(own) is None:
            return result
        result = (_finite(result, own) if fills else result).to(own)
    return result if out is None else out.resize_(result.shape).copy_(result)


def _rows() -> Iterator[Hook]:
    for module, names in FUNCTIONS.items():
        for name, _, argument in (text.partition(":") for text in names):
            stock = copy_stock(Hook(f"{module}.{name}", Kind.ASKED, None).find()[1])
            wanted, argument = not argument.startswith("-"), argument.removeprefix("-")
            parameters = list(inspect.signature(stock).parameters)
            if argument and argument not in parameters:
                continue  # in this release the function is one operator
            place = parameters.index(argument) if argument else None
            run = functools.partial(rounded_once, stock, module == _MASKED, place, argument, wanted)
            yield Hook(f"{module}.{name}", Kind.ASKED_OF_FORMATS, run)


def in_compute_dtype(stock: Callable) -> Callable:
    """Use the value of a total norm in a format, so that the factor is not rounded to it."""

    @functools.wraps(stock)
    def clip(parameters, max_norm, total_norm, foreach=None):
        # Dynamo could not trace the second test, and its graphs have no format tensor.
        if not torch.compiler.is_dynamo_compiling() and _C.is_format_tensor(total_norm):
            total_norm = total_norm.to(compute_type(total_norm.dtype))
        return stock(parameters, max_norm, total_norm, foreach)

    return clip


HOOKS = [
    *_rows(),
    Hook("torch.nn.utils.clip_grads_with_norm_", Kind.REPLACED, in_compute_dtype, within=True),
]
