"""torch.testing with the built-in dtypes (formats/testing.py makes others known), and the
comparison of assert_close."""

from __future__ import annotations

import functools

import torch

from ... import _C
from ...formats.testing import tolerances
from ..table import Hook, Kind


def known_tolerances(table: dict) -> None:
    """The tolerances of assert_close, for the built-in dtypes."""
    table.update({dtype: tolerances(dtype) for dtype in _C.builtin_dtypes()})


def known_types(types: list) -> None:
    """What make_tensor takes: the built-in dtypes."""
    types.extend(_C.builtin_dtypes())


def by_value(stock):
    """assert_close compares ours in float64, exactly: stock's comparison would round in them,
    refuses tolerances for types of one byte, and finds no common type of two formats
    (check_dtype=False)."""

    @functools.wraps(stock)
    def equalize(self, actual, expected):
        if torch.compiler.is_dynamo_compiling():  # no tensor of ours is in a graph of Dynamo's
            return stock(self, actual, expected)
        return stock(
            self, *(t.double() if _C.is_format_tensor(t) else t for t in (actual, expected))
        )

    return equalize


HOOKS = [
    Hook("torch.testing._comparison._DTYPE_PRECISIONS", Kind.TOLD, known_tolerances),
    Hook("torch.testing._creation._FLOATING_OR_COMPLEX_TYPES", Kind.TOLD, known_types),
    Hook("torch.testing._comparison.TensorLikePair._equalize_attributes", Kind.REPLACED, by_value),
]
