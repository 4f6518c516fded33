"""TorchScript beside number formats: calls go by torch/csrc/formats/ScriptCall.cpp; here are the rest of a script's life, files and casts."""

from __future__ import annotations

import functools
import sys

import torch

from . import _C


def refuse_save(stock, *args, **kwargs):
    raise NotImplementedError(
        "expected a script with tensors and dtypes of stock types to save, but got one with a number format: files of TorchScript know dtypes "
        "by PyTorch's own table. Save its state_dict() by torch.save, or convert it first, for example with script.to(torch.float64)."
    )


def refuse_onnx(stock, *args, **kwargs):
    """torch.onnx takes its graphs from these two functions, and would write our codes into the file as the container's numbers."""
    exporter = sys.modules.get("torch.onnx._internal.torchscript_exporter._globals")
    if exporter is not None and exporter.GLOBALS.in_onnx_export:
        raise NotImplementedError(
            "expected a model and arguments of stock dtypes to export, but got some of a number format: ONNX files have no types for them. "
            "Convert first, for example with model.float()."
        )
    return stock(*args, **kwargs)


def _changes_kind(module: torch.nn.Module, fn) -> bool:
    """Whether fn makes tensors of ours from stock ones, or stock ones from ours, for a parameter of this module."""
    for parameter in module.parameters(recurse=False):
        before = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
        if _C.is_format_tensor(before) != _C.is_format_tensor(fn(before)):
            return True
    return False


def _replacing(stock):
    """Module._apply for script modules. A tensor cannot change between stock and ours in its body, which the script holds as well: the
    script gets new parameters, as stock does where bodies differ. An optimizer must be made afterwards."""

    @functools.wraps(stock)
    def apply(self, fn, recurse=True):
        before = torch.__future__.get_overwrite_module_params_on_conversion()
        if not _changes_kind(self, fn):
            return stock(self, fn, recurse)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            return stock(self, fn, recurse)
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)

    return apply


def optimise_frozen_exactly(stock, graph, optimize_numerics=True):
    """A pass of torch.jit.freeze, without what it does to numbers: batch normalisation folded into weights rounds elsewhere."""
    return stock(graph, False)


def keep_frozen(stock, module, *args, **kwargs):
    """The last pass of torch.jit.optimize_for_inference, which swaps operators for faster stock ones that round elsewhere."""


def install() -> None:
    torch.jit.ScriptModule._apply = _replacing(torch.jit.ScriptModule._apply)
