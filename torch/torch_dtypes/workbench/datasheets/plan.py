"""The plan of a datasheet: formats, networks and data, and the cells of its sweep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...targets.lookup import FormatTarget, target
from ..sweeps.cells import Cell, Settings
from ..training.recipes import AFTER, THROUGHOUT
from ..training.text import TOPICS, digest_of, read_topics

# Each part by its name, which is also its key in the JSON, with its heading.
PARTS = {
    "card": "The format",
    "ranges": "Where a training's numbers fall",
    "accuracy": "Accuracy",
    "accumulator": "The accumulator",
    "layers": "Layers",
    "digits": "Digits that hold",
    "cost": "Cost",
    "files": "Files",
}

# How a network has a format: after training, then the trainings, from what takes the least to what
# takes the most; with words for a verdict.
RECIPES = {
    "ptq": "weights and activations, after training",
    "all": "with everything in the format",
    "master": "with float32 masters",
    "mixed": "with float32 weights and scaled gradients",
    "qat": "with float32 weights and gradients",
}
ROUNDINGS = ("nearest_even", "stochastic")
_WIDE = ("float32", "float64")

# Accumulators of dot products: e8m3 has 4 significant bits.
WIDTHS = ("e8m2", "e8m3", "e8m5", "e8m7", "e8m9")
CHUNKS = (None, 32)  # the products of a chunk; None: one running sum
MACHINE = "machine"
SUMS = ((MACHINE, None), *((width, chunk) for chunk in CHUNKS for width in WIDTHS))
SUMS_TRAINED = "mixed"  # the recipe that trains with them: every format has it


@dataclass(frozen=True)
class Plan:
    """All that a datasheet measures.

    Attributes:
        formats: the formats of the datasheet, as the user spelt them. against: the references.
        tasks: networks and data sets by name; parts other than accuracy take the first.
        seeds: the seeds of each cell. settings: the settings of all cells, where data_dir and text
            are those of the first task. data_dir: that of the others.
        sums_epochs: the epochs of a training with narrow sums, at most those of the settings.
        parts: the names of the parts, in the page's order.
    """

    formats: tuple[str, ...]
    against: tuple[str, ...] = ()
    tasks: tuple[tuple[str, str], ...] = (("lenet5", "digits"),)
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings = field(default_factory=lambda: Settings(epochs=4))
    parts: tuple[str, ...] = tuple(PARTS)
    data_dir: str | None = None
    sums_epochs: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Formats and references, each once."""
        return tuple(dict.fromkeys((*self.formats, *self.against)))

    @property
    def task(self) -> str:
        """The first network and its data, in words."""
        return " on ".join(self.tasks[0])

    @property
    def measured_parts(self) -> tuple[str, ...]:
        """The chosen parts that need the network and its data."""
        return tuple(name for name in self.parts if name not in ("card", "cost", "files"))

    def base(self, seed: int | None = None, task: tuple[str, str] | None = None) -> Cell:
        """Return a training in float32, by default the first."""
        model, dataset = task or self.tasks[0]
        seed = self.seeds[0] if seed is None else seed
        what = ("float32", "nearest_even", "machine", "all", seed)
        return Cell(model, dataset, *what, self._settings((model, dataset))).base

    def _settings(self, task: tuple[str, str]) -> Settings:
        """Return the settings of a task's cells. A folder of other data would rename the first
        task's cells, which then run again."""
        if task == self.tasks[0]:
            return self.settings
        is_text = task[1] == TOPICS
        return replace(
            self.settings,
            data_dir=None if is_text else self.data_dir,
            text=None,
            text_digest=digest_of(read_topics()) if is_text else None,
        )

    def accuracy_cells(self) -> list[tuple[str, Cell]]:
        """Return the cells of the part ``accuracy``, each with its format's name in the plan."""
        cells = [
            (
                name,
                Cell(
                    *task, _spell(name, recipe), mode, MACHINE, recipe, seed, self._settings(task)
                ),
            )
            for task in self.tasks
            for name in self.names
            for recipe in recipes_of(name)
            for mode in roundings_of(name)
            for seed in self.seeds
        ]
        # float32 throughout is the training beside which the others stand.
        return [(name, cell) for name, cell in cells if not cell.is_base]

    def sums_cells(
        self, name: str, width: str, chunk: int | None, recipe: str = "ptq"
    ) -> list[Cell]:
        """Return the cells of a format with an accumulator and chunk, one for each seed, rounded
        to nearest: after training, or in a training of ``sums_epochs``."""
        sums = f"product=exact,accumulator={width}"
        policy = f"format({sums})" if chunk is None else f"chunked({chunk},{sums},outer={width})"
        policy = MACHINE if width == MACHINE else policy
        mode, epochs = roundings_of(name)[0], min(self.sums_epochs, self.settings.epochs)
        settings = self.settings if recipe == "ptq" else replace(self.settings, epochs=epochs)
        what = (*self.tasks[0], name, mode, policy, recipe)
        return [Cell(*what, seed, settings) for seed in self.seeds]

    def cells(self) -> list[Cell]:
        """Return the cells of all chosen parts, but for trainings with the accumulators that these
        find."""
        cells = []
        if "accuracy" in self.parts:
            cells += [self.base(seed, task) for task in self.tasks for seed in self.seeds]
            cells += [cell for _, cell in self.accuracy_cells()]
        if {"ranges", "layers", "digits"} & set(self.parts):
            # The network of the studies, and the spread of its loss.
            cells += [self.base(seed) for seed in self.seeds]
        if "accumulator" in self.parts:
            for name in self.formats:
                cells += [cell for sums in SUMS for cell in self.sums_cells(name, *sums)]
        return list({cell.key: cell for cell in cells}.values())


def recipes_of(name: str) -> list[str]:
    """Return the recipes that take a format. A network cannot have blocks, integers or a user's
    quantiser throughout."""
    is_format = isinstance(target(name), FormatTarget)
    return [recipe for recipe in RECIPES if is_format or recipe not in THROUGHOUT]


def roundings_of(name: str) -> tuple[str, ...]:
    """Return the rounding modes to compare: the one in the format's name, or both."""
    own = target(name).rounding
    return ROUNDINGS if own == "nearest_even" else (own,)


def _spell(name: str, recipe: str) -> str:
    """Return the name of this package's dtype with the numbers of a stock one. All formats then
    have the same kernels, so that they alone differ, and bfloat16 takes a fifth of the time."""
    found = target(name)
    if recipe in AFTER or not isinstance(found, FormatTarget) or found.stock in (None, *_WIDE):
        return name
    return found.format_name
