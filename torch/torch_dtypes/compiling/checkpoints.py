"""Operators of Dynamo's graphs that take a region of the function as a graph.

That of activation checkpoints leaves random numbers to the compiler behind it: called as it is, it draws others when it computes the region again for
backward, and its gradients are of another function. That of regions which a compiler is to compile once (``torch.compiler.nested_compile_region``)
captures them again, in stock dtypes alone; over codes they are part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
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


def _compiled_once(region: torch.fx.GraphModule, _name: str, *args: object) -> object:
    return region(*args)


def _has(gm: torch.fx.GraphModule, targets: Iterable) -> bool:
    return any(node.target in targets for graph in graphs_within(gm) for node in graph.nodes)


def graphs_within(gm: torch.fx.GraphModule) -> list[torch.fx.Graph]:
    """A graph's own, and those of the regions in it."""
    return [module.graph for module in gm.modules() if isinstance(module, torch.fx.GraphModule)]


def _with(targets: dict[Callable, Callable[[], Callable]], gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph with others in the place of these operators, in its regions too. A graph without any is itself."""
    if not _has(gm, targets):
        return gm
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target in targets:
            node.target = targets[node.target]()
    made = torch.fx.GraphModule(gm, graph)
    for name, region in made.named_children():
        if isinstance(region, torch.fx.GraphModule):
            setattr(made, name, _with(targets, region))
    made.meta.update(gm.meta)
    return made


def uses(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that take a node's value, those in regions among them in place of the operators that take these."""
    for user in node.users:
        if user.target not in (tag_activation_checkpoint, invoke_subgraph):
            yield user
            continue
        region = getattr(node.graph.owning_module, user.args[0].target)
        inside = [n for n in region.graph.nodes if n.op == "placeholder"]
        for given, known in zip(user.args[len(user.args) - len(inside) :], inside, strict=True):
            if given is node:
                yield from uses(known)


def has_checkpoints(gm: torch.fx.GraphModule) -> bool:
    return _has(gm, (tag_activation_checkpoint,))


def as_eager_code(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph to be run as it is: its checkpoints draw the same random numbers when they are computed again."""
    return _with({tag_activation_checkpoint: lambda: _as_eager_code, invoke_subgraph: lambda: _compiled_once}, gm)


def to_record(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph to be recorded, by a run and another one: in the second, regions are computed again that took no random numbers in the first. The
    others keep what they have computed.
    """
    return _with({tag_activation_checkpoint: _region, invoke_subgraph: lambda: _compiled_once}, gm)


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
