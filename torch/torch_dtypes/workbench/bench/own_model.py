"""``torch-dtypes bench --model``: the cost of a training step of a user's own network, in several
formats and in float32.

Steps of all cases take turns, and the medians are compared. Layers, operators and memory are
measured in steps (and processes) of their own, so that no profile is in the reported times.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch.nn import functional as F

from ..training.data import Dataset, Examples
from ..training.generators import forked_generators
from ..training.ranks import first_line
from ..training.recipes import Trial, set_up
from ..training.records import Config
from .own_layers import layer_seconds
from .own_operators import operator_seconds

PASSES = ("forward", "backward", "optimizer")
BASELINE = "float32"
_WARM_UP_STEPS = 2


@dataclass
class Cost:
    """The cost of a step in one case.

    Attributes:
        steps: the seconds of each timed step, by pass.
        layers: the seconds of a step under the layers' clock, by layer and pass.
        operators: the seconds of a step under the profiler, by operator.
        peak: the most bytes of physical memory in a step, above those before the network was made.
    """

    steps: list[tuple[float, float, float]] = field(default_factory=list)
    layers: dict[tuple[str, str], float] = field(default_factory=dict)
    operators: dict[str, float] = field(default_factory=dict)
    peak: int = 0

    @property
    def seconds(self) -> float:
        """Median of the steps."""
        return statistics.median(map(sum, self.steps))

    @property
    def passes(self) -> dict[str, float]:
        """Median seconds of each pass."""
        columns = zip(*self.steps, strict=True)
        return {name: statistics.median(c) for name, c in zip(PASSES, columns, strict=True)}


@dataclass
class OwnModel:
    """The result: the cost of each case, float32's first, and the network's modules by name."""

    config: Config
    data: str
    parameters: int
    threads: int
    rounds: int
    costs: dict[str, Cost]
    modules: dict[str, str]
    load: float = 0.0  # of the machine at the start

    def as_json(self) -> dict:
        """Return the result as plain data."""
        costs = {}
        for name, cost in self.costs.items():
            layers = [[*place, seconds] for place, seconds in cost.layers.items()]
            steps = {"seconds": cost.seconds, "passes": cost.passes}
            costs[name] = {**steps, **asdict(cost), "layers": layers}
        return {
            "model": self.config.model,
            "data": self.data,
            "batch_size": self.config.batch_size,
            "optimizer": self.config.optimizer,
            "parameters": self.parameters,
            "threads": self.threads,
            "rounds": self.rounds,
            "load": self.load,
            "modules": self.modules,
            "costs": costs,
        }


def take_batch(data: Dataset, batch_size: int) -> Dataset:
    """Return a data set of the first inputs alone. Raises: ValueError, there are fewer."""
    if batch_size > len(data.train):
        raise ValueError(
            f"expected --batch-size of at most {len(data.train)}, the training inputs of "
            f"{data.name}, but got {batch_size}"
        )
    batch = Examples(*data.train.batch(torch.arange(batch_size)))
    return replace(data, train=batch, test=batch)


def build_case(config: Config, data: Dataset, trial: Trial, inputs: int | None = None) -> dict:
    """Return the variables of ``training.STEP``: the same initial weights for every trial.

    Args:
        inputs: the number of inputs in the step; None: all of ``data``.
    """
    with forked_generators():
        torch.manual_seed(0)
        model, optimizer, dtype = set_up(config, data, trial.number, trial.recipe)
    images, labels = data.train.batch(slice(inputs))
    if images.is_floating_point():
        images = images.to(dtype)
    return {
        "model": model.train(),
        "optimizer": optimizer,
        "images": images,
        "labels": labels,
        "cross_entropy": F.cross_entropy,
    }


def run_step(case: dict, mark: Callable[[str], object]) -> None:
    """Run a step, and call ``mark`` with the name of each pass before it."""
    mark("forward")
    case["optimizer"].zero_grad()
    loss = case["cross_entropy"](case["model"](case["images"]), case["labels"])
    mark("backward")
    loss.backward()
    mark("optimizer")
    case["optimizer"].step()


def _time_step(case: dict) -> tuple[float, ...]:
    times: list[float] = []
    run_step(case, lambda name: times.append(time.perf_counter()))
    times.append(time.perf_counter())
    return tuple(b - a for a, b in itertools.pairwise(times))


def measure_costs(
    config: Config,
    data: Dataset,
    trials: Sequence[Trial],
    *,
    rounds: int,
    profiles: int,
    measure_peak: Callable[[Path], int],
    on_run: Callable[[str], object] = lambda what: None,
) -> OwnModel:
    """Measure a step of a network in each trial, of which the first is float32.

    Args:
        data: the inputs of one step. rounds: the timed steps of each trial, at least 1.
            profiles: the steps for layers, and those for operators.
        measure_peak: a function that returns ``Cost.peak`` for a file of ``save_case``.
        on_run: a function to call after each step and process, with its purpose.

    Raises:
        ValueError: the network takes no step in a trial.
    """
    load = os.getloadavg()[0]
    cases, costs = {}, {trial.label: Cost() for trial in trials}
    with forked_generators():
        for trial in trials:
            try:
                case = cases[trial.label] = build_case(config, data, trial)
                for _ in range(_WARM_UP_STEPS):
                    _time_step(case)
            except Exception as error:  # a user's network may raise any error
                raise ValueError(
                    f"expected {config.model} to take a training step in {trial.label}, but it "
                    f"raised {type(error).__name__}: {first_line(error)}"
                ) from error
            on_run("warm-up")
        for _ in range(rounds):
            for name, case in cases.items():
                costs[name].steps.append(_time_step(case))
                on_run("steps")
        for name, case in cases.items():
            costs[name].layers = layer_seconds(case, run_step, profiles)
            on_run("layers")
            costs[name].operators = operator_seconds(case, run_step, profiles)
            on_run("operators")
    model = cases[trials[0].label]["model"]
    modules = {name: type(module).__name__ for name, module in model.named_modules()}
    parameters = sum(p.numel() for p in model.parameters())
    cases.clear()
    with tempfile.TemporaryDirectory(prefix="torch-dtypes-bench-") as folder:
        for trial in trials:
            path = Path(folder) / "case.pt"
            save_case(path, config, data, trial)
            costs[trial.label].peak = measure_peak(path)
            on_run("memory")
    return OwnModel(
        config, data.name, parameters, torch.get_num_threads(), rounds, costs, modules, load
    )


def save_case(path: Path, config: Config, data: Dataset, trial: Trial) -> None:
    """Write a case for another process, which ``load_case`` reads."""
    state = {
        "config": asdict(config),
        "trial": (trial.recipe, trial.said or trial.name),
        "data": (data.name, data.classes, data.train.inputs, data.train.labels),
    }
    torch.save(state, path)


def load_case(path: Path) -> tuple[Config, Dataset, tuple[str, str]]:
    """Return network, data, and the recipe and name of a trial."""
    state = torch.load(path, weights_only=True)
    name, classes, inputs, labels = state["data"]
    batch = Examples(inputs, labels)
    return Config(**state["config"]), Dataset(name, batch, batch, classes), state["trial"]
