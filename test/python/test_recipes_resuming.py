"""torch-dtypes train by recipes, interrupted: what is kept, and that --resume ends with the bits of a run that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from command_line import command
from train_command import QUICK, Quiet, figures, load_few_digits

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.training.comparison import Comparison
from torch_dtypes.training.loop import Config, Training
from torch_dtypes.training.recipes import Trial

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.own_process]


@pytest.fixture(scope="module")
def few_digits():
    return load_few_digits()


def weights(training):
    return [p.detach().double() for p in training.model.parameters()]


RUNS = {
    "all": (torch.e5m5, "all", Config(epochs=3, schedule="cosine")),
    "stochastic": (None, "all", Config(epochs=3, optimizer="sgd", momentum=0.9)),
    "master": (torch.q52, "master", Config(epochs=3, loss_scale="dynamic", schedule="linear")),
    "accumulators": (torch.q52, "master", Config(epochs=3, optimizer="sgd", momentum=0.9, master="e6m9", state="e6m9")),
    "none": (torch.posit8es2, "master", Config(epochs=3, optimizer="sgd", master="none")),
}


@pytest.mark.parametrize("stop", [1, 3, 5])
@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_goes_on_bit_for_bit(few_digits, name, stop, tmp_path):
    """After the first step, at an epoch's end, within an epoch; by way of a file."""
    number, recipe, config = RUNS[name]
    number = number or torch_dtypes.with_rounding(torch.posit8es2, "stochastic")
    whole = Training(config, few_digits, number, 4, recipe)
    expected = whole.go()
    assert not expected.interrupted and len(expected.epochs) == 3

    count = iter(range(1, 100))
    before = torch.get_rng_state()
    first = Training(config, few_digits, number, 4, recipe)
    stopped = first.go(should_stop=lambda: next(count) == stop)
    assert stopped.interrupted and first.steps_done == stop and torch.equal(torch.get_rng_state(), before)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    again = Training(config, few_digits, number, 4, recipe)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.manual_seed(stop)  # what happens elsewhere in between changes nothing
    assert figures(again.go()) == figures(expected)
    assert all(map(torch.equal, weights(again), weights(whole)))
    with pytest.raises(ValueError, match="expected the state of"):
        Training(config, few_digits, number, 5, recipe).load_state_dict(first.state_dict())


@pytest.mark.skipif(not torch.cuda.is_available() or not _C.has_gpu_kernels(), reason="needs a GPU and kernels for it")
@pytest.mark.parametrize("way", [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")], ids=" to ".join)
def test_a_run_that_goes_on_elsewhere_depends_on_its_file_alone(few_digits, way, tmp_path):
    """The CPU's has no state of a GPU's generator."""
    number, found = torch_dtypes.with_rounding(torch.posit8es2, "stochastic"), []
    before, after = (Config(epochs=2, optimizer="sgd", momentum=0.9, device=device) for device in way)
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


@pytest.mark.parametrize("stop", [4, 7, 12])
def test_a_stopped_comparison_goes_on(few_digits, stop, tmp_path):
    trials = (Trial("all", torch.float32), Trial("master", torch.q52))

    def comparison(folder):
        return Comparison(Config(epochs=1), few_digits, trials, [0, 1], {"epochs": 1}, folder)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = comparison(tmp_path / "a")
    whole.go(Quiet, lambda: False)
    count = iter(range(1, 100))
    first = comparison(tmp_path / "b")
    first.go(Quiet, lambda: next(count) == stop)
    assert (first.interrupted is not None) and (tmp_path / "b" / "checkpoint.pt").exists()
    second = comparison(tmp_path / "b")
    second.resume()
    assert len(second.runs) == (stop - 1) // 3
    second.go(Quiet, lambda: False)
    assert second.interrupted is None
    assert [run.key for run in second.runs] == [run.key for run in whole.runs]
    assert list(map(figures, second.runs)) == list(map(figures, whole.runs))
    assert sorted(os.listdir(tmp_path / "b")) == ["results.json"]
    third = comparison(tmp_path / "b")
    third.resume()
    third.go(None, None)  # nothing is left to do


def test_ctrl_c_keeps_what_was_reached_and_resume_goes_on(tmp_path):
    options = "train --epochs 2 --train-samples 320 --test-samples 40 --threads 1 --dtype q52 --recipe master".split()
    whole = command(*options, "--out", tmp_path / "whole")
    assert whole.exit_code == 0
    words = [sys.executable, "-u", "-m", "torch_dtypes", *options, "--out", str(tmp_path / "cut")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    while "q52 master seed 0 epoch 1/2" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert "Interrupted: q52 master seed 0; --resume goes on in epoch 2." in said and "float32" in said and "Traceback" not in said
    assert len(json.loads((tmp_path / "cut" / "results.json").read_text())["runs"]) == 1
    anew = command(*options, "--out", tmp_path / "cut")
    assert anew.exit_code == 2 and "holds a comparison that was interrupted: --resume goes on with it" in " ".join(anew.output.split())
    result = command(*options, "--out", tmp_path / "cut", "--resume")
    assert result.exit_code == 0 and "1 runs were done before." in result.output
    assert not (tmp_path / "cut" / "checkpoint.pt").exists()
    runs = [json.loads((tmp_path / name / "results.json").read_text())["runs"] for name in ("whole", "cut")]
    for run in [*runs[0], *runs[1]]:
        for epoch in run["epochs"]:
            epoch.pop("seconds")
    assert runs[0] == runs[1]


def test_ctrl_c_without_out(monkeypatch):
    monkeypatch.setattr("torch_dtypes.training.command._Stop.__call__", lambda self: True)
    result = command(*QUICK, "--dtype", "q52", "--recipe", "master")
    assert result.exit_code == 130 and "Interrupted: float32 seed 0; without --out it was not kept." in result.output


def test_what_resume_refuses(tmp_path):
    options = [*QUICK, "--dtype", "q52", "--recipe", "master", "--out", tmp_path]
    assert "--resume needs --out" in command(*QUICK, "--resume").output
    result = command(*options, "--resume")
    assert result.exit_code == 1 and "expected the results of an interrupted comparison in" in result.output
    assert command(*options).exit_code == 0
    result = command(*options, "--resume", "--epochs", 3, "--lr", 0.5)
    assert result.exit_code == 1 and "but got epochs 3 and not 2, lr 0.5 and not 0.001; give those" in " ".join(result.output.split())
    assert "epoch 1" not in result.output
    (tmp_path / "checkpoint.pt").write_text("nothing")
    assert "expected a checkpoint of torch-dtypes train, but could not read" in command(*options, "--resume").output
    (tmp_path / "results.json").write_text("{}")
    assert "expected results of torch-dtypes train, but could not read" in command(*options, "--resume").output
