"""TorchScript beside number formats: which calls, traces and files are refused, and casts of
modules that scripts share parameters with."""

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
    """An error: files of TorchScript know dtypes by PyTorch's own table."""
    raise NotImplementedError(
        "expected a script with tensors and dtypes of stock types to save, but got one with a "
        "number format: files of TorchScript know dtypes by PyTorch's own table. Save its "
        "state_dict() by torch.save, or convert it first, for example with "
        "script.to(torch.float64)."
    )


def refuse_onnx(stock, *args, **kwargs):
    """torch.onnx takes its graphs from these two functions, and would write our codes into the file
    as the container's numbers."""
    exporter = sys.modules.get("torch.onnx._internal.torchscript_exporter._globals")
    if exporter is not None and exporter.GLOBALS.in_onnx_export:
        raise NotImplementedError(
            "expected a model and arguments of stock dtypes to export, but got some of a number "
            "format: ONNX files have no types for them. Convert first, for example with "
            "model.float()."
        )
    return stock(*args, **kwargs)


# Script modules by the parameters that they share with Python: weak references to the scripts, and
# the names there. A script holds the body of a tensor, which is another one after a change between
# stock and ours.
_scripts_of = torch.utils.weak.WeakTensorKeyDictionary()


def _remember(script: torch.jit.ScriptModule, module: torch.nn.Module) -> None:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            held = _scripts_of.setdefault(parameter, [])
            held[:] = [entry for entry in held if entry[0]() not in (None, script)] + [
                (weakref.ref(script), name)
            ]


def give_new_body(parameter: torch.Tensor) -> None:
    """Lets scripts know that the tensor has another body."""
    for script, name in _scripts_of.get(parameter, ()):
        if (found := script()) is not None:
            found._c.setattr(name, parameter)


def remembering_made(stock):
    """Makes a script of a module, and remembers the parameters that they share: one may get another
    body."""

    @functools.wraps(stock)
    def create(nn_module, *args, **kwargs):
        script = stock(nn_module, *args, **kwargs)
        _remember(script, nn_module)
        return script

    return create


def remembering(stock):
    """Module._apply for script modules, those from files too: remembers the parameters that they
    share."""

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        _remember(self, self)
        return stock(self, fn, recurse)

    return apply


_REFUSAL = (
    "expected stock dtypes in TorchScript, but got {}: its executor would read codes as numbers. "
    "Run the eager code, or convert a float32 model by torch_dtypes.quantize_ before it is "
    "scripted or traced."
)


def refuse_call(stock, script, *args, **kwargs):
    """An error where a script module works on format tensors."""
    raise NotImplementedError(_REFUSAL.format("a format dtype"))


def call_original(stock, script, *args, **kwargs):
    """A script function on format tensors: the Python function that it was made of."""
    original = getattr(script, "_torchdynamo_inline", None)
    return refuse_call(stock, script) if original is None else original(*args, **kwargs)


def refuse_trace(func, *args, **kwargs) -> None:
    """An error where what is traced has format tensors, or where an example input is one."""
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
# Where torch.onnx gets the graph of a module, of a script.
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
    Hook("torch.jit.ScriptModule._apply", Kind.REPLACED, remembering),
    Hook("torch.jit._recursive.create_script_module_impl", Kind.REPLACED, remembering_made),
]
