"""The settings of a comparison and the results of its runs, as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields

from ..report.folders import finite_or_none


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The common settings of all trainings of a command, from its options.

    Attributes:
        lr: ``None`` is ``default_lr``. eps: ``None`` is the default of adam or adamw.
        weight_decay: ``None`` is the optimizer's default.
        warmup: the steps in which the learning rate rises in a line, before the schedule begins.
        clip: the largest norm of all gradients together, or ``None``.
        micro_batches: the parts of a step's batch, whose gradients add up.
        loss_scale: ``None``, a number above 0 or ``"dynamic"``; not for the recipe ``all``.
        master, state: for the recipe ``master``: the masters' format, or ``"none"``, and the
            states' format, or ``None`` for float32.
        rules: for recipes that quantise layers: a YAML file of rules, or ``None``.
        weights: a file with the initial weights, or ``None``.
        loss_dtype: for recipes whose network has a dtype: ``"network"`` computes the training loss
            in it, ``"float32"`` in float32 from its logits.
    """

    epochs: int = 7
    batch_size: int = 32
    optimizer: str = "adam"
    lr: float | None = None
    momentum: float = 0.0
    device: str = "cpu"
    eps: float | None = None
    schedule: str = "constant"
    weight_decay: float | None = None
    warmup: int = 0
    clip: float | None = None
    micro_batches: int = 1
    loss_scale: float | str | None = None
    master: str = "float32"
    state: str | None = None
    rules: str | None = None
    weights: str | None = None
    loss_dtype: str = "network"

    @property
    def default_lr(self) -> float:
        """The learning rate if ``lr`` is ``None``."""
        return 0.01 if self.optimizer == "sgd" else 0.001


@dataclass(frozen=True)
class Config(Settings):
    """The settings of one training, and its network.

    Attributes:
        accumulate: for recipes that quantise layers: the policy of their products, or ``None``.
            (Other recipes run in a block with the policy.)
    """

    model: str = "lenet5"
    accumulate: str | None = None


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch.

    Attributes:
        epoch: the number of the epoch, from 1.
        train_loss: the mean over the training images, each at the step that used it; not finite if
            the epoch diverged, which ends it.
        test_loss, accuracy: after the epoch, on the test images: the mean loss, and the percentage
            classified right.
        seconds: the time of the training part, without the test.
        diverged: whether a loss was not finite, so that the figures mean nothing.
    """

    epoch: int
    train_loss: float
    test_loss: float
    accuracy: float
    seconds: float
    diverged: bool


class Named:
    """The base of records with a ``dtype``, a ``recipe``, and in ``said`` the dtype as the user
    spelt it, or ``None``."""

    @property
    def name(self):
        """The dtype as the user spelt it."""
        return self.said or self.dtype

    @property
    def label(self):
        """The dtype's name, followed by the recipe unless it is ``all``."""
        return self.name if self.recipe == "all" else f"{self.name} {self.recipe}"


@dataclass
class Run(Named):
    """One training from scratch, in one dtype with one seed.

    Attributes:
        dtype: the name of the dtype or target, without ``torch.``.
        seed: the seed for initial weights, the order of the images and dropout.
        epochs: a list of :class:`Epoch`, shorter than requested after divergence. For the recipes
            ``ptq`` and ``weights`` they are float32's, and the last is tested after rounding.
        divergence: for a run that diverged, a sentence on the first tensor that was not finite, its
            layer and pass, the likely cause and advice; or ``None``.
        recipe: one of ``recipes.RECIPES``.
        interrupted: whether it was stopped before its last epoch.
        failure: the reason, for a run that raised, crashed or hung; or ``None``.
        said: the dtype as the user spelt it (``bf16``), or ``None`` if it is ``dtype``.
    """

    dtype: str
    seed: int
    epochs: list[Epoch] = field(default_factory=list)
    divergence: str | None = None
    recipe: str = "all"
    interrupted: bool = False
    said: str | None = None
    failure: str | None = None

    @property
    def key(self):
        """Identity of the run: dtype, recipe and seed."""
        return self.dtype, self.recipe, self.seed

    @property
    def diverged_at(self):
        """The epoch that diverged, counted from 1, or ``None``."""
        return self.epochs[-1].epoch if self.epochs and self.epochs[-1].diverged else None

    @property
    def is_good(self):
        """Whether the run came to its end with finite figures."""
        return self.diverged_at is None and self.failure is None

    def as_json(self):
        """Return plain data for JSON, with ``None`` for figures that are not finite."""
        return {
            "dtype": self.dtype,
            "name": self.name,
            "recipe": self.recipe,
            "seed": self.seed,
            "diverged_at": self.diverged_at,
            "divergence": self.divergence,
            "failure": self.failure,
            "epochs": [finite_or_none(asdict(epoch)) for epoch in self.epochs],
        }

    @classmethod
    def from_json(cls, data):
        """Rebuild a run from ``as_json``; figures that were not finite become NaN.

        Raises:
            KeyError, TypeError: other data.
        """
        names = [f.name for f in fields(Epoch)]
        epochs = [
            Epoch(*(math.nan if epoch[name] is None else epoch[name] for name in names))
            for epoch in data["epochs"]
        ]
        return cls(
            data["dtype"],
            data["seed"],
            epochs,
            data["divergence"],
            data["recipe"],
            said=data["name"],
            failure=data["failure"],
        )
