"""Build cells from axes: every combination, checked before any of them runs."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import _C
from ...formats.arguments import parse_mode
from ...policies.accumulation import Accumulation
from ...targets.lookup import target
from ..training.combinations import Misfit, check_policy, check_settings
from ..training.data import FROM_FILES, Dataset
from ..training.recipes import AFTER, PUBLISHED, RECIPES
from ..training.sources import check_model, check_network
from ..training.text import TOPICS, digest_of, read_topics
from .cells import Cell, Settings, load


@dataclass(frozen=True)
class Axes:
    """The axes of a sweep, in the order of its tables. Without rounding modes each format has its
    own."""

    formats: tuple[str, ...]
    models: tuple[str, ...] = ("lenet5",)
    datasets: tuple[str, ...] = ("digits",)
    roundings: tuple[str, ...] = ()
    accumulates: tuple[str, ...] = ("machine",)
    recipes: tuple[str, ...] = ("all",)
    seeds: tuple[int, ...] = (0,)


def one_of(name: str, names: Sequence[str], what: str) -> str:
    """Return the name if it is one of ``names``.

    Raises:
        ValueError: it is not; the message lists the nearest.
    """
    if name in names:
        return name
    near = difflib.get_close_matches(str(name), names, 3)
    raise ValueError(
        f"expected {what} out of {', '.join(names)}, but got {name!r}"
        + (f"; near to it: {', '.join(near)}" if near else "")
    )


def settings_of(
    *,
    weights: str | os.PathLike | None = None,
    rules: str | os.PathLike | None = None,
    text: str | os.PathLike | None = None,
    data_dir: str | os.PathLike = "data",
    datasets: Iterable[str] = (),
    **options,
) -> Settings:
    """Build ``Settings``, with the digests of the files.

    Raises:
        OSError: the weights, rules or text cannot be read.
    """
    for name, path in (("weights", weights), ("rules", rules), ("text", text)):
        if path is not None:
            options |= {
                name: os.path.abspath(path),
                f"{name}_digest": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
            }
    reads = text is None and any(name in FROM_FILES for name in datasets)
    if text is None and TOPICS in datasets:
        options["text_digest"] = digest_of(read_topics())
    return Settings(data_dir=os.path.abspath(data_dir) if reads else None, **options)


def cells_of(axes: Axes, settings: Settings) -> list[Cell]:
    """Build every combination once, and check formats and recipes.

    Raises:
        ValueError: no combination, or a meaningless one. A ``Misfit`` names the option.
    """
    for words, values in (
        ("format", axes.formats or set(axes.recipes) <= set(PUBLISHED)),
        ("model", axes.models),
        ("dataset", axes.datasets),
        ("accumulate", axes.accumulates),
        ("recipe", axes.recipes),
        ("seed", axes.seeds),
    ):
        if not values:
            raise Misfit(f"expected at least one cell, but got no {words}", words)
    if settings.epochs == 0 and (settings.weights is None or set(axes.recipes) - set(AFTER)):
        raise Misfit(
            "expected epochs of at least 1, but got 0, which is for weights from a file and the "
            f"recipes {', '.join(AFTER)}",
            "epochs",
        )
    if settings.weights is not None and len(axes.models) > 1:
        raise Misfit(
            f"expected one model for the weights, but got {', '.join(axes.models)}",
            "weights",
        )
    for recipe in axes.recipes:
        one_of(recipe, tuple(RECIPES), "a recipe")
    check_settings(axes.recipes, **vars(settings))
    for policy in axes.accumulates:
        Accumulation(policy)
        for recipe in axes.recipes:
            check_policy(policy, recipe)
    named = [(name, *own) for name in axes.formats for own in _modes(name, axes.roundings)]
    cells = [
        Cell(model, dataset, name, rounding, accumulate, recipe, seed, settings)
        for model, dataset, recipe, accumulate in itertools.product(
            axes.models, axes.datasets, axes.recipes, axes.accumulates
        )
        for name, rounding in ([(recipe, "nearest_even")] if recipe in PUBLISHED else named)
        for seed in axes.seeds
    ]
    for cell in {(c.format, c.rounding, c.recipe): c for c in cells}.values():
        try:
            _check_target(cell)
        except ValueError as error:
            raise Misfit(str(error), "format", cell.format) from error
    return list({cell.key: cell for cell in cells}.values())


def _check_target(cell: Cell) -> None:
    """Check, before hours of training in float32, that the target exists and can be computed in."""
    if cell.needs_kernels() and cell.settings.device == "cuda" and not _C.has_gpu_kernels():
        raise ValueError(
            f"expected stock dtypes on a GPU, but got {cell.format}: this build has no kernels of "
            "its own for one; see docs/limits.md, or use the CPU"
        )


def _modes(name: str, roundings: tuple[str, ...]) -> list[tuple[str]]:
    own = target(name).rounding
    if not roundings:
        return [(own,)]
    if own != "nearest_even":
        raise Misfit(
            f"expected the rounding mode of {name} in its name or as an axis, but got both: leave "
            f"{own} out of the name",
            "format",
            name,
        )
    return [(parse_mode(m),) for m in roundings]


def check(
    cells: Sequence[Cell],
    download: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[tuple[str, str], Dataset]:
    """Load each data set and run two of its inputs through each network, so that errors come before
    any cell runs.

    Returns:
        The data by model and data set.

    Raises:
        ValueError, OSError, ImportError: an error of a network or data set.
    """
    loaded: dict[str, Dataset] = {}
    seen = {}
    for cell in cells:
        if (cell.model, cell.dataset) in seen:
            continue
        check_model(cell.model)
        if cell.dataset in loaded and not loaded[cell.dataset].is_text:
            data = loaded[cell.dataset]
        else:
            progress(f"loading {cell.dataset}")
            # A text is loaded for each network, which sets the length of its windows.
            data = loaded[cell.dataset] = load(cell, download)
        check_network(cell.base.config(), data)
        seen[cell.model, cell.dataset] = data
    return seen


def with_bases(cells: Sequence[Cell], compared: bool = True) -> list[Cell]:
    """Return the cells, preceded by the missing trainings in float32 from which they start, or with
    which they are ``compared``."""
    bases = {cell.base.key: cell.base for cell in cells if compared or cell.is_after_training}
    return [*bases.values(), *(cell for cell in cells if cell.key not in bases)]
