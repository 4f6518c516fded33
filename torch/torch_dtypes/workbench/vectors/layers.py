"""Write the codes of a model's run: each layer's inputs, parameters and outputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

import torch_dtypes

from ... import _C
from ...formats.codes import codes as codes_of
from ..diagnosis.calls import Calls
from ..report.folders import write_json, write_text
from .lines import KINDS, digits

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dump_vectors(
    module: torch.nn.Module, inputs: Any, folder: str | os.PathLike, *, as_: str = "hex"
) -> dict[str, Any]:
    """Write each layer's inputs, parameters and outputs in one run as codes: golden vectors of a
    network.

    A layer is a module without children. The module runs once, without gradients, in its current
    mode (training or evaluation). Inputs, parameters and buffers are recorded before the layer
    runs, since it may write into them. Format tensors are written as their codes, stock floating
    tensors as their IEEE bits, integers and bools as two's complement.

    Args:
        module: any module.
        inputs: the arguments of the call: a tensor, a tuple of positional arguments, or a dict of
            keyword arguments.
        folder: the folder, made if missing. It gets ``manifest.json`` and a file for each tensor,
            ``000_conv1.input0.hex``: one element a line, in the order of a contiguous tensor, the
            last dimension fastest.
        as_: ``"hex"`` (comment lines begin with ``#``), ``"readmemh"`` (with ``//``, for Verilog's
            ``$readmemh``) or ``"json"`` (an object with ``header`` and ``codes``).

    Returns:
        The manifest: ``"layers"``, in the order of calls, each with ``name``, ``type``, ``call`` (0
        for a module's first call) and ``tensors``. Each of these has ``role`` (``"input0"``,
        ``"weight"``, ``"output0"``), ``file``, ``shape``, ``dtype`` and ``bits``.

    Raises:
        TypeError: no module, or inputs of another type.
        ValueError: an unknown ``as_``, or a run that calls no layer.
        OSError: the folder cannot be written.

    Example::

        >>> import tempfile
        >>> layer = torch.nn.Linear(2, 1).to(torch.q43)
        >>> x = torch.ones(1, 2, dtype=torch.q43)
        >>> made = torch_dtypes.dump_vectors(layer, x, tempfile.mkdtemp())
        >>> [(t["role"], t["file"], t["shape"]) for t in made["layers"][0]["tensors"]][:2]
        [('input0', '000_Linear.input0.hex', [1, 2]), ('weight', '000_Linear.weight.hex', [1, 2])]
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a module, but got {type(module).__name__}")
    if as_ not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}, but got {as_!r}")
    if not isinstance(inputs, (torch.Tensor, tuple, dict)):
        raise TypeError(
            "expected inputs as a tensor, a tuple of arguments or a dict of keyword arguments, "
            f"but got {type(inputs).__name__}"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    positional = () if isinstance(inputs, dict) else (inputs,)
    if isinstance(inputs, tuple):
        positional = inputs
    written = _Writer(folder, as_)
    layers = [
        (name, layer)
        for name, layer in module.named_modules()
        if not any(True for _ in layer.children())
    ]
    hooks = [
        layer.register_forward_pre_hook(written.before, with_kwargs=True) for _, layer in layers
    ]
    hooks += [
        layer.register_forward_hook(written.after(name or type(layer).__name__))
        for name, layer in layers
    ]
    try:
        with torch.no_grad():
            module(*positional, **(inputs if isinstance(inputs, dict) else {}))
    finally:
        for hook in hooks:
            hook.remove()
    if not written.layers:
        raise ValueError(
            "expected a run that calls at least one module without children, but got none: "
            "functions are not recorded"
        )
    manifest = {
        "module": type(module).__name__,
        "as": as_,
        "version": f"torch_dtypes {_version()}",
        "layers": written.layers,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


def _version() -> str:
    return torch_dtypes.__version__


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument or a result, nested as layers nest them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, (tuple, list)) else []


class _Writer:
    def __init__(self, folder: Path, kind: str):
        self.folder, self.kind = folder, kind
        self.layers: list[dict[str, Any]] = []
        self.calls: dict[str, int] = {}
        self.running: Calls[list[tuple[str, torch.Tensor]]] = Calls()

    def before(self, layer, args, kwargs):
        named = [(f"input{i}", t) for i, t in enumerate([*_tensors(args), *_tensors(kwargs)])]
        named += [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]
        # Copies, because ReLU(inplace=True) and BatchNorm write into them.
        self.running.begin(layer, [(role, t.detach().clone()) for role, t in named])

    def after(self, name: str):
        def write(layer, args, output):
            named = self.running.end(layer) + [
                (f"output{i}", t) for i, t in enumerate(_tensors(output))
            ]
            self.calls[name] = call = self.calls.get(name, -1) + 1
            stem = f"{len(self.layers):03d}_{name}"
            tensors = [self.write(stem, role, tensor) for role, tensor in named]
            self.layers.append(
                {"name": name, "type": type(layer).__name__, "call": call, "tensors": tensors}
            )

        return write

    def write(self, stem: str, role: str, tensor: torch.Tensor) -> dict[str, Any]:
        bits, codes = _codes(tensor)
        file = f"{stem}.{role}.{'mem' if self.kind == 'readmemh' else self.kind}"
        entry = {
            "role": role,
            "file": file,
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "bits": bits,
        }
        if self.kind == "json":
            text = json.dumps({"header": entry, "codes": codes}) + "\n"
        else:
            mark = "#" if self.kind == "hex" else "//"
            head = f"{mark} {stem} {role}: {entry['dtype']}, {bits} bits, shape {entry['shape']}\n"
            text = head + "".join([f"{code:0{digits(bits)}x}\n" for code in codes])
        write_text(self.folder / file, text)
        return entry


def _codes(tensor: torch.Tensor) -> tuple[int, list[int]]:
    """Return the bits of an element, and each element's bits as a nonnegative integer."""
    tensor = tensor.detach().contiguous()
    if _C.is_format_tensor(tensor):
        bits, words = _C.format_of(tensor.dtype).bits, codes_of(tensor)
    else:
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        bits, words = 8 * tensor.itemsize, tensor.view(_INTEGERS[tensor.itemsize])
    return bits, [word & (1 << bits) - 1 for word in words.flatten().tolist()]
