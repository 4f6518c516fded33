"""A cell of a sweep as data, and the name of its file."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from ...formats.dtypes import dtype as dtype_of
from ...formats.tables.making import content_of
from ...targets.lookup import FormatTarget, Target, target
from ..training import records
from ..training.data import Dataset, load_dataset
from ..training.recipes import AFTER, QUANTIZING, THROUGHOUT, RulesFile
from ..training.records import Config
from ..training.sources import own_data


@dataclass(frozen=True, kw_only=True)
class Settings(records.Settings):
    """What the cells of one sweep have in common.

    Attributes:
        weights_digest, rules_digest: SHA-256 of these files: another file is another cell.
        data_dir: the folder of the data sets' files as an absolute path, None where no set is read
            from files.
        threads: of each cell.
        observe: formats, as ``Observed`` takes them, where rounding is counted in the last epoch,
            or None.
    """

    weights_digest: str | None = None
    data_dir: str | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    threads: int = 1
    rules_digest: str | None = None
    observe: tuple[str, ...] | None = None


# What train alone has.
LATER = {"rules": None, "rules_digest": None, "loss_dtype": "network", "observe": None}


@dataclass(frozen=True)
class Cell:
    """One training, or one rounding after a training: everything that its result depends on but the
    versions of what runs it.

    Attributes:
        model: as ``train --model`` takes it.
        dataset: a name of ``training.data.DATASETS``, or ``package.module:loader``.
        format: as the user spelt it.
        rounding: one of ``ROUNDING_MODES``.
        accumulate: a policy of ``torch_dtypes.accumulate``, by its name.
        recipe: one of ``training.recipes.RECIPES``.
        seed: for initial weights, the order of the images, and rounding at random.
    """

    model: str
    dataset: str
    format: str
    rounding: str
    accumulate: str
    recipe: str
    seed: int
    settings: Settings

    def definition(self) -> dict[str, Any]:
        """The cell as plain data, from which ``of`` makes it again."""
        made = asdict(self)
        settings = made["settings"]
        for name, default in LATER.items():
            if settings[name] == default:
                del settings[name]  # outcomes of before there was another keep their names
        settings["image_size"] = 32  # it could be 224
        return made

    @classmethod
    def of(cls, definition: dict[str, Any]) -> Cell:
        """The cell of a definition.

        Raises:
            TypeError, KeyError: it is another thing's.
        """
        settings = Settings(
            **{
                name: value
                for name, value in definition["settings"].items()
                if name != "image_size"
            }
        )
        if settings.observe is not None:
            settings = replace(settings, observe=tuple(settings.observe))
        return cls(**{**definition, "settings": settings})

    @functools.cached_property
    def key(self) -> str:
        """16 hexadecimal digits that its definition alone decides: the name of its file. Another
        definition has another."""
        definition = self.definition()
        settings = definition["settings"]
        settings["weights"] = None  # wherever it lies: the digest says what is in it
        settings.pop("rules", None)
        if settings["device"] == "cpu":
            del settings["device"]
        if self._is_carried:
            # A folder may have an outcome in the stock dtype, whose sums heeded no policy.
            definition["carried"] = True
        if table := content_of(self.format):
            definition["table"] = table  # what a user's name means
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        parts = [f"{self.model} on {self.dataset}: {self.format}", self.rounding, self.recipe]
        if self.accumulate != "machine":
            parts.append(f"accumulate {self.accumulate}")
        return ", ".join([*parts, f"seed {self.seed}"])

    @property
    def base(self) -> Cell:
        """The training in float32 that it is compared with, and that rounding after training begins
        with."""
        settings = replace(
            self.settings,
            loss_scale=None,
            master="float32",
            state=None,
            rules=None,
            rules_digest=None,
            loss_dtype="network",
        )
        return replace(
            self,
            format="float32",
            rounding="nearest_even",
            accumulate="machine",
            recipe="all",
            settings=settings,
        )

    @property
    def is_base(self) -> bool:
        return self == self.base

    @property
    def is_after_training(self) -> bool:
        return self.recipe in AFTER

    def target(self) -> Target:
        """What its numbers are rounded to; no dtype is made for it.

        Raises:
            ValueError: the name means nothing, or nothing for its recipe.
        """
        made = target(self.format)
        if made.rounding != self.rounding:
            made = made.with_rounding(self.rounding)
        if self.recipe in QUANTIZING:
            return made
        if made.needs_scale:
            raise ValueError(
                f"expected a format without scales for --recipe {self.recipe}, but got "
                f"{self.format}: that is for {', '.join(QUANTIZING)}"
            )
        if not self.is_after_training and not isinstance(made, FormatTarget):
            raise ValueError(
                f"expected a dtype for --recipe {self.recipe}, whose network has it throughout, "
                f"but got {self.format}"
            )
        return made

    @property
    def has_rules(self) -> bool:
        """Whether a file says the formats; ``format`` is its name then."""
        return self.settings.rules is not None and self.recipe in QUANTIZING

    @property
    def _is_carried(self) -> bool:
        """Whether a dtype of ours takes a stock one's place in the whole network, since a policy
        would not hold there: its sums are PyTorch's own."""
        return (
            self.accumulate != "machine"
            and self.recipe in THROUGHOUT
            and self.target().stock is not None
        )

    def needs_kernels(self) -> bool:
        """Whether anything in it is computed by kernels of this package. Raises: ValueError, as
        ``target``."""
        made = self.target()
        return self._is_carried or not isinstance(made, FormatTarget) or made.stock is None

    def number(self) -> torch.dtype | Target | RulesFile:
        """The dtype of ``target()`` where the network has it throughout, else the target, or what
        stands for a file of rules.

        bf16 is ``torch.bfloat16``, and the dtype of this package with its numbers, e8m7, under a
        policy.
        """
        if self.has_rules:
            return RulesFile(self.format)
        made = self.target()
        if self.recipe not in THROUGHOUT:
            return made
        return dtype_of(made.format_name) if self._is_carried else made.dtype

    def config(self) -> Config:
        """The training's."""
        policy = None if self.accumulate == "machine" else self.accumulate
        shared = {f.name: getattr(self.settings, f.name) for f in fields(records.Settings)}
        return Config(self.model, policy, **shared)

    def data(self) -> Dataset:
        """Loads its data.

        Raises:
            ValueError, OSError, ImportError: as ``load_dataset`` and ``own_data``.
        """
        return load(self.dataset, self.settings)


def load(dataset: str, settings: Settings, download: bool = False) -> Dataset:
    """A data set by the name that a cell has for it."""
    if ":" in dataset:
        return own_data(dataset).first(settings.train_samples, settings.test_samples)
    return load_dataset(
        dataset,
        settings.data_dir or "data",
        settings.train_samples,
        settings.test_samples,
        download,
    )
