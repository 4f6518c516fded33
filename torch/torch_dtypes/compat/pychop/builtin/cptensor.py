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
    they return, and those that they write in place. The gradient passes straight through.

    Raises:
        ValueError: no chopper, or two in an operation.
    """

    chopper: Callable

    def __new__(cls, input_tensor: Any, chopper: Callable | None = None) -> CPTensor:
        if chopper is None:
            raise ValueError("expected a chopper, but got None; give one, Chop(5, 10)")
        tensor = torch.as_tensor(_unwrap(input_tensor))
        return _wrap(tensor, chopper)

    def __init__(self, input_tensor: Any, chopper: Callable | None = None) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        choppers = [x.chopper for x in tree_leaves((args, kwargs)) if isinstance(x, CPTensor)]
        expect_one_chopper(*choppers)
        with torch._C.DisableTorchFunctionSubclass():
            plain = tree_map(_unwrap, (args, kwargs))
            result = func(*plain[0], **plain[1])
            if _writes(func) and isinstance(args[0], CPTensor):
                with torch.no_grad():
                    plain[0][0].copy_(choppers[0](plain[0][0]))
                return args[0] if isinstance(result, torch.Tensor) else result
            return tree_map(lambda x: _wrap(x, choppers[0]), result)

    def to_regular(self) -> torch.Tensor:
        """Return a plain tensor of the same memory."""
        return _unwrap(self)

    def astype_precision(self, chopper: Callable) -> CPTensor:
        """Round to another precision."""
        return CPTensor(self, chopper)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return CPTensor, (self.to_regular(), self.chopper)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"CPTensor({self.to_regular()!r}, {describe(self.chopper)})"


def _writes(func: Any) -> bool:
    """Return whether a function writes its first argument."""
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _unwrap(x: Any) -> Any:
    return x.as_subclass(torch.Tensor) if isinstance(x, CPTensor) else x


def _wrap(x: Any, chopper: Callable) -> Any:
    if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        rounded = chopper(x).as_subclass(CPTensor)
    rounded.chopper = chopper
    return rounded
