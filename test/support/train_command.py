"""The command torch-dtypes train and its comparisons, small: for tests of recipes."""

import dataclasses

from torch_dtypes.training.data import load_dataset

QUICK = "train --epochs 2 --train-samples 64 --test-samples 40 --threads 1".split()


def load_few_digits():
    return load_dataset("digits", train_samples=70, test_samples=40)


def figures(run):
    """All that a run measured except time."""
    return [dataclasses.replace(epoch, seconds=0.0) for epoch in run.epochs]


class Quiet:
    """A display that shows nothing."""

    def __init__(self, *_):
        self.steps = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def step(self, loss):
        self.steps.append(loss)

    epoch = step
