"""Run the sweep of a datasheet, in a folder that keeps what is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..report.folders import lock_folder
from ..sweeps import grid
from ..sweeps.display import Watcher
from ..sweeps.store import Store
from ..sweeps.sweeping import go_through
from .parts import accumulator, find_trained
from .plan import SUMS_TRAINED, Plan
from .studies import Studies


@dataclass
class Measured:
    """Results of a plan.

    Attributes:
        outcomes: outcomes of cells by key. guesses: the accuracy of a guess in percent by data set.
        studies: results of studies by part and format.
        failures: why parts could not be measured, by name.
    """

    outcomes: dict[str, dict] = field(default_factory=dict)
    guesses: dict[str, float] = field(default_factory=dict)
    studies: dict[str, dict[str, dict]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def measure(
    plan: Plan,
    store: Store,
    watcher: Watcher | None = None,
    download: bool = False,
    shown: Callable[[str], None] = lambda text: None,
    **limits,
) -> Measured:
    """Run the cells without an outcome in the store. A network or data that cannot be used fail the
    parts that need them.

    Args:
        shown: a function that receives the name of each study before it runs.
        limits: ``jobs``, ``time_limit``, ``scheduler``, ``retry``, as for ``go_through``.

    Raises:
        BlockingIOError: another command works in the folder. OSError: the folder cannot be written.
    """
    found = Measured()
    cells = plan.cells()
    if not cells:
        return found
    try:
        loaded = grid.check(cells, download)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        # A RuntimeError or an ImportError comes from torchvision.
        found.failures = dict.fromkeys(plan.measured_parts, str(error))
        return found
    found.guesses = {dataset: data.guess.accuracy for (_, dataset), data in loaded.items()}
    store.folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(store.folder):
        found.outcomes = go_through(store, cells, watcher=watcher, **limits)
        if "accumulator" in plan.parts:
            sums = find_trained(plan, accumulator(plan, found.outcomes).rows)
            trained = [c for key in sums for c in plan.sums_cells(*key, SUMS_TRAINED)]
            if trained:
                found.outcomes |= go_through(store, trained, watcher=watcher, **limits)
        retry = bool(limits.get("retry"))
        found.studies = Studies(plan, store, found.outcomes, shown, retry).go()
    return found
