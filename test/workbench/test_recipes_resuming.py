"""torch-dtypes train by recipes, interrupted: the same command continues, and ends with the bits of
an uninterrupted run."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys

import pytest
import torch
from command_line import command
from representatives import thin_out
from train_command import QUICK, Told, few_cell, figures

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.workbench.sweeps.store import Store
from torch_dtypes.workbench.sweeps.sweeping import go
from torch_dtypes.workbench.sweeps.work import work
from torch_dtypes.workbench.training.loop import Config, Training

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(training):
    return [p.detach().double() for p in training.model.parameters()]


RUNS = {
    "all": (torch.e5m5, "all", Config(epochs=3, schedule="cosine")),
    "stochastic": (None, "all", Config(epochs=3, optimizer="sgd", momentum=0.9)),
    "master": (torch.q52, "master", Config(epochs=3, loss_scale="dynamic", schedule="linear")),
    "accumulators": (
        torch.q52,
        "master",
        Config(epochs=3, optimizer="sgd", momentum=0.9, master="e6m9", state="e6m9"),
    ),
    "none": (torch.posit8es2, "master", Config(epochs=3, optimizer="sgd", master="none")),
}


@pytest.mark.parametrize("stop", [1, 3, 5])
@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_goes_on_bit_for_bit(few_digits, name, stop, tmp_path):
    """Stop after the first step, at an epoch's end, or within an epoch, and continue from a
    file."""
    number, recipe, config = RUNS[name]
    number = number or torch_dtypes.with_rounding(torch.posit8es2, "stochastic")
    whole = Training(config, few_digits, number, 4, recipe)
    expected = whole.go()
    assert not expected.interrupted and len(expected.epochs) == 3

    count = iter(range(1, 100))
    before = torch.get_rng_state()
    first = Training(config, few_digits, number, 4, recipe)
    stopped = first.go(should_stop=lambda: next(count) == stop)
    assert (
        stopped.interrupted
        and first.steps_done == stop
        and torch.equal(torch.get_rng_state(), before)
    )
    torch.save(first.state_dict(), tmp_path / "state.pt")
    again = Training(config, few_digits, number, 4, recipe)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.manual_seed(stop)  # random numbers drawn in between change nothing
    assert figures(again.go()) == figures(expected)
    assert all(map(torch.equal, weights(again), weights(whole)))
    with pytest.raises(ValueError, match="expected the state of"):
        Training(config, few_digits, number, 5, recipe).load_state_dict(first.state_dict())


@pytest.mark.skipif(
    not torch.cuda.is_available() or not _C.has_gpu_kernels(),
    reason="needs a GPU and kernels for it",
)
@pytest.mark.parametrize(
    "way", [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")], ids=" to ".join
)
def test_a_run_that_goes_on_elsewhere_depends_on_its_file_alone(few_digits, way, tmp_path):
    """The CPU's generator has no state of a GPU's."""
    number, found = torch_dtypes.with_rounding(torch.posit8es2, "stochastic"), []
    before, after = (
        Config(epochs=2, optimizer="sgd", momentum=0.9, device=device) for device in way
    )
    count = iter(range(1, 100))
    first = Training(before, few_digits, number, 4, "all")
    assert first.go(should_stop=lambda: next(count) == 2).interrupted
    torch.save(first.state_dict(), tmp_path / "state.pt")
    for seed in range(2):
        again = Training(after, few_digits, number, 4, "all")
        again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        torch.manual_seed(seed)
        found.append([figures(again.go()), *(p.tolist() for p in weights(again))])
    assert found[0] == found[1]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "stop"), thin_out(itertools.product(["q52_stochastic", "float32"], [5, 1, 3]), 6)
)
def test_a_cell_that_was_stopped_goes_on(name, stop, tmp_path):
    """Stop after the first step, at an epoch's end, or within an epoch, and continue in another
    process."""
    cell = few_cell(name, "all" if name == "float32" else "master", epochs=2)
    whole, store, count = (
        go([cell], tmp_path / "whole"),
        Store(tmp_path / "cut"),
        iter(range(1, 100)),
    )
    store.open()
    folder = store.make_running_folder(cell)
    assert work(cell, folder, None, should_stop=lambda: next(count) == stop) is None
    assert [path.name for path in folder.iterdir()] == ["checkpoint.pt"]
    told = Told()
    cut = go([cell], tmp_path / "cut", watcher=told)
    epochs = [
        [{**epoch, "seconds": 0} for epoch in outcomes[cell.key]["epochs"]]
        for outcomes in (whole, cut)
    ]
    assert epochs[0] == epochs[1] and len(epochs[0]) == 2
    assert not list((tmp_path / "cut" / "running").iterdir())
    here = [message["epoch"]["epoch"] for of, message in told.of("epoch") if of == cell]
    assert here == ([1, 2] if stop < 4 else [2])  # the first run was done before
    assert go([cell], tmp_path / "cut") == cut


@pytest.mark.whole
@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_ctrl_c_keeps_what_was_reached_and_the_same_command_goes_on(resume, tmp_path):
    options = (
        "train --epochs 12 --train-samples 320 --test-samples 40 --threads 1 --dtype q52 "
        "--recipe master"
    ).split()
    whole = command(*options, "--out", tmp_path / "whole")
    assert whole.exit_code == 0
    words = [sys.executable, "-u", "-m", "torch_dtypes", *options, "--out", str(tmp_path / "cut")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    while "q52 master seed 0 epoch 1/12" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=240)[0]
    assert process.returncode == 130, said
    assert re.search(
        r"Interrupted: q52 master seed 0; the same command continues in epoch \d+\.", said
    ), said
    assert "float32" in said and "Traceback" not in said
    assert len(json.loads((tmp_path / "cut" / "results.json").read_text())["runs"]) == 1
    (checkpoint,) = (tmp_path / "cut" / "running").glob("*/checkpoint.pt")
    assert torch.load(checkpoint, weights_only=True)["batch"] > 0, "it was stopped after a step"
    result = command(*options, "--out", tmp_path / "cut", *resume)
    assert result.exit_code == 0 and "1 runs were done before." in result.output
    assert not checkpoint.exists()
    runs = [
        json.loads((tmp_path / name / "results.json").read_text())["runs"]
        for name in ("whole", "cut")
    ]
    for run in [*runs[0], *runs[1]]:
        for epoch in run["epochs"]:
            epoch.pop("seconds")
    assert runs[0] == runs[1]


def test_ctrl_c_without_out(monkeypatch):
    def run(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("torch_dtypes.workbench.sweeps.engines.Joblib.run", run)
    result = command(*QUICK, "--dtype", "q52", "--recipe", "master")
    assert (
        result.exit_code == 130
        and "Interrupted: float32 seed 0; without --out it was not kept." in result.output
    )


@pytest.mark.whole
def test_other_settings_are_other_runs_in_the_same_folder(tmp_path):
    options = [*QUICK, "--dtype", "q52", "--recipe", "master", "--out", tmp_path]
    assert "--resume needs --out" in command(*QUICK, "--resume").output
    assert command(*options).exit_code == 0
    result = command(*options, "--resume", "--lr", 0.5)
    assert (
        result.exit_code == 0
        and "done before" not in result.output
        and "q52 master seed 0 epoch 2/2" in result.output
    )
    result = command(*options, "--dtype", "q43")
    assert (
        result.exit_code == 0
        and "2 runs were done before." in result.output
        and "q43 master seed 0 epoch 2/2" in result.output
    )
    for path in (tmp_path / "cells").iterdir():
        path.write_text("{}")
    result = command(*options)
    assert (
        result.exit_code == 1
        and "expected the outcome of a cell, but could not read" in " ".join(result.output.split())
    )


MODULE = """
import os
import signal

import torch
from torch import nn


class Crashing(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        if (
            self.training and self.weight.dtype is torch.q52 and len(x) > 2
        ):  # not in the trial of two images
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().forward(x)


def data():
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return (x, x.argmax(1) % 3), (x, x.argmax(1) % 3)
"""


@pytest.mark.whole
def test_a_run_that_crashes_is_a_failed_row_and_the_same_command_does_it_again(
    tmp_path, monkeypatch
):
    (tmp_path / "crashing.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    options = (
        "train --epochs 1 --model crashing:Crashing --data crashing:data --threads 1 --dtype q52"
    ).split()
    for _ in range(2):
        result = command(*options, "--dtype", "q43", "--out", tmp_path / "out")
        assert result.exit_code == 0, result.output
        assert (
            "q52 seed 0: failed: its process was ended by SIGSEGV, a crash in compiled code"
            in result.output
        )
    assert (
        "2 runs were done before." in result.output
        and "q52 failed with 1 of 1 seeds: its process was ended" in result.output
    )
    runs = {
        run["dtype"]: run
        for run in json.loads((tmp_path / "out" / "results.json").read_text())["runs"]
    }
    assert (
        runs["q52"]["failure"].startswith("its process was ended")
        and runs["q43"]["failure"] is None
        and runs["q43"]["epochs"]
    )
    assert "SIGSEGV" in (tmp_path / "out" / "report.html").read_text()
    result = command(*options, "--no-baseline")
    assert result.exit_code == 1 and "Error: every run has failed" in result.output
