"""The figures of ``show``: precision against magnitude, error within a block, the number line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from ...targets.block_shapes import BlockShape
from ...targets.lookup import target
from ..report.colours import colours
from ..report.drawing import DASHES, label_binades, new_figure
from .card import BlockCard, Card

_LINE_BITS = 8
_BINADES = 20  # of the error within a block
_SAMPLES = 400  # random numbers in each quarter of a binade


def _without_scales(cards: Sequence[Card | BlockCard]) -> list[Card]:
    """Return the cards of blocks' elements, under the blocks' names, in place of the blocks'."""
    return [
        dataclasses.replace(c.element, name=c.name) if isinstance(c, BlockCard) else c
        for c in cards
    ]


def precision_figure(cards: Sequence[Card | BlockCard], width: str = "page"):
    """Draw significant bits (left) and decimal digits (right) against magnitude, a step for each
    binade, as in the posit literature.

    Args:
        cards: the cards, at least one; of blocks their elements are drawn. width: ``"page"`` or
            ``"column"``.

    Source: Gustafson, Yonemoto, "Beating floating point at its own game: posit arithmetic" (2017),
    figures 7 to 10.
    """
    cards = _without_scales(cards)
    colour = colours(c.name for c in cards)
    with new_figure(width, 4.2 if width == "page" else 2.6) as figure:
        axes = figure.add_subplot()
        most = 0.0
        for i, c in enumerate(cards):
            exponents = c.exponents()
            if not len(exponents):  # no positive numbers
                continue
            bits = c.precision(exponents)
            most = max(most, bits.max().item())
            edges = torch.cat([exponents, exponents[-1:] + 1]).tolist()
            style = {"linewidth": 1.8 if width == "page" else 1.1, "linestyle": DASHES[i // 6 % 4]}
            axes.stairs(
                bits.tolist(), edges, baseline=0, color=colour[c.name], label=c.name, **style
            )
        axes.set(xlabel="magnitude", ylabel="significant bits", ylim=(0, (most or 1) * 1.12))
        label_binades(axes, 9)
        axes.grid()
        digits = axes.secondary_yaxis(
            "right", functions=(lambda b: b * math.log10(2), lambda d: d / math.log10(2))
        )
        digits.set_ylabel("decimal digits")
        if any(len(c.exponents()) for c in cards):
            axes.legend(
                ncols=min(len(cards), 5 if width == "page" else 3),
                loc="lower center",
                bbox_to_anchor=(0.5, 1.0),
                fontsize="small",
            )
    return figure


def measure_errors(c: Card | BlockCard) -> torch.Tensor:
    """Measure the relative error of a number in a block, by its magnitude relative to the block's
    largest.

    Returns:
        The root mean square over random numbers for each quarter of a binade below the largest, in
        float64. Numbers that become 0 have an error of 1.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (4 * _BINADES, _SAMPLES)
    top = torch.exp2(torch.rand(shape, generator=generator, dtype=torch.float64))
    depth = torch.arange(shape[0]).unsqueeze(1) + torch.rand(shape, generator=generator)
    x = top * torch.exp2(-depth.double() / 4)
    if isinstance(c, BlockCard):
        sizes = c.format.shape.size
        count = min(64, math.prod(sizes)) if sizes and None not in sizes else 2
        fmt = dataclasses.replace(c.format, shape=BlockShape((max(count, 2),), (-1,)), pad=True)
        blocks = torch.zeros(*shape, fmt.shape.size[0], dtype=torch.float64)
        # Not beside the largest: in HiF4 a few neighbours share more than the scale.
        place = torch.randint(1, blocks.shape[-1], (*shape, 1), generator=generator)
        blocks[..., 0] = top
        rounded = fmt.quantize(blocks.scatter_(-1, place, x.unsqueeze(-1)))
        rounded = rounded.gather(-1, place).squeeze(-1)
    else:
        fmt = target(c.format)
        rounded = fmt.quantize(x, scale=top / fmt.full_scale)
    return ((rounded - x) / x).square().mean(1).sqrt()


def error_figure(cards: Sequence[Card | BlockCard], width: str = "page"):
    """Draw the relative error of a number against its magnitude relative to its block's largest.

    Args:
        cards, width: as in :func:`precision_figure`.
    """
    colour = colours(c.name for c in cards)
    page = width == "page"
    with new_figure(width, 4.2 if page else 2.6) as figure:
        axes = figure.add_subplot()
        # float64 rounds nothing here, and a logarithmic axis has no 0.
        measured = [measure_errors(c).clamp_min(1e-16) for c in cards]
        # To the last number that is more than 0, and a binade beyond.
        kept = (torch.stack(measured) < 0.99).any(0).nonzero().max().item()
        shown = min(kept // 4 + 2, _BINADES)
        for i, (c, errors) in enumerate(zip(cards, measured, strict=True)):
            axes.stairs(
                errors[: 4 * shown].flip(0).tolist(),
                (torch.arange(-4 * shown, 1) / 4).tolist(),
                baseline=None,
                color=colour[c.name],
                label=c.name,
                linewidth=1.8 if page else 1.1,
                linestyle=DASHES[i // 6 % 4],
            )
        axes.set(xlabel="magnitude / largest of the block", ylabel="relative error", yscale="log")
        axes.set_xlim(-shown, 0)
        label_binades(axes, 9)
        axes.grid()
        axes.legend(
            ncols=min(len(cards), 5 if page else 3),
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            fontsize="small",
        )
    return figure


def number_line_figure(cards: Sequence[Card | BlockCard], width: str = "page"):
    """Draw the positive numbers of formats of at most 8 bits as ticks: on a linear scale, and by
    magnitude.

    Args:
        cards: the cards; at least one must have at most 8 bits, and the others are left out. width:
            as in :func:`precision_figure`.
    """
    cards = _without_scales(cards)
    small = [c for c in cards if c.bits <= _LINE_BITS]
    if not small:
        raise ValueError(
            f"expected a format of at most {_LINE_BITS} bits for a number line, but got "
            f"{', '.join(c.name for c in cards)}"
        )
    colour = colours(c.name for c in cards)
    with new_figure(
        width, 1.0 + 0.62 * len(small) if width == "page" else 0.9 + 0.4 * len(small)
    ) as figure:
        linear, by_magnitude = figure.subplots(1, 2, sharey=True)
        for row, c in enumerate(small):
            values = c.values()
            values = values[values.isfinite() & (values > 0)].unique()
            # One line with gaps, a tenth of the bytes of a mark for each number.
            at = len(small) - row + torch.tensor([-0.28, 0.28, math.nan])
            for axes in (linear, by_magnitude):
                axes.plot(
                    values.repeat_interleave(3),
                    at.repeat(len(values)),
                    color=colour[c.name],
                    linewidth=0.9,
                    solid_capstyle="butt",
                )
        linear.set_xlim(0, 4)
        linear.set_xlabel("numbers from 0 to 4")
        if any(len(c.exponents()) for c in small):
            by_magnitude.set_xscale("log", base=2)
        by_magnitude.set_xlabel("all positive numbers, by magnitude")
        linear.set_yticks(range(1, len(small) + 1), [c.name for c in reversed(small)])
        linear.set_ylim(0.4, len(small) + 0.6)
        for axes in (linear, by_magnitude):
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
    return figure
