"""Random factories given one of our dtypes: what stock draws from the same seed, rounded once."""

from __future__ import annotations

import contextlib

import torch

from ... import _C
from ...policies.rounding import rounding_block
from ..table import Hook, Kind
from .factories import FROM_NOTHING, FROM_TENSOR, finish, for_stock, take, take_all, through_float64
from .trampolines import When


def drawn(name: str):
    """rand, randn, randint, ...: what stock draws from the same seed in the type that _drawing_type
    says, rounded once."""

    def factory(stock, *args, **kwargs):
        if for_stock(kwargs):
            return stock(*args, **kwargs)
        dtype, *rest = take_all(kwargs)
        values = stock(*args, dtype=_drawing_type(dtype), **kwargs)
        if name == "randint":
            values = _within(values, dtype, "randint", args, kwargs)
        with _words_of(kwargs.get("generator")):
            return finish(_below_one(values, dtype) if name == "rand" else values, dtype, *rest)

    factory.__name__ = name
    return factory


@contextlib.contextmanager
def _words_of(generator: torch.Generator | None):
    """Where rounding draws too, it draws from the same generator as the numbers."""
    before = _C.set_word_source(generator)
    if generator is None or before is not None:  # a block's own
        _C.set_word_source(before)
    try:
        yield
    finally:
        _C.set_word_source(before)


def _drawing_type(dtype: torch.dtype) -> torch.dtype:
    """float32, so that a run in a narrow format and one in float32 draw the same numbers; float64
    for formats with more digits."""
    return torch.float32 if _C.format_of(dtype).significand_bits <= 24 else torch.float64


def _below_one(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Uniform on [0, 1), rounded toward zero, so that 1 never comes; below a posit's smallest
    number that is 0, against posits' own rule."""
    values = _zero_below_least(values, dtype)
    with rounding_block("toward_zero"):
        return values.to(dtype)


def _within(
    values: torch.Tensor, dtype: torch.dtype, who: str, args: tuple, kwargs: dict
) -> torch.Tensor:
    """Integers drawn from [low, high), the arguments before a size, held to where rounding leaves
    them in it."""
    ends = [x for x in args if not isinstance(x, (tuple, list))]
    high = kwargs["high"] if "high" in kwargs else ends.pop()
    low = kwargs["low"] if "low" in kwargs else (ends or [0]).pop()
    return values.clamp_(*_C.drawn_integers(dtype, int(low), int(high), who))


def permutation(stock, *args, **kwargs):
    """randperm, by way of float64: of integers that float32 may not have."""
    n, dtype = args[0] if args else kwargs.get("n"), kwargs.get("dtype")
    if isinstance(n, int) and dtype is not None and _C.format_of(dtype) is not None:
        _C.expect_permutation(dtype, n)
    return through_float64("randperm")(stock, *args, **kwargs)


def _zero_below_least(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    least = _C.format_of(dtype).least_uniform(24 if values.dtype is torch.float32 else 53)
    return torch.where(values < least, 0.0, values) if least > 0 else values


def refuse_sobol(engine, n=1, out=None, dtype=None):
    """An error of SobolEngine.draw, whose points would be rounded to 1, which they never are."""
    asked = dtype or _C.get_default_format()
    if (
        found := next(
            (
                d
                for d in (asked, engine._first_point.dtype)
                if d is not None and _C.format_of(d) is not None
            ),
            None,
        )
    ) is not None:
        raise NotImplementedError(
            "SobolEngine.draw: expected a stock dtype, and an engine made under one, but got "
            f"{found}. Draw in float64, and round toward zero by torch_dtypes.chop(points, "
            f"{str(found)!r}, rounding='toward_zero').to({found})."
        )


def normal(stock, *args, **kwargs):
    """Given tensors it is an operator like any other, which takes no dtype=; given numbers and a
    size it is a factory."""
    if any(isinstance(x, torch.Tensor) for x in (*args[:2], kwargs.get("mean"), kwargs.get("std"))):
        return stock(*args, **kwargs)
    return drawn("normal")(stock, *args, **kwargs)


def drawn_like(name: str):
    """rand_like and its kin, of a tensor (stock or ours) given one of our dtypes."""

    def factory(stock, *args, **kwargs):
        self, *args = (kwargs.pop("input"), *args) if "input" in kwargs else args
        dtype, requires_grad, _ = take(kwargs)
        drawing, pinned = _drawing_type(dtype), kwargs.pop("pin_memory", False)
        shaped = torch.empty_like(self, dtype=drawing) if _C.is_format_tensor(self) else self
        values = stock(shaped, *args, dtype=drawing, **kwargs)
        if name == "randint_like":
            values = _within(values, dtype, name, args, kwargs)
        elif name == "rand_like":
            values = _below_one(values, dtype)
        return finish(values, dtype, requires_grad, None, pinned)

    factory.__name__ = name
    return factory


HOOKS = [
    Hook("torch.normal", Kind.ASKING, normal, FROM_NOTHING),
    *(Hook(f"torch.{name}", Kind.ASKING, drawn(name), FROM_NOTHING) for name in ("rand", "randn")),
    Hook("torch.quasirandom.SobolEngine.draw", Kind.ASKED, refuse_sobol),
    Hook("torch.randint", Kind.ASKING, drawn("randint"), When.DTYPE_KEYWORD),
    Hook("torch.randperm", Kind.ASKING, permutation, When.DTYPE_KEYWORD),
    *(
        Hook(f"torch.{name}", Kind.ASKING, drawn_like(name), FROM_TENSOR)
        for name in ("rand_like", "randn_like", "randint_like")
    ),
]
