"""Pickling, torch.save and sending tensors between processes.

A tensor of ours is written as its codes (a stock integer tensor, so that storages are shared as ever) beside the canonical name of its
dtype, which a fresh process turns back into the dtype, run-time formats included.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from multiprocessing.reduction import ForkingPickler

import torch

from . import _C
from ._overlay.interop import _bits_dtype
from .interchange import refuse_beyond

# The layout of what is written: raise it when rebuild_tensor's arguments change meaning. test/data holds a file of each
# version, which must load for ever.
FILE_VERSION = 1


def rebuild_dtype(name: str) -> torch.dtype:
    """The dtype of a canonical name read from a file."""
    from . import formats

    try:
        formats.format_of(name)
    except ValueError as error:
        raise ValueError(
            f"the file holds a tensor of number format {name!r}, which this version of torch_dtypes does not know: {error}"
        ) from None
    return formats.dtype(name)  # which says so where a process has all the formats that it can hold


def _tensor_of_codes(codes: torch.Tensor, name: str) -> torch.Tensor:
    dtype = rebuild_dtype(name)
    if not isinstance(codes, torch.Tensor) or codes.dtype is not _bits_dtype(dtype):
        found = codes.dtype if isinstance(codes, torch.Tensor) else type(codes)
        raise ValueError(f"expected the codes of a tensor of {dtype} as {_bits_dtype(dtype)}, but the file holds {found}: it is damaged")
    return codes.view(dtype)


# Tensors of a file whose memory is read after they are made: files of the old layout (not zip). None where there is no such file.
_unread = threading.local()


def _check(codes: torch.Tensor, dtype: torch.dtype) -> None:
    """Refuses codes beyond the format, as from_codes does, once they have been read."""
    waiting = getattr(_unread, "tensors", None)
    if waiting is not None:
        waiting.append((codes, dtype))
    elif not torch.serialization._serialization_tls.skip_data:  # in torch.serialization.skip_data() nothing is read
        refuse_beyond(codes, dtype)


def _legacy_load(stock):
    """torch.serialization._legacy_load, which reads storages after it has made the tensors on them."""

    @functools.wraps(stock)
    def load(*args, **kwargs):
        around, _unread.tensors = getattr(_unread, "tensors", None), []
        try:
            loaded, made = stock(*args, **kwargs), _unread.tensors
        finally:
            _unread.tensors = around
        for codes, dtype in made:
            _check(codes, dtype)
        return loaded

    return load


def refuse_storage(storage: torch.TypedStorage) -> None:
    """What a file knows a typed storage by is one of torch's classes for them."""
    if _C.format_of(storage.dtype) is not None:
        raise NotImplementedError(
            f"expected a typed storage of a stock dtype to save, but got one of {storage.dtype}: files name those by PyTorch's own table. Save "
            f"the tensor, or its untyped_storage() and str(x.dtype)."
        )


def rebuild_tensor(version: int, *written) -> torch.Tensor:
    """The tensor of what version 1 writes: codes, the dtype's name, requires_grad and hooks. (A later version may write something else.)"""
    if version != FILE_VERSION:
        raise ValueError(
            f"expected a tensor written in version {FILE_VERSION} of torch_dtypes' layout, but got version {version}: update torch-dtypes"
        )
    codes, name, requires_grad, hooks = written
    tensor = _tensor_of_codes(codes, name)
    _check(codes, tensor.dtype)
    tensor.requires_grad = requires_grad
    tensor._backward_hooks = hooks
    return tensor


def reduce_dtype(dtype: torch.dtype):
    return rebuild_dtype, (_C.name_of(dtype),)


def _reduce_ex_internal(stock):
    """What Tensor.__reduce_ex__ calls for the tensor itself; it adds the class and the Python attributes of a tensor that has some."""

    @functools.wraps(stock)
    def reduce(self, proto):
        if not _C.is_format_tensor(self):
            return stock(self, proto)
        codes = self.detach().as_subclass(torch.Tensor).view(_bits_dtype(self.dtype))
        torch.utils.hooks.warn_if_has_hooks(self)
        return rebuild_tensor, (FILE_VERSION, codes, _C.name_of(self.dtype), self.requires_grad, OrderedDict())

    return reduce


def _send_tensor(stock):
    def send(tensor: torch.Tensor):
        if not _C.is_format_tensor(tensor):
            return stock(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad; detach it first")
        codes = tensor.detach().view(_bits_dtype(tensor.dtype))
        return _receive_tensor, (type(tensor), codes, _C.name_of(tensor.dtype), tensor.requires_grad)

    return send


def _receive_tensor(cls: type, codes: torch.Tensor, name: str, requires_grad: bool) -> torch.Tensor:
    tensor = _tensor_of_codes(codes, name)
    if issubclass(cls, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def install() -> None:
    """Puts our reducers in front of stock's: Tensor's own for pickle, copy and torch.save, ForkingPickler's for other processes."""
    import torch.multiprocessing.reductions as reductions

    torch.Tensor._reduce_ex_internal = _reduce_ex_internal(torch.Tensor._reduce_ex_internal)
    send = _send_tensor(reductions.reduce_tensor)
    ForkingPickler.register(torch.Tensor, send)
    ForkingPickler.register(torch.nn.Parameter, send)
    torch.serialization._legacy_load = _legacy_load(torch.serialization._legacy_load)
    torch.serialization.add_safe_globals([rebuild_tensor, rebuild_dtype])
