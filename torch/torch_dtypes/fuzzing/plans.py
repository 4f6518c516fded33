"""What a block of fuzzy arithmetic does with each operator of PyTorch's: which leave values as they are, which are computed anew."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

import torch

from .. import _C

_FLOAT32 = (torch.float32, torch.complex64)


class Way(Enum):
    LEFT = auto()  # moves, selects or compares values, or makes new ones: nothing is rounded
    NATIVE = auto()  # arithmetic that the format's own kernels round from the exact result
    PRODUCTS = auto()  # adds up products or values, whose steps may be rounded too
    WIDE = auto()  # the stock operator in float64, its results rounded


@dataclass(frozen=True)
class Plan:
    """How one operator is run: its way, which of its arguments it writes to (their names; the last ones in training, and unsaid by its schema), and
    for each result the argument that it is, or None."""

    way: Way
    names: tuple[str, ...]
    written: frozenset[str]
    results: tuple[str | None, ...]
    accumulates: bool  # has a flag of that name, with which it adds
    pointwise: bool  # one new tensor, each element of it made of the operands' at the same place
    written_in_training: frozenset[str]


_NATIVE = {"add", "sub", "mul", "div", "rsub", "sqrt", "reciprocal", "addcmul", "addcdiv", "lerp"}
_NATIVE_OVERLOADS = {"Tensor", "Scalar", "default", "out"}  # not those with a rounding mode of their own

# Beside what the table of operators says of moving and selecting values: copies, comparisons, results that are exact, or no numbers at all.
_LEFT = set(
    """_local_scalar_dense _to_copy clone copy detach lift lift_fresh fill zero where type_as to contiguous empty empty_like zeros_like ones_like
    full_like new_empty new_empty_strided new_full new_ones new_zeros eq ne lt le gt ge equal isfinite isnan isinf isreal isneginf isposinf isclose
    allclose isin signbit logical_and logical_or logical_xor logical_not floor ceil round trunc frac sign sgn nextafter frexp argmax argmin
    argsort any all nonzero count_nonzero bincount histc bucketize searchsorted slice_backward select_backward diagonal_backward resize
    value_selecting_reduction_backward expand_copy narrow_copy _unsafe_masked_index heaviside real imag complex _conj_physical conj_physical
    _amp_update_scale is_pinned pin_memory set_ resize_as unique_consecutive _unique _unique2 multinomial""".split()
)


# Operators that write to running statistics, of which their schemas say nothing: those with a flag for training where it is set.
_RUNNING = "running_mean", "running_var"
_UPDATES_RUNNING = set(
    "native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm_update_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts".split()
)


@functools.cache
def _rows() -> dict[str, tuple[str, list[str]]]:
    return {name: (way, facts) for name, way, facts, _ in _C.operator_facts()}


def _row(name: str, overload: str) -> tuple[str, list[str]]:
    rows = _rows()
    return rows.get(f"{name}.{overload}") or rows.get(name) or ("boxed", [])


def _way(op: torch._ops.OpOverload, name: str) -> Way:
    overload = op._overloadname
    single = name.removeprefix("_foreach_")
    if single in _NATIVE and overload.removesuffix("_out").rpartition("_")[2] in _NATIVE_OVERLOADS | {"List", "ScalarList"}:
        return Way.NATIVE
    way, facts = _row(single if name != single else name, overload)
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)
    numbers = not any("Tensor" in str(r.type) for r in op._schema.returns) and not op._schema.is_mutable
    if numbers or views or name in _LEFT or way in ("codes", "view") or "Selects" in facts or torch.Tag.nondeterministic_seeded in op.tags:
        return Way.LEFT
    return Way.PRODUCTS if "Products" in facts else Way.WIDE


@functools.cache
def plan_of(op: torch._ops.OpOverload) -> Plan | None:
    """The plan of an operator of PyTorch's; None for those of other libraries, which nothing is known of."""
    if op.namespace != "aten":
        return None
    schema = op._schema
    name = op._opname.removesuffix("_") if not op._opname.endswith("__") else op._opname
    sets = {next(iter(a.alias_info.before_set), a.name): a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}

    def result(r) -> str | None:
        return sets.get(next(iter(r.alias_info.before_set), None)) if r.alias_info is not None else None

    return Plan(
        _way(op, name), tuple(a.name for a in schema.arguments), frozenset(sets.values()), tuple(map(result, schema.returns)),
        any(a.name == "accumulate" for a in schema.arguments),
        torch.Tag.pointwise in op.tags and not sets and len(schema.returns) == 1,
        frozenset(_RUNNING if name in _UPDATES_RUNNING else ()),
    )  # fmt: skip


def rounded_number(x: float) -> float:
    """A Python number as float32 arithmetic takes it."""
    return ctypes.c_float(x).value


def each_tensor(values) -> Iterator[torch.Tensor]:
    """The tensors among arguments, lists of them included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from each_tensor(value)


def is_float32(t: torch.Tensor) -> bool:
    """Whether a tensor's arithmetic is float32's, and ours stands for it."""
    return t.dtype in _FLOAT32 and t.layout is torch.strided and not t.is_meta


def in_float64(tensors: list[torch.Tensor]) -> bool:
    """Whether operands, float32 ones among them, promote to float64 (or complex128) in stock arithmetic."""
    wide = [t for t in tensors if t.dtype in (torch.float64, torch.complex128)]
    narrow = [t for t in tensors if t.dtype in _FLOAT32]
    return any(t.dim() > 0 for t in wide) or (bool(wide) and all(t.dim() == 0 for t in narrow))


def mapped(value, function: Callable):
    """A structure of arguments or results with ``function`` of each item."""
    if isinstance(value, (list, tuple)):
        items = [mapped(v, function) for v in value]
        return type(value)(items) if type(value) in (list, tuple) else type(value)(*items)  # named tuples
    return function(value)
