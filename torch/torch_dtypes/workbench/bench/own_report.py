"""The report of ``torch-dtypes bench --model``: sentences, tables and figures."""

from __future__ import annotations

import os

from ..report.colours import colours
from ..report.drawing import MARKERS, new_figure
from ..report.page import Report
from .measuring import BUSY
from .own_layers import LOSS, OPTIMIZER
from .own_model import BASELINE, PASSES, OwnModel

_SHOWN_LAYERS, _SHOWN_OPERATORS = 25, 10
_SHADES = (1.0, 0.6, 0.3)  # opacity of forward, backward and optimizer
_WHOLE = "(model)"  # what the network computes outside of its modules
_CALLED = "autograd::engine::evaluate_function: "


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ratio(value: float, base: float | None) -> str:
    return _times(value / base) if base else ""


def layers_of(result: OwnModel) -> list[tuple[str, dict[str, float]]]:
    """Return the layers with the largest shares of a step, in the order of the network, and the
    seconds of each case, forward and backward. The others are summed."""
    by_case: dict[str, dict[str, float]] = {}
    for case, cost in result.costs.items():
        for (layer, _), seconds in cost.layers.items():
            times = by_case.setdefault(layer, {})
            times[case] = times.get(case, 0.0) + seconds
    totals = {case: sum(cost.layers.values()) for case, cost in result.costs.items()}
    largest = {
        layer: max(seconds / totals[case] for case, seconds in times.items())
        for layer, times in by_case.items()
    }
    chosen = set(sorted(largest, key=lambda layer: -largest[layer])[:_SHOWN_LAYERS])
    places = [*result.modules, LOSS, OPTIMIZER]
    known = [layer for layer in places if layer in by_case]
    rows = [
        (layer or _WHOLE, by_case[layer])
        for layer in (*known, *(layer for layer in by_case if layer not in places))
        if layer in chosen
    ]
    rest: dict[str, float] = {}
    for layer, times in by_case.items():
        for case, seconds in times.items() if layer not in chosen else ():
            rest[case] = rest.get(case, 0.0) + seconds
    return [*rows, ("(others)", rest)] if rest else rows


def sentences(result: OwnModel) -> list[str]:
    """Summarise the result in sentences."""
    config, base = result.config, result.costs[BASELINE]
    lines = [
        f"A training step of {config.model} ({result.parameters:,} parameters) with "
        f"{config.optimizer} on {config.batch_size:,} inputs of {result.data}, "
        f"{result.threads} thread{'s' * (result.threads != 1)}. In float32 it takes "
        f"{1e3 * base.seconds:,.3g} ms and {base.peak / 2**20:,.0f} MiB."
    ]
    if result.load > BUSY * (os.cpu_count() or 1):
        lines.append("The machine was busy with other work; figures are rough.")
    for name, cost in result.costs.items():
        if name != BASELINE:
            lines += _operator_sentences(name, cost.operators, base.operators)
    return lines


def _operator_sentences(name: str, own: dict[str, float], base: dict[str, float]) -> list[str]:
    """Tell the operator with the largest share, and the one that adds most to float32's step."""
    total, before = sum(own.values()), sum(base.values())
    most = max(own, key=lambda operator: own[operator])
    added = max(own, key=lambda operator: own[operator] - base.get(operator, 0.0))
    lines = [f"{_name(most)} takes {100 * own[most] / total:.0f} % of the step in {name}"]
    lines[0] += f", {_times(own[most] / base[most])} times float32's." if most in base else "."
    more = own[added] - base.get(added, 0.0)
    if added != most and more > 0:
        lines.append(
            f"{_name(added)} adds most to it: {100 * more / before:.0f} % of float32's step."
        )
    return lines


def _name(operator: str) -> str:
    return operator.removeprefix(_CALLED)


def report_of(result: OwnModel, command: str | None = None) -> Report:
    """Build the report."""
    base, others = result.costs[BASELINE], [name for name in result.costs if name != BASELINE]
    colour = colours(result.costs)
    report = Report(
        f"Cost of {result.config.model} by format", command=command, data=result.as_json
    )
    report.text(*sentences(result))
    report.table(
        ["format", "time over float32's", "peak memory over float32's", *PASSES],
        [
            [
                name,
                _ratio(cost.seconds, base.seconds),
                _ratio(cost.peak, base.peak),
                *(_percent(cost.passes[each] / sum(cost.passes.values())) for each in PASSES),
            ]
            for name, cost in result.costs.items()
        ],
        f"Medians of {result.rounds} steps, in turn. Passes are shares of a step.",
        name="formats",
        colours=colour,
    )
    report.figure(
        lambda width: passes_figure(result, width),
        "Time of a step by pass, in multiples of float32's step.",
        "passes",
    )
    layers = layers_of(result)
    whole = sum(base.layers.values())
    report.section("Layers")
    report.table(
        ["layer", "kind", "of float32's step", *(f"{name}, times float32's" for name in others)],
        [
            [
                layer,
                result.modules.get("" if layer == _WHOLE else layer, ""),
                _percent(times.get(BASELINE, 0.0) / whole),
                *(_ratio(times.get(name, 0.0), times.get(BASELINE)) for name in others),
            ]
            for layer, times in layers
        ],
        "Forward and backward, measured with hooks, in other steps than the times above. A "
        "module's time is without that of modules within it.",
        name="layers",
    )
    report.figure(
        lambda width: layers_figure(result, layers, width),
        "Share of each layer in float32's step, and its time in each format on the same scale.",
        "layers",
    )
    report.section("Operators")
    for name in others:
        own, stock = result.costs[name].operators, base.operators
        total, before = sum(own.values()), sum(stock.values())
        report.table(
            ["operator", f"of the step in {name}", "times float32's", "added to float32's step"],
            [
                [
                    _name(operator),
                    _percent(seconds / total),
                    _ratio(seconds, stock.get(operator)),
                    f"{100 * (seconds - stock.get(operator, 0.0)) / before:+.1f} %",
                ]
                for operator, seconds in list(own.items())[:_SHOWN_OPERATORS]
            ],
            "Under PyTorch's profiler, which slows small operators down. Decoding and encoding "
            "count to their operator; operators that one calls do not.",
            name=f"operators_{name}".replace(" ", "_"),
        )
    report.footnote(
        "Peak memory is the operating system's, in a process of its own for each format, without "
        "what the process held before the network was made."
    )
    return report


def passes_figure(result: OwnModel, width: str = "page"):
    """Draw a bar for each case, of its passes."""
    base, colour = result.costs[BASELINE].seconds, colours(result.costs)
    names = list(result.costs)
    with new_figure(width, 1.0 + 0.35 * len(names)) as figure:
        axes = figure.add_subplot()
        left = dict.fromkeys(names, 0.0)
        for each, shade in zip(PASSES, _SHADES, strict=True):
            for place, name in enumerate(names):
                share = result.costs[name].passes[each] / base
                axes.barh(place, share, left=left[name], color=colour[name], alpha=shade)
                left[name] += share
            axes.barh([0], [0], color="#000000", alpha=shade, label=each)  # for the legend
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set(xlabel="times float32's step")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02))
    return figure


def layers_figure(result: OwnModel, layers: list[tuple[str, dict[str, float]]], width="page"):
    """Draw the time of each layer in each case, as points on a line."""
    colour, whole = colours(result.costs), sum(result.costs[BASELINE].layers.values())
    with new_figure(width, 1.0 + 0.2 * len(layers)) as figure:
        axes = figure.add_subplot()
        for case, name in enumerate(result.costs):
            axes.plot(
                [100 * times.get(name, 0.0) / whole for _, times in layers],
                range(len(layers)),
                linestyle="",
                marker=MARKERS[case % len(MARKERS)],
                markersize=4.5,
                color=colour[name],
                label=name,
            )
        axes.set_yticks(range(len(layers)), [layer for layer, _ in layers])
        axes.invert_yaxis()
        axes.grid()
        axes.set(xlabel="% of float32's step")
        axes.legend(loc="lower right")
    return figure
