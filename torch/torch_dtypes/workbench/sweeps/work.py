"""Run a cell within its process: train or round, test, and leave the outcome in a folder."""

from __future__ import annotations

import contextlib
import functools
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from ...policies import accumulation
from ..report.folders import save_tensors, write_json
from ..report.provenance import versions
from ..training import loop, recipes
from ..training.observing import Observed
from ..training.ranks import ALONE, Ranks, first_line
from ..training.records import Epoch, Run
from ..training.repeatable import repeatable
from .cells import Cell

# Receives {"step": number, "loss": loss} after a step, {"epoch": a ``records.Epoch`` as data} after
# an epoch.
Told = Callable[[dict], None]
OUTCOME, TRAINED, CHECKPOINT, LOG = "outcome.json", "trained.pt", "checkpoint.pt", "log.txt"


def outcome(
    cell: Cell,
    state: str,
    reason: str | None = None,
    lines: list[str] | None = None,
    run: Run | None = None,
    seconds: float = 0.0,
):
    """Build a cell's outcome as plain data. ``state`` is ``done``, ``diverged`` or ``failed``;
    ``reason`` tells why it is not ``done``."""
    last = run.as_json()["epochs"][-1] if run and run.epochs else {}
    return {
        "key": cell.key,
        "cell": cell.definition(),
        "state": state,
        "reason": reason,
        "lines": lines or [],
        "accuracy": last.get("accuracy") if state == "done" else None,
        "loss": last.get("test_loss") if state == "done" else None,
        "epochs": run.as_json()["epochs"] if run else [],
        "seconds": seconds,
        "versions": versions(),
    }


def work(
    cell: Cell,
    folder: Path,
    base: Path | None,
    number: int = 0,
    *,
    told: Told = lambda message: None,
    should_stop: Callable[[], bool] | None = None,
    ranks: Ranks = ALONE,
    find_unused: bool = False,
) -> dict | None:
    """Run a cell and write its outcome into ``folder``. An error becomes an outcome too.

    Args:
        folder: a folder, perhaps with the checkpoint of an earlier try; a training in float32
            leaves ``trained.pt`` there.
        base: the file of the training in float32, for a cell that starts from it, which then must
            exist.
        number: the index of the parallel server, from 0: cells on a GPU take the machine's GPUs in
            turn.
        told: a function that receives each step and epoch.
        should_stop: a function that is asked after each step.
        ranks: the processes that run the cell together, of which the first has the files; with
            several, errors are raised. find_unused: as in ``loop.Training``.

    Returns:
        The outcome, or None: the cell was stopped, and can continue from its folder.
    """
    start = time.perf_counter()
    try:
        torch.set_num_threads(cell.settings.threads)
        # Only here: a process that has counted GPUs cannot fork others that use them.
        if cell.settings.device == "cuda" and ranks.size == 1:
            torch.cuda.set_device(number % max(1, torch.cuda.device_count()))
        observed = None if cell.settings.observe is None else Observed(cell.settings.observe)
        if cell.is_after_training:
            run = _round_after_training(cell, base, ranks)
        else:
            run = _train(cell, folder, told, should_stop, ranks, find_unused, observed)
        if run.interrupted:
            return None
        state = "done" if run.diverged_at is None else "diverged"
        reason = (
            None
            if state == "done"
            else run.divergence or f"the loss was not finite in epoch {run.diverged_at}"
        )
        result = outcome(cell, state, reason, run=run, seconds=time.perf_counter() - start)
        if observed is not None and observed.state() is not None:
            result["observed"] = observed.state()
    except Exception as error:
        # An error of a user's network, data or operator fails this cell alone.
        if ranks.size > 1:
            raise
        kind, line = type(error).__name__, first_line(error)
        reason = line if line.startswith(kind) else f"{kind}: {line}"
        result = outcome(
            cell,
            "failed",
            reason,
            traceback.format_exc().splitlines()[-6:],
            seconds=time.perf_counter() - start,
        )
    if ranks.is_first:
        write_json(folder / OUTCOME, result)
    return result


def _train(
    cell: Cell,
    folder: Path,
    told: Told,
    should_stop: Callable[[], bool] | None,
    ranks: Ranks,
    find_unused: bool,
    observed: Observed | None,
) -> Run:
    # A recipe with its own rules sets how products add up there.
    has_own_policy = cell.recipe in recipes.QUANTIZING and not cell.has_rules
    with (
        contextlib.nullcontext()
        if has_own_policy or cell.accumulate == "machine"
        else accumulation.accumulation_block(cell.accumulate)
    ):
        training = loop.Training(
            cell.config(), cell.data(), cell.number(), cell.seed, cell.recipe, ranks, find_unused
        )
        checkpoint = folder / CHECKPOINT
        if (state := _read(checkpoint, ranks)) is not None:
            training.load_state_dict(state)
        if observed is not None:
            observed.load_state((state or {}).get("observed"))
            training.observed = functools.partial(observed.epoch, training, cell.recipe)

        def save(path: Path) -> None:
            state = training.state_dict()  # on all ranks
            if ranks.is_first:
                save_tensors(
                    state | {"observed": None if observed is None else observed.state()}, path
                )

        def on_epoch(epoch: Epoch) -> None:
            save(checkpoint)
            told({"epoch": asdict(epoch)})

        run = training.go(
            lambda loss: told({"step": training.steps_done, "loss": loss}), on_epoch, should_stop
        )
        if run.interrupted:
            save(checkpoint)
            return run
        if not run.epochs:  # --epochs 0: test the given weights
            _test(training)
    if cell.is_base:
        save(folder / TRAINED)
    return run


def _read(path: Path | None, ranks: Ranks) -> dict | None:
    """Read the state of a training from a file of the first rank, on all ranks; None if there is
    none."""
    return ranks.from_first(
        torch.load(path, weights_only=True) if ranks.is_first and path.exists() else None
    )


def _test(training: loop.Training) -> None:
    config = training.config
    with repeatable(config.device):
        loss, accuracy = loop.evaluate(
            training.model, training.data.test, training.dtype, config.device
        )
    diverged = not loss < float("inf")
    training.run.epochs.append(Epoch(0, float("nan"), loss, accuracy, 0.0, diverged))
    if diverged:
        training.run.divergence = loop.explain_test(
            training.model, training.data.test, training.dtype, config
        )


def _round_after_training(cell: Cell, base: Path | None, ranks: Ranks) -> Run:
    training = loop.Training(cell.base.config(), cell.data(), torch.float32, cell.seed, ranks=ranks)
    training.load_state_dict(_read(base, ranks))
    return loop.after_training(training, cell.number(), cell.recipe, cell.config(), ranks)
