"""Distributed tensors (DTensor) whose local tensors have a number format.

PyTorch makes a DTensor, and runs operators on one, in C++, by the container of what it wraps. So those of our dtypes are of a subclass: its body
is a tensor of ours without memory, so that autograd, promotion and ``x.dtype`` are ours; operators come to ``__torch_dispatch__`` below, which
asks PyTorch's sharding rules and runs them on the local tensors.

What a rank computes of its own part is rounded as ever. Where the rules would leave a sum to be added up over the ranks (``Partial``), the parts
would be rounded twice: they are computed and added up in float32 (float64 for wide formats) and rounded once; under an accumulation policy that
no stock kernel obeys, the operands are brought together, and each rank computes what one process would."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OutputSharding
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.utils import _pytree as pytree

from .. import _C
from .._codes import compute_type
from .._names import DRAWING_MODES
from ..accumulation import accumulation_of, modes_of
from ..distributed import same_random
from ..formats import is_format_dtype

_aten = torch.ops.aten
# Of these a sum that is not added up yet passes as it is; what they make of it has the same codes.
_MOVES = {_aten.detach.default, _aten.alias.default, _aten.clone.default, _aten.view.default, _aten._unsafe_view.default}
_CASTS = {_aten.to.dtype, _aten.to.device, _aten.to.dtype_layout, _aten.to.other, _aten.type_as.default}
_SUMS = ("machine", "float32", "float64")
# Means of all elements and their gradients, which PyTorch's sharding rules make of each rank's own elements: gradients are divided by the number of
# those, and parts of different sizes count alike. (Stock DTensors have that.)
_LOSSES = (_aten.mse_loss, _aten.smooth_l1_loss, _aten.huber_loss, _aten.soft_margin_loss, _aten.binary_cross_entropy)
_MEANS = {*(loss.default for loss in _LOSSES), _aten.binary_cross_entropy_with_logits.default}
_GRADIENTS_OF_MEANS = {getattr(_aten, f"{loss.__name__}_backward").default for loss in _LOSSES}
_MEAN = 1  # at::Reduction
_REDUCTIONS = {
    _aten.sum.dim_IntList, _aten.nansum.default, _aten.mean.dim, _aten.amax.default, _aten.amin.default, _aten.logsumexp.default,
    _aten.var.correction, _aten.std.correction, _aten.var_mean.correction, _aten.std_mean.correction, _aten.linalg_vector_norm.default,
}  # fmt: skip


class FormatDTensor(DTensor):
    """A DTensor of local tensors of ours."""

    __slots__ = ()
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _dispatch(func, args, kwargs or {})

    def share_memory_(self):
        self._local_tensor.share_memory_()
        return self

    def __reduce_ex__(self, protocol):
        return _rebuild, (self._local_tensor, self._spec, self.requires_grad)


FormatDTensor.__slots__ = DTensor.__slots__  # what torch.distributed.checkpoint copies of a tensor when it stages it: those that the class names


def _rebuild(local: torch.Tensor, spec: DTensorSpec, requires_grad: bool) -> DTensor:
    return DTensor(local.detach(), spec, requires_grad=requires_grad)


def new(cls, local_tensor, spec, requires_grad) -> FormatDTensor:
    """DTensor(local_tensor, spec, requires_grad=...) of a local tensor of ours."""
    if cls not in (DTensor, FormatDTensor):
        raise NotImplementedError(f"{cls.__name__}: expected a local tensor of a stock dtype, but got {local_tensor.dtype}. Use DTensor itself.")
    meta = spec.tensor_meta
    body = _C.without_memory(local_tensor.dtype, meta.shape, meta.stride, local_tensor.device)
    made = torch.Tensor._make_subclass(FormatDTensor, body, requires_grad)
    made._spec, made._local_tensor = spec, local_tensor
    return made


def _with_dtype(spec: DTensorSpec, dtype: torch.dtype) -> DTensorSpec:
    meta = spec.tensor_meta
    return spec.shallow_copy_with_tensor_meta(TensorMeta(meta.shape, meta.stride, dtype))


def _is_ours(x) -> bool:
    return isinstance(x, DTensor) and _C.is_format_tensor(x)


def _is(kind, x) -> bool:
    return isinstance(x, kind)


def _map(function, values):
    return pytree.tree_map_only(DTensor, function, values)


def _placed(x: DTensor, place) -> DTensor:
    """Without autograd: with placements place(p) for each p."""
    placements = tuple(map(place, x._spec.placements))
    if placements == x._spec.placements:
        return x
    spec = DTensorSpec(x._spec.mesh, placements, tensor_meta=x._spec.tensor_meta)
    local = redistribute_local_tensor(x._local_tensor, x._spec, spec)
    if isinstance(local, AsyncCollectiveTensor):
        local = local.wait()
    return DTensor(local, spec, requires_grad=False)


def _added_up(x: DTensor) -> DTensor:
    return _placed(x, lambda p: Replicate() if p.is_partial() else p)


def _whole(x: DTensor) -> DTensor:
    return _placed(x, lambda _: Replicate())


def part_of(x, like: FormatDTensor):
    """What an optimizer's step for a rank's part of a parameter takes of a gradient or state: the rank's own part, or NotImplemented where that
    lies elsewhere. Tensors of one number are the same on all ranks."""
    if not isinstance(x, DTensor):
        return x
    there = x._spec.mesh == like._spec.mesh and x._spec.placements == like._spec.placements and x.shape == like.shape
    return x._local_tensor.detach() if there and not any(p.is_partial() for p in x._spec.placements) else NotImplemented


def cast(x: torch.Tensor, dtype: torch.dtype) -> DTensor | None:
    """A DTensor in another dtype, of which one of the two is ours; None for other classes. A sum is added up before it is rounded."""
    if not isinstance(x, DTensor):
        return None
    if is_format_dtype(dtype) and dtype is not x.dtype:
        x = _added_up(x)
    return DTensor(x._local_tensor.detach().to(dtype, copy=True), _with_dtype(x._spec, dtype), requires_grad=False)


def view(x: torch.Tensor, dtype: torch.dtype) -> DTensor:
    """x.view(dtype) for a dtype of ours: each rank's elements are read as codes."""
    if not isinstance(x, DTensor):
        raise NotImplementedError(f"expected a tensor that wraps no other to view as {dtype}, but got a {type(x).__name__}; view what it wraps")
    if x.dtype.itemsize != dtype.itemsize:
        raise NotImplementedError(f"expected a DTensor of {dtype.itemsize} bytes an element to view as {dtype}, but got one of {x.dtype}")
    x = _added_up(x)
    return DTensor(x._local_tensor.detach().view(dtype), _with_dtype(x._spec, dtype), requires_grad=False)


@contextlib.contextmanager
def _on_meta() -> Iterator[None]:
    """With the key that tensors of ours have on meta (operators/MetaDevice.h): PyTorch's C++ asks with all keys above Python's excluded."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded("DeferredInit")
    torch._C._dispatch_tls_set_dispatch_key_excluded("DeferredInit", False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded("DeferredInit", excluded)


def meta_of(schema):
    """What the sharding rules ask of an operator with tensors of ours: sizes, strides and dtypes of its results. Stock asks fake tensors, which have
    stock dtypes; ours are asked on the device meta."""
    if schema.op is _aten.equal.default:  # which has no result to describe
        return None

    def meta(x):
        if isinstance(x, torch.device):  # that a cast or a factory names: nothing comes out of meta
            return torch.device("meta")
        m = x.tensor_meta
        return torch.empty_strided(m.shape, m.stride, dtype=m.dtype, device="meta")

    is_spec = functools.partial(_is, DTensorSpec)
    args, kwargs = (
        pytree.tree_map_only((DTensorSpec, torch.device), meta, part, is_leaf=is_spec) for part in (schema.args_schema, schema.kwargs_schema)
    )
    with _on_meta():
        found = schema.op(*args, **kwargs)

    def described(t):
        return TensorMeta(t.shape, t.stride(), t.dtype) if isinstance(t, torch.Tensor) else None

    return type(found)(map(described, found)) if isinstance(found, (tuple, list)) else described(found)


def has_ours(schema) -> bool:
    leaves = pytree.tree_leaves((schema.args_schema, schema.kwargs_schema), is_leaf=functools.partial(_is, DTensorSpec))
    dtypes = (x.tensor_meta.dtype if isinstance(x, DTensorSpec) and x.tensor_meta else x for x in leaves)
    return any(isinstance(d, torch.dtype) and is_format_dtype(d) for d in dtypes)


def _specs(output) -> list:
    return [s for s in (output if isinstance(output, (tuple, list)) else [output]) if isinstance(s, DTensorSpec)]


def _is_unfinished_sum(spec: DTensorSpec) -> bool:
    """A sum of ours over the ranks, of numbers that would be rounded before."""
    ours = spec.tensor_meta is not None and is_format_dtype(spec.tensor_meta.dtype)
    return ours and any(p.is_partial() and p.reduce_op not in ("max", "min") for p in spec.placements)


def _draws(dtype: torch.dtype) -> bool:
    """Whether what is rounded to a dtype of ours now, or a step of its sums, takes a random word."""
    return not DRAWING_MODES.isdisjoint(modes_of(dtype))


@contextlib.contextmanager
def _drawing_alike(mesh, dtypes) -> Iterator[None]:
    """All ranks round what each of them has whole by the same random words."""
    with contextlib.ExitStack() as stack:
        if any(map(_draws, dtypes)):
            for group in mesh.get_all_groups():
                stack.enter_context(same_random(group))
        yield


def _summed(func, args, kwargs, dtypes):
    """An operator whose results, of those dtypes, the ranks add up."""
    mesh = next(x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, DTensor)).device_mesh
    ours = {d for d in dtypes if is_format_dtype(d)}
    policies = {accumulation_of(d).policy for d in ours}
    if not policies <= set(_SUMS):
        args, kwargs = _map(_whole, args), _map(_whole, kwargs)
        with _drawing_alike(mesh, ours):
            return func(*args, **kwargs)
    wide = torch.float64 if "float64" in policies else compute_type(*ours)
    args, kwargs = (_map(lambda x: cast(x, wide) if _is_ours(x) else x, part) for part in (args, kwargs))
    results = _map(_added_up, func(*args, **kwargs))
    of_results = iter(dtypes)
    with _drawing_alike(mesh, ours):
        return _map(lambda r: cast(r, d) if is_format_dtype(d := next(of_results)) else r, results)


def _normalised(func, args, kwargs):
    """An operator whose stock code asks the container for its eps, on exact values, as autograd calls it; one rounding."""
    dtype = args[0].dtype
    args, kwargs = (_map(lambda x: cast(x, compute_type(dtype)) if _is_ours(x) else x, part) for part in (args, kwargs))
    return cast(func(*args, **kwargs), dtype)


def _by_name(func, args, kwargs) -> dict:
    """The arguments of a call by the operator's names for them."""
    return {**{a.name: v for a, v in zip(func._schema.arguments, args, strict=False)}, **kwargs}


def _lies_apart(x: DTensor) -> bool:
    return any(p.is_shard() for p in x._spec.placements)


def _lies_unevenly(x: DTensor) -> bool:
    """Whether ranks have parts of different sizes."""
    parts = [1] * x.dim()
    for place, ranks in zip(x._spec.placements, x._spec.mesh.shape, strict=True):
        if place.is_shard():
            parts[place.dim] *= ranks
    return any(size % count for size, count in zip(x.shape, parts, strict=True))


def _needs_all(func, args, kwargs) -> bool:
    """Whether the sharding rules would make another mean, or gradient of one, than one process does."""
    if func not in _GRADIENTS_OF_MEANS and func not in _MEANS:
        return False
    reduction = _by_name(func, args, kwargs).get("reduction", _MEAN)
    differs = _lies_unevenly if func in _MEANS else _lies_apart
    return reduction == _MEAN and any(differs(x) for x in args if isinstance(x, DTensor))


def _of_all(func, args, kwargs):
    """A mean over all ranks' elements, or its gradient, of which each rank computes the whole; of a gradient it keeps its own part."""
    found = func(*_map(_whole, args), **_map(_whole, kwargs))
    if func in _MEANS:
        return found
    places = iter(args[1]._spec.placements)
    return _placed(found, lambda _: next(places))


def _meant(args, kwargs):
    """Dtypes among the arguments as tensors of ours understand them: PyTorch's own C++ asks for the container where it means a tensor's dtype."""
    if not any(isinstance(v, torch.dtype) for v in (*args, *kwargs.values())):
        return args, kwargs
    own = next(x.dtype for x in pytree.tree_leaves((args, kwargs)) if _is_ours(x))
    args = tuple(_C.meant_dtype(v, own) if isinstance(v, torch.dtype) else v for v in args)
    return args, {name: _C.meant_dtype(v, own) if isinstance(v, torch.dtype) else v for name, v in kwargs.items()}


def composite_cast(func, args, kwargs) -> DTensor | None:
    """Of ours to another dtype. Such operators come whole in inference mode, and stock would decompose them by code that compares containers."""
    if func not in _CASTS or not _is_ours(args[0]):
        return None
    given = (*args[1:], *kwargs.values())
    named = (v for v in given if isinstance(v, (torch.dtype, torch.Tensor)))
    dtype = next((v.dtype if isinstance(v, torch.Tensor) else v for v in named), args[0].dtype)
    if dtype is args[0].dtype:
        return None
    device = next((v for v in given if isinstance(v, torch.device)), args[0].device)
    result = cast(args[0], dtype)
    return result if device.type == result.device.type else result.to(device)


def _of_named_dims(func, args, kwargs):
    """A reduction over dim=[], which is one over all: PyTorch's sharding rules take it for one over none, and each rank's own for the result."""
    if func not in _REDUCTIONS:
        return args, kwargs
    every = list(range(args[0].dim()))
    if _by_name(func, args, kwargs).get("dim") or not every:
        return args, kwargs
    place = [a.name for a in func._schema.arguments].index("dim")
    if place < len(args):
        return (*args[:place], every, *args[place + 1 :]), kwargs
    return args, {**kwargs, "dim": every}


def _dispatch(func, args, kwargs):
    args, kwargs = _meant(args, kwargs)
    args, kwargs = _of_named_dims(func, args, kwargs)
    if func.namespace == "c10d":
        found = next(x for x in pytree.tree_leaves((args, kwargs)) if _is_ours(x))
        raise NotImplementedError(
            f"{func._schema.name}: expected tensors that are a rank's own, but got a DTensor of {found.dtype}. Use x.to_local() or x.redistribute()."
        )
    if (found := composite_cast(func, args, kwargs)) is not None:
        return found
    dispatcher = DTensor._op_dispatcher
    if func not in _MOVES and not func._schema._is_view_op():
        args, kwargs = _map(_added_up, args), _map(_added_up, kwargs)  # stock ones too: some rules take a part of a divisor for the whole
    if func is _aten.rms_norm.default and _is_ours(args[0]):
        return _normalised(func, args, kwargs)
    if _needs_all(func, args, kwargs):
        return _of_all(func, args, kwargs)
    if func is _aten.fill_.Tensor:  # by which x[i] = number goes, and which has no sharding rule
        func, args = _aten.fill_.Scalar, (args[0], args[1].item())
    if func is _aten.convolution_backward.default:
        return _summed(func, args, kwargs, [args[0].dtype] * sum(args[-1]))
    handler = dispatcher._custom_op_handlers.get(func)
    if handler is not None:
        return handler(func, args, kwargs)
    info = dispatcher.unwrap_to_op_info(func, args, kwargs)
    cached = not any(isinstance(v, torch.dtype) for v in (*args, *kwargs.values()))  # whether it was written by a user changes what it means
    sharding = dispatcher._propagate_op_sharding_dispatch_slow_path(func, args, kwargs, info, cached)
    if not isinstance(sharding, OutputSharding):  # the result of a composite operator
        return sharding
    if any(map(_is_unfinished_sum, _specs(sharding.output_spec))):
        return _summed(func, args, kwargs, [s.tensor_meta.dtype for s in _specs(sharding.output_spec)])
    info.output_sharding = sharding
    results = dispatcher._dispatch_get_local_results_slow_path(func, args, info)
    in_place, into = func._schema.name.endswith("_"), any(a.is_out for a in func._schema.arguments)
    if in_place or into or func is _aten.equal.default:
        here = info.compute_mesh._is_current_rank_part_of_mesh()
        return dispatcher._dispatch_fast_path_python_tail(func, args, kwargs, info.compute_mesh, sharding, results, here, in_place, into)
    return dispatcher.wrap(results, sharding.output_spec)
