"""microxcaling's rounding of a tensor to blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ...targets.chop import chop
from .formats import ElemFormat, find_blocks, find_mode
from .specs import mx_assert_test

__all__ = ["quantize_mx_op"]

_TINY = 2.0**-126


def quantize_mx_op(
    A: torch.Tensor,
    mx_specs: Mapping,
    elem_format: str | ElemFormat | None = None,
    block_size: int | None = None,
    axes: int | Sequence[int] | None = None,
    round: str = "nearest",
    expand_and_reshape: bool = False,
) -> torch.Tensor:
    """Round A to blocks of ``block_size`` elements (0: all) along ``axes``, which share a power of
    two. Without ``elem_format``, A is returned. The gradient passes straight through.

    Args:
        block_size: default: that of ``mx_specs``.
        round: ``"nearest"`` (ties away from zero), ``"even"``, ``"floor"`` (toward zero) or
            ``"dither"`` (stochastic).

    Raises:
        ValueError: an unknown element format or mode.
    """
    mx_assert_test(mx_specs)
    if elem_format is None:
        return A
    element = ElemFormat.from_str(elem_format) if isinstance(elem_format, str) else elem_format
    method = mx_specs["shared_exp_method"]
    if method not in ("max", "none"):
        raise ValueError(f"expected shared_exp_method 'max' or 'none', but got {method!r}")
    size = mx_specs["block_size"] if block_size is None else block_size
    given = range(A.dim()) if axes is None else [axes] if isinstance(axes, int) else axes
    places = tuple(axis % A.dim() for axis in given)
    shape = mx_specs["scale_bits"] or 8, 1 if method == "none" else size or None, places
    y = chop(A, find_blocks(element, *shape), find_mode(round))
    if mx_specs["mx_flush_fp32_subnorms"]:
        largest = chop(A.detach().abs(), find_blocks(None, *shape))
        y = torch.where(largest < _TINY, torch.zeros_like(y), y)
    return y
