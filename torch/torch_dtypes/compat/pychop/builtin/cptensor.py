"""A torch tensor whose operations round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .cpfloat import describe, expect_one_chopper

__all__ = ["CPTensor"]


class CPTensor(torch.Tensor):
    """A tensor rounded by ``chopper``. PyTorch's functions round the floating-point tensors that
    they return, and those that they write. The gradient passes straight through.

    Raises:
        ValueError: no chopper, or two in an operation.
        RuntimeError: a function in inference mode; ``torch.no_grad`` has no such limit.
    """

    chopper: Callable

    def __new__(cls, input_tensor: Any, chopper: Callable | None = None) -> CPTensor:
        if chopper is None:
            raise ValueError("expected a chopper, but got None; give one, Chop(5, 10)")
        with torch._C.DisableTorchFunctionSubclass():
            rounded = chopper(torch.as_tensor(_unwrap(input_tensor))).as_subclass(cls)
        rounded.chopper = chopper
        return rounded

    def __init__(self, input_tensor: Any, chopper: Callable | None = None) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        arguments = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        own = [x for x in arguments if isinstance(x, CPTensor)]
        expect_one_chopper(*(x.chopper for x in own))
        with torch._C.DisableTorchFunctionSubclass():
            versions = [x._version for x in arguments]
            result = func(*args, **(kwargs or {}))
            written = [x for x, v in zip(arguments, versions, strict=True) if x._version != v]
            for x in filter(_has_fractions, written):
                with torch.no_grad():
                    x.copy_(own[0].chopper(x))
            if getattr(func, "__name__", "") == "__get__" and not _shares(result, own):
                return result  # .grad
            return tree_map(lambda x: _wrap_result(x, own, written), result)

    def to_regular(self) -> torch.Tensor:
        """Return a plain tensor of the same memory."""
        return _unwrap(self)

    def astype_precision(self, chopper: Callable) -> CPTensor:
        """Round to another precision."""
        return CPTensor(self, chopper)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return CPTensor, (self.to_regular(), self.chopper)

    def __deepcopy__(self, memo: dict) -> CPTensor:
        copied = CPTensor(self.to_regular().detach().clone(), self.chopper)
        return copied.requires_grad_(self.requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"CPTensor({self.to_regular()!r}, {describe(self.chopper)})"


def _has_fractions(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def _shares(x: Any, own: list[CPTensor]) -> bool:
    """Return whether x is a view of a rounded tensor."""
    if not _has_fractions(x):
        return False
    return any(x.untyped_storage()._cdata == y.untyped_storage()._cdata for y in own)


def _wrap_result(x: Any, own: list[CPTensor], written: list[torch.Tensor]) -> Any:
    if not _has_fractions(x) or any(x is y for y in (*own, *written)):
        return x
    wrapped = (
        x.as_subclass(CPTensor) if _shares(x, own) else own[0].chopper(x).as_subclass(CPTensor)
    )
    wrapped.chopper = own[0].chopper
    return wrapped


def _unwrap(x: Any) -> Any:
    if not isinstance(x, CPTensor):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor)
