"""microxcaling's rounding of a tensor to a float."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ...targets.chop import chop
from .formats import (
    ElemFormat,
    Flushing,
    _get_format_params,
    _get_min_norm,
    find_mode,
    find_vector_format,
)

__all__ = ["quantize_elemwise_op"]


def quantize_elemwise_op(
    A: torch.Tensor, mx_specs: Mapping | None, round: str | None = None
) -> torch.Tensor:
    """Round A to the float of the options ``bfloat`` (8 exponent bits) or ``fp`` (5 exponent bits):
    their bits in all. The gradient passes straight through.

    Raises:
        ValueError: both options, too few bits, or an unknown mode.
    """
    if mx_specs is None:
        return A
    found = find_vector_format(mx_specs["bfloat"], mx_specs["fp"], mx_specs["bfloat_subnorms"])
    return A if found is None else chop(A, found, find_mode(round or mx_specs["round"]))


def _quantize_elemwise_core(
    A: torch.Tensor,
    bits: int,
    exp_bits: int,
    max_norm: float,
    round: str = "nearest",
    saturate_normals: bool = False,
    allow_denorm: bool = True,
    custom_cuda: bool = False,
) -> torch.Tensor:
    """Round A to a float, or to a fixed-point number without ``exp_bits``. Infinities and
    NaN stay.

    Args:
        bits: bits of the sign and of the significand with its leading one; at least 2.
        exp_bits: 2 to 8, or 0. They give the smallest exponent alone.
        max_norm: the largest number. Above, there is infinity; or it, with ``saturate_normals`` or
            without ``exp_bits``.
        allow_denorm: False takes numbers below the smallest normal one as 0.
        custom_cuda: changes nothing.

    Raises:
        ValueError: an unknown mode, or bits out of range.
    """
    mode = find_mode(round)
    if bits < 2 or exp_bits not in (0, *range(2, 9)):
        raise ValueError(
            f"expected at least 2 bits and exp_bits of 0 or 2 to 8, but got {bits} and {exp_bits}"
        )
    if exp_bits == 0:
        y = chop(A, f"fixed1_{bits - 2}_symmetric", mode)
    else:
        y, tiny = chop(A, f"e8m{bits - 2}", mode), _get_min_norm(exp_bits)
        if not allow_denorm:
            y = torch.where(A.abs() < tiny, torch.zeros_like(y), y)
        elif exp_bits < 8:
            y = torch.where(A.abs() < tiny, chop(A, f"e{exp_bits}m{bits - 2}", mode), y)
    if saturate_normals or exp_bits == 0 or mode == "toward_zero":
        y = y.clamp(-max_norm, max_norm)
    else:
        y = torch.where(y.abs() > max_norm, y.sign() * torch.inf, y)
    return torch.where(A.isfinite(), y, A)


def _quantize_elemwise(
    A: torch.Tensor,
    elem_format: str | ElemFormat | None,
    round: str = "nearest",
    custom_cuda: bool = False,
    saturate_normals: bool = False,
    allow_denorm: bool = True,
) -> torch.Tensor:
    """Round A to an element format, without a scale. None returns A."""
    if elem_format is None:
        return A
    exp_bits, bits, _, largest, _ = _get_format_params(elem_format)
    return _quantize_elemwise_core(
        A, bits, exp_bits, largest, round, saturate_normals, allow_denorm
    )


def _quantize_bfloat(
    A: torch.Tensor,
    bfloat: int,
    round: str = "nearest",
    custom_cuda: bool = False,
    allow_denorm: bool = True,
) -> torch.Tensor:
    """Round A to a float of ``bfloat`` bits, 8 of them the exponent's. 0 and 32 return A.

    Raises:
        ValueError: fewer than 10 bits, or an unknown mode.
    """
    found = find_vector_format(bfloat, 0, allow_denorm)
    return A if found is None else chop(A, found, find_mode(round))


def _quantize_fp(
    A: torch.Tensor,
    exp_bits: int | None = None,
    mantissa_bits: int | None = None,
    round: str = "nearest",
    custom_cuda: bool = False,
    allow_denorm: bool = True,
) -> torch.Tensor:
    """Round A to a float of these bits, with infinities. None returns A."""
    if exp_bits is None or mantissa_bits is None:
        return A
    name = f"e{exp_bits}m{mantissa_bits}"
    return chop(A, name if allow_denorm else Flushing(name, exp_bits), find_mode(round))
