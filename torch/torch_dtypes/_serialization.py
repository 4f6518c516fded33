"""Pickling, torch.save and sending tensors between processes.

A tensor of ours is written as its codes (a stock integer tensor, so that storages are shared as ever) beside the canonical name of its
dtype, which a fresh process turns back into the dtype, run-time formats included.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from multiprocessing.reduction import ForkingPickler

import torch

from . import _C
from ._interop import _bits_dtype

# The layout of what is written: raise it when rebuild_tensor's arguments change meaning. test/data holds a file of each
# version, which must load for ever.
FILE_VERSION = 1


def rebuild_dtype(name: str) -> torch.dtype:
    """The dtype of a canonical name read from a file."""
    from .formats import dtype

    try:
        return dtype(name)
    except ValueError as error:
        raise ValueError(
            f"the file holds a tensor of number format {name!r}, which this version of torch_dtypes does not know: {error}"
        ) from None


def _tensor_of_codes(codes: torch.Tensor, name: str) -> torch.Tensor:
    dtype = rebuild_dtype(name)
    if not isinstance(codes, torch.Tensor) or codes.dtype is not _bits_dtype(dtype):
        found = codes.dtype if isinstance(codes, torch.Tensor) else type(codes)
        raise ValueError(f"expected the codes of a tensor of {dtype} as {_bits_dtype(dtype)}, but the file holds {found}: it is damaged")
    return codes.view(dtype)


def rebuild_tensor(version: int, *written) -> torch.Tensor:
    """The tensor of what version 1 writes: codes, the dtype's name, requires_grad and hooks. (A later version may write something else.)"""
    if version != FILE_VERSION:
        raise ValueError(
            f"expected a tensor written in version {FILE_VERSION} of torch_dtypes' layout, but got version {version}: update torch-dtypes"
        )
    codes, name, requires_grad, hooks = written
    tensor = _tensor_of_codes(codes, name)
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
    torch.serialization.add_safe_globals([rebuild_tensor, rebuild_dtype])
