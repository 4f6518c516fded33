"""torch.export of models in our dtypes: a program over codes, recorded from one run.

Parameters and buffers are integer codes in it. Tensors of ours enter by ``torch_dtypes_codes.enter``, which asks for their format, and results leave
by ``leave``; between the two are operators on codes, which name formats (``operators.py``), so that the program's file is one of stock PyTorch's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from .. import _C
from ..formats import dtype as dtype_of
from . import operators
from .recording import NotRecordable, Recorded

_TENSOR = object()  # in the place of a tensor among constants

operators.library.define("enter(Tensor input, *, str format) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])
operators.library.define("leave(Tensor codes, *, str format) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])


def _codes_of(dtype: torch.dtype) -> torch.dtype:
    return _C.alias_codes(torch.empty(0, dtype=dtype)).dtype


def _enter(input: torch.Tensor, *, format: str) -> torch.Tensor:
    dtype = dtype_of(format)
    if input.dtype is dtype:
        return _C.alias_codes(input.detach()).clone()
    if input.dtype is not (stock := _codes_of(dtype)):
        raise TypeError(
            f"expected a tensor of {dtype}, or its codes in {stock}, but got one of {input.dtype}. Cast it, or export the model for that dtype."
        )
    return input.clone()


def _leave(codes: torch.Tensor, *, format: str) -> torch.Tensor:
    return _C.alias_format(codes.clone(), dtype_of(format))


for _name, _kernel in (("enter", _enter), ("leave", _leave)):
    operators.library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{operators.NAMESPACE}::{_name}", lambda tensor, *, format: torch.empty_like(tensor), lib=operators.library)

enter = torch.ops.torch_dtypes_codes.enter.default
leave = torch.ops.torch_dtypes_codes.leave.default


def _seen_as_codes(value: object) -> object:
    own = isinstance(value, torch.Tensor) and _C.is_format_tensor(value)
    return _C.alias_codes(value.detach()) if own else value


class _Program(torch.nn.Module):
    """A model as a graph over codes, for stock's exporter: it has the model's arguments and names, and codes in the place of numbers."""

    def __init__(self, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self._record(model, leaves, spec, state)
        kept = model.state_dict(keep_vars=True).keys()
        for name, tensor in state.items():
            self._hold(name, _seen_as_codes(tensor.detach()), name in kept)
        forward = self._forward(leaves, list(state))
        forward.__signature__ = inspect.signature(model.forward)
        self.forward = forward
        self.train(model.training)

    def _record(self, model: torch.nn.Module, leaves: list, spec: pytree.TreeSpec, state: dict[str, torch.Tensor]) -> None:
        def function(*given):
            found = dict(zip(state, given[len(leaves) :], strict=True))
            args, kwargs = pytree.tree_unflatten(given[: len(leaves)], spec)
            with _reparametrize_module(model, found, tie_weights=True):
                results, self._results_spec = pytree.tree_flatten(model(*args, **kwargs))
                for name, tensor in found.items():
                    if functools.reduce(getattr, name.split("."), model) is not tensor:
                        raise NotRecordable(f"it puts another tensor in the place of {name}; write into that one instead")
            return results

        recorded = Recorded(function, [*leaves, *state.values()], differentiable=False)
        for i in recorded.mutated:
            if i < len(leaves) and _C.is_format_tensor(leaves[i]):
                raise NotRecordable("it writes to an argument")
        inputs, outputs = ([n for n in nodes if n is not None] for nodes in (recorded.inputs, recorded.outputs))
        self._run = recorded.part(recorded.forward_nodes, inputs, outputs, fused=False).forward  # no module of the program's
        self._constants = [_TENSOR if isinstance(v, torch.Tensor) else v for v in recorded.results]
        self._formats = [_format_of(v) for v in recorded.results]

    def _hold(self, name: str, tensor: torch.Tensor, persistent: bool) -> None:
        *path, last = name.split(".")
        module: torch.nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]
        module.register_buffer(last, tensor, persistent)

    def _forward(self, leaves: list, held: list[str]) -> Callable:
        formats = [_format_of(v) for v in leaves]
        run, constants, results, spec = self._run, self._constants, self._formats, self._results_spec

        def forward(*args, **kwargs):
            given = pytree.tree_leaves((args, kwargs))
            tensors = [v if name is None else enter(v, format=name) for v, name in zip(given, formats, strict=True) if isinstance(v, torch.Tensor)]
            found = iter(run(*tensors, *map(self.get_buffer, held)))
            values = []
            for constant, name in zip(constants, results, strict=True):
                value = next(found) if constant is _TENSOR else constant
                values.append(value if name is None else leave(value, format=name))
            return pytree.tree_unflatten(values, spec)

        return forward


def _format_of(value: object) -> str | None:
    """The format of a tensor of ours; None of anything else."""
    return _C.name_of(value.dtype) if isinstance(value, torch.Tensor) and _C.is_format_tensor(value) else None


def export(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any] | None, name: str, **options):
    """A program of a model with tensors of the format ``name`` among its state or its arguments."""
    if options.get("dynamic_shapes") is not None:
        raise NotImplementedError(
            f"expected no dynamic_shapes, but got {options['dynamic_shapes']!r}: a program in torch.{name} is recorded from one run and has "
            "its sizes. Export it for each size."
        )
    if options.get("preserve_module_call_signature"):
        raise NotImplementedError(
            f"expected no preserve_module_call_signature, but got {options['preserve_module_call_signature']!r}: a program in torch.{name} is one "
            "module. Export the modules one by one."
        )
    kwargs = dict(kwargs or {})
    try:
        program = _Program(model, args, kwargs)
    except NotRecordable as error:
        raise NotImplementedError(
            f"expected a model whose operators do not depend on values, but got one in torch.{name} that a program cannot have: {error}. "
            "Run it uncaptured, or change that."
        ) from error
    codes = pytree.tree_map(_seen_as_codes, (args, kwargs))
    return torch.export.export(program, *codes)
