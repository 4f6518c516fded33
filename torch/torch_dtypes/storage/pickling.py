"""What files of torch.save and pickles call to make tensors, dtypes and formats anew: they name
these functions, which therefore stay here.

A tensor of ours is written as its codes (a stock integer tensor, so that storages are shared as
ever) beside the canonical name of its dtype, which a fresh process turns back into the dtype,
run-time formats included; behind the name of a table that is named by its content stand a colon and
its values. (What writes them: host/hooks/serialization.py.)
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

# The layout of what is written: raise it when rebuild_tensor's arguments change meaning. test/data
# holds a file of each version, which must load for ever.
FILE_VERSION = 1


def rebuild_format(name: str) -> _C.Format:
    """The format of a canonical name read from a file."""
    try:
        return dtypes.format_of(name)
    except ValueError as error:
        raise ValueError(
            f"the file holds the number format {name.partition(':')[0]!r}, which this version of "
            f"torch_dtypes does not know: {error}"
        ) from None


def rebuild_dtype(name: str) -> torch.dtype:
    """The dtype of a canonical name read from a file."""
    rebuild_format(name)  # for its error
    return dtypes.dtype(name)  # which says so where a process has all the formats that it can hold


def _reduce_format(fmt: _C.Format) -> tuple:
    """A pickle has the name, of a table that is named by its content its values too."""
    return rebuild_format, (written_name(dtypes.name_of_format(fmt)),)


_C.Format.__reduce__ = _reduce_format


def tensor_of_codes(codes: torch.Tensor, name: str) -> torch.Tensor:
    dtype = rebuild_dtype(name)
    if not isinstance(codes, torch.Tensor) or codes.dtype is not bits_dtype(dtype):
        found = codes.dtype if isinstance(codes, torch.Tensor) else type(codes)
        raise ValueError(
            f"expected the codes of a tensor of {dtype} as {bits_dtype(dtype)}, but the file "
            f"holds {found}: it is damaged"
        )
    return codes.view(dtype)


# Tensors of a file whose memory is read after they are made: files of the old layout (not zip).
# None where there is no such file.
unread = threading.local()


def check_codes(codes: torch.Tensor, dtype: torch.dtype) -> None:
    """Refuses codes beyond the format, as from_codes does, once they have been read."""
    waiting = getattr(unread, "tensors", None)
    if waiting is not None:
        waiting.append((codes, dtype))
    elif not torch.serialization._serialization_tls.skip_data:
        # In torch.serialization.skip_data() nothing is read.
        refuse_beyond(codes, dtype)


def check_tensor(t: torch.Tensor) -> None:
    """The same of a tensor of ours that a file made."""
    check_codes(t.detach().view(bits_dtype(t.dtype)), t.dtype)


def rebuild_tensor(version: int, *written) -> torch.Tensor:
    """The tensor of what version 1 writes: codes, the dtype's name, requires_grad and hooks. (A
    later version may write something else.)"""
    if version != FILE_VERSION:
        raise ValueError(
            f"expected a tensor written in version {FILE_VERSION} of torch_dtypes' layout, but "
            f"got version {version}: update torch-dtypes"
        )
    codes, name, requires_grad, hooks = written
    tensor = tensor_of_codes(codes, name)
    check_codes(codes, tensor.dtype)
    tensor.requires_grad = requires_grad
    tensor._backward_hooks = hooks
    return tensor


# The modules in which release 0.1 had the functions that files name.
IN_FILES_BEFORE = {
    "torch_dtypes._serialization": (rebuild_tensor, rebuild_dtype, rebuild_format),
    "torch_dtypes.quantization.block_tensors": (rebuild_block_tensor,),
}


def allow(add_safe_globals) -> None:
    """Allow torch.load(weights_only=True) to call the functions that make format tensors.

    They check what they are given. ``_torch_dtypes_autoload`` allows the same names where it runs.
    """
    known = {f[1] for f in torch.serialization.get_safe_globals() if isinstance(f, tuple)}
    for old_module, functions in IN_FILES_BEFORE.items():
        for function in functions:
            names = [
                f"{module}.{function.__name__}" for module in (function.__module__, old_module)
            ]
            add_safe_globals([(function, name) for name in names if name not in known])
