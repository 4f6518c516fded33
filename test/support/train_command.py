"""Small runs of the command torch-dtypes train and its cells, for tests of recipes."""

import dataclasses

import torch

from torch_dtypes import target
from torch_dtypes.workbench.sweeps.cells import Cell, Settings
from torch_dtypes.workbench.sweeps.display import Watcher
from torch_dtypes.workbench.training.data import load_dataset

QUICK = "train --epochs 2 --train-samples 64 --test-samples 40 --threads 1".split()


def load_few_digits():
    return load_dataset("digits", train_samples=70, test_samples=40)


def figures(run):
    """Return all measurements of a run except time."""
    return [dataclasses.replace(epoch, seconds=0.0) for epoch in run.epochs]


def few_cell(format, recipe="all", seed=0, **settings):
    """Return a training with these data as a cell."""
    common = {
        "train_samples": 70,
        "test_samples": 40,
        "device": torch.ones(()).device.type,
        **settings,
    }
    return Cell(
        "lenet5",
        "digits",
        format,
        target(format).rounding,
        "machine",
        recipe,
        seed,
        Settings(**common),
    )


class Told(Watcher):
    """A watcher that records the events of cells."""

    def __init__(self):
        self.messages = []

    def told(self, cell, message):
        self.messages.append((cell, message))

    def of(self, kind):
        return [(cell, message) for cell, message in self.messages if kind in message]
