"""Operands, and products that are subtracted: what the algorithms of this folder share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch

from .. import _C
from ..formats.codes import codes
from ..formats.dtypes import dtype as dtype_of_name
from ..policies.accumulation import Accumulation, accumulation_block
from ..policies.matmul import matmul
from ..policies.rounding import rounding_block
from ..targets.chop import is_numpy, tensor_of_array
from ..targets.lookup import FormatTarget, target

_Function = TypeVar("_Function", bound=Callable)
_IN_FORMAT, _TO_NEAREST = accumulation_block("format"), rounding_block("nearest_even")
_EVERY_STEP = _C.Accumulation(_C.Accumulate.format)
_OPTIONS = [name for name in vars(_C.Accumulation) if name[0] != "_" and name != "block"]
_MACHINE = (_C.Accumulate.machine, _C.Accumulate.float32, _C.Accumulate.float64)


def takes_arrays(function: _Function) -> _Function:
    """Let a function of tensors take NumPy arrays too, for which its results are arrays."""

    @functools.wraps(function)
    def call(*operands, **options):
        if not any(map(is_numpy, (*operands, *options.values()))):
            return function(*operands, **options)
        result = function(
            *(tensor_of_array(x) if is_numpy(x) else x for x in operands),
            **{k: tensor_of_array(x) if is_numpy(x) else x for k, x in options.items()},
        )
        if isinstance(result, tuple):
            return type(result)(*(t.numpy() for t in result))
        return result.numpy()

    return call


def take_operand(
    name: str, x: torch.Tensor, format: object
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Return an operand as a format tensor, and the function that gives results its dtype.

    Raises:
        TypeError: another object than a real tensor, a stock one without a format, a format tensor
            with one, or a target that is no format.
        ValueError: a format without the number 1, or whose values float64 lacks.
        NotImplementedError: another device than the CPU.
    """
    expect_cpu(name, x)
    if _C.is_format_tensor(x):
        if format is not None:
            raise TypeError(
                f"expected format= with a stock tensor, but got {name} of {x.dtype}; convert it by "
                "x.to(dtype) instead"
            )
        _expect_one(x.dtype)
        return x, lambda result: result
    if not x.dtype.is_floating_point or format is None:
        raise TypeError(
            f"expected {name} of a format dtype, or a stock floating-point tensor with format=, "
            f"but got {x.dtype}{'' if format is None else f' with format={format!r}'}"
        )
    dtype, _ = find_format(format)
    fits = _C.format_of(dtype).fits_float and x.dtype != torch.float64
    stock = torch.float32 if fits else torch.float64
    return x.to(dtype), lambda result: result.to(stock)


def expect_cpu(name: str, x: object) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"expected a tensor as {name}, but got {type(x).__name__}")
    if x.device.type != "cpu":
        raise NotImplementedError(
            f"expected a CPU tensor as {name}, but got one on {x.device}; move it by x.cpu()"
        )


def find_format(format: object) -> tuple[torch.dtype, torch.dtype]:
    """Return the format dtype of anything that ``chop`` takes for a format, and the dtype that
    results have: a stock one if ``format`` names one."""
    goal = target(format)
    if not isinstance(goal, FormatTarget):
        raise TypeError(
            f"expected a format, whose numbers are rounded one by one, but got {goal.name}; give "
            "the format of its elements"
        )
    dtype = dtype_of_name(goal.format_name)
    _expect_one(dtype)
    return dtype, goal.dtype


def ones(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """Return the number 1, expanded to sizes. No mode changes it, and none draws a word."""
    with _TO_NEAREST:
        return torch.ones((), dtype=dtype).expand(sizes)


def permutation(index: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return matrices whose row i has its 1 in column ``index[i]``, of [batch, n]."""
    one = codes(ones(dtype))
    result = one.new_zeros(*index.shape, index.shape[-1])
    result.scatter_(-1, index[..., None], one.expand(*index.shape, 1))
    return result.view(dtype)


def _expect_one(dtype: torch.dtype) -> None:
    if ones(dtype).item() != 1:
        raise ValueError(f"expected a format that has the number 1, but got {dtype}")


def as_matrices(name: str, a: torch.Tensor, *, square: bool = False) -> torch.Tensor:
    """Return a tensor of matrices with one batch dimension.

    Raises:
        ValueError: less than two dimensions, or a matrix that should be square and is not.
    """
    if a.dim() < 2:
        raise ValueError(
            f"expected {name} of sizes [..., m, n], but got {tuple(a.shape)}; unsqueeze it"
        )
    if square and a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expected square matrices as {name}, but got {tuple(a.shape)}")
    return a.reshape(a.shape[:-2].numel(), *a.shape[-2:])


def refuse_gradient(name: str, a: torch.Tensor) -> None:
    if a.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            f"expected a matrix without a gradient for {name}, but got one that requires it; call "
            "it with a.detach()"
        )


def inner_products(dtype: torch.dtype, policy: str | Accumulation | None) -> AbstractContextManager:
    """Return a block with the policy of the inner products: the argument's, or else that of the
    surrounding block or the dtype, where ``machine`` stands for ``format``."""
    if policy is not None:
        return accumulation_block(policy)
    is_machine = _C.accumulation_of(dtype).kind == _C.Accumulate.machine
    return _IN_FORMAT if is_machine else nullcontext()


def rounds_every_step(dtype: torch.dtype) -> bool:
    """Whether the policy rounds each product and each difference to the format, one after the
    other. Then the order of the terms alone decides the bits, however the work is cut."""
    now = _C.accumulation_of(dtype)
    return all(getattr(now, name) == getattr(_EVERY_STEP, name) for name in _OPTIONS)


def has_kernels(dtype: torch.dtype) -> bool:
    """Whether elimination and substitution have kernels for the dtype and the policy now."""
    fmt = _C.format_of(dtype)
    return fmt.arithmetic_in_double and fmt.on_logarithms is None and rounds_every_step(dtype)


def subtract_product(start: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``start - a b`` by the policy of the surrounding block, of operands [batch, ...] of
    one dtype: products of -a and b enter an accumulator that begins at ``start``.

    Where every step is rounded, rounded products are subtracted.
    """
    if _C.accumulation_of(start.dtype).kind in _MACHINE:
        return matmul(-a, b, out=start.dtype, start=start)
    if rounds_every_step(start.dtype):
        return subtract_rank_by_rank(start, a, b)
    return _C.subtract_product(start, a, b)


def subtract_rank_by_rank(start: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``start - a b``, each product and each difference rounded, in the order of k."""
    for k in range(a.shape[-1]):
        start = start - a[:, :, k : k + 1] * b[:, k : k + 1]
    return start


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``a b`` by the policy of the surrounding block, of [batch, ...] of one dtype."""
    if has_kernels(a.dtype) or not rounds_every_step(a.dtype):
        return a @ b
    if b.shape[-1] == 1 <= b.shape[-2] and _rounds_as_float64(a.dtype):
        terms = a.double() * b.double().mT
        return terms.cumsum(-1)[..., -1:].to(a.dtype)  # from left to right
    total = torch.zeros((), dtype=a.dtype).expand(len(a), a.shape[-2], b.shape[-1])
    for k in range(a.shape[-1]):
        total = total + a[:, :, k : k + 1] * b[:, k : k + 1]
    return total


def _rounds_as_float64(dtype: torch.dtype) -> bool:
    """Whether stock float64 has the dtype's numbers and its rounding mode."""
    fmt = _C.format_of(dtype)
    mode = _C.rounding_override() or fmt.rounding
    return mode == _C.Rounding.nearest_even and _C.has_numbers_of(torch.float64, fmt)


def overwrite(place: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values of one dtype into a view, without autograd and without rounding."""
    codes(place).copy_(codes(values))


def put_unit_diagonal(matrices: torch.Tensor) -> None:
    diagonal = torch.diagonal(matrices, dim1=-2, dim2=-1)
    overwrite(diagonal, ones(matrices.dtype, *diagonal.shape))


def take(t: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Return each t[i] with the rows (1) or columns (2) of ``index[i]``, in its order."""
    index = index[:, :, None] if dim == 1 else index[:, None]
    return codes(t).gather(dim, index.expand(t.shape)).view(t.dtype)


def swap(t: torch.Tensor, dim: int, first: int, second: torch.Tensor) -> None:
    """Exchange index ``first`` and index ``second[i]`` of ``dim`` in each stock tensor t[i]."""
    sizes = list(t.shape)
    sizes[dim] = 2
    pair = torch.stack([torch.full_like(second, first), second], -1)
    index = pair.view([2 if d == dim else len(second) if d == 0 else 1 for d in range(t.dim())])
    index = index.expand(sizes)
    t.scatter_(dim, index.flip(dim), t.gather(dim, index))


def first_failure(bad: torch.Tensor) -> torch.Tensor:
    """Return LAPACK's ``info`` of flags [batch, n]: 0, or the first flag's index plus 1."""
    before = bad.cumsum(-1) == 0  # columns ahead of the first flag
    return torch.where(bad.any(-1), before.sum(-1) + 1, 0).int()
