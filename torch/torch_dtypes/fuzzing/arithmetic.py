"""Compute operators on tensors of one stock dtype with a format's rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from .. import _C
from ..formats.codes import codes, from_codes
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of, with_rounding
from ..policies.accumulation import Accumulation
from ..policies.overrides import Override
from .plans import Plan, Way, each_tensor, find_dtypes, map_nested, round_number

OWN_FORMATS = {
    torch.float64: "e11m52",
    torch.float32: "e8m23",
    torch.float16: "e5m10",
    torch.bfloat16: "e8m7",
}

_PIECE = 1 << 16  # elements
_WIDER = {
    torch.float64: torch.float64,
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex128,
}
NARROW = {torch.float16, torch.bfloat16}
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

# Rounds a tensor of float64 or complex128 to a stock dtype.
Round = Callable[[torch.Tensor, torch.dtype], torch.Tensor]


def instruction_block(fused: bool) -> Override:
    """Return a block whose sums round each instruction: multiply-adds, or products and sums
    apart."""
    policy = Accumulation("format", fused=fused)._native()
    policy.instructions = True
    return Override(_C.set_accumulation_override, policy)


class Arithmetic:
    """Computes on tensors of one stock dtype and rounds the results to a format.

    Attributes:
        stock: the stock dtype of the tensors.
        dtype: the format dtype of the results, with its rounding mode.
        native: whether the format's codes are those of ``stock``, so that its kernels run on the
            tensors' memory.
        policy: the block in which sums of products are added up; None: float64 adds them.
    """

    def __init__(
        self,
        name: object,
        mode: str,
        policy: Override | None = None,
        stock: torch.dtype = torch.float32,
    ) -> None:
        plain = dtype_of(name)
        self.stock = stock
        self.dtype, self.exact = with_rounding(plain, mode), with_rounding(plain, "nearest_even")
        fmt = format_of(self.exact)
        self.native = fmt == format_of(OWN_FORMATS[stock])
        if not self.native and not fmt.fits_float:
            raise ValueError(
                "expected a format whose values float32 has, for a program in float32, but got "
                f"{_C.name_of(self.exact)}"
            )
        self.bits = fmt.significand_bits
        self.policy = policy

    def enter(self, t: torch.Tensor) -> torch.Tensor:
        """Convert a tensor of ``stock`` to the dtype, on the same memory if the format has all its
        values. Values that the format lacks round to nearest, never at random."""
        if not self.native:
            return from_codes(codes(t.to(self.exact)), self.dtype)
        if self.stock is torch.float32:
            return _C.alias_binary32(t, self.dtype)
        return t.view(_WORDS[t.itemsize]).view(self.dtype)

    def leave(self, t: torch.Tensor) -> torch.Tensor:
        if not self.native:
            return t.to(torch.float32)
        if self.stock is torch.float32:
            return _C.alias_binary32(t, None)
        return t.view(_WORDS[t.itemsize]).view(self.stock)

    def widen_operand(self, t: torch.Tensor) -> torch.Tensor:
        if t.dtype is self.stock and not self.native:
            t = t.to(self.exact)
        return t.to(_WIDER.get(t.dtype, torch.float64))

    def round_result(self, t: torch.Tensor) -> torch.Tensor:
        """Round float64, ``odd`` or complex128 numbers by the format, to ``stock`` or a complex
        dtype of such parts."""
        if t.dtype is torch.complex128:
            return torch.view_as_complex(self.round_result(torch.view_as_real(t)).contiguous())
        if self.stock is torch.float64 and t.dtype is torch.float64:
            return self._round_computed(t)
        return self.leave(t.to(self.dtype))

    def _round_computed(self, t: torch.Tensor) -> torch.Tensor:
        """Round results of stock float64 kernels, whose errors are not known.

        The exact result is taken to lie within half a unit in the last place of the kernel's, with
        equal probability everywhere. So a random number of that size is added, and the exact sum is
        rounded. Zeros, subnormal numbers and those that are not finite stay.
        """
        size = t.abs()
        last_place = size - torch.nextafter(size, torch.zeros((), dtype=t.dtype, device=t.device))
        words = _C.random_words(_C.next_seed(), 0, t.numel()).to(t.device).view(t.shape)
        error = last_place * (words >> 11).to(torch.float64) * 2.0**-53
        known = (error == 0) | ~error.isfinite()
        moved = self.leave(self.enter(t.contiguous()) + self.enter(error.contiguous()))
        return torch.where(known, t, moved)

    def round_number(self, value):
        """Round a Python number as stock arithmetic does: to float32, except beside float64."""
        return value if self.stock is torch.float64 else round_number(value)

    @functools.cached_property
    def odd(self) -> torch.dtype:
        """The dtype of float64's numbers, rounded to odd. A second rounding then has the result of
        a single one."""
        return dtype_of("e11m52_to_odd")

    def narrow_operands(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Convert operands of other dtypes to ``stock`` where it has all their numbers. float64
        takes the numbers of every dtype."""

        def enter(value):
            if not isinstance(value, torch.Tensor) or value.dtype is self.stock:
                return value
            if value.is_complex():
                return value
            if value.is_floating_point():
                if self.stock is torch.float32 and value.dim() == 0:
                    return value.to(torch.float32)  # float64's is a Python number here
                narrow = torch.promote_types(value.dtype, self.stock) is self.stock
                return value.to(self.stock) if narrow else value
            fits = (
                self.stock is torch.float64
                or value.dtype in (torch.bool, torch.int8, torch.uint8)
                or value.numel() == 0
                or _largest(value) <= 1 << self.bits
            )
            return value.to(self.stock) if fits else value

        return map_nested(args, enter), {k: map_nested(v, enter) for k, v in kwargs.items()}

    def compute_in_format(self, op, plan: Plan, args: tuple, kwargs: dict, *, steps: bool):
        """Run the operator on format tensors. With ``steps``, each step of its sums is rounded
        too."""
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def enter(value):
            if isinstance(value, torch.Tensor) and value.dtype is self.stock:
                pairs.append((value, self.enter(value)))
                return pairs[-1][1]
            return self.dtype if value is self.stock else self.round_number(value)

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
        self._write_back(plan, entered, named, pairs, lambda stand_in, _: self.leave(stand_in))
        return _replace_written(plan, map_nested(results, leave), args, kwargs)

    def compute_in_steps(
        self, plan: Plan, args: tuple, kwargs: dict, run: Callable, round_to: Round, dtypes=()
    ):
        """Run an operator on float16 or bfloat16 by ``run(args, kwargs)``, whose steps round to
        float32, as processors add up such numbers. Results round to ``dtypes``, else ``stock``."""
        pairs, result_dtypes = [], iter(dtypes)

        def enter(value):
            if isinstance(value, torch.Tensor) and value.dtype in NARROW:
                pairs.append((value, value.to(torch.float32)))
                return pairs[-1][1]
            return torch.float32 if isinstance(value, torch.dtype) and value in NARROW else value

        def narrow(value, dtype):
            rounds = value.dtype is torch.float32 and dtype in NARROW
            return round_to(value.to(torch.float64), dtype) if rounds else value

        def leave(value):
            is_tensor = isinstance(value, torch.Tensor)
            return narrow(value, next(result_dtypes, self.stock)) if is_tensor else value

        entered = tuple(map_nested(a, enter) for a in args)
        named = {k: map_nested(v, enter) for k, v in kwargs.items()}
        results = run(entered, named)
        self._write_back(plan, entered, named, pairs, lambda new, t: narrow(new, t.dtype))
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
                t.copy_(back(stand_in, t))

    def compute_in_float64(
        self, op, plan: Plan, args: tuple, kwargs: dict, round_to: Round, mixed: bool
    ):
        """Run the stock operator in float64 and round its results; with ``mixed``, each to the
        dtype that the stock operator gives it, else to ``stock`` or its complex numbers."""
        if (
            plan.pointwise
            and isinstance(args[0], torch.Tensor)
            and args[0].is_cpu
            and args[0].numel() > _PIECE
            and self.stock is not torch.float64
        ):
            result = self._compute_by_pieces(op, args, kwargs)
            if result is not None:
                return result
        return self._compute_whole(op, plan, args, kwargs, round_to, mixed)

    def _compute_by_pieces(self, op, args: tuple, kwargs: dict) -> torch.Tensor | None:
        """Do the same for a large tensor in pieces, so that the float64 values stay in cache.
        Return None where operands differ in layout."""
        first = args[0]
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if any(
            t.dtype is not self.stock or t.shape != first.shape or not t.is_contiguous()
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
                return self.round_number(value)

            wide_result = op(*map(piece, args), **{k: piece(v) for k, v in kwargs.items()})
            if not isinstance(wide_result, torch.Tensor) or wide_result.dtype is not torch.float64:
                return None
            if self.native:
                self.enter(results[at : at + m]).copy_(wide_result)
            else:
                results[at : at + m].copy_(self.round_result(wide_result))
        return out

    def _compute_whole(
        self, op, plan: Plan, args: tuple, kwargs: dict, round_to: Round, mixed: bool
    ):
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
        is_double = self.stock is torch.float64

        def wide(t: torch.Tensor) -> torch.Tensor:
            return t.to(self.odd) if exact else t

        def enter(value):
            if isinstance(value, torch.Tensor):
                # A Python number next to tensors of another dtype.
                if value.dtype is torch.float64 and value.dim() == 0 and not is_double:
                    return wide(value.to(torch.float32).to(value.dtype))
                if value.dtype in _WIDER:
                    stand_in = wide(self.widen_operand(value))
                    if stand_in is value and plan.written:  # compared with the old values later
                        stand_in = value.clone()
                    pairs.append((value, stand_in))
                    return stand_in
                if numbers:
                    return wide(value.to(torch.float64))
                return value
            if isinstance(value, torch.dtype):
                return _WIDER.get(value, value)
            return self.round_number(value)

        stock_dtypes = iter(find_dtypes(op, args, kwargs) if mixed else ())

        def leave(value):
            if not isinstance(value, torch.Tensor):
                return value
            dtype = next(stock_dtypes, self.stock)
            rounds = value.dtype in (torch.float64, torch.complex128, self.odd)
            if rounds and is_double and args and _are_alike(args[0], value):
                return keep_unchanged(value, args[0])
            return round_to(value, dtype) if rounds else value

        def keep_unchanged(value, before):
            """Round results of float64, but for elements that the operator left as they were."""
            return torch.where(value == before, before, round_to(value, before.dtype))

        def back(stand_in, t):
            if t.dtype in (torch.float64, torch.complex128) and _are_alike(t, stand_in):
                return keep_unchanged(stand_in, t)
            return round_to(stand_in, t.dtype)

        entered = [map_nested(a, enter) for a in args]
        named = {k: map_nested(v, enter) for k, v in kwargs.items()}
        results = op(*entered, **named)
        self._write_back(plan, entered, named, pairs, back)
        if plan.written and all(plan.results):
            return _replace_written(plan, results, args, kwargs)
        return _replace_written(plan, map_nested(results, leave), args, kwargs)


def _are_alike(operand: object, result: torch.Tensor) -> bool:
    is_tensor = isinstance(operand, torch.Tensor)
    return is_tensor and operand.shape == result.shape and operand.dtype is result.dtype


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
