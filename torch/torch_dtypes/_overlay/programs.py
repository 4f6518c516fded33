"""torch.export beside number formats: programs over codes, their files and their states (``torch_dtypes/compiling/exporting.py``)."""

from __future__ import annotations

import functools
import re
import zipfile

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
    table.install(row for row in LATER_HOOKS if row not in PACKAGES)


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


# ---- packages of AOTInductor ----

_NAMED = re.compile(rb"torch_dtypes_codes::(\w+)(?:\.(\w+))?")


def _operators_named_in(file) -> set[tuple[bytes, bytes]]:
    """The operators on codes that compiled code in a package calls: a list of each is beside it."""
    start = file.tell() if hasattr(file, "seek") else None
    try:
        with zipfile.ZipFile(file) as archive:
            lists = [archive.read(name) for name in archive.namelist() if "/aotinductor/" in name and name.endswith(".json")]
    except (OSError, zipfile.BadZipFile):  # of which stock says so
        return set()
    finally:
        if start is not None:
            file.seek(start)
    return {names for text in lists for names in _NAMED.findall(text)}


def operators_in_packages(stock):
    """What loads a package: operators on codes that its code calls are made before, and its code is known to ask for the formats of what it gets."""

    @functools.wraps(stock)
    def load_pt2(f, *args, **kwargs):
        named = _operators_named_in(f)
        if named:
            from ..compiling import exporting

            for base, overload in named:
                exporting.operators.named(base.decode(), overload.decode() or "default")
        contents = stock(f, *args, **kwargs)
        for runner in contents.aoti_runners.values() if (b"enter", b"") in named else ():
            runner._enters_codes = True
        return contents

    return load_pt2


def refuse_package(exported_program, *args, **kwargs) -> None:
    """An error for a program that returns views of arguments of ours: compiled code makes such in C++, and knows no format."""
    from ..compiling import exporting

    if isinstance(exported_program, torch.export.ExportedProgram) and (name := exporting.argument_that_is_seen(exported_program)) is not None:
        raise NotImplementedError(
            f"expected a program whose results are new tensors in a package of AOTInductor, but got one that returns its argument {name}, or a "
            "view of it: return a clone of that."
        )


def refuse_operands(self, *args, **kwargs) -> None:
    """An error where compiled code would take codes for the container's numbers."""
    if not getattr(self, "_enters_codes", False) and (name := format_in((args, kwargs))) is not None:
        raise TypeError(f"expected tensors of stock dtypes for a package of a stock program, but got torch.{name}: cast them.")


# When AOTInductor is imported (integrations/aot_inductor.py).
PACKAGES = [
    Replaced("torch.export.pt2_archive._package", "load_pt2", operators_in_packages),
    Extended("torch.export.pt2_archive._package.AOTICompiledModel", "__call__", refuse_operands),
    Extended("torch._inductor", "aoti_compile_and_package", refuse_package),
]

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
    *PACKAGES,
]
