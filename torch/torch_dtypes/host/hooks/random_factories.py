"""Hooks of random factories: PyTorch's numbers from the same seed, rounded once to a format."""

from __future__ import annotations

import contextlib

import torch

from ... import _C
from ...policies.rounding import rounding_block
from ..table import Hook, Kind
from .factories import FROM_NOTHING, FROM_TENSOR, finish, for_stock, take, take_all, through_float64
from .trampolines import When


def round_draws(name: str):
    """Draw PyTorch's numbers from the same seed in _drawing_type(), and round them once."""

    def factory(stock, *args, **kwargs):
        if for_stock(kwargs):
            return stock(*args, **kwargs)
        dtype, *rest = take_all(kwargs)
        values = stock(*args, dtype=_drawing_type(dtype), **kwargs)
        if name == "randint":
            values = _clamp_integers(values, dtype, "randint", args, kwargs)
        with _words_from(kwargs.get("generator")):
            return finish(_round_uniform(values, dtype) if name == "rand" else values, dtype, *rest)

    factory.__name__ = name
    return factory


@contextlib.contextmanager
def _words_from(generator: torch.Generator | None):
    """Draw the random words of rounding from the numbers' own generator."""
    before = _C.set_word_source(generator)
    if generator is None or before is not None:  # a block has its own generator
        _C.set_word_source(before)
    try:
        yield
    finally:
        _C.set_word_source(before)


def _drawing_type(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or float64 for formats with more digits.

    So runs in a narrow format and in float32 draw the same numbers.
    """
    return torch.float32 if _C.format_of(dtype).significand_bits <= 24 else torch.float64


def _round_uniform(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round numbers of [0, 1) toward zero, so that 1 never occurs.

    Numbers below a posit's smallest become 0, against the posits' own rule.
    """
    values = _zero_below_least(values, dtype)
    with rounding_block("toward_zero"):
        return values.to(dtype)


def _clamp_integers(
    values: torch.Tensor, dtype: torch.dtype, function: str, args: tuple, kwargs: dict
) -> torch.Tensor:
    """Clamp integers from [low, high) to numbers that rounding leaves in this range.

    The two ends are the arguments before a size.
    """
    ends = [x for x in args if not isinstance(x, (tuple, list))]
    high = kwargs["high"] if "high" in kwargs else ends.pop()
    low = kwargs["low"] if "low" in kwargs else (ends or [0]).pop()
    return values.clamp_(*_C.drawn_integers(dtype, int(low), int(high), function))


def permutation(stock, *args, **kwargs):
    """Round randperm in float64 once: float32 may lack some of the integers."""
    n, dtype = args[0] if args else kwargs.get("n"), kwargs.get("dtype")
    if isinstance(n, int) and dtype is not None and _C.format_of(dtype) is not None:
        _C.expect_permutation(dtype, n)
    return through_float64("randperm")(stock, *args, **kwargs)


def _zero_below_least(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    least = _C.format_of(dtype).least_uniform(24 if values.dtype is torch.float32 else 53)
    return torch.where(values < least, 0.0, values) if least > 0 else values


def refuse_sobol(engine, n=1, out=None, dtype=None):
    """Raise: SobolEngine's points are below 1, and some would be rounded to 1."""
    asked = dtype or _C.get_default_format()
    formats = [
        d
        for d in (asked, engine._first_point.dtype)
        if d is not None and _C.format_of(d) is not None
    ]
    if formats:
        own = formats[0]
        raise NotImplementedError(
            "SobolEngine.draw: expected a stock dtype, and an engine made under one, but got "
            f"{own}; draw in float64, and round toward zero by torch_dtypes.chop(points, "
            f"{str(own)!r}, rounding='toward_zero').to({own})"
        )


def normal(stock, *args, **kwargs):
    """Run torch.normal: with numbers and a size it is a factory, and with tensors an operator.

    The operator takes no dtype=.
    """
    if any(isinstance(x, torch.Tensor) for x in (*args[:2], kwargs.get("mean"), kwargs.get("std"))):
        return stock(*args, **kwargs)
    return round_draws("normal")(stock, *args, **kwargs)


def round_draws_like(name: str):
    """Run rand_like and its kin for a stock or format tensor, in a format dtype."""

    def factory(stock, *args, **kwargs):
        self, *args = (kwargs.pop("input"), *args) if "input" in kwargs else args
        dtype, requires_grad, _ = take(kwargs)
        drawing, pinned = _drawing_type(dtype), kwargs.pop("pin_memory", False)
        shaped = torch.empty_like(self, dtype=drawing) if _C.is_format_tensor(self) else self
        values = stock(shaped, *args, dtype=drawing, **kwargs)
        if name == "randint_like":
            values = _clamp_integers(values, dtype, name, args, kwargs)
        elif name == "rand_like":
            values = _round_uniform(values, dtype)
        return finish(values, dtype, requires_grad, None, pinned)

    factory.__name__ = name
    return factory


HOOKS = [
    Hook("torch.normal", Kind.ASKING, normal, FROM_NOTHING),
    *(
        Hook(f"torch.{name}", Kind.ASKING, round_draws(name), FROM_NOTHING)
        for name in ("rand", "randn")
    ),
    Hook("torch.quasirandom.SobolEngine.draw", Kind.ASKED, refuse_sobol),
    Hook("torch.randint", Kind.ASKING, round_draws("randint"), When.DTYPE_KEYWORD),
    Hook("torch.randperm", Kind.ASKING, permutation, When.DTYPE_KEYWORD),
    *(
        Hook(f"torch.{name}", Kind.ASKING, round_draws_like(name), FROM_TENSOR)
        for name in ("rand_like", "randn_like", "randint_like")
    ),
]
