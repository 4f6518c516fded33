"""Rules for scales, and the dimension of a layer that has the channels."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch import nn

from ..formats.dtypes import format_of
from ..formats.patterns import name_pattern
from ..targets.block_scales import FLOAT_RULES, POWER_RULES
from ..targets.block_targets import BlockFormat, largest_exponent
from ..targets.blocks import block_format
from ..targets.integer_groups import GroupFormat
from ..targets.integers import IntegerFormat
from ..targets.lookup import Target
from ..targets.quantisers import refuse_options

KINDS = ("free", "power_of_two")
WHEN = ("call", "calibration", "delayed")
BY = name_pattern(r"absmax|mse|percentile\((\d+(?:\.[0-9]+)?)\)")
_OF_TOKENS = (
    "activation output error query key value scores probabilities context key_cache value_cache"
).split()
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)


@dataclass(frozen=True)
class ScaleRule:
    """The rule for a place's scale.

    ``kind`` is one of ``KINDS`` or the scale itself. ``per`` is "tensor", "channel", "token" (one
    scale for each index of all dimensions but the last) or a dimension with one scale per index.
    ``by`` is the statistic, and ``when`` says from which tensors.
    """

    kind: str | float
    per: str | int
    by: str
    when: str
    history: int
    margin: int

    @property
    def may_clip(self) -> bool:
        """Return whether values may lie beyond the range that the scale covers."""
        return isinstance(self.kind, str) and (
            self.when != "call" or self.by != "absmax" or self.margin < 0
        )

    def __str__(self) -> str:
        if not isinstance(self.kind, str):
            return f"scale {self.kind:g}"
        per = self.per if isinstance(self.per, str) else f"index of dimension {self.per}"
        when = {
            "call": "each tensor",
            "calibration": "calibration",
            "delayed": f"{self.history} calls before",
        }[self.when]
        return f"{self.kind.replace('_', ' ')} scale per {per}, {self.by} of {when}"


def scale_rule(target: Target, place: str, options: dict) -> ScaleRule | None:
    """Read the rule for a place's scale from its options; None if it has no scale.

    Raises:
        ValueError, TypeError: an unknown word, or an option of a scale without a scale.
    """
    given = sorted(k for k, v in options.items() if v is not None and k != "scale")
    kind = options.get("scale", "free" if target.needs_scale or given else None)
    if kind is None:
        if target.needs_scale:
            raise ValueError(
                f"expected a scale for {target.name}, but got scale=None; give 'free', "
                "'power_of_two' or a number"
            )
        if given:
            raise ValueError(f"expected {', '.join(given)} with a scale only, but got scale=None")
        return None
    refuse_options(target, kind, "pass")
    is_number = isinstance(kind, (int, float)) and not isinstance(kind, bool)
    if is_number and not sys.float_info.min <= kind <= sys.float_info.max:
        raise ValueError(
            f"expected a positive number as scale, from {sys.float_info.min:.3g} to "
            f"{sys.float_info.max:.3g}, but got {kind!r}"
        )
    if not is_number and kind not in KINDS:
        raise ValueError(
            "expected scale to be 'free', 'power_of_two', a positive number or None, but got "
            f"{kind!r}"
        )
    if is_number and given:
        raise ValueError(
            f"expected a scale of 'free' or 'power_of_two' with {', '.join(given)}, but got "
            f"{kind!r}"
        )
    own_axis = target.axis if isinstance(target, IntegerFormat) else None
    per = options.get("per", "tensor" if own_axis is None else own_axis)
    known = (
        per in ("tensor", "channel", "token")
        if isinstance(per, str)
        else isinstance(per, int) and not isinstance(per, bool) and -64 <= per < 64
    )
    if not known:
        raise ValueError(
            "expected per to be 'tensor', 'channel', 'token' or a dimension from -64 to 63, but "
            f"got {per!r}"
        )
    if per == "token" and place not in _OF_TOKENS:
        raise ValueError(
            f"expected per='token' of {', '.join(_OF_TOKENS)}, but got it of {place}; set "
            "per='channel'"
        )
    _check_blocks(target, per)
    by = options.get("by", "absmax")
    if (
        not isinstance(by, str)
        or not (match := BY.fullmatch(by))
        or (match[1] and not 50 <= float(match[1]) <= 100)
    ):
        raise ValueError(
            "expected by to be 'absmax', 'mse', 'percentile(99.9)' (50 to 100), or for blocks a "
            f"rule of their scales, but got {by!r}"
        )
    calibrates = place in ("activation", "output") and not is_number and per != "token"
    when = options.get("when", "calibration" if calibrates else "call")
    if when not in WHEN:
        raise ValueError(f"expected when as one of {', '.join(map(repr, WHEN))}, but got {when!r}")
    if per == "token" and when != "call":
        raise ValueError(
            f"expected when='call' with per='token', since tokens differ in each call, but got "
            f"{when!r}"
        )
    if when == "calibration" and place not in ("activation", "output"):
        raise ValueError(
            f"expected when='calibration' of activation or output, but got it of {place}; use "
            "'call' or 'delayed'"
        )
    if when == "delayed" and by != "absmax":
        raise ValueError(f"expected by='absmax' with when='delayed', but got {by!r}")
    if when != "delayed" and options.get("history") is not None:
        raise ValueError(
            f"expected history with when='delayed' only, but got history={options['history']!r} "
            f"with when={when!r}"
        )
    history, margin = options.get("history", 16), options.get("margin", 0)
    for name, value, low, high in (("history", history, 1, 4096), ("margin", margin, -64, 64)):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(
                f"expected {name} as an integer from {low} to {high}, but got {value!r}"
            )
    return ScaleRule(kind, per, by, when, history, margin)


def choose_block_rule(target: Target, options: dict) -> Target:
    """Return the block format with the rule of scales that ``by`` names, and take ``by`` out of the
    options. Other targets, and other words, stay."""
    if not isinstance(target, BlockFormat) or options.get("by") not in (*POWER_RULES, *FLOAT_RULES):
        return target
    shape, fmt = target.shape, format_of(target.element)
    return block_format(
        target.element,
        target.scale,
        shape.size or None,
        shape.axis or None,
        dim=shape.dim,
        scale_rule=options.pop("by"),
        emax=None if target.emax == largest_exponent(fmt) else target.emax,
        tensor_scale=target.tensor_scale,
        pad=target.pad,
    )


def _check_blocks(target: Target, per: str | int) -> None:
    """Refuse a scale of groups, and of a block format but for one scale per tensor where it takes
    one."""
    if isinstance(target, GroupFormat):
        raise ValueError(
            f"expected no scale for {target.name}, whose groups have their own, but got one; leave "
            "its options out"
        )
    if not isinstance(target, BlockFormat):
        return
    if target._scale.micro:
        raise ValueError(
            f"expected no scale for {target.name}, whose blocks have their own, but got one; leave "
            "its options out"
        )
    if per != "tensor":
        raise ValueError(
            f"expected one scale per tensor for {target.name}, whose blocks have their own, but "
            f"got per={per!r}; set per='tensor'"
        )


# Layers of other libraries that store weights as inputs x outputs. Modules and names of their
# classes, so that the libraries need not be imported.
_INPUTS_FIRST = {
    ("transformers.pytorch_utils", "Conv1D"),
    ("transformers.modeling_utils", "Conv1D"),
}


def stores_inputs_first(module: nn.Module) -> bool:
    """Return whether a layer's weight is inputs x outputs, where nn.Linear's is outputs x
    inputs."""
    return any((kind.__module__, kind.__name__) in _INPUTS_FIRST for kind in type(module).__mro__)


def channel_axis(role: str, module: nn.Module) -> int:
    """Return the dimension of a layer's channels: the outputs of a weight, the features of an
    activation."""
    if role in ("weight", "grad"):
        return 1 if isinstance(module, TRANSPOSED) or stores_inputs_first(module) else 0
    if role == "bias":
        return 0
    return -len(module.kernel_size) - 1 if isinstance(module, CONVOLUTIONS) else -1


def is_affine(target: Target) -> bool:
    """Return whether the target's scale comes with a zero point."""
    return isinstance(target, IntegerFormat) and not target.symmetric
