"""Integers in groups: each group of a tensor has a scale of its own and, if affine, a zero point.

Sources: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference" (arXiv 1712.05877), section 2.1, for scale and zero point;
Frantar et al., "GPTQ" (arXiv 2210.17323), section 4, for groups.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch

from ..formats.patterns import name_pattern
from . import block_shapes, integers
from .base import Target, check_dense, check_tensor, refuse_zero_point
from .block_shapes import BlockShape
from .integers import IntegerFormat, scale_of

_NAME = name_pattern(
    r"(u?int\d+(?:_affine|_symmetric)?(?:_narrow)?)_group(\d+)(_axis(?:minus)?\d+)?"
)


@dataclass(frozen=True, repr=False)
class GroupFormat(Target):
    """Integers with a float32 scale (and a zero point, if they are affine) for each group. Names
    make it: ``target("int4_group128")``, ``target("uint4_group32_axis0")``.

    The scale and the zero point of a group follow from its lowest and highest number, as
    ``calibration`` computes them from a tensor's. A last group may be shorter. A group with an
    infinity or NaN is NaN throughout.
    """

    integers: IntegerFormat
    shape: BlockShape
    # Derived from the fields above, and stored for code that torch.compile traces.
    bits: int = field(init=False, compare=False)
    largest: int = field(init=False, compare=False)
    full_scale: int = field(init=False, compare=False)
    rounding: str = field(init=False, compare=False)
    name: str = field(init=False, compare=False)

    def __post_init__(self):
        plain = dataclasses.replace(self.integers, rounding="nearest_even")
        name = f"{plain.name}_group{self.shape.size[0]}{block_shapes.place_name(self.shape)}"
        mode = self.integers.rounding
        for key, value in {
            "bits": plain.bits,
            "largest": plain.largest,
            "full_scale": plain.full_scale,
            "rounding": mode,
            "name": name if mode == "nearest_even" else f"{name}_{mode}",
        }.items():
            object.__setattr__(self, key, value)

    @property
    def bits_per_value(self) -> float:
        of_group = 32 + (0 if self.integers.symmetric else self.bits)
        return self.bits + of_group / self.shape.size[0]

    def with_rounding(self, mode: str | int) -> GroupFormat:
        return GroupFormat(self.integers.with_rounding(mode), self.shape)

    def quantize(
        self, x, *, scale=None, zero_point=None, rounding=None, generator=None, clamped="pass"
    ):
        check_tensor(x, self)
        check_dense(x, f"quantise to {self.name}")
        refuse_zero_point(zero_point, self)
        if scale is not None:
            raise ValueError(
                f"expected no scale with {self.name}, whose groups have their own, but got "
                f"{scale!r}: multiply the tensor by it, or take {self.integers.name!r}"
            )
        if x.numel() == 0:
            return x.clone()
        # The padding is 0, which every range contains.
        groups, dims, joins = self.shape.split(x if x.dim() else x.view(1))
        values = groups.detach()
        found, point = scale_of(
            self.integers, values.amin(dims, keepdim=True), values.amax(dims, keepdim=True), False
        )
        y = self.integers.quantize(
            groups,
            scale=found,
            zero_point=point,
            rounding=rounding,
            generator=generator,
            clamped=clamped,
        )
        return self.shape.join(y, joins).view(x.shape)

    def scales(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the scale and the zero point (None if symmetric) of each group, in x's shape with
        one entry for each group."""
        check_tensor(x, self)
        groups, dims, joins = self.shape.split(x.detach() if x.dim() else x.detach().view(1))
        bounds = groups.amin(dims, keepdim=True), groups.amax(dims, keepdim=True)
        return tuple(
            None if t is None else self.shape.grid(t, joins).view(self.shape.grid_shape(x.shape))
            for t in scale_of(self.integers, *bounds, False)
        )


def parse(name: str, mode: str) -> GroupFormat | None:
    """Parse a name without rounding mode; None if it is no such name."""
    if not (match := _NAME.fullmatch(name)):
        return None
    of_integers, size, place = match.groups()
    return GroupFormat(integers.parse(of_integers, mode), block_shapes.parse(size, place or ""))
