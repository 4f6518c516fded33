"""Every trial with every seed, kept on the way so that an interrupted comparison goes on."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch

from ..workbench.folders import save_tensors
from . import report
from .loop import Training
from .ranks import ALONE
from .recipes import AFTER, Trial, after_training
from .records import Run

CHECKPOINT = "checkpoint.pt"
_BASELINE = Trial("all", torch.float32)


class Comparison:
    """Trainings one after the other, seed by seed.

    Attributes:
        runs: those that have come to their end (or diverged), in order.
        interrupted: the run that was stopped, or ``None``.

    Several ``ranks`` train every run together and have the same runs; files are rank 0's.
    """

    def __init__(self, config, data, trials, seeds, described, folder=None, observations=None, ranks=ALONE):
        self.observations, self.ranks = observations, ranks
        self.find_unused = False  # whether parameters may have no gradient
        self.config, self.data, self.trials, self.seeds = config, data, trials, seeds
        self.described, self.folder = described, None if folder is None else Path(folder)
        self.runs, self.interrupted = [], None
        self._current = None  # a Training's state_dict, of the run that was under way
        self._trained = None  # a float32 Training that quantisation after training begins with

    # What there is to do

    def _order(self, seed):
        """The trials of a seed, before them a training in float32 that only rounding after training needs."""
        rounds = [trial for trial in self.trials if trial.recipe in AFTER and (*self._key(trial), seed) not in self._done]
        trained = self._trained is not None and self._trained.run.seed == seed
        if rounds and not trained and (_BASELINE not in self.trials or (*self._key(_BASELINE), seed) in self._done):
            yield _BASELINE, False
        for trial in self.trials:
            if (*self._key(trial), seed) not in self._done:
                yield trial, True

    @staticmethod
    def _key(trial):
        return trial.name, trial.recipe

    @property
    def _done(self):
        return {run.key for run in self.runs}

    def go(self, display, should_stop, on_run=lambda run: None):
        """Trains what is not done yet.

        Args:
            display: called with a trial, its seed, the steps done and all steps; gives a context manager with ``step`` and ``epoch``.
            should_stop: asked after each step.
            on_run: called after each run.

        Raises:
            OSError: a file cannot be written.
        """
        for seed in self.seeds:
            for trial, is_shown in list(self._order(seed)):
                run = self._one(trial, seed, display, should_stop)
                if run.interrupted:
                    self.interrupted = run
                    return
                self._current = None
                if is_shown:
                    self.runs.append(run)
                    on_run(run)
                self._write()
        self._forget()

    def _one(self, trial, seed, display, should_stop):
        if trial.recipe in AFTER:
            run = after_training(self._trained, trial.number, trial.recipe, ranks=self.ranks)
            run.said = trial.said
            return run
        training = Training(self.config, self.data, trial.number, seed, trial.recipe, self.ranks, self.find_unused)
        training.run.said = trial.said
        if self._current is not None and tuple(self._current["key"]) == training.run.key:
            training.load_state_dict(self._current)
        if self.observations is not None:
            training.observed = functools.partial(self.observations.epoch, training, trial.recipe)
        with display(trial, seed, training.steps_done) as shown:

            def epoch(result):
                shown.epoch(result)
                self._save(training)

            run = training.go(shown.step, epoch, should_stop)
        if run.interrupted:
            self._save(training)
        if trial == _BASELINE and any(t.recipe in AFTER for t in self.trials):
            self._trained = training
        return run

    # Files

    def _write(self):
        if self.folder and self.ranks.is_first:
            report.write_results(self.folder, self.described, self.runs)

    def _save(self, training):
        if not self.folder:
            return
        self._write()
        observed = None if self.observations is None else self.observations.state(training.run)
        state = {"current": training.state_dict(), "trained": None if self._trained is None else self._trained.state_dict()}  # of all ranks
        if not self.ranks.is_first:
            return
        state["observed"] = observed
        save_tensors(state, self.folder / CHECKPOINT)

    def _forget(self):
        if self.folder and self.ranks.is_first:
            self._write()
            (self.folder / CHECKPOINT).unlink(missing_ok=True)

    def resume(self):
        """Takes over what an interrupted comparison with the same options left in the folder, on any number of ranks.

        Raises:
            ValueError: there is none, or it was another comparison.
            OSError: a file cannot be read.
        """
        found, error = None, None
        if self.ranks.is_first:
            try:
                found = self._read()
            except (OSError, ValueError) as caught:
                error = caught
        found, error = self.ranks.from_first((found, error))
        if error is not None:
            raise error
        self._take_over(*found)

    def _read(self):
        """What the files say, as plain data and tensors: the runs, and the checkpoint or ``None``."""
        path = self.folder / "results.json"
        if not path.exists():
            raise ValueError(f"expected the results of an interrupted comparison in {self.folder}, but found no results.json; leave --resume out")
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            runs = [Run.from_json(run) for run in results["runs"]]
            before = results["config"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"expected results of torch-dtypes train, but could not read {path}: {error!r}") from error
        now = json.loads(json.dumps(self.described))
        free = {"ranks", "threads"} if now.get("ranks") != before.get("ranks") else ()
        if changed := [key for key in {**now, **before} if now.get(key) != before.get(key) and key not in free]:
            told = ", ".join(f"{key} {now.get(key)!r} and not {before.get(key)!r}" for key in changed)
            raise ValueError(f"expected the options of the interrupted comparison, but got {told}; give those, or another --out")
        if self.observations is not None:
            self.observations.resume(runs)
        checkpoint = self.folder / CHECKPOINT
        if not checkpoint.exists():
            return runs, None
        try:
            state = torch.load(checkpoint, weights_only=True)
            return runs, (state["current"], state["trained"], state.get("observed"))
        except Exception as error:  # a damaged pickle can raise nearly anything
            raise ValueError(f"expected a checkpoint of torch-dtypes train, but could not read {checkpoint}: {error}") from error

    def _take_over(self, runs, checkpoint):
        self.runs = runs
        if checkpoint is None:
            return
        self._current, trained, observed = checkpoint
        if self.observations is not None and observed is not None:
            self.observations.load_state(observed)
        if trained is not None:
            self._trained = Training(self.config, self.data, torch.float32, trained["key"][2], ranks=self.ranks, find_unused=self.find_unused)
            self._trained.load_state_dict(trained)
