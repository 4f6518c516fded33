"""Transforms of a product's operands before they are rounded: Hadamard matrices with random signs.

A block of n numbers v along one dimension becomes v D H / sqrt(n). D has random signs on its
diagonal, H is Sylvester's Hadamard matrix of ones and minus ones. The matrix D H / sqrt(n) is
orthogonal: where both operands of a product are transformed along the dimension that it sums over,
the product stays the same but for rounding. A large number is spread over its block.

Sources: Ashkboos et al., "QuaRot" (arXiv 2404.00456); NVIDIA, "Pretraining large language models
with NVFP4" (arXiv 2509.25149), section 4.2; for the bits of the signs Steele, Lea, Flood, "Fast
splittable pseudorandom number generators" (2014), in Vigna's version, SplitMix64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..formats.arguments import outline
from .base import COMPUTED, check_dense

SIZES = (16, 32, 64, 128)
# PyTorch's proposal of quantize_tensor takes a random Hadamard transform, "rht", of 16 numbers.
ALIASES = {"rht": "hadamard16"}
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Hadamard:
    """A Hadamard transform of blocks of ``size`` numbers. ``transform_of`` makes it."""

    size: int

    @property
    def name(self) -> str:
        return f"hadamard{self.size}"

    def apply(self, x: torch.Tensor, axis: int = -1, seed: int | None = 0) -> torch.Tensor:
        """Return x with each block v along ``axis`` replaced by v D H / sqrt(size), in x's dtype.

        It is computed in float32 (float64 for float64), by additions in a fixed order and one
        product. So all devices give the same bits. The gradient is the inverse transform's.

        Args:
            x: a tensor of float16, bfloat16, float32 or float64.
            axis: the dimension of the blocks; ``size`` must divide its length.
            seed: which signs; None: no signs. The signs of a seed are the same on all devices and
                in all versions.

        Raises:
            TypeError: a tensor of another dtype, or a sparse one.
            ValueError: a length that ``size`` does not divide, or no such dimension.
        """
        wide, axis = self._prepare(x, axis)
        signs = self._signs(seed, wide, axis)
        return self._multiply(wide if signs is None else wide * signs, axis).to(x.dtype)

    def invert(self, x: torch.Tensor, axis: int = -1, seed: int | None = 0) -> torch.Tensor:
        """Undo ``apply`` of the same arguments, but for rounding."""
        wide, axis = self._prepare(x, axis)
        signs = self._signs(seed, wide, axis)
        wide = self._multiply(wide, axis)
        return (wide if signs is None else wide * signs).to(x.dtype)

    def _prepare(self, x: torch.Tensor, axis: int) -> tuple[torch.Tensor, int]:
        if not isinstance(x, torch.Tensor) or x.dtype not in COMPUTED:
            got = x.dtype if isinstance(x, torch.Tensor) else outline(x)
            raise TypeError(
                f"expected a tensor of float16, bfloat16, float32 or float64 for {self.name}, but "
                f"got {got}: cast it, for example by x.float()"
            )
        check_dense(x, f"transform by {self.name}")
        if not -x.dim() <= axis < x.dim() or x.shape[axis] % self.size:
            raise ValueError(
                f"expected a multiple of {self.size} numbers along dimension {axis} for "
                f"{self.name}, but got shape {tuple(x.shape)}; pad the tensor, or take a smaller "
                "transform or none for this product"
            )
        return x.to(COMPUTED[x.dtype]), axis % x.dim()

    def _signs(self, seed: int | None, x: torch.Tensor, axis: int) -> torch.Tensor | None:
        """Return the signs of x's numbers along ``axis``, in a shape that broadcasts to x."""
        if seed is None:
            return None
        if not isinstance(seed, int) or not 0 <= seed <= _WORD:
            raise ValueError(
                f"expected a seed from 0 to {_WORD}, or None for no signs, but got {seed!r}"
            )
        bits = draw_bits(seed, self.size)
        signs = [1.0 - 2.0 * (bits >> place & 1) for place in range(self.size)]
        row = torch.tensor(signs, dtype=x.dtype, device=x.device)
        return row.repeat(x.shape[axis] // self.size).view(-1, *[1] * (x.dim() - 1 - axis))

    def _multiply(self, x: torch.Tensor, axis: int) -> torch.Tensor:
        """Multiply blocks by H / sqrt(size): sums and differences of pairs, log2(size) times."""
        shape, step = x.shape, 1
        while step < self.size:
            a, b = x.unflatten(axis, (-1, 2, step)).unbind(axis + 1)
            x = torch.stack((a + b, a - b), axis + 1).view(shape)
            step *= 2
        return x * (1 / math.sqrt(self.size))


def draw_bits(seed: int, count: int) -> int:
    """Return ``count`` random bits of a seed: SplitMix64's words, the first one lowest."""
    bits = 0
    for place in range(0, count, 64):
        seed = seed + 0x9E3779B97F4A7C15 & _WORD
        word = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
        bits |= (word ^ word >> 31) << place
    return bits & (1 << count) - 1


def transform_of(value: str | Hadamard) -> Hadamard:
    """Return the transform of a name: ``"hadamard16"``, ``"hadamard32"``, ``"hadamard64"`` or
    ``"hadamard128"``; ``"rht"`` is ``"hadamard16"``.

    Raises:
        ValueError: another name, or no name.
    """
    if isinstance(value, Hadamard):
        return value
    known = {Hadamard(size).name: size for size in SIZES}
    name = ALIASES.get(value, value) if isinstance(value, str) else None
    if name not in known:
        raise ValueError(
            f"expected a transform as one of {', '.join(map(repr, (*known, *ALIASES)))}, but got "
            f"{outline(value)}"
        )
    return Hadamard(known[name])
