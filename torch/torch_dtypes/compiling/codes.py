"""Codes: what stands for a tensor of ours while a graph is made, a fake tensor of integers with the dtype beside it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .. import _C
from .._codes import bits_dtype
from . import operators
from .known_operators import CONSTANT, MADE, OF_LAYOUTS, WITHOUT_GRADIENTS, values_decide
from .levels import has_duals

# What C++ code takes for their dtype: floating, as autograd wants it, and so rare that nobody means it.
STAND_IN = torch.float8_e8m0fnu


class Codes(torch.Tensor):
    """A tensor of ours in a graph. Operators on it are recorded as operators on its codes."""

    _codes: torch.Tensor
    _dtype: torch.dtype

    @staticmethod
    def __new__(cls, codes: torch.Tensor, dtype: torch.dtype, requires_grad: bool = False) -> Codes:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            codes.shape,
            codes.stride(),
            codes.storage_offset(),
            dtype=STAND_IN,
            device=codes.device,
            requires_grad=requires_grad,
            storage_size=codes.untyped_storage().nbytes(),  # the stand-in's are of one byte an element
        )
        made._codes, made._dtype = codes, dtype
        return made

    dtype = property(lambda self: self._dtype)
    itemsize = property(lambda self: self._codes.itemsize)
    nbytes = property(lambda self: self._codes.numel() * self._codes.itemsize)

    def __tensor_flatten__(self) -> tuple[list[str], torch.dtype]:
        return ["_codes"], self._dtype

    @staticmethod
    def __tensor_unflatten__(inner: dict, dtype: torch.dtype, size, stride) -> Codes:
        return Codes(inner["_codes"], dtype)

    def __repr__(self) -> str:
        return f"Codes({self._codes!r}, dtype={self._dtype})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _dispatch(func, args, kwargs or {})


def _inner(value: object) -> object:
    return pytree.tree_map_only(Codes, lambda t: t._codes, value)


def _unsupported(what: str) -> UnsupportedFakeTensorException:
    """The error with which Dynamo ends a graph before what cannot be in it."""
    return UnsupportedFakeTensorException(what)


def _dispatch(func, args: tuple, kwargs: dict):
    if func.namespace != "aten":
        raise _unsupported(f"expected PyTorch's own operators in a graph of number formats, but got {func}")
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):  # in inference mode
        return func.decompose(*args, **kwargs)
    if func is torch.ops.aten.view.dtype:
        raise _unsupported("expected no view in another dtype in a graph of number formats, but got one")
    if func in OF_LAYOUTS:
        return func(*_inner(args), **_inner(kwargs))
    if func is torch.ops.aten._to_copy.default and _is_for_a_zero(args, kwargs):
        return torch.empty_like(args[0]._codes, dtype=STAND_IN, device="meta")
    if func.is_view:
        dtype = next(v for v in (*args, *kwargs.values()) if isinstance(v, Codes)).dtype
        found = pytree.tree_map_only(torch.Tensor, lambda t: Codes(t, dtype), func(*_inner(args), **_inner(kwargs)))
        return return_and_correct_aliasing(func, args, kwargs, found)
    if _whole.graph and values_decide(func, args):
        return _of_unknown_size(func, args, kwargs)
    # Stock code passes its operand's dtype on, and makes tensors of it; a dtype that a user wrote is a stock one.
    values = operators.bound(func, args, kwargs)
    tensors = operators.tensors_in(values)
    own = next(t.dtype for t in tensors if isinstance(t, Codes))
    optional = [str(a.type).startswith("Optional") for a in func._schema.arguments]
    values = [(None if o else own) if v is STAND_IN else v for v, o in zip(values, optional, strict=True)]
    formats = ",".join(operators.format_name(own if t.dtype is STAND_IN else t.dtype) for t in tensors)
    return _results(func, values, formats, operators.device_named(func, values) or operators.device_of(tensors))


class _Whole(threading.local):
    graph = False  # whether what is traced is to be one graph


_whole = _Whole()


def is_to_be_whole(tx) -> bool:
    """Whether what Dynamo traces is to be one graph, or a region that is compiled once, in which none can end."""
    return tx.output.root_tx.one_graph or tx.output.current_tracer.source_target is invoke_subgraph


@contextlib.contextmanager
def in_a_whole_graph(is_whole: bool) -> Iterator[None]:
    """What an operator gives whose values decide its size, or a number, is part of a graph that is to be whole; else a graph ends before it."""
    before, _whole.graph = _whole.graph, is_whole
    try:
        yield
    finally:
        _whole.graph = before


def _of_unknown_size(func, args: tuple, kwargs: dict):
    """Fakes of an operator's results by stock's rules, which make symbols of what values decide."""
    dtypes = {t.dtype for t in operators.tensors_in([args, kwargs]) if isinstance(t, Codes)}
    if len(dtypes) != 1:
        raise _unsupported(f"expected operands of one dtype where values decide what an operator gives, but got {func} of {dtypes}")
    (dtype,) = dtypes
    args, kwargs = pytree.tree_map_only(Codes, operators.in_stock, (args, kwargs))
    found = func(*args, **kwargs)

    def seen(t: torch.Tensor) -> torch.Tensor:
        return Codes(torch.empty_like(t, dtype=bits_dtype(dtype)), dtype) if t.dtype is torch.float64 else t

    return pytree.tree_map_only(torch.Tensor, seen, found)


def _is_for_a_zero(args: tuple, kwargs: dict) -> bool:
    """Whether forward mode asks for the shape of a product with a tangent that is zero throughout: of tensors on meta, by stock's rules."""
    device = kwargs.get("device")
    return device is not None and device.type == "meta" and kwargs.get("dtype") in (None, STAND_IN) and has_duals()


def _results(func, values: list, formats: str, device: torch.device):
    written = {frozenset(a.alias_info.before_set): v for a, v in zip(func._schema.arguments, values, strict=True) if operators.is_written(a)}
    fresh = iter(())
    if not all(map(operators.is_written, func._schema.returns)):
        fresh = iter(_sized(func, values, formats + operators.EXACT, device))
    returned = []
    for r in func._schema.returns:
        if operators.is_written(r):
            returned.append(written[frozenset(r.alias_info.before_set)])
        elif "List" in str(r.type):
            returned.append(list(fresh))
        else:  # of which C++ wants one each
            returned.append(torch.empty(0, device=device) if (t := next(fresh)) is None else t)
    return None if not returned else returned[0] if len(returned) == 1 else tuple(returned)


def _sized(func, values: list, formats: str, device: torch.device) -> list[torch.Tensor | None]:
    """Fakes of an operator's results, then of what it has written."""
    try:
        found = operators.sized(func, values, formats, below_autograd=False)
    except NotImplementedError as error:
        raise _unsupported(f"expected an operator whose result's shape follows from its operands', but got {func}: {error}") from error
    return [None if t is None else _like(t, device, like) for t, like in found]


def _like(result: torch.Tensor, device: torch.device, sized: torch.Tensor | None = None) -> torch.Tensor:
    """A fake of a tensor without memory, with its sizes and strides or another's."""
    own = _C.is_format_tensor(result)
    sized = result if sized is None else sized
    made = torch.empty_strided(sized.shape, sized.stride(), dtype=_C.alias_codes(result).dtype if own else result.dtype, device=device)
    return Codes(made, result.dtype) if own else made


def fake_function(node: torch.fx.Node, tx, device: torch.device | None = None) -> torch.Tensor | None:
    """What Dynamo knows of a function or method whose stock formula has no place for our dtypes; None where that is no new tensor, or an error.
    ``device``: the result's, where its arguments do not name it.
    """
    if node.op not in ("call_function", "call_method") or not all("example_value" in n.meta for n in node.all_input_nodes):
        return None  # operators that take graphs have none
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["example_value"])
    function = node.target if node.op == "call_function" else getattr(torch.Tensor, node.target, None)
    if function is None:
        return None
    with tx.fake_mode, torch.random.fork_rng(devices=[]):
        return without_values(function, args, kwargs, device)


def resizes_out(node: torch.fx.Node, tx) -> bool:
    """Whether a function's results have other sizes than the tensors that it is to write them to, which keep theirs here."""
    out = node.kwargs.get("out")
    known = [n.meta.get("example_value") for n in node.all_input_nodes]
    if out is None or node.op != "call_function" or not any(isinstance(v, Codes) for v in known):
        return False
    args, kwargs, outs = torch.fx.map_arg((node.args, node.kwargs, pytree.tree_leaves(out)), lambda n: n.meta["example_value"])
    kwargs = {name: v for name, v in kwargs.items() if name != "out"}
    with tx.fake_mode, torch.no_grad(), torch.random.fork_rng(devices=[]), in_a_whole_graph(True):
        try:
            results = pytree.tree_leaves(node.target(*args, **kwargs))
        except (NotImplementedError, RuntimeError, TypeError, ValueError):  # which it says again with out=
            return False
        if any(map(operators.is_unknown, results)):
            return True
        return any(r.shape != t.shape for r, t in zip(results, outs, strict=False))


def without_values(function: Callable, args: tuple, kwargs: dict, device: torch.device | None = None) -> torch.Tensor | None:
    """The fake result of a function whose stock formula has no place for our dtypes (it makes tensors of its operand's dtype, or of one that it is
    given, or has a list of dtypes): what eager code says of tensors without values. None where that is no new tensor, or an error.
    """
    if kwargs.get("device") is not None:
        device = torch.device(kwargs["device"])
        kwargs = {**kwargs, "device": device}
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = operators.tensors_in(leaves)
    try:
        result, sized = operators.run_without_values(function, leaves, spec), None
        if isinstance(result, torch.Tensor) and any(map(operators.varies, leaves)):
            args, kwargs = pytree.tree_unflatten([_in_stock(v) for v in leaves], spec)
            sized = function(*args, **kwargs)
            if not operators.agree(result, sized):
                result, sized = operators.run_without_values(function, leaves, spec, settled=operators.constant), None
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return None
    if not isinstance(result, torch.Tensor):
        return None
    slopes = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    device = device or (operators.device_of(tensors) if tensors else result.device)
    return _like(result, device, sized).requires_grad_(slopes and (_C.is_format_tensor(result) or result.dtype.is_floating_point))


def _in_stock(value: object) -> object:
    """A tensor or dtype of ours as one of a stock dtype, of which results have the same sizes."""
    if isinstance(value, torch.dtype):
        return value if _C.format_of(value) is None else torch.float64
    return operators.in_stock(value) if isinstance(value, Codes) else value


def fake_named(node: torch.fx.Node, tx) -> torch.Tensor | None:
    """What Dynamo knows of a node that names a dtype of ours: a cast, or what makes a tensor. None where a graph does not have it.

    Only a whole graph begins with it, and a region that is compiled once, in which none can end: else the stock code before is better off in a graph
    of its own, which a compiler fuses.
    """
    if not is_to_be_whole(tx) and not any(isinstance(n.meta.get("example_value"), Codes) for n in tx.output.graph.nodes):
        return None
    given = [*node.args[1:], *node.kwargs.values()]
    if node.op == "call_method" and node.target == "to" and not any(isinstance(v, torch.fx.Node) for v in given):
        with tx.fake_mode:
            return cast(node.args[0].meta.get("example_value"), node.args[1:], node.kwargs)
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", None)
    if name not in ("type", "canonical_mask", *MADE) or node.kwargs.get("requires_grad") or node.kwargs.get("out") is not None:
        return None
    if name in CONSTANT and operators.in_a_random_block():
        return None
    made = fake_function(node, tx)
    return made.detach() if made is not None and name in WITHOUT_GRADIENTS else made


def fake_cast_to_another(node: torch.fx.Node, tx) -> torch.Tensor | None:
    """What Dynamo knows of ``x.type_as(y)`` and ``x.to(y)``, which are of y's dtype: stock code compares dtypes that are all the same here."""
    if node.op != "call_method" or node.target not in ("type_as", "to"):
        return None
    known = [v.meta.get("example_value") if isinstance(v, torch.fx.Node) else None for v in (*node.args, node.kwargs.get("other"))]
    tensors = [v for v in known if isinstance(v, torch.Tensor)]
    return fake_function(node, tx, tensors[1].device) if len(tensors) == 2 and any(isinstance(v, Codes) for v in tensors) else None


def fake_attention(node: torch.fx.Node, tx) -> torch.Tensor | None:
    """What Dynamo knows of attention with a stock mask of numbers, which stock's formula adds to scores of the stand-in's dtype."""
    if node.target is not torch.nn.functional.scaled_dot_product_attention:
        return None
    known = [n.meta.get("example_value") for n in node.all_input_nodes]
    has_stock = any(isinstance(v, torch.Tensor) and not isinstance(v, Codes) and v.dtype.is_floating_point for v in known)
    return fake_function(node, tx) if has_stock and any(isinstance(v, Codes) for v in known) else None


def cast(x: torch.Tensor, args: tuple, kwargs: dict) -> torch.Tensor:
    """The fake result of ``x.to(...)`` where the dtype is ours."""
    args, kwargs, device = _without_device(args, kwargs)
    result, sized = operators.on_meta(lambda t: t.to(*args, **kwargs), x, settled=operators.at_hint), None
    if operators.varies(x):
        sized = torch.empty_like(x._codes if isinstance(x, Codes) else x)
        if not operators.agree(result, sized):
            result, sized = operators.on_meta(lambda t: t.to(*args, **kwargs), x), None
    return _like(result, device or x.device, sized).requires_grad_(x.requires_grad and torch.is_grad_enabled())


def _without_device(args: tuple, kwargs: dict) -> tuple[tuple, dict, torch.device | None]:
    """The arguments of ``x.to(...)`` without the device, and that."""
    if args and isinstance(args[0], (torch.device, str, int)):
        device, *args = args
    else:
        device = kwargs.get("device")
    kwargs = {name: v for name, v in kwargs.items() if name != "device"}
    return tuple(args), kwargs, None if device is None else torch.device(device)
