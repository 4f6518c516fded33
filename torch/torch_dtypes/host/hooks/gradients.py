"""Gradients on their way through Python: each comes in the dtype of what it belongs to, where the
engine tells dtypes by the container."""

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
    """The gradient, cast to a dtype if it has another and one of the two is ours; the engine casts
    between stock ones."""
    return (
        _C.gradient_of_dtype(gradient, dtype)
        if dtype is not None and isinstance(gradient, torch.Tensor)
        else gradient
    )


class _Engine(threading.local):
    in_autocast = ()  # of ours, on these types of devices: it holds for what users have written


_engine = _Engine()


def _gradient_dtype(t):
    """The dtype that a gradient for `t` has; None for an edge, which nobody knows."""
    if not isinstance(t, torch.Tensor):
        return None
    return t.grad_dtype if t.is_leaf else t.dtype


def _captured(found, create_graph=False, inputs=(), *_):
    """What autograd.grad() found for its inputs, each in its input's dtype: the engine hands on
    what a C++ function returned in another one. (For the leaves of backward(),
    EngineGradients.cpp.)"""
    if not found:  # of backward()
        return found
    asked = [_gradient_dtype(t) for t in inputs]
    with torch.set_grad_enabled(create_graph):  # as the engine runs
        return tuple(map(_of_dtype, found, asked))


def run_backward(stock, self, outputs, gradients, *args, **kwargs):
    """The engine, behind backward() and autograd.grad(): a given gradient has the output's dtype.
    Within an autocast with a dtype of ours, formulas run in the dtypes of their forward pass, as
    behind it: autocast would cast those of what ran in float32."""
    given = tuple(
        _of_dtype(g, o.dtype) if isinstance(o, torch.Tensor) else g
        for o, g in zip(outputs, gradients, strict=True)
    )
    kinds = find_autocast_devices()
    if not kinds:
        with fractions_of_integers():
            return _captured(stock(outputs, given, *args, **kwargs), *args[1:])
    before, _engine.in_autocast = _engine.in_autocast, kinds
    try:
        with out_of_autocast(kinds), fractions_of_integers():
            return _captured(stock(outputs, given, *args, **kwargs), *args[1:])
    finally:
        _engine.in_autocast = before


def make_dual(stock, tensor, tangent, level):
    """torch.autograd.forward_ad.make_dual, behind torch.func.jvp too: a tangent has its tensor's
    dtype; stock casts by the container."""
    return stock(tensor, _of_dtype(tangent, tensor.dtype), level)


# A user's torch.autograd.Function. Its node is an object of Python, which remembers what the engine
# does not know: the dtypes of the operands, in which gradients leave it, and those of the results,
# in which they come. (For a result without a gradient, zeros come.)


def _dtypes(values) -> list:
    return [v.dtype if isinstance(v, torch.Tensor) else None for v in values]


def note_dtypes(result, *args, **_kwargs):
    """After a call of an autograd.Function that has a tensor of ours among its operands or results:
    its node learns their dtypes."""
    outputs = result if isinstance(result, tuple) else (result,)
    node = next(
        (t.grad_fn for t in outputs if isinstance(t, torch.Tensor) and t.grad_fn is not None), None
    )
    if isinstance(node, BackwardCFunction):
        node._dtypes_of_gradients = _dtypes(args), _dtypes(outputs)
    return result


def _operand_dtypes(node) -> list:
    """Those that the engine knows, which are right where no operand is ours."""
    edges = (edge for edge in node.next_functions if edge[0] is not None)
    return [next(edges) if needed else None for needed in node.needs_input_grad]


def in_their_dtypes(stock):
    """A Function's backward: gradients come to it in the results' dtypes and leave it in the
    operands'."""

    @functools.wraps(stock)
    def backward(self, *gradients):
        operands, results = getattr(self, "_dtypes_of_gradients", (None, ()))
        if results:
            # The list is the user's to empty.
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
            found = stock(self, *gradients)
        several = found if isinstance(found, tuple) else (found,)
        if operands is None:
            if not any(map(_C.is_format_tensor, several)):
                return found
            operands = [
                edge and edge[0]._input_metadata[edge[1]].dtype for edge in _operand_dtypes(self)
            ]
        cast = tuple(
            itertools.starmap(_of_dtype, itertools.zip_longest(several, operands[: len(several)]))
        )
        return cast if isinstance(found, tuple) else cast[0]

    return backward


_NODE = "torch.autograd.function.BackwardCFunction"  # whose two methods the engine calls

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
    Hook(f"{_NODE}.apply", Kind.REPLACED, in_their_dtypes),
    Hook(f"{_NODE}.apply_boxed", Kind.REPLACED, in_their_dtypes, first="2.13"),
]
