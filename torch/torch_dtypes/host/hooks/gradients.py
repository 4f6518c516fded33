"""Hooks of gradients in Python: each has the dtype of its tensor.

The engine tells dtypes apart only by the storage dtype.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading

import torch
from torch.autograd.function import BackwardCFunction

from ... import _C
from ...policies.autocast import find_autocast_devices, out_of_autocast
from ..table import Hook, Kind
from .promotion import fractions_of_integers
from .trampolines import When


def _of_dtype(gradient, dtype):
    """Cast a gradient whose dtype differs, if one of the two is a format dtype.

    The engine casts between stock dtypes.
    """
    return (
        _C.gradient_of_dtype(gradient, dtype)
        if dtype is not None and isinstance(gradient, torch.Tensor)
        else gradient
    )


class _Engine(threading.local):
    # Types of devices on which an autocast with a format dtype surrounds backward(). Backward
    # functions of users run in it.
    in_autocast = ()


_engine = _Engine()


def _gradient_dtype(t):
    """Return the dtype of a gradient for `t`, or None for an edge, whose dtype is unknown."""
    if not isinstance(t, torch.Tensor):
        return None
    return t.grad_dtype if t.is_leaf else t.dtype


def _cast_captured(gradients, create_graph=False, inputs=(), *_):
    """Cast each gradient that autograd.grad() returns to its input's dtype.

    The engine passes on a C++ function's result in another dtype. (EngineGradients.cpp does the
    same for the leaves of backward().)
    """
    if not gradients:  # of backward()
        return gradients
    dtypes = [_gradient_dtype(t) for t in inputs]
    with torch.set_grad_enabled(create_graph):  # as the engine runs
        return tuple(map(_of_dtype, gradients, dtypes))


def run_backward(stock, self, outputs, gradients, *args, **kwargs):
    """Cast the gradients given to backward() and autograd.grad() to the outputs' dtypes.

    Within an autocast with a format dtype, formulas run in the dtypes of their forward pass.
    Autocast would cast those of operators that ran in float32.
    """
    cast = tuple(
        _of_dtype(g, o.dtype) if isinstance(o, torch.Tensor) else g
        for o, g in zip(outputs, gradients, strict=True)
    )
    kinds = find_autocast_devices()
    if not kinds:
        with fractions_of_integers():
            return _cast_captured(stock(outputs, cast, *args, **kwargs), *args[1:])
    before, _engine.in_autocast = _engine.in_autocast, kinds
    try:
        with out_of_autocast(kinds), fractions_of_integers():
            return _cast_captured(stock(outputs, cast, *args, **kwargs), *args[1:])
    finally:
        _engine.in_autocast = before


def make_dual(stock, tensor, tangent, level):
    """Cast a tangent to its tensor's dtype, where PyTorch casts it to the storage dtype.

    torch.func.jvp calls this function too.
    """
    return stock(tensor, _of_dtype(tangent, tensor.dtype), level)


# The node of a user's torch.autograd.Function is a Python object. It remembers dtypes that the
# engine does not know. Gradients leave the node in the operands' dtypes and reach it in the
# results'. (For a result without a gradient, zeros reach it.)


def _dtypes(values) -> list:
    return [v.dtype if isinstance(v, torch.Tensor) else None for v in values]


def note_dtypes(result, *args, **_kwargs):
    """Give the node of an autograd.Function the dtypes of its operands and results."""
    outputs = result if isinstance(result, tuple) else (result,)
    node = next(
        (t.grad_fn for t in outputs if isinstance(t, torch.Tensor) and t.grad_fn is not None), None
    )
    if isinstance(node, BackwardCFunction):
        node._dtypes_of_gradients = _dtypes(args), _dtypes(outputs)
    return result


def _operand_dtypes(node) -> list:
    """Return the operands' dtypes that the engine knows, which are right for stock dtypes."""
    edges = (edge for edge in node.next_functions if edge[0] is not None)
    return [next(edges) if needed else None for needed in node.needs_input_grad]


def cast_gradients(stock):
    """Pass gradients to a Function's backward in the results' dtypes, and on in the operands'."""

    @functools.wraps(stock)
    def backward(self, *gradients):
        operands, results = getattr(self, "_dtypes_of_gradients", (None, ()))
        if results:
            # The user may empty the list.
            boxed = len(gradients) == 1 and isinstance(gradients[0], list)
            own = [
                _of_dtype(g, d)
                for g, d in zip(gradients[0] if boxed else gradients, results, strict=True)
            ]
            if boxed:
                gradients[0][:] = own
            else:
                gradients = own
        with contextlib.ExitStack() as blocks:
            for kind in _engine.in_autocast:
                blocks.enter_context(torch.autocast(kind))
            returned = stock(self, *gradients)
        several = returned if isinstance(returned, tuple) else (returned,)
        if operands is None:
            if not any(map(_C.is_format_tensor, several)):
                return returned
            operands = [
                edge and edge[0]._input_metadata[edge[1]].dtype for edge in _operand_dtypes(self)
            ]
        cast = tuple(
            itertools.starmap(_of_dtype, itertools.zip_longest(several, operands[: len(several)]))
        )
        return cast if isinstance(returned, tuple) else cast[0]

    return backward


_NODE = "torch.autograd.function.BackwardCFunction"  # the engine calls its two methods

_RUN = (
    When.OWN_NESTED | When.OWN_GIVEN | When.OWN_AUTOCAST | When.DEFAULT_DTYPE | When.RUNS_BACKWARD
)

HOOKS = [
    Hook("torch._C._ImperativeEngine.run_backward", Kind.BUILTIN, run_backward, _RUN),
    Hook("torch._C._FunctionBase.apply", Kind.BUILTIN, note_dtypes, When.OWN_RESULT),
    Hook(
        "torch._C._VariableFunctions._make_dual",
        Kind.BUILTIN,
        make_dual,
        When.OWN_SELF | When.OWN_ARGUMENT,
    ),
    Hook(f"{_NODE}.apply", Kind.REPLACED, cast_gradients),
    Hook(f"{_NODE}.apply_boxed", Kind.REPLACED, cast_gradients, first="2.13"),
]
