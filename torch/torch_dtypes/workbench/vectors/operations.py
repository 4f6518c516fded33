"""Operations on values: results as codes, and flags."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ... import _C
from ..cards.card import card
from . import exact
from .flags import DIVIDE_BY_ZERO, INEXACT, INVALID, OVERFLOW, UNDERFLOW, Range, finite_values

ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1, "fma": 3, "cast": 1}
_LARGEST = torch.finfo(torch.float64).max


def _in_float64(operation: str, values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Compute in float64. The result is right if an operand is infinite or NaN, and where a zero
    decides."""
    a = values[0]
    if operation == "sqrt":
        return a.sqrt()
    if operation == "cast":
        return a
    b = values[1]
    if operation == "fma":
        product = a * b  # the product may exceed float64's range without being infinite
        product = torch.where(
            a.isfinite() & b.isfinite(), product.clamp(-_LARGEST, _LARGEST), product
        )
        return product + values[2]
    return {"add": a.add, "sub": a.sub, "mul": a.mul, "div": a.div}[operation](b)


def _sum_terms(
    operation: str, values: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the signs of the two numbers that the operation adds, as 1 or -1; None if it adds
    none."""
    one = torch.ones((), dtype=torch.float64)
    signs = [torch.copysign(one, v) for v in values]
    if operation == "add":
        return signs[0], signs[1]
    if operation == "sub":
        return signs[0], -signs[1]
    return (signs[0] * signs[1], signs[2]) if operation == "fma" else None


def evaluate(
    operation: str, values: Sequence[torch.Tensor], operand: _C.Format, result: _C.Format
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes of correctly rounded results, and their flags.

    Args:
        operation: a key of ``ARITY``.
        values: the operands' values, decoded exactly, in float64, all of one shape (n,).
        operand, result: the format of the operands, whose significands decide which arithmetic
            computes, and the format of the result, with its mode.

    Returns:
        Codes and flags, int64 of shape (n,).
    """
    mode = result.rounding.name
    stock = _in_float64(operation, values)
    finite, is_nan = (
        torch.ones_like(stock, dtype=torch.bool),
        torch.zeros_like(stock, dtype=torch.bool),
    )
    for v in values:
        finite &= v.isfinite()
        is_nan |= v.isnan()
    by_zero = (
        finite & (values[0] != 0) & (values[1] == 0)
        if operation == "div"
        else torch.zeros_like(finite)
    )
    invalid = stock.isnan() & ~is_nan
    ordinary = finite & ~by_zero & ~invalid
    if operation == "div":
        ordinary &= values[1] != 0

    exact_results = torch.where(ordinary, 0.0, stock)
    chosen = ordinary.nonzero().squeeze(1)
    operands = [v[chosen] for v in values]
    if operation == "cast":
        exact_results[chosen] = operands[0]
    elif len(chosen):
        limits = card(operand)
        magnitudes = (limits.smallest, limits.largest)
        # Whose negative numbers may differ from the positive ones
        if operand.kind == _C.Kind.table:
            sizes = finite_values(operand).abs()
            magnitudes = (sizes[sizes > 0].min().item(), sizes.max().item())
        way = (
            exact.by_tensors
            if exact.is_fast(operand.significand_bits, magnitudes)
            else exact.by_rationals
        )
        exact_results[chosen] = way(operation, operands)
    exact_results = _with_signs_of_zeros(operation, exact_results, ordinary, values, stock, mode)

    if operation != "cast":
        # One NaN, whatever sign the processor gave it.
        exact_results = torch.where(exact_results.isnan(), math.nan, exact_results)
    logarithms = (
        operation in ("mul", "div", "sqrt")
        and result.table_address == operand.table_address
        and result.on_logarithms
    )
    codes = _C.encode_exact(
        logarithms or result,
        torch.where(ordinary, exact_results.clamp(-_LARGEST, _LARGEST), exact_results),
    )
    delivered = _C.decode_exact(result, codes)
    if logarithms:  # numbers so close have the same logarithm as the code
        exact_results = torch.where(
            (exact_results - delivered).abs() < delivered.abs() * 2.0**-47, delivered, exact_results
        )
    if operation == "cast":
        invalid |= (is_nan & ~delivered.isnan()) | (stock.isinf() & ~delivered.isinf())
    return codes, flags_of(
        exact_results, delivered, ordinary, result
    ) | invalid * INVALID | by_zero * DIVIDE_BY_ZERO


def flags_of(
    exact_results: torch.Tensor, delivered: torch.Tensor, ordinary: torch.Tensor, result: _C.Format
) -> torch.Tensor:
    """Return overflow, underflow and inexact of the delivered results against the exact ones, where
    these are finite."""
    limits, mode = Range(result), result.rounding.name
    overflow = ordinary & limits.overflows(exact_results, mode)
    inexact = ordinary & ((delivered != exact_results) | overflow)
    underflow = inexact & limits.is_tiny(exact_results, mode)
    return inexact * INEXACT | underflow * UNDERFLOW | overflow * OVERFLOW


def _with_signs_of_zeros(operation, exact_results, ordinary, values, stock, mode):
    """Give exact zeros their signs: for a sum by IEEE 754-2019, section 6.3, else those of
    float64."""
    zero = ordinary & (exact_results == 0)
    if (terms := _sum_terms(operation, values)) is None:
        return torch.where(zero, torch.copysign(torch.zeros_like(stock), stock), exact_results)
    opposite = -0.0 if mode == "down" else 0.0
    signed = torch.where(
        terms[0] == terms[1], torch.copysign(torch.zeros_like(exact_results), terms[0]), opposite
    )
    return torch.where(zero, signed, exact_results)
