"""Shapes of blocks: runs along dimensions, whole slices, or the whole tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..formats.arguments import dimension, integer
from ..formats.patterns import name_pattern

_NAME = name_pattern(
    r"(?:_axis((?:minus)?\d+(?:x(?:minus)?\d+)*))|(?:_dim((?:minus)?\d+))|(_tensor)"
)


@dataclass(frozen=True)
class BlockShape:
    """The numbers of a tensor that make a block: ``size`` along ``axis`` (each may have several
    entries; size None: all), or a slice for each index of ``dim``. With neither, the whole tensor
    is one block."""

    size: tuple[int | None, ...]
    axis: tuple[int, ...]
    dim: int | None = None

    @property
    def is_tensor(self) -> bool:
        return self.dim is None and not self.axis

    def find_missing_axis(self, dims: int) -> int | None:
        """Return the first dimension of the blocks that a tensor with ``dims`` dimensions lacks;
        None if it has all."""
        return next(
            (
                a
                for a in (*self.axis, *(() if self.dim is None else (self.dim,)))
                if not -dims <= a < dims
            ),
            None,
        )

    @property
    def has_size(self) -> bool:
        """Whether blocks have a size, so that the last one may be shorter than the others."""
        return any(n is not None for n in self.size)

    def check_whole(self, shape: tuple[int, ...], name: str) -> None:
        """Raise ValueError if a dimension is no multiple of its block size. ``name`` names the
        format."""
        full = tuple(shape) or (1,)
        for axis, size in zip(self.axis, self.size, strict=True):
            length = full[self._dimension(full, axis)]
            if size is not None and length % size:
                raise ValueError(
                    f"expected whole blocks of {size} along dimension {axis} for {name}, which "
                    f"does not pad, but got {length} numbers there, in shape {tuple(shape)}: pad "
                    f"the tensor to {-(-length // size) * size}, take another size, or pad=True "
                    "(a name without '_nopad'), with which a shorter last block rounds as if "
                    "zeros followed"
                )

    def along_last(self) -> BlockShape:
        """Return the shape for a tensor that lacks a dimension: blocks along its last dimension, or
        the whole tensor instead of a slice."""
        return BlockShape(self.size[-1:], (-1,) if self.axis else ())

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, list[int], list[tuple[int, int]]]:
        """Cut each dimension with a block size in two, padded with zeros to whole blocks. Return
        the tensor, the dimensions of a block, and the pairs (dimension, length) for ``join``, in
        that order."""
        if self.dim is not None:
            kept = self._dimension(x, self.dim)
            return x, [d for d in range(x.dim()) if d != kept], []
        if not self.axis:
            return x, list(range(x.dim())), []
        dims: list[int] = []
        joins: list[tuple[int, int]] = []
        cuts = sorted(
            zip([self._dimension(x, a) for a in self.axis], self.size, strict=True), reverse=True
        )
        if len({a for a, _ in cuts}) < len(cuts):
            raise ValueError(
                f"expected axes that are different dimensions of shape {tuple(x.shape)}, but got "
                f"{self.axis}"
            )
        # From the last dimension, so that a cut moves none that is still to be cut.
        for axis, size in cuts:
            length = x.shape[axis]
            if size is None or length <= size:
                dims.append(axis)
                continue
            count = -(-length // size)
            if missing := count * size - length:
                x = torch.nn.functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [0, missing])
            x = x.unflatten(axis, (count, size))
            dims = [d + 1 for d in dims]
            dims.append(axis + 1)
            joins = [(axis, length), *((a + 1, n) for a, n in joins)]
        return x, dims, joins

    def join(self, x: torch.Tensor, joins: list[tuple[int, int]]) -> torch.Tensor:
        """Undo ``split``."""
        for count, (axis, length) in enumerate(joins):
            axis -= count  # each join so far has moved the later dimensions
            x = x.flatten(axis, axis + 1)
            if x.shape[axis] != length:
                x = x.narrow(axis, 0, length)
        return x

    def grid(self, x: torch.Tensor, joins: list[tuple[int, int]]) -> torch.Tensor:
        """Bring a tensor with one number per block, as ``split`` cuts them, to the tensor's number
        of dimensions."""
        for count, (axis, _) in enumerate(joins):
            x = x.flatten(axis - count, axis - count + 1)
        return x

    def grid_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of ``grid`` for a tensor of this shape."""
        shape = tuple(shape)
        if self.dim is not None:
            return tuple(
                n if d == self._dimension(shape, self.dim) else 1 for d, n in enumerate(shape)
            )
        if not self.axis:
            return (1,) * len(shape)
        sizes = {
            self._dimension(shape or (1,), a): n for a, n in zip(self.axis, self.size, strict=True)
        }
        return tuple(
            -(-n // (sizes[d] or max(n, 1))) if d in sizes else n for d, n in enumerate(shape)
        )

    def spread(self, grid: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Repeat the numbers of blocks so that they broadcast to the tensor's shape."""
        for axis, size in zip(self.axis, self.size, strict=True):
            if shape and size is not None and grid.shape[axis] > 1:
                grid = grid.repeat_interleave(size, axis).narrow(axis, 0, shape[axis])
        return grid

    def permute(self, places: tuple[int, ...]) -> BlockShape:
        """Return the shape of the same blocks after dimension ``places[i]`` (negative, from the
        end) has moved to place i."""
        where = {old: new - len(places) for new, old in enumerate(places)}

        def place(axis: int) -> int:
            return where[axis if axis < 0 else axis - len(places)]

        return BlockShape(
            self.size,
            tuple(place(a) for a in self.axis),
            None if self.dim is None else place(self.dim),
        )

    def _dimension(self, x: torch.Tensor | tuple[int, ...], axis: int) -> int:
        shape = x.shape if isinstance(x, torch.Tensor) else x
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"expected a tensor with dimension {axis} (its blocks' axis), but got one of "
                f"shape {tuple(shape)}"
            )
        return axis % len(shape)


def make(size: object, axis: object, dim: object) -> BlockShape:
    """Build the shape from a user's arguments."""
    if dim is not None:
        if size is not None:
            raise ValueError(
                "expected size=None with dim, for which a slice is a block, but got "
                f"size={size!r}, dim={dim!r}"
            )
        return BlockShape((), (), dimension("dim", dim))
    if axis is None:
        if size is not None:
            raise ValueError(
                "expected size=None with axis=None, for which the tensor is a block, but got "
                f"size={size!r}"
            )
        return BlockShape((), ())
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    sizes = size if isinstance(size, (tuple, list)) else (size,) * len(axes)
    if axis == -1:
        axes = _last(len(sizes))
    if not axes or len(sizes) != len(axes):
        raise ValueError(f"expected as many sizes as axes, but got size={size!r}, axis={axis!r}")
    axes = tuple(dimension("axis", a) for a in axes)
    return BlockShape(
        tuple(None if n is None else integer("size", n, 1, 1 << 40) for n in sizes), axes
    )


def _last(count: int) -> tuple[int, ...]:
    """Return the last dimensions: the default axes of as many sizes."""
    return tuple(range(-count, 0))


def _number(n: int) -> str:
    return str(n).replace("-", "minus")


def size_name(shape: BlockShape) -> str:
    if not shape.size or shape.size == (None,):
        return "all"
    return "x".join("all" if n is None else str(n) for n in shape.size)


def place_name(shape: BlockShape) -> str:
    """Return the part of a name that tells the axes or the dim; empty for the last dimensions."""
    if shape.dim is not None:
        return f"_dim{_number(shape.dim)}"
    if not shape.axis:
        return "_tensor"
    return (
        "" if shape.axis == _last(len(shape.axis)) else "_axis" + "x".join(map(_number, shape.axis))
    )


def parse(size: str, place: str) -> BlockShape:
    """Parse the two parts of a name, size and place."""
    sizes = tuple(None if n == "all" else int(n) for n in size.split("x"))
    match = _NAME.fullmatch(place)
    if match is None:
        return make(sizes, _last(len(sizes)), None)
    axes, dim, tensor = match.groups()
    if tensor or dim is not None:
        return make(None, None, None if tensor else int(dim.replace("minus", "-")))
    return make(sizes, tuple(int(a.replace("minus", "-")) for a in axes.split("x")), None)
