"""Files of safetensors: the codes of tensors, with the names of their dtypes in the metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import torch

from . import _C
from .interchange import codes, from_codes

__all__ = ["load_safetensors", "save_safetensors"]

# The layout of the metadata in a safetensors file: raise it when its keys change meaning.
SAFETENSORS_VERSION = 1
_KEY = "torch_dtypes"


def _safetensors():
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise ImportError("expected the package safetensors to be installed, but it is not: pip install safetensors") from error
    return safetensors


def _place(t: torch.Tensor) -> tuple:
    """Two tensors of one place are one: the same elements of the same memory in the same order."""
    return t.dtype, t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride()


def save_safetensors(tensors: Mapping[str, torch.Tensor], filename: str | os.PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors of any dtype to a safetensors file; ``load_safetensors`` reads it.

    The format's list of dtypes is closed, so a tensor of ours is written as its codes, integers of the same width, which every reader of
    safetensors can read; the names of their dtypes are in the file's metadata under ``"torch_dtypes"``. A tensor that is there under
    several names (tied weights) is written once.

    Args:
        tensors: by name, for example ``model.state_dict()``.
        metadata: texts of your own for the file's header.

    Raises:
        ImportError: safetensors is not installed. ValueError: a value that is no tensor, a tensor that is not contiguous, or a key of
            ``metadata`` that is ours.
        RuntimeError: tensors that overlap without being the same.
    """
    if _KEY in (metadata or {}):
        raise ValueError(f"expected metadata without the key {_KEY!r}, which names the dtypes in the file, but got it")
    written, dtypes, same, seen = {}, {}, {}, {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"expected tensors, but got {type(tensor)} for {name!r}")
        own = _C.is_format_tensor(tensor)
        if own:
            dtypes[name] = _C.name_of(tensor.dtype)
        if tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() != 0:  # empty and meta tensors have no memory to share
            first = seen.setdefault(_place(tensor), name)
            if first != name:
                same[name] = first
                continue
        written[name] = codes(tensor) if own else tensor.detach()
    header = {"version": SAFETENSORS_VERSION, "dtypes": dtypes, "same": same}
    _safetensors().torch.save_file(written, filename, metadata={**(metadata or {}), _KEY: json.dumps(header, sort_keys=True)})


def _header(text: str, filename) -> dict:
    try:
        header = json.loads(text)
        version = header["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"expected {filename} to name its dtypes in the metadata {_KEY!r} as JSON with a version, but got {text!r}") from error
    if version != SAFETENSORS_VERSION:
        raise ValueError(
            f"expected version {SAFETENSORS_VERSION} of torch_dtypes' metadata in {filename}, but got version {version!r}: update torch-dtypes"
        )
    for part in ("dtypes", "same"):
        if not isinstance(header.get(part), dict) or not all(isinstance(v, str) for v in header[part].values()):
            raise ValueError(f"expected names by names under {part!r} in the metadata {_KEY!r} of {filename}, but got {header.get(part)!r}")
    return header


def load_safetensors(filename: str | os.PathLike, device: str | int | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file by name, those that ``save_safetensors`` wrote in their own dtypes.

    A file written by anything else is read as ``safetensors.torch.load_file`` reads it.

    Raises:
        ImportError: safetensors is not installed. FileNotFoundError: no such file. ValueError: the file is from a later version, or its
            metadata are broken.
    """
    from ._serialization import rebuild_dtype

    library = _safetensors()
    with library.safe_open(filename, framework="pt", device=str(device) if isinstance(device, torch.device) else device) as file:
        metadata = file.metadata() or {}
        loaded = {name: file.get_tensor(name) for name in file.keys()}
    if _KEY not in metadata:
        return loaded
    header = _header(metadata[_KEY], filename)
    for name, first in header["same"].items():
        if first not in loaded or name in loaded:
            raise ValueError(f"expected {name!r} to be another name of a tensor in {filename}, but got {first!r}")
    for name, dtype in header["dtypes"].items():
        if name in loaded:
            try:
                loaded[name] = from_codes(loaded[name], rebuild_dtype(dtype))
            except (TypeError, ValueError) as error:
                raise ValueError(f"cannot read {name!r} of {filename}: {error}") from error
        elif name not in header["same"]:
            raise ValueError(f"expected {filename} to hold {name!r}, whose dtype its metadata name, but it does not")
    return loaded | {name: loaded[first] for name, first in header["same"].items()}
