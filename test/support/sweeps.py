"""A network and its data for sweeps, in a module in a test's own folder, and a cell given by its
differences from a plain one."""

import functools
import sys

import pytest
from command_line import command

from torch_dtypes.workbench.sweeps.cells import Cell, Settings

# A network whose dtype determines how its cells behave.
MODULE = """
import os
import signal
import time

import torch
from torch import nn


class Odd(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x):
        dtype = self[0].weight.dtype
        if dtype is torch.q52:
            print("about to crash", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if dtype is torch.e5m5:
            raise RuntimeError("this network dislikes e5m5")
        if dtype is torch.e8m4:
            time.sleep(600)
        return super().forward(x)


def data():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (70,), generator=g)
    x = torch.randn(70, 4, generator=g) + 2 * labels[:, None]
    return (x[:40], labels[:40]), (x[40:], labels[40:])
"""
OWN = {"model": "odd_networks:Odd", "dataset": "odd_networks:data", "epochs": 2, "lr": 0.05}


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "odd_networks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("odd_networks", None)


run = functools.partial(command, "sweep")


def cell(**changes):
    plain = {
        "model": "lenet5",
        "dataset": "digits",
        "format": "q43",
        "rounding": "up",
        "accumulate": "machine",
        "recipe": "ptq",
        "seed": 0,
    }
    return Cell(**{**plain, "settings": Settings(), **changes})
