"""The workbench's commands with `--device cuda`, each in its own process: `--device cuda`."""

import json
import subprocess
import sys

import pytest
import torch
from command_line import command

from torch_dtypes.workbench.sweeps import cells, grid

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="of a GPU: --device cuda")
SMALL = ("--train-samples", "64", "--test-samples", "40", "--threads", "1", "--device", "cuda")

MODULE = """
import torch
from torch import nn

class Tiny(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 10))

    def forward(self, x):
        if x.is_cuda:
            print("on GPU", x.device.index, flush=True)
        return super().forward(x)
"""


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tinynet.py").write_text(MODULE)
    return tmp_path


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "torch_dtypes", *arguments],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SWEEP = ("sweep", "--model", "tinynet:Tiny", "--format", "q43", "--epochs", "1")


@on_a_gpu
def test_a_sweep_takes_the_gpus_in_turn(tiny):
    folders = {}
    for device in ("cuda", "cpu"):
        options = (
            *SWEEP,
            "--format",
            "posit8es1",
            "--seed",
            "0",
            "--seed",
            "1",
            *SMALL[:-1],
            device,
            "--jobs",
            "2",
            "--out",
            device,
        )
        printed = run(tiny, *options)
        assert "[6/6]" in printed and "failed" not in printed
        folders[device] = {
            json.loads(path.read_text())["state"] for path in (tiny / device / "cells").iterdir()
        }
    assert folders == {"cuda": {"done"}, "cpu": {"done"}}
    assert not {path.name for path in (tiny / "cuda" / "cells").iterdir()} & {
        path.name for path in (tiny / "cpu" / "cells").iterdir()
    }
    rows = [
        json.loads((tiny / device / "results.json").read_text())["rows"]
        for device in ("cuda", "cpu")
    ]
    # Two of 40 images.
    assert [abs(a["accuracy"] - b["accuracy"]) <= 5 for a, b in zip(*rows, strict=True)] == [
        True
    ] * 4
    assert "on a GPU" in (tiny / "cuda" / "report.html").read_text()


@on_a_gpu
def test_rounding_after_training(tiny):
    printed = run(tiny, *SWEEP, "--recipe", "ptq", "--recipe", "weights", *SMALL, "--out", "out")
    assert "[3/3]" in printed and "failed" not in printed


@on_a_gpu
def test_the_workers_of_a_sweep_have_a_gpu_each(tiny):
    from torch_dtypes.workbench.sweeps.processes import Server

    cell = cells.Cell(
        "tinynet:Tiny",
        "digits",
        "q43",
        "nearest_even",
        "machine",
        "all",
        0,
        cells.Settings(epochs=1, train_samples=64, device="cuda"),
    )
    used = []
    for number in range(torch.cuda.device_count() + 1):
        folder = tiny / str(number)
        folder.mkdir()
        server = Server(number)
        sys.path.insert(0, str(tiny))
        try:
            result = server.run(cell, folder, None, None)
        finally:
            server.close()
            sys.path.remove(str(tiny))
        assert result["state"] == "done", result
        used.append(
            {
                line
                for line in (folder / "log.txt").read_text().splitlines()
                if line.startswith("on GPU")
            }
        )
    assert used == [
        {f"on GPU {i % torch.cuda.device_count()}"} for i in range(torch.cuda.device_count() + 1)
    ]


@on_a_gpu
def test_sensitivity(tiny):
    options = (
        "sensitivity",
        "--model",
        "tinynet:Tiny",
        "--format",
        "q43",
        "--format",
        "int8",
        "--bits",
        "8",
        *SMALL,
        "--out",
        "out",
    )
    printed = run(tiny, *options)
    assert "The most sensitive layer is" in printed and "on GPU 0" in printed
    assert (tiny / "out" / "rules-8.yaml").exists()


@on_a_gpu
@pytest.mark.parametrize(
    "more", [("--where-repeats", "1"), ("--training", "--no-where")], ids=" ".join
)
def test_variability(tiny, more):
    printed = run(tiny, "variability", "--model", "tinynet:Tiny", "--repeats", "2", *SMALL, *more)
    assert "same to the last bit" in printed and "on GPU 0" in printed


# ---- without one ----


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["sweep", "sensitivity", "variability"])
def test_a_device_that_is_not_there_is_said_at_once(name):
    format = () if name == "variability" else ("--format", "q43")
    done = command(name, *format, *SMALL)
    assert done.exit_code == 2
    assert (
        "'--device': expected a CUDA device, but torch sees none here; use --device cpu"
        in " ".join(done.output.split())
    )


def test_what_has_no_kernels_is_said_before_any_training(monkeypatch):
    monkeypatch.setattr(grid._C, "has_gpu_kernels", lambda: False)
    settings = cells.Settings(device="cuda")
    assert grid.cells_of(grid.Axes(("bf16", "half"), recipes=("all", "ptq")), settings)
    for axes in (
        grid.Axes(("bf16", "q43")),
        grid.Axes(("mxfp4",), recipes=("ptq",)),
        grid.Axes(("bf16",), roundings=("up",)),
        grid.Axes(("bf16",), accumulates=("exact",)),
    ):
        with pytest.raises(
            ValueError,
            match=f"expected stock dtypes on a GPU, but got {axes.formats[-1]}: this build has no "
            "kernels of its own",
        ):
            grid.cells_of(axes, settings)
        assert grid.cells_of(axes, cells.Settings())


def test_a_cell_on_a_gpu_is_another_one_and_the_cpu_s_keep_their_names():
    cell = cells.Cell("lenet5", "digits", "q43", "up", "machine", "ptq", 0, cells.Settings())
    there = cells.Cell(
        "lenet5", "digits", "q43", "up", "machine", "ptq", 0, cells.Settings(device="cuda")
    )
    assert cell.key == "8acfe10176ee6d18" != there.key and there.config().device == "cuda"
    assert there.base.settings.device == "cuda" and there.base.key != cell.base.key
