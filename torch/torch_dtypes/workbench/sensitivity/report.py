"""The report of a study, plain data, and rules as YAML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...formats.arguments import mode_and_bits
from ...formats.naming import DRAWING_MODES
from ...targets.lookup import target
from ..report.colours import colours
from ..report.page import Report
from .choosing import Mixture
from .figures import NOT_FINITE, heatmap_figure, rise_text, tradeoff_figure

if TYPE_CHECKING:
    from .results import Sensitivity

_NAMED = 4  # layers that a sentence names; if there are more, it tells their number
_OF = {"loss": "the loss", "accuracy": "the error rate", "distance": "the distance of the outputs"}
_MIXTURES = ("formats", "bits a weight", "as packed", "predicted", "measured", "rise")


def _value(x: float) -> str:
    return f"{x:.6g}" if math.isfinite(x) else NOT_FINITE


def layer_columns(result: Sensitivity) -> list[str]:
    return ["layer", "kind", "weights", *result.settings.formats]


def layer_rows(result: Sensitivity) -> list[list[str]]:
    names = result.settings.formats
    rows = [
        [
            x.label,
            " = ".join(part.kind for part in x.parts[:2]),
            f"{x.elements:,}",
            *(rise_text(result.rises[x.name][name]) for name in names),
        ]
        for x in result.layers
    ]
    everywhere = [rise_text(result.uniform[name].measured - result.float32) for name in names]
    return [*rows, ["all layers", "", f"{sum(x.elements for x in result.layers):,}", *everywhere]]


def mixture_rows(result: Sensitivity) -> list[list[str]]:
    """Return the rows of float32, of each format in all layers, and of the chosen mixtures."""
    rows = [["float32", "32", "32", "", _value(result.float32), ""]]
    for m in (*result.uniform.values(), *result.mixtures):
        numbers = (
            _bits(m.bits),
            _bits(m.stored),
            _value(m.predicted),
            _value(m.measured),
            rise_text(m.measured - result.float32),
        )
        rows.append([m.label if m.budget else f"{m.label} in all layers", *numbers])
    return rows


def _bits(number: float) -> str:
    """Return bits a weight as a text: "-" if a quantiser does not tell them."""
    return "-" if math.isnan(number) else f"{number:.4g}"


def sentences(result: Sensitivity) -> list[str]:
    """Summarise the study in sentences."""
    s, what = result.settings, _OF[result.settings.metric]
    which = (
        f"Each of {len(result.layers)} layers is rounded alone"
        if len(result.layers) != 1
        else f"One layer, {result.layers[0].label}, is rounded"
    )
    parts = "weights and input activations" if s.recipe == "ptq" else "weights"
    sums = f", sums of rounded layers by {s.accumulate}" if s.accumulate else ""
    lines = [
        f"{which} to {_join_words(s.formats)} ({parts}), all else is float32{sums}; the network "
        f"answers {result.samples:,} inputs. A number is the rise of {what}"
        f"{'' if s.metric == 'distance' else f' from {_value(result.float32)}'}.",
        *_describe_tied(result),
        *_describe_draws(result),
        *_describe_worst(result),
    ]
    lines += [_describe_mixture(result, m) for m in result.mixtures]
    if result.mixtures:
        lines.append(
            "Predicted is the sum of the layers' rises, which need not add up; measured is the "
            "network in the mixture."
        )
    short = [m for m in (*result.uniform.values(), *result.mixtures) if m.stored > 1.01 * m.bits]
    if short:
        more = "; ".join(f"{m.label}: {m.stored:.3g} in place of {m.bits:.3g}" for m in short)
        why = (
            "Rows of some weights are no multiple of a block's size: packed, scales of shorter "
            f"blocks take more bits a weight ({more})"
        )
        lines.append(
            f"{why}. Another axis may have longer rows: _axis1 behind a name is a convolution's "
            "channels."
        )
    return lines


def _join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _describe_tied(result: Sensitivity) -> list[str]:
    """Describe the layers that share a weight."""
    groups = [_layers([part.name for part in x.parts]) for x in result.layers if x.tied]
    what = "are one layer each" if len(groups) > 1 else "are one layer"
    return (
        [
            f"{'; '.join(groups)} {what}, since they share a weight: rounded together, and "
            "counted once."
        ]
        if groups
        else []
    )


def _describe_draws(result: Sensitivity) -> list[str]:
    """Describe the formats that draw at random."""
    names = [
        name
        for name in result.settings.formats
        if mode_and_bits(target(name).rounding)[0].name in DRAWING_MODES
    ]
    if not names:
        return []
    which = f"{_join_words(names)} {'draw' if len(names) > 1 else 'draws'} at random"
    return [
        f"{which}: each number is of one draw, that of seed {result.settings.seed}, and other "
        "seeds show its spread."
    ]


def _describe_worst(result: Sensitivity) -> list[str]:
    """Describe the worst layer in each format, with the formats of the same layer together."""
    what, worst, calm, broken = _OF[result.settings.metric], {}, [], []
    label = {x.name: x.label for x in result.layers}
    for name in result.settings.formats:
        rises = {layer: of[name] for layer, of in result.rises.items()}
        layer = max(rises, key=rises.get)
        if rises[layer] > 0:
            worst.setdefault(layer, []).append(f"{name} ({rise_text(rises[layer])})")
        else:
            calm.append(name)
        infinite = [label[layer] for layer, x in rises.items() if not math.isfinite(x)]
        if infinite:
            broken.append(f"{name} in {_layers(infinite)}")
    lines = []
    if worst:
        lines.append(
            "The most sensitive layer is "
            + "; ".join(f"{label[layer]} in {_join_words(of)}" for layer, of in worst.items())
            + "."
        )
    if calm:
        lines.append(f"No layer raises {what} in {_join_words(calm)}.")
    if broken:
        lines.append(f"The network is not finite with {'; '.join(broken)}: no mixture has these.")
    return lines


def _layers(names: Sequence[str]) -> str:
    return _join_words(names) if len(names) <= _NAMED else f"{len(names)} layers"


def _describe_mixture(result: Sensitivity, m: Mixture) -> str:
    """Describe a mixture, and whether a format in all layers does as well."""
    what, of = _OF[result.settings.metric].removeprefix("the "), {}
    for x in result.layers:
        of.setdefault(m.formats[x.name], []).append(x.label)
    parts = "; ".join(
        f"{name} in {_layers(layers) if len(of) > 1 else 'all layers'}"
        for name, layers in of.items()
    )
    others = "; ".join(
        f"{u.label} {_value(u.measured)} at {_bits(u.bits)} bits" for u in result.uniform.values()
    )
    sentence = (
        f"{m.label.capitalize()} a weight" if m.budget[0] == "bits" else f"{m.label.capitalize()}"
    ) + (
        f": {parts}. {m.bits:.4g} bits a weight, {what} {_value(m.measured)} measured, "
        f"{_value(m.predicted)} predicted; in all layers {others}."
    )
    better = [
        u.label for u in result.uniform.values() if u.bits <= m.bits and u.measured < m.measured
    ]
    return (
        f"{sentence} {_join_words(better)} in all layers does better with no more bits."
        if better
        else sentence
    )


def _plain(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)  # JSON has no infinities or NaN


def _mixture(m: Mixture) -> dict:
    numbers = {
        "bits": _plain(m.bits),
        "stored": _plain(m.stored),
        "predicted": _plain(m.predicted),
        "measured": _plain(m.measured),
    }
    return {
        "budget": list(m.budget) if m.budget else None,
        **numbers,
        "formats": m.formats,
        "rules": m.rules,
    }


def as_json(result: Sensitivity) -> dict:
    """Return plain data. Numbers that are not finite are strings."""
    s = result.settings
    return {
        "settings": {
            "formats": list(s.formats),
            "recipe": s.recipe,
            "metric": s.metric,
            "seed": s.seed,
            "accumulate": s.accumulate,
        },
        "samples": result.samples,
        "float32": result.float32,
        "runs": result.runs,
        "layers": [
            {
                "name": x.name,
                "kind": x.kind,
                "elements": x.elements,
                "tied": [part.name for part in x.tied],
                "rises": {name: _plain(y) for name, y in result.rises[x.name].items()},
            }
            for x in result.layers
        ],
        "uniform": {name: _mixture(m) for name, m in result.uniform.items()},
        "mixtures": [_mixture(m) for m in result.mixtures],
        "trade_off": [_mixture(m) for m in result._trade_off or []],
    }


def report_of(result: Sensitivity, command: str | None = None, measure: bool = True) -> Report:
    """Build the report. Without ``measure``, or for a result from a pickle, its trade-off has only
    the mixtures measured already."""
    report = Report(
        result.title, command=command, seeds=[result.settings.seed], data=result.as_json
    )
    report.text(*sentences(result))
    report.section("Sensitivity of each layer")
    caption = (
        "Rise by layer and format, one layer rounded at a time; darker is worse; results that are "
        "not finite are hatched."
    )
    report.figure(lambda width: heatmap_figure(result, width), caption, "heatmap")
    report.table(layer_columns(result), layer_rows(result), name="layers")
    report.section("Bits against the metric")
    caption = (
        "Formats in all layers, and mixtures of them for budgets of bits; the dotted line is "
        "float32."
    )
    report.figure(
        lambda width: tradeoff_figure(result, width, measure and result._study is not None),
        caption,
        "tradeoff",
    )
    report.table(_MIXTURES, mixture_rows(result), name="mixtures", colours=colours(result.uniform))
    if result.mixtures:
        columns, rows = (
            ["layer", *(m.label for m in result.mixtures)],
            [[x.label, *(m.formats[x.name] for m in result.mixtures)] for x in result.layers],
        )
        report.section("Mixtures").table(columns, rows, name="assignment")
    return report.footnote(
        f"{result.runs} runs in all. Bits are of weights alone, by the formats' own figure; as "
        "packed, by the shapes of the weights."
    )


def yaml_of_rules():
    """Import PyYAML. Raises: ModuleNotFoundError."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "rules as a file need PyYAML, which is not installed: pip install 'torch-dtypes[train]'"
        ) from error
    return yaml


def rules_text(result: Sensitivity, m: Mixture) -> str:
    """Return the rules of a mixture as YAML, which ``quantize_`` reads."""
    asks = any(
        isinstance(place, dict) and place.get("when") == "calibration"
        for rule in m.rules.values()
        for place in rule.values()
    )
    call = f"torch_dtypes.quantize_(model, {file_name(m)!r}{', calibrate=batches' if asks else ''})"
    head = f"# {result.title}: {m.label}, {m.bits:.4g} bits a weight.\n# {call}\n"
    return head + yaml_of_rules().safe_dump(
        m.rules, sort_keys=False, default_flow_style=None, width=150
    )


def file_name(m: Mixture) -> str:
    kind, limit = m.budget
    return f"rules-{limit:g}.yaml" if kind == "bits" else f"rules-rise-{limit:g}.yaml"
