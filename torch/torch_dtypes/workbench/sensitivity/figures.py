"""The figures of a study: rises as a heat map, layers by formats, and bits a weight against the metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..colours import GREY, colours
from ..drawing import MARKERS, new_figure

if TYPE_CHECKING:
    from .results import Sensitivity

_DISTANCE = "distance of outputs, relative"
METRIC_NAMES = {"loss": "loss", "accuracy": "error rate in percent", "distance": _DISTANCE}
RISE_NAMES = {"loss": "rise of the loss", "accuracy": "rise of the error rate, points", "distance": _DISTANCE}
NOT_FINITE = "not finite"

_STEPS = 7  # of colour: three and a half decades below the largest rise
_PLAIN = "#EDEDED"  # beneath the hatching of what is not finite
_LOG_FROM = 20  # where the largest value is so many times the smallest, their axis is logarithmic


def rise_text(x: float) -> str:
    return f"{x:+.3g}" if math.isfinite(x) else NOT_FINITE


def steps_of(rises) -> list[float]:
    """Where colours change: 0, and seven of 1, 3, 10, 30, ... times a power of ten up to what bounds the largest rise."""
    largest = max((x for x in rises if math.isfinite(x)), default=0.0)
    if largest <= 0:
        return [0.0, 1.0]
    k = 2 * math.floor(math.log10(largest)) - 1
    while _step(k) < largest:
        k += 1
    return [0.0, *(_step(i) for i in range(k - _STEPS + 1, k + 1))]


def unit_of(top: float) -> float:
    """A power of a thousand, of which the end of the scale is 1 to 300 times: cells are narrow."""
    return float(f"1e{3 * math.floor(math.log10(top) / 3 + 1e-9)}")


def _short(x: float, unit: float, is_narrow: bool) -> str:
    if not math.isfinite(x):
        return "inf" if is_narrow else NOT_FINITE
    text = f"{x / unit:+.{next((n for n, least in enumerate((9.95, 0.095, 0.0095)) if abs(x / unit) >= least), 3)}f}"
    return text if float(text) else "0"


def _step(k: int) -> float:
    return float(f"{3 if k % 2 else 1}e{k // 2}")


def heatmap_figure(found: Sensitivity, width: str = "page"):
    """A matplotlib figure: a row for each layer, a column for each format, the rise as colour and number; below them, all layers at once.

    Darker is worse, in grey, too. What is not finite is hatched, and has no place on the scale; a rise below 0 has the lightest colour.

    Args:
        width: ``"page"`` or ``"column"``, one column of a paper.
    """
    import matplotlib
    import numpy as np
    from matplotlib.colors import BoundaryNorm

    formats = found.settings.formats
    size = 7.0 if width == "page" else 5.5
    everywhere = [found.uniform[name].measured - found.float32 for name in formats]
    rises = np.array([*([found.rises[x.name][name] for name in formats] for x in found.layers), everywhere])
    steps = steps_of(rises.flat)
    unit = unit_of(steps[-1])
    shades = matplotlib.colormaps["YlOrRd"].resampled(256)
    norm = BoundaryNorm(steps, 256, extend="neither")
    narrow = len(formats) > (9 if width == "page" else 4)
    row = 0.25 if width == "page" else 0.17
    with new_figure(width, 1.25 + row * (len(rises) + 0.4)) as figure:
        axes = figure.add_subplot()
        places = [*range(len(found.layers)), len(found.layers) + 0.4]  # a gap before the row of all layers
        for at, values in zip(places, rises, strict=True):
            for j, x in enumerate(values):
                _cell(axes, at, j, _short(x, unit, narrow), shades(norm(min(max(x, 0.0), steps[-1]))) if math.isfinite(x) else None, size)
        axes.set(xlim=(-0.5, len(formats) - 0.5), ylim=(places[-1] + 0.5, -0.5))
        axes.set_xticks(range(len(formats)), formats, fontsize=size)
        if max(map(len, formats)) * len(formats) > (85 if width == "page" else 36):
            axes.tick_params(axis="x", labelrotation=45)
            for label in axes.get_xticklabels():
                label.set(ha="left", rotation_mode="anchor")
        axes.set_yticks(places, [*(x.label for x in found.layers), "all layers"], fontsize=size)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelcolor="black")
        axes.spines[:].set_visible(False)
        _scale(figure, axes, shades, norm, steps, unit, size, RISE_NAMES[found.settings.metric])
    return figure


def _cell(axes, at: float, j: int, text: str, shade, size: float) -> None:
    from matplotlib.patches import Rectangle

    hatched = {"hatch": "////", "edgecolor": "#A0A0A0", "linewidth": 0} if shade is None else {"edgecolor": "white", "linewidth": 1.2}
    axes.add_patch(Rectangle((j - 0.5, at - 0.5), 1, 1, facecolor=shade or _PLAIN, **hatched))
    dark = shade is not None and 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] < 0.45
    box = {"facecolor": _PLAIN, "edgecolor": "none", "pad": 1.2} if shade is None else None
    axes.text(j, at, text, ha="center", va="center", fontsize=size, color="white" if dark else "black", bbox=box)


def _scale(figure, axes, shades, norm, steps: list[float], unit: float, size: float, label: str) -> None:
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(ScalarMappable(norm, shades), ax=axes, orientation="horizontal", fraction=0.035, aspect=60, pad=0.03, spacing="uniform")
    bar.set_ticks(steps, labels=[f"{step / unit:g}" for step in steps], fontsize=size)
    bar.set_label(label if unit == 1 else rf"{label}, in $10^{{{round(math.log10(unit))}}}$", fontsize=size)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)


def tradeoff_figure(found: Sensitivity, width: str = "page", measure: bool = True):
    """A matplotlib figure: the metric against mean bits a weight. Formats in all layers are points, mixtures a line of measured points beside
    what the sum of rises predicts, float32 a dotted line. What is not finite lies at the upper edge, as a cross.

    Args:
        width: ``"page"`` or ``"column"``, one column of a paper.
        measure: whether to choose and measure mixtures of the line; else it has those that are there.

    Raises:
        ModuleNotFoundError: without scipy, for mixtures that are still to be chosen.
    """
    line = found.trade_off() if measure else found._trade_off or []
    mixtures = sorted([*line, *found.mixtures], key=lambda m: (m.bits, -m.predicted))
    tone = colours(found.uniform)
    across = 4 if width == "page" else 2
    lines = -(-(4 + len(found.uniform)) // across)  # of the legend
    with new_figure(width, 3.6 + 0.19 * lines if width == "page" else 2.3 + 0.145 * lines) as figure:
        axes = figure.add_subplot()
        scale = 1.0 if width == "page" else 0.7
        axes.axhline(found.float32, color=GREY, linestyle=":", linewidth=1.4 * scale, label="float32", zorder=1)
        line = {"color": "black", "linewidth": 1.4 * scale}  # which is no format's
        predicted = {**line, "linewidth": scale, "linestyle": "--"}
        axes.plot([m.bits for m in mixtures], [m.predicted for m in mixtures], **predicted, label="mixtures, predicted")
        finite = [m for m in mixtures if math.isfinite(m.measured)]
        axes.plot([m.bits for m in finite], [m.measured for m in finite], "o-", **line, markersize=4 * scale, label="mixtures, measured")
        asked = [m for m in finite if m.budget is not None]
        if asked:
            ring = {"markersize": 9 * scale, "markerfacecolor": "none", "markeredgecolor": "black", "linestyle": ""}
            axes.plot([m.bits for m in asked], [m.measured for m in asked], "o", **ring, label="asked for", zorder=4)
        for i, (name, made) in enumerate(found.uniform.items()):
            style = {"color": tone[name], "linestyle": "", "markersize": 7 * scale, "markeredgewidth": 1.5 * scale, "zorder": 3}
            style["markerfacecolor"] = "none"  # several formats may lie at one place
            if math.isfinite(made.measured):
                axes.plot([made.bits], [made.measured], MARKERS[(i + 1) % len(MARKERS)], **style, label=f"{name} everywhere")
            else:
                edge = axes.get_xaxis_transform()
                axes.plot([made.bits], [1.0], "x", **style, transform=edge, clip_on=False, label=f"{name}, {NOT_FINITE}")
        values = [x for x in (found.float32, *(m.measured for m in (*mixtures, *found.uniform.values()))) if math.isfinite(x)]
        positive = [x for x in values if x > 0]
        if positive and (found.settings.metric == "distance" or len(positive) == len(values)) and max(positive) > _LOG_FROM * min(positive):
            axes.set_yscale("log")
        _plain_numbers(axes)
        axes.set(xlabel="bits a weight, on average", ylabel=METRIC_NAMES[found.settings.metric])
        axes.grid()
        figure.legend(ncols=across, loc="outside upper center", fontsize="small", borderaxespad=0.2)
    return figure


def _plain_numbers(axes) -> None:
    """Ticks as whole numbers, without a power or an offset above the axis, where the legend is."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0) if high < 1e4 * low else (1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.6g}"))
