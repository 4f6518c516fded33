"""microxcaling's rounding to a float in both passes."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch

from ...quantization.cast import Cast
from .formats import find_mode, find_vector_format
from .specs import apply_mx_specs, mx_assert_test

__all__ = ["quantize_bfloat"]


def quantize_bfloat(
    x: torch.Tensor, mx_specs: Mapping | None, round: str | None = None
) -> torch.Tensor:
    """Round x to the float of ``bfloat`` or ``fp``, and its gradient too unless quantize_backprop
    is False."""
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return x
    specs = apply_mx_specs(mx_specs)
    return round_both(x, specs, round or specs["round"], round or specs["round"])


def round_both(x: torch.Tensor, specs: Mapping, forward: str | None, backward: str) -> torch.Tensor:
    """Round x to the float of the specs by one mode (None: not at all), and its gradient by
    another."""
    numbers = (specs["bfloat"], specs["fp"], specs["bfloat_subnorms"])
    cast = _find_cast(*numbers, forward, backward if specs["quantize_backprop"] else None)
    return x if cast is None else cast(x)


@functools.cache
def _find_cast(bfloat, fp, subnormals, forward, backward) -> Cast | None:
    found = find_vector_format(bfloat, fp, subnormals)
    if found is None or forward is backward is None:
        return None
    return Cast(
        *(
            None if mode is None else {"format": found, "rounding": find_mode(mode)}
            for mode in (forward, backward)
        )
    )
