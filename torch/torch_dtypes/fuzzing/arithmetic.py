"""Operators computed with a format's rounding on float32 tensors."""

from __future__ import annotations

import functools

import torch

from .. import _C
from ..formats.codes import codes, from_codes
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of, with_rounding
from ..policies.accumulation import accumulation_block
from .plans import Plan, Way, each_tensor, is_float32, mapped, rounded_number

_PIECE = 1 << 16  # elements
_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class Arithmetic:
    """float32 tensors in and out, results rounded to a format.

    Attributes:
        dtype: of the results' values, with its rounding mode.
        native: whether its codes are float32's, so that its own kernels run on the tensors' memory.
    """

    def __init__(self, name: object, mode: str) -> None:
        made = dtype_of(name)
        self.dtype, self.exact = with_rounding(made, mode), with_rounding(made, "nearest_even")
        fmt, binary32 = format_of(self.exact), format_of("e8m23")
        if not fmt.fits_float:
            raise ValueError(
                "expected a format whose values float32 has, for a program in float32, but got "
                f"{_C.name_of(self.exact)}"
            )
        self.native = fmt == binary32
        self.policy = accumulation_block("format")

    def enter(self, t: torch.Tensor) -> torch.Tensor:
        """A float32 tensor in the dtype, by no random rounding: operands that are no values of the
        format round to nearest."""
        if self.native:
            return _C.alias_binary32(t, self.dtype)
        return from_codes(codes(t.to(self.exact)), self.dtype)

    def leave(self, t: torch.Tensor) -> torch.Tensor:
        return _C.alias_binary32(t, None) if self.native else t.to(torch.float32)

    def widened(self, t: torch.Tensor) -> torch.Tensor:
        if t.dtype is torch.complex64 or self.native:
            return t.to(_WIDER[t.dtype])
        return t.to(self.exact).to(torch.float64)

    def rounded(self, t: torch.Tensor) -> torch.Tensor:
        """float64 (in numbers of ``odd``, too) or complex128 to float32 or complex64, by the
        format's rounding."""
        if t.dtype is torch.complex128:
            return torch.view_as_complex(self.rounded(torch.view_as_real(t)).contiguous())
        return self.leave(t.to(self.dtype))

    @functools.cached_property
    def odd(self) -> torch.dtype:
        """float64's numbers, with results whose last bit says that they are not exact: rounded once
        more, they are as if rounded once."""
        return dtype_of("e11m52_to_odd")

    def narrowed(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Operands with float32 tensors for those of other dtypes whose numbers float32 has all."""

        def enter(value):
            if not isinstance(value, torch.Tensor) or value.dtype in _WIDER or value.is_complex():
                return value
            # What is float64 here is a number.
            if value.is_floating_point() or value.dtype.itemsize < 3:
                return value.to(torch.float32)
            return (
                value.to(torch.float32)
                if value.numel() == 0 or _largest(value) <= 1 << 24
                else value
            )

        return mapped(args, enter), {k: mapped(v, enter) for k, v in kwargs.items()}

    def in_format(self, op, plan: Plan, args: tuple, kwargs: dict, steps: bool):
        """The operator on tensors of the dtype; ``steps``: every step of its sums is rounded
        too."""
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def enter(value):
            if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
                pairs.append((value, self.enter(value)))
                return pairs[-1][1]
            return self.dtype if value is torch.float32 else rounded_number(value)

        def leave(value):
            return (
                self.leave(value)
                if isinstance(value, torch.Tensor) and _C.is_format_tensor(value)
                else value
            )

        given = [mapped(a, enter) for a in args]
        named = {k: mapped(v, enter) for k, v in kwargs.items()}
        if steps:
            with self.policy:
                results = op(*given, **named)
        else:
            results = op(*given, **named)
        self._write_back(plan, given, named, pairs, self.leave)
        return _own_results(plan, mapped(results, leave), args, kwargs)

    def _write_back(self, plan: Plan, args, kwargs, pairs, back) -> None:
        """What the operator wrote to its stand-ins, where these are not the tensors' own memory."""
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
            resized = t.shape != stand_in.shape  # out= of no elements
            if resized:
                t.resize_(stand_in.shape)
            if resized or not (
                self.native and _C.is_format_tensor(stand_in) and stand_in.dtype is self.dtype
            ):
                t.copy_(back(stand_in))

    def in_float64(self, op, plan: Plan, args: tuple, kwargs: dict):
        """The stock operator in float64, its results rounded."""
        if (
            plan.pointwise
            and isinstance(args[0], torch.Tensor)
            and args[0].is_cpu
            and args[0].numel() > _PIECE
        ):
            result = self._by_pieces(op, args, kwargs)
            if result is not None:
                return result
        return self._whole_in_float64(op, plan, args, kwargs)

    def _by_pieces(self, op, args: tuple, kwargs: dict) -> torch.Tensor | None:
        """The same of many elements, some at a time, so that their float64 values stay in cache;
        None where the operands are not of one layout."""
        first = args[0]
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if any(
            t.dtype is not torch.float32 or t.shape != first.shape or not t.is_contiguous()
            for t in tensors
        ):
            return None
        out = torch.empty_like(first)
        given, n = out.view(-1), first.numel()
        # Memory once: the system takes back what is freed each time.
        wide = [torch.empty(_PIECE, dtype=torch.float64, device="cpu") for _ in tensors]
        for at in range(0, n, _PIECE):
            m = min(_PIECE, n - at)
            buffers = iter(wide)

            def piece(value, at=at, m=m, buffers=buffers):
                if isinstance(value, torch.Tensor):
                    values = value.view(-1)[at : at + m]
                    return next(buffers)[:m].copy_(values if self.native else values.to(self.exact))
                return rounded_number(value)

            found = op(*map(piece, args), **{k: piece(v) for k, v in kwargs.items()})
            if not isinstance(found, torch.Tensor) or found.dtype is not torch.float64:
                return None
            if self.native:
                _C.alias_binary32(given[at : at + m], self.dtype).copy_(found)
            else:
                given[at : at + m].copy_(self.rounded(found))
        return out

    def _whole_in_float64(self, op, plan: Plan, args: tuple, kwargs: dict):
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        read = [
            *each_tensor(args),
            *each_tensor(v for k, v in kwargs.items() if k not in plan.outs),
        ]
        # Integers are operands, and no places, where nothing else is one.
        numbers = kwargs.get("dtype") is not None or not any(
            t.is_floating_point() or t.is_complex() for t in read
        )
        exact = plan.way is Way.NATIVE and self.native and _all_real(args, kwargs)

        def wide(t: torch.Tensor) -> torch.Tensor:
            return t.to(self.odd) if exact else t

        def enter(value):
            if isinstance(value, torch.Tensor):
                if is_float32(value):
                    pairs.append((value, wide(self.widened(value))))
                    return pairs[-1][1]
                # A number beside float32 tensors.
                if value.dtype is torch.float64 and value.dim() == 0:
                    return wide(value.to(torch.float32).to(value.dtype))
                if numbers or (exact and value.is_floating_point()):
                    return wide(value.to(torch.complex128 if value.is_complex() else torch.float64))
                return value
            return (
                _WIDER.get(value, value)
                if isinstance(value, torch.dtype)
                else rounded_number(value)
            )

        def leave(value):
            return (
                self.rounded(value)
                if isinstance(value, torch.Tensor)
                and value.dtype in (torch.float64, torch.complex128, self.odd)
                else value
            )

        given = [mapped(a, enter) for a in args]
        named = {k: mapped(v, enter) for k, v in kwargs.items()}
        results = op(*given, **named)
        self._write_back(plan, given, named, pairs, self.rounded)
        if plan.written and all(plan.results):
            return _own_results(plan, results, args, kwargs)
        return _own_results(plan, mapped(results, leave), args, kwargs)


def _largest(t: torch.Tensor) -> int:
    low, high = torch.aminmax(t.to(torch.float64))  # which unsigned integers have no kernel for
    return max(-int(low), int(high))


def _all_real(args: tuple, kwargs: dict) -> bool:
    return not any(type(a) is complex for a in (*args, *kwargs.values())) and not any(
        t.is_complex() for t in each_tensor((args, *kwargs.values()))
    )


def _by_name(plan: Plan, args, kwargs):
    yield from zip(plan.names, args, strict=False)
    yield from kwargs.items()


def _tensors(value) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _own_results(plan: Plan, results, args: tuple, kwargs: dict):
    """What was written to in its own place among the results."""
    if not any(plan.results):
        return results
    given = dict(_by_name(plan, args, kwargs))
    if len(plan.results) == 1:
        return given[plan.results[0]]
    return tuple(
        given[name] if name is not None else r
        for name, r in zip(plan.results, results, strict=True)
    )
