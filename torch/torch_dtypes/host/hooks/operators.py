"""Hooks of operators called by hand, where a stock dtype= must keep its meaning.

An example is torch.ops.aten.sum(x, dtype=torch.float32).
"""

from ... import _C
from ..table import Hook, Kind

_torch_dtypes_call_operator = _C.call_operator  # the exchanged code calls it


def _overload_up_to_2_13(self, /, *args, **kwargs):
    """Keep the meaning of a stock dtype= in torch.ops.aten.sum.default(x, dtype=torch.float64).

    x is a format tensor (OperatorCall.cpp).
    """
    return _torch_dtypes_call_operator(self, self._op, args, kwargs)


def _overload(self, /, *args, **kwargs):
    """Keep the meaning of a stock dtype= in torch.ops.aten.sum.default(x, dtype=torch.float64).

    x is a format tensor (OperatorCall.cpp).
    """
    if self._pyobj_dispatcher is not None and torch._C._peek_should_skip_torch_function():  # noqa: F821
        return _torch_dtypes_call_operator(self, self._cpp_dispatch_handle, args, kwargs)
    return _torch_dtypes_call_operator(self, self._op, args, kwargs)


def _packet(self, /, *args, **kwargs):
    """Keep the meaning of a stock dtype= in torch.ops.aten.sum(x, dtype=...)."""
    if self._has_torchbind_op_overload and _must_dispatch_in_python(args, kwargs):  # noqa: F821
        return _call_overload_packet_from_python(self, *args, **kwargs)  # noqa: F821
    return _torch_dtypes_call_operator(self, self._op, args, kwargs)


_OVERLOAD = "torch._ops.OpOverload.__call__"

HOOKS = [
    Hook(_OVERLOAD, Kind.CODE, _overload_up_to_2_13, last="2.13"),
    Hook(_OVERLOAD, Kind.CODE, _overload, first="2.14"),
    Hook("torch._ops.OpOverloadPacket.__call__", Kind.CODE, _packet),
]
