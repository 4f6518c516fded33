"""What every target shares: the scale before and after rounding, and the gradient.

With a scale s a value x becomes round(x * (1/s)) * s. The reciprocal, the product before and the
product after are each rounded to nearest even in the compute type: float32 for tensors of at most
32 bits, float64 for float64 ones. That is what float8 training and fake quantisation compute
(Micikevicius et al., arXiv 2209.05433, section 4; torch.fake_quantize_per_tensor_affine); where s
is a power of two, all three are exact and the target's rounding is the only one.
"""

from __future__ import annotations

import math

import torch

from .. import _C
from .._torch_version import is_exporting
from ..formats import naming
from ..formats.arguments import find_mode
from ..formats.code_types import values_of_codes
from ..formats.dtypes import format_of
from .grid import round_to_grid

COMPUTED = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}

CLAMPED = ("pass", "zero")

# Modes in which a product that underflows to 0 or overflows to infinity rounds as it would with its
# exact magnitude: in every format, and in those that saturate and have no number below 2^-64 (where
# the probability of going up from there is none that a random word has).
_MODES = _C.Rounding.__members__.items()
INDIFFERENT = tuple(name for name, mode in _MODES if not (mode.draws or mode.sees_inexact))
INDIFFERENT_IN_NARROW = tuple(name for name, mode in _MODES if not mode.lifts_traces)


def saturates(fmt: _C.Format) -> bool:
    """Whether a table's outermost values take all finite numbers beyond them."""
    beyond = torch.tensor(
        [torch.finfo(torch.float64).max, torch.finfo(torch.float64).min],
        dtype=torch.float64,
        device="cpu",
    )
    return bool(_C.decode_exact(fmt, _C.encode_exact(fmt, beyond)).isfinite().all())


def full_scale_of(fmt: _C.Format) -> float:
    """The number to which a scale brings the largest magnitude: the format's largest, but of
    tapered formats the end of their finest range.

    From 1/useed to useed = 2^2^es a posit has the most digits, and each binade beyond costs some:
    next to maxpos there is one number every 2^es binades. So the code is the one below useed's, 010
    and ones: es exponent bits, as far as there is room, and the fraction. A takum has the most from
    1/2 to 2, a logarithmic one from 1/sqrt(e) to sqrt(e) (Hunhold, arXiv 2404.18603). Of a table it
    is the largest number whose ratio to the one below has less than twice the least logarithm: by
    up to that it varies within a float's binade.
    """
    if fmt.kind == _C.Kind.takum:
        return 2.0
    if fmt.kind == _C.Kind.table:
        return _finest_of_table(fmt)
    if fmt.kind != _C.Kind.posit or fmt.bits < 3:
        return fmt.largest
    exponent_bits = min(fmt.es, fmt.bits - 3)
    fraction_bits = fmt.bits - 3 - exponent_bits
    exponent = ((1 << exponent_bits) - 1) << fmt.es - exponent_bits
    return math.ldexp((2 << fraction_bits) - 1, exponent - fraction_bits)


def _finest_of_table(fmt: _C.Format) -> float:
    values = values_of_codes(fmt)
    values = values[values.isfinite() & (values > 0)].unique()
    if len(values) < 3:
        return fmt.largest
    steps = values.log().diff()
    return values[1:][steps < 2 * steps.min() * (1 - 1e-12)].max().item()


def saturating(fmt: _C.Format) -> _C.Format:
    """The format in which what is beyond the largest number becomes it."""
    if fmt.kind == _C.Kind.table:
        if not saturates(fmt):
            if naming.parse(held := f"{fmt.table_name}_saturate"):  # a float's
                held = format_of(held)
                held.rounding, held.random_bits, held.few_bits = (
                    fmt.rounding,
                    fmt.random_bits,
                    fmt.few_bits,
                )
                return held
            name = naming.name_of_format(fmt)
            raise ValueError(
                "expected a table of values whose outermost ones take what is beyond them, but "
                f"got {name}, which overflows: make it with "
                "overflow='saturate'"
            )
    elif fmt.kind == _C.Kind.posit:
        fmt.infinity = _C.Infinity.saturate
    else:
        fmt.overflow = _C.Overflow.saturate
    return fmt


def check_tensor(x: object, target: Target) -> None:
    if not isinstance(x, torch.Tensor):
        hint = "torch_dtypes.chop takes other arrays and numbers"
        raise TypeError(
            f"expected a torch tensor to quantise to {target.name}, but got {type(x).__name__}; "
            f"{hint}"
        )
    if x.is_complex():  # the name, which a graph could not trace, is for the error
        refuse_complex(x, f"to quantise to {target.name}")
    if x.dtype not in COMPUTED:
        hint = "it is rounded already; " if _C.format_of(x.dtype) is not None else ""
        raise TypeError(
            "expected a tensor of float16, bfloat16, float32 or float64 to quantise to "
            f"{target.name}, but got {x.dtype}: {hint}"
            "cast it, for example by x.float()"
        )


def check_dense(x: torch.Tensor, what: str) -> None:
    """An error for tensors whose numbers do not all lie in memory, which no operator that looks at
    several of them takes."""
    # Dynamo knows no layout within a backward function; its tensors are strided.
    if not torch.compiler.is_dynamo_compiling() and (x.layout is not torch.strided or x.is_nested):
        kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise TypeError(
            f"expected a dense tensor to {what}, but got a {kind} one; convert it, for example by "
            "x.to_dense(), or give its values"
        )


def refuse_complex(x: object, purpose: str) -> None:
    if isinstance(x, torch.Tensor) and x.is_complex():
        raise TypeError(
            f"expected a tensor of real numbers {purpose}, but got one of {x.dtype}: formats have "
            "no complex ones; round torch.view_as_real(x), and let a rule None leave a layer of "
            "complex numbers as it is"
        )


def refuse_zero_point(zero_point: object, target: Target) -> None:
    if zero_point is not None:
        raise ValueError(
            f"expected no zero_point with {target.name}, but got {zero_point!r}: integers alone "
            "have one, as 'int8_affine'"
        )


def check_clamped(clamped: object) -> bool:
    """Whether the gradient of clamped values is 0."""
    if clamped not in CLAMPED:
        raise ValueError(
            f"expected clamped to be 'pass' (straight through) or 'zero', but got {clamped!r}"
        )
    return clamped == "zero"


def scale_like(scale: object, x: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """A scale as a tensor of x's compute type that broadcasts to x; along ``axis`` where it has one
    dimension and axis is given."""
    dtype = COMPUTED[x.dtype]
    if not isinstance(scale, torch.Tensor):
        if isinstance(scale, bool) or not isinstance(scale, (int, float)):
            raise TypeError(
                f"expected a scale as a positive number or a floating tensor, but got {scale!r}"
            )
        made = torch.tensor(scale, dtype=dtype, device=x.device)
        smallest = torch.finfo(dtype).tiny
        if not smallest <= scale <= torch.finfo(dtype).max:
            raise ValueError(
                f"expected a scale from {smallest:.3g} to {torch.finfo(dtype).max:.3g}, but got "
                f"{scale!r}"
            )
        return made
    check_dense(scale, "scale by")
    if scale.is_meta and not x.is_meta:
        raise ValueError(
            "expected a scale with numbers, but got one on the device meta, which has none"
        )
    if scale.dtype not in COMPUTED:
        raise TypeError(
            "expected a scale as a positive number or a tensor of a stock floating dtype, but "
            f"got one of {scale.dtype}"
        )
    return broadcasting(scale.detach().to(dtype), x, "scale", axis)


def broadcasting(t: torch.Tensor, x: torch.Tensor, what: str, axis: int | None) -> torch.Tensor:
    """``t`` in a shape that broadcasts to x's: one dimension lies along ``axis``, where that is
    given."""
    if t.dim() == 1 and axis is not None:
        if not -x.dim() <= axis < x.dim():
            raise ValueError(
                f"expected a tensor with dimension {axis} (the format's axis), but got one of "
                f"shape {tuple(x.shape)}"
            )
        if t.numel() not in (1, x.shape[axis]):
            raise ValueError(
                f"expected a {what} of {x.shape[axis]} numbers along axis {axis} of shape "
                f"{tuple(x.shape)}, but got {t.numel()}"
            )
        shape = [1] * x.dim()
        shape[axis] = t.numel()
        return t.reshape(shape)
    sizes = zip(reversed(t.shape), reversed(x.shape), strict=False)
    if t.dim() > x.dim() or any(n not in (1, m) for n, m in sizes):
        raise ValueError(
            f"expected a {what} that broadcasts to shape {tuple(x.shape)}, but got one of shape "
            f"{tuple(t.shape)}"
        )
    return t


def times(x: torch.Tensor, inverse: torch.Tensor, careful: bool) -> torch.Tensor:
    """x * inverse. Careful: what is finite and not 0 stays so, with its sign."""
    y = x * inverse
    if not careful:
        return y
    limits = torch.finfo(y.dtype)
    y = torch.where(
        (y == 0) & (x != 0), torch.copysign(torch.full_like(y, limits.smallest_normal), x), y
    )
    return torch.where(
        torch.isinf(y) & torch.isfinite(x) & torch.isfinite(inverse),
        torch.copysign(torch.full_like(y, limits.max), x),
        y,
    )


def is_eager() -> bool:
    """Whether neither torch.compile nor torch.func looks on. Else there is no shorter way:
    ``clamp_`` has no batching rule, for example."""
    return (
        not torch.compiler.is_dynamo_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def is_recorded() -> bool:
    """Whether torch.jit.trace or torch.export looks on, which record operators, and nothing else
    that a gradient goes by."""
    if is_exporting():
        return True
    return not torch.compiler.is_dynamo_compiling() and torch._C._get_tracing_state() is not None


def is_careful(
    always: bool, mode: str, rounding: str | int | None, indifferent: tuple[str, ...] = INDIFFERENT
) -> bool:
    """Whether rounding tells a tiny product from 0, or a huge one from infinity: always (by the
    format), or by its mode."""
    if always or torch.compiler.is_dynamo_compiling():
        return True  # a block's mode is known only when the graph runs
    return (find_mode(rounding) or mode) not in indifferent


def rounded(
    x: torch.Tensor, name: str, scale: torch.Tensor, careful: bool, rounding, generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """x (detached, of the compute type) on the grid of a format times the scale, and x * (1 /
    scale)."""
    y = times(x, scale.reciprocal(), careful)
    return round_to_grid(y, name, rounding, generator) * scale, y


class Target:
    """What numbers are rounded to: a number format, blocks with scales of their own, or integers.
    Immutable, hashable, picklable.

    ``torch_dtypes.target(value)`` makes one. Equal targets have equal names, and
    ``target(t.name) == t``.

    Attributes:
        name: the canonical name, which says everything: ``"q43"``, ``"mxfp8_e4m3"``, ``"int8"``.
        bits: of one element's code, without scales.
        largest: the largest number. Of blocks: the largest element, times the largest scale of a
            block where a tensor's lies above it.
        full_scale: to which a scale brings a tensor's largest magnitude: ``largest``, but of posits
            the largest with the shortest regime, the end of the range in which they have the most
            digits (3.875 in posit8es1).
        rounding: the rounding mode, where no argument and no block says another.

    Example::

        >>> t = torch_dtypes.target("mxfp8_e4m3")
        >>> t.name, t.bits, t.bits_per_value
        ('mxfp8_e4m3', 8, 8.25)
    """

    name: str
    bits: int
    largest: float
    full_scale: float
    rounding: str

    __slots__ = ()

    @property
    def bits_per_value(self) -> float:
        """Bits that one number takes, its share of the target's own scales included (8.25 in
        ``"mxfp8_e4m3"``)."""
        return float(self.bits)

    @property
    def needs_scale(self) -> bool:
        """Whether ``quantize`` must be given a scale."""
        return False

    @property
    def dtype(self) -> torch.dtype | None:
        """The torch dtype that has these numbers, ours (made if there is none yet) or stock; None
        where there is none."""
        return None

    def with_rounding(self, mode: str | int) -> Target:
        """The same numbers with another rounding mode."""
        raise NotImplementedError

    def quantize(
        self,
        x: torch.Tensor,
        *,
        scale: float | torch.Tensor | None = None,
        zero_point: int | torch.Tensor | None = None,
        rounding: str | int | None = None,
        generator: torch.Generator | None = None,
        clamped: str = "pass",
    ) -> torch.Tensor:
        """x rounded to the target's numbers times the scale: round(x / scale) * scale, in x's dtype
        and shape.

        The quotient is x times the scale's reciprocal, each rounded to nearest even in the compute
        type: float32 (float64 for a float64 x). So is the product with the scale. With a power of
        two all three are exact, as long as they stay in range, and each number is rounded once.
        float16 and bfloat16 are computed in float32, and the result rounds to them where they lack
        it. NaN stays NaN, but where the target says otherwise.

        The gradient is x's own, straight through; none goes to the scale.

        Args:
            x: a tensor of float16, bfloat16, float32 or float64.
            scale: what the target's 1 stands for: a positive number, or a floating tensor that
                broadcasts to x, whose numbers are not looked at: NaN or 0 among them makes NaN.
            zero_point: of integers only: the integer that stands for 0.
            rounding: one of ``ROUNDING_MODES`` or Pychop's number; default: that of a
                ``with torch_dtypes.rounding(...)`` block, else the target's own.
            generator: a CPU generator for stochastic modes; default: torch's.
            clamped: ``"pass"``: the gradient also of values beyond the target's range. ``"zero"``:
                none of them.

        Raises:
            TypeError: x or scale is none of the above.
            ValueError: a scale that is not positive, does not broadcast, or is missing where
                ``needs_scale``; a zero point where there is none.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"target({self.name!r})"
