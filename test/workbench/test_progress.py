"""Progress of long work: bars on a terminal, lines elsewhere, nothing unless asked for."""

# ruff: noqa: F811 (a fixture that is imported)

import os
import pty
import re
import subprocess
import sys

import pytest
import torch
from sweeps import OWN, own  # noqa: F401 (own is a fixture)
from torch import nn

import torch_dtypes
from torch_dtypes.workbench.report import progress

NETWORK = """
import torch, torch_dtypes
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
data = [(torch.randn(16, 4), torch.arange(16) % 2)]
"""


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), [
        (torch.randn(16, 4), torch.arange(16) % 2)
    ]


def on_a_terminal(code, tmp_path):
    """Run a program and return its standard error on a terminal, without the codes that colour and
    erase."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=theirs,
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert running.wait(60) == 0, said.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())


@pytest.mark.parametrize("what", ["sensitivity", "variability"])
def test_a_study_says_its_stages_where_it_is_asked_to(capfd, what):
    def run_study(**options):
        model, data = network()
        if what == "sensitivity":
            return torch_dtypes.sensitivity(model, data, ["q43", "q52"], **options)
        return torch_dtypes.variability(model, data, repeats=3, where=False, **options)

    def read_lines():
        out, err = capfd.readouterr()
        assert out == ""
        return err.splitlines()

    lines = {
        "sensitivity": [
            "float32: 1 run",
            "each format in all layers: 2 runs",
            "one layer at a time: 4 runs",
        ],
        "variability": ["IEEE arithmetic: 2 runs", "repeats: 3 runs"],
    }
    result, heard = run_study(progress=True), []
    assert read_lines() == lines[what]
    if what == "sensitivity":
        result.choose(bits=8)
        assert read_lines() == ["mixtures"]
        assert len(result.trade_off()) == 1 and read_lines() == ["trade-off: 1 run"]
    run_study()  # standard error is no terminal
    run_study(progress=False)
    assert read_lines() == []
    run_study(progress=True, on_run=lambda *run: heard.append(run))
    assert read_lines() == lines[what] and f"{heard[0][0]}: {heard[0][1]} run" in lines[what][0]
    for wrong in (1, "yes"):
        with pytest.raises(TypeError, match="expected True or False for progress, but got"):
            run_study(progress=wrong)


def test_each_further_run_moves_the_bar_of_its_stage():
    from rich.progress import Progress

    bar = Progress(disable=True)
    stages, seen = progress.Stages(bar), []
    for name in ("float32", "layers", "layers", "layers"):
        stages(name, 3)
        seen += [(task.description, task.completed) for task in bar.tasks]
    assert seen == [("float32", 0), ("layers", 0), ("layers", 1), ("layers", 2)]


@pytest.mark.whole
def test_a_terminal_has_a_bar_unless_the_caller_hears_of_runs(tmp_path):
    calls = [
        f"torch_dtypes.sensitivity(model, data, ['q43', 'q52']{option})"
        for option in ("", ", progress=False", ", on_run=lambda *run: None")
    ]
    said = on_a_terminal(NETWORK + "; import sys; sys.stderr.write('|'); ".join(calls), tmp_path)
    bars, *others = said.split("|")
    assert "one layer at a time" in bars and re.search(r"[0-4]/4 ", bars)
    assert others == ["", ""]


@pytest.mark.whole
def test_a_sweep_says_its_cells_where_it_is_asked_to(own, tmp_path, capfd):
    torch_dtypes.sweep("bf16", **OWN, out=tmp_path / "out", progress=True)
    out, err = capfd.readouterr()
    label = f"{OWN['model']} on {OWN['dataset']}"
    assert out == "" and re.fullmatch(
        rf"\[1/2\] {label}: float32, nearest_even, all, seed 0: accuracy [\d.]+ %, loss [\d.]+\n"
        rf"\[2/2\] {label}: bf16, nearest_even, all, seed 0: accuracy [\d.]+ %, loss [\d.]+\n",
        err,
    )
    torch_dtypes.sweep("bf16", **OWN, out=tmp_path / "out", progress=True)
    assert capfd.readouterr().err == "2 of 2 cells were done before.\n"
    torch_dtypes.sweep("bf16", **OWN, out=tmp_path / "out")
    assert capfd.readouterr().err == ""


def test_without_rich_there_is_no_bar_and_an_error_where_one_is_asked_for(monkeypatch):
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    assert progress.console_of(None) is None and progress.console_of(False) is None
    with pytest.raises(
        ModuleNotFoundError,
        match=r"progress=True needs rich, .* pip install 'torch-dtypes\[train\]'",
    ):
        progress.console_of(True)
