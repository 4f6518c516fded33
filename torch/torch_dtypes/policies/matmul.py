"""Matrix products with a given result dtype, of operands of one format or two."""

from __future__ import annotations

import math

import torch

from .. import _C
from ..formats.dtypes import dtype as dtype_of_name
from ..formats.dtypes import format_of
from .accumulation import accumulation_of

__all__ = ["matmul"]

_STOCK = {
    torch.float64: "e11m52",
    torch.float32: "e8m23",
    torch.float16: "e5m10",
    torch.bfloat16: "e8m7",
}


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, out: torch.dtype | str, start: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the matrix product ``a b``, plus ``start``, rounded to ``out``. The operands may have
    two formats, and the result may be wider.

    ``a @ b`` wants one format and rounds to it. Here the products are added by the accumulation
    policy of ``out`` (:func:`accumulate`, :func:`set_accumulation`). Products and accumulators that
    the policy leaves open are in ``out``, a chip's policy depends on the operands' formats, and
    ``"machine"`` is float64. The gradients are such products too, in the operands' dtypes and by
    the policies of these in the backward pass. NaN and infinities are IEEE 754's.

    Args:
        a: ``[..., m, k]``, of a dtype of this package.
        b: ``[..., k, n]``, likewise; dimensions before the last two broadcast.
        out: the result's dtype: one of this package, or a name. For the stock float64, float32,
            float16 and bfloat16, the products are added and rounded as for the format of the same
            values (``"fp32"``).
        start: the accumulator's start, of dtype ``out`` and of sizes ``[..., m, n]`` or sizes that
            broadcast to these; by default 0.

    Returns:
        ``[..., m, n]`` of ``out``.

    Raises:
        TypeError: operands of a stock dtype, a result of another stock dtype, or a start that is
            not of ``out``.
        ValueError: operands of less than two dimensions, or whose inner sizes differ; a start whose
            size does not fit.
        RuntimeError: a policy that a format cannot follow, as in :func:`accumulate`.

    Source: ``torch.promote_types`` has no result for two formats, so their product needs ``out``.

    Example::

        >>> a, b = torch.full((1, 4), 240).to(torch.q43), torch.full((4, 1), 1.25).to(torch.q52)
        >>> torch_dtypes.matmul(a, b, out=torch.e5m7)
        tensor([[1200.]], dtype=torch.e5m7)
        >>> with torch_dtypes.accumulate("nvidia-h100"):
        ...     torch_dtypes.matmul(a, b, out="fp32").item()
        1200.0
    """
    stock = out if isinstance(out, torch.dtype) and out in _STOCK else None
    if stock is not None:
        if start is not None and (not isinstance(start, torch.Tensor) or start.dtype != stock):
            raise TypeError(
                f"expected start of the result's dtype, {stock}, but got "
                f"{getattr(start, 'dtype', type(start))}; convert it"
            )
        same = dtype_of_name(_STOCK[stock])
        return matmul(a, b, out=same, start=None if start is None else start.to(same)).to(stock)
    out = dtype_of_name(out)
    for place, operand in enumerate((a, b), 1):
        if not isinstance(operand, torch.Tensor):
            raise TypeError(
                f"expected tensors as operands of matmul, but got {type(operand).__name__} as "
                f"argument {place}"
            )
        format_of(operand.dtype)
        if operand.dim() < 2:
            raise ValueError(
                f"expected operands of matmul with 2 dimensions or more, but got {operand.dim()} "
                f"in argument {place}; unsqueeze it"
            )
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"expected factors of sizes [..., m, k] and [..., k, n], but got {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    if start is not None:
        if not isinstance(start, torch.Tensor) or start.dtype != out:
            raise TypeError(
                f"expected start of the result's dtype, {out}, but got "
                f"{start.dtype if isinstance(start, torch.Tensor) else type(start)}; convert it"
            )
        sizes = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        try:
            start = start.expand(sizes)
        except RuntimeError as error:
            raise ValueError(
                f"expected start of a size that broadcasts to {sizes}, but got {tuple(start.shape)}"
            ) from error
    return _Product.apply(a, b, start, out)


def _product(
    a: torch.Tensor, b: torch.Tensor, start: torch.Tensor | None, out: torch.dtype
) -> torch.Tensor:
    policy = accumulation_of(out).policy
    if policy in ("machine", "float32", "float64"):
        wide = torch.float32 if policy == "float32" else torch.float64
        for operand in (a, b):
            if wide == torch.float32 and not format_of(operand.dtype).fits_float:
                raise RuntimeError(
                    "matmul: expected formats whose values float32 has for the accumulation "
                    f"policy float32, but got {operand.dtype}; use another policy"
                )
            if wide == torch.float32:
                _C.expect_float32_products(operand.dtype, "matmul", operand)
        product = a.to(wide) @ b.to(wide)
        return (product if start is None else product + start.to(wide)).to(out)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, n = a.shape[-2], b.shape[-1]
    count = math.prod(batch)
    left, right = (t.expand(*batch, *t.shape[-2:]).reshape(count, *t.shape[-2:]) for t in (a, b))
    return _C.product_into(
        left, right, out, None if start is None else start.reshape(count, m, n)
    ).reshape(*batch, m, n)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, start, out):
        ctx.save_for_backward(a, b)
        return _product(a, b, start, out)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        to_a = (
            matmul(gradient, b.transpose(-2, -1), out=a.dtype) if ctx.needs_input_grad[0] else None
        )
        to_b = (
            matmul(a.transpose(-2, -1), gradient, out=b.dtype) if ctx.needs_input_grad[1] else None
        )
        return (
            _sum_broadcast(to_a, a.shape),
            _sum_broadcast(to_b, b.shape),
            gradient if ctx.needs_input_grad[2] else None,
            None,
        )


def _sum_broadcast(gradient: torch.Tensor | None, shape: torch.Size) -> torch.Tensor | None:
    """Add up a gradient over the dimensions that were broadcast."""
    return gradient if gradient is None or gradient.shape == shape else gradient.sum_to_size(shape)
