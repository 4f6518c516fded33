"""Files of safetensors: values that every reader understands, and dtypes' names in the metadata.

The names restore every code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import torch

from .. import _C
from ..formats.arguments import boolean, outline
from ..formats.codes import codes as codes_of
from ..formats.codes import from_codes
from ..formats.tables.making import written_name
from ..targets.block_tensors import BlockTensor
from . import stock_values
from .block_parts import describe_block_tensor, split_block_tensor, take_block_tensor
from .pickling import rebuild_dtype
from .table_values import is_table, table_of_values, values_of_table

__all__ = ["load_safetensors", "save_safetensors"]

# Version of the metadata in a safetensors file: raise it when its keys change meaning. Version 1
# had codes under the tensors' own names.
SAFETENSORS_VERSION = 2
_KEY = "torch_dtypes"
# Prefix of the name of a tensor of codes. No model has such a parameter.
_CODES = "torch_dtypes codes of "


def _safetensors():
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise ImportError(
            "expected the package safetensors, but got none installed; run pip install safetensors"
        ) from error
    return safetensors


def _place(t: torch.Tensor) -> tuple:
    """Return a key that two tensors share if they are the same elements of memory in one order."""
    return t.dtype, t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride()


def _values_of(tensor: torch.Tensor) -> torch.Tensor:
    return values_of_table(tensor) if is_table(tensor.dtype) else stock_values.values_of(tensor)


def _from_values(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (
        table_of_values(values, dtype)
        if is_table(dtype)
        else stock_values.from_values(values, dtype)
    )


def _contiguous(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_contiguous():
        raise ValueError(
            f"expected contiguous tensors, but got a non contiguous one for {name!r}; save its "
            ".contiguous()"
        )
    return tensor


def refuse_shared(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors that share memory, as safetensors does.

    It must see format tensors before values with memory of their own replace them.
    """
    bits = {name: codes_of(t) if _C.is_format_tensor(t) else t for name, t in tensors.items()}
    if shared := [
        names for names in _safetensors().torch._find_shared_tensors(bits) if len(names) > 1
    ]:
        raise RuntimeError(
            "expected tensors that do not share memory, but got some that do: "
            f"{', '.join(map(str, map(sorted, shared)))}; save clones, or use "
            "safetensors.torch.save_model or torch_dtypes.save_safetensors, which write a tensor "
            "of several names once"
        )


def make_metadata(
    dtypes: Mapping[str, str],
    metadata: Mapping[str, str] | None,
    same: Mapping[str, str] | None = None,
    codes: bool = False,
    blocks: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return a file's metadata with the names of dtypes added."""
    if _KEY in (metadata or {}):
        raise ValueError(
            f"expected metadata without the key {_KEY!r}, which names the dtypes in the file, but "
            "got it; use another key"
        )
    header = {
        "version": SAFETENSORS_VERSION,
        "dtypes": dtypes,
        "same": same or {},
        "holds": "codes" if codes else "values",
        **({"blocks": blocks} if blocks else {}),
    }
    return {**(metadata or {}), _KEY: json.dumps(header, sort_keys=True)}


def _name_parts(name: str, tensor: BlockTensor, tensors: Mapping) -> dict[str, torch.Tensor]:
    """Return the parts of a ``BlockTensor`` by name."""
    parts = {name + end: part for end, part in split_block_tensor(tensor).items()}
    for part in parts:
        if part != name and part in tensors:
            raise ValueError(
                f"expected no tensor {part!r}, the name of a part of {name!r}, but got one; "
                "rename it"
            )
    return parts


def save_safetensors(
    tensors: Mapping[str, torch.Tensor | BlockTensor],
    filename: str | os.PathLike,
    metadata: Mapping[str, str] | None = None,
    *,
    codes: bool = False,
) -> None:
    """Write tensors of any dtype, and packed blocks, to a safetensors file.

    ``load_safetensors`` restores each in its dtype, bit for bit.

    The format's list of dtypes is closed, so a format tensor is written as its values, in the
    narrowest stock dtype that has them all. Every reader of safetensors gets the right numbers. The
    names of format dtypes are in the file's metadata under ``"torch_dtypes"``. A tensor with
    several names (tied weights) is written once.

    A ``BlockTensor`` is written as its parts, as NVIDIA's ModelOpt names them: elements under its
    own name (F4, F8_E4M3 or F8_E5M2; bytes where safetensors has no such dtype), the blocks' scales
    under ``<name>_scale`` (F8_E8M0 or F8_E4M3), the tensor's under ``<name>_scale_2``. F4 and
    F8_E8M0 need safetensors 0.6.

    Args:
        tensors: by name, for example ``model.state_dict()``.
        filename: the file to write; an existing one is replaced.
        metadata: further texts for the file's header.
        codes: True writes the codes instead, integers as wide as an element: the smallest file, for
            ``load_safetensors`` only. Their names belong to no model (``"torch_dtypes codes of
            <name>"``), so that a reader that takes them for numbers gets an error.

    Raises:
        ImportError: safetensors is not installed.
        ValueError: a value that is no tensor, a tensor that is not contiguous, a name that a part
            of a ``BlockTensor`` has, or the key ``"torch_dtypes"`` in ``metadata``.
        RuntimeError: tensors that overlap without being the same.

    Example::

        >>> tensors = {"w": torch.ones(2, dtype=torch.q43)}
        >>> torch_dtypes.save_safetensors(tensors, "model.safetensors")
        >>> torch_dtypes.load_safetensors("model.safetensors")
        {'w': tensor([1., 1.], dtype=torch.q43)}
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(
            "expected a mapping of names to tensors, but got "
            f"{outline(tensors)}; pass model.state_dict(), for example"
        )
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(
            "expected metadata as a mapping of texts to texts, or None, but got "
            f"{outline(metadata)}"
        )
    boolean("codes", codes)
    written, dtypes, same, seen, blocks = {}, {}, {}, {}, {}
    for name, tensor in tensors.items():
        if isinstance(tensor, BlockTensor):
            first = seen.setdefault(id(tensor), name)
            if first != name:
                same[name] = first
            else:
                blocks[name] = describe_block_tensor(tensor)
                written.update(_name_parts(name, tensor, tensors))
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"expected tensors, but got {type(tensor)} for {name!r}; leave it out")
        if _C.is_format_tensor(tensor):
            dtypes[name] = written_name(_C.name_of(tensor.dtype))
        # Empty and meta tensors have no memory to share.
        if tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() != 0:
            first = seen.setdefault(_place(tensor), name)
            if first != name:
                same[name] = first
                continue
        written[name] = tensor.detach()
    header = make_metadata(dtypes, metadata, same, codes, blocks)
    library = _safetensors()
    refuse_shared(written)
    for name in dtypes.keys() & written.keys():
        tensor = _contiguous(name, written.pop(name))
        written.update({_CODES + name: codes_of(tensor)} if codes else {name: _values_of(tensor)})
    library.torch.save_file(written, filename, metadata=header)


def replace_by_values(
    tensors: object, metadata: Mapping[str, str] | None
) -> tuple[object, Mapping[str, str] | None]:
    """Return values for format tensors, parts for block tensors, and metadata with the names of
    their formats.

    The functions of safetensors write these instead.
    """
    if not isinstance(tensors, dict):
        return tensors, metadata
    blocks = {n: t for n, t in tensors.items() if isinstance(t, BlockTensor)}
    own = {
        n: t for n, t in tensors.items() if isinstance(t, torch.Tensor) and _C.is_format_tensor(t)
    }
    if not own and not blocks:
        return tensors, metadata
    header = make_metadata(
        {name: written_name(_C.name_of(t.dtype)) for name, t in own.items()},
        metadata,
        blocks={name: describe_block_tensor(t) for name, t in blocks.items()},
    )
    parts = [
        _name_parts(name, t, tensors) if name in blocks else {name: t}
        for name, t in tensors.items()
    ]
    tensors = {name: t for part in parts for name, t in part.items()}
    refuse_shared(
        {
            name: t
            for name, t in tensors.items()
            if isinstance(t, torch.Tensor) and t.layout == torch.strided
        }
    )
    return {
        name: _values_of(_contiguous(name, t)) if name in own else t for name, t in tensors.items()
    }, header


def _header(text: str, filename) -> dict:
    try:
        header = json.loads(text)
        version = header["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"expected {filename} to name its dtypes in the metadata {_KEY!r} as JSON with a "
            f"version, but got {text!r}; write it again"
        ) from error
    if version not in (1, SAFETENSORS_VERSION):
        raise ValueError(
            f"expected version 1 to {SAFETENSORS_VERSION} of torch_dtypes' metadata in "
            f"{filename}, but got version {version!r}; update torch-dtypes"
        )
    if not isinstance(header.setdefault("blocks", {}), dict):
        raise ValueError(
            f"expected block formats by names under 'blocks' in the metadata {_KEY!r} of "
            f"{filename}, but got {header['blocks']!r}; write it again"
        )
    for part in ("dtypes", "same"):
        if not isinstance(header.get(part), dict) or not all(
            isinstance(v, str) for v in header[part].values()
        ):
            raise ValueError(
                f"expected names by names under {part!r} in the metadata {_KEY!r} of {filename}, "
                f"but got {header.get(part)!r}; write it again"
            )
    if version == 1:
        header["holds"] = "codes"
    elif header.get("holds") not in ("values", "codes"):
        raise ValueError(
            f"expected 'values' or 'codes' under 'holds' in the metadata {_KEY!r} of {filename}, "
            f"but got {header.get('holds')!r}; write it again"
        )
    return header


def _take_blocks(loaded: dict, blocks: Mapping[str, Mapping], filename) -> None:
    """Replace the parts of each ``BlockTensor`` by it."""
    for name, described in blocks.items():
        try:
            loaded[name] = take_block_tensor(loaded, name, described)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"cannot read {name!r} of {filename}: {error}") from error


def load_safetensors(
    filename: str | os.PathLike,
    device: str | int | torch.device = "cpu",
    *,
    blocks: Mapping[str, str] | None = None,
) -> dict[str, torch.Tensor | BlockTensor]:
    """Read the tensors of a safetensors file by name.

    Tensors saved in a format dtype have that dtype again, and each ``BlockTensor`` its codes. A
    file of stock dtypes is read as ``safetensors.torch.load_file`` reads it.

    Args:
        filename: a file of ``save_safetensors`` or of any other writer.
        device: device of the tensors: ``"cpu"`` or a ``torch.device``.
        blocks: the block formats of tensors that another program wrote, by name:
            ``{"layer.weight": "nvfp4"}``. The parts have the names of ``save_safetensors``, in its
            dtypes or as bytes (U8), two numbers of 4 bits in each, the first in the low half. The
            result is a ``BlockTensor`` of float32.

    Raises:
        ImportError: safetensors is not installed.
        FileNotFoundError: no such file.
        ValueError: the file is from a later version, its metadata are broken, or it lacks a part
            of a tensor in ``blocks``.

    Example::

        >>> tensors = {"w": torch.ones(2, dtype=torch.q43)}
        >>> torch_dtypes.save_safetensors(tensors, "model.safetensors", codes=True)
        >>> torch_dtypes.load_safetensors("model.safetensors")["w"].dtype
        torch.q43
    """
    if blocks is not None and not isinstance(blocks, Mapping):
        raise TypeError(
            "expected blocks as a mapping of tensors' names to block formats, or None, but got "
            f"{outline(blocks)}"
        )
    library = _safetensors()
    with library.safe_open(
        filename, framework="pt", device=str(device) if isinstance(device, torch.device) else device
    ) as file:
        metadata = file.metadata() or {}
        loaded = {name: file.get_tensor(name) for name in file.keys()}
    _take_blocks(loaded, {name: {"format": fmt} for name, fmt in (blocks or {}).items()}, filename)
    if _KEY not in metadata:
        return loaded
    header = _header(metadata[_KEY], filename)
    _take_blocks(
        loaded,
        {name: d for name, d in header["blocks"].items() if name not in (blocks or {})},
        filename,
    )
    before = _CODES if header["holds"] == "codes" and header["version"] > 1 else ""
    for name, dtype in header["dtypes"].items():
        if before + name in loaded:
            restore = from_codes if header["holds"] == "codes" else _from_values
            try:
                loaded[name] = restore(loaded.pop(before + name), rebuild_dtype(dtype))
            except (TypeError, ValueError) as error:
                raise ValueError(f"cannot read {name!r} of {filename}: {error}") from error
        elif name not in header["same"]:
            raise ValueError(
                f"expected {filename} to hold {name!r}, which has a dtype in its metadata, but "
                "got none; write it again"
            )
    for name, first in header["same"].items():
        if first not in loaded or name in loaded:
            raise ValueError(
                f"expected {name!r} to be another name of a tensor in {filename}, but got "
                f"{first!r}; write it again"
            )
    return loaded | {name: loaded[first] for name, first in header["same"].items()}
