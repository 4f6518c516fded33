"""Cards of number formats and of blocks: range, precision, values."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import torch

from ... import _C
from ...formats import naming
from ...formats.code_types import values_of_codes
from ...formats.dtypes import _PARAMETERS
from ...targets.base import Target
from ...targets.block_scales import scale_format
from ...targets.block_shapes import size_name
from ...targets.block_targets import BlockFormat
from ...targets.chop import chop
from ...targets.lookup import FormatTarget, target


@dataclass(frozen=True)
class Card:
    """A number format in figures.

    Attributes:
        name: the name as the caller gave it (``bf16``).
        canonical: the package's own name, which tells every parameter (``e8m7``).
        format: the format; ``rounding`` is the mode of casts.
        largest, smallest: the largest finite number and the smallest positive one; None for a table
            without one.
        smallest_normal: the smallest positive number of full precision; None for posits and fixed
            point, which have no such limit.
        epsilon: the distance from 1 to the next larger number; None if 1 is not a number of the
            format, or its largest.
        significant_bits: the most significant bits, the leading one included; of a table, by the
            distances of its positive numbers (0 without any).
        finite: the count of different numbers that a cast can give. infinities, nans: the counts of
            their codes.
        zeros: the count of 0 and -0.
        parameters: the arguments of the format's constructor, by name.

    Example::

        >>> c = torch_dtypes.card("posit8es1")
        >>> c.largest, c.smallest, c.significant_bits, c.nans
        (4096.0, 0.000244140625, 5, 1)
    """

    name: str
    canonical: str
    format: _C.Format
    largest: float
    smallest: float | None
    smallest_normal: float | None
    epsilon: float | None
    significant_bits: int
    finite: int
    zeros: int
    infinities: int
    nans: int
    parameters: tuple[tuple[str, str], ...]

    @property
    def bits(self) -> int:
        """Bits of a code, the sign included."""
        return self.format.bits

    @property
    def kind(self) -> str:
        """``posit``, ``float``, ``fixed``, ``takum`` or ``table``."""
        return self.format.kind.name

    @property
    def decades(self) -> float | None:
        """Dynamic range: log10(largest / smallest); None without positive numbers."""
        return (
            None if self.smallest is None else math.log10(self.largest) - math.log10(self.smallest)
        )

    def values(self) -> torch.Tensor:
        """Return the value of each code, in the order of codes: float64 of 2**bits elements.

        Raises:
            ValueError: a format of more than 16 bits.
        """
        if self.bits > 16:
            raise ValueError(
                f"expected a format of at most 16 bits to list its values, but got {self.name} of "
                f"{self.bits}"
            )
        return values_of_codes(self.format)

    def precision(self, exponents: torch.Tensor) -> torch.Tensor:
        """Return the significant bits, the leading one included, of numbers from 2**e up to
        2**(e+1): float64, one for each exponent.

        It is 1 + e - log2(the distance of two neighbours there), measured on the format. It is 0
        out of range, and where the binade has less than one number.
        """
        exponents = exponents.to(torch.float64)
        if self.smallest is None:
            return torch.zeros_like(exponents)
        x = torch.ldexp(torch.ones_like(exponents), exponents)
        x = torch.nextafter(x, torch.full_like(x, math.inf))
        plain = _C.Format(self.format)
        below, above = chop(x, plain, rounding="down"), chop(x, plain, rounding="up")
        gap = above - below
        exact = (exponents + 1075).clamp(max=53)  # where the format has every float64
        bits = torch.where(gap == 0, exact, 1 + exponents - torch.log2(gap))
        bits = torch.where((x > self.largest) | (x < self.smallest) | ~gap.isfinite(), 0.0, bits)
        # Within the last binade the next number may be out of range, so take the distance to the
        # one before.
        last = (x < self.largest) & ~above.isfinite()
        before = chop(torch.nextafter(below, -x), plain, rounding="down")
        bits = torch.where(last, 1 + exponents - torch.log2(below - before), bits)
        return torch.where(bits < 1, 0.0, bits)

    def exponents(self) -> torch.Tensor:
        """Return the exponents of the binades in which the format has numbers, from the smallest to
        the largest.

        Empty without positive numbers.
        """
        if self.smallest is None:
            return torch.arange(0)
        return torch.arange(math.frexp(self.smallest)[1] - 1, math.frexp(self.largest)[1])


@dataclass(frozen=True)
class BlockCard:
    """A block format in figures: an element format, times a scale that a block shares.

    Attributes:
        name, canonical: as in :class:`Card`. format: the block format.
        element: the card of the elements: the numbers of a block whose scale is 1.
        largest, smallest: the largest element times the largest scale, and the smallest positive
            ones. A tensor's scale comes on top.

    Example::

        >>> c = torch_dtypes.card("nvfp4")
        >>> c.element.largest, c.largest, c.bits
        (6.0, 2688.0, 4.5)
    """

    name: str
    canonical: str
    format: BlockFormat
    element: Card
    largest: float
    smallest: float | None

    kind = "block"
    smallest_normal = None

    @property
    def bits(self) -> float:
        """Bits of a number, with its share of the block's scale."""
        return self.format.bits_per_value

    @property
    def scale(self) -> str:
        """The format of the scales: ``e8m0``, ``e4m3fn_saturate``."""
        return self.format.scale

    @property
    def block(self) -> str:
        """The numbers of a block: ``32``, ``16x16``, ``all``."""
        return size_name(self.format.shape)

    @property
    def decades(self) -> float | None:
        """Dynamic range of all blocks: log10(largest / smallest)."""
        return None if self.smallest is None else math.log10(self.largest / self.smallest)

    def values(self) -> torch.Tensor:
        """Return the elements, as :meth:`Card.values`."""
        return self.element.values()


def describe_elements(block_or_integers: Target) -> str:
    """Describe the format of a block's elements; for integers, which have none, examples of
    formats."""
    element = getattr(block_or_integers, "element", None)
    return repr(element) if isinstance(element, str) else "such as 'e4m3fn' or 'fixed7_0'"


def _parse(value: object) -> tuple[str, _C.Format | BlockFormat]:
    what = "a floating dtype, a format or its name to show"
    if not isinstance(value, (str, torch.dtype, _C.Format, Target)):
        raise TypeError(f"expected {what}, but got {value!r}")
    if isinstance(value, torch.dtype) and not value.is_floating_point:
        raise TypeError(f"expected {what}, but got {value}")
    parsed = target(value)
    name = str(value).removeprefix("torch.") if isinstance(value, (str, torch.dtype)) else None
    if isinstance(parsed, BlockFormat):
        return name or parsed.name, parsed
    if not isinstance(parsed, FormatTarget):
        raise ValueError(
            f"expected {what}, but got {parsed.name}, whose numbers are multiples of a scale that "
            f"differs by tensor; show the format of its elements, {describe_elements(parsed)}"
        )
    return name or parsed.name, parsed.format


def card(value: torch.dtype | str | _C.Format | Target) -> Card | BlockCard:
    """Return the :class:`Card` of a format dtype, a stock floating dtype, a format, or any name
    that :func:`torch_dtypes.target` takes for one; of a block format the :class:`BlockCard`.

    The cards of stock dtypes describe stock casts: ``float8_e4m3fn`` saturates (in PyTorch 2.11 it
    overflows to NaN). Nothing is registered, so it takes none of the process's 64 dtypes.

    Args:
        value: a dtype, a format, or a name.

    Raises:
        ValueError: an unknown name (the message lists the nearest), or a name of integers, which
            have a scale of their own.
        TypeError: a value of another type.

    Example::

        >>> torch_dtypes.card("posit<12,1>").largest
        1048576.0
    """
    name, fmt = _parse(value)
    return _block_card(name, fmt) if isinstance(fmt, BlockFormat) else _card(name, fmt)


def _block_card(name: str, fmt: BlockFormat) -> BlockCard:
    element, scale = card(fmt.element), scale_format(fmt.scale)
    # The two exponents of HiF4 below a block's scale double an element, each.
    largest = element.largest * scale.largest * (4 if scale.micro else 1)
    smallest = None if element.smallest is None else element.smallest * scale.smallest
    return BlockCard(name, fmt.name, fmt, element, largest, smallest)


@functools.lru_cache(maxsize=256)
def _card(name: str, fmt: _C.Format) -> Card:
    def decode(code: int) -> float:
        return _C.decode_exact(fmt, torch.tensor([code], device="cpu")).item()

    kind, most = fmt.kind.name, fmt.max_code
    if kind == "table":
        first = 0.0
    else:
        starts_at_one = kind != "float" or fmt.subnormals == _C.Subnormals.gradual
        first = decode(1 if starts_at_one else 1 << fmt.man_bits)
    above_one = chop(1 + 2.0**-52, _C.Format(fmt), rounding="up")
    has_one = chop(1.0, _C.Format(fmt), rounding="nearest_even") == 1 and 1 < above_one < math.inf
    if kind == "fixed":
        zeros, nans, infinities = 1, 0, 0
        finite = 2**fmt.bits - int(fmt.is_signed and fmt.symmetric)
    elif kind == "table":
        values = values_of_codes(fmt)
        finite, zeros = values[values.isfinite()].unique().numel(), int((values == 0).sum())
        infinities, nans = int(values.isinf().sum()), int(values.isnan().sum())
        positive = values[(values > 0) & values.isfinite()]
        first = positive.min().item() if positive.numel() else None
    elif fmt.is_tapered:
        finite, zeros, nans, infinities = 2 * most + 1, 1, 1, 0
    else:
        flushed = 0 if fmt.subnormals == _C.Subnormals.gradual else (1 << fmt.man_bits) - 1
        infinities = 2 * int(fmt.has_infinity)
        zeros = 1 if fmt.specials in (_C.Specials.fnuz, _C.Specials.p3109) else 2
        finite = 2 * (most - flushed) + 1
        nans = 2**fmt.bits - 2 * most - zeros - infinities
    normal = math.ldexp(1.0, fmt.min_exponent) if kind == "float" else None
    if normal is not None and fmt.subnormals == _C.Subnormals.gradual:
        normal = decode(1 << fmt.man_bits)
    parameters = [
        (named, getattr(fmt, field))
        for named, field in (*_PARAMETERS[kind], ("rounding", "rounding"))
    ]
    result = Card(
        name,
        naming.name_of_format(fmt),
        fmt,
        fmt.largest,
        first,
        normal,
        above_one - 1 if has_one else None,
        fmt.significand_bits,
        finite,
        zeros,
        infinities,
        nans,
        tuple((named, str(getattr(v, "name", v))) for named, v in parameters),
    )
    if kind != "table":
        return result
    if first is None:
        return replace(result, significant_bits=0)
    # For a table, fmt.significand_bits counts the digits that write its numbers, so measure
    # instead.
    return replace(result, significant_bits=int(result.precision(result.exponents()).max()))
