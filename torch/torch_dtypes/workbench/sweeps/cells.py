"""Cells of a sweep as data, and the names of their files."""

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
from ...targets.quantisers import QuantiserTarget
from ..training import records
from ..training.data import Dataset
from ..training.loading import load_data
from ..training.recipes import AFTER, PUBLISHED, QUANTIZING, THROUGHOUT, RulesFile
from ..training.records import Config
from ..training.text import TOPICS


@dataclass(frozen=True, kw_only=True)
class Settings(records.Settings):
    """The common settings of all cells of a sweep.

    Attributes:
        weights_digest, rules_digest, text_digest: SHA-256 of these files: another file makes
            another cell.
        text: a file of text as an absolute path, the cells' data; or None. Python's topics have a
            digest alone, since they differ by Python's version.
        data_dir: the folder of the data sets' files as an absolute path; None if no set is read
            from files.
        threads: the CPU threads of each cell.
        observe: formats, as for ``Observed``, if rounding is counted in the last epoch; else None.
    """

    weights_digest: str | None = None
    data_dir: str | None = None
    text: str | None = None
    text_digest: str | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    threads: int = 1
    rules_digest: str | None = None
    observe: tuple[str, ...] | None = None


# Settings that only train has, with their defaults.
OF_TRAIN = {"rules": None, "rules_digest": None, "loss_dtype": "network", "observe": None}
# Settings that older outcomes lack, with their defaults.
LATER = OF_TRAIN | {
    "text": None,
    "text_digest": None,
    "weight_decay": None,
    "warmup": 0,
    "clip": None,
    "micro_batches": 1,
}


@dataclass(frozen=True)
class Cell:
    """One training, or one rounding after a training: all that its result depends on, except the
    versions of the software.

    Attributes:
        model: a name, as for ``train --model``.
        dataset: a name of ``training.data.DATASETS``, ``package.module:loader``, or the name of
            the settings' text.
        format: the format as the user spelt it.
        rounding: one of ``ROUNDING_MODES``.
        accumulate: the name of a policy of ``torch_dtypes.accumulate``.
        recipe: one of ``training.recipes.RECIPES``.
        seed: the seed for initial weights, the order of the images, and random rounding.
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
        """Return the cell as plain data, from which ``of`` rebuilds it."""
        data = asdict(self)
        settings = data["settings"]
        for name, default in LATER.items():
            if settings[name] == default:
                del settings[name]  # so that outcomes older than the setting keep their names
        settings["image_size"] = 32  # a later version may have 224
        return data

    @classmethod
    def of(cls, definition: dict[str, Any]) -> Cell:
        """Rebuild the cell of a definition.

        Raises:
            TypeError, KeyError: the data are no definition.
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
        """16 hexadecimal digits that depend on the definition alone, and differ for another one:
        the name of the cell's file."""
        definition = self.definition()
        settings = definition["settings"]
        settings["weights"] = None  # the digest identifies the content, wherever the file is
        for path in ("rules", "text"):
            settings.pop(path, None)
        if settings["device"] == "cpu":
            del settings["device"]
        if self._is_carried:
            # The folder may have an older outcome in the stock dtype, whose sums ignored the
            # policy.
            definition["carried"] = True
        if table := content_of(self.format):
            definition["table"] = table  # the values behind a user's name
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        parts = [f"{self.model} on {self.dataset}: {self.format}"]
        parts += [] if self.recipe in PUBLISHED else [self.rounding, self.recipe]
        if self.accumulate != "machine":
            parts.append(f"accumulate {self.accumulate}")
        return ", ".join([*parts, f"seed {self.seed}"])

    @property
    def base(self) -> Cell:
        """The training in float32 with which the cell is compared, and from which rounding after
        training starts."""
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
    def is_text(self) -> bool:
        """Whether its data are a text, so that a loss has a perplexity."""
        return self.settings.text is not None or self.dataset == TOPICS

    @property
    def is_base(self) -> bool:
        return self == self.base

    @property
    def is_after_training(self) -> bool:
        return self.recipe in AFTER

    def target(self) -> Target:
        """Return the target of rounding. It registers no dtype.

        Raises:
            ValueError: the name means nothing, or the recipe cannot use it.
        """
        result = target(self.format)
        if result.rounding != self.rounding:
            result = result.with_rounding(self.rounding)
        if self.recipe in QUANTIZING:
            return result
        if result.needs_scale:
            raise ValueError(
                f"expected a format without scales for --recipe {self.recipe}, but got "
                f"{self.format}, which is for {', '.join(QUANTIZING)}"
            )
        if not self.is_after_training and not isinstance(result, FormatTarget):
            raise ValueError(
                f"expected a dtype for --recipe {self.recipe}, whose network has it throughout, "
                f"but got {self.format}"
            )
        return result

    @property
    def has_rules(self) -> bool:
        """Whether a file or a published recipe gives the formats; ``format`` is its name then."""
        return self.recipe in PUBLISHED or (
            self.settings.rules is not None and self.recipe in QUANTIZING
        )

    @property
    def _is_carried(self) -> bool:
        """Whether this package's dtype of the same numbers replaces a stock dtype in the whole
        network. The sums of stock dtypes are PyTorch's own and ignore a policy."""
        return (
            self.accumulate != "machine"
            and self.recipe in THROUGHOUT
            and self.target().stock is not None
        )

    def needs_kernels(self) -> bool:
        """Whether the cell needs kernels of this package. Raises: ValueError, as ``target``."""
        if self.has_rules:
            return True
        number = self.target()
        if isinstance(number, QuantiserTarget):
            return False
        return self._is_carried or not isinstance(number, FormatTarget) or number.stock is None

    def number(self) -> torch.dtype | Target | RulesFile:
        """Return the dtype of ``target()`` if the whole network has it, else the target, or a
        stand-in for a file of rules.

        bf16 is ``torch.bfloat16``; under a policy it is e8m7, this package's dtype with the same
        numbers.
        """
        if self.has_rules:
            return RulesFile(self.format)
        result = self.target()
        if self.recipe not in THROUGHOUT:
            return result
        return dtype_of(result.format_name) if self._is_carried else result.dtype

    def config(self) -> Config:
        """Return the configuration of the training."""
        policy = None if self.accumulate == "machine" else self.accumulate
        shared = {f.name: getattr(self.settings, f.name) for f in fields(records.Settings)}
        return Config(self.model, policy, **shared)

    def data(self) -> Dataset:
        """Load the data set.

        Raises:
            ValueError, OSError, ImportError: as for ``load_data``.
        """
        return load(self)


def load(cell: Cell, download: bool = False) -> Dataset:
    """Load a cell's data."""
    settings = cell.settings
    return load_data(
        cell.dataset,
        cell.model,
        data_dir=settings.data_dir or "data",
        train_samples=settings.train_samples,
        test_samples=settings.test_samples,
        text=settings.text,
        download=download,
    )
