"""Studies of a datasheet on the network that float32 has trained, each stored as JSON."""

from __future__ import annotations

import functools
import hashlib
import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from ...formats.naming import split_rounding
from ...formats.tables.making import content_of
from ...targets.lookup import FormatTarget, target
from ..cards.card import card
from ..report.folders import write_json
from ..sensitivity.study import sensitivity
from ..sweeps.store import Store
from ..training.loop import Training
from ..training.observing import Observed
from ..training.ranks import first_line
from ..training.recipes import CALIBRATION_IMAGES
from ..variability.programs import test_batches
from ..variability.study import variability
from .plan import Plan

OBSERVED_IMAGES = 512  # of one further epoch, whose roundings are counted
STUDIES = ("ranges", "layers", "digits")
_VERSION = 2  # part of each key: another one makes stored studies anew


class Studies:
    """The studies of a plan.

    Args:
        outcomes: the outcomes of cells, with those of ``plan.base()``.
        shown: a function that receives the name of a study before it runs.
        retry: whether to run studies again that failed before.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        outcomes: Mapping[str, dict],
        shown: Callable[[str], None] = lambda text: None,
        retry: bool = False,
    ):
        self._plan, self._store, self._outcomes = plan, store, outcomes
        self._shown, self._retry = shown, retry
        self._base = plan.base()

    def go(self) -> dict[str, dict[str, dict]]:
        """Run the missing studies of the chosen parts. Return plain data by part and format:
        a study that failed has only ``reason``."""
        make = {"ranges": self._ranges, "layers": self._layers, "digits": self._digits}
        return {
            part: {name: self._find(part, name, make[part]) for name in self._plan.formats}
            for part in STUDIES
            if part in self._plan.parts
        }

    def _find(self, part: str, name: str, make: Callable[[str], dict]) -> dict:
        """Read a study, or run and store it."""
        why = self._store.why_untrained(replace(self._base, format=name, recipe="ptq"))
        base = self._outcomes.get(self._base.key)
        if why or base is None or base["state"] != "done":
            return {"reason": why or (base or {}).get("reason") or "float32's training is not done"}
        path = self._store.folder / "studies" / f"{part}-{self._key(part, name)}.json"
        if path.exists():
            data = json.loads(path.read_text(encoding="utf-8"))
            if set(data) != {"reason"} or not self._retry:
                return data
        self._shown(f"{part} of {name}")
        try:
            data = make(name)
        except Exception as error:
            # An error of a user's quantiser or network, or a format that the study does not take.
            kind, line = type(error).__name__, first_line(error)
            data = {"reason": line if isinstance(error, ValueError) else f"{kind}: {line}"}
        path.parent.mkdir(exist_ok=True)
        write_json(path, data)
        return data

    def _key(self, part: str, name: str) -> str:
        """Return digits that depend on all that a study depends on."""
        others = self._plan.against if part == "layers" else ()
        names = [[n, content_of(n)] for n in (name, *others)]
        limit = self._limit() if part == "layers" else None
        text = json.dumps([_VERSION, part, names, self._base.key, limit])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _training(self, epochs: int = 0, images: int | None = None) -> Training:
        """Return the training in float32, at its end, with so many epochs to go."""
        config, data = self._base.config(), self._base.data()
        config = replace(config, epochs=config.epochs + epochs)
        if images is not None:
            data = data.first(min(images, len(data.train)), 1)
        training = Training(config, data, torch.float32, self._base.seed)
        training.load_state_dict(
            torch.load(self._store.trained_path(self._base), weights_only=True)
        )
        return training

    def _ranges(self, name: str) -> dict:
        """Count what the format would round in a further epoch of float32's training."""
        card(name)  # raises the error of a target without a range
        observed, training = Observed([name]), self._training(1, OBSERVED_IMAGES)
        training.observed = functools.partial(observed.epoch, training, "all")
        training.go()
        return observed.state() | {"images": len(training.data.train)}

    def _digits(self, name: str) -> dict:
        """Repeat the network's answers in random rounding to the format."""
        found = target(name)
        if not isinstance(found, FormatTarget):
            raise ValueError(
                f"expected a format that every operation can round to, but got {name}, whose "
                "numbers share a scale"
            )
        training = self._training()
        batches = test_batches(training.data.test, training.config)
        plain, _ = split_rounding(found.format_name)  # the study has its own mode
        return variability(training.model, batches, format=plain).as_json()

    def _layers(self, name: str) -> dict:
        """Round one layer at a time, and choose the mixture that costs least for float32's
        spread."""
        training, limit = self._training(), self._limit()
        batches = test_batches(training.data.test, training.config)
        same = {target(other) for other in (name, "float32")}
        others = [other for other in self._plan.against if target(other) not in same]
        formats = [name, *others, *(["float32"] if target(name) != target("float32") else [])]
        data, config = training.data.train, training.config
        images, _ = data.batch(torch.arange(min(CALIBRATION_IMAGES, len(data))))
        scales_from = images.to(config.device).split(config.batch_size)
        found = sensitivity(training.model, batches, formats, calibrate=scales_from)
        why = None
        try:
            if limit is None:
                raise ValueError("one seed has no spread, so there is no loss to stay within")
            found.choose(metric=limit)
        except ValueError as error:
            why = str(error)
        return found.as_json() | {"limit": limit, "why_no_mixture": why}

    def _limit(self) -> float | None:
        """Return the deviation of float32's test loss over seeds; None for one seed."""
        losses = [
            found["loss"]
            for seed in self._plan.seeds
            if (found := self._outcomes.get(self._plan.base(seed).key))
            and found["loss"] is not None
        ]
        return statistics.stdev(losses) if len(losses) > 1 else None
