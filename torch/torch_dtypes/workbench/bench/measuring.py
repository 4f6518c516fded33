"""Timing cases in turn, and what a comparison of two of them says."""

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

WARM_UP_ROUNDS = 5
_WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Sizes:
    """How much work the cases do. Networks are (model, images in a step); for memory the first of a
    model also says what it holds."""

    elements: int = 10_000_000
    cast_seconds: float = 0.03
    function_elements: int = 1_000_000
    matmul: int = 1024
    rounded_matmul: int = 512
    networks: tuple[tuple[str, int], ...] = (
        ("lenet5", 32),
        ("lenet5", 256),
        ("alexnet", 32),
        ("resnet18", 32),
    )
    parameters: tuple[int, ...] = (4_000_000, 40_000_000)
    memory_networks: tuple[tuple[str, int], ...] = (("lenet5", 256), ("resnet18", 32))
    calls: int = 1000
    peer_elements: int = 1_000_000
    peer_matmul: int = 256
    peer_seconds: float = 0.1
    scalars: int = 10_000
    peer_batch: int = 32
    scaling: tuple[int, ...] = tuple(10**decade for decade in range(2, 9))
    scaling_matmul: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048)


class NotMeasuredError(Exception):
    """A group that cannot be measured here; the message, one line, says why."""


@dataclass(frozen=True)
class Row:
    """A comparison: the case ``ours`` over the case ``against``, which are keys of a group's
    ``codes``.

    Attributes:
        work: what is done, the same for all dtypes.
        ours, against: names of cases; ``ours`` is the dtype's name.
        limit: the target, in terms of ``measure``, or None.
        measure: RATIO (of times, or bytes), OVER, RATE or SPEED_UP.
        operations: of one call of ``ours``: elements, or multiply-adds; needed for RATE.
    """

    work: str
    ours: str
    against: str
    limit: float | None = None
    measure: str = RATIO
    operations: int = 0

    @property
    def target(self) -> str | None:
        """The target in words."""
        if self.limit is None:
            return None
        bound = "at least" if self.measure in (RATE, SPEED_UP) else "at most"
        return f"{bound} {self.limit:g}" + (f" {self.measure}" if self.measure != RATIO else "")

    def met(self, measured: float) -> bool | None:
        """Whether the figure as a table shows it, with two digits after the point, is on the right
        side of the target."""
        if self.limit is None:
            return None
        return (
            round(measured, 2) >= self.limit
            if self.measure in (RATE, SPEED_UP)
            else round(measured, 2) <= self.limit
        )


@dataclass
class Group:
    """Cases that take turns.

    Attributes:
        codes: a line of Python for each case.
        namespaces: makes what each case's line refers to, when its turn has come (tensors of a
            suite need not all live at once).
        rows: the comparisons between them.
        rounds, quick_rounds: how often each case is timed. calls: of a line in one timing.
        least_seconds: of one timing, where cases differ much: so each line finds the memory that it
            freed itself, and not a large case's.
        elements: in a case's call, where cases differ in that: the time of one element is compared.
        unit: of what ``measure`` gives. once: measured with the largest number of threads only.
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
        """Seconds of one call of each case in each round, after rounds to warm up: WARM_UP_ROUNDS,
        or fewer once they took long enough."""
        spaces = self.namespaces()
        # A dtype that nothing holds may make room for another one.
        named = re.findall(r"\.to\(torch\.(\w+)\)", " ".join(self.codes.values()))
        held = [  # noqa: F841
            dtype
            for name in dict.fromkeys(named)
            if torch_dtypes.is_format_dtype(dtype := resolve_dtype(name))
        ]
        timers = {}
        for name, code in self.codes.items():
            # The line is compiled once, as a function's body.
            timers[name] = timeit.Timer(
                code, globals={"torch": torch, "torch_dtypes": torch_dtypes, **spaces[name]}
            )

        calls = dict.fromkeys(timers, self.calls)

        def one_round() -> dict[str, float]:
            return {name: timer.timeit(calls[name]) / calls[name] for name, timer in timers.items()}

        # Not code and tables alone: the allocator needs a few frees before it keeps memory instead
        # of returning it to the system.
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
    """The row as plain data, from the figures of its group. The tables of
    docs/reference/results.md and bench.json are made of these."""
    sizes = group.elements.get(row.ours, 1), group.elements.get(row.against, 1)
    ours, against = statistics.median(figures[row.ours]), statistics.median(figures[row.against])
    ratio = (ours / sizes[0]) / (against / sizes[1])
    by_round = [
        (a / sizes[0]) / (b / sizes[1])
        for a, b in zip(figures[row.ours], figures[row.against], strict=True)
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
        "dtype": row.ours,
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
        "commands": {"ours": group.codes[row.ours], "theirs": group.codes[row.against]},
        "elements": {"ours": sizes[0], "theirs": sizes[1]},
        "operations": row.operations,
    }


def rounds_of(group: Group, rounds: int | None, quick: bool) -> int:
    return rounds or (group.quick_rounds if quick else group.rounds)


def name_of(dtype: torch.dtype) -> str:
    """The dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def named_dtypes(
    dtypes: Sequence[torch.dtype] | None, names: Sequence[str]
) -> dict[str, torch.dtype]:
    """The dtypes by name; None: those of the names."""
    return {name_of(d): d for d in dtypes or map(torch_dtypes.dtype, names)}
