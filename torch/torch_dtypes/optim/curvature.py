"""Second derivatives for optimizers that take them within a step: AdaHessian (Yao et al., arXiv
2006.00719), and those like it.

They call ``torch.autograd.grad(gradients, parameters, directions)``, after
``backward(create_graph=True)``. The tensors that a step of LowPrecision computes with are copies.
Their gradients get a node here, which passes directions to the graph of the parameters' own
gradients.
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
    """The products, of a format dtype with its smallest number for 0: a step divides by them, and 0
    may stand for anything below that number."""
    fmt = _C.format_of(products.dtype)
    return products if fmt is None else torch.where(products == 0, fmt.smallest, products)


def link(working: dict, factor: float) -> None:
    """Makes the gradients of working tensors (by their parameters) differentiable, if all the
    parameters' own are.

    Args:
        working: for each parameter the tensor that the step updates.
        factor: by which the parameters' gradients were multiplied.
    """
    params = list(working)
    if not params or not all(p.grad.requires_grad for p in params):
        return
    with torch.enable_grad():
        made = _Gradients.apply(
            params, [w.grad for w in working.values()], factor, *working.values()
        )
    for w, g in zip(working.values(), made, strict=True):
        w.grad = g
