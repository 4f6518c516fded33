"""The report of a study: its text, its figures, and plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ...formats.arguments import mode_and_bits
from ...formats.naming import DRAWING_MODES
from ..report.colours import GREY, PALETTE
from ..report.drawing import new_figure
from ..report.page import Report

if TYPE_CHECKING:
    from .results import Layer, Metric, Variability

_METRICS = (
    "metric",
    "IEEE",
    "mean",
    "deviation",
    "digits",
    "bits",
    "classic digits",
    "classic bits",
)
_LAYERS = (
    "module",
    "kind",
    "elements",
    "median digits",
    "5 % have at most",
    "least",
    "classic median",
)
_EPOCHS = ("epoch", "metric", "IEEE", "deviation", "digits", "classic digits")
_PARTS = (
    "module perturbed alone",
    "kind",
    "operations",
    "deviation",
    "digits of the output",
    "responsible by itself",
)


def place(name: str) -> str:
    """Return a module's name; the model itself has none."""
    return name or "(the model itself)"


def _figures(x: float, digits: int = 2) -> str:
    return "-" if math.isnan(x) else f"{x:.{digits}f}"


def _value(x: float) -> str:
    return f"{x:.9g}"


def metric_rows(result: Variability) -> list[tuple[str, ...]]:
    rows = []
    for m in result.metrics:
        a, b = m.nonparametric, m.classic
        estimates = (x.item() for x in (a.decimal, a.bits, b.decimal, b.bits))
        rows.append(
            (
                m.name,
                _value(m.exact),
                _value(a.mean.item()),
                f"{a.deviation.item():.3g}",
                *map(_figures, estimates),
            )
        )
    return rows


def epoch_rows(result: Variability) -> list[tuple[str, ...]]:
    return [
        (
            str(epoch.epoch),
            m.name,
            _value(m.exact),
            f"{m.nonparametric.deviation.item():.3g}",
            _figures(m.nonparametric.decimal.item()),
            _figures(m.classic.decimal.item()),
        )
        for epoch in result.epochs
        for m in epoch.metrics
    ]


def _activations(result: Variability) -> list[Layer]:
    return [*result.layers, *([result.output] if result.output else [])]


def layer_rows(layers: Sequence[Layer]) -> list[tuple[str, ...]]:
    return [
        (
            place(x.name),
            x.kind,
            f"{x.elements:,}",
            *map(_figures, (x.median, x.low, x.least, x.classic)),
        )
        for x in layers
    ]


def part_rows(result: Variability) -> list[tuple[str, ...]]:
    parts = sorted(result.parts, key=lambda p: -p.deviation)
    return [
        (
            place(p.name),
            p.kind,
            f"{p.operations:,}",
            f"{p.deviation:.3g}",
            _figures(p.digits),
            "yes" if p.fails else "no",
        )
        for p in parts
    ]


def sentences(result: Variability) -> list[str]:
    """Summarise the study in sentences."""
    s = result.settings
    of = result.metrics[0].nonparametric
    draws = mode_and_bits(s.mode)[0].name in DRAWING_MODES
    steps = (
        ""
        if s.level == "operator"
        else f", instruction by instruction ({'fused' if s.fused else 'product and sum apart'})"
    )
    lines = [
        f"{result.what.capitalize()} repeated {s.repeats} times on {result.samples:,} inputs, "
        f"every operation rounded {'' if s.format is None else f'to {s.format} '}in the mode "
        f"{s.mode}{steps}.",
        "Two runs in IEEE arithmetic are "
        + (
            "the same to the last bit."
            if result.deterministic
            else "NOT the same: digits are lost there, too."
        ),
    ]
    if draws:
        lines.append(
            "Digits are by the non-parametric estimator: a further run agrees with the mean to "
            f"so many with probability {of.probability:.3g}, at a confidence of "
            f"{of.confidence:.3g}; layers, with IEEE's value. The classic estimate is "
            "-log10(deviation / mean)."
        )
    else:
        lines.append(
            "This mode draws nothing, so every run rounds alike. Digits of metrics, which compare "
            "runs, do not measure rounding; digits of layers tell how far they "
            "agree with IEEE's value. Give a mode that draws, such as stochastic or up_down."
        )
    if result.dice is not None:
        lines.append(
            f"The smallest Dice score of the predicted labels of two runs is {result.dice:.6g}."
        )
    if result.unseen:
        lines.append(
            "Left in stock arithmetic: "
            + ", ".join(f"{name} ({n} times)" for name, n in sorted(result.unseen.items()))
            + "."
        )
    if s.where:
        limit = "given" if s.tolerance is not None else "half of that"
        moved = (
            f"With every operation rounded so, the {s.metric} moves by up to {result.deviation:.3g}"
        )
        lines.append(f"{moved}; the tolerance is {result.tolerance:.3g} ({limit}).")
        if result.responsible:
            sets = "; ".join(" with ".join(place(n) for n in names) for names in result.responsible)
            lines.append(f"Responsible: {sets}.")
        else:
            runs = f"in {s.where_repeats} run{'s' * (s.where_repeats != 1)}"
            lines.append(
                f"No set of modules is responsible: all together stay within the tolerance {runs}."
            )
            # For example, the digits of the loss are lost in its own rounding, which is no
            # module's.
            if result.deviation > result.tolerance:
                lines.append(
                    "The rest comes from rounding outside of modules, in the loss for "
                    "instance, or takes more runs to show."
                )
    return lines


def layers_figure(layers: Sequence[Layer], most: float, width: str = "page"):
    """Draw the digits of each module's activations, or each parameter's: the median, and the range
    from the lowest 5 % of elements. ``most`` is all that the format has."""
    with new_figure(width, 1.2 + 0.28 * len(layers)) as figure:
        axes = figure.add_subplot()
        at = range(len(layers), 0, -1)
        axes.hlines(
            at, [x.low for x in layers], [x.median for x in layers], color=PALETTE[0], linewidth=2
        )
        axes.plot([x.median for x in layers], at, "o", color=PALETTE[0], label="median")
        axes.plot(
            [x.low for x in layers],
            at,
            "|",
            color=PALETTE[0],
            markersize=9,
            label="5 % of the elements have no more",
        )
        axes.set_yticks(at, [place(x.name) for x in layers])
        axes.set(xlabel="significant decimal digits", xlim=(0, most * 1.03))
        axes.axvline(most, color=GREY, linewidth=0.8, linestyle=":")
        axes.grid(axis="x")
        axes.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def parts_figure(result: Variability, width: str = "page"):
    """Draw how far each module moves the chosen metric when it alone is perturbed, with all of them
    together and the tolerance."""
    parts = sorted(result.parts, key=lambda p: -p.deviation)
    from matplotlib.ticker import LogLocator, NullFormatter

    culprits = {name for names in result.responsible for name in names}
    with new_figure(width, 1.3 + 0.28 * (len(parts) + 1)) as figure:
        axes = figure.add_subplot()
        names = ["all modules", *(place(p.name) for p in parts)]
        values = [result.deviation, *(p.deviation for p in parts)]
        shown = [v for v in values if 0 < v < math.inf] or [1.0]
        floor, ceiling = min(shown) / 3, max(shown) * 3
        colours = [GREY, *(PALETTE[1] if p.name in culprits else PALETTE[0] for p in parts)]
        for at, value, colour in zip(range(len(names), 0, -1), values, colours, strict=True):
            axes.hlines(at, floor, min(max(value, floor), ceiling), color=colour, linewidth=2)
            axes.plot(
                [min(max(value, floor), ceiling)],
                [at],
                "o" if math.isfinite(value) else ">",
                color=colour,
            )
        axes.set_yticks(range(len(names), 0, -1), names)
        axes.set_xscale("log")
        metric = result.settings.metric
        what = (
            "distance of the outputs from IEEE's, relative"
            if metric == "distance"
            else f"{metric}: deviation from IEEE's"
        )
        axes.set(xlabel=f"{what} (the largest of the runs)", xlim=(floor, ceiling))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(
            LogLocator(10, subs=(1.0, 2.0, 5.0) if ceiling / floor < 100 else (1.0,))
        )
        if floor < result.tolerance < ceiling:
            axes.axvline(result.tolerance, color=GREY, linewidth=0.9, linestyle="--")
            axes.text(
                result.tolerance,
                len(names) + 0.55,
                "tolerance",
                color=GREY,
                ha="center",
                va="bottom",
            )
        axes.set_ylim(0.4, len(names) + 0.5)
        axes.grid(axis="x")
    return figure


def epochs_figure(result: Variability, width: str = "page"):
    """Draw the digits of each metric after each epoch of the training."""
    with new_figure(width, 3.0) as figure:
        axes = figure.add_subplot()
        at = [epoch.epoch for epoch in result.epochs]
        for m, colour in zip(result.epochs[0].metrics, PALETTE, strict=False):
            digits = [
                next(x.nonparametric.decimal.item() for x in epoch.metrics if x.name == m.name)
                for epoch in result.epochs
            ]
            axes.plot(at, digits, "o-", color=colour, label=m.name)
        axes.set(xlabel="epoch", ylabel="significant decimal digits", ylim=(0, _most(result)))
        axes.set_xticks(at)
        axes.grid(axis="y")
        axes.legend()
    return figure


def _most(result: Variability) -> float:
    return result.bits * math.log10(2)


def _metric(m: Metric) -> dict:
    return {
        "name": m.name,
        "exact": m.exact,
        "values": m.values,
        "mean": m.nonparametric.mean.item(),
        "deviation": m.nonparametric.deviation.item(),
        "digits": m.nonparametric.decimal.item(),
        "bits": m.nonparametric.bits.item(),
        "probability": m.nonparametric.probability,
        "confidence": m.nonparametric.confidence,
        "classic_digits": m.classic.decimal.item(),
        "classic_bits": m.classic.bits.item(),
    }


def as_json(result: Variability) -> dict:
    """Return plain data. Numbers that are not finite are strings, for JSON."""

    def plain(value):
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, dict):
            return {key: plain(v) for key, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    data = {
        "settings": asdict(result.settings),
        "what": result.what,
        "samples": result.samples,
        "deterministic": result.deterministic,
        "runs": result.runs,
        "dice": result.dice,
        "deviation": result.deviation,
        "tolerance": result.tolerance,
        "unseen": result.unseen,
        "responsible": result.responsible,
        "metrics": [_metric(m) for m in result.metrics],
        "epochs": [
            {"epoch": e.epoch, "metrics": [_metric(m) for m in e.metrics]} for e in result.epochs
        ],
        "parameters": [asdict(x) for x in result.parameters],
        "layers": [asdict(x) for x in result.layers],
        "output": asdict(result.output) if result.output else None,
        "parts": [asdict(p) for p in result.parts],
    }
    return plain(data)


def report_of(result: Variability, command: str | None = None) -> Report:
    report = Report(
        result.title, command=command, seeds=[result.settings.seed], data=result.as_json
    )
    report.text(*sentences(result))
    report.section("Results").table(_METRICS, metric_rows(result), name="metrics")
    report.section("Digits of activations")
    caption = (
        "Significant decimal digits of each module's activations; the dotted line is all that "
        "the format has."
    )
    layers, most = _activations(result), _most(result)
    report.figure(lambda width: layers_figure(layers, most, width), caption, "layers")
    report.table(_LAYERS, layer_rows(layers), name="layers", fold=True)
    if result.epochs:
        report.section("Digits over the epochs")
        caption = "Significant decimal digits of each metric after each epoch of the training."
        report.figure(lambda width: epochs_figure(result, width), caption, "epochs")
        report.table(_EPOCHS, epoch_rows(result), name="epochs")
    if result.parameters:
        report.section("Digits of parameters")
        caption = "Significant decimal digits of each parameter after the training."
        report.figure(
            lambda width: layers_figure(result.parameters, most, width), caption, "parameters"
        )
        columns = ("parameter", *_LAYERS[2:])
        rows = [(name, *rest) for name, _, *rest in layer_rows(result.parameters)]
        report.table(columns, rows, name="parameters", fold=True)
    if result.parts:
        report.section("Where the digits go")
        caption = (
            "Deviation with one module perturbed at a time; in another colour, those that the "
            "search found responsible."
        )
        report.figure(lambda width: parts_figure(result, width), caption, "modules")
        report.table(_PARTS, part_rows(result), name="modules", fold=True)
    return report.footnote(
        f"{result.runs} runs in all. Elements that are 0 in every run are not counted among a "
        "module's."
    )
