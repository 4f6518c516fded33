"""Counts of what blocks with scales would do to a tensor, and of what a user's quantiser would do.

A kernel counts in float32 the blocks that a kernel rounds. Others are counted by the steps of
``BlockFormat.quantize``.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator

import torch

from ... import _C
from ...formats import naming
from ...targets.base import COMPUTED
from ...targets.block_targets import BlockFormat
from ...targets.lookup import target
from ...targets.quantisers import QuantiserTarget, is_quantiser
from ..cards.card import card
from .counts import BLOCK_FIELDS

_NONE = -1100  # below the exponents of float64
_EXPONENTS = ("exponents", *BLOCK_FIELDS)


def find_format(value: object) -> tuple[str, _C.Format | BlockFormat | QuantiserTarget]:
    """Return the format of a dtype, a name or a quantiser, and the name under which it is counted.

    Raises:
        TypeError, ValueError: as ``card``.
    """
    if isinstance(value, str) or is_quantiser(value):
        own = target(value)
        if isinstance(own, QuantiserTarget):
            return own.name, own
    c = card(value)
    return c.canonical, c.format


def to_nearest(fmt: BlockFormat | QuantiserTarget) -> BlockFormat | QuantiserTarget:
    """Return a format that rounds to nearest if its mode is random."""
    return fmt.with_rounding("nearest_even") if fmt.rounding in naming.DRAWING_MODES else fmt


@functools.lru_cache(maxsize=64)
def _limits(element: str) -> tuple[float, float, float, float]:
    """Return the lowest and the largest element, the smallest positive one, and the smallest of
    full precision."""
    c = card(element)
    beyond = torch.full((1,), -torch.finfo(torch.float64).max, dtype=torch.float64, device="cpu")
    lowest = _C.decode_exact(c.format, _C.encode_exact(c.format, beyond)).item()
    smallest = 0.0 if c.smallest is None else c.smallest
    return lowest, c.largest, smallest, c.smallest_normal or smallest


def count_blocks(x: torch.Tensor, fmt: BlockFormat) -> dict[str, object]:
    """Round a tensor to blocks, to nearest if the format's mode is random, and count.

    Returns:
        The fields of ``RoundingCounts`` from ``elements`` to ``flushed``.
    """
    fmt = to_nearest(fmt)
    x = x.detach().to(COMPUTED.get(x.dtype, torch.float32))  # a stock float8
    x = x.view(1) if x.dim() == 0 else x
    if fmt._is_in_kernel(x, None) and x.is_cpu and not _C.gpu_on_host():
        shape = fmt.shape
        found = _C.count_blocks(
            x.contiguous(), fmt.element, shape.size, shape.axis, *fmt._kernel_rule
        )
        bins = found.pop("bins")
        return {
            **found,
            "signal": math.fsum(math.ldexp(b[2], 2 * b[0] - 22) for b in bins),
            "noise": math.fsum(math.ldexp(b[3], 2 * b[0] - 22) for b in bins),
            "exponents": {b[0]: b[1] for b in bins if b[1]},
        }
    lowest, largest, smallest, normal = _limits(fmt.element)
    dims = fmt.shape.split(x)[1]
    cut = fmt._cut(x, None)
    elements, quotients = fmt._elements(cut, None, None)
    rounded, size = elements * cut.factor, quotients.abs()

    # Padding is 0, so only counts of zeros see it.
    finite = cut.blocks.isfinite()
    nonzero = finite & (cut.blocks != 0)
    beyond = finite & ((quotients > largest) | (quotients < lowest))
    to_zero = nonzero & (rounded == 0)
    underflow = ~beyond & ((nonzero & (size < smallest)) | to_zero)
    own_nan = cut.blocks.isnan()
    both = finite & rounded.isfinite()
    counts = {
        "overflow": beyond | (finite & ~rounded.isfinite()),
        "saturated": beyond & rounded.isfinite(),
        "underflow": underflow,
        "to_zero": to_zero,
        "subnormal": nonzero & (size >= smallest) & (size < normal) & (rounded != 0),
        "zeros": rounded == 0,
        "nan_in": own_nan,
        "infinite_in": cut.blocks.isinf(),
        "nan_made": rounded.isnan() & ~own_nan,
        "inexact": (rounded != cut.blocks) & ~own_nan,
    }
    sums = [torch.count_nonzero(fmt.shape.join(mask, cut.joins)) for mask in counts.values()]
    exponents = torch.frexp(cut.blocks).exponent - 1
    own = cut.own.flatten()
    own = own[~own.isnan() & (_sum(nonzero, dims) > 0)]
    return {
        "elements": x.numel(),
        **dict(zip(counts, torch.stack(sums).tolist(), strict=True)),
        "signal": _sum_squares(torch.where(both, cut.blocks, 0.0)),
        "noise": _sum_squares(torch.where(both, cut.blocks - rounded, 0.0)),
        "exponents": _count(torch.where(nonzero, exponents, _NONE)),
        "blocks": cut.own.numel(),
        "scales": _count(torch.frexp(own).exponent - 1),
        "clipped": _count_shares(beyond, nonzero, dims),
        "flushed": _count_shares(to_zero, nonzero, dims),
    }


def _sum_squares(x: torch.Tensor) -> float:
    return torch.linalg.vector_norm(x, dtype=torch.float64).item() ** 2


def _count_quantised(x: torch.Tensor, fmt: QuantiserTarget) -> dict[str, object]:
    """Round a tensor by a quantiser, and count. Its range is not known: no number counts as
    saturated or subnormal."""
    exact = x.detach().to(COMPUTED[x.dtype])
    rounded = fmt.quantize(exact)
    finite, nonzero = exact.isfinite(), exact.isfinite() & (exact != 0)
    both = finite & rounded.isfinite()
    exact, rounded = exact.double(), rounded.double()
    to_zero = int((nonzero & (rounded == 0)).sum())
    return {
        "elements": x.numel(),
        "overflow": int((finite & ~rounded.isfinite()).sum()),
        "underflow": to_zero,
        "to_zero": to_zero,
        "zeros": int((rounded == 0).sum()),
        "nan_in": int(exact.isnan().sum()),
        "infinite_in": int(exact.isinf().sum()),
        "nan_made": int((rounded.isnan() & ~exact.isnan()).sum()),
        "inexact": int(((rounded != exact) & ~exact.isnan()).sum()),
        "signal": torch.where(both, exact, 0.0).square().sum().item(),
        "noise": torch.where(both, exact - rounded, 0.0).square().sum().item(),
        "exponents": _count(torch.frexp(exact[nonzero]).exponent - 1),
    }


def _sum(mask: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Sum over each block; one dimension, in the order of the blocks' scales."""
    return (mask.sum(dims) if dims else mask.long()).flatten()


def _count(values: torch.Tensor) -> dict[int, int]:
    """Count each integer above ``_NONE``."""
    counts = torch.bincount(values.flatten() - _NONE)
    found = counts.nonzero().squeeze(1)
    pairs = zip((found + _NONE).tolist(), counts[found].tolist(), strict=True)
    return {value: count for value, count in pairs if value > _NONE}


def _count_shares(mask: torch.Tensor, of: torch.Tensor, dims: list[int]) -> dict[int, int]:
    """Count blocks by the share of ``of`` that ``mask`` has, in tenths, rounded up."""
    tenths = torch.div(-10 * _sum(mask, dims), _sum(of, dims).clamp_min(1), rounding_mode="floor")
    return _count(-tenths)


class BlockCounter:
    """Adds up ``count_blocks`` by layer, pass and format. Any thread may call it."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int, str], dict] = {}
        self._lock = threading.Lock()

    def measure(
        self, t: torch.Tensor, layer: int, where: int, formats: list[BlockFormat | QuantiserTarget]
    ) -> None:
        """Count the numbers of a tensor in each format."""
        for fmt in formats if t.numel() else ():
            if isinstance(fmt, BlockFormat):
                # The tensor may lack the axis of the blocks, such as a bias.
                new = count_blocks(t, fmt.adapt_to(t.dim()))
            else:
                new = _count_quantised(t, to_nearest(fmt))
            with self._lock:
                sums = self._counts.setdefault((layer, where, fmt.name), {})
                for name, count in new.items():
                    if name in _EXPONENTS:
                        merge_counts(sums.setdefault(name, {}), count)
                    else:
                        sums[name] = sums.get(name, 0) + count

    def entries(self) -> Iterator[tuple[int, int, str, dict]]:
        """Yield layer, pass, format and counts."""
        with self._lock:
            for (layer, where, name), counts in self._counts.items():
                bins = {
                    field: dict(sorted(counts[field].items()))
                    for field in _EXPONENTS
                    if field in counts
                }
                yield layer, where, name, {**counts, **bins}


def merge_counts(sums: dict[int, int], more: dict[int, int]) -> None:
    """Add counts by integers to others."""
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count
