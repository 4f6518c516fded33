"""Tables of what elementwise operators make of every code of one tensor, or of every pair of codes of two.

``gelu(x * 1.5 + 0.25)`` of a format of at most 16 bits is a function of x's code, and of 8 bits ``x * y`` of both. The table is what the operators
themselves make of all codes, so the bits are theirs.
"""

from __future__ import annotations

import torch

from . import operators
from .operators import state

_MAX_TABLES = 64  # kept for graphs to come: 128 KiB each for 16 bits
_PAIR_PADDING = 3  # what a gather of four bytes reads behind the last one (kPairPadding in cpu/Kernels.h)

look_up = torch.ops.torch_dtypes_codes.look_up.default
torch.library.register_fake("torch_dtypes_codes::look_up", lambda input, table: operators.dense_like(input), lib=operators.library)
_known: dict[tuple, torch.Tensor] = {}


def most_origins(dtype: torch.dtype) -> int:
    """Of how many codes at once there is a table: 256 * 256 pairs, or 2^16 codes."""
    return {1: 2, 2: 1}.get(dtype.itemsize, 0)


def table(node: torch.fx.Node, origins: list[torch.fx.Node], dtype: torch.dtype) -> torch.Tensor:
    """The node's codes for all of its origins', of the first one in rows where there are two."""
    key = state(), _text(node, origins)  # of formats and numbers; modes are the thread's
    if (known := _known.get(key)) is None:
        if len(_known) >= _MAX_TABLES:
            _known.clear()
        bits = torch.arange(2 ** (8 * dtype.itemsize), dtype=torch.int32, device="cpu").to(torch.uint8 if dtype.itemsize == 1 else torch.int16)
        if len(origins) == 1:
            known = _values(node, {origins[0]: bits})
        else:
            codes = _values(node, {origins[0]: bits.repeat_interleave(256), origins[1]: bits.repeat(256)})
            known = torch.cat([codes, codes[:_PAIR_PADDING]])
        _known[key] = known
    return known


def _values(node: torch.fx.Node, values: dict) -> torch.Tensor:
    if node not in values:
        given = {n: _values(n, values) for n in node.all_input_nodes}
        args = torch.fx.map_arg(node.args, given.__getitem__)
        values[node] = node.target(*args, **node.kwargs)
    return values[node]


def _text(node: torch.fx.Node, origins: list[torch.fx.Node]) -> tuple:
    if node in origins:
        return ("x", origins.index(node))
    return node.target, repr(torch.fx.map_arg(node.args, lambda n: _text(n, origins))), repr(node.kwargs)
