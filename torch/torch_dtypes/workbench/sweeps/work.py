"""What the process of one cell does: trains or rounds, tests, and leaves its outcome in a folder."""

from __future__ import annotations

import contextlib
import time
import traceback
from pathlib import Path

import torch

from ... import accumulation
from ..._repeatable import repeatable
from ...training import loop, recipes
from ...training.records import Epoch, Run
from ..folders import save_tensors, write_json
from ..provenance import versions
from .cells import Cell

OUTCOME, TRAINED, CHECKPOINT, LOG = "outcome.json", "trained.pt", "checkpoint.pt", "log.txt"


def outcome(cell: Cell, state: str, reason: str | None = None, lines: list[str] | None = None, run: Run | None = None, seconds: float = 0.0):
    """A cell's outcome as plain data: ``state`` is ``done``, ``diverged`` or ``failed``; ``reason`` says why it is not ``done``."""
    last = run.as_json()["epochs"][-1] if run and run.epochs else {}
    return {
        "key": cell.key, "cell": cell.definition(), "state": state, "reason": reason, "lines": lines or [],
        "accuracy": last.get("accuracy") if state == "done" else None, "loss": last.get("test_loss") if state == "done" else None,
        "epochs": run.as_json()["epochs"] if run else [], "seconds": seconds, "versions": versions(),
    }  # fmt: skip


def work(cell: Cell, folder: Path, base: Path | None, number: int = 0) -> None:
    """Does a cell and writes its outcome into ``folder``; of what raises, the outcome says what.

    Args:
        folder: has the checkpoint of an earlier try, perhaps; a training that others begin with leaves ``trained.pt`` in it.
        base: the file of the training in float32, for a cell that begins after it; without one, such a cell is not begun.
        number: of those who work side by side, from 0: each takes the next of the machine's GPUs, in turn, where the cell is for one.
    """
    start = time.perf_counter()
    try:
        torch.set_num_threads(cell.settings.threads)
        if cell.settings.device == "cuda":  # asked for here alone: a process that has counted GPUs cannot fork others that use them
            torch.cuda.set_device(number % max(1, torch.cuda.device_count()))
        run = _after(cell, base) if cell.is_after_training else _trained(cell, folder)
        state = "done" if run.diverged_at is None else "diverged"
        reason = None if state == "done" else run.divergence or f"the loss was not finite in epoch {run.diverged_at}"
        result = outcome(cell, state, reason, run=run, seconds=time.perf_counter() - start)
    except Exception as error:  # whatever a user's network, data or operator raises is this cell's alone
        text = str(error).strip()
        reason = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
        result = outcome(cell, "failed", reason, traceback.format_exc().splitlines()[-6:], seconds=time.perf_counter() - start)
    write_json(folder / OUTCOME, result)


def _trained(cell: Cell, folder: Path) -> Run:
    data, config = cell.data(), cell.config()
    quantises = cell.recipe in recipes.QUANTIZING  # then their rules say how products add up
    with contextlib.nullcontext() if quantises or cell.accumulate == "machine" else accumulation.accumulation_block(cell.accumulate):
        training = loop.Training(config, data, cell.number(), cell.seed, cell.recipe)
        checkpoint = folder / CHECKPOINT
        if checkpoint.exists():
            training.load_state_dict(torch.load(checkpoint, weights_only=True))
        run = training.go(on_epoch=lambda epoch: save_tensors(training.state_dict(), checkpoint))
        if not run.epochs:  # --epochs 0: the weights as they were given
            _test(training)
    if cell.is_base:
        save_tensors(training.state_dict(), folder / TRAINED)
    return run


def _test(training: loop.Training) -> None:
    config = training.config
    with repeatable(config.device):
        loss, accuracy = loop.evaluate(training.model, training.data.test, training.dtype, config.device, config.image_size)
    diverged = not loss < float("inf")
    training.run.epochs.append(Epoch(0, float("nan"), loss, accuracy, 0.0, diverged))
    if diverged:
        training.run.divergence = loop.explanation_of_test(training.model, training.data.test, training.dtype, config)


def _after(cell: Cell, base: Path) -> Run:
    training = loop.Training(cell.base.config(), cell.data(), torch.float32, cell.seed)
    training.load_state_dict(torch.load(base, weights_only=True))
    return recipes.after_training(training, cell.number(), cell.recipe, cell.config())
