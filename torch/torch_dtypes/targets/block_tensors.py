"""Tensors stored as blocks: packed codes of the elements, a code for each block's scale."""

from __future__ import annotations

import dataclasses

import torch

from ..formats.codes import codes as codes_of
from ..formats.codes import from_codes
from ..formats.dtypes import dtype as dtype_of
from ..formats.dtypes import format_of
from ..policies.accumulation import Accumulation, accumulation_of
from . import micro_exponents
from .base import COMPUTED, check_dense, check_tensor
from .block_scales import ScaleFormat, factor_of
from .block_targets import BlockFormat
from .lookup import carrier_of, target, target_of_file
from .packing import pack, packed_size, unpack
from .scaled_products import multiply_scaled

__all__ = ["BlockTensor", "quantize"]


def _scale_codes(own: torch.Tensor, scale: ScaleFormat) -> torch.Tensor:
    """Encode scales: for powers of two the exponent above the lowest one, all ones for NaN; else
    the scale format's codes."""
    if scale.powers:
        codes = torch.frexp(own).exponent - 1 - scale.lowest_exponent
        return torch.where(own.isnan(), (1 << scale.bits) - 1, codes).to(torch.uint8)
    encoded = own.to(dtype_of(scale.name))
    if not own.is_meta and not torch.equal(encoded.isnan(), own.isnan()):
        raise ValueError(
            f"expected finite numbers in every block whose scale is {scale.name}, which has no "
            "NaN, but got an infinity or NaN"
        )
    return codes_of(encoded)


def _scale_values(codes: torch.Tensor, scale: ScaleFormat, dtype: torch.dtype) -> torch.Tensor:
    if not scale.powers:
        return from_codes(codes, dtype_of(scale.name)).to(dtype)
    powers = (codes.long() + (scale.lowest_exponent + 1023) << 52).view(torch.float64).to(dtype)
    return torch.where(codes == (1 << scale.bits) - 1, torch.nan, powers)


class BlockTensor:
    """A tensor in a block format, as ``torch_dtypes.quantize`` makes it: packed codes, and a scale
    for each block. Immutable.

    It is no ``torch.Tensor``, and a block format is no dtype: an element means nothing without the
    scale of its block. So it has no views, no writes of single elements, and operators have no
    result format. ``dequantize()`` gives the numbers. ``@``, ``torch.matmul`` and
    ``torch.nn.functional.linear`` multiply by them, in the current accumulation policy. Under
    ``"nvidia-b200"`` and ``"nvidia-rtx-blackwell"`` two block tensors are multiplied by the chip's
    block-scaled instruction.

    Attributes:
        format: the block format.
        shape: the torch.Size of the quantised tensor.
        dtype: the dtype of ``dequantize()``.
        data: the elements' codes, uint8, in row-major order without gaps. With 4 bits, the first of
            two codes is the low half of a byte.
        scale_codes: the codes of the blocks' scales, with one entry for each block. For a power of
            two, uint8: the exponent + 127 (for ``"e<k>m0"``, + 2^(k-1) - 1), 255 (all ones) for
            NaN. For HiF4, int32: E6M2 in the lowest 8 bits (its exponent + 48, two bits of
            fraction; 255 for NaN), then 8 bits of E1_8 and 16 of E1_16, each with the first numbers
            lowest. Otherwise, codes of the scale's format.
        tensor_scale: the scale of the tensor on top of the blocks', one number; None if there is
            none.

    Source: OCP Microscaling Formats 1.0, section 5, defines a block and leaves the layout in memory
    open.

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
            f"expected no change of a BlockTensor, but got a new {name}; quantise again"
        )

    def __getattr__(self, name: str):  # missing attributes only
        hint = (
            "; dequantize() gives a tensor that has it"
            if hasattr(torch.Tensor, name) and not name.startswith("_")
            else ""
        )
        raise AttributeError(f"expected an attribute of a BlockTensor, but got {name!r}{hint}")

    def __getitem__(self, index):
        raise TypeError(
            "expected no index of a BlockTensor, whose numbers share scales, but got one; use "
            "dequantize()[...]"
        )

    @property
    def codes(self) -> torch.Tensor:
        """The codes of the elements: uint8, int16 or int32, of this tensor's shape."""
        return codes_of(self.elements)

    @property
    def elements(self) -> torch.Tensor:
        """The elements without their scales, as a tensor of the element's dtype."""
        fmt, dtype = format_of(self.format.element), dtype_of(self.format.element)
        width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[dtype.itemsize]
        return from_codes(unpack(self.data, fmt.bits, self.shape.numel(), width), dtype).view(
            self.shape
        )

    @property
    def scales(self) -> torch.Tensor:
        """The value of a 1 in each block, the tensor's scale included: in float32 (or float64), of
        the shape of ``scale_codes`` (for HiF4, of this tensor)."""
        if self.format._scale.micro:
            return self._factors()
        return factor_of(self._own_scales(COMPUTED[self.dtype]), self.tensor_scale)

    def _own_scales(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the blocks' scales without the tensor's, of the shape of ``scale_codes``. HiF4 has
        none."""
        return _scale_values(self.scale_codes, self.format._scale, dtype)

    def _factors(self) -> torch.Tensor:
        """Return the value of a 1, in a shape that broadcasts to this tensor's."""
        where = self.format.shape
        if not self.format._scale.micro:
            return where.spread(self.scales, self.shape)
        full, axis = self.shape or torch.Size((1,)), where.axis[0]
        codes = where.spread(self.scale_codes.view(where.grid_shape(full)), full)
        return micro_exponents.decode_factors(codes, axis, full[axis], COMPUTED[self.dtype]).view(
            self.shape
        )

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return sum(
            t.numel() * t.itemsize
            for t in (self.data, self.scale_codes, self.tensor_scale)
            if t is not None
        )

    @property
    def bits_per_value(self) -> float:
        """Bits of one number here, scales included."""
        return 8 * self.nbytes / self.shape.numel() if self.shape.numel() else 0.0

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        """Return ``ndim``."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements, without the padding of a last block."""
        return self.shape.numel()

    def size(self, dim: int | None = None):
        """Return the shape, or the length of one dimension. Raises: IndexError, no such
        dimension."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the numbers, element times scale: bit for bit those of
        ``target(format).quantize(x)`` (but +0 where integers have no -0).

        Args:
            dtype: float16, bfloat16, float32 or float64; default: the dtype of the quantised
                tensor. Numbers that it lacks are rounded to it.
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
        """Return the transposed tensor: the same blocks, along the other dimension."""
        places = list(range(-self.ndim, 0))
        a, b = (self._dimension(d) for d in (dim0, dim1))
        places[a], places[b] = places[b], places[a]
        fmt = dataclasses.replace(self.format, shape=self.format.shape.permute(tuple(places)))
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
        """Return the transposed matrix."""
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
            swapped = function is torch.Tensor.__rmatmul__
            return _product(_PRODUCTS[function], *(reversed(args) if swapped else args))
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
        f"expected tensors in {name}, but got a BlockTensor, which has only products; use its "
        "dequantize() for the numbers"
    )


def _build_refusing_method(name: str):
    def refuse(self, *operands):
        raise TypeError(_refusal(name))

    return refuse


# Python's own errors would name types alone. (== still compares identity: lists search by it.)
for _name in "add sub mul truediv floordiv mod pow and or xor".split():
    for _side in ("", "r", "i"):
        setattr(BlockTensor, f"__{_side}{_name}__", _build_refusing_method(_name))
for _name in "lt le gt ge neg pos abs invert bool int float complex index setitem".split():
    setattr(BlockTensor, f"__{_name}__", _build_refusing_method(_name))


def _product(function, *operands):
    """Multiply tensors and block tensors, each converted to float32 (or float64) numbers; by a
    chip's policy two block tensors as they are."""
    tensors = [t for t in operands if t is not None]
    for t in tensors:
        if not isinstance(t, (BlockTensor, torch.Tensor)) or t.dtype not in COMPUTED:
            hint = getattr(t, "dtype", type(t).__name__)
            raise TypeError(
                "expected block tensors and tensors of stock floating dtypes in a product, but "
                f"got {hint}: cast it by .float()"
            )
    out = tensors[0].dtype
    for t in tensors[1:]:
        out = torch.promote_types(out, t.dtype)
    carrier = carrier_of(COMPUTED[out])
    policy = accumulation_of(carrier)
    if policy.chip is not None:
        return _product_of_chip(function, tensors, policy).to(out)
    values = [t.dequantize() if isinstance(t, BlockTensor) else t for t in operands]
    return function(*(t if t is None else t.to(carrier) for t in values)).to(out)


def _product_of_chip(function, operands: list, policy: Accumulation) -> torch.Tensor:
    a, b, *bias = operands
    for t in (a, b):
        if not isinstance(t, BlockTensor):
            raise RuntimeError(
                f"accumulate: expected two block tensors in a product by {policy.chip}, but got a "
                f"tensor of {t.dtype}; quantize it"
            )
    linear = function is torch.nn.functional.linear
    along = -1 if linear or b.ndim < 2 else -2
    if a.shape[-1:] != b.shape[along:][:1]:
        raise RuntimeError(
            f"expected block tensors whose inner sizes agree, but got {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    # A stock product without terms has the result's sizes, or raises PyTorch's own errors.
    stubs = (*a.shape[:-1], 0), (*b.shape[:along], 0, *b.shape[along:][1:])
    sizes = function(*(torch.empty(shape, dtype=torch.float32) for shape in stubs)).shape
    if linear and b.ndim == 2:
        b = b.T
    result = multiply_scaled(a, b, policy).view(sizes)
    for t in bias:
        result = result + (t.dequantize() if isinstance(t, BlockTensor) else t)
    return result


_PRODUCTS = {
    torch.matmul: torch.matmul,
    torch.mm: torch.mm,
    torch.bmm: torch.bmm,
    torch.nn.functional.linear: torch.nn.functional.linear,
    torch.Tensor.matmul: torch.matmul,
    torch.Tensor.__matmul__: torch.matmul,
    torch.Tensor.__rmatmul__: torch.matmul,
}


def rebuild_block_tensor(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, data, scale_codes, tensor_scale
) -> BlockTensor:
    """Rebuild a tensor from a file or pickle. Files come from elsewhere, so it checks its
    arguments."""
    fmt = target_of_file(name)
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
    """Pack x as blocks: a code for each number, and a scale for each block. ``quantize(x,
    f).dequantize()`` is ``target(f).quantize(x)``.

    A float32 matrix of 4096 x 4096 takes 64 MiB, as ``"mxfp4"`` 8.5 MiB. ``block_format`` defines
    values, NaN, infinities and overflow. The result has no gradient. The scale of a NaN block is
    NaN, and its codes are 0.

    Args:
        x: a tensor of float16, bfloat16, float32 or float64.
        format: a block format or its name: ``"mxfp8_e4m3"``, ``"nvfp4"``, ``"bfp8_size16"``.
        scale: one number, the value of 1, for a format whose tensor has a scale (``"nvfp4"``);
            default: from the tensor's largest magnitude.
        rounding: a mode, as in ``chop``; default: the mode of a block, else the format's own.
        generator: a generator for stochastic modes.

    Raises:
        TypeError: no tensor of these dtypes, or no block format.
        ValueError: an unknown name, axes that x lacks, a shape that blocks do not divide
            (``pad=False``); a NaN in a block whose scale has no NaN.

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
            if hasattr(fmt, "encode")
            else f"chop(x, {fmt.name!r}) rounds to it"
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
            micro_exponents.encode_scales(ones, None, 0)
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
    own = (
        cut.own if cut.micro is None else micro_exponents.encode_scales(cut.own, cut.micro, cut.dim)
    )
    grid = fmt.shape.grid(own, cut.joins).reshape(fmt.shape.grid_shape(x.shape))
    codes = grid if cut.micro is not None else _scale_codes(grid, fmt._scale)
    return BlockTensor(fmt, x.shape, x.dtype, pack(codes_of(elements), fmt.bits), codes, cut.above)
