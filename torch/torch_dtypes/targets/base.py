"""The base of all targets: the scale before and after rounding, and the gradient.

With a scale s a value x becomes round(x * (1/s)) * s. The reciprocal and both products are each
rounded to nearest even in the compute dtype. That is float32 for tensors of at most 32 bits,
float64 for float64 tensors. Float8 training and fake quantisation compute the same (Micikevicius et
al., arXiv 2209.05433, section 4; torch.fake_quantize_per_tensor_affine). Where s is a power of two,
all three are exact, and only the target rounds.
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

# Modes that need no exact magnitude of a product that underflows to 0 or overflows to infinity:
# they round the 0 or the infinity to the same number. INDIFFERENT holds for every format,
# INDIFFERENT_IN_NARROW for formats that saturate and have no number below 2^-64: there, no random
# word is small enough to round up from below that.
_MODES = _C.Rounding.__members__.items()
INDIFFERENT = tuple(name for name, mode in _MODES if not (mode.draws or mode.sees_inexact))
INDIFFERENT_IN_NARROW = tuple(name for name, mode in _MODES if not mode.lifts_traces)


def saturates(fmt: _C.Format) -> bool:
    """Whether a table saturates: all finite numbers beyond its outermost values become those."""
    beyond = torch.tensor(
        [torch.finfo(torch.float64).max, torch.finfo(torch.float64).min],
        dtype=torch.float64,
        device="cpu",
    )
    return bool(_C.decode_exact(fmt, _C.encode_exact(fmt, beyond)).isfinite().all())


def full_scale_of(fmt: _C.Format) -> float:
    """Return the number to which a scale brings the largest magnitude: the format's largest, or for
    tapered formats the end of their finest range.

    A posit has the most digits from 1/useed to useed = 2^2^es. Each binade beyond costs some: next
    to maxpos there is one number every 2^es binades. So the result is the number below useed. Its
    code is 010 and then ones: es exponent bits, as far as there is room, and the fraction. A takum
    has the most digits from 1/2 to 2, a logarithmic format from 1/sqrt(e) to sqrt(e) (Hunhold,
    arXiv 2404.18603). For a table it is the largest number whose log distance to the number below
    is less than twice the smallest distance. (In a float's binade that distance varies by a factor
    up to 2.)
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


def saturate_format(fmt: _C.Format) -> _C.Format:
    """Return the format in which numbers beyond the largest one become the largest."""
    if fmt.kind == _C.Kind.table:
        if not saturates(fmt):
            if naming.parse(held := f"{fmt.table_name}_saturate"):  # the name of a float format
                held = format_of(held)
                held.rounding, held.random_bits, held.few_bits = (
                    fmt.rounding,
                    fmt.random_bits,
                    fmt.few_bits,
                )
                return held
            name = naming.name_of_format(fmt)
            raise ValueError(
                f"expected a table that saturates, but got {name}, which overflows; make it with "
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
    if x.is_complex():  # the error alone builds the name, which no graph can trace
        refuse_complex(x, f"to quantise to {target.name}")
    if x.dtype not in COMPUTED:
        hint = "it is rounded already; " if _C.format_of(x.dtype) is not None else ""
        raise TypeError(
            "expected a tensor of float16, bfloat16, float32 or float64 to quantise to "
            f"{target.name}, but got {x.dtype}: {hint}"
            "cast it, for example by x.float()"
        )


def check_dense(x: torch.Tensor, what: str) -> None:
    """Refuse sparse and nested tensors, which no operator that reads several numbers at once
    takes."""
    # Within a backward function Dynamo knows no layout; the tensors there are strided.
    if not torch.compiler.is_dynamo_compiling() and (x.layout is not torch.strided or x.is_nested):
        kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise TypeError(
            f"expected a dense tensor to {what}, but got a {kind} one; convert it, for example by "
            "x.to_dense(), or give its values"
        )


def refuse_complex(x: object, purpose: str) -> None:
    if isinstance(x, torch.Tensor) and x.is_complex():
        raise TypeError(
            f"expected a tensor of real numbers {purpose}, but got one of {x.dtype}: formats hold "
            "real numbers; round torch.view_as_real(x), or let a rule None leave a layer of "
            "complex numbers as it is"
        )


def refuse_zero_point(zero_point: object, target: Target) -> None:
    if zero_point is not None:
        raise ValueError(
            f"expected no zero_point with {target.name}, but got {zero_point!r}: only integers "
            "have one, such as 'int8_affine'"
        )


def check_clamped(clamped: object) -> bool:
    """Check ``clamped``, and return whether clamped values have the gradient 0."""
    if clamped not in CLAMPED:
        raise ValueError(
            f"expected clamped to be 'pass' (straight through) or 'zero', but got {clamped!r}"
        )
    return clamped == "zero"


def scale_like(scale: object, x: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """Return a scale as a tensor of x's compute dtype that broadcasts to x. A 1-d scale lies along
    ``axis`` if that is given."""
    dtype = COMPUTED[x.dtype]
    if not isinstance(scale, torch.Tensor):
        if isinstance(scale, bool) or not isinstance(scale, (int, float)):
            raise TypeError(
                f"expected a scale as a positive number or a floating tensor, but got {scale!r}"
            )
        factor = torch.tensor(scale, dtype=dtype, device=x.device)
        smallest = torch.finfo(dtype).tiny
        if not smallest <= scale <= torch.finfo(dtype).max:
            raise ValueError(
                f"expected a scale from {smallest:.3g} to {torch.finfo(dtype).max:.3g}, but got "
                f"{scale!r}"
            )
        return factor
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
    return reshape_to_broadcast(scale.detach().to(dtype), x, "scale", axis)


def reshape_to_broadcast(
    t: torch.Tensor, x: torch.Tensor, what: str, axis: int | None
) -> torch.Tensor:
    """Reshape ``t`` so that it broadcasts to x. A 1-d tensor lies along ``axis`` if that is
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
    """Multiply x by ``inverse``. With ``careful``, a finite product of a number other than 0 stays
    finite and nonzero, with its sign."""
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
    """Whether neither torch.compile nor torch.func sees the operators. Otherwise short cuts are
    out: ``clamp_``, for example, has no batching rule."""
    return (
        not torch.compiler.is_dynamo_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def is_recorded() -> bool:
    """Whether torch.jit.trace or torch.export records. They record operators only, and nothing else
    that a gradient could depend on."""
    if is_exporting():
        return True
    return not torch.compiler.is_dynamo_compiling() and torch._C._get_tracing_state() is not None


def is_careful(
    always: bool, mode: str, rounding: str | int | None, indifferent: tuple[str, ...] = INDIFFERENT
) -> bool:
    """Whether rounding tells a tiny product from 0, or a huge one from infinity: always in some
    formats, in others by the mode."""
    if always or torch.compiler.is_dynamo_compiling():
        return True  # only the graph's run knows the mode of a block
    return (find_mode(rounding) or mode) not in indifferent


def round_scaled(
    x: torch.Tensor, name: str, scale: torch.Tensor, careful: bool, rounding, generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Round x (detached, in the compute dtype) to the format's grid times the scale. Return that
    and x * (1 / scale)."""
    y = times(x, scale.reciprocal(), careful)
    return round_to_grid(y, name, rounding, generator) * scale, y


class Target:
    """A target of rounding: a number format, blocks with their own scales, integers, or a user's
    quantiser. Immutable, hashable, picklable.

    ``torch_dtypes.target(value)`` makes a target. Equal targets have equal names, and
    ``target(t.name) == t``.

    Attributes:
        name: the canonical name, which tells all parameters: ``"q43"``, ``"mxfp8_e4m3"``,
            ``"int8"``.
        bits: the bits of one element's code, without scales. NaN if a user's quantiser does not
            tell them.
        largest: the largest number. For blocks it is the largest element, times the largest block
            scale if the tensor has a scale too.
        full_scale: the number to which a scale brings a tensor's largest magnitude: ``largest``,
            but for posits the largest with the shortest regime. There ends the range in which they
            have the most digits (3.875 in posit8es1).
        rounding: the rounding mode, unless an argument or a block gives another.

    Example::

        >>> t = torch_dtypes.target("mxfp8_e4m3")
        >>> t.name, t.bits, t.bits_per_value
        ('mxfp8_e4m3', 8, 8.25)
    """

    name: str
    bits: float
    largest: float
    full_scale: float
    rounding: str

    __slots__ = ()

    @property
    def bits_per_value(self) -> float:
        """Bits of one number, its share of the target's scales included (8.25 in
        ``"mxfp8_e4m3"``)."""
        return float(self.bits)

    @property
    def needs_scale(self) -> bool:
        """Whether ``quantize`` must be given a scale."""
        return False

    @property
    def dtype(self) -> torch.dtype | None:
        """The torch dtype with these numbers: a stock dtype or a format dtype, registered when
        first needed. None if there is none."""
        return None

    def with_rounding(self, mode: str | int) -> Target:
        """Return the target of the same numbers with another rounding mode."""
        raise NotImplementedError

    def along(self, axis: int) -> Target:
        """Return the target for a product that reduces along this dimension."""
        return self

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
        """Round x to the target's numbers times the scale: round(x / scale) * scale, in x's dtype
        and shape.

        The quotient is x times the scale's reciprocal. Both, and the product with the scale, are
        rounded to nearest even in the compute dtype: float32 (float64 for a float64 x). With a
        power of two all three are exact, as long as they stay in range, and each number is rounded
        once. float16 and bfloat16 are computed in float32, and a result that they lack rounds to
        them. NaN stays NaN, unless the target says otherwise.

        The gradient of x is the identity's (straight through); the scale gets none.

        Args:
            x: a tensor of float16, bfloat16, float32 or float64.
            scale: the value of the target's 1: a positive number, or a floating tensor that
                broadcasts to x. A tensor's numbers are not checked: NaN or 0 among them gives NaN.
            zero_point: for integers only: the integer whose value is 0.
            rounding: one of ``ROUNDING_MODES`` or Pychop's number; default: the mode of a ``with
                torch_dtypes.rounding(...)`` block, else the target's own.
            generator: a CPU generator for stochastic modes; default: torch's.
            clamped: ``"pass"``: values beyond the target's range keep the gradient. ``"zero"``:
                their gradient is 0.

        Raises:
            TypeError: x or scale has another type.
            ValueError: a scale that is not positive, does not broadcast, or is missing where
                ``needs_scale``; a zero point for a target other than integers.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"target({self.name!r})"
