"""The parts of a datasheet. Each asks a part of the workbench, and returns rows and figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...formats.dtypes import format_of
from ...targets.block_targets import BlockFormat
from ...targets.lookup import target
from ..cards.card import BlockCard
from ..cards.card import card as card_of
from ..cards.comparison import Comparison, describe_definition, find_element, value_grid
from ..cards.figures import error_figure, number_line_figure, precision_figure
from ..sweeps.costs import find_cost
from ..sweeps.tables import flat, signed
from .figures import accumulator_figure, accuracy_figure
from .plan import CHUNKS, MACHINE, RECIPES, SUMS, SUMS_TRAINED, Plan
from .verdict import epochs_text, find_narrowest, sums_text


@dataclass
class Part:
    """One part of a datasheet.

    Attributes:
        rows: plain data, on which the verdict rests. table: texts by ``headings``. A verdict links
            to its rows where there are as many.
        text: sentences above the table. figures: a function that draws by a width, a caption and a
            name, each. more: further tables, each a heading, columns and rows.
        shown: the rows on the page by their places, of as many; None: all.
        failures: why a format or a measurement has no row, by its name.
    """

    rows: list[dict] = field(default_factory=list)
    headings: Sequence[str] = ()
    table: list[list[str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    figures: list[tuple[Callable, str, str]] = field(default_factory=list)
    more: list[tuple[str, Sequence[str], list]] = field(default_factory=list)
    shown: list[int] | None = None
    failures: dict[str, str] = field(default_factory=dict)


def card(plan: Plan) -> Part:
    """Describe the formats: range, precision, special values, and each value of 8 bits or fewer."""
    cards, part = [], Part()
    for name in plan.names:
        try:
            cards.append(card_of(name))
        except ValueError as error:  # integers and quantisers have no range of their own
            part.failures[name] = str(error)
    if not cards:
        return part
    shown = Comparison(cards)
    part.rows, texts = shown.as_json()["formats"], shown.table()
    # A column for each format: a sheet of paper has room for six.
    part.headings = ["", *(c.name for c in cards)]
    part.table = [
        [heading, *(row[heading] for row in texts)] for heading in texts[0] if heading != "format"
    ]
    caption = "Significant bits of numbers by their magnitude, a step for each binade."
    part.figures.append((lambda width: precision_figure(cards, width), caption, "precision"))
    if any(isinstance(c, BlockCard) for c in cards):
        caption = (
            "Relative error of a number in random blocks, by its magnitude relative to its block's "
            "largest; formats without blocks have a scale for it."
        )
        part.figures.append((lambda width: error_figure(cards, width), caption, "error"))
    if any(find_element(c).bits <= 8 for c in cards):
        caption = "The positive numbers of formats of at most 8 bits, a tick for each."
        part.figures.append((lambda width: number_line_figure(cards, width), caption, "numbers"))
    for c in cards:
        if c.name in plan.formats:
            part.text.append(f"{c.name}: {describe_definition(c)}.")
            element = find_element(c)
            if element.bits <= 8:
                of = " of elements" * (element is not c)
                part.more.append((f"Values{of} of {c.name}", *value_grid(element, 8)))
    return part


def accuracy(plan: Plan, outcomes: Mapping[str, dict], guesses: Mapping[str, float]) -> Part:
    """Collect the accuracy of each format by recipe and rounding mode, beside float32."""
    named = [("float32", plan.base(seed, task)) for task in plan.tasks for seed in plan.seeds]
    named += plan.accuracy_cells()
    flat_rows = flat([cell for _, cell in named], outcomes)
    groups: dict[tuple, list[dict]] = {}
    for (name, cell), row in zip(named, flat_rows, strict=True):
        key = (cell.model, cell.dataset, name, "float32" if cell.is_base else cell.recipe)
        groups.setdefault((*key, cell.rounding), []).append(row)
    part = Part(
        rows=[summarize(key, rows) for key, rows in groups.items()],
        headings=("format", "recipe", "rounding", "accuracy", "gap", "loss", "seeds"),
    )
    part.rows.sort(key=lambda row: plan.tasks.index((row["model"], row["dataset"])))
    for row in part.rows:
        row["guess"] = guesses.get(row["dataset"])
        text = [row["format"], row["recipe"], row["rounding"], mean_text(row), gap_text(row)]
        loss = "" if row["loss"] is None else f"{row['loss']:.4f}"
        part.table.append([*text, loss, _seeds_text(row)])
    part.failures = _find_failures(part.rows)
    if len(plan.tasks) > 1:
        part.headings = ("network", *part.headings)
        part.table = [
            [f"{row['model']} on {row['dataset']}", *text]
            for row, text in zip(part.rows, part.table, strict=True)
        ]
    for i, task in enumerate(plan.tasks):
        rows = [row for row in part.rows if (row["model"], row["dataset"]) == task]
        if any(row["accuracy"] is not None for row in rows):
            caption = (
                f"Accuracy of {' on '.join(task)} by recipe: a mark for each seed, filled to "
                "nearest, hollow stochastic. The grey band is float32's mean and deviation."
            )
            draw = lambda width, rows=rows: accuracy_figure(rows, width)  # noqa: E731
            part.figures.append((draw, caption, f"accuracy{i + 1}" if i else "accuracy"))
    part.text.append(
        f"Test accuracy in percent: the mean ± the deviation over {len(plan.seeds)} seeds; the gap "
        "is in points to float32 with the same seeds, the loss in nats. "
        + f"Recipes: {'; '.join(f'{name}, {words}' for name, words in RECIPES.items())}."
    )
    return part


def _find_failures(rows: Sequence[Mapping]) -> dict[str, str]:
    """Return why rows have no accuracy. Where float32 does not train, its reason stands for all."""
    failed = [row for row in rows if row["reason"]]
    without_float32 = {row["model"] for row in failed if row["recipe"] == "float32"}
    return {
        ", ".join(
            dict.fromkeys((row["model"], row["format"], row["recipe"], row["rounding"]))
        ): row["reason"]
        for row in failed
        if row["recipe"] == "float32" or row["model"] not in without_float32
    }


def accumulator(
    plan: Plan, outcomes: Mapping[str, dict], guesses: Mapping[str, float] | None = None
) -> Part:
    """Collect the accuracy by the width of the sums, beside those of float32: after training, and
    in a training with the narrowest accumulators that hold there."""
    part = Part(
        headings=("format", "rounded", "accumulator", "significant bits", "sum", "accuracy", "gap")
    )
    part.rows = [
        _sums_row(plan, outcomes, guesses, name, *sums, "ptq")
        for name in plan.formats
        for sums in SUMS
    ]
    trained = find_trained(plan, part.rows)
    part.rows += [_sums_row(plan, outcomes, guesses, *key, SUMS_TRAINED) for key in trained]
    for row in part.rows:
        bits, when = row["significant_bits"], "after training"
        if row["recipe"] != "ptq":
            when = f"in training, {epochs_text(row)}"
        sums = "float32's" if bits is None else sums_text(row["chunk"])
        texts = (row["format"], when, row["accumulator"], "24" if bits is None else str(bits), sums)
        part.table.append([*texts, mean_text(row), gap_text(row)])
        if row["reason"]:
            part.failures[", ".join(texts)] = row["reason"]
    if any(row["accuracy"] is not None for row in part.rows):
        caption = (
            "Accuracy after training by the significant bits of the accumulator, a mark for each "
            "seed: filled for one running sum, hollow for chunks of 32. The grey band is the mean "
            "and deviation with float32 sums."
        )
        rows = [row for row in part.rows if row["recipe"] == "ptq"]
        part.figures.append((lambda width: accumulator_figure(rows, width), caption, "accumulator"))
    part.text.append(
        "Weights and activations are rounded after training. Products are exact, and each sum is "
        "rounded to nearest to the accumulator: all products one after the other, or in chunks of "
        "32, whose sums are added up in the same accumulator."
    )
    if trained:
        part.text.append(
            "The narrowest accumulator that holds there, and all wider ones with it, then trains "
            f"the network from its start, {RECIPES[SUMS_TRAINED]}: products of the backward pass "
            "are added up in it too. Narrower ones are not tried in training."
        )
    return part


def find_trained(plan: Plan, rows: Sequence[dict]) -> list[tuple[str, str, int | None]]:
    """Return the format, accumulator and chunk of each training with narrow sums, and of those with
    float32's beside them. ``rows``: those of the part ``accumulator``."""
    found: dict[tuple[str, str, int | None], None] = {}
    for name in plan.formats:
        for chunk in CHUNKS:
            if (place := find_narrowest(name, rows, chunk)) is not None:
                found[name, MACHINE, None] = None
                found[name, rows[place]["accumulator"], chunk] = None
    return list(found)


def _sums_row(
    plan: Plan,
    outcomes: Mapping[str, dict],
    guesses: Mapping[str, float] | None,
    name: str,
    width: str,
    chunk: int | None,
    recipe: str,
) -> dict:
    cells = plan.sums_cells(name, width, chunk, recipe)
    first = cells[0]
    key = (first.model, first.dataset, name, recipe, first.rounding)
    bits = None if width == MACHINE else format_of(width).significand_bits
    return {
        **summarize(key, flat(cells, outcomes)),
        "epochs": first.settings.epochs,
        "accumulator": width,
        "significant_bits": bits,
        "chunk": chunk,
        "guess": (guesses or {}).get(first.dataset),
    }


def summarize(key: tuple, rows: Sequence[dict]) -> dict:
    """Summarise the seeds of one format, recipe and rounding mode in a row."""
    done = [row for row in rows if row["accuracy"] is not None]
    accuracies = [row["accuracy"] for row in done]
    gaps = [row["gap"] for row in done if row["gap"] is not None]
    reasons = dict.fromkeys(row["reason"].rstrip(".") for row in rows if row["reason"])
    return {
        **dict(zip(("model", "dataset", "format", "recipe", "rounding"), key, strict=True)),
        "accuracy": statistics.fmean(accuracies) if accuracies else None,
        "deviation": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "gap": statistics.fmean(gaps) if gaps else None,
        "loss": statistics.fmean(row["loss"] for row in done) if done else None,
        "seeds": len(rows),
        "done": len(done),
        "accuracies": accuracies,
        "states": [row["state"] for row in rows],
        "reason": "; ".join(reasons) or None,
    }


def mean_text(row: Mapping) -> str:
    """Write a mean and its deviation over seeds, such as ``94.1 ± 0.6``."""
    if row["accuracy"] is None:
        return ""
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
    return f"{row['accuracy']:.2f}{spread}"


def gap_text(row: Mapping) -> str:
    return "" if row["gap"] is None or row["recipe"] == "float32" else signed(row["gap"], 2)


def _seeds_text(row: Mapping) -> str:
    lost = [state for state in dict.fromkeys(row["states"]) if state != "done"]
    counts = [f"{row['states'].count(state)} {state}" for state in lost]
    return ", ".join([str(row["done"]), *counts])


def cost(plan: Plan, sums: Sequence[Mapping] = ()) -> Part:
    """Count the bits of each format from its definition; ``sums``: rows of ``accumulator``."""
    part = Part(
        headings=("format", "bits stored", "of them scale", "bits moved", "product bits"),
        text=[
            "By definition. Bits are those of a number, with its share of its block's scale: "
            "stored, and moved to a product. Product bits are the width of a product of two "
            "significands."
            + " The accumulator is the narrowest that holds in one running sum."
            * bool(sums)
        ],
    )
    if sums:
        part.headings = (*part.headings, "accumulator")
    cells = {name: cell for name, cell in plan.accuracy_cells() if cell.recipe == "ptq"}
    for name in plan.names:
        if (bits := find_cost(cells[name])) is None:
            part.failures[name] = "only the quantiser knows its significands"
            continue
        found = target(name)
        scale = found.bits_per_value - found.bits if isinstance(found, BlockFormat) else 0.0
        row = {"format": name, "bits_stored": bits.stored, "scale_bits": scale}
        row |= {"bits_moved": bits.moved, "product_bits": bits.product}
        part.table.append([name, *(f"{x:g}" for x in list(row.values())[1:])])
        if sums:
            place = find_narrowest(name, sums, None)
            row["accumulator"] = None if place is None else sums[place]["accumulator"]
            part.table[-1].append(row["accumulator"] or "")
        part.rows.append(row)
    return part
