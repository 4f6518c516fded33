"""Plans of operators in a block of fuzzy arithmetic: left as they are, or computed with
rounding."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

import torch

from .. import _C


class Way(Enum):
    LEFT = auto()  # moves, selects, compares or makes values, without rounding
    NATIVE = auto()  # arithmetic that the format's kernels round from the exact result
    PRODUCTS = auto()  # sums of products or values, whose steps may be rounded too
    WIDE = auto()  # the stock operator in float64, with rounded results


@dataclass(frozen=True)
class Plan:
    """How to run one operator. ``written`` names the arguments that it writes to,
    ``written_in_training`` those that its schema hides. ``results`` names, for each result, the
    argument that it is, or None."""

    way: Way
    names: tuple[str, ...]
    written: frozenset[str]
    results: tuple[str | None, ...]
    # The condition under which a LEFT operator computes after all: its flag "accumulate" is set, or
    # an operand is "complex" or "uncoalesced". Empty: never.
    unless: str
    outs: frozenset[str]  # out= arguments, whose old values do not count
    pointwise: bool  # elementwise, with one new tensor as result
    written_in_training: frozenset[str]
    solves: bool  # a factorisation or a solution, by LAPACK or a library like it


_NATIVE = {"add", "sub", "mul", "div", "rsub", "sqrt", "reciprocal", "addcmul", "addcdiv", "lerp"}
# Overloads with a rounding mode are not among them.
_NATIVE_OVERLOADS = {"Tensor", "Scalar", "default", "out"}

# Operators that round nothing, in addition to those that the table of operators calls moves and
# selections: copies, comparisons, exact results, or results that are no numbers.
_LEFT = set(
    """_local_scalar_dense _to_copy clone copy detach lift lift_fresh fill zero where type_as to
    contiguous empty empty_like zeros_like ones_like full_like new_empty new_empty_strided
    new_full new_ones new_zeros eq ne lt le gt ge equal isfinite isnan isinf isreal isneginf
    isposinf isclose allclose isin signbit logical_and logical_or logical_xor logical_not floor
    ceil round trunc frac sign sgn nextafter frexp argmax argmin argsort any all nonzero
    count_nonzero histc bucketize searchsorted slice_backward select_backward diagonal_backward
    resize value_selecting_reduction_backward expand_copy narrow_copy _unsafe_masked_index
    heaviside real imag complex _conj_physical conj_physical _amp_update_scale is_pinned
    pin_memory set_ resize_as unique_consecutive _unique _unique2 multinomial to_mkldnn
    sparse_mask _sparse_mask_projection _coalesced sparse_resize sparse_resize_and_clear
    copy_sparse_to_sparse sparse_coo_tensor _sparse_coo_tensor_unsafe
    _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors
    sparse_compressed_tensor _sparse_compressed_tensor_unsafe
    _sparse_compressed_tensor_with_dims""".split()
)

# Exact for real numbers only: of complex numbers they are roots and quotients.
_LEFT_IF_REAL = {"abs", "sgn"}

# Add up the entries that a sparse tensor has twice at one place.
_LEFT_IF_COALESCED = set(
    (
        "_coalesce _to_dense to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr "
        "_to_sparse_bsc"
    ).split()
)

# Arithmetic with float32 kernels alone.
_FLOAT32_ALONE = set("quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel".split())


# Operators of LAPACK. Those of torch.linalg are named linalg_, but for a few that add products.
_LAPACK = set(
    """cholesky cholesky_inverse cholesky_solve_helper geqrf ormqr lu_solve lu_with_info
    triangular_solve""".split()
)
_LINALG_SUMS = {"linalg_vector_norm", "linalg_cross", "linalg_matrix_exp", "linalg_pow"}

# Operators that write to running statistics in training, though their schemas do not say so.
_RUNNING = "running_mean", "running_var"
_UPDATES_RUNNING = set(
    (
        "native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm_update_stats "
        "batch_norm_gather_stats batch_norm_gather_stats_with_counts"
    ).split()
)


@functools.cache
def _rows() -> dict[str, tuple[list[str], list[str]]]:
    return {name: (steps, facts) for name, steps, facts, _ in _C.operator_facts()}


def _row(name: str, overload: str) -> tuple[list[str], list[str]]:
    rows = _rows()
    return rows.get(f"{name}.{overload}") or rows.get(name) or (["Boxed"], [])


def _way(op: torch._ops.OpOverload, name: str) -> Way:
    overload = op._overloadname
    single = name.removeprefix("_foreach_")
    if single in _NATIVE and overload.removesuffix("_out").rpartition("_")[
        2
    ] in _NATIVE_OVERLOADS | {"List", "ScalarList"}:
        return Way.NATIVE
    steps, facts = _row(single if name != single else name, overload)
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)
    numbers = (
        not any("Tensor" in str(r.type) for r in op._schema.returns) and not op._schema.is_mutable
    )
    if overload.startswith("decimals"):  # round(decimals=): a product and a quotient
        return Way.WIDE
    if (
        numbers
        or views
        or name in _LEFT
        or {"MovedCodes", "View", "Selects"} & {*steps, *facts}
        or torch.Tag.nondeterministic_seeded in op.tags
    ):
        return Way.WIDE if _unless(op, single) else Way.LEFT
    return Way.PRODUCTS if "PolicyProducts" in steps else Way.WIDE


def _unless(op: torch._ops.OpOverload, name: str) -> str:
    if any(a.name == "accumulate" for a in op._schema.arguments):
        return "accumulate"
    if name in _LEFT_IF_REAL:
        return "complex"
    return "uncoalesced" if name in _LEFT_IF_COALESCED else ""


@functools.cache
def find_plan(op: torch._ops.OpOverload) -> Plan | None:
    """Return the plan of a PyTorch operator; None for an operator of another library."""
    if op.namespace != "aten":
        return None
    schema = op._schema
    name = op._opname.removesuffix("_") if not op._opname.endswith("__") else op._opname
    sets = {
        next(iter(a.alias_info.before_set), a.name): a.name
        for a in schema.arguments
        if a.alias_info is not None and a.alias_info.is_write
    }

    def result(r) -> str | None:
        return (
            sets.get(next(iter(r.alias_info.before_set), None))
            if r.alias_info is not None
            else None
        )

    return Plan(
        _way(op, name),
        tuple(a.name for a in schema.arguments),
        frozenset(sets.values()),
        tuple(map(result, schema.returns)),
        _unless(op, name.removeprefix("_foreach_")),
        frozenset(a.name for a in schema.arguments if a.is_out),
        torch.Tag.pointwise in op.tags and not sets and len(schema.returns) == 1,
        frozenset(_RUNNING if name in _UPDATES_RUNNING else ()),
        _solves(name.lstrip("_")),
    )


def _solves(name: str) -> bool:
    return name in _LAPACK or (name.startswith("linalg_") and name not in _LINALG_SUMS)


def leaves(plan: Plan | None, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> bool:
    """Whether an operator whose plan has ``unless`` rounds nothing for these operands."""
    if plan is None or not plan.unless:
        return False
    if plan.unless == "accumulate":
        return not dict(zip(plan.names, args, strict=False), **kwargs).get("accumulate")
    if plan.unless == "complex":
        return not any(t.is_complex() for t in tensors)
    return all(t.layout is not torch.sparse_coo or t.is_coalesced() for t in tensors)


def round_number(x):
    """Round a Python number to float32, as float32 arithmetic does; return other objects as they
    are."""
    if type(x) is complex:
        return complex(ctypes.c_float(x.real).value, ctypes.c_float(x.imag).value)
    return ctypes.c_float(x).value if type(x) is float else x


def each_tensor(values) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments, also those within lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from each_tensor(value)


def has_no_float64_form(op: torch._ops.OpOverload, tensors: list[torch.Tensor]) -> bool:
    """Whether the operator, or an operand's layout (sparse, nested, oneDNN), has no float64
    form."""
    return op._opname in _FLOAT32_ALONE or any(
        t.layout is not torch.strided or t.is_nested or t.is_quantized for t in tensors
    )


def map_nested(value, function: Callable):
    """Apply ``function`` to each item of a nested structure of arguments or results."""
    if isinstance(value, (list, tuple)):
        items = [map_nested(v, function) for v in value]
        # A named tuple takes its items as arguments.
        return type(value)(items) if type(value) in (list, tuple) else type(value)(*items)
    return function(value)


def find_dtypes(op, args: tuple, kwargs: dict) -> list[torch.dtype]:
    """Return the dtypes of a stock operator's results, from a run on copies."""

    def copy(value):
        return value.clone() if isinstance(value, torch.Tensor) else value

    results = op(
        *(map_nested(a, copy) for a in args), **{k: map_nested(v, copy) for k, v in kwargs.items()}
    )
    return [t.dtype for t in each_tensor((results,))]
