"""torch.export of models in our dtypes: a program over codes, recorded from one run.

Parameters and buffers are integer codes in it. Tensors of ours enter by ``torch_dtypes_codes.enter``, which asks for their format, and results leave
by ``leave``; between the two are operators on codes, which name formats (``operators.py``), so that the program's file is one of stock PyTorch's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from itertools import starmap
from typing import Any

import torch
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from .. import _C
from .._codes import bits_dtype
from ..formats import dtype as dtype_of
from . import operators
from .aliases import seen
from .dynamic_shapes import Varying
from .merging import merge
from .recording import NotRecordable, Recorded

_TENSOR = object()  # in the place of a tensor among constants
_OF_ARGUMENT = object()  # in that of an argument, or a view of one

operators.library.define("enter(Tensor input, *, str format) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])
operators.library.define("leave(Tensor codes, *, str format, bool grad=False) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])


def _enter(input: torch.Tensor, *, format: str) -> torch.Tensor:
    if format == operators.STOCK:
        return input.clone()
    dtype = dtype_of(format)
    if input.dtype is dtype:
        return _C.alias_codes(input.detach()).clone()
    if input.dtype is not (stock := bits_dtype(dtype)):
        raise TypeError(
            f"expected a tensor of {dtype}, or its codes in {stock}, but got one of {input.dtype}. Cast it, or export the model for that dtype."
        )
    return input.clone()


def _leave(codes: torch.Tensor, *, format: str, grad: bool = False) -> torch.Tensor:
    return codes.clone() if format == operators.STOCK else _C.alias_format(codes.clone(), dtype_of(format))


NO_GRADIENTS = (
    "a program of codes runs forward alone. Differentiate the model itself, and export it when it is trained; here call the program within "
    "torch.no_grad(), or detach what it is given."
)


def _enter_once(input: torch.Tensor, *, format: str) -> torch.Tensor:
    """Above autograd: codes are integers, in which a gradient would be lost unseen."""
    if input.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"expected an input without requires_grad in an exported program, but got one of {input.dtype}: {NO_GRADIENTS}")
    with torch._C._AutoDispatchBelowAutograd():
        return enter(input, format=format)


class _Refusing(torch.autograd.Function):
    """What stands where the model has a gradient and the program has none."""

    @staticmethod
    def forward(ctx, anchor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(result)
        ctx.dtype = result.dtype
        return result

    @staticmethod
    def backward(ctx, *slopes):
        raise RuntimeError(f"expected no gradients of an exported program, but got backward() of its result of {ctx.dtype}: {NO_GRADIENTS}")


def _leave_last(codes: torch.Tensor, *, format: str, grad: bool = False) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        result = leave(codes, format=format, grad=grad)
    if not (grad and torch.is_grad_enabled()):
        return result
    return _Refusing.apply(torch.empty(0, dtype=torch.float32, requires_grad=True, device="cpu"), result)  # whatever the default dtype


for _name, _kernel, _above in (("enter", _enter, _enter_once), ("leave", _leave, _leave_last)):
    operators.library.impl(_name, _kernel, "CompositeExplicitAutograd")
    operators.library.impl(_name, _above, "Autograd")
    torch.library.register_fake(f"{operators.NAMESPACE}::{_name}", lambda tensor, **_: torch.empty_like(tensor), lib=operators.library)

enter = torch.ops.torch_dtypes_codes.enter.default
leave = torch.ops.torch_dtypes_codes.leave.default


def _seen_as_codes(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return _C.alias_codes(value.detach()) if _C.is_format_tensor(value) else value.detach()


class _Program(torch.nn.Module):
    """A model as a graph over codes, for stock's exporter: it has the model's arguments and names, and codes in the place of numbers."""

    def __init__(self, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any], dynamic_shapes: Any) -> None:
        super().__init__()
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self._varying = None if dynamic_shapes is None else Varying(model, leaves, pytree.tree_map(_seen_as_codes, (args, kwargs)), dynamic_shapes)
        self._record(model, leaves, spec, state)
        kept = model.state_dict(keep_vars=True).keys()
        codes = {id(tensor): _seen_as_codes(tensor) for tensor in state.values()}
        for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
            self._hold(name, codes[id(tensor)], name in kept)
        forward = self._forward(list(state))
        forward.__signature__ = inspect.signature(model.forward)
        self.forward = forward
        self.train(model.training)

    def _record(self, model: torch.nn.Module, leaves: list, spec: pytree.TreeSpec, state: dict[str, torch.Tensor]) -> None:
        tied = _tied(model, state)

        def function(*given):
            found = dict(zip(state, given[len(leaves) :], strict=True))
            args, kwargs = pytree.tree_unflatten(given[: len(leaves)], spec)
            with _reparametrize_module(model, {place: found[name] for place, name in tied.items()}):
                results, self._results_spec = pytree.tree_flatten(model(*args, **kwargs))
                for name, tensor in found.items():
                    if functools.reduce(getattr, name.split("."), model) is not tensor:
                        raise NotRecordable(f"it puts another tensor in the place of {name}; write into that one instead")
            return results

        def record(leaves: list) -> Recorded:
            recorded = Recorded(function, [*leaves, *state.values()], differentiable=False)
            for i in recorded.mutated:
                if i < len(leaves) and _C.is_format_tensor(leaves[i]):
                    raise NotRecordable("it writes to an argument")
            return recorded

        recorded = record(leaves)
        if self._varying:
            self._varying.ask(function, list(state.values()))
            if not self._varying.is_settled:
                recorded = _merged(recorded, self._varying, record, len(leaves))
        inputs = [n for n in recorded.inputs if n is not None]
        arguments = [n for n in recorded.inputs[: len(leaves)] if n is not None]
        is_seen = [n is not None and seen(n) in arguments for n in recorded.outputs]
        outputs = [n for n, s in zip(recorded.outputs, is_seen, strict=True) if n is not None and not s]
        self._run = recorded.part(recorded.forward_nodes, inputs, outputs, fused=False).forward  # no module of the program's
        self._see = _views_of_arguments(recorded, inputs, is_seen)
        each = zip(recorded.results, is_seen, strict=True)
        self._constants = [_OF_ARGUMENT if s else _TENSOR if isinstance(v, torch.Tensor) else v for v, s in each]
        slopes = recorded.slopes_of(function, [*leaves, *state.values()])
        self._results = [
            (operators.format_name(v.dtype), s) if isinstance(v, torch.Tensor) else None for v, s in zip(recorded.results, slopes, strict=True)
        ]
        self._formats = [None if i in recorded.mutated else _entering(v) for i, v in enumerate(leaves)]

    def _hold(self, name: str, tensor: torch.Tensor, persistent: bool) -> None:
        *path, last = name.split(".")
        module: torch.nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]
        module.register_buffer(last, tensor, persistent)

    def _forward(self, held: list[str]) -> Callable:
        formats, run, see, constants, results, spec = self._formats, self._run, self._see, self._constants, self._results, self._results_spec
        sizes, checks = (self._varying.at, self._varying.checks) if self._varying else (None, ())

        def forward(*args, **kwargs):
            given = pytree.tree_leaves((args, kwargs))
            for check in checks:
                torch._check(check(*sizes(given)))
            tensors = [v if name is None else enter(v, format=name) for v, name in zip(given, formats, strict=True) if isinstance(v, torch.Tensor)]
            state = list(map(self.get_buffer, held))
            found, views = iter(run(*tensors, *state)), iter(see(*(v for v in given if isinstance(v, torch.Tensor)), *state))
            values = []
            for constant, result in zip(constants, results, strict=True):
                value = next(found) if constant is _TENSOR else next(views) if constant is _OF_ARGUMENT else constant
                if constant is _TENSOR and result != (operators.STOCK, False):
                    value = leave(value, format=result[0], grad=result[1])
                values.append(value)
            return pytree.tree_unflatten(values, spec)

        return forward


def _tied(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> dict[str, str]:
    """All places of a model's tensors, and the names that its state has them by. A module in several places counts once: stock's ``tie_weights``
    exchanges its tensors for each, and what it puts back is then not what it found."""
    names = {id(tensor): name for name, tensor in state.items()}
    places = {}
    for path, module in model.named_modules():
        for last, tensor in {**module._parameters, **module._buffers}.items():
            if tensor is not None:
                places[f"{path}.{last}" if path else last] = names[id(tensor)]
    return places


def _views_of_arguments(recorded: Recorded, inputs: list[torch.fx.Node], is_seen: list[bool]) -> Callable:
    """What gives those results that are arguments, or views of them: of the arguments as they come, which what enters is a copy of."""
    given = [recorded.recorder.tensors[n] for n in inputs]
    results = [(v, n) for v, n, s in zip(recorded.results, recorded.outputs, is_seen, strict=True) if s]
    wanted = {n for _, n in results}
    for node in reversed(recorded.forward_nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    views = recorded.part([n for n in recorded.forward_nodes if n in wanted], inputs, [n for _, n in results], fused=False).forward

    def last(result: torch.Tensor, node: torch.fx.Node) -> Callable:
        if any(result is v for v in given):
            return lambda v: v
        if not any(result._base is v for v in given):
            return torch.Tensor.detach
        return torch.ops.aten.alias.default if node in inputs else lambda v: v

    ends = list(starmap(last, results))
    return lambda *tensors: [end(v) for end, v in zip(ends, views(*tensors), strict=True)]


def _entering(value: object) -> str | None:
    """The format by which an argument enters; None of what could have no gradient, which a stock floating one could."""
    if not isinstance(value, torch.Tensor):
        return None
    return operators.format_name(value.dtype) if _C.is_format_tensor(value) or value.dtype.is_floating_point else None


def _merged(recorded: Recorded, varying: Varying, record: Callable, count: int) -> Recorded:
    """A recording with expressions of sizes in the place of the integers that differ in others, of other sizes."""
    recordings, of_one, error = [recorded], [], None
    for values, leaves in varying.examples():
        try:
            found = record(leaves)
        except NotRecordable:
            raise
        except (IndexError, RuntimeError, ValueError) as raised:  # sizes that the model does not take
            error = f"; at {values} it raises: {raised}"
            continue
        (of_one if 1 in values.values() else recordings).append(found)
    if len(recordings) == 1:
        raise NotRecordable(f"no other sizes than its example's are known to fit it{error or ''}")
    try:
        return merge(recordings + of_one, count)
    except NotRecordable:
        if not of_one:
            raise
        merge(recordings, count)
        raise NotRecordable('where a size is 1 it runs other operators; say how small it gets, as in Dim("batch", min=2)') from None


def _operators_on_codes(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    prefix = f"{operators.NAMESPACE}::"
    nodes = program.graph.nodes
    return [n for n in nodes if isinstance(n.target, torch._ops.OpOverload) and n.target.name().startswith(prefix)]


def argument_that_is_seen(program: torch.export.ExportedProgram) -> str | None:
    """An argument of ours that something else takes than what asks for its format."""
    if not is_over_codes(program):
        return None
    entering = [n.args[0] for n in program.graph.nodes if n.target is enter and n.kwargs["format"] != operators.STOCK]
    values = ((n, user, pytree.tree_leaves(user.meta.get("val"))) for n in entering for user in n.users if user.target is not enter)
    return next((n.name for n, user, made in values if user.op == "output" or any(isinstance(v, torch.Tensor) for v in made)), None)


def is_over_codes(program: torch.export.ExportedProgram) -> bool:
    return bool(_operators_on_codes(program))


def formats_of_state(program: torch.export.ExportedProgram) -> dict[str, str | None]:
    """The formats of a program's buffers by name, as its operators read them; None of one that none reads, or one of a stock dtype."""
    read: dict[torch.fx.Node, str] = {}
    for node in _operators_on_codes(program):
        if "formats" in node.kwargs:
            names = operators.names_in(node.kwargs["formats"])
            given = [v for v in pytree.tree_leaves(list(node.args)) if isinstance(v, torch.fx.Node) and isinstance(v.meta.get("val"), torch.Tensor)]
            for n, name in zip(given, names, strict=False):  # of a cast the second is the result's
                while isinstance(n.target, torch._ops.OpOverload) and n.target.is_view:
                    n = n.all_input_nodes[0]
                read.setdefault(n, name)
    targets = program.graph_signature.inputs_to_buffers
    found = {targets[n.name]: read.get(n) for n in program.graph.nodes if n.op == "placeholder" and n.name in targets}
    known = {name: None if format == operators.STOCK else format for name, format in found.items()}
    state = program.state_dict
    shared = {state[name].data_ptr(): format for name, format in known.items() if format is not None and name in state}
    return {name: shared.get(state[name].data_ptr()) if format is None and name in state else format for name, format in known.items()}


def export(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any] | None, name: str, dynamic_shapes: Any = None, **options):
    """A program of a model with tensors of the format ``name`` among its state or its arguments."""
    if options.get("preserve_module_call_signature"):
        raise NotImplementedError(
            f"expected no preserve_module_call_signature, but got {options['preserve_module_call_signature']!r}: a program in torch.{name} is one "
            "module. Export the modules one by one."
        )
    kwargs = dict(kwargs or {})
    if isinstance(dynamic_shapes, (torch.export.ShapesCollection, torch.export.AdditionalInputs)):  # which know tensors by themselves
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, kwargs)
    try:
        program = _Program(model, args, kwargs, dynamic_shapes)
    except NotRecordable as error:
        raise NotImplementedError(
            f"expected a model whose operators do not depend on values, but got one in torch.{name} that a program cannot have: {error}. "
            "Run it uncaptured, or change that."
        ) from error
    codes = pytree.tree_map(_seen_as_codes, (args, kwargs))
    return torch.export.export(program, *codes, dynamic_shapes=dynamic_shapes)
