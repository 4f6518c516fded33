"""Second derivatives for optimizers that take them within a step, as AdaHessian (Yao et al., arXiv
2006.00719).

They call ``torch.autograd.grad(gradients, parameters, directions)`` after
``backward(create_graph=True)``. A step of LowPrecision computes on copies of the parameters. A node
links the copies' gradients to the graph of the parameters' own gradients.
"""

from __future__ import annotations

import torch

from .. import _C


class _Gradients(torch.autograd.Function):
    """Gradients as functions of the tensors that a step updates."""

    @staticmethod
    def forward(ctx, params, values, factor, *working):
        ctx.params, ctx.gradients, ctx.factor = params, [p.grad for p in params], factor
        return tuple(v.clone() for v in values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *directions):
        pairs = zip(directions, ctx.gradients, strict=True)
        products = torch.autograd.grad(
            ctx.gradients,
            ctx.params,
            [z.to(g.dtype) for z, g in pairs],
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return (
            None,
            None,
            None,
            *(
                _not_zero(h).to(z.dtype) * ctx.factor
                for h, z in zip(products, directions, strict=True)
            ),
        )


def _not_zero(products: torch.Tensor) -> torch.Tensor:
    """Replace 0 by the smallest number of a format dtype. A step divides by the products, and a
    product below that number may have become 0."""
    fmt = _C.format_of(products.dtype)
    return products if fmt is None else torch.where(products == 0, fmt.smallest, products)


def link(working: dict, factor: float) -> None:
    """Make the gradients of a step's tensors differentiable, if all the parameters' own are.

    Args:
        working: for each parameter the tensor that the step updates.
        factor: the parameters' gradients were multiplied by it.
    """
    params = list(working)
    if not params or not all(p.grad.requires_grad for p in params):
        return
    with torch.enable_grad():
        linked = _Gradients.apply(
            params, [w.grad for w in working.values()], factor, *working.values()
        )
    for w, g in zip(working.values(), linked, strict=True):
        w.grad = g
