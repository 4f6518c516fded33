"""The parts of a datasheet that studies of float32's network fill."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..cards.card import card
from ..observation.counts import RoundingCounts
from ..observation.statistics import Statistics
from ..sensitivity.figures import rise_text
from .parts import Part
from .plan import Plan
from .sentences import share_text
from .study_figures import digits_figure, layers_figure, ranges_figure
from .study_sentences import APART

# The passes of an observation, as the tensors that they round.
TENSORS = {
    "forward": "activations",
    "backward": "errors",
    "weights": "weights",
    "gradients": "gradients",
    "states": "optimizer states",
    "updates": "updates",
}
_SHOWN = 8  # rows of a format on the page, beside those apart; the JSON has all


def _done(part: Part, studies: Mapping[str, dict]) -> Iterator[tuple[str, dict]]:
    """Iterate over the studies that came to their end, and note why others did not."""
    for name, data in studies.items():
        if set(data) == {"reason"}:
            part.failures[name] = data["reason"]
        else:
            yield name, data


def ranges(plan: Plan, studies: Mapping[str, dict]) -> Part:
    """Tell which tensors of float32's training leave a format's range."""
    part = Part(
        headings=("format", "layer", "tensor", "numbers", "overflow", "underflow", "SNR dB"),
        shown=[],
    )
    counted: list[RoundingCounts] = []
    for name, data in _done(part, studies):
        found = Statistics.from_json(data)
        counted = counted or list(found.values())
        rows = [
            {
                "format": name,
                "layer": c.layer or "(model)",
                "tensor": TENSORS[c.where],
                "numbers": c.nonzero,
                "overflow": c.share("overflow"),
                "underflow": c.share("underflow"),
                "left": c.share("overflow") + c.share("underflow") + c.share("nan_made"),
                "snr": c.snr if math.isfinite(c.snr) else None,
            }
            for c in found.values()
            if c.where in TENSORS and c.nonzero
        ]
        for kind in (None, *APART):
            own = [r for r in rows if (r["tensor"] if r["tensor"] in APART else None) == kind]
            own.sort(key=lambda row: -row["left"])
            count = sum(row["left"] > 0 for row in own[: 1 if kind else _SHOWN])
            part.shown += range(len(part.rows), len(part.rows) + min(max(1, count), len(own)))
            part.rows += own
    for row in part.rows:
        shares = [share_text(row[share]) for share in ("overflow", "underflow")]
        numbers = [
            f"{row['numbers']:,}",
            *shares,
            "" if row["snr"] is None else f"{row['snr']:.1f}",
        ]
        part.table.append([row["format"], row["layer"], row["tensor"], *numbers])
    if counted:
        images = next(data["images"] for data in studies.values() if "images" in data)
        part.text.append(
            f"{images} further training inputs of {plan.task} in float32, and what each format "
            "would have rounded: shares of the nonzero numbers beyond its range or below its "
            f"smallest number. The table has at most {_SHOWN} tensors of each format, the worst "
            "first, then the worst of the optimizer's states and of its updates; the JSON has all."
        )
        caption = (
            "Exponents of float32's numbers, the middle 99.8 % of each tensor with its median, "
            "below the ranges of the formats."
        )
        cards = [card(name) for name in plan.names if name not in part.failures]
        part.figures.append(
            (lambda width: ranges_figure(counted, cards, TENSORS, width), caption, "ranges")
        )
    return part


def layers(plan: Plan, studies: Mapping[str, dict]) -> Part:
    """Tell which layers bear a format least, and the mixture that costs least."""
    part = Part(
        headings=("format", "layer", "kind", "weights", "rise of the loss", "in the mixture")
    )
    for name, data in _done(part, studies):
        mixture = data["mixtures"][0] if data["mixtures"] else None
        for layer in data["layers"]:
            row = {
                "format": name,
                "layer": layer["name"] or "(model)",
                "kind": layer["kind"],
                "weights": layer["elements"],
                "rise": float(layer["rises"][name]),
                "limit": data["limit"],
                "mixture": mixture and mixture["formats"][layer["name"]],
            }
            text = [name, row["layer"], row["kind"], f"{row['weights']:,}", rise_text(row["rise"])]
            part.rows.append(row)
            part.table.append([*text, row["mixture"] or ""])
        if mixture is None:
            part.text.append(f"{name} has no mixture: {data['why_no_mixture']}.")
        else:
            part.text.append(
                f"{name}: the mixture has {mixture['bits']:.3g} bits a weight, and a loss of "
                f"{float(mixture['measured']):.4g}; the sum of its rises is at most the deviation "
                f"of float32's loss over seeds, {data['limit']:.2g} beside {data['float32']:.4g}."
            )
    if part.rows:
        part.text.insert(
            0,
            f"One layer at a time of {plan.task} is rounded after training. The mixture has the "
            "fewest bits a weight, of the format, the references and float32.",
        )
        caption = "Rise of the loss with one layer rounded, by layer and format."
        part.figures.append((lambda width: layers_figure(part.rows, width), caption, "layers"))
    for row in part.rows:
        if not math.isfinite(row["rise"]):
            row["rise"] = str(row["rise"])  # JSON has no infinities
    return part


def digits(plan: Plan, studies: Mapping[str, dict]) -> Part:
    """Tell how many digits survive random rounding, and where they go."""
    part = Part(headings=("format", "module", "kind", "median digits", "5 % have at most", "alone"))
    for name, data in _done(part, studies):
        alone = {p["name"]: p["deviation"] for p in data["parts"]}
        for layer in (*data["layers"], data["output"]):
            row = {
                "format": name,
                "module": layer["name"] or "(model)",
                "kind": layer["kind"],
                "digits": layer["median"],
                "low": layer["low"],
                "alone": alone.get(layer["name"]),
                "responsible": any(layer["name"] in names for names in data["responsible"]),
            }
            part.rows.append(row)
            shown = "" if row["alone"] is None else f"{float(row['alone']):.2g}"
            texts = [name, row["module"], row["kind"], f"{row['digits']:.2f}", f"{row['low']:.2f}"]
            part.table.append([*texts, shown + " (responsible)" * row["responsible"]])
    if part.rows:
        part.text.append(
            f"The answers of {plan.task}, every operation rounded to the format, up or down at "
            "random: significant decimal digits of a module's numbers, and the relative move of "
            "the outputs if the module alone is rounded so. The smallest sets of modules that make "
            "half of the whole move are responsible."
        )
        caption = "Significant decimal digits by module: the median and the lowest 5 %."
        part.figures.append((lambda width: digits_figure(part.rows, width), caption, "digits"))
    return part
