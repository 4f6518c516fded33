"""torch.distributed.rpc: Python calls take tensors of ours, as arguments and as results, by their codes and their dtypes' names; calls that C++ sends
refuse them, and tensors of ours under distributed autograd are refused: their gradients would not come back."""

from __future__ import annotations

import functools

import torch

from .. import _C
from .._codes import bits_dtype
from .._serialization import check_codes, tensor_of_codes
from ..formats import is_format_dtype
from ..tables.making import written_name
from ._exchange import exchange_code


def _tensor_reducer(self, tensor):
    return _torch_dtypes_reduce(self, tensor)  # noqa: F821


def reduce(stock, self, tensor):
    """Stock puts a tensor aside, for C++ to send as its container; of ours it does so with the codes."""
    if not _C.is_format_tensor(tensor):
        return stock(self, tensor)
    if tensor.requires_grad and _records():
        raise NotImplementedError(
            f"torch.distributed.rpc: expected tensors of stock dtypes where distributed autograd records, but got one of {tensor.dtype} that "
            "requires a gradient. Send x.float(), which the callee rounds by .to(), or x.detach()."
        )
    codes = tensor.detach().view(bits_dtype(tensor.dtype))
    return received, (codes, written_name(_C.name_of(tensor.dtype)), tensor.requires_grad)


def received(codes: torch.Tensor, name: str, requires_grad: bool) -> torch.Tensor:
    """The tensor on the other side. Codes for a GPU are not looked at: they come on streams that the call waits for, which has not begun."""
    tensor = tensor_of_codes(codes, name)
    if codes.device.type == "cpu":
        check_codes(codes, tensor.dtype)
    return tensor.requires_grad_(requires_grad)


def _records() -> bool:
    """Whether the thread is in a torch.distributed.autograd.context()."""
    try:
        torch._C._distributed_autograd._current_context()
    except RuntimeError:
        return False
    return True


def _refusing(stock, what: str):
    """C++ takes the arguments apart, and sends tensors and dtypes as the container's."""

    @functools.wraps(stock)
    def invoke(*args, **kwargs):
        from torch.utils import _pytree as pytree

        for x in pytree.tree_leaves((args, kwargs)):
            dtype = x.dtype if isinstance(x, torch.Tensor) else x
            if isinstance(dtype, torch.dtype) and is_format_dtype(dtype):
                raise TypeError(
                    f"torch.distributed.rpc: expected arguments of stock dtypes for {what}, but got {dtype}. Wrap the call in a Python function "
                    "that both workers have, and call that one."
                )
        return stock(*args, **kwargs)

    return invoke


def install(module) -> None:
    """module: torch.distributed.rpc.api."""
    pickler = type(module._internal_rpc_pickler)
    exchange_code(pickler._tensor_reducer, _tensor_reducer, "_torch_dtypes_reduce", reduce)
    for name in ("_invoke_rpc_builtin", "_invoke_remote_builtin"):
        setattr(module, name, _refusing(getattr(module, name), "a builtin operator"))
    for name in ("_invoke_rpc_torchscript", "_invoke_remote_torchscript"):
        setattr(module, name, _refusing(getattr(module, name), "a TorchScript function"))
