"""What the process of one cell does: trains or rounds, tests, and leaves its outcome in a
folder."""

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
from ..training.ranks import ALONE, Ranks
from ..training.records import Epoch, Run
from ..training.repeatable import repeatable
from .cells import Cell

# {"step": number, "loss": loss} after a step, {"epoch": a ``records.Epoch`` as data} after an epoch
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
    """A cell's outcome as plain data: ``state`` is ``done``, ``diverged`` or ``failed``; ``reason``
    says why it is not ``done``."""
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
    """Does a cell and writes its outcome into ``folder``; of what raises, the outcome says what.

    Args:
        folder: has the checkpoint of an earlier try, perhaps; a training that others begin with
            leaves ``trained.pt`` in it.
        base: the file of the training in float32, for a cell that begins after it; without one,
            such a cell is not begun.
        number: of those who work side by side, from 0: each takes the next of the machine's GPUs,
            in turn, where the cell is for one.
        told: hears of each step and epoch.
        should_stop: asked after each step.
        ranks: processes that do it together, of which the first one has the files; with several,
            what raises is raised. find_unused: as ``loop.Training`` takes it.

    Returns:
        The outcome, or None: it was stopped, and goes on there.
    """
    start = time.perf_counter()
    try:
        torch.set_num_threads(cell.settings.threads)
        # Asked for here alone: who has counted GPUs cannot fork others that use them.
        if cell.settings.device == "cuda" and ranks.size == 1:
            torch.cuda.set_device(number % max(1, torch.cuda.device_count()))
        observed = None if cell.settings.observe is None else Observed(cell.settings.observe)
        if cell.is_after_training:
            run = _after(cell, base, ranks)
        else:
            run = _trained(cell, folder, told, should_stop, ranks, find_unused, observed)
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
        # Whatever a user's network, data or operator raises is this cell's alone.
        if ranks.size > 1:
            raise
        text = str(error).strip()
        reason = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
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


def _trained(
    cell: Cell,
    folder: Path,
    told: Told,
    should_stop: Callable[[], bool] | None,
    ranks: Ranks,
    find_unused: bool,
    observed: Observed | None,
) -> Run:
    # Then its rules say how products add up.
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
            state = training.state_dict()  # of all ranks
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
        if not run.epochs:  # --epochs 0: the weights as they were given
            _test(training)
    if cell.is_base:
        save(folder / TRAINED)
    return run


def _read(path: Path | None, ranks: Ranks) -> dict | None:
    """The state of a training in a file that the first rank has, on all ranks; None: there is
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
        training.run.divergence = loop.explanation_of_test(
            training.model, training.data.test, training.dtype, config
        )


def _after(cell: Cell, base: Path | None, ranks: Ranks) -> Run:
    training = loop.Training(cell.base.config(), cell.data(), torch.float32, cell.seed, ranks=ranks)
    training.load_state_dict(_read(base, ranks))
    return loop.after_training(training, cell.number(), cell.recipe, cell.config(), ranks)
