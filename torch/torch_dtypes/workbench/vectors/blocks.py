"""Golden vectors of blocks: numbers rounded to a block, and dot products of two blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch

import torch_dtypes

from ... import _C
from ...formats import naming
from ...formats.arguments import set_rounding
from ...formats.code_types import values_of_codes
from ...formats.dtypes import format_of
from ...targets import micro_exponents
from ...targets.base import times
from ...targets.block_scales import ScaleFormat, scale_format
from ...targets.block_shapes import BlockShape
from ...targets.block_targets import BlockFormat, Cut
from ...targets.lookup import target
from . import exact
from .flags import BITS, INVALID
from .making import check_format, find_format
from .operations import flags_of

BLOCK_OPERATIONS = ("quantize", "dot")
_BATCH = 256  # vectors with one scale of the tensor
_MOST_NUMBERS = 1024
# Random bits in a file for a mode that takes a whole word: its highest ones. The others are 0.
_WORD_BITS = 32


def find_blocks(name: str) -> BlockFormat | None:
    """Return the block format with this name; None for the name of another target."""
    found = target(name)
    return found if isinstance(found, BlockFormat) else None


@dataclass(frozen=True)
class BlockJob:
    """The definition of a set of vectors of blocks; otherwise as ``making.Job``.

    Args:
        format: a block format with a size along one axis.
        operation: ``"quantize"``: float32 numbers, and of a format whose tensors have a scale that
            scale, to the codes of scale and elements. ``"dot"``: the codes of two blocks, to the
            correctly rounded exact dot product, without tensors' scales.
        mode: a rounding mode of the elements, for ``quantize``, or of the result, for ``dot``.
            Random modes have their random bits among the operands.
        to: the format of the results of ``dot``; None: float32.
    """

    format: str
    operation: str
    mode: str | None = None
    to: str | None = None
    count: int = 10_000
    seed: int = 0

    def __post_init__(self):
        fmt = self.blocks
        if self.operation not in BLOCK_OPERATIONS:
            raise ValueError(
                f"expected quantize or dot, the operations of blocks, but got {self.operation!r} "
                f"with {self.format}"
            )
        size = fmt.shape.size
        if len(size) != 1 or size[0] is None or not 1 <= size[0] <= _MOST_NUMBERS:
            raise ValueError(
                f"expected blocks of at most {_MOST_NUMBERS} numbers along one axis, but got "
                f"{fmt.name}; name one, such as 'mxfp4' or 'bfp8_size16'"
            )
        if self.to is not None and self.operation != "dot":
            raise ValueError(
                f"expected the format of the results (--to) with dot, but got {self.to} with "
                f"{self.operation}"
            )
        if self.operation == "dot" and self.result.rounding.name in naming.DRAWING_MODES:
            raise ValueError(
                "expected a deterministic rounding mode for the results of dot, but got "
                f"{naming.mode_of_format(self.result)}; name another mode"
            )
        if self.operation == "dot":
            check_format(self.result)
        if self.count < 1:
            raise ValueError(f"expected a count of at least 1, but got {self.count}")

    @property
    def blocks(self) -> BlockFormat:
        """The block format, along the last dimension."""
        fmt = find_blocks(self.format)
        if self.mode is not None and self.operation == "quantize":
            fmt = fmt.with_rounding(self.mode)
        if len(fmt.shape.axis) == 1:
            fmt = dataclasses.replace(fmt, shape=BlockShape(fmt.shape.size, (-1,)))
        return fmt

    @property
    def element(self) -> _C.Format:
        return format_of(self.blocks.element)

    @property
    def result(self) -> _C.Format:
        """The format of dot's results; of quantize the elements'."""
        if self.operation != "dot":
            return self.element
        fmt = _C.Format(find_format(self.to or "float32"))
        if self.mode is not None:
            set_rounding(fmt, self.mode)
        return fmt

    @property
    def scale(self) -> ScaleFormat:
        return scale_format(self.blocks.scale)

    @property
    def total(self) -> int:
        return self.count

    @property
    def _random_bits(self) -> int:
        """The random bits of each element; 0 for a deterministic mode."""
        fmt = self.element
        if fmt.rounding.name not in naming.DRAWING_MODES:
            return 0
        return fmt.random_bits or _WORD_BITS

    def columns(self) -> list[tuple[str, int]]:
        """Return the names of a vector's numbers and their bits, from left to right."""
        fmt, scale_bits = self.blocks, self.scale.bits
        size, bits = fmt.shape.size[0], fmt.bits
        if self.operation == "dot":
            return [
                *((name, scale_bits) for name in ("a_scale", "b_scale")),
                *((f"{name}{i}", bits) for name in "ab" for i in range(size)),
                ("result", self.result.bits),
                ("flags", BITS),
            ]
        drawn = self._random_bits
        return [
            *((f"x{i}", 32) for i in range(size)),
            *([("tensor_scale", 32)] if fmt.tensor_scale else []),
            *((f"random{i}", drawn) for i in range(size if drawn else 0)),
            ("scale", scale_bits),
            *((f"e{i}", bits) for i in range(size)),
        ]

    def header(self) -> dict[str, object]:
        """Return the header of a file."""
        fmt = self.blocks
        name = fmt.name if fmt.name == self.format else f"{self.format} ({fmt.name})"
        data: dict[str, object] = {"format": name, "operation": self.operation}
        data |= {"elements": fmt.element, "scales": fmt.scale, "scale_rule": fmt.scale_rule}
        if self.operation == "dot":
            data["to"] = naming.name_of_format(self.result)
        return data | {
            "rounding": naming.mode_of_format(self.result),
            "inputs": f"directed random, seed {self.seed}",
            "vectors": self.total,
            "version": f"torch_dtypes {torch_dtypes.__version__}",
        }

    def batches(self) -> Iterator[list[torch.Tensor]]:
        """Yield the vectors, some hundreds at a time, as an int64 tensor for each column. A smaller
        count gives the first vectors of a larger one."""
        draw = torch.Generator().manual_seed(self.seed)
        make = self._dots if self.operation == "dot" else self._quantized
        for first in range(0, self.total, _BATCH):
            table = make(draw)
            yield list(table[: self.total - first].unbind(1))

    # ---- quantize ----

    def _quantized(self, draw: torch.Generator) -> torch.Tensor:
        fmt, element = self.blocks, self.element
        x, above = self._draw_numbers(draw)
        cut = fmt._cut(x, above)
        y = times(cut.blocks.reshape(x.shape), cut.inverse.expand_as(cut.blocks), True)
        bits, words = self._random_bits, None
        if bits:
            drawn = torch.randint(0, 1 << bits, x.shape, generator=draw)
            words = drawn << 64 - bits  # the highest bits of a word
        codes = torch.where(y.isnan(), 0, _C.encode_exact(element, y.double(), words))
        columns = [_bits_of(x)]
        if above is not None:
            columns.append(_bits_of(above).expand(len(x), 1))
        if bits:
            columns.append(drawn)
        scales = _encode_scales(cut, self.scale).view(-1, 1)
        return torch.cat([*columns, scales, codes], 1)

    def _draw_numbers(self, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Draw blocks of float32 numbers, and the scale of their tensor.

        Of 16 blocks, seven have normal numbers of any magnitude. In four each number is a tie of
        two elements, or its neighbour, and the largest one an element. In two the largest is at a
        power of two, or beside it. One has numbers of very different magnitudes, one zeros of both
        signs, and one an infinity or NaN if scales have NaN.
        """
        fmt = self.blocks
        shape = (_BATCH, fmt.shape.size[0])
        kind = torch.randint(0, 16, (_BATCH, 1), generator=draw)
        far = 6 if fmt.tensor_scale else 20
        scale = torch.exp2(torch.randint(-far, far + 1, (_BATCH, 1), generator=draw).float())
        wide = torch.exp2(torch.randint(-126, 124, (_BATCH, 1), generator=draw).float())
        normal = torch.randn(shape, generator=draw)
        x = normal * torch.where(kind == 0, wide, scale)

        values = values_of_codes(self.element) if fmt.bits <= 16 else torch.arange(1.0, 4096.0)
        values = values[values.isfinite() & (values >= 0)].unique().float()
        place = torch.randint(0, len(values) - 1, shape, generator=draw)
        tie = (values[place] + values[place + 1]) / 2
        beside = torch.randint(-1, 2, shape, generator=draw)
        tie = torch.where(beside == 0, tie, torch.nextafter(tie, beside.float() * torch.inf))
        tie[:, 0] = values[-1]
        sign = torch.randint(0, 2, shape, generator=draw) * 2 - 1
        x = torch.where((kind >= 7) & (kind < 11), tie * sign * scale, x)

        edge = normal.clamp(-1, 1)
        edge[:, 0] = 1 + beside[:, 0] * 2.0**-23
        x = torch.where((kind == 11) | (kind == 12), edge * sign * scale, x)
        spread = torch.exp2(torch.randint(-30, 1, shape, generator=draw).float())
        x = torch.where(kind == 13, x * spread, x)
        x = torch.where(kind == 14, 0.0 * sign, x)
        if _has_nan(self.scale):
            special = torch.tensor([torch.inf, -torch.inf, torch.nan])
            one = torch.randint(0, shape[1], (_BATCH, 1), generator=draw)
            chosen = special[torch.randint(0, 3, (_BATCH, 1), generator=draw)]
            x = torch.where(kind == 15, x.scatter(1, one, chosen), x)
        if not fmt.tensor_scale:
            return x, None
        # With it, blocks of numbers near 1 have scales in the middle of their format.
        middle = (values[-1] * self.scale.largest**0.5).float()
        return x, (1 + torch.rand((), generator=draw)) / middle

    # ---- dot ----

    def _dots(self, draw: torch.Generator) -> torch.Tensor:
        element, result = self.element, self.result
        shape = (_BATCH, self.blocks.shape.size[0])
        kind = torch.randint(0, 8, (_BATCH, 1), generator=draw)
        a, b = (torch.randint(0, 1 << element.bits, shape, generator=draw) for _ in "ab")
        # Most blocks are finite.
        finite = values_of_codes(element).isfinite() if element.bits <= 16 else None
        if finite is not None:
            a, b = (torch.where(finite[codes] | (kind == 0), codes, 0) for codes in (a, b))
        # In some the second half of the products is the first half's negative, perhaps but for one.
        half = shape[1] // 2
        twice = a.clone()
        twice[:, half : 2 * half] = a[:, :half]
        opposed = b.clone()
        opposed[:, half : 2 * half] = _C.encode_exact(
            element, -_C.decode_exact(element, b[:, :half].contiguous())
        )
        opposed[:, half] = (opposed[:, half] + (kind[:, 0] == 2)) % (1 << element.bits)
        cancels = (kind == 1) | (kind == 2)
        a, b = torch.where(cancels, twice, a), torch.where(cancels, opposed, b)

        scales = [_draw_scales(self.scale, draw) for _ in "ab"]
        if _has_nan(self.scale):
            nan = torch.randint(0, 64, (_BATCH,), generator=draw) == 0
            scales[0] = torch.where(nan, _nan_code(self.scale), scales[0])
        x, y = (
            _C.decode_exact(element, codes) * _decode_scales(scale, self.scale, shape[1])
            for codes, scale in zip((a, b), scales, strict=True)
        )
        ordinary = x.isfinite().all(1) & y.isfinite().all(1)
        sums = (x * y).sum(1)
        # One NaN, whatever sign the processor gave it.
        sums = torch.where(sums.isnan(), torch.nan, sums)
        sums[ordinary] = exact.odd_dots(x[ordinary], y[ordinary])
        codes = _C.encode_exact(result, sums)
        flags = flags_of(sums, _C.decode_exact(result, codes), ordinary, result)
        flags |= (sums.isnan() & ~x.isnan().any(1) & ~y.isnan().any(1)) * INVALID
        return torch.cat([torch.stack(scales, 1), a, b, torch.stack([codes, flags], 1)], 1)


def _bits_of(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32).long() & 0xFFFFFFFF


def _nan_code(scale: ScaleFormat) -> int:
    """Return the code of a scale that is NaN, or of what a format without NaN makes of it."""
    if scale.powers or scale.micro:
        return (1 << min(scale.bits, 8)) - 1
    nan = torch.full((1,), torch.nan, dtype=torch.float64)
    return _C.encode_exact(format_of(scale.name), nan).item()


def _has_nan(scale: ScaleFormat) -> bool:
    """Whether a block's scale can be NaN."""
    return bool(_decode_scales(torch.tensor([_nan_code(scale)]), scale, 1).isnan())


def _encode_scales(cut: Cut, scale: ScaleFormat) -> torch.Tensor:
    """Return the codes of blocks' own scales, one dimension of int64."""
    if scale.micro:
        return micro_exponents.encode_scales(cut.own, cut.micro, cut.dim).flatten().long() & (
            0xFFFFFFFF
        )
    own = cut.own.flatten().double()
    if not scale.powers:
        return _C.encode_exact(format_of(scale.name), own)
    codes = torch.frexp(own).exponent.long() - 1 - scale.lowest_exponent
    return torch.where(own.isnan(), (1 << scale.bits) - 1, codes)


def _draw_scales(scale: ScaleFormat, draw: torch.Generator) -> torch.Tensor:
    """Draw codes of scales: in seven of eight blocks near the middle of their range."""
    rare = torch.randint(0, 8, (_BATCH,), generator=draw) == 0
    if scale.micro:
        low = torch.randint(0, 256, (_BATCH,), generator=draw)
        low = torch.where(rare, low, 150 + low % 80)
        return low | torch.randint(0, 1 << 24, (_BATCH,), generator=draw) << 8
    if scale.powers:
        any_code = torch.randint(0, 1 << scale.bits, (_BATCH,), generator=draw)
        middle = (1 << scale.bits - 1) - 1
        near = middle + torch.randint(-12, 13, (_BATCH,), generator=draw)
        return torch.where(rare, any_code, near.clamp(0, 2 * middle))
    values = values_of_codes(format_of(scale.name))
    positive = (values > 0).nonzero().squeeze(1)
    rest = ((values > 0) | values.isnan()).nonzero().squeeze(1)
    place = torch.rand(_BATCH, generator=draw)
    return torch.where(
        rare, rest[(place * len(rest)).long()], positive[(place * len(positive)).long()]
    )


def _decode_scales(codes: torch.Tensor, scale: ScaleFormat, size: int) -> torch.Tensor:
    """Return the value of a 1 in each block, or at each of its places, in float64."""
    if scale.micro:
        return micro_exponents.decode_factors(codes.view(-1, 1), -1, size, torch.float64)
    if not scale.powers:
        return _C.decode_exact(format_of(scale.name), codes).view(-1, 1)
    powers = torch.exp2((codes + scale.lowest_exponent).double())
    return torch.where(codes == (1 << scale.bits) - 1, torch.nan, powers).view(-1, 1)
