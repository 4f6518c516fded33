"""Time cases in turn, and compare two of them."""

from __future__ import annotations

import math
import re
import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

import torch_dtypes

from ..training.recipes import resolve_dtype

RATIO = "ratio"
OVER = "microseconds over"
RATE = "M multiply-adds/s per core"
SPEED_UP = "times as fast"

BUSY = 0.25  # load per core at the start of a run, above which results mention it

WARM_UP_ROUNDS = 5
_WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Sizes:
    """Amounts of work. Networks are pairs (model, images in a step). For memory, the first entry of
    a model also gives the bytes it holds. ``language`` has layers, width, tokens of an input, and
    tokens to generate."""

    elements: int = 10_000_000
    cached_elements: int = 1_000_000
    cast_seconds: float = 0.03
    function_elements: int = 1_000_000
    matmul: int = 1024
    rounded_matmul: int = 512
    block_sides: tuple[int, ...] = (1024, 4096)
    networks: tuple[tuple[str, int], ...] = (
        ("lenet5", 32),
        ("lenet5", 256),
        ("alexnet", 32),
        ("resnet18", 32),
    )
    step_batch: int = 8
    step_images: int = 64
    parameters: tuple[int, ...] = (4_000_000, 40_000_000)
    memory_networks: tuple[tuple[str, int], ...] = (("lenet5", 256), ("resnet18", 32))
    calls: int = 1000
    peer_elements: int = 1_000_000
    peer_matmul: int = 256
    peer_seconds: float = 0.1
    scalars: int = 10_000
    fuzzy_images: int = 64
    peer_batch: int = 32
    scaling: tuple[int, ...] = tuple(10**decade for decade in range(2, 9))
    language: tuple[int, int, int, int] = (6, 320, 128, 48)
    scaling_matmul: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048)


class NotMeasuredError(Exception):
    """Raised for a group that cannot be measured here; the message is the reason, in one line."""


@dataclass(frozen=True)
class Row:
    """A comparison: the case ``case`` over the case ``against``, both keys of a group's ``codes``.

    Attributes:
        work: the work, the same for all dtypes.
        case, against: the names of the cases; ``case`` is the name of the dtype.
        limit: the target of ``measure``, or None.
        measure: RATIO (of times, or bytes), OVER, RATE or SPEED_UP.
        operations: the elements or multiply-adds of one call of ``case``; needed for RATE.
    """

    work: str
    case: str
    against: str
    limit: float | None = None
    measure: str = RATIO
    operations: int = 0

    @property
    def target(self) -> str | None:
        """Target in words."""
        if self.limit is None:
            return None
        bound = "at least" if self.measure in (RATE, SPEED_UP) else "at most"
        return f"{bound} {self.limit:g}" + (f" {self.measure}" if self.measure != RATIO else "")

    def met(self, measured: float) -> bool | None:
        """Whether the figure, with the two decimals of the table, meets the target."""
        if self.limit is None:
            return None
        return (
            round(measured, 2) >= self.limit
            if self.measure in (RATE, SPEED_UP)
            else round(measured, 2) <= self.limit
        )


@dataclass
class Group:
    """Cases that are timed in turn.

    Attributes:
        codes: a line of Python for each case.
        namespaces: a function that makes the variables of each case's line, when the group is
            measured (so that the tensors of a suite need not exist all at once).
        rows: the comparisons of the cases.
        rounds, quick_rounds: how many times each case is timed. calls: the calls of a line in one
            timing.
        least_seconds: the least time of one timing, for cases of different sizes: then each line
            reuses the memory that it freed itself, and not that of a larger case.
        elements: the elements in a call of each case, where cases differ; then the times of one
            element are compared.
        unit: the unit of ``measure``. once: whether only the largest number of threads is measured.
    """

    codes: dict[str, str]
    namespaces: Callable[[], dict[str, dict]]
    rows: list[Row]
    rounds: int = 30
    quick_rounds: int = 3
    calls: int = 1
    least_seconds: float = 0.0
    elements: dict[str, int] = field(default_factory=dict)
    unit: str = "seconds"
    once: bool = False

    def measure(self, rounds: int, on_round: Callable[[], None]) -> dict[str, list[float]]:
        """Return the seconds of one call, for each case and round. Rounds to warm up come first:
        WARM_UP_ROUNDS, or fewer if they take long."""
        spaces = self.namespaces()
        # Hold the dtypes: one without references may make room for another.
        named = re.findall(r"\.to\(torch\.(\w+)\)", " ".join(self.codes.values()))
        held = [  # noqa: F841
            dtype
            for name in dict.fromkeys(named)
            if torch_dtypes.is_format_dtype(dtype := resolve_dtype(name))
        ]
        timers = {}
        for name, code in self.codes.items():
            # The line is compiled once, as the body of a function.
            timers[name] = timeit.Timer(
                code, globals={"torch": torch, "torch_dtypes": torch_dtypes, **spaces[name]}
            )

        calls = dict.fromkeys(timers, self.calls)

        def one_round() -> dict[str, float]:
            return {name: timer.timeit(calls[name]) / calls[name] for name, timer in timers.items()}

        # Warm-up is not for code and tables alone: the allocator needs a few frees before it keeps
        # memory instead of returning it to the system.
        start = time.perf_counter()
        for _ in range(WARM_UP_ROUNDS):
            taken = one_round()
            calls = {
                name: max(self.calls, math.ceil(self.least_seconds / seconds))
                for name, seconds in taken.items()
            }
            if time.perf_counter() - start > _WARM_UP_SECONDS:
                break
        on_round()
        seconds: dict[str, list[float]] = {name: [] for name in timers}
        for _ in range(rounds):
            for name, once in one_round().items():
                seconds[name].append(once)
            on_round()
        return seconds


def compare(row: Row, group: Group, figures: dict[str, list[float]], threads: int) -> dict:
    """Return the row as plain data, from the figures of its group, for bench.json and the tables of
    docs/reference/results.md."""
    sizes = group.elements.get(row.case, 1), group.elements.get(row.against, 1)
    ours, against = statistics.median(figures[row.case]), statistics.median(figures[row.against])
    ratio = (ours / sizes[0]) / (against / sizes[1])
    by_round = [
        (a / sizes[0]) / (b / sizes[1])
        for a, b in zip(figures[row.case], figures[row.against], strict=True)
    ]
    quartiles = (
        statistics.quantiles(by_round, n=4, method="inclusive")
        if len(by_round) > 1
        else by_round * 3
    )
    measured = ratio
    if row.measure == OVER:
        measured = (ours - against) * 1e6
    elif row.measure == RATE:
        measured = row.operations / ours / threads / 1e6
    elif row.measure == SPEED_UP:
        measured = 1 / ratio
    return {
        "work": row.work,
        "dtype": row.case,
        "against": row.against,
        "threads": threads,
        "unit": group.unit,
        "ours": ours,
        "theirs": against,
        "ratio": ratio,
        "quartiles": [quartiles[0], quartiles[2]],
        "rounds": len(by_round),
        "measure": row.measure,
        "measured": measured,
        "limit": row.limit,
        "target": row.target,
        "met": row.met(measured),
        "commands": {"ours": group.codes[row.case], "theirs": group.codes[row.against]},
        "elements": {"ours": sizes[0], "theirs": sizes[1]},
        "operations": row.operations,
    }


def count_rounds(group: Group, rounds: int | None, quick: bool) -> int:
    return rounds or (group.quick_rounds if quick else group.rounds)


def name_of(dtype: torch.dtype) -> str:
    """Return the dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def named_dtypes(
    dtypes: Sequence[torch.dtype] | None, names: Sequence[str]
) -> dict[str, torch.dtype]:
    """Return the dtypes by name; if None, those with the given names."""
    return {name_of(d): d for d in dtypes or map(torch_dtypes.dtype, names)}
