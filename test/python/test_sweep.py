"""``torch-dtypes sweep``: cells as data, what is refused before any long work, cells that crash, diverge or hang, going on, tables and heat map."""

import csv
import hashlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import torch_dtypes
from torch_dtypes import sweep
from torch_dtypes._overlay import releases
from torch_dtypes.training.loop import Training, evaluate
from torch_dtypes.workbench.sweeps import engines, grid
from torch_dtypes.workbench.sweeps.cells import Cell, Settings
from torch_dtypes.workbench.sweeps.processes import Server
from torch_dtypes.workbench.sweeps.store import Store
from torch_dtypes.workbench.sweeps.sweeping import Sweep, go
from torch_dtypes.workbench.sweeps.work import outcome

click_testing = pytest.importorskip("click.testing", reason="the command line needs click")
pytestmark = pytest.mark.own_process

# A network that does what its cells are to show, by the dtype that it is in.
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


def run(*args):
    from torch_dtypes import cli

    result = click_testing.CliRunner().invoke(cli.group(), ["sweep", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def cell(**changes):
    plain = {"model": "lenet5", "dataset": "digits", "format": "q43", "rounding": "up", "accumulate": "machine", "recipe": "ptq", "seed": 0}
    return Cell(**{**plain, "settings": Settings(), **changes})


# Cells as data


def test_the_key_of_a_cell_is_of_its_definition_alone():
    assert cell().key == Cell.of(json.loads(json.dumps(cell().definition()))).key
    others = [cell(**{name: "other"}) for name in ("model", "dataset", "format", "rounding", "accumulate", "recipe")]
    others += [cell(seed=1), cell(settings=Settings(epochs=3)), cell(settings=Settings(weights="w", weights_digest="0"))]
    assert len({c.key for c in (cell(), *others)}) == 10
    moved = [cell(settings=Settings(weights=path, weights_digest="0")).key for path in ("/a/w.pt", "/b/w.pt")]
    assert moved[0] == moved[1]
    assert cell().key == "8acfe10176ee6d18"  # of any version: a folder of outcomes stays what it was


def test_every_combination_is_there_once_and_float32_before_them():
    axes = grid.Axes(("q43", "bf16", "q43"), roundings=("nearest_even", "2"), recipes=("ptq", "weights"), seeds=(0, 1))
    cells = grid.cells_of(axes, Settings())
    assert len(cells) == 2 * 2 * 2 * 2
    assert [(c.format, c.rounding) for c in cells[:8:2]] == [("q43", "nearest_even"), ("q43", "up"), ("bf16", "nearest_even"), ("bf16", "up")]
    every = grid.with_bases(cells)
    assert [c.seed for c in every if c.is_base] == [0, 1] and every[2:] == cells
    assert str(cell(format="half", rounding="nearest_even", recipe="all").number()) == "torch.float16"
    assert str(cell(format="half", recipe="all").number()) == "torch.e5m10_up"
    assert cell(format="posit<12,1>").number().name == "posit12es1_up"


def test_formats_have_their_own_modes_where_none_is_said():
    cells = grid.cells_of(grid.Axes(("q43_stochastic", "q43")), Settings())
    assert [c.rounding for c in cells] == ["stochastic", "nearest_even"]
    with pytest.raises(ValueError, match="in its name or as an axis, but got both: leave stochastic out"):
        grid.cells_of(grid.Axes(("q43_stochastic",), roundings=("up",)), Settings())


def test_stock_names_are_our_dtypes_under_a_policy_which_is_then_obeyed():
    float8 = "torch.e4m3fn_saturate" if releases.RUNNING >= (2, 13) else "torch.e4m3fn"
    names = {"bf16": "torch.e8m7", "half": "torch.e5m10", "fp32": "torch.e8m23", "float8_e4m3fn": float8, "q43": "torch.q43"}
    for recipe in ("all", "master"):
        made = {name: cell(format=name, rounding="nearest_even", accumulate="exact", recipe=recipe) for name in names}
        assert {name: str(c.number()) for name, c in made.items()} == names
    assert str(replace(made["bf16"], accumulate="machine").number()) == "torch.bfloat16"
    assert replace(made["bf16"], recipe="mixed").number().stock == "bfloat16"  # whose layers' sums obey it
    # A folder of before may have an outcome under the hash of the plain definition, whose sums were PyTorch's own; others keep their file.
    definitions = {name: c.definition() for name, c in made.items()}
    for definition in definitions.values():
        del definition["settings"]["device"]  # there was the CPU alone
    plain = {name: json.dumps(definition, sort_keys=True, separators=(",", ":")).encode() for name, definition in definitions.items()}
    kept = {name for name, c in made.items() if c.key == hashlib.sha256(plain[name]).hexdigest()[:16]}
    assert kept == {"q43"}


def test_list_says_what_there_would_be(tmp_path):
    output = run("--format", "q43", "--format", "bf16", "--rounding", "1", "--rounding", "stochastic", "--recipe", "ptq", "--list").output
    assert "4 cells, and 1 training in float32 beside them." in output and output.count(".json") == 4
    assert f"{cell(rounding='stochastic').key}.json" in output
    assert list(tmp_path.iterdir()) == []


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out x", "expected at least one cell, but got no format"),
        ("--format q43", "expected --out, a folder for what comes out, but got none"),
        ("--format q44 --out x", "got 'q44'; the nearest names are 'q43'"),
        ("--format q43 --rounding upward --out x", "'--rounding': expected"),
        ("--format q43 --accumulate quire --out x", "'--accumulate': expected an accumulation policy"),
        ("--format int8 --out x", "expected a format without scales for --recipe all, but got int8"),
        ("--format mxfp4 --out x", "expected a dtype for --recipe all, whose network has it throughout, but got mxfp4"),
        ("--format int8 --recipe weights --out x", "without scales for --recipe weights"),
        ("--format q43 --recipe weights --accumulate exact --out x", "--accumulate machine for --recipe weights"),
        ("--format q43 --recipe ptq --recipe all --loss-scale 8 --out x", "--loss-scale is for --recipe master, mixed or qat"),
        ("--format q43 --master e6m9 --out x", "--master is for --recipe master"),
        ("--format q43 --state e6m9 --recipe mixed --out x", "--state is for --recipe master"),
        ("--format q43 --optimizer sgd --eps 1e-3 --out x", "--eps is for --optimizer adam"),
        ("--format q43 --epochs 0 --out x", "expected epochs of at least 1, but got 0: that is for weights from a file"),
        ("--format q43 --engine dask --out x", "expected --engine dask and --scheduler ADDRESS together"),
        ("--format q43 --data mine --out x", "expected --data as package.module:loader, but got 'mine'"),
        ("--format q43 --data odd_networks:none --out x", "odd_networks has no none"),
        ("--format q43 --data odd_networks:data --out x", "of shape (C, 32, 32) for lenet5"),
        ("--format q43 --weights none.pt --out x", "File 'none.pt' does not exist"),
        ("--format q43 --out odd_networks.py", "Directory 'odd_networks.py' is a file"),
        ("--format q43 --out /proc/none", "cannot write into /proc/none"),
        ("--format q43 --dataset mnist --data-dir /nowhere --out x", "expected the mnist files in /nowhere/MNIST/raw"),
        ("--format q43 --train-samples 9999 --out x", "expected between 1 and 1437 training samples, but got 9999"),
        ("--format q43 --momentum 0.9 --out x", "--momentum is for --optimizer sgd"),
    ],
)
def test_bad_options_are_clear_errors_before_any_cell(own, options, message):
    result = run(*options.split())
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.split())
    assert not Path("x/cells").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format: q43\nrounding: [up,\n  upward]\n", "grid.yaml:3: rounding: expected"),
        ("format: q43\nrouding: up\n", "grid.yaml:2: expected a key out of"),
        ("format: q43\nepochs: [1, 2]\n", "grid.yaml:2: expected one value of epochs, but got a list"),
        ("format: q43\nepochs: many\n", "grid.yaml:2: epochs: 'many' is not a valid integer"),
        ("format: q43\nseed:\n  - 0\n  - {a: 1}\n", "grid.yaml:4: expected seed as a word or number, but got a mapping"),
        ("format: q43\nformat: q52\n", "grid.yaml:2: expected format once"),
        ("format: []\n", "expected at least one cell, but got no format"),
        ("format: q43\nmodel:\n", "grid.yaml:2: expected a value of model, but got none"),
        ("- q43\n", "expected keys and values"),
        ("format: [q43\n", "expected YAML"),
        ("format: q43\nseed: []\nout: x\n", "grid.yaml:2: expected at least one cell, but got no seed"),
        ("format:\n  - q43\n  - nosuch\n", "grid.yaml:3: format: expected the name of something to round to, but got 'nosuch'"),
        ("format: ''\n", "grid.yaml:1: format: expected"),
        ("format: q43\nmomentum: 0.9\n", "grid.yaml:2: --momentum is for --optimizer sgd"),
        ("format: q43\nloss_scale: 8\n", "grid.yaml:2: --loss-scale is for --recipe master"),
        ("format: q43\nrecipe: weights\naccumulate: [machine,\n  exact]\n", "grid.yaml:4: expected --accumulate machine for --recipe weights"),
        ("format: [q43,\n int8]\n", "grid.yaml:2: expected a format without scales for --recipe all, but got int8"),
        ("format: q43\ndata: foo\n", "grid.yaml:2: data: expected --data as package.module:loader, but got 'foo'"),
        ("dataset: mnist\nformat: q43\ndata: a:b\n", "grid.yaml:3: expected --dataset or --data, but got both"),
        ("format: q43\n---\nformat: q52\n", "grid.yaml:2: expected YAML, but found another document"),
    ],
)
def test_errors_of_a_file_have_their_line(own, text, message):
    Path("grid.yaml").write_text(text)
    result = run("--config", "grid.yaml")
    assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_what_the_command_line_said_has_no_line_of_the_file(own):
    Path("grid.yaml").write_text("format: q43\nmomentum: 0.5\noptimizer: sgd\n")
    assert "Error: --momentum is for --optimizer sgd" in run("--config", "grid.yaml", "--optimizer", "adam", "--momentum", "0.9").output


def test_the_command_line_goes_before_the_file(own):
    written = {"format": ["q43", "bf16"], "rounding": ["up", "down"], "recipe": "ptq", "seed": [0, 1], "train-samples": 50, "lr": 0.5}
    Path("grid.yaml").write_text(yaml.dump(written))
    assert "8 cells" in run("--config", "grid.yaml", "--list").output
    output = run("--config", "grid.yaml", "--format", "q52", "--seed", 7, "--list").output
    assert "2 cells" in output and "q52" in output and "q43" not in output


# Cells in processes


def test_a_cell_that_crashes_raises_or_diverges_loses_itself_alone_and_the_rest_goes_on(own, tmp_path):
    formats = ["posit16es2", "q52", "e5m5", "half"]
    out = tmp_path / "out"
    found = sweep(formats, **OWN, out=out, jobs=2)
    states = {row["format"]: row["state"] for row in found.rows()}
    assert states == {"posit16es2": "done", "q52": "failed", "e5m5": "failed", "half": "diverged"}
    reasons = {row["format"]: row["reason"] for row in found.rows()}
    assert reasons["q52"] == "its process was ended by SIGSEGV, a crash in compiled code"
    assert reasons["e5m5"] == "RuntimeError: this network dislikes e5m5"
    assert "was the first tensor that was not finite (update pass, layer" in reasons["half"] and "Try" in reasons["half"]
    crashed = next(result for result in found.outcomes.values() if result["cell"]["format"] == "q52")
    assert crashed["lines"] == ["about to crash"]
    assert found.is_complete and len(found.failures) == 3

    # The same call does nothing; a lost outcome, and only that, is made again, and failures where they are asked for.
    files = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert len(files) == 5 and list((out / "running").iterdir()) == []
    assert sweep(formats, **OWN, out=out).rows() == found.rows()
    done = next(c for c in found.cells if c.format == "posit16es2")
    (out / "cells" / f"{done.key}.json").unlink()
    again = sweep(formats, **OWN, out=out)
    changed = {path for path in (out / "cells").iterdir() if path.stat().st_mtime_ns != files[path]}
    assert changed == {out / "cells" / f"{done.key}.json"}
    same = [{**row, "seconds": None} for row in found.rows()]
    assert [{**row, "seconds": None} for row in again.rows()] == same


def test_a_command_of_which_every_cell_fails_has_failed(own):
    options = "--model odd_networks:Odd --data odd_networks:data --epochs 1 --batch-size 20 --recipe all --out out".split()
    result = run("--format", "e5m5", *options)
    assert result.exit_code == 1 and "Error: every cell has failed" in result.output and "dislikes e5m5" in result.output
    assert run("--format", "e5m5", "--format", "posit16es2", *options).exit_code == 0


def test_a_cell_that_hangs_is_ended(own, tmp_path):
    settings = Settings(epochs=1)
    hanging = Cell("odd_networks:Odd", "odd_networks:data", "e8m4", "nearest_even", "machine", "all", 0, settings)
    server = Server()
    result = server.run(hanging, tmp_path, None, 1)
    server.close()
    assert (result["state"], result["reason"]) == ("failed", "not done within 1 s (--time-limit)")
    assert cell(recipe="ptq").base != hanging


def test_rounding_after_training_shares_one_training_and_is_what_it_says(own, tmp_path):
    found = sweep(["q43", "posit8es1"], recipe=["ptq", "weights"], rounding="down", **OWN, out=tmp_path / "out")
    assert [row["state"] for row in found.rows()] == ["done"] * 4 and len(found.outcomes) == 5
    base = found.cells[0].base
    trained = Training(base.config(), base.data(), torch.float32, 0)
    trained.load_state_dict(torch.load(tmp_path / "out" / "trained" / f"{base.key}.pt", weights_only=True))
    data = base.data()
    assert evaluate(trained.model, data.test, torch.float32)[1] == found.outcomes[base.key]["accuracy"]
    for number in ("q43", "posit8es1"):
        rounded = Training(base.config(), data, torch.float32, 0).model
        rounded.load_state_dict({name: torch_dtypes.chop(p, number, rounding="down") for name, p in trained.model.state_dict().items()})
        loss, accuracy = evaluate(rounded, data.test, torch.float32)
        row = next(row for row in found.rows() if row["format"] == number and row["recipe"] == "weights")
        assert (row["loss"], row["accuracy"]) == (loss, accuracy)


def test_given_weights_are_rounded_without_training(own, tmp_path):
    sys.path.insert(0, str(tmp_path))
    import odd_networks

    torch.manual_seed(5)
    model = odd_networks.Odd()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    found = sweep("q43", recipe="ptq", **{**OWN, "epochs": 0}, weights=tmp_path / "w.pt", out=tmp_path / "out")
    (_, (inputs, labels)) = odd_networks.data()
    right = 100 * (model(inputs).argmax(1) == labels).float().mean().item()
    assert found.groups()[0].baseline.accuracies == [pytest.approx(right)]
    assert found.rows()[0]["state"] == "done" and found.rows()[0]["epochs"] == 0


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_reached_and_the_same_command_goes_on(own, tmp_path):
    command = [sys.executable, "-m", "torch_dtypes", "sweep", "--model", OWN["model"], "--data", OWN["dataset"], "--epochs", "2", "--out", "out"]
    command += ["--format", "posit16es2", "--format", "e8m4"]
    running = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "out").glob("cells/*.json"))) < 2 and time.monotonic() < deadline:  # float32 and the first
        time.sleep(0.1)
    time.sleep(1)
    os.kill(running.pid, signal.SIGINT)
    output = running.communicate(timeout=60)[0]
    assert running.returncode == 130 and "Interrupted: the same command goes on" in output and "not done" in output
    assert len(list((tmp_path / "out").glob("cells/*.json"))) == 2
    went_on = subprocess.run([*command, "--time-limit", "2"], cwd=tmp_path, text=True, capture_output=True, timeout=120, check=True)
    assert "2 of 3 cells were done before." in went_on.stdout and "[3/3]" in went_on.stdout and "not done within 2 s" in went_on.stdout


def test_a_second_sweep_in_the_folder_is_refused_and_spoils_nothing(own, tmp_path):
    """Both would do the same cells in the same places, and each remove what the other one's processes write."""
    refused = []

    def second(done, of):
        with pytest.raises(BlockingIOError, match="another command is at work in out: wait for it, or give another --out") as error:
            torch_dtypes.sweep("q43", out="out", **OWN)
        refused.append(str(error.value))
        result = run("--model", OWN["model"], "--data", OWN["dataset"], "--format", "q43", "--out", "out")
        assert result.exit_code == 1 and f"Error: {refused[0]}" in result.output

    cells = grid.cells_of(grid.Axes(("q43",), (OWN["model"],), (OWN["dataset"],)), grid.settings_of(epochs=1, lr=0.05, datasets=(OWN["dataset"],)))
    outcomes = go(cells, "out", on_start=second)
    assert refused and [result["state"] for result in outcomes.values()] == ["done", "done"]
    assert len(go(cells, "out")) == 2, "free again"


def children(pid):
    return [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]


def runs(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.slow
def test_a_cell_ends_with_whoever_asked_for_it_however_that_ends(own, tmp_path):
    command = [sys.executable, "-m", "torch_dtypes", "sweep", "--model", OWN["model"], "--data", OWN["dataset"], "--format", "e8m4", "--out", "out"]
    asking = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").glob("cells/*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)  # the hanging cell has begun
    (server,) = children(asking.pid)
    (hanging,) = children(server)
    asking.kill()
    while (runs(server) or runs(hanging)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not runs(server) and not runs(hanging)
    assert "Traceback" not in asking.communicate()[1]


@pytest.mark.slow
def test_cells_go_over_a_dask_cluster(own, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra dask")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        found = sweep(["q43", "q52"], recipe=["ptq", "all"], **OWN, out=tmp_path / "out", scheduler=cluster.scheduler_address)
    here = sweep(["q43", "q52"], recipe=["ptq", "all"], **OWN)
    assert [{**row, "seconds": 0} for row in found.rows()] == [{**row, "seconds": 0} for row in here.rows()]
    assert [row["state"] for row in found.rows()] == ["done", "done", "done", "failed"]


def test_dask_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torch-dtypes\[dask\]'"):
        engines.Dask(Store(tmp_path), "tcp://nowhere:1", None)


# What is shown


def example():
    """A sweep of two formats by two modes and two seeds, with a failure, a divergence and a cell that is missing."""
    axes = grid.Axes(("q43", "bf16"), roundings=("nearest_even", "up"), recipes=("ptq",), seeds=(0, 1))
    cells = grid.cells_of(axes, Settings())
    results = {}
    accuracies = iter([90.0, 91.0, 10.0, None, 90.5, 91.5])  # q43 nearest, up; bf16 nearest
    for c in cells[:6]:
        accuracy = next(accuracies)
        results[c.key] = {**outcome(c, "done"), "accuracy": accuracy, "loss": 0.5}
        if accuracy is None:
            results[c.key] = outcome(c, "failed", "its process was ended by SIGKILL", ["last | line"])
    results[cells[6].key] = outcome(cells[6], "diverged", "0.weight was the first tensor & not finite")
    for base, accuracy in zip(grid.with_bases(cells)[:2], (90.5, 91.5), strict=True):
        results[base.key] = {**outcome(base, "done"), "accuracy": accuracy, "loss": 0.4}
    return Sweep(cells, results, {"digits": 12.0})


def test_tables_in_every_form(tmp_path):
    found = example()
    assert found.table() == [
        {"model": "lenet5", "dataset": "digits", "recipe": "ptq", "accumulate": "machine", "format": "q43",
         "nearest_even": "90.50 ± 0.71 (-0.50)", "up": "10.00 (-80.50), failed 1 of 2"},
        {"model": "lenet5", "dataset": "digits", "recipe": "ptq", "accumulate": "machine", "format": "bf16",
         "nearest_even": "91.00 ± 0.71 (+0.00)", "up": "diverged 1 of 2, 1 not done"},
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(found.to_csv(tmp_path / "r.csv"))))
    assert len(rows) == 8 and rows[0]["gap"] == "-0.5" and rows[3]["reason"] == "its process was ended by SIGKILL" and rows[7]["state"] == "not done"
    markdown = found.to_markdown()
    assert "| q43 | 90.50 ± 0.71 (-0.50) | 10.00 (-80.50), failed 1 of 2 |" in markdown
    assert "float32's 91.00 ± 0.71; a guess has 12.0." in markdown
    assert "q43 up: its process was ended by SIGKILL; bf16 up: 0.weight was the first tensor & not finite." in markdown
    latex = found.to_latex()
    assert r"q43 & 90.50 $\pm$ 0.71 (-0.50) &" in latex and r"nearest\_even" in latex and r"tensor \& not finite" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1
    found.to_json(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == found.rows()
    assert repr(found) == "<Sweep of 8 cells, 7 with an outcome, 2 failed or diverged>"


@pytest.mark.parametrize("width", ["page", "column"])
def test_heat_map(width):
    from matplotlib.patches import Rectangle

    figure = example().heatmap(width)
    axes = next(a for f in (figure, *figure.subfigs) for a in f.axes if a.images)
    shown = axes.images[0].get_array()
    assert shown[0, 0] == 0.5 and shown[0, 1] == 80.5 and shown.mask.tolist() == [[False, False], [False, True]]
    assert {t.get_text() for t in axes.texts} >= {"-0.50", "(a)", "+0.00", "(b)"}
    assert any("float32 91.0 %, guess 12.0 %, mean of 2 seeds" in t.get_text() for t in axes.texts)
    hatched = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_hatch()]
    assert [(p.get_x(), p.get_y()) for p in hatched] == [(0.5, -0.5), (0.5, 0.5)]
    strip = " ".join(t.get_text() for f in figure.subfigs for t in f.texts)
    assert "(a) its process was ended by SIGKILL" in strip and "(b) 0.weight was the first" in strip
    assert sum(p.get_linestyle() not in ("-", "solid") for p in axes.patches if not p.get_hatch()) == 1  # 10 % is no better than a guess
    # Darker is worse in grey, too.
    colours = [axes.images[0].cmap(axes.images[0].norm(g)) for g in (0.05, 0.2, 0.5, 2, 5, 20, 50)]
    greys = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b, _ in colours]
    assert all(a - b > 0.04 for a, b in itertools.pairwise(greys))


def test_files_of_a_sweep(tmp_path):
    written = example().write(tmp_path, "torch-dtypes sweep --format q43")
    assert {p.name for p in written} == {
        "results.csv", "results.json", "results.md", "results.tex", "heatmap.png", "heatmap.svg", "heatmap.pdf", "report.html"
    }  # fmt: skip
    html = (tmp_path / "report.html").read_text()
    assert "torch-dtypes sweep --format q43" in html and "SIGKILL" in html and "<svg" in html and "http" not in html.replace("http-equiv", "")


def test_a_damaged_outcome_names_its_file(tmp_path):
    store = Store(tmp_path)
    store.open()
    store.path(cell()).write_text("{")
    with pytest.raises(ValueError, match=f"could not read .*{cell().key}.json"):
        store.read(cell())
    other = replace(cell(), seed=4)
    store.write(other, outcome(other, "failed", "for a test"))
    assert store.read(other)["reason"] == "for a test" and [p.name for p in tmp_path.glob("cells/*.partial")] == []


WRONG = {
    "epochs": (-1, ValueError, "epochs: -1 is not in the range"), "seed": (-1, ValueError, "seed: -1"), "jobs": (0, ValueError, "jobs: 0"),
    "time_limit": (0, ValueError, "time_limit: 0"), "lr": (float("nan"), ValueError, "lr: expected a finite number above 0"),
    "batch_size": (2.5, ValueError, "batch_size: '2.5' is not a valid"), "optimizer": ("zzz", ValueError, "optimizer: 'zzz' is not one of"),
    "schedule": ("zz", ValueError, "schedule: 'zz' is not one of"), "master": ("zz", ValueError, "master: expected the name"),
    "epoch": (3, TypeError, "expected a setting of sweep, but got epoch=3; do you mean epochs"), "model": (3, TypeError, "expected a model by name"),
    "dataset": (torch.nn.Identity(), TypeError, "expected a data set by name"), "threads": (True, TypeError, "expected threads as a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_the_function_is_given_means_what_the_options_do(name, tmp_path):
    value, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        torch_dtypes.sweep("q43", out=tmp_path / "sweep", **{name: value})
    assert not (tmp_path / "sweep").exists()
