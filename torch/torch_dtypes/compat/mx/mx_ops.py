"""microxcaling's rounding of a tensor to blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ...targets.chop import chop
from .formats import FP32_MIN_NORMAL, ElemFormat, find_blocks, find_mode
from .specs import mx_assert_test

__all__ = ["quantize_mx_op"]


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
    return _quantize_mx(
        A,
        mx_specs["scale_bits"] or 8,
        elem_format,
        mx_specs["shared_exp_method"],
        axes,
        mx_specs["block_size"] if block_size is None else block_size,
        round,
        mx_specs["mx_flush_fp32_subnorms"],
    )


def _quantize_mx(
    A: torch.Tensor,
    scale_bits: int,
    elem_format: str | ElemFormat | None,
    shared_exp_method: str = "max",
    axes: int | Sequence[int] | None = None,
    block_size: int = 0,
    round: str = "nearest",
    flush_fp32_subnorms: bool = False,
    custom_cuda: bool = False,
) -> torch.Tensor:
    """Round A to blocks, as ``quantize_mx_op`` with these options.

    Args:
        scale_bits: at least 1.
        shared_exp_method: ``"max"``, or ``"none"`` (blocks of one number).
        flush_fp32_subnorms: takes blocks below 2^-126 as 0.
        custom_cuda: changes nothing.
    """
    if elem_format is None:
        return A
    element = ElemFormat.from_str(elem_format) if isinstance(elem_format, str) else elem_format
    if shared_exp_method not in ("max", "none"):
        raise ValueError(
            f"expected shared_exp_method 'max' or 'none', but got {shared_exp_method!r}"
        )
    if scale_bits < 1:
        raise AssertionError(f"expected scale_bits of at least 1, but got {scale_bits}")
    given = range(A.dim()) if axes is None else [axes] if isinstance(axes, int) else axes
    size = 1 if shared_exp_method == "none" else block_size or None
    shape = scale_bits, size, tuple(axis % A.dim() for axis in given)
    y = chop(A, find_blocks(element, *shape), find_mode(round))
    if flush_fp32_subnorms:
        largest = chop(A.detach().abs(), find_blocks(None, *shape))
        y = torch.where(largest < FP32_MIN_NORMAL, torch.zeros_like(y), y)
    return y
