"""How a rule's place fits a parameter: its shape, the order of its dimensions, whole blocks."""

from __future__ import annotations

import dataclasses
import math

from torch import nn

from ..targets.block_targets import BlockFormat
from ..targets.quantisers import QuantiserTarget
from .parameters import is_bias, masters_of
from .places import Place
from .refusals import check_whole
from .rounders import Rounder
from .scale_rules import stores_inputs_first


def missing_dimension(place: Place, axis: int | None, dims: int) -> int | None:
    """Return the dimension that a tensor of ``dims`` dimensions lacks, of those along which its
    blocks and scales (``axis``) run; None if it has all.

    A tensor of one dimension always lacks the one for scales. Each number would get its own scale,
    and nothing would be rounded.
    """
    blocks = place.target.shape if isinstance(place.target, BlockFormat) else None
    missing = blocks.find_missing_axis(dims) if blocks else None
    lacks = axis is not None and (dims < 2 or not -dims <= axis < dims)
    return axis if missing is None and lacks else missing


def transpose_place(place: Place) -> Place:
    """Return the place for a weight stored as inputs x outputs: blocks along the last dimension
    move to the one before."""
    blocks = place.target
    if isinstance(blocks, QuantiserTarget) and blocks.axis == -1:
        return dataclasses.replace(place, target=blocks.along(-2))
    if not isinstance(blocks, BlockFormat) or blocks.shape.axis != (-1,):
        return place
    shape = dataclasses.replace(blocks.shape, axis=(-2,))
    return dataclasses.replace(place, target=dataclasses.replace(blocks, shape=shape))


def fit_place(place: Place, dims: int) -> Place:
    """Return the place for a tensor that lacks a dimension: blocks run along its last one, and one
    scale serves the tensor."""
    fitted, scale = place.target, place.scale
    if isinstance(fitted, BlockFormat):
        fitted = fitted.adapt_to(dims)
    return dataclasses.replace(
        place,
        target=fitted,
        scale=None if scale is None else dataclasses.replace(scale, per="tensor"),
    )


def build_rounder(place: Place, role: str, module: nn.Module, name: str, where: str) -> Rounder:
    """Build a parameter's rounder.

    A rule has one place for all gradients of a layer. A bias may lack the dimension of its blocks
    or scales; the place is then fitted to the bias.
    """
    shape = max((p.shape for p in masters_of(module, name)), key=len)
    if stores_inputs_first(module) and not is_bias(name):
        place = transpose_place(place)
    channels_of = "bias" if is_bias(name) else "weight"
    rounder = Rounder(place, role, module, channels_of)
    missing = missing_dimension(
        place, None if rounder.scaler is None else rounder.scaler.axis, len(shape)
    )
    if missing is None:
        check_whole(place, role, shape, where)
        return rounder
    if role == "grad" or math.prod(shape) == 1:
        place = fit_place(place, len(shape))
        check_whole(place, role, shape, where)
        return Rounder(place, role, module, channels_of)
    if len(shape) == 1 and rounder.scaler is not None and missing == rounder.scaler.axis:
        raise ValueError(
            f"expected {role} of {where} with at least 2 dimensions, since each number of one "
            f"would get a scale, but got {name} of shape {tuple(shape)}; set per='tensor'"
        )
    raise ValueError(
        f"expected {role} of {where} with dimension {missing} for its blocks or scales, but got "
        f"{name} of shape {tuple(shape)}"
    )
