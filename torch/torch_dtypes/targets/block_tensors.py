"""Tensors stored as blocks: packed codes of the elements, a code for each block's scale."""

from __future__ import annotations

import dataclasses

import torch

from ..formats.codes import codes as codes_of
from ..formats.codes import from_codes
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of
from . import micro_exponents
from .base import COMPUTED, check_dense, check_tensor
from .block_scales import ScaleFormat
from .block_targets import BlockFormat, factor_of
from .lookup import carrier_of, target
from .packing import pack, packed_size, unpack

__all__ = ["BlockTensor", "quantize"]


def _scale_codes(own: torch.Tensor, scale: ScaleFormat) -> torch.Tensor:
    """Scales as codes: of powers of two the exponent above the lowest one, and all ones for NaN;
    else the format's codes."""
    if scale.powers:
        codes = torch.frexp(own).exponent - 1 - scale.lowest_exponent
        return torch.where(own.isnan(), (1 << scale.bits) - 1, codes).to(torch.uint8)
    made = own.to(dtype_of(scale.name))
    if not own.is_meta and not torch.equal(made.isnan(), own.isnan()):
        raise ValueError(
            f"expected finite numbers in every block whose scale is {scale.name}, which has no "
            "NaN, but got an infinity or NaN"
        )
    return codes_of(made)


def _scale_values(codes: torch.Tensor, scale: ScaleFormat, dtype: torch.dtype) -> torch.Tensor:
    if not scale.powers:
        return from_codes(codes, dtype_of(scale.name)).to(dtype)
    powers = (codes.long() + (scale.lowest_exponent + 1023) << 52).view(torch.float64).to(dtype)
    return torch.where(codes == (1 << scale.bits) - 1, torch.nan, powers)


class BlockTensor:
    """A tensor in a block format, as ``torch_dtypes.quantize`` makes it: codes without gaps, and a
    scale for each block. It does not change.

    It is no ``torch.Tensor``, and a block format no dtype: an element means nothing without the
    scale of its block, so there is no view of some elements, no writing of one, no format for the
    result of an operator. ``dequantize()`` gives the numbers; ``@``, ``torch.matmul`` and
    ``torch.nn.functional.linear`` multiply by them, in the accumulation policy that holds.

    Attributes:
        format: the block format.
        shape: a torch.Size, as that of the tensor that was quantised.
        dtype: that of ``dequantize()``.
        data: the elements' codes, uint8, in row-major order without gaps: of 4 bits, the first of
            two lies in the low half of a byte.
        scale_codes: the codes of the blocks' scales, of the shape that is left when each block is
            one entry: for a power of two the exponent + 127 in uint8 (of ``"e<k>m0"``, + 2^(k-1) -
            1), 255 for NaN (all ones); of HiF4 int32: E6M2 in the lowest 8 bits (its exponent + 48,
            two bits of fraction; 255 for NaN), then 8 bits of E1_8 and 16 of E1_16, the first
            numbers' lowest; else those of the scale's format.
        tensor_scale: the scale above those of the blocks, one number; None where there is none.

    Source: OCP Microscaling Formats 1.0, section 5, for what a block is; it leaves the layout in
    memory open.

    Example::

        >>> torch_dtypes.quantize(torch.ones(2, 32), "mxfp4").scale_codes
        tensor([[125],
                [125]], dtype=torch.uint8)
    """

    __slots__ = ("__weakref__", "data", "dtype", "format", "scale_codes", "shape", "tensor_scale")

    def __init__(
        self,
        fmt: BlockFormat,
        shape,
        dtype: torch.dtype,
        data: torch.Tensor,
        scale_codes: torch.Tensor,
        tensor_scale,
    ):
        for name, value in {
            "format": fmt,
            "shape": torch.Size(shape),
            "dtype": dtype,
            "data": data,
            "scale_codes": scale_codes,
            "tensor_scale": tensor_scale,
        }.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(
            f"expected to read a BlockTensor, but got a new {name}: quantise again"
        )

    def __getattr__(self, name: str):  # what it has none of
        hint = (
            "; its numbers are dequantize()'s, which has it"
            if hasattr(torch.Tensor, name) and not name.startswith("_")
            else ""
        )
        raise AttributeError(f"expected an attribute of a BlockTensor, but got {name!r}{hint}")

    def __getitem__(self, index):
        raise TypeError(
            "expected a whole BlockTensor, whose numbers share scales, but got an index of some "
            "of them: call dequantize()[...]"
        )

    @property
    def codes(self) -> torch.Tensor:
        """The codes of the elements: uint8, int16 or int32, of this tensor's shape."""
        return codes_of(self.elements)

    @property
    def elements(self) -> torch.Tensor:
        """The elements without their scales, as a tensor of the element's dtype."""
        fmt, made = format_of(self.format.element), dtype_of(self.format.element)
        width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[made.itemsize]
        return from_codes(unpack(self.data, fmt.bits, self.shape.numel(), width), made).view(
            self.shape
        )

    @property
    def scales(self) -> torch.Tensor:
        """What a 1 in each block stands for, the tensor's scale included: of the shape of
        ``scale_codes`` (of HiF4 this tensor's), float32 (or float64)."""
        if self.format._scale.micro:
            return self._factors()
        own = _scale_values(self.scale_codes, self.format._scale, COMPUTED[self.dtype])
        return factor_of(own, self.tensor_scale)

    def _factors(self) -> torch.Tensor:
        """What a 1 stands for, in a shape that broadcasts to this tensor's."""
        where = self.format.shape
        if not self.format._scale.micro:
            return where.spread(self.scales, self.shape)
        full, axis = self.shape or torch.Size((1,)), where.axis[0]
        codes = where.spread(self.scale_codes.view(where.grid_shape(full)), full)
        return micro_exponents.factors(codes, axis, full[axis], COMPUTED[self.dtype]).view(
            self.shape
        )

    @property
    def nbytes(self) -> int:
        """The bytes of codes and scales."""
        return sum(
            t.numel() * t.itemsize
            for t in (self.data, self.scale_codes, self.tensor_scale)
            if t is not None
        )

    @property
    def bits_per_value(self) -> float:
        """Bits that one number takes here, scales included."""
        return 8 * self.nbytes / self.shape.numel() if self.shape.numel() else 0.0

    @property
    def ndim(self) -> int:
        """How many dimensions the tensor has."""
        return len(self.shape)

    def dim(self) -> int:
        """As ``ndim``."""
        return len(self.shape)

    def numel(self) -> int:
        """How many numbers it has, what fills up a last block not counted."""
        return self.shape.numel()

    def size(self, dim: int | None = None):
        """The shape, or the length of one dimension. Raises: IndexError, no such dimension."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The numbers: element times scale, what ``target(format).quantize(x)`` has, bit for bit
        (but +0 where integers have no -0).

        Args:
            dtype: float16, bfloat16, float32 or float64; default: that of the tensor that was
                quantised. What it lacks is rounded to it.
        """
        if dtype is not None and dtype not in COMPUTED:
            raise TypeError(
                "expected to dequantise to float16, bfloat16, float32 or float64, but got "
                f"{dtype}: cast the result"
            )
        factor = self._factors()
        values = self.elements.to(factor.dtype) * factor
        return values.view(self.shape).to(dtype or self.dtype)

    def transpose(self, dim0: int, dim1: int) -> BlockTensor:
        """The transposed tensor: the same blocks, which lie along the other dimension."""
        places = list(range(-self.ndim, 0))
        a, b = (self._dimension(d) for d in (dim0, dim1))
        places[a], places[b] = places[b], places[a]
        fmt = dataclasses.replace(self.format, shape=self.format.shape.moved(tuple(places)))
        elements = codes_of(self.elements.transpose(a, b).contiguous())
        data = pack(elements, fmt.bits)
        return BlockTensor(
            fmt,
            elements.shape,
            self.dtype,
            data,
            self.scale_codes.transpose(a, b).contiguous(),
            self.tensor_scale,
        )

    def t(self) -> BlockTensor:
        """The transposed matrix."""
        if self.ndim != 2:
            raise ValueError(
                f"expected a matrix to transpose, but got shape {tuple(self.shape)}: name the "
                "dimensions, as in transpose(-1, -2)"
            )
        return self.transpose(0, 1)

    T = property(t)

    @property
    def mT(self) -> BlockTensor:
        """The transposed matrices of the last two dimensions."""
        return self.transpose(-1, -2)

    def _dimension(self, d: int) -> int:
        if isinstance(d, bool) or not isinstance(d, int) or not -self.ndim <= d < self.ndim:
            raise IndexError(
                f"expected a dimension from {-self.ndim} to {self.ndim - 1}, but got {d!r}"
            )
        return d % self.ndim

    def __matmul__(self, other):
        return (
            _product(torch.matmul, self, other)
            if isinstance(other, (BlockTensor, torch.Tensor))
            else NotImplemented
        )

    def __rmatmul__(self, other):
        return (
            _product(torch.matmul, other, self)
            if isinstance(other, torch.Tensor)
            else NotImplemented
        )

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in _PRODUCTS and not kwargs:
            return _product(_PRODUCTS[function], *args)
        name = getattr(function, "__name__", function)
        raise TypeError(_refusal(name))

    def __reduce__(self):
        return rebuild_block_tensor, (
            self.format.name,
            tuple(self.shape),
            self.dtype,
            self.data,
            self.scale_codes,
            self.tensor_scale,
        )

    def __repr__(self) -> str:
        return (
            f"BlockTensor({self.format.name!r}, shape={tuple(self.shape)}, "
            f"bits_per_value={self.bits_per_value:.4g})\n"
            f"{self.dequantize()}"
        )


def _refusal(name: object) -> str:
    return (
        f"expected tensors in {name}, but got a BlockTensor, which has products alone: call its "
        "dequantize() for the numbers"
    )


def _refused(name: str):
    def refuse(self, *operands):
        raise TypeError(_refusal(name))

    return refuse


# Python's own errors would name types alone. (== stays whether two are the same object: lists look
# for one by it.)
for _name in "add sub mul truediv floordiv mod pow and or xor".split():
    for _side in ("", "r", "i"):
        setattr(BlockTensor, f"__{_side}{_name}__", _refused(_name))
for _name in "lt le gt ge neg pos abs invert bool int float complex index setitem".split():
    setattr(BlockTensor, f"__{_name}__", _refused(_name))


def _product(function, *operands):
    """A product of tensors and block tensors, of which every one is float32 (or float64) numbers by
    now."""
    values = [t.dequantize() if isinstance(t, BlockTensor) else t for t in operands]
    for t in values:
        if t is not None and (not isinstance(t, torch.Tensor) or t.dtype not in COMPUTED):
            hint = getattr(t, "dtype", type(t).__name__)
            raise TypeError(
                "expected block tensors and tensors of stock floating dtypes in a product, but "
                f"got {hint}: cast it by .float()"
            )
    given = [t for t in values if t is not None]
    out = given[0].dtype
    for t in given[1:]:
        out = torch.promote_types(out, t.dtype)
    carrier = carrier_of(COMPUTED[out])
    return function(*(t if t is None else t.to(carrier) for t in values)).to(out)


_PRODUCTS = {
    torch.matmul: torch.matmul,
    torch.mm: torch.mm,
    torch.bmm: torch.bmm,
    torch.nn.functional.linear: torch.nn.functional.linear,
    torch.Tensor.matmul: torch.matmul,
    torch.Tensor.__matmul__: torch.matmul,
    torch.Tensor.__rmatmul__: lambda a, b: torch.matmul(b, a),
}


def rebuild_block_tensor(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, data, scale_codes, tensor_scale
) -> BlockTensor:
    """What a file or pickle calls; it checks what it is given, since files come from elsewhere."""
    fmt = target(name)
    if not isinstance(fmt, BlockFormat) or dtype not in COMPUTED:
        raise ValueError(
            "expected a block format and a stock floating dtype of a BlockTensor, but got "
            f"{name!r}, {dtype}"
        )
    fmt.check_shape(shape)
    size = packed_size(torch.Size(shape).numel(), fmt.bits)
    if (
        data.dtype != torch.uint8
        or data.shape != (size,)
        or tuple(scale_codes.shape) != fmt.shape.grid_shape(shape)
    ):
        raise ValueError(
            f"expected {size} bytes of codes and scales of shape {fmt.shape.grid_shape(shape)} "
            f"for {name} of shape {tuple(shape)}, but got {tuple(data.shape)} of {data.dtype} and "
            f"{tuple(scale_codes.shape)}"
        )
    if fmt._scale.micro and scale_codes.dtype != torch.int32:
        raise ValueError(f"expected scale codes of int32 for {name}, but got {scale_codes.dtype}")
    if fmt.tensor_scale and tensor_scale is None:
        raise ValueError(f"expected the scale of the tensor for {name}, but got None")
    return BlockTensor(fmt, shape, dtype, data, scale_codes, tensor_scale)


def quantize(
    x: torch.Tensor,
    format: BlockFormat | str,
    *,
    scale: float | torch.Tensor | None = None,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
) -> BlockTensor:
    """x as packed blocks: each number's code, and each block's scale.
    ``quantize(x, f).dequantize()`` is ``target(f).quantize(x)``.

    A float32 matrix of 4096 x 4096 takes 64 MiB, as ``"mxfp4"`` 8.5 MiB. Values, NaN, infinities
    and overflow are as ``block_format`` says; what is stored has no gradient. Where a block is NaN
    its scale says so, and its codes are 0.

    Args:
        x: a tensor of float16, bfloat16, float32 or float64.
        format: a block format or its name: ``"mxfp8_e4m3"``, ``"nvfp4"``, ``"bfp8_size16"``.
        scale: one number, what 1 stands for in a format whose tensor has a scale (``"nvfp4"``);
            default: by the tensor's largest magnitude.
        rounding: a mode, as ``chop`` takes it; default: that of a block, else the format's own.
        generator: of stochastic modes.

    Raises:
        TypeError: no tensor of such a dtype, or a format that is none of blocks.
        ValueError: an unknown name, axes that x lacks, a shape that blocks do not divide
            (``pad=False``); a NaN in a block whose scale has none.

    Example::

        >>> w = torch_dtypes.quantize(torch.randn(64, 128), "mxfp4")
        >>> w.nbytes, w.bits_per_value
        (4352, 4.25)
        >>> (torch.randn(8, 128) @ w.T).shape
        torch.Size([8, 64])
    """
    fmt = target(format)
    if not isinstance(fmt, BlockFormat):
        hint = (
            f"a tensor of that dtype is x.to({fmt.dtype})"
            if fmt.dtype is not None
            else f"target({fmt.name!r}).encode gives integers"
        )
        raise TypeError(
            f"expected a block format, as 'mxfp8_e4m3', to pack a tensor, but got {fmt.name!r}; "
            f"{hint}"
        )
    check_tensor(x, fmt)
    check_dense(x, f"quantise to {fmt.name}")
    fmt.check_shape(x.shape)
    x = x.detach()
    if x.numel() == 0:
        one = torch.ones((), dtype=COMPUTED[x.dtype], device=x.device)
        ones = one.expand(fmt.shape.grid_shape(x.shape)).contiguous()
        codes = (
            micro_exponents.codes(ones, None, 0)
            if fmt._scale.micro
            else _scale_codes(ones, fmt._scale)
        )
        return BlockTensor(
            fmt,
            x.shape,
            x.dtype,
            torch.empty(0, dtype=torch.uint8, device=x.device),
            codes,
            one if fmt.tensor_scale else None,
        )
    cut = fmt._cut(x, scale)
    values, _ = fmt._elements(cut, rounding, generator)
    values = torch.where(cut.own.isnan(), 0.0, values)
    elements = fmt.shape.join(values, cut.joins).reshape(x.shape).to(dtype_of(fmt.element))
    own = cut.own if cut.micro is None else micro_exponents.codes(cut.own, cut.micro, cut.dim)
    grid = fmt.shape.grid(own, cut.joins).reshape(fmt.shape.grid_shape(x.shape))
    codes = grid if cut.micro is not None else _scale_codes(grid, fmt._scale)
    return BlockTensor(fmt, x.shape, x.dtype, pack(codes_of(elements), fmt.bits), codes, cut.above)
