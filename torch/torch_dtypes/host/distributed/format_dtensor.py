"""DTensors whose local tensors are format tensors, for ``fully_shard``, clipping, optimizers and
checkpoints.

PyTorch's C++ makes a DTensor, and runs its operators, by the storage dtype of the local tensor. So
format DTensors have a subclass. Its body is a format tensor without memory, so that autograd,
promotion and ``x.dtype`` use the format. Operators reach ``__torch_dispatch__`` below.

Operators on elements run on each rank's part, where all operands are sharded alike. Norms, and the
other operators of Adafactor, gather the codes and run on the whole operands on every rank. All
others raise: PyTorch's sharding rules would round partial sums one by one, and average a rank's own
elements.
"""

from __future__ import annotations

import functools

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.utils import _pytree as pytree

from ... import _C

_aten = torch.ops.aten
# A partial sum may pass as it is.
_MOVES = {_aten.detach.default, _aten.alias.default, _aten.clone.default}
_CASTS = {
    _aten._to_copy.default,
    _aten.to.dtype,
    _aten.to.device,
    _aten.to.dtype_layout,
    _aten.to.other,
    _aten.type_as.default,
}
_FILLS = {
    _aten.copy_.default,
    _aten.zero_.default,
    _aten.fill_.Scalar,
    _aten.fill_.Tensor,
    _aten.masked_fill_.Scalar,
}
_LIKES = {
    _aten.zeros_like.default,
    _aten.ones_like.default,
    _aten.empty_like.default,
    _aten.full_like.default,
}
_ON_ELEMENTS = _MOVES | _CASTS | _FILLS | _LIKES  # and operators tagged pointwise by PyTorch
_OF_WHOLES = {
    _aten.linalg_vector_norm.default,
    _aten.mm.default,
    _aten.mean.dim,
    _aten._local_scalar_dense.default,
}
_OF_SIZES = {_aten.new_empty.default, _aten.new_zeros.default}


class FormatDTensor(DTensor):
    """A DTensor of local format tensors."""

    __slots__ = ()
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return dispatch(func, args, kwargs or {})

    def share_memory_(self):
        self._local_tensor.share_memory_()
        return self

    def __reduce_ex__(self, protocol):
        return _rebuild, (self._local_tensor, self._spec, self.requires_grad)


# torch.distributed.checkpoint copies the attributes in the class's __slots__ when it stages a
# tensor.
FormatDTensor.__slots__ = DTensor.__slots__


def _rebuild(local: torch.Tensor, spec: DTensorSpec, requires_grad: bool) -> DTensor:
    return DTensor(local.detach(), spec, requires_grad=requires_grad)


def new(cls, local_tensor, spec, requires_grad) -> FormatDTensor:
    """Make the DTensor of a local format tensor."""
    if cls not in (DTensor, FormatDTensor):
        raise NotImplementedError(
            f"{cls.__name__}: expected a local tensor of a stock dtype, but got "
            f"{local_tensor.dtype}; use DTensor itself"
        )
    meta = spec.tensor_meta
    body = _C.without_memory(local_tensor.dtype, meta.shape, meta.stride, local_tensor.device)
    result = torch.Tensor._make_subclass(FormatDTensor, body, requires_grad)
    result._spec, result._local_tensor = spec, local_tensor
    return result


def _wrap(local: torch.Tensor, like: DTensorSpec) -> DTensor:
    meta = like.tensor_meta
    spec = like.shallow_copy_with_tensor_meta(TensorMeta(meta.shape, meta.stride, local.dtype))
    return DTensor(local.detach(), spec, requires_grad=False)


def _replicate(mesh, shape, stride, dtype) -> DTensorSpec:
    return DTensorSpec(
        mesh, (Replicate(),) * mesh.ndim, tensor_meta=TensorMeta(shape, stride, dtype)
    )


def _is_sharded_alike(x: DTensor, like: DTensor) -> bool:
    return (
        x._spec.mesh == like._spec.mesh
        and x._spec.placements == like._spec.placements
        and x.shape == like.shape
    )


def _local(x: DTensor, spec: DTensorSpec) -> torch.Tensor:
    """Return this rank's part of a tensor, redistributed as in a spec, outside autograd."""
    if x._spec.placements == spec.placements:
        return x._local_tensor.detach()
    local = redistribute_local_tensor(
        x._local_tensor.detach(),
        x._spec,
        DTensorSpec(spec.mesh, spec.placements, tensor_meta=x._spec.tensor_meta),
    )
    return local.wait() if isinstance(local, AsyncCollectiveTensor) else local


def _whole(x: DTensor) -> torch.Tensor:
    return _local(x, _replicate(x._spec.mesh, *x._spec.tensor_meta))


def take_part(x, like: FormatDTensor):
    """Return this rank's part of a gradient or state for the step of its part of a parameter.

    It is NotImplemented where the two are sharded differently. Tensors of one number are the same
    on all ranks.
    """
    if not isinstance(x, DTensor):
        return x
    is_alike = _is_sharded_alike(x, like) and not _is_partial(x)
    return x._local_tensor.detach() if is_alike else NotImplemented


def _is_partial(x: DTensor) -> bool:
    return any(p.is_partial() for p in x._spec.placements)


def cast(x: torch.Tensor, dtype: torch.dtype) -> DTensor | None:
    """Cast a DTensor, where one of the two dtypes is a format dtype; None for other classes."""
    if not isinstance(x, DTensor):
        return None
    if _is_partial(x):
        raise _refusal(_aten._to_copy.default, [x])
    return _wrap(x._local_tensor.detach().to(dtype, copy=True), x._spec)


def _refusal(func, tensors) -> NotImplementedError:
    def describe(x):
        return (
            f"{x.dtype} in {x._spec.placements}"
            if isinstance(x, DTensor)
            else f"{x.dtype} of this rank's own"
        )

    return NotImplementedError(
        f"{func._schema.name}: expected an operator on elements of DTensors that are sharded "
        "alike, or a norm, where one has a number format, but got "
        f"{', '.join(map(describe, tensors))}; use x.to_local(), x.full_tensor() or x.float(), or "
        "a float32 model that quantize_ has converted"
    )


def _correct_dtypes(values, own: torch.dtype) -> tuple:
    """Replace dtypes among arguments where PyTorch's C++ passes the storage dtype for a format."""
    return tuple(_C.meant_dtype(v, own) if isinstance(v, torch.dtype) else v for v in values)


def dispatch(func, args, kwargs):
    """Run an operator that has a format DTensor among its arguments."""
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    own = next(x.dtype for x in tensors if isinstance(x, FormatDTensor))
    args, kwargs = (
        _correct_dtypes(args, own),
        dict(zip(kwargs, _correct_dtypes(kwargs.values(), own), strict=True)),
    )
    refusal = functools.partial(_refusal, func, tensors)
    if func not in _MOVES and any(isinstance(x, DTensor) and _is_partial(x) for x in tensors):
        raise refusal()
    if func in _OF_WHOLES:
        result = func(*(_whole(x) if isinstance(x, DTensor) else x for x in args), **kwargs)
        return (
            _wrap(result, _replicate(args[0]._spec.mesh, result.shape, result.stride(), own))
            if isinstance(result, torch.Tensor)
            else result
        )
    if func in _OF_SIZES:
        result = func(args[0]._local_tensor, *args[1:], **kwargs)
        return _wrap(result, _replicate(args[0]._spec.mesh, result.shape, result.stride(), own))
    over_lists = func._schema.name.startswith("aten::_foreach_")
    if not (over_lists or func in _ON_ELEMENTS or torch.Tag.pointwise in func.tags):
        raise refusal()
    in_place = func._schema.is_mutable
    likes = (
        args[0]
        if over_lists
        else [next((x for x in tensors if isinstance(x, DTensor) and x.dim()), args[0])]
    )

    def part(x, like):
        if not isinstance(x, torch.Tensor):
            return x
        if x.dim() == 0:
            return _whole(x) if isinstance(x, DTensor) else x
        if (
            not isinstance(x, DTensor)
            or not isinstance(like, DTensor)
            or x._spec.mesh != like._spec.mesh
        ):
            raise refusal()
        if _is_sharded_alike(x, like):
            return x._local_tensor.detach()
        # As in PyTorch.
        if in_place and (
            x.shape == like.shape or not any(p.is_shard() for p in like._spec.placements)
        ):
            return _local(x, like._spec)
        raise refusal()

    def parts(v):
        if over_lists and isinstance(v, (list, tuple)):
            return [part(x, like) for x, like in zip(v, likes, strict=True)]
        return part(v, likes[0])

    results = func(*map(parts, args), **{name: parts(v) for name, v in kwargs.items()})
    if in_place:
        return None if over_lists else kwargs.get("out", args[0])
    results = results if over_lists else [results]
    # _foreach_max, equal
    if any(
        getattr(result, "shape", None) != like._local_tensor.shape
        for result, like in zip(results, likes, strict=True)
    ):
        raise refusal()
    wrapped = [_wrap(result, like._spec) for result, like in zip(results, likes, strict=True)]
    return wrapped if over_lists else wrapped[0]


torch.serialization.add_safe_globals([FormatDTensor, _rebuild])
_C.set_wrapper_cast(cast)
