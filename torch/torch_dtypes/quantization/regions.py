"""A whole layer under an accumulation policy, forward and backward: a node of autograd's graph that
keeps the layer's own graph inside."""

from __future__ import annotations

import torch

from ..targets.base import is_recorded
from .derivatives import first_only
from .rounders import map_tensors


class _Region(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, override, *tensors):
        # The policy belongs to the thread, and backward may run on any. So this node keeps the
        # layer's graph, and its backward runs that graph under the policy.
        leaves = [
            t.detach().requires_grad_(needs)
            for t, needs in zip(tensors, ctx.needs_input_grad[2:], strict=True)
        ]
        with torch.enable_grad(), override:
            outputs = run(leaves)
        ctx.leaves, ctx.outputs, ctx.override = leaves, outputs, override
        return tuple(y.detach() for y in outputs)

    @staticmethod
    @first_only("a quantised layer under a policy", "give its rule accumulate=None")
    def backward(ctx, *gradients):
        wanted = [i for i, needs in enumerate(ctx.needs_input_grad[2:]) if needs]
        reached = [(y, g) for y, g in zip(ctx.outputs, gradients, strict=True) if y.requires_grad]
        results: list = [None] * len(ctx.leaves)
        with ctx.override:
            computed = torch.autograd.grad(
                [y for y, _ in reached],
                [ctx.leaves[i] for i in wanted],
                [g for _, g in reached],
                retain_graph=True,
                allow_unused=True,
            )
        for i, g in zip(wanted, computed, strict=True):
            results[i] = g
        return None, None, *results


def under_policy(
    override,
    forward,
    args: tuple,
    kwargs: dict,
    parameters: dict[str, torch.Tensor],
    standing_in,
    is_stock: bool,
    has_fused_path: bool,
):
    """Run ``forward(*args, **kwargs)`` under the policy, forward and backward.

    Args:
        standing_in: ``standing_in(parameters)`` puts the parameters in place for a block.
        is_stock: PyTorch's own kernels follow the policy, so a trace of them is complete.
        has_fused_path: PyTorch may use a fused kernel that ignores the policy. It does not use it
            where gradients are needed.

    Raises:
        NotImplementedError: torch.jit.trace is recording. It would not record the policy, which
            belongs to the thread, nor masks.
    """
    if is_recorded() and not is_stock:
        raise NotImplementedError(
            "expected a layer of several products under a policy (attention, recurrent) to be "
            "called outside of torch.jit.trace, which does not record the policy; trace it with "
            "accumulate=None in its rule, or call it as it is"
        )
    inputs: list[torch.Tensor] = []
    place: dict[int, int] = {}

    def note(t: torch.Tensor) -> torch.Tensor:
        if id(t) not in place:
            place[id(t)] = len(inputs)
            inputs.append(t)
        return t

    map_tensors((args, kwargs), note)
    tensors = [*inputs, *parameters.values()]
    shape: list = []

    def run(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        given_args, given_kwargs = map_tensors((args, kwargs), lambda t: leaves[place[id(t)]])
        with standing_in(dict(zip(parameters, leaves[len(inputs) :], strict=True))):
            output = forward(*given_args, **given_kwargs)
        results: list[torch.Tensor] = []
        map_tensors(output, lambda y: results.append(y) or y)
        shape.append(output)
        return results

    if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
        if has_fused_path:
            with torch.enable_grad(), override:
                run([t.detach().requires_grad_() for t in tensors])
            return map_tensors(shape[0], torch.Tensor.detach)
        with override, standing_in(parameters):
            return forward(*args, **kwargs)
    if is_recorded():
        with override, standing_in(parameters):
            return forward(*args, **kwargs)
    if torch._C._functorch.maybe_current_level() is not None:
        raise RuntimeError(
            "quantize_: expected a layer of several products under a policy (attention, "
            "recurrent) to be called outside of torch.func, which cannot differentiate the graph "
            "within it; give the rule accumulate=None, or use torch.autograd"
        )
    results = iter(_Region.apply(run, override, *tensors))
    return map_tensors(shape[0], lambda _: next(results))
