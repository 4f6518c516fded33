"""Activation checkpoints in Dynamo's graphs: one operator, which takes the region as a graph.

It leaves random numbers to the compiler behind it. Called as it is, it draws others when it computes the region again for backward, and its gradients
are of another function.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.utils.checkpoint import checkpoint

from .._generators import gpus_in_use, states


def _runs(region: torch.fx.GraphModule) -> Callable:
    return lambda *args: torch.fx.Interpreter(region).run(*args)  # an interpreter would hold what it has computed


def _as_eager_code(region: torch.fx.GraphModule, *args: object, **kwargs: object) -> object:
    """What the user has written."""
    kwargs |= {"use_reentrant": False, "preserve_rng_state": True}
    if (contexts := region.meta.get("_checkpoint_context_fn")) is not None:
        kwargs["context_fn"] = contexts
    return checkpoint(_runs(region), *args, **kwargs)


def _with(target: Callable[[], Callable], gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target is tag_activation_checkpoint:
            node.target = target()
    made = torch.fx.GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made


def has_checkpoints(gm: torch.fx.GraphModule) -> bool:
    return any(node.target is tag_activation_checkpoint for node in gm.graph.nodes)


def as_eager_code(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph to be run as it is: its regions draw the same random numbers when they are computed again."""
    return _with(lambda: _as_eager_code, gm) if has_checkpoints(gm) else gm


def to_record(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph to be recorded, by a run and another one: in the second, regions are computed again that took no random numbers in the first. The
    others keep what they have computed.
    """
    return _with(_region, gm)


def _region() -> Callable:
    draws = None

    def checkpointed_region(region: torch.fx.GraphModule, *args: object, **kwargs: object) -> object:
        nonlocal draws
        if draws is False:
            return checkpoint(_runs(region), *args, **{**kwargs, "use_reentrant": False, "preserve_rng_state": False})
        gpus = gpus_in_use()
        before = states(gpus)
        found = torch.fx.Interpreter(region).run(*args)
        draws = bool(draws) or before != states(gpus)
        return found

    return checkpointed_region
