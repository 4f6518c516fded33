"""torch.export beside number formats: programs over codes, their files and their states (``torch_dtypes/compiling/exporting.py``)."""

from __future__ import annotations

import functools

import torch

from .. import _C
from . import table
from .graphs import format_in
from .table import Extended, Replaced


def export_codes(mod, args, kwargs=None, **options):
    """The program of a model with tensors of ours, which is one over codes; None for others, and for those that ONNX files are to be made of."""
    if not isinstance(mod, torch.nn.Module) or torch.onnx.is_in_onnx_export():
        return None
    name = format_in([*mod.parameters(), *mod.buffers(), *torch.utils._pytree.tree_leaves((args, kwargs))])
    if name is None:
        return None
    from ..compiling import exporting

    _begin()
    return exporting.export(mod, args, kwargs, name, **options)


def draft(mod, args, kwargs=None, **options):
    """An error for a model with tensors of ours: a draft is a list of what stock's exporter stumbles over, which sees no code of theirs."""
    name = format_in([mod, args, kwargs])
    if name is not None:
        raise NotImplementedError(f"expected a model in stock dtypes in torch.export.draft_export, but got torch.{name}: call torch.export.export.")


@functools.cache
def _begin() -> None:
    table.install(LATER_HOOKS)


def begin_files(*args, **kwargs) -> None:
    """Before the first file of a program is read, what finds our operators in it is installed."""
    _begin()


def operators_in_files(stock):
    """What finds the operators that a program's file names: those on codes are made then."""
    from ..compiling import exporting  # which defines how tensors enter and leave

    prefix = f"torch.ops.{exporting.operators.NAMESPACE}."

    @functools.wraps(stock)
    def deserialize_operator(self, target: str):
        if target.startswith(prefix):
            exporting.operators.named(*target.removeprefix(prefix).split("."))
        return stock(self, target)

    return deserialize_operator


def _takes_codes(module: torch.nn.Module, formats: dict[str, str | None]) -> None:
    """Has a program's module load tensors of ours as their codes: copied into integers, they would be rounded to such."""

    def load(_module, state_dict, prefix, *_rest) -> None:
        for key, value in state_dict.items():
            expected = formats.get(key.removeprefix(prefix))
            if expected is None or not isinstance(value, torch.Tensor) or not (_C.is_format_tensor(value) or value.dtype.is_floating_point):
                continue
            if not _C.is_format_tensor(value) or _C.name_of(value.dtype) != expected:
                raise TypeError(
                    f"expected {key} in torch.{expected}, or its codes, as the program has it, but got {value.dtype}. Cast it, or export the "
                    "model anew."
                )
            state_dict[key] = _C.alias_codes(value.detach())

    module.register_load_state_dict_pre_hook(load)


def modules_of_programs(stock):
    """What makes a module of a program: one of codes loads the model's own state."""
    from ..compiling import exporting

    @functools.wraps(stock)
    def module(self, *args, **kwargs):
        made = stock(self, *args, **kwargs)
        if exporting.is_over_codes(self):
            _takes_codes(made, exporting.formats_of_state(self))
        return made

    return module


def unflattened(stock):
    """The same for a program that is made a tree of modules again."""
    from ..compiling import exporting

    @functools.wraps(stock)
    def __init__(self, export_module, *args, **kwargs):
        stock(self, export_module, *args, **kwargs)
        if exporting.is_over_codes(export_module):
            _takes_codes(self, exporting.formats_of_state(export_module))

    return __init__


def refuse_backward(program, *args, **kwargs) -> None:
    """An error where a program over codes is to have its gradients."""
    from ..compiling import exporting

    if exporting.is_over_codes(program):
        raise NotImplementedError(f"expected a program in stock dtypes, but got one of codes: {exporting.NO_GRADIENTS}")


HOOKS = [
    Extended("torch.export", "export", export_codes),
    Extended("torch.export", "draft_export", draft),
    Extended("torch.export", "load", begin_files),
]

# When the first program over codes is made, or a file of a program read.
LATER_HOOKS = [
    Replaced("torch._export.serde.serialize.GraphModuleDeserializer", "deserialize_operator", operators_in_files),
    Replaced("torch.export.exported_program.ExportedProgram", "module", modules_of_programs),
    Replaced("torch.export.UnflattenedModule", "__init__", unflattened),
    Extended("torch.export.experimental", "_export_forward_backward", refuse_backward, optional="an experiment of PyTorch's, under a private name"),
]
