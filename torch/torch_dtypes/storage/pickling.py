"""Functions that files of torch.save and pickles call to rebuild tensors, dtypes and formats.

Files name these functions, so they must stay here.

A format tensor is written as its codes and the canonical name of its dtype. The codes are a stock
integer tensor, so storages are shared as usual. A new process makes the dtype from the name, also
for run-time formats. The name of a table that is named by its content is followed by a colon and
its values. host/hooks/serialization.py writes them.
"""

from __future__ import annotations

import threading

import torch

from .. import _C
from ..formats import dtypes
from ..formats.code_types import bits_dtype
from ..formats.codes import refuse_beyond
from ..formats.tables.making import written_name
from ..targets.block_tensors import rebuild_block_tensor

# Version of the written layout: raise it when rebuild_tensor's arguments change meaning. test/data
# has a file of each version, which must load for ever.
FILE_VERSION = 1


def rebuild_format(name: str) -> _C.Format:
    """Return the format of a canonical name read from a file."""
    try:
        return dtypes.format_of(name)
    except ValueError as error:
        raise ValueError(
            f"expected a number format that this version of torch_dtypes knows, but got "
            f"{name.partition(':')[0]!r} in the file; update torch-dtypes ({error})"
        ) from None


def rebuild_dtype(name: str) -> torch.dtype:
    """Return the dtype of a canonical name read from a file."""
    rebuild_format(name)  # for its error
    return dtypes.dtype(name)  # raises where a process has as many formats as it can hold


def _reduce_format(fmt: _C.Format) -> tuple:
    """Pickle a format's name, with the values of a table that is named by its content."""
    return rebuild_format, (written_name(dtypes.name_of_format(fmt)),)


_C.Format.__reduce__ = _reduce_format


def tensor_of_codes(codes: torch.Tensor, name: str) -> torch.Tensor:
    dtype = rebuild_dtype(name)
    if not isinstance(codes, torch.Tensor) or codes.dtype is not bits_dtype(dtype):
        got = codes.dtype if isinstance(codes, torch.Tensor) else type(codes)
        raise ValueError(
            f"expected the codes of a tensor of {dtype} as {bits_dtype(dtype)}, but got {got}: "
            "the file is damaged; write it again"
        )
    return codes.view(dtype)


# Tensors of a file of the old layout (not zip), whose memory is read after they are made. None
# where no such file is being read.
unread = threading.local()


def check_codes(codes: torch.Tensor, dtype: torch.dtype) -> None:
    """Refuse codes beyond the format, as from_codes does, once they have been read."""
    waiting = getattr(unread, "tensors", None)
    if waiting is not None:
        waiting.append((codes, dtype))
    elif not torch.serialization._serialization_tls.skip_data:
        # In torch.serialization.skip_data() no data are read.
        refuse_beyond(codes, dtype)


def check_tensor(t: torch.Tensor) -> None:
    """Refuse codes beyond the format in a format tensor from a file."""
    check_codes(t.detach().view(bits_dtype(t.dtype)), t.dtype)


def rebuild_tensor(version: int, *written) -> torch.Tensor:
    """Rebuild a tensor from codes, the dtype's name, requires_grad and hooks, as version 1 writes
    them."""
    if version != FILE_VERSION:
        raise ValueError(
            f"expected a tensor written in version {FILE_VERSION} of torch_dtypes' layout, but "
            f"got version {version}; update torch-dtypes"
        )
    codes, name, requires_grad, hooks = written
    tensor = tensor_of_codes(codes, name)
    check_codes(codes, tensor.dtype)
    tensor.requires_grad = requires_grad
    tensor._backward_hooks = hooks
    return tensor


# Modules in which release 0.1 had functions named in files.
IN_FILES_BEFORE = {
    "torch_dtypes._serialization": (rebuild_tensor, rebuild_dtype, rebuild_format),
    "torch_dtypes.quantization.block_tensors": (rebuild_block_tensor,),
}


def allow(add_safe_globals) -> None:
    """Allow torch.load(weights_only=True) to call the functions that make format tensors.

    They check their arguments. ``_torch_dtypes_autoload`` allows the same names where it runs.
    """
    known = {f[1] for f in torch.serialization.get_safe_globals() if isinstance(f, tuple)}
    for old_module, functions in IN_FILES_BEFORE.items():
        for function in functions:
            names = [
                f"{module}.{function.__name__}" for module in (function.__module__, old_module)
            ]
            add_safe_globals([(function, name) for name in names if name not in known])
