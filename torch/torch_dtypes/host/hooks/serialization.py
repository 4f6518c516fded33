"""Hooks that write codes and names: pickling, torch.save, and tensors sent between processes.

torch_dtypes/storage/pickling.py reads them.
"""

from __future__ import annotations

import functools
from collections import OrderedDict

import torch
from torch.multiprocessing import reductions

from ... import _C
from ...formats.code_types import bits_dtype
from ...formats.tables.making import written_name
from ...storage import pickling
from ...storage.pickling import check_codes, rebuild_dtype, rebuild_tensor, tensor_of_codes, unread
from ..table import Hook, Kind


def reduce_dtype(dtype: torch.dtype):
    """Pickle a format dtype by its name."""
    return rebuild_dtype, (written_name(_C.name_of(dtype)),)


def reduce_tensor(stock):
    """Pickle a format tensor as codes and a name.

    Tensor.__reduce_ex__ calls this, and adds the class and the Python attributes of a tensor that
    has some.
    """

    @functools.wraps(stock)
    def reduce(self, proto):
        if not _C.is_format_tensor(self):
            return stock(self, proto)
        codes = self.detach().as_subclass(torch.Tensor).view(bits_dtype(self.dtype))
        torch.utils.hooks.warn_if_has_hooks(self)
        return rebuild_tensor, (
            pickling.FILE_VERSION,
            codes,
            written_name(_C.name_of(self.dtype)),
            self.requires_grad,
            OrderedDict(),
        )

    return reduce


def refuse_storage(storage: torch.TypedStorage) -> None:
    """Raise: a file names a typed storage by one of torch's classes."""
    if _C.format_of(storage.dtype) is not None:
        raise NotImplementedError(
            f"expected a typed storage of a stock dtype to save, but got one of {storage.dtype}, "
            "which torch has no class for; save the tensor, or its untyped_storage() and "
            "str(x.dtype)"
        )


def check_after_reading(stock):
    """Check codes in files of the old layout once their storages are read.

    Such files make the tensors first.
    """

    @functools.wraps(stock)
    def load(*args, **kwargs):
        around, unread.tensors = getattr(unread, "tensors", None), []
        try:
            loaded, tensors = stock(*args, **kwargs), unread.tensors
        finally:
            unread.tensors = around
        for codes, dtype in tensors:
            check_codes(codes, dtype)
        return loaded

    return load


def _send_tensor(tensor: torch.Tensor):
    if not _C.is_format_tensor(tensor):
        return reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad; detach it first"
        )
    codes = tensor.detach().view(bits_dtype(tensor.dtype))
    return _receive_tensor, (
        type(tensor),
        codes,
        written_name(_C.name_of(tensor.dtype)),
        tensor.requires_grad,
    )


def _receive_tensor(cls: type, codes: torch.Tensor, name: str, requires_grad: bool) -> torch.Tensor:
    tensor = tensor_of_codes(codes, name)
    if issubclass(cls, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def send(register) -> None:
    """Send tensors to other processes as codes, as PyTorch sends integers, and a name."""
    register(torch.Tensor, _send_tensor)
    register(torch.nn.Parameter, _send_tensor)


HOOKS = [
    Hook("torch.Tensor._reduce_ex_internal", Kind.REPLACED, reduce_tensor),
    Hook("torch.storage.TypedStorage._pickle_storage_type", Kind.ASKED, refuse_storage),
    Hook("torch.serialization._legacy_load", Kind.REPLACED, check_after_reading),
    Hook("multiprocessing.reduction.ForkingPickler.register", Kind.TOLD, send),
    Hook("torch.serialization.add_safe_globals", Kind.TOLD, pickling.allow),
]
