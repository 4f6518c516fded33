"""The suite ``blocks``: rounding in blocks that share a scale, over a copy and over mxfp4."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import torch_dtypes

from .measuring import Group, Row, Sizes

SUMMARY = (
    "Rounding a float32 matrix in blocks that share a scale, over a copy of it and over mxfp4, "
    "whose blocks of 32 have powers of two."
)
_COPY = "float32"
_OVER_COPY = 2
# The most times mxfp4's time; None: no target.
_OVER_MXFP4 = {
    "mxfp4_axis0": None,
    "mxfp8_e4m3": None,
    "mxint8": None,
    "mxfp4_stochastic": None,
    "block<e2m1finite,e8m0,16x16>": 2,
    "nvfp4": 1.6,
    "nvfp4_axis0": 1.6,
    "nvfp4_16x16": 2,
    "hif4": 2,
    "hif4_axis0": 2,
}


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    """Build the groups. Blocks are no dtypes, so ``dtypes`` changes nothing."""
    return [_group(side) for side in sizes.block_sides]


def _group(side: int) -> Group:
    names = ["mxfp4", *_OVER_MXFP4]

    def spaces() -> dict[str, dict]:
        x = torch.randn(side, side)
        return {_COPY: {"x": x}} | {
            name: {"x": x, "target": torch_dtypes.target(name)} for name in names
        }

    work = f"{side} x {side}"
    rows = [Row(f"{work}, over a copy", "mxfp4", _COPY, _OVER_COPY)]
    rows += [
        Row(f"{work}, over mxfp4", name, "mxfp4", limit) for name, limit in _OVER_MXFP4.items()
    ]
    codes = {_COPY: "x.clone()"} | dict.fromkeys(names, "target.quantize(x)")
    return Group(codes, spaces, rows, rounds=60)
