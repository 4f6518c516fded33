"""Run the cells of a study: a language model in each format and recipe. Outcomes are kept in files,
so that an interrupted study goes on where it was."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torch_dtypes

from ...quantization.convert import dequantize_, quantize_
from ...targets.lookup import target
from ..report.folders import lock_folder, write_json
from ..report.provenance import versions
from ..training.generators import forked_generators
from .models import LanguageModel
from .recipes import RECIPES, bits_a_weight, build_rules, fill_cache, find_dtype, find_layers
from .windows import find_windows, group_windows, score

_SAVE_AFTER = 30.0  # seconds
_TRIED = 8  # tokens that run in each cell before the work begins


@dataclass(frozen=True)
class Settings:
    """The common settings of all cells.

    Attributes:
        context, stride: the length of a window and its step, in tokens.
        keep: keys of modules that stay in high precision. output_layer: whether the output layer is
            rounded too.
    """

    context: int
    stride: int
    batch_size: int = 1
    keep: tuple[str, ...] = ()
    output_layer: bool = False
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Cell:
    """A format and a recipe; a file of rules has its name as the format and ``rules`` as the
    recipe."""

    format: str
    recipe: str
    path: str | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        return self.format if self.recipe == "float32" else f"{self.format} {self.recipe}"


BASE = Cell("float32", "float32")
SAVED = Cell("as saved", "own rules")  # of a folder that a model with rules was saved to


@dataclass
class Outcome:
    """The results of a cell: the loss of each window in nats, the bits of a weight (of a number, if
    the recipe rounds no weights), and the seconds."""

    bits: float
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Study:
    """Measures cells: first float32, then the rules that the model was saved with, if any.

    Args:
        loaded: the model, whose weights stay as they are.
        folder: a folder for the cells that are done, or None.

    ``stage`` is called before each batch of windows with the cell's label and the number of
    batches.
    """

    stage: Callable[[str, int | None], None] = staticmethod(lambda name, total: None)

    def __init__(
        self,
        loaded: LanguageModel,
        settings: Settings,
        cells: list[Cell],
        folder: Path | None = None,
    ) -> None:
        self.loaded, self.settings = loaded, settings
        saved = [] if loaded.saved is None else [SAVED]
        self.cells = [BASE, *saved, *dict.fromkeys(cells)]
        self.windows = find_windows(len(loaded.tokens), settings.context, settings.stride)
        self.layers = find_layers(loaded.model, settings.keep, settings.output_layer)
        self._folder = None if folder is None else folder / "cells"
        self._digest = "" if folder is None else loaded.digest()

    def try_out(self) -> None:
        """Run a few tokens in each cell, so that errors come before any long work.

        Raises:
            ValueError, TypeError: a format that the model cannot have.
        """
        few = find_windows(min(_TRIED, len(self.loaded.tokens)), _TRIED, _TRIED)
        for cell in self.cells[1:]:
            with forked_generators(), self._rounded(cell) as (model, _):
                score(model, self._tokens(), few)

    def run(self) -> dict[Cell, Outcome]:
        """Measure the cells that have no outcome yet, and return all outcomes.

        Raises:
            BlockingIOError: another command works in the folder.
            OSError: a file cannot be read or written.
        """
        with contextlib.ExitStack() as stack:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self._folder))
            stack.enter_context(forked_generators(self.settings.device == "cuda"))
            return {cell: self._measure(cell) for cell in self.cells}

    def _measure(self, cell: Cell) -> Outcome:
        found, path = None, self._path(cell)
        if path is not None and path.exists():
            found = _read(path)
            if len(found.losses) == len(self.windows):
                return found
        with self._rounded(cell) as (model, bits):
            found, tokens = found or Outcome(bits), self._tokens()
            written = time.monotonic()
            try:
                groups = list(
                    group_windows(self.windows[len(found.losses) :], self.settings.batch_size)
                )
                for group in groups:
                    self.stage(cell.label, len(groups))
                    began = time.perf_counter()
                    # Each window draws its own numbers, so a study that goes on is the same.
                    torch.manual_seed(self.settings.seed + group[0].begin)
                    found.losses += score(model, tokens, group)
                    found.seconds += time.perf_counter() - began
                    if path is not None and time.monotonic() - written > _SAVE_AFTER:
                        _write(path, cell, found)
                        written = time.monotonic()
            finally:
                if path is not None:
                    _write(path, cell, found)
        return found

    def _tokens(self) -> torch.Tensor:
        return self.loaded.tokens.to(self.settings.device)

    @contextlib.contextmanager
    def _rounded(self, cell: Cell) -> Iterator[tuple[nn.Module, float]]:
        """Round the model as the cell says in a block. Return it with its bits."""
        model = self.loaded.model
        if cell == BASE:
            yield model, 32.0
        elif cell.recipe == "all":
            dtype = find_dtype(cell.format)
            yield copy.deepcopy(model).to(dtype), target(cell.format).bits_per_value
        else:
            try:
                yield model, self._apply_rules(cell)
            finally:
                fill_cache(dequantize_(model))

    def _apply_rules(self, cell: Cell) -> float:
        """Give the model the rules of a cell, and return the bits of a weight."""
        model, saved = self.loaded.model, self.loaded.saved
        if cell == SAVED and saved is not None:
            saved.apply_(model)
        else:
            rules: Any = cell.path or build_rules(cell.recipe, cell.format, self.layers)
            quantize_(model, rules)
        fill_cache(model)
        bits = bits_a_weight(model)
        if math.isnan(bits) and cell.recipe in RECIPES:
            return target(cell.format).bits_per_value
        return bits

    def _path(self, cell: Cell) -> Path | None:
        """Return the file of a cell's outcome. Its name depends on all that the numbers do, the
        release of this package too."""
        if self._folder is None:
            return None
        rules: Any = None if cell.path is None else Path(cell.path).read_text(encoding="utf-8")
        if cell == SAVED and self.loaded.saved is not None:
            rules = self.loaded.saved.to_dict()
        about = [self._digest, asdict(self.settings), cell.format, cell.recipe, rules]
        text = json.dumps([torch_dtypes.__version__, *about, self.layers], sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _write(path: Path, cell: Cell, outcome: Outcome) -> None:
    # JSON has no NaN and no infinity.
    bits, *losses = [x if math.isfinite(x) else str(x) for x in (outcome.bits, *outcome.losses)]
    numbers = {**asdict(outcome), "losses": losses, "bits": bits}
    write_json(path, {"cell": cell.label, **numbers, "versions": versions()})


def _read(path: Path) -> Outcome:
    """Read an outcome.

    Raises:
        ValueError: the file holds none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        losses = [float(x) for x in data["losses"]]
        return Outcome(float(data["bits"]), losses, float(data["seconds"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"expected the outcome of a cell, but could not read {path}: {error!r}; remove the "
            "file to measure it again"
        ) from error
