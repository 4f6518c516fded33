"""Dynamo's graphs of functions in our dtypes, for the backends behind it.

A graph of Dynamo's names torch's functions and runs on tensors of ours as eager code does. Backends want stock tensors: what they get is
what ``recording`` makes of one run of it, a graph over codes. At its edges tensors of ours are seen as their codes, on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from .. import _C
from .._derivatives import first_only
from .aliases import Origins, overlap
from .checkpoints import as_eager_code, graphs_within, has_checkpoints, to_record
from .codes import Codes
from .operators import at_hint, state
from .recording import DecidedByValues, NotRecordable, Recorded, left_to_eager_code
from .sizes import Mistaken, OfSizes, Varying, has_unknown_sizes

__all__ = ["Mistaken", "NotRecordable", "as_eager_code", "as_it_is", "compile_graph", "format_of_node", "format_within", "has_codes"]


def format_within(gm: torch.fx.GraphModule) -> str | None:
    """The format of the first tensor of ours in a graph, or in a region of it."""
    return _format_among(node for graph in graphs_within(gm) for node in graph.nodes)


def has_codes(gm: torch.fx.GraphModule) -> bool:
    return format_within(gm) is not None


def format_of_node(node: torch.fx.Node) -> str | None:
    """The format of an operand of ours, if there is one."""
    return _format_among(node.all_input_nodes)


def _format_among(nodes: Iterable[torch.fx.Node]) -> str | None:
    found = (node.meta.get("example_value") for node in nodes)
    return next((_C.name_of(v.dtype) for v in found if isinstance(v, Codes)), None)


def as_it_is(gm: torch.fx.GraphModule, _examples: list) -> Callable:
    """The backend for a graph that a compiler has nothing to gain from: it runs as Python code, without what stands before compiled code."""
    vars(gm).update(gm.named_buffers())  # where Python looks first
    return gm.forward


def _without_inner_tensors(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph without looks at what is within ``Codes``, where Dynamo reads a size that values have decided: the tensor of ours has that, too."""
    for graph in graphs_within(gm):
        for node in [n for n in graph.nodes if n.target is getattr and n.args[1] == "_codes"]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            module.recompile()
    return gm


def _one_hot(classes: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """``torch.nn.functional.one_hot`` without a look at the values: what it is to stock's graphs, too."""
    if num_classes <= 0:
        raise NotRecordable("one_hot without num_classes has as many columns as its values say")
    return (classes.unsqueeze(-1) == torch.arange(num_classes, dtype=classes.dtype, device=classes.device)).to(torch.int64)


def _with_tensors_given(gm: torch.fx.GraphModule) -> tuple[Callable, list[torch.Tensor]]:
    """The graph with the tensors that it holds as operands behind its own, and these: Dynamo keeps an optimizer's state and parameters there, and a
    run of it would write to them.
    """
    graph, held = torch.fx.Graph(), {}
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target is torch.nn.functional.one_hot:
            node.target = _one_hot
        value = attrgetter(node.target)(gm) if node.op in ("get_attr", "call_module") else None
        if isinstance(value, torch.Tensor):
            held[node] = value
        elif isinstance(value, torch.nn.Module) and (*value.parameters(), *value.buffers()):
            raise NotRecordable(f"a module within it holds tensors ({node.target})")
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for i, node in enumerate(held):
            node.replace_all_uses_with(graph.placeholder(f"held_{i}"))
    for node in held:
        graph.erase_node(node)
    return torch.fx.GraphModule(gm, graph), list(held.values())


def _seen_as_codes(value: torch.Tensor) -> torch.Tensor:
    return _C.alias_codes(value) if _C.is_format_tensor(value) else value


class _Compiled:
    """A part of a graph, compiled, that takes and gives tensors of ours and of stock dtypes."""

    def __init__(self, backend: Callable, part: Callable, examples: list[torch.Tensor], results: list[torch.Tensor], mode) -> None:
        self.dtypes = [v.dtype if _C.is_format_tensor(v) else None for v in results]
        with left_to_eager_code():
            self.plain, fused, self.state = part(fused=False), part(fused=True), state()
        given = [mode.from_tensor(_seen_as_codes(v.detach()), static_shapes=True) for v in examples]
        with tracing(TracingContext(mode)), torch.no_grad():
            self.run = backend(fused, given)

    def __call__(self, values: list) -> list:
        run = self.run if state() == self.state else self.plain  # whose operators go by the state when they run
        found = run(*[_seen_as_codes(v) for v in values])
        return [v if d is None else _C.alias_format(v, d) for v, d in zip(found, self.dtypes, strict=True)]


def compile_graph(gm: torch.fx.GraphModule, inputs: list, backend: Callable) -> Callable:
    """What runs a graph with tensors of ours among its inputs, compiled by a backend that sees codes. Operands of which one is written to and shares
    elements with another are eager code's.

    Raises:
        NotRecordable: what the graph does cannot be had in codes.
        Mistaken: nor does Dynamo's graph fit it.
    """
    if has_unknown_sizes(graphs_within(gm)):  # of which a recording has but one
        return as_eager_code(_without_inner_tensors(gm))
    varying = Varying(gm)
    inputs = [at_hint(v) if isinstance(v, torch.SymInt) else v for v in inputs]
    recorded_state = state()
    if recorded_state[-1]:
        raise NotRecordable("it is observed")
    checkpoints = has_checkpoints(gm)
    gm, (function, held) = as_eager_code(gm), _with_tensors_given(to_record(gm))

    def backend_of(graph: torch.fx.GraphModule, examples: list) -> Callable:
        graph.meta.update(gm.meta)  # what Dynamo tells a backend
        graph.compile_subgraph_reason = getattr(gm, "compile_subgraph_reason", None)
        return backend(graph, examples)

    def record(given: list | tuple) -> Callable:
        # Dynamo's own knows numbers that vary, which a backend would miss and make constants. What a graph holds, chains' tables, is not fake where a
        # backend runs it on its examples.
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        given = [*given, *held]
        with left_to_eager_code():
            recorded = Recorded(function, given, torch.is_grad_enabled(), varying.items)
            if checkpoints and recorded.differentiable:
                recorded = Recorded(function, given, torch.is_grad_enabled(), varying.items)
        if overlap([v for v in given if isinstance(v, torch.Tensor)], _mutated(recorded)):
            raise NotRecordable("an operand that is written to shares elements with another")
        varying.expect_known(given, recorded.results)
        call = (_differentiable if recorded.differentiable else _plain)(recorded, given, backend_of, mode)
        return call if recorded.grad_mode is None else _leaving(recorded.grad_mode, call)

    try:
        call = record(inputs)
    except DecidedByValues:  # of a tensor as a number, in eager code's operators
        return as_eager_code(gm)
    find = OfSizes(varying, record, varying.key(inputs), call) if varying else None

    def run(*values):
        if state() != recorded_state:
            return gm(*values)  # eager code, which goes by that state
        found = call if find is None else find(values)
        results = None if found is None else found([v for v in values if isinstance(v, torch.Tensor)] + held)
        return gm(*values) if results is None else results

    return run


def _leaving(grad_mode: bool, call: Callable) -> Callable:
    """A call that leaves gradients on or off, as the function does (``torch.set_grad_enabled``)."""

    def leave(values):
        if (found := call(values)) is not None:  # else eager code leaves them so
            torch._C._set_grad_enabled(grad_mode)
        return found

    return leave


def _with_constants(recorded: Recorded) -> Callable:
    """Puts what are no tensors among a graph's results."""
    constants = list(recorded.results)
    places = [i for i, node in enumerate(recorded.outputs) if node is not None]
    for i in places:
        constants[i] = None

    def put(found) -> list:
        results = list(constants)
        for i, v in zip(places, found, strict=True):
            results[i] = v
        return results

    return put


def _among_tensors(nodes: list) -> dict[int, int]:
    """The places that are tensors', and what number each has among them."""
    return {i: k for k, i in enumerate(i for i, n in enumerate(nodes) if n is not None)}


def _mutated(recorded: Recorded) -> list[int]:
    among = _among_tensors(recorded.inputs)
    return [among[i] for i in recorded.mutated]


def _plain(recorded: Recorded, inputs: list, backend: Callable, mode) -> Callable:
    nodes = [n for n in recorded.inputs if n is not None]
    origins = Origins(recorded)
    results = origins.results
    part = partial(recorded.part, recorded.forward_nodes, nodes, origins.nodes)
    examples = [v for v in inputs if isinstance(v, torch.Tensor)]
    compiled = _Compiled(backend, part, examples, origins.examples, mode)
    put, mutated = _with_constants(recorded), _mutated(recorded)

    def call(values):
        if overlap(values, mutated):
            return None
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # half of what torch.no_grad() takes
        try:
            found = compiled(values)
        finally:
            torch._C._set_grad_enabled(before)
        for i in mutated:
            torch.autograd.graph.increment_version(values[i])
        return put(results.of(values, found))

    return call


class _Function(torch.autograd.Function):
    """A graph whose backward is compiled too."""

    @staticmethod
    def forward(ctx, parts: _Parts, *values):
        ctx.set_materialize_grads(False)
        found = parts.forward(values)
        for i in parts.mutated:  # before it is saved, as it is now
            torch.autograd.graph.increment_version(values[i])
        outputs, saved = found[: parts.output_count], found[parts.output_count :]
        ctx.parts = parts
        ctx.save_for_backward(*(values[i] for i in parts.saved_inputs), *(outputs[i] for i in parts.saved_outputs), *saved)
        ctx.mark_non_differentiable(*(v for i, v in enumerate(outputs) if i not in parts.differentiable))
        return tuple(outputs)

    @staticmethod
    @first_only("a compiled function in dtypes of torch_dtypes", "run the function uncompiled (torch.compiler.disable)")
    def backward(ctx, *slopes):
        return None, *_gradients(ctx.parts, ctx.saved_tensors, slopes)


class _Parts:
    """Forward and backward graphs, compiled. Places are those among tensors."""

    def __init__(self, recorded: Recorded, inputs: list, backend: Callable, mode) -> None:
        entering = [n for n in recorded.inputs if n is not None]
        leaving = [n for n in recorded.outputs if n is not None]
        backward, needed = recorded.backward_nodes()
        self.output_count, self.input_count = len(leaving), len(entering)
        self.saved_inputs = [i for i, n in enumerate(entering) if n in needed]
        self.saved_outputs = [i for i, n in enumerate(leaving) if n in needed and n not in entering and n not in leaving[:i]]
        outer = [entering[i] for i in self.saved_inputs] + [leaving[i] for i in self.saved_outputs]
        saved = [n for n in needed if n not in outer]
        tensors = recorded.recorder.tensors
        self.forward = _Compiled(
            backend,
            partial(recorded.part, recorded.forward_nodes, entering, leaving + saved),
            [v for v in inputs if isinstance(v, torch.Tensor)],
            [v for v in recorded.results if isinstance(v, torch.Tensor)] + [_seen_as_codes(tensors[n]) for n in saved],
            mode,
        )
        found = [(n, v) for n, v in zip(recorded.gradients, recorded.slopes, strict=True) if n is not None]
        self.backward = _Compiled(
            backend,
            partial(recorded.part, backward, outer + saved + recorded.tangents, [n for n, _ in found]),
            [tensors[n] for n in outer + saved] + recorded.seeds,
            [v for _, v in found],
            mode,
        )
        self.mutated = _mutated(recorded)
        among = _among_tensors(recorded.inputs)
        self.detached = [among[i] for i, n in zip(recorded.needs, recorded.gradients, strict=True) if n is None]
        self.given = [among[i] for i, n in zip(recorded.needs, recorded.gradients, strict=True) if n is not None]
        results = _among_tensors(recorded.outputs)
        self.differentiable = [results[i] for i in recorded.differentiable]
        self.seeds = [(v.shape, v.stride(), v.dtype, v.device) for v in recorded.seeds]

    def gradients(self, saved, slopes) -> list:
        tangents = [_laid_out(slopes[i], *seed) for i, seed in zip(self.differentiable, self.seeds, strict=True)]
        found = [None] * self.input_count
        for i, v in zip(self.given, self.backward([*saved, *tangents]), strict=True):
            found[i] = v
        return found


@torch.compiler.disable  # backward may be called where Dynamo would look into it
def _gradients(parts: _Parts, saved, slopes) -> list:
    return parts.gradients(saved, slopes)


def _laid_out(slope: torch.Tensor | None, shape, stride, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A gradient as the graph has it; zeros where nothing depends on the result."""
    if slope is None:
        return torch.zeros(shape, dtype=dtype, device=device).as_strided(shape, stride)
    return slope if slope.stride() == stride else torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(slope)


def _differentiable(recorded: Recorded, inputs: list, backend: Callable, mode) -> Callable:
    parts, put = _Parts(recorded, inputs, backend, mode), _with_constants(recorded)

    def call(values):
        if overlap(values, parts.mutated):
            return None
        before = torch.is_grad_enabled()  # it may be off: the function turns gradients on by itself
        try:
            torch._C._set_grad_enabled(True)
            for i in parts.detached:  # else a backward pass goes on into the graph behind it, which may be gone
                values[i] = values[i].detach()
            return put(_Function.apply(parts, *values))
        finally:
            torch._C._set_grad_enabled(before)

    return call
