"""Hooks of torch.nn.functional.linear_cross_entropy(options=...).

It computes its logits chunk by chunk in memory of a stock dtype.
"""

from __future__ import annotations

import torch

from ... import _C
from ...formats.code_types import compute_type
from ..table import Hook, Kind, wait_for


def in_acc_dtype(stock):
    """Run the chunked operator with operands and sums in acc_dtype, and round results once.

    acc_dtype holds the format's numbers exactly.
    """

    def run(*args):
        formats = {a.dtype for a in args if isinstance(a, torch.Tensor) and _C.is_format_tensor(a)}
        if not formats:
            return stock(*args)
        dtypes = {
            a.dtype for a in args if isinstance(a, torch.Tensor) and a.dtype.is_floating_point
        }
        if len(dtypes) > 1:
            names = " and ".join(sorted(map(str, dtypes)))
            raise RuntimeError(
                "linear_cross_entropy: expected input, linear_weight, linear_bias and weight of "
                f"one dtype, but got {names}; convert them with .to({formats.pop()})"
            )
        dtype, acc_dtype = formats.pop(), next(a for a in args if isinstance(a, torch.dtype))
        results = stock(
            *(
                a.to(acc_dtype) if isinstance(a, torch.Tensor) and a.dtype is dtype else a
                for a in args
            )
        )
        return (
            results.to(dtype)
            if isinstance(results, torch.Tensor)
            else (results[0].to(dtype), *results[1:])
        )

    return run


def adjust(options, num_batches, in_features, num_classes, dtype, *others, **named):
    """Choose acc_dtype for a format dtype: float32, or float64 where that is needed.

    torch calls this function at each call of the loss. The arguments after the dtype differ by
    release.
    """
    if _C.format_of(dtype) is None:
        return None
    wanted = compute_type(dtype)
    acc_dtype = options.acc_dtype or wanted
    if acc_dtype not in (wanted, torch.float64):
        raise ValueError(
            f"linear_cross_entropy: expected an acc_dtype that holds the numbers of {dtype}, "
            f"{wanted} or None, but got {acc_dtype}; leave acc_dtype out, or pass options=None"
        )
    return options._adjust(num_batches, in_features, num_classes, acc_dtype, *others, **named)


_OPERATORS = "torch.nn.modules.linear_cross_entropy"  # imported at the first call with options

HOOKS = [
    Hook("torch.nn.LinearCrossEntropyOptions._adjust", Kind.ASKED, adjust, first="2.13"),
    *(
        wait_for(_OPERATORS, name, Kind.REPLACED, in_acc_dtype, first="2.13")
        for name in (
            "_linear_cross_entropy_batch_chunked",
            "_linear_cross_entropy_batch_chunked_no_reduction",
        )
    ),
]
