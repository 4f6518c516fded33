"""Engines that run cells: in parallel by joblib, over machines by Dask, or one after the other on
all ranks of a launcher."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..training.ranks import Ranks
from .cells import Cell
from .processes import Server
from .store import Store
from .work import TRAINED, outcome, work

Done = tuple[Cell, dict]

_local = threading.local()


class Joblib:
    """Runs cells in parallel on this machine: a thread of joblib waits for the process of each."""

    def __init__(
        self,
        store: Store,
        jobs: int,
        limit: int | None,
        told: Callable[[Cell, dict], None] = lambda cell, message: None,
    ):
        if importlib.util.find_spec("joblib") is None:
            raise ModuleNotFoundError(
                "a sweep needs joblib, which is not installed: pip install 'torch-dtypes[train]'"
            )
        self.store, self.jobs, self.limit, self._told = store, jobs, limit, told
        self._servers: list[Server] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(self, cells: Iterable[Cell]) -> Iterator[Done]:
        """Run cells. Yield each with its outcome, which is stored, in the order in which they
        end."""
        from joblib import Parallel, delayed

        yield from Parallel(n_jobs=self.jobs, backend="threading", return_as="generator_unordered")(
            delayed(self._one)(cell) for cell in cells
        )

    def _one(self, cell: Cell) -> Done:
        if self._closed:  # joblib continues with cells that its threads already have
            return cell, outcome(cell, "failed", "interrupted")
        if (why := self.store.why_untrained(cell)) is not None:
            return _store_failure(self.store, cell, why)
        folder = self.store.make_running_folder(cell)
        base, told = (
            self.store.trained_path(cell) if cell.is_after_training else None,
            functools.partial(self._told, cell),
        )
        result = self._server().run(cell, folder, base, self.limit, told)
        if not self._closed:  # an interrupted cell has no outcome
            trained = folder / TRAINED
            self.store.write(cell, result, trained if trained.exists() else None)
        return cell, result

    def _server(self) -> Server:
        entry = getattr(_local, "server", None)
        if entry is None or entry[0] is not self:
            with self._lock:
                _local.server = entry = (self, Server(len(self._servers)))
                self._servers.append(entry[1])
        return entry[1]

    def close(self) -> None:
        """End the running cells."""
        self._closed = True
        with self._lock:
            for server in self._servers:
                server.close()


def run_remotely(
    definition: dict, base: bytes | None, limit: int | None
) -> tuple[dict, bytes | None]:
    """Run a cell, in its own process, on the machine that calls this. Return its outcome, and the
    weights that other cells start from."""
    cell = Cell.of(definition)
    if getattr(_local, "worker", None) is None:
        _local.worker = Server()
    with tempfile.TemporaryDirectory(prefix="torch-dtypes-sweep-") as folder:
        path = None
        if base is not None:
            path = Path(folder) / "base.pt"
            path.write_bytes(base)
        result = _local.worker.run(cell, Path(folder), path, limit)
        trained = Path(folder) / TRAINED
        return result, trained.read_bytes() if trained.exists() else None


class Dask:
    """Runs cells over the machines of a Dask cluster. Each machine needs this package, the user's
    modules and the data at the same places. Weights and outcomes are sent, so no folder need be
    shared.
    """

    def __init__(self, store: Store, scheduler: str, limit: int | None):
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "--engine dask needs distributed, which is not installed: pip install "
                "'torch-dtypes[dask]'"
            ) from error
        self.store, self.limit = store, limit
        try:
            self._client = Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"expected a Dask scheduler at {scheduler}, but could not reach it: {error}"
            ) from error

    def run(self, cells: Iterable[Cell]) -> Iterator[Done]:
        """Run cells as ``Joblib.run``."""
        from distributed import as_completed

        bases: dict[Path, object] = {}
        futures = {}
        for cell in cells:
            if (why := self.store.why_untrained(cell)) is not None:
                yield _store_failure(self.store, cell, why)
                continue
            path = self.store.trained_path(cell)
            if cell.is_after_training and path not in bases:
                bases[path] = self._client.scatter(path.read_bytes())
            base = bases[path] if cell.is_after_training else None
            futures[
                self._client.submit(run_remotely, cell.definition(), base, self.limit, pure=False)
            ] = cell
        for future in as_completed(list(futures), loop=self._client.loop):
            cell, trained = futures.pop(future), None
            error = future.exception()
            if error is None:
                result, trained = future.result()
            else:  # the worker was lost
                result = outcome(
                    cell, "failed", f"lost by Dask: {type(error).__name__}: {error}".splitlines()[0]
                )
            self.store.write(cell, result, trained)
            future.release()
            yield cell, result

    def close(self) -> None:
        """Leave the cluster, which then forgets cells that have not begun."""
        self._client.close()


class Together:
    """Runs cells one after the other, each on all ranks of a launcher such as ``torchrun``. The
    first rank has the store."""

    def __init__(
        self,
        store: Store,
        ranks: Ranks,
        told: Callable[[Cell, dict], None],
        find_unused: bool = False,
    ):
        self.store, self._ranks, self._told, self._find_unused = store, ranks, told, find_unused

    def run(self, cells: Iterable[Cell]) -> Iterator[Done]:
        """Run cells as ``Joblib.run``. Raises: KeyboardInterrupt, after the step in which it was
        pressed on one of them."""
        ranks, store = self._ranks, self.store
        with _Pressed() as stop:
            for cell in cells:
                folder = store.make_running_folder(cell) if ranks.is_first else store.folder
                options = {
                    "told": functools.partial(self._told, cell),
                    "should_stop": stop,
                    "ranks": ranks,
                    "find_unused": self._find_unused,
                }
                result = work(cell, folder, store.trained_path(cell), **options)
                if result is None:
                    raise KeyboardInterrupt
                if ranks.is_first:
                    store.write(
                        cell, result, folder / TRAINED if (folder / TRAINED).exists() else None
                    )
                yield cell, result

    def close(self) -> None:
        """Do nothing: no process is left."""


class _Pressed:
    """Whether Ctrl-C was pressed in a block; a second press interrupts at once."""

    def __init__(self) -> None:
        self._pressed = False

    def __enter__(self) -> _Pressed:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, *_) -> None:
        self._pressed = True
        signal.signal(signal.SIGINT, self._before)

    def __call__(self) -> bool:
        return self._pressed


def _store_failure(store: Store, cell: Cell, reason: str) -> Done:
    """Store the failure of a cell that cannot begin, and return both."""
    result = outcome(cell, "failed", reason)
    store.write(cell, result)
    return cell, result


def run_all(
    engine: Joblib | Dask | Together,
    cells: Iterable[Cell],
    on_cell: Callable[[Cell, dict], None],
    on_interrupt: Callable[[], None],
) -> None:
    """Run the cells: first their trainings in float32, then the cells that start from these; where
    one cell runs at a time, seed by seed. At Ctrl-C it calls ``on_interrupt`` before it ends
    running cells.
    """
    cells = list(cells)
    seeds = dict.fromkeys(cell.seed for cell in cells)
    alone = isinstance(engine, Together) or (isinstance(engine, Joblib) and engine.jobs == 1)
    rounds = [{seed} for seed in seeds] if alone else [set(seeds)]
    with contextlib.closing(engine), _announce_interrupt(on_interrupt):
        for of_round in (
            [c for c in cells if c.seed in some and c.is_base is base]
            for some in rounds
            for base in (True, False)
        ):
            for cell, result in engine.run(of_round):
                on_cell(cell, result)


@contextlib.contextmanager
def _announce_interrupt(on_interrupt: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        on_interrupt()
        raise
