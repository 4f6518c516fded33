"""Hooks of torch.testing: the built-in dtypes, and the comparison in assert_close.

formats/testing.py adds other formats.
"""

from __future__ import annotations

import functools

import torch

from ... import _C
from ...formats.testing import tolerances
from ..table import Hook, Kind


def add_tolerances(table: dict) -> None:
    """Add assert_close's tolerances for the built-in dtypes."""
    table.update({dtype: tolerances(dtype) for dtype in _C.builtin_dtypes()})


def add_types(types: list) -> None:
    """Add the built-in dtypes to those that make_tensor takes."""
    types.extend(_C.builtin_dtypes())


def compare_values(stock):
    """Compare format tensors by exact values in float64 in assert_close.

    PyTorch's comparison would round in the format. It refuses tolerances for types of one byte, and
    finds no common type of two formats (check_dtype=False).
    """

    @functools.wraps(stock)
    def equalize(self, actual, expected):
        if torch.compiler.is_dynamo_compiling():  # no graph of Dynamo has a format tensor
            return stock(self, actual, expected)
        return stock(
            self, *(t.double() if _C.is_format_tensor(t) else t for t in (actual, expected))
        )

    return equalize


HOOKS = [
    Hook("torch.testing._comparison._DTYPE_PRECISIONS", Kind.TOLD, add_tolerances),
    Hook("torch.testing._creation._FLOATING_OR_COMPLEX_TYPES", Kind.TOLD, add_types),
    Hook(
        "torch.testing._comparison.TensorLikePair._equalize_attributes",
        Kind.REPLACED,
        compare_values,
    ),
]
