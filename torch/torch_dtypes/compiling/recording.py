"""A graph over codes of what a function does to tensors of ours: recorded while eager code runs it, operator by operator.

What is recorded is what eager code's dispatcher runs beneath autograd, casts included, so the graph takes eager's way through composite operators
and derivatives. The run is one on copies of the operands, with the generator's state put back.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .. import _C
from .._generators import forked_generators, gpus_in_use, states
from .._overlay.factories import drawn_for_graphs
from ..formats import with_rounding
from . import operators
from .chains import Chain, chain, find_chains, live_among
from .known_operators import CONSTANT, GIVEN, MADE, MOVES, OF_LAYOUTS, SAME, UNDECLARED_VIEWS, UNFILLED, as_a_view, values_decide
from .levels import beneath_levels, undone_if_it_fails
from .tables import look_up

aten = torch.ops.aten


class NotRecordable(Exception):
    """What a function does that a graph of codes cannot have."""


class DecidedByValues(NotRecordable):
    """A number or a size: a recording would have one run's."""


@contextlib.contextmanager
def left_to_eager_code() -> Iterator[None]:
    """An error within makes what is recorded not recordable: eager code has the result, or the error."""
    try:
        yield
    except NotRecordable:
        raise
    except Exception as error:
        raise NotRecordable(f"recording it ended with {type(error).__name__}: {error}") from error


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with the same strides, in memory of their own."""
    own = _C.is_format_tensor(tensor)
    words = _C.alias_codes(tensor) if own else tensor.detach()
    span = 1 + sum((size - 1) * stride for size, stride in zip(words.shape, words.stride(), strict=True)) if words.numel() else 0
    made = words.as_strided((span,), (1,)).clone().as_strided(words.shape, words.stride()).detach()  # no view of what is no operand
    return (_C.alias_format(made, tensor.dtype) if own else made).requires_grad_(tensor.requires_grad)


def _memory(tensor: torch.Tensor) -> tuple:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _to_nearest(dtype: torch.dtype) -> torch.dtype:
    """A dtype with the same codes, a cast to which takes no random words."""
    return with_rounding(dtype, "nearest_even") if operators.takes_random_words(dtype) else dtype


class Recorder(TorchDispatchMode):
    """Records into ``graph`` while it is on. Inputs are declared before."""

    def __init__(self) -> None:
        super().__init__()
        self._gpus = gpus_in_use()  # whose generators it may take random numbers of
        self.graph = torch.fx.Graph()
        self.numbers: list[torch.Tensor] = []  # constants of the graph
        self.constants: dict[str, torch.Tensor] = {}  # by the names of its attributes
        self._nodes: dict[int | tuple, torch.fx.Node] = {}
        self._state = states(self._gpus)
        self.tensors: dict[torch.fx.Node, torch.Tensor] = {}
        self._held: list[torch.Tensor] = []  # whose ids and memory are taken
        self._resized: set[int] = set()  # ids of those that the operator at hand has given other sizes

    def __enter__(self):
        super().__enter__()
        _C.set_cast_recorder(self._cast)
        _C.set_witness(self._named)
        return self

    def __exit__(self, *args) -> None:
        _C.set_cast_recorder(None)
        _C.set_witness(None)
        super().__exit__(*args)

    def input(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
        node = self.graph.placeholder(name)
        self._keep(tensor, node)
        return node

    def _keep(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        self._nodes[id(tensor)] = node
        self._held.append(tensor)
        if tensor.numel() and tensor.data_ptr():  # which neither tensors on meta have, nor zeros of forward mode
            self._nodes.setdefault(_memory(tensor), node)
        self.tensors.setdefault(node, tensor)

    def node(self, tensor: torch.Tensor) -> torch.fx.Node:
        # What autograd has saved comes back as another object on the same memory.
        if (found := self._nodes.get(id(tensor))) is None and (found := self._nodes.get(_memory(tensor))) is None:
            raise NotRecordable(f"a tensor of {tensor.dtype} and shape {tuple(tensor.shape)} comes from where a graph does not see it")
        return found

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._nodes or _memory(tensor) in self._nodes

    def _has_drawn(self) -> bool:
        """Whether what has run since took random numbers: its operator is to say so, for calls may be joined, left out or put in another order."""
        state = states(self._gpus)
        drawn = state != self._state
        self._state = state
        return drawn

    def _cast(self, source: torch.Tensor, result: torch.Tensor) -> None:
        with _disable_current_modes():  # it may come from code above them
            self._record_cast(beneath_levels(source), beneath_levels(result))

    def _named(self, name: str, self_: object, args: tuple, kwargs: dict) -> object:
        """A call that names a dtype of ours, of which modes would know nothing: of a constant the same numbers in float64, and a cast; of what is
        made of operators that a graph can have, these."""
        if name not in MADE or kwargs.get("out") is not None or kwargs.get("requires_grad"):
            return NotImplemented
        dtype = kwargs.get("dtype")
        if name in ("rand", "rand_like"):
            given = args[0] if name == "rand_like" and args else None
            plain = given is None or (isinstance(given, torch.Tensor) and operators.format_name(given.dtype) == operators.STOCK)
            if not plain or dtype is None or operators.in_a_random_block():
                return NotImplemented
            return self._of_codes(drawn_for_graphs(getattr(torch, name), args, {**kwargs, "dtype": _to_nearest(dtype)}), dtype)
        if name not in CONSTANT:
            return ...
        value = CONSTANT[name]
        if dtype is None:  # the default dtype is not that of zeros_like, nor of integers
            return NotImplemented
        if value is GIVEN:
            value = kwargs.get("fill_value", args[-1] if args else None)
        if isinstance(value, float) and math.isinf(value):
            value = _C.fill_number(value, dtype)
        elif not isinstance(value, (int, float)) or not abs(value) <= 2**53:
            return NotImplemented
        if operators.in_a_random_block():
            return NotImplemented
        make = getattr(torch if self_ is None else self_, name)
        if CONSTANT[name] is GIVEN:
            args, kwargs = args[:-1] if "fill_value" not in kwargs else args, {**kwargs, "fill_value": value}
        numbers = make(*args, **{**kwargs, "dtype": torch.float64})
        if (nearest := _to_nearest(dtype)) is dtype:
            return numbers.to(dtype)
        # That cast would take words for each element, of which eager code takes one for all, or none.
        made = self._of_codes(numbers.to(nearest), dtype)
        return made if name in UNFILLED else made.fill_(value)

    def _of_codes(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A tensor with these codes: the same numbers in a format that rounds in another mode."""
        if tensor.dtype is dtype:
            return tensor
        with _disable_current_modes():
            made = _C.alias_format(_C.alias_codes(tensor), dtype)
        self._nodes[id(made)] = self._nodes[_memory(made)] = node = self.node(tensor)
        self._held.append(made)
        self.tensors[node] = made
        return made

    def _record_cast(self, source: torch.Tensor, result: torch.Tensor) -> None:
        drawn = self._has_drawn()
        names = operators.format_name(source.dtype), operators.format_name(result.dtype)
        node, moves = self.node(source), source.device != result.device
        if names[1] == operators.STOCK:
            values = operators.bound(aten._to_copy.default, (source, result.dtype), {"device": result.device if moves else None})
            op = operators.operator(aten._to_copy.default, values, 1)
            node = self.graph.call_function(op, (node, *values[1:]), {"formats": names[0] + operators.EXACT})
        else:  # eager code moves codes: of stock numbers after the cast, of others before it
            if moves and names[0] != operators.STOCK:
                node = self._moved(node, result.device)
            if not moves or names[0] != names[1]:
                op = operators.random_cast if drawn else operators.cast
                node = self.graph.call_function(op, (node,), {"formats": ",".join(names)})
            if moves and names[0] == operators.STOCK:
                node = self._moved(node, result.device)
        self._keep(result, node)

    def _moved(self, node: torch.fx.Node, device: torch.device) -> torch.fx.Node:
        return self.graph.call_function(aten._to_copy.default, (node,), {"device": device})

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is aten._local_scalar_dense.default and not isinstance(args[0], torch.Tensor):
            return args[0]  # vmap reads a number of Python's, which comes here as itself
        kwargs = kwargs or {}
        outs = [t for a in func._schema.arguments if a.is_out for t in operators.listed(kwargs.get(a.name)) if t is not None]
        shapes = [t.shape for t in outs]
        _C.set_cast_recorder(None)
        try:
            result = func._op(*args, **kwargs)  # a dtype means what it means to the caller
        finally:
            _C.set_cast_recorder(self._cast)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._state = states(self._gpus)
        self._resized = {id(t) for t, shape in zip(outs, shapes, strict=True) if t.shape != shape}
        if any(id(t) in self._resized and self._is_known(t) and self.node(t).op == "placeholder" for t in outs):
            raise NotRecordable(f"{func} resizes its out=")
        self._record(func, args, kwargs, result, self._has_drawn())
        return result

    def _record(self, func, args: tuple, kwargs: dict, result: object, drawn: bool) -> None:
        if func in OF_LAYOUTS or (func is aten._local_scalar_dense.default and any(args[0] is t for t in self.numbers)):
            return
        if torch.Tag.inplace_view in func.tags and self.node(args[0]).op != "placeholder":  # of a tensor that is the function's own
            func = as_a_view(func)
        if values_decide(func, args) or any("Tensor" not in str(r.type) for r in func._schema.returns):
            kind = NotRecordable if torch.Tag.inplace_view in func.tags else DecidedByValues
            raise kind(f"{func} has a result that depends on values, or changes a shape in place")
        if func is aten.lift_fresh.default and not self._is_known(args[0]) and not _C.is_format_tensor(args[0]):  # torch.tensor(<numbers>)
            name = f"constant_{len(self.constants)}"
            self.constants[name] = args[0].clone()
            self._keep(result, self.graph.call_function(aten.clone.default, (self.graph.get_attr(name),)))  # which may be written to
            return
        if func in SAME:
            self._keep(result, self.node(args[0]))
            return
        func = UNDECLARED_VIEWS.get(func, func)
        values = operators.bound(func, args, kwargs)
        tensors = operators.tensors_in(values)
        if func.namespace != "aten" or (not tensors and torch.Tag.nondeterministic_seeded not in func.tags):
            self._as_it_is(func, args, kwargs, result)
        elif func.is_view or func in MOVES:
            if func is aten.view.dtype:
                raise NotRecordable("a view in another dtype")
            self._as_it_is(func, args, kwargs, result)
        else:
            self._on_codes(func, values, tensors, result, drawn)

    def _as_it_is(self, func, args: tuple, kwargs: dict, result: object) -> None:
        if func.namespace != "aten" and any(map(_C.is_format_tensor, operators.tensors_in([args, kwargs, result]))):
            raise NotRecordable(f"{func} is no operator of PyTorch's own")
        args, kwargs = pytree.tree_map_only(torch.Tensor, self.node, (args, kwargs))
        self._results(self.graph.call_function(func, args, kwargs), operators.listed(result), isinstance(result, (tuple, list)))

    def _results(self, node: torch.fx.Node, results: list, many: bool) -> None:
        for i, tensor in enumerate(results):
            if tensor is not None:
                self._keep(tensor, self.graph.call_function(operator.getitem, (node, i)) if many else node)

    def _on_codes(self, func, values: list, tensors: list, result: object, drawn: bool) -> None:
        names = ",".join(operators.format_name(t.dtype) for t in tensors)
        if _C.explicit_dtype() and any(isinstance(v, torch.dtype) for v in values):
            names += operators.EXACT
        made = operators.made(func, result)
        targets = operators.listed([values[i] for i in operators.written(func)])
        count = len(made) + len(targets)
        op = operators.operator(func, values, count, drawn)
        given = pytree.tree_map_only(torch.Tensor, self.node, values)
        node = self.graph.call_function(op, tuple(given), {"formats": names})
        self._results(node, made, count > 1)
        for i, target in enumerate(targets, len(made)):
            if target is not None:
                value = self.graph.call_function(operator.getitem, (node, i)) if count > 1 else node
                if id(target) in self._resized:  # it is a new tensor from here on
                    self._nodes[id(target)] = self._nodes[_memory(target)] = value
                    self.tensors[value] = target
                else:
                    self.graph.call_function(aten.copy_.default, (self.node(target), value))


class Recorded:
    """A graph over codes in two parts: what ``function`` does, and what backward does then.

    ``results``: the function's, of this run. ``inputs``, ``outputs``, ``tangents``, ``gradients``: nodes; of inputs and outputs that are no
    tensors, and of gradients that nothing depends on, None. ``mutated``: the places of inputs that are written to. ``numbers``: those of inputs
    whose value is a constant. ``grad_mode``: the one that the function has left on or off; None where it is that in which it began.
    """

    def __init__(self, function: Callable, inputs: list, differentiable: bool, numbers: Sequence[int] = ()) -> None:
        with undone_if_it_fails(), _disable_current_modes(), forked_generators(), torch.set_grad_enabled(differentiable):
            given = [copy(v) if isinstance(v, torch.Tensor) else v for v in inputs]
            self.recorder = Recorder()
            self.recorder.numbers = [given[i] for i in numbers]
            self.inputs = [self.recorder.input(f"input_{i}", v) if isinstance(v, torch.Tensor) else None for i, v in enumerate(given)]
            versions = [v._version if isinstance(v, torch.Tensor) else None for v in given]
            with self.recorder:
                self.results = list(function(*given))
            left = torch.is_grad_enabled()
            self.grad_mode = None if left == differentiable else left
            torch._C._set_grad_enabled(differentiable)
            self.outputs = [self.recorder.node(v) if isinstance(v, torch.Tensor) else None for v in self.results]
            self.mutated = [i for i, v in enumerate(given) if isinstance(v, torch.Tensor) and v._version != versions[i]]
            if any(given[i].grad_fn is not None for i in self.mutated):
                raise NotRecordable("an operand is written to that needs gradients from then on")
            self.forward_nodes = list(self.recorder.graph.nodes)
            self.needs = [i for i, v in enumerate(given) if isinstance(v, torch.Tensor) and v.requires_grad]
            self.differentiable = [i for i, v in enumerate(self.results) if isinstance(v, torch.Tensor) and v.requires_grad]
            self.tangents: list[torch.fx.Node] = []
            if self.differentiable:
                self._refuse_shared(given)
                self._backward(given)

    def slopes_of(self, function: Callable, inputs: list) -> list[bool]:
        """Which of the results eager code has gradients of, by a run on copies."""
        if not any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs):
            return [False] * len(self.results)
        with _disable_current_modes(), forked_generators(), torch.enable_grad():
            found = function(*(copy(v) if isinstance(v, torch.Tensor) else v for v in inputs))
            return [isinstance(v, torch.Tensor) and v.requires_grad for v in found]

    def _backward(self, given: list) -> None:
        outputs = [self.results[i] for i in self.differentiable]
        self.seeds = [torch.ones_like(v, memory_format=torch.preserve_format) for v in outputs]
        self.tangents = [self.recorder.input(f"tangent_{i}", v) for i, v in enumerate(self.seeds)]
        with self.recorder:
            self.slopes = torch.autograd.grad(outputs, [given[i] for i in self.needs], self.seeds, allow_unused=True)
        self.gradients = [None if g is None else self.recorder.node(g) for g in self.slopes]

    def _refuse_shared(self, given: list) -> None:
        if any(given[i].requires_grad for i in self.mutated):
            raise NotRecordable("an operand that needs gradients is written to")
        seen = {v.untyped_storage().data_ptr() for v in given if isinstance(v, torch.Tensor)}
        for v in self.results:
            if isinstance(v, torch.Tensor) and v.numel():
                if (where := v.untyped_storage().data_ptr()) in seen:
                    raise NotRecordable("a result shares memory with an operand or another result where gradients are needed")
                seen.add(where)

    def backward_nodes(self) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
        """The nodes of backward, and those of forward that they need. Views are made again: what they see may be an operand."""
        ahead = set(self.forward_nodes)
        nodes = [n for n in self.recorder.graph.nodes if n not in ahead]
        wanted = {a for n in nodes for a in n.all_input_nodes} | {n for n in self.gradients if n is not None}
        again, needed = [], []
        for node in reversed(self.forward_nodes):
            if node not in wanted:
                continue
            if isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
                again.insert(0, node)
                wanted.update(node.all_input_nodes)
            else:
                needed.insert(0, node)
        return again + nodes, needed

    def part(self, nodes: list[torch.fx.Node], inputs: list[torch.fx.Node], outputs: list[torch.fx.Node], fused: bool) -> torch.fx.GraphModule:
        """The graph of some of the nodes, from inputs to outputs; fused, with one operator in the place of a chain of elementwise ones."""
        graph, places, module = torch.fx.Graph(), {}, torch.nn.Module()
        for node in inputs:
            places[node] = graph.placeholder(node.name)
        live = live_among(nodes, outputs)
        chains = find_chains(nodes, outputs, live, self.recorder.tensors) if fused else []
        for name, constant in self.recorder.constants.items():
            module.register_buffer(name, constant)
        chain_of = {member: made for made in chains for member in made.members}

        def put(node: torch.fx.Node) -> None:
            if node in places:
                return
            made = chain_of.get(node)
            for n in node.all_input_nodes if made is None else made.operands:
                put(n)
            if made is None:
                places[node] = graph.node_copy(node, places.__getitem__)
            else:
                places.update(_as_one_node(made, graph, [places[n] for n in made.operands], module))

        passed: list[torch.fx.Node] = []
        for node in (n for n in nodes if n in live):
            if node.target is aten.copy_.default:  # what reads before it stays before it
                for result in passed:
                    put(result)
            if node in chain_of:
                passed += [node] if node in chain_of[node].results else []
            elif node.op != "placeholder":
                put(node)
        for node in outputs:
            put(node)
        graph.output([places[node] for node in outputs])
        return torch.fx.GraphModule(module, graph)


def _as_one_node(made: Chain, graph: torch.fx.Graph, operands: list[torch.fx.Node], module: torch.nn.Module) -> dict[torch.fx.Node, torch.fx.Node]:
    """A chain's node in a graph, with its tables in the module: where its results are."""
    tables = []
    for table in made.tables:
        name = f"table_{len(module._buffers)}"
        module.register_buffer(name, table)
        tables.append(graph.get_attr(name))
    if made.looks_up:
        return {made.results[0]: graph.call_function(look_up, (*operands, *tables))}
    node = graph.call_function(chain, (operands, tables), {"program": made.program})
    return {result: graph.call_function(operator.getitem, (node, i)) for i, result in enumerate(made.results)}
