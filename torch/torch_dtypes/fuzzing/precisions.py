"""Choose the stock dtype in which an operator rounds, and hold the arithmetic of each."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _C
from ..policies.overrides import Override
from .arithmetic import OWN_FORMATS, Arithmetic
from .plans import Plan, each_tensor

_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}


class Precisions:
    """The arithmetic of each stock dtype in a block.

    Args:
        format: a format that takes float32's place, and leaves other dtypes alone; None: every
            dtype rounds to its own numbers.
        mode: the rounding mode. policy: the block in which sums of products are added up, or None.
    """

    def __init__(self, format: object, mode: str, policy: Override | None = None) -> None:
        self._mode, self._policy, self.are_own = mode, policy, format is None
        of_float32 = Arithmetic(
            OWN_FORMATS[torch.float32] if self.are_own else format, mode, policy
        )
        self._made = {torch.float32: of_float32}
        self.format_name = None if self.are_own else _C.name_of(of_float32.exact)

    def takes(self, dtype: torch.dtype) -> bool:
        """Return whether the block rounds arithmetic in a dtype."""
        dtype = _PARTS.get(dtype, dtype)
        return dtype in self._made or (self.are_own and dtype in OWN_FORMATS)

    def find(self, dtype: torch.dtype) -> Arithmetic:
        """Return the arithmetic of a dtype; of a complex one, that of its parts."""
        dtype = _PARTS.get(dtype, dtype)
        if dtype not in self._made:  # a process has room for 64 formats, so made at first use
            self._made[dtype] = Arithmetic(OWN_FORMATS[dtype], self._mode, self._policy, dtype)
        return self._made[dtype]

    def round_to(self, wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Round results in float64 or complex128 to a stock dtype."""
        return self.find(dtype).round_result(wide)


def is_known(dtype: torch.dtype) -> bool:
    """Return whether ``fuzzy`` can round arithmetic in a stock dtype."""
    return _PARTS.get(dtype, dtype) in OWN_FORMATS


def find_dtype(
    plan: Plan | None, args: tuple, kwargs: dict, tensors: list[torch.Tensor]
) -> torch.dtype | None:
    """Return the dtype in which an operator rounds: the one asked for by ``dtype=``, that of the
    tensor that it writes in place, or else the one to which its operands promote. None: it has no
    operand of such a dtype."""
    first = tensors[0].dtype if tensors else None
    if plan is None or (
        first is not None
        and is_known(first)
        and "dtype" not in kwargs
        and all(t.dtype is first for t in tensors)
    ):
        return promote(tensors)
    asked = kwargs.get("dtype")
    if isinstance(asked, torch.dtype) and is_known(asked):
        return asked
    named = [*zip(plan.names, args, strict=False), *kwargs.items()]
    written = each_tensor(v for k, v in named if k in plan.written and k not in plan.outs)
    in_place = next((t.dtype for t in written if is_known(t.dtype)), None)
    if in_place is not None or not plan.outs:
        return in_place or promote(tensors)
    return promote(each_tensor(v for k, v in named if k not in plan.outs))


def promote(tensors: Iterable[torch.Tensor]) -> torch.dtype | None:
    """Return the dtype of a stock operator's result on these operands; None without one of a known
    dtype. Tensors without dimensions count only where no other one does."""
    of_tensors = of_numbers = None
    for t in tensors:
        if not is_known(t.dtype):
            continue
        if t.dim():
            of_tensors = torch.promote_types(of_tensors or t.dtype, t.dtype)
        else:
            of_numbers = torch.promote_types(of_numbers or t.dtype, t.dtype)
    if of_tensors is None or of_numbers is None:
        return of_tensors or of_numbers
    if of_numbers.is_complex and not of_tensors.is_complex:
        return torch.promote_types(of_tensors, torch.complex32)
    return of_tensors
