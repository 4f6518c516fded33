"""The files of a datasheet to take away: golden vectors, values, and settings as YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...targets.block_targets import BlockFormat
from ...targets.lookup import target
from ..cards.card import Card, card
from ..report.folders import write_csv, write_text
from ..sensitivity.report import yaml_of_rules
from ..vectors.blocks import BlockJob
from ..vectors.files import write as write_vectors
from ..vectors.making import Job
from .parts import Part
from .plan import RECIPES, ROUNDINGS, Plan, recipes_of, roundings_of

_VECTORS, _BLOCK_VECTORS, _TERMS = 1000, 200, 16
_MOST_BITS = 16  # of a format whose values are listed


def files(plan: Plan, studies: Mapping[str, Mapping[str, dict]], folder: Path | None) -> Part:
    """Write the files into ``folder`` and list them; without a folder, tell why there are none.

    Raises:
        OSError: a file cannot be written.
    """
    part = Part(headings=("format", "file", "content"))
    if folder is None:
        part.text.append("Without a folder there are no files.")
        return part
    folder.mkdir(parents=True, exist_ok=True)
    for name, file, content, write in _list_files(plan, studies):
        try:
            write(folder / file)
        except (ValueError, RuntimeError) as error:
            part.failures[f"{name}: {content}"] = str(error)
            continue
        row = {"format": name, "file": f"{folder.name}/{file}", "content": content}
        part.rows.append(row)
        part.table.append(list(row.values()))
    return part


_Entry = tuple[str, str, str, Callable[[Path], object]]


def _list_files(plan: Plan, studies: Mapping[str, Mapping[str, dict]]) -> Iterator[_Entry]:
    for name in plan.formats:
        stem = re.sub(r"[^\w.-]", "_", name)
        for operation, make in _vector_jobs(name):
            yield (
                name,
                f"{stem}_{operation}.hex",
                f"golden vectors of {operation}: operands, result, flags",
                lambda path, make=make: write_vectors(make(), path, "hex"),
            )
        if (described := _card_of(name)) is not None and described.bits <= _MOST_BITS:
            yield (
                name,
                f"{stem}_values.csv",
                "each code and its value",
                lambda path, c=described: _write_values(c, path),
            )
        mixtures = studies.get("layers", {}).get(name, {}).get("mixtures")
        if mixtures:
            yield (
                name,
                f"{stem}_mixture.yaml",
                "the mixture's rules for quantize_",
                lambda path, rules=mixtures[0]["rules"]: _write_yaml(rules, path),
            )
    yield (
        ", ".join(plan.formats),
        "sweep.yaml",
        "settings for torch-dtypes sweep --config",
        (lambda path: _write_yaml(sweep_settings(plan), path)),
    )


def _vector_jobs(name: str) -> Iterator[tuple[str, Callable[[], Job | BlockJob]]]:
    if isinstance(target(name), BlockFormat):
        for operation in ("quantize", "dot"):
            yield operation, lambda op=operation: BlockJob(name, op, count=_BLOCK_VECTORS)
        return
    for operation in ("add", "mul", "fma"):
        yield operation, lambda op=operation: Job(name, op, count=_VECTORS)
    yield (
        "dot",
        lambda: Job(name, "dot", terms=_TERMS, accumulate="exact", count=_BLOCK_VECTORS),
    )


def _card_of(name: str) -> Card | None:
    """Return the card of a format, or of a block's elements; None if there is none."""
    try:
        found = card(name)
    except ValueError:  # integers and quantisers, of which the part card tells
        return None
    return getattr(found, "element", found)


def _write_values(c: Card, path: Path) -> None:
    digits = math.ceil(c.bits / 4)
    rows = [(f"0x{i:0{digits}X}", repr(value)) for i, value in enumerate(c.values().tolist())]
    write_csv(path, ("code", "value"), rows)


def _write_yaml(data: object, path: Path) -> None:
    text = yaml_of_rules().safe_dump(data, sort_keys=False, default_flow_style=None, width=100)
    write_text(path, text)


def sweep_settings(plan: Plan) -> dict:
    """Return the settings of the part ``accuracy`` as the options of ``torch-dtypes sweep``, with
    the recipes that all formats take."""
    recipes = [r for r in RECIPES if all(r in recipes_of(name) for name in plan.names)]
    (model, dataset), settings = plan.tasks[0], plan.settings
    data = {"data" if ":" in dataset else "dataset": dataset, "model": model}
    data |= {"format": list(plan.names), "recipe": recipes}
    if all(roundings_of(name) == ROUNDINGS for name in plan.names):
        data["rounding"] = list(ROUNDINGS)  # else each format has its own
    data |= {"seed": list(plan.seeds), "epochs": settings.epochs, "optimizer": settings.optimizer}
    optional = {"batch_size": settings.batch_size, "lr": settings.lr}
    optional |= {
        "train_samples": settings.train_samples,
        "test_samples": settings.test_samples,
    }
    return data | {name: value for name, value in optional.items() if value is not None}
