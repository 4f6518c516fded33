"""Find targets of rounding by dtypes, formats, blocks, integers and names."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch

from .. import _C
from .._torch_version import FLOAT8_CASTS_SATURATE
from ..formats import naming
from ..formats.arguments import set_rounding
from ..formats.caches import clearable_cache
from ..formats.dtypes import builtin_dtypes, format_of
from ..formats.dtypes import dtype as dtype_of
from ..formats.spellings import ALIASES, AMBIGUOUS
from ..formats.tables import making
from . import blocks, integer_groups, integers, quantisers
from .base import (
    Target,
    check_clamped,
    check_dense,
    check_tensor,
    full_scale_of,
    is_careful,
    refuse_zero_point,
    round_scaled,
    saturate_format,
    scale_like,
)
from .block_targets import PRESETS
from .gradients import straight_through
from .grid import round_to_grid

__all__ = ["FormatTarget", "Target", "target"]

# The stock dtypes, and formats of the same numbers. Rounding to such a format rounds once;
# PyTorch's cast of float64 to the half types rounds twice.
_STOCK = {
    "float64": "e11m52",
    "float32": "e8m23",
    "float16": "e5m10",
    "bfloat16": "e8m7",
    "float8_e5m2": "e5m2",
    "float8_e4m3fn": "e4m3fn_saturate" if FLOAT8_CASTS_SATURATE else "e4m3fn",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
}
_STOCK_NAMES = {
    "fp64": "float64",
    "double": "float64",
    "binary64": "float64",
    "fp32": "float32",
    "float": "float32",
    "single": "float32",
    "binary32": "float32",
    "fp16": "float16",
    "half": "float16",
    "binary16": "float16",
    "bf16": "bfloat16",
}


@dataclass(frozen=True, repr=False)
class FormatTarget(Target):
    """The numbers of one format, each rounded by itself; a scale is optional."""

    format_name: str
    stock: str | None = None
    # Derived from the fields above, and stored for code that torch.compile traces.
    bits: int = field(init=False, compare=False)
    largest: float = field(init=False, compare=False)
    full_scale: float = field(init=False, compare=False)
    rounding: str = field(init=False, compare=False)
    tells_ends_apart: bool = field(init=False, compare=False)

    def __post_init__(self):
        fmt = self.format
        for name, value in {
            "bits": fmt.bits,
            "rounding": naming.mode_of_format(fmt),
            "tells_ends_apart": fmt.tells_ends_apart,
            "largest": fmt.largest,
            "full_scale": full_scale_of(fmt),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return self.stock or self.format_name

    @property
    def format(self) -> _C.Format:
        """A copy of the format."""
        return format_of(self.format_name)

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.stock) if self.stock else dtype_of(self.format_name)

    def with_rounding(self, mode: str | int) -> FormatTarget:
        fmt = self.format
        set_rounding(fmt, mode)
        return self if fmt == self.format else FormatTarget(naming.name_of_format(fmt))

    def quantize(
        self, x, *, scale=None, zero_point=None, rounding=None, generator=None, clamped="pass"
    ):
        check_tensor(x, self)
        refuse_zero_point(zero_point, self)
        cut = check_clamped(clamped)
        if scale is None and not cut:
            return round_to_grid(x, self.format_name, rounding, generator)
        check_dense(x, f"quantise to {self.name}")
        detached = x.detach()
        if scale is None:
            values, y = round_to_grid(detached, self.format_name, rounding, generator), detached
        else:
            factor = scale_like(scale, x)
            careful = is_careful(self.tells_ends_apart, self.rounding, rounding)
            values, y = round_scaled(
                detached.to(factor.dtype), self.format_name, factor, careful, rounding, generator
            )
        return straight_through(x, values, ~(y.abs() > self.largest) if cut else None)


@functools.lru_cache(maxsize=1024)
def saturate_target(original: Target) -> Target:
    """Return the saturating target of a float format that would give infinities or NaN; others as
    they are.

    A scale taken from other tensors needs this, as in float8 training (Micikevicius et al., arXiv
    2209.05433, section 4).
    """
    if not isinstance(original, FormatTarget):
        return original
    fmt = original.format
    if fmt.kind != _C.Kind.float or fmt.overflow != _C.Overflow.ieee:
        return original
    return FormatTarget(naming.name_of_format(saturate_format(fmt)))


@clearable_cache
def carrier_of(dtype: torch.dtype) -> torch.dtype:
    """Return the format dtype with a stock dtype's numbers. This package's kernels add up its
    products by a policy."""
    return dtype_of(_STOCK[str(dtype).removeprefix("torch.")])


def shared_scale(name: str) -> Target | None:
    """Parse a name of blocks or integers, which ``torch_dtypes.dtype`` does not know; None if it is
    no such name."""
    parts = naming.split_rounding(name)
    return integers.parse(*parts) or integer_groups.parse(*parts) or blocks.parse(*parts)


@functools.lru_cache(maxsize=1024)
def _of_name(name: str) -> Target:
    plain = naming.spell(name.removeprefix("torch."))
    plain = _STOCK_NAMES.get(plain, plain)
    if plain in _STOCK:
        return FormatTarget(_STOCK[plain], plain)
    if (shared := shared_scale(plain)) is not None:
        return shared
    try:
        return FormatTarget(naming.name_of_format(format_of(plain)))
    except ValueError as error:
        if naming.parse(naming.by_parameters(naming.split_rounding(plain)[0])):
            raise  # such a name, with impossible parameters
        names, hint = [*known_names()], naming.hint(plain)
        what = naming.nearest_names(plain, names) or f"; names are {', '.join(map(repr, names))}"
        meant = hint if hint.endswith("?") else what + "."
        raise ValueError(
            f"expected the name of something to round to, but got {name!r}{meant} Formats by "
            "their parameters are names too: 'posit12es1', 'e5m5', 'e4m3fn_saturate', "
            f"'fixed8_8', 'q43_stochastic'{hint if meant is not hint else ''}"
        ) from error


def target_of_file(name: str) -> Target:
    """Return the target of a name in a file. Such a name must not import a module, as that of a
    user's quantiser does."""
    return _of_name(name)


def target_of_chop(D: object) -> Target | None:
    """Return the target of ``chop`` unless it is one format; None for a format or an unknown
    name."""
    if isinstance(D, Target):
        return D
    if not isinstance(D, str):
        return None
    if (own := quantisers.find(D)) is not None:
        return own
    try:
        plain = naming.spell(D.removeprefix("torch."))
    except ValueError:  # ambiguous: format_of says so
        return None
    if (blocks_or_integers := shared_scale(plain)) is not None:
        return blocks_or_integers
    try:
        format_of(D)
    except ValueError:
        try:
            return target(D)  # a stock dtype's name, "posit<12,1>"
        except ValueError:
            return None
    return None


def known_names() -> tuple[str, ...]:
    """List the names without parameters, and examples of those with parameters."""
    formats = (*(_C.name_of(d) for d in builtin_dtypes()), *_STOCK, *ALIASES, *making.known_names())
    return (*formats, "int8", "uint8", "int4", "uint4", "int16", "int4_group128", *PRESETS, "bfp8")


@making.ask_before_naming
def is_taken(name: str) -> bool:
    """Whether a name already means a format, blocks, integers, an object of torch, or several of
    these."""
    if hasattr(torch, name) or name in AMBIGUOUS or naming.hint(name):
        return True
    try:
        return bool(target(name))
    except ValueError:
        return bool(naming.parse(name))  # with impossible parameters


class _Traced:
    """Targets as attributes, by name: torch.compile treats names as constants, but no other results
    of functions."""


_TRACED = _Traced()


def _traced_name(value: str | torch.dtype) -> str:
    try:
        result = target(value)
    except (TypeError, ValueError) as error:
        result = error
    setattr(_TRACED, str(value), result)
    return str(value)


_traced_name._dynamo_marked_constant = True


def _means_something(name: str) -> bool:
    try:
        return bool(target(name))
    except ValueError:
        return False


def target(value: Target | torch.dtype | _C.Format | str | quantisers.Quantiser) -> Target:
    """Return the target of rounding for a dtype, a format or a name: ``target("q43").quantize(x)``.

    Args:
        value: a dtype of this package or a stock floating dtype; a format; a block or integer
            format; a target, which is returned; or a name. Names are all that
            ``torch_dtypes.dtype`` takes, ``"posit<12,1>"``, ``"float<5,6>"``, ``"fixed<8,8>"``, and
            those of stock dtypes (``"float16"``, ``"bf16"``). fp16, bf16, fp32, fp64, half, single,
            double and binary16, 32, 64 mean the stock dtypes here. A quantiser of your own is an
            object or a class with ``quantize(x, *, axis, generator, rounding)``, or its name
            ``"package.module:name"`` (docs/how-to/own-quantiser.md).

    Raises:
        TypeError: a value of another type.
        ValueError: an unknown name (the message lists the nearest), or impossible parameters.

    Example::

        >>> torch_dtypes.target("posit<12,1>")
        target('posit12es1')
        >>> torch_dtypes.target(torch.q43).quantize(torch.tensor([1.3, 700.0]), scale=4.0)
        tensor([  1.2500, 704.0000])
    """
    if isinstance(value, Target):
        return value
    if torch.compiler.is_dynamo_compiling() and isinstance(value, (str, torch.dtype)):
        return getattr(_TRACED, _traced_name(value))
    if isinstance(value, str):
        return quantisers.find(value) or _of_name(value)
    if isinstance(value, torch.dtype):
        if (name := str(value).removeprefix("torch.")) in _STOCK:
            return FormatTarget(_STOCK[name], name)
        if (fmt := _C.format_of(value)) is None:
            hint = (
                "; for integers, use a name such as 'int8'"
                if not (value.is_floating_point or value.is_complex)
                else ""
            )
            raise TypeError(
                f"expected a dtype of this package or a stock floating one, but got {value}{hint}"
            )
        return FormatTarget(naming.name_of_format(fmt))
    if isinstance(value, _C.Format):
        return FormatTarget(naming.name_of_format(value))
    if quantisers.is_quantiser(value):
        return quantisers.wrap(value, _means_something)
    raise TypeError(
        "expected a dtype, a format, a block or integer format, a quantiser or a name to round "
        f"to, but got {value!r}"
    )
