"""Compute operators on float32 tensors with a format's rounding."""

from __future__ import annotations

import functools

import torch

from .. import _C
from ..formats.codes import codes, from_codes
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of, with_rounding
from ..policies.accumulation import Accumulation
from ..policies.overrides import Override
from .plans import Plan, Way, each_tensor, is_float32, map_nested, round_number

_PIECE = 1 << 16  # elements
_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def instruction_block(fused: bool) -> Override:
    """Return a block whose sums round each instruction: multiply-adds, or products and sums
    apart."""
    policy = Accumulation("format", fused=fused)._native()
    policy.instructions = True
    return Override(_C.set_accumulation_override, policy)


class Arithmetic:
    """Computes on float32 tensors and rounds the results to a format.

    Attributes:
        dtype: the format dtype of the results, with its rounding mode.
        native: whether the format's codes are float32's, so that its kernels run on the tensors'
            memory.
        policy: the block in which sums of products are added up; None: float64 adds them.
    """

    def __init__(self, name: object, mode: str, policy: Override | None = None) -> None:
        plain = dtype_of(name)
        self.dtype, self.exact = with_rounding(plain, mode), with_rounding(plain, "nearest_even")
        fmt, binary32 = format_of(self.exact), format_of("e8m23")
        if not fmt.fits_float:
            raise ValueError(
                "expected a format whose values float32 has, for a program in float32, but got "
                f"{_C.name_of(self.exact)}"
            )
        self.native = fmt == binary32
        self.policy = policy

    def enter(self, t: torch.Tensor) -> torch.Tensor:
        """Convert a float32 tensor to the dtype. Values that the format lacks round to nearest,
        never at random."""
        if self.native:
            return _C.alias_binary32(t, self.dtype)
        return from_codes(codes(t.to(self.exact)), self.dtype)

    def leave(self, t: torch.Tensor) -> torch.Tensor:
        return _C.alias_binary32(t, None) if self.native else t.to(torch.float32)

    def widen_operand(self, t: torch.Tensor) -> torch.Tensor:
        if t.dtype is torch.complex64 or self.native:
            return t.to(_WIDER[t.dtype])
        return t.to(self.exact).to(torch.float64)

    def round_result(self, t: torch.Tensor) -> torch.Tensor:
        """Round float64, ``odd`` or complex128 numbers by the format, to float32 or complex64."""
        if t.dtype is torch.complex128:
            return torch.view_as_complex(self.round_result(torch.view_as_real(t)).contiguous())
        return self.leave(t.to(self.dtype))

    @functools.cached_property
    def odd(self) -> torch.dtype:
        """The dtype of float64's numbers, rounded to odd. A second rounding then has the result of
        a single one."""
        return dtype_of("e11m52_to_odd")

    def narrow_operands(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Convert operands of other dtypes to float32 where float32 has all their numbers."""

        def enter(value):
            if not isinstance(value, torch.Tensor) or value.dtype in _WIDER or value.is_complex():
                return value
            # A float64 operand is a Python number here.
            if value.is_floating_point() or value.dtype.itemsize < 3:
                return value.to(torch.float32)
            return (
                value.to(torch.float32)
                if value.numel() == 0 or _largest(value) <= 1 << 24
                else value
            )

        return map_nested(args, enter), {k: map_nested(v, enter) for k, v in kwargs.items()}

    def compute_in_format(self, op, plan: Plan, args: tuple, kwargs: dict, steps: bool):
        """Run the operator on format tensors. With ``steps``, each step of its sums is rounded
        too."""
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def enter(value):
            if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
                pairs.append((value, self.enter(value)))
                return pairs[-1][1]
            return self.dtype if value is torch.float32 else round_number(value)

        def leave(value):
            return (
                self.leave(value)
                if isinstance(value, torch.Tensor) and _C.is_format_tensor(value)
                else value
            )

        entered = [map_nested(a, enter) for a in args]
        named = {k: map_nested(v, enter) for k, v in kwargs.items()}
        if steps:
            with self.policy:
                results = op(*entered, **named)
        else:
            results = op(*entered, **named)
        self._write_back(plan, entered, named, pairs, self.leave)
        return _replace_written(plan, map_nested(results, leave), args, kwargs)

    def _write_back(self, plan: Plan, args, kwargs, pairs, back) -> None:
        """Copy the operator's writes from the stand-ins to the tensors, unless they share
        memory."""
        names = plan.written
        if plan.written_in_training and dict(_by_name(plan, args, kwargs)).get("training", True):
            names |= plan.written_in_training
        if not names:
            return
        written = [
            t
            for name, value in _by_name(plan, args, kwargs)
            if name in names
            for t in _tensors(value)
        ]
        for t, stand_in in pairs:
            if not any(stand_in is w for w in written):
                continue
            resized = t.shape != stand_in.shape  # an out= tensor without elements
            if resized:
                t.resize_(stand_in.shape)
            if resized or not (
                self.native and _C.is_format_tensor(stand_in) and stand_in.dtype is self.dtype
            ):
                t.copy_(back(stand_in))

    def compute_in_float64(self, op, plan: Plan, args: tuple, kwargs: dict):
        """Run the stock operator in float64 and round its results."""
        if (
            plan.pointwise
            and isinstance(args[0], torch.Tensor)
            and args[0].is_cpu
            and args[0].numel() > _PIECE
        ):
            result = self._compute_by_pieces(op, args, kwargs)
            if result is not None:
                return result
        return self._compute_whole(op, plan, args, kwargs)

    def _compute_by_pieces(self, op, args: tuple, kwargs: dict) -> torch.Tensor | None:
        """Do the same for a large tensor in pieces, so that the float64 values stay in cache.
        Return None where operands differ in layout."""
        first = args[0]
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if any(
            t.dtype is not torch.float32 or t.shape != first.shape or not t.is_contiguous()
            for t in tensors
        ):
            return None
        out = torch.empty_like(first)
        results, n = out.view(-1), first.numel()
        # Allocate once: the allocator gives freed memory back to the system each time.
        wide = [torch.empty(_PIECE, dtype=torch.float64, device="cpu") for _ in tensors]
        for at in range(0, n, _PIECE):
            m = min(_PIECE, n - at)
            buffers = iter(wide)

            def piece(value, at=at, m=m, buffers=buffers):
                if isinstance(value, torch.Tensor):
                    values = value.view(-1)[at : at + m]
                    return next(buffers)[:m].copy_(values if self.native else values.to(self.exact))
                return round_number(value)

            wide_result = op(*map(piece, args), **{k: piece(v) for k, v in kwargs.items()})
            if not isinstance(wide_result, torch.Tensor) or wide_result.dtype is not torch.float64:
                return None
            if self.native:
                _C.alias_binary32(results[at : at + m], self.dtype).copy_(wide_result)
            else:
                results[at : at + m].copy_(self.round_result(wide_result))
        return out

    def _compute_whole(self, op, plan: Plan, args: tuple, kwargs: dict):
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        read = [
            *each_tensor(args),
            *each_tensor(v for k, v in kwargs.items() if k not in plan.outs),
        ]
        # Integer tensors are operands if no other tensor is read; otherwise they may be indices.
        numbers = kwargs.get("dtype") is not None or not any(
            t.is_floating_point() or t.is_complex() for t in read
        )
        exact = plan.way is Way.NATIVE and self.native and _are_real(args, kwargs)

        def wide(t: torch.Tensor) -> torch.Tensor:
            return t.to(self.odd) if exact else t

        def enter(value):
            if isinstance(value, torch.Tensor):
                if is_float32(value):
                    pairs.append((value, wide(self.widen_operand(value))))
                    return pairs[-1][1]
                # A Python number next to float32 tensors.
                if value.dtype is torch.float64 and value.dim() == 0:
                    return wide(value.to(torch.float32).to(value.dtype))
                if numbers or (exact and value.is_floating_point()):
                    return wide(value.to(torch.complex128 if value.is_complex() else torch.float64))
                return value
            return (
                _WIDER.get(value, value) if isinstance(value, torch.dtype) else round_number(value)
            )

        def leave(value):
            return (
                self.round_result(value)
                if isinstance(value, torch.Tensor)
                and value.dtype in (torch.float64, torch.complex128, self.odd)
                else value
            )

        entered = [map_nested(a, enter) for a in args]
        named = {k: map_nested(v, enter) for k, v in kwargs.items()}
        results = op(*entered, **named)
        self._write_back(plan, entered, named, pairs, self.round_result)
        if plan.written and all(plan.results):
            return _replace_written(plan, results, args, kwargs)
        return _replace_written(plan, map_nested(results, leave), args, kwargs)


def _largest(t: torch.Tensor) -> int:
    low, high = torch.aminmax(t.to(torch.float64))  # unsigned integers have no aminmax kernel
    return max(-int(low), int(high))


def _are_real(args: tuple, kwargs: dict) -> bool:
    return not any(type(a) is complex for a in (*args, *kwargs.values())) and not any(
        t.is_complex() for t in each_tensor((args, *kwargs.values()))
    )


def _by_name(plan: Plan, args, kwargs):
    yield from zip(plan.names, args, strict=False)
    yield from kwargs.items()


def _tensors(value) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _replace_written(plan: Plan, results, args: tuple, kwargs: dict):
    """Replace the results that are arguments written in place by those arguments."""
    if not any(plan.results):
        return results
    arguments = dict(_by_name(plan, args, kwargs))
    if len(plan.results) == 1:
        return arguments[plan.results[0]]
    return tuple(
        arguments[name] if name is not None else r
        for name, r in zip(plan.results, results, strict=True)
    )
