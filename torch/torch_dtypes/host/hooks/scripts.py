"""Hooks of TorchScript: refused calls, traces and files, and parameters shared with scripts."""

from __future__ import annotations

import functools
import sys
import weakref

import torch
import torch.jit._recursive
import torch.utils.weak

from ... import _C
from ..table import Hook, Kind
from .trampolines import When


def refuse_save(stock, *args, **kwargs):
    """Raise: files of TorchScript name dtypes by PyTorch's own table."""
    raise NotImplementedError(
        "expected a script with tensors and dtypes of stock types to save, but got one with a "
        "number format; save its state_dict() by torch.save, or convert it first, for example "
        "with script.to(torch.float64)"
    )


def refuse_onnx(stock, *args, **kwargs):
    """Raise: torch.onnx takes its graphs from these functions and would write codes as numbers."""
    exporter = sys.modules.get("torch.onnx._internal.torchscript_exporter._globals")
    if exporter is not None and exporter.GLOBALS.in_onnx_export:
        raise NotImplementedError(
            "expected a model and arguments of stock dtypes to export, but got a number format, "
            "for which ONNX has no type; convert first, for example with model.float()"
        )
    return stock(*args, **kwargs)


# Script modules by the parameters that they share with Python: weak references to the scripts, and
# the parameters' names there. A script holds the body of a tensor. Exchanging a stock dtype for a
# format dtype, or back, changes the body.
_scripts_of = torch.utils.weak.WeakTensorKeyDictionary()


def _remember(script: torch.jit.ScriptModule, module: torch.nn.Module) -> None:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            held = _scripts_of.setdefault(parameter, [])
            held[:] = [entry for entry in held if entry[0]() not in (None, script)] + [
                (weakref.ref(script), name)
            ]


def give_new_body(parameter: torch.Tensor) -> None:
    """Give scripts the tensor's new body."""
    for script, name in _scripts_of.get(parameter, ()):
        if (module := script()) is not None:
            module._c.setattr(name, parameter)


def remember_created(stock):
    """Remember the parameters that a new script shares with its module.

    A parameter may get another body.
    """

    @functools.wraps(stock)
    def create(nn_module, *args, **kwargs):
        script = stock(nn_module, *args, **kwargs)
        _remember(script, nn_module)
        return script

    return create


def remember_shared(stock):
    """Remember the parameters of a script module, which may be from a file, in Module._apply."""

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        _remember(self, self)
        return stock(self, fn, recurse)

    return apply


_REFUSAL = (
    "expected stock dtypes in TorchScript, but got {}, whose codes its executor would read as "
    "numbers; run the eager code, or convert a float32 model by torch_dtypes.quantize_ before it "
    "is scripted or traced"
)


def refuse_call(stock, script, *args, **kwargs):
    """Raise where a script module works on format tensors."""
    raise NotImplementedError(_REFUSAL.format("a format dtype"))


def call_original(stock, script, *args, **kwargs):
    """Call the Python function of which a script function on format tensors was made."""
    original = getattr(script, "_torchdynamo_inline", None)
    return refuse_call(stock, script) if original is None else original(*args, **kwargs)


def refuse_trace(func, *args, **kwargs) -> None:
    """Raise where the traced function has format tensors, or gets one as example input."""
    if (name := _C.format_in_tensors((func, args, kwargs))) is not None:
        raise NotImplementedError(_REFUSAL.format(f"torch.{name}"))


_SAVES = {
    "torch._C.ScriptModule": (
        "save",
        "save_to_buffer",
        "_save_for_mobile",
        "_save_to_buffer_for_mobile",
    ),
    "torch._C.ScriptFunction": ("save", "save_to_buffer"),
}
# torch.onnx gets graphs here: of a module, and of a script.
_GRAPHS = ("_create_graph_by_tracing", "_propagate_and_assign_input_shapes")

HOOKS = [
    Hook("torch._C.ScriptMethod.__call__", Kind.BUILTIN, refuse_call, When.OWN_SCRIPT),
    Hook("torch._C.ScriptFunction.__call__", Kind.BUILTIN, call_original, When.OWN_SCRIPT),
    *(
        Hook(f"{script}.{name}", Kind.BUILTIN, refuse_save, When.OWN_SCRIPT)
        for script, names in _SAVES.items()
        for name in names
    ),
    *(Hook(f"torch._C.{name}", Kind.BUILTIN, refuse_onnx, When.OWN_SCRIPT) for name in _GRAPHS),
    *(
        Hook(f"torch.jit._trace.{name}", Kind.ASKED, refuse_trace)
        for name in ("trace", "trace_module")
    ),
    Hook("torch.jit.ScriptModule._apply", Kind.REPLACED, remember_shared),
    Hook("torch.jit._recursive.create_script_module_impl", Kind.REPLACED, remember_created),
]
