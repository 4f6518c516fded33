"""The figures of a study: rises as a heat map of layers by formats, and bits a weight against the
metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..report.colours import GREY, colours
from ..report.drawing import MARKERS, new_figure
from ..report.heatmap import draw_map, draw_scale

if TYPE_CHECKING:
    from .results import Sensitivity

_DISTANCE = "distance of outputs, relative"
METRIC_NAMES = {"loss": "loss", "accuracy": "error rate in percent", "distance": _DISTANCE}
RISE_NAMES = {
    "loss": "rise of the loss",
    "accuracy": "rise of the error rate, points",
    "distance": _DISTANCE,
}
NOT_FINITE = "not finite"

_STEPS = 7  # steps of colour: three and a half decades below the largest rise
_LOG_FROM = 20  # the ratio of largest to smallest value above which their axis is logarithmic


def rise_text(x: float) -> str:
    return f"{x:+.3g}" if math.isfinite(x) else NOT_FINITE


def steps_of(rises) -> list[float]:
    """Return the numbers where colours change: 0, and seven of 1, 3, 10, 30, ... times a power of
    ten, up to a bound of the largest rise."""
    largest = max((x for x in rises if math.isfinite(x)), default=0.0)
    if largest <= 0:
        return [0.0, 1.0]
    k = 2 * math.floor(math.log10(largest)) - 1
    while _step(k) < largest:
        k += 1
    return [0.0, *(_step(i) for i in range(k - _STEPS + 1, k + 1))]


def unit_of(top: float) -> float:
    """Return the power of a thousand in which the end of the scale is 1 to 300, since cells are
    narrow."""
    return float(f"1e{3 * math.floor(math.log10(top) / 3 + 1e-9)}")


def _short(x: float, unit: float, is_narrow: bool) -> str:
    if not math.isfinite(x):
        return "inf" if is_narrow else NOT_FINITE
    share = x / unit
    digits = next((n for n, least in enumerate((9.95, 0.095, 0.0095)) if abs(share) >= least), 3)
    text = f"{share:+.{digits}f}"
    return text if float(text) else "0"


def _step(k: int) -> float:
    return float(f"{3 if k % 2 else 1}e{k // 2}")


def heatmap_figure(result: Sensitivity, width: str = "page"):
    """Draw a matplotlib figure with a row for each layer and a column for each format. The rise is
    a colour and a number. The last row is all layers at once.

    Darker is worse, also in grey. Results that are not finite are hatched, and have no place on the
    scale; a rise below 0 has the lightest colour.

    Args:
        width: ``"page"`` or ``"column"``, one column of a paper.
    """
    formats, size = result.settings.formats, 7.0 if width == "page" else 5.5
    everywhere = [result.uniform[name].measured - result.float32 for name in formats]
    rises = [*([result.rises[x.name][name] for name in formats] for x in result.layers), everywhere]
    steps = steps_of(x for row in rises for x in row)
    unit = unit_of(steps[-1])
    narrow = len(formats) > (9 if width == "page" else 4)
    values = [[x if math.isfinite(x) else math.nan for x in row] for row in rises]
    texts = [[_short(x, unit, narrow) for x in row] for row in rises]
    broken = {(i, j) for i, row in enumerate(values) for j, x in enumerate(row) if math.isnan(x)}
    label = RISE_NAMES[result.settings.metric]
    with new_figure(
        width, 1.25 + (0.25 if width == "page" else 0.17) * (len(rises) + 0.4)
    ) as figure:
        axes = figure.add_subplot()
        draw_map(
            axes,
            values,
            texts,
            formats,
            [*(x.label for x in result.layers), "all layers"],
            steps,
            size,
            broken,
        )
        axes.axhline(len(result.layers) - 0.5, color="white", linewidth=4)
        if max(map(len, formats)) * len(formats) > (85 if width == "page" else 36):
            axes.tick_params(axis="x", labelrotation=45)
            for tick in axes.get_xticklabels():
                tick.set(ha="left", rotation_mode="anchor")
        draw_scale(
            figure,
            axes,
            steps,
            label if unit == 1 else rf"{label}, in $10^{{{round(math.log10(unit))}}}$",
            size,
            unit,
        )
    return figure


def tradeoff_figure(result: Sensitivity, width: str = "page", measure: bool = True):
    """Draw a matplotlib figure of the metric against mean bits a weight. Formats in all layers are
    points, float32 is a dotted line. Mixtures are a line of measured points, with the prediction
    from the sum of rises. Results that are not finite are crosses at the upper edge.

    Args:
        width: ``"page"`` or ``"column"``, one column of a paper.
        measure: whether to choose and measure mixtures for the line; if not, it has the existing
            ones.

    Raises:
        ModuleNotFoundError: without scipy, for mixtures still to be chosen.
    """
    line = result.trade_off() if measure else result._trade_off or []
    mixtures = sorted([*line, *result.mixtures], key=lambda m: (m.bits, -m.predicted))
    tone = colours(result.uniform)
    across = 4 if width == "page" else 2
    lines = -(-(4 + len(result.uniform)) // across)  # of the legend
    with new_figure(
        width, 3.6 + 0.19 * lines if width == "page" else 2.3 + 0.145 * lines
    ) as figure:
        axes = figure.add_subplot()
        scale = 1.0 if width == "page" else 0.7
        axes.axhline(
            result.float32,
            color=GREY,
            linestyle=":",
            linewidth=1.4 * scale,
            label="float32",
            zorder=1,
        )
        # The colour of names that are no formats
        line = {"color": "black", "linewidth": 1.4 * scale}
        predicted = {**line, "linewidth": scale, "linestyle": "--"}
        axes.plot(
            [m.bits for m in mixtures],
            [m.predicted for m in mixtures],
            **predicted,
            label="mixtures, predicted",
        )
        finite = [m for m in mixtures if math.isfinite(m.measured)]
        axes.plot(
            [m.bits for m in finite],
            [m.measured for m in finite],
            "o-",
            **line,
            markersize=4 * scale,
            label="mixtures, measured",
        )
        chosen = [m for m in finite if m.budget is not None]
        if chosen:
            ring = {
                "markersize": 9 * scale,
                "markerfacecolor": "none",
                "markeredgecolor": "black",
                "linestyle": "",
            }
            axes.plot(
                [m.bits for m in chosen],
                [m.measured for m in chosen],
                "o",
                **ring,
                label="chosen",
                zorder=4,
            )
        for i, (name, mixture) in enumerate(result.uniform.items()):
            style = {
                "color": tone[name],
                "linestyle": "",
                "markersize": 7 * scale,
                "markeredgewidth": 1.5 * scale,
                "zorder": 3,
            }
            style["markerfacecolor"] = "none"  # several formats may have the same place
            if math.isfinite(mixture.measured):
                axes.plot(
                    [mixture.bits],
                    [mixture.measured],
                    MARKERS[(i + 1) % len(MARKERS)],
                    **style,
                    label=f"{name} everywhere",
                )
            else:
                edge = axes.get_xaxis_transform()
                axes.plot(
                    [mixture.bits],
                    [1.0],
                    "x",
                    **style,
                    transform=edge,
                    clip_on=False,
                    label=f"{name}, {NOT_FINITE}",
                )
        values = [
            x
            for x in (result.float32, *(m.measured for m in (*mixtures, *result.uniform.values())))
            if math.isfinite(x)
        ]
        positive = [x for x in values if x > 0]
        if (
            positive
            and (result.settings.metric == "distance" or len(positive) == len(values))
            and max(positive) > _LOG_FROM * min(positive)
        ):
            axes.set_yscale("log")
        _plain_numbers(axes)
        axes.set(xlabel="bits a weight, on average", ylabel=METRIC_NAMES[result.settings.metric])
        axes.grid()
        figure.legend(ncols=across, loc="outside upper center", fontsize="small", borderaxespad=0.2)
    return figure


def _plain_numbers(axes) -> None:
    """Write ticks as whole numbers, without a power or an offset above the axis, where the legend
    is."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(
            LogLocator(10, subs=(1.0, 3.0) if high < 1e4 * low else (1.0,))
        )
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.6g}"))
