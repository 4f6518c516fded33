"""``torch-dtypes sweep``: cells in processes that crash, diverge or hang; resuming; other
machines."""

# ruff: noqa: F811 (a fixture that is imported)

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from new_process import is_running
from sweeps import OWN, cell, own, run  # noqa: F401 (own is a fixture)

import torch_dtypes
from torch_dtypes import sweep
from torch_dtypes.workbench.sweeps import engines, grid
from torch_dtypes.workbench.sweeps.cells import Cell, Settings
from torch_dtypes.workbench.sweeps.display import Watcher
from torch_dtypes.workbench.sweeps.processes import Server
from torch_dtypes.workbench.sweeps.store import Store
from torch_dtypes.workbench.sweeps.sweeping import go
from torch_dtypes.workbench.training.loop import Training, evaluate


@pytest.mark.whole
def test_a_cell_that_crashes_raises_or_diverges_loses_itself_alone_and_the_rest_goes_on(
    own, tmp_path
):
    formats = ["posit16es2", "q52", "e5m5", "half"]
    out = tmp_path / "out"
    found = sweep(formats, **OWN, out=out, jobs=2)
    states = {row["format"]: row["state"] for row in found.rows()}
    assert states == {"posit16es2": "done", "q52": "failed", "e5m5": "failed", "half": "diverged"}
    reasons = {row["format"]: row["reason"] for row in found.rows()}
    assert reasons["q52"] == "its process was ended by SIGSEGV, a crash in compiled code"
    assert reasons["e5m5"] == "RuntimeError: this network dislikes e5m5"
    assert (
        "was the first tensor that was not finite (update pass, layer" in reasons["half"]
        and "Try" in reasons["half"]
    )
    crashed = next(
        result for result in found.outcomes.values() if result["cell"]["format"] == "q52"
    )
    assert crashed["lines"] == ["about to crash"]
    assert found.is_complete and len(found.failures) == 3

    # The same call does nothing. Only a lost outcome is made again, and failures with --retry.
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


@pytest.mark.whole
def test_a_command_of_which_every_cell_fails_has_failed(own):
    options = (
        "--model odd_networks:Odd --data odd_networks:data --epochs 1 --batch-size 20 --recipe "
        "all --out out"
    ).split()
    result = run("--format", "e5m5", *options)
    assert (
        result.exit_code == 1
        and "Error: every cell has failed" in result.output
        and "dislikes e5m5" in result.output
    )
    assert run("--format", "e5m5", "--format", "posit16es2", *options).exit_code == 0


@pytest.mark.whole
def test_a_cell_that_hangs_is_ended(own, tmp_path):
    settings = Settings(epochs=1)
    hanging = Cell(
        "odd_networks:Odd",
        "odd_networks:data",
        "e8m4",
        "nearest_even",
        "machine",
        "all",
        0,
        settings,
    )
    server = Server()
    result = server.run(hanging, tmp_path, None, 1)
    server.close()
    assert (result["state"], result["reason"]) == ("failed", "not done within 1 s (--time-limit)")
    assert cell(recipe="ptq").base != hanging


def test_rounding_after_training_shares_one_training_and_is_what_it_says(own, tmp_path):
    found = sweep(
        ["q43", "posit8es1"],
        recipe=["ptq", "weights"],
        rounding="down",
        **OWN,
        out=tmp_path / "out",
    )
    assert [row["state"] for row in found.rows()] == ["done"] * 4 and len(found.outcomes) == 5
    base = found.cells[0].base
    trained = Training(base.config(), base.data(), torch.float32, 0)
    trained.load_state_dict(
        torch.load(tmp_path / "out" / "trained" / f"{base.key}.pt", weights_only=True)
    )
    data = base.data()
    assert (
        evaluate(trained.model, data.test, torch.float32)[1] == found.outcomes[base.key]["accuracy"]
    )
    for number in ("q43", "posit8es1"):
        rounded = Training(base.config(), data, torch.float32, 0).model
        rounded.load_state_dict(
            {
                name: torch_dtypes.chop(p, number, rounding="down")
                for name, p in trained.model.state_dict().items()
            }
        )
        loss, accuracy = evaluate(rounded, data.test, torch.float32)
        row = next(
            row for row in found.rows() if row["format"] == number and row["recipe"] == "weights"
        )
        assert (row["loss"], row["accuracy"]) == (loss, accuracy)


@pytest.mark.whole
def test_rounding_after_a_training_that_failed_says_why_that_did(own, tmp_path):
    failing = {**OWN, "model": "odd_networks:Failing"}
    lines = [
        "class Failing(Odd):",
        "    def forward(self, x):",
        "        assert not self.training, 'float32, too'",
        "        return super().forward(x)",
    ]
    with open("odd_networks.py", "a") as file:
        file.write("\n\n" + "\n".join(lines) + "\n")
    found = sweep(torch.q43, recipe="ptq", **failing, out=tmp_path / "out")
    why = "its training in float32 has failed: AssertionError: float32, too"
    assert [(row["state"], row["reason"]) for row in found.rows()] == [("failed", why)]
    assert why in found.to_csv() and why in found.to_markdown() and why in found.failures.values()
    assert [path.name for path in (tmp_path / "out" / "running").iterdir()] == []
    assert sweep(torch.q43, recipe="ptq", **failing, out=tmp_path / "out").rows() == found.rows()


@pytest.mark.whole
def test_given_weights_are_rounded_without_training(own, tmp_path):
    sys.path.insert(0, str(tmp_path))
    import odd_networks

    torch.manual_seed(5)
    model = odd_networks.Odd()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    found = sweep(
        "q43", recipe="ptq", **{**OWN, "epochs": 0}, weights=tmp_path / "w.pt", out=tmp_path / "out"
    )
    (_, (inputs, labels)) = odd_networks.data()
    right = 100 * (model(inputs).argmax(1) == labels).float().mean().item()
    assert found.groups()[0].baseline.values == [pytest.approx(right)]
    assert found.rows()[0]["state"] == "done" and found.rows()[0]["epochs"] == 0


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_reached_and_the_same_command_goes_on(own, tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch_dtypes",
        "sweep",
        "--model",
        OWN["model"],
        "--data",
        OWN["dataset"],
        "--epochs",
        "2",
        "--out",
        "out",
    ]
    command += ["--format", "posit16es2", "--format", "e8m4"]
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    # The cell in float32, and the first one.
    while len(list((tmp_path / "out").glob("cells/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    os.kill(running.pid, signal.SIGINT)
    output = running.communicate(timeout=60)[0]
    assert running.returncode == 130 and "not done" in output
    assert output.index("Interrupted: ending the cells that run.") < output.index(
        "Interrupted: the same command continues"
    )
    assert len(list((tmp_path / "out").glob("cells/*.json"))) == 2
    went_on = subprocess.run(
        [*command, "--time-limit", "2"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert (
        "2 of 3 cells were done before." in went_on.stdout
        and "[3/3]" in went_on.stdout
        and "not done within 2 s" in went_on.stdout
    )


@pytest.mark.whole
def test_a_second_sweep_in_the_folder_is_refused_and_spoils_nothing(own, tmp_path):
    """Both would run the same cells in the same folders, and each remove the files of the other's
    processes."""
    refused = []

    class Second(Watcher):
        def start(self, done, of):
            again()

    def again():
        with pytest.raises(
            BlockingIOError,
            match="another command works in out; wait for it, or give another --out",
        ) as error:
            torch_dtypes.sweep("q43", out="out", **OWN)
        refused.append(str(error.value))
        result = run(
            "--model", OWN["model"], "--data", OWN["dataset"], "--format", "q43", "--out", "out"
        )
        assert result.exit_code == 1 and f"Error: {refused[0]}" in result.output

    cells = grid.cells_of(
        grid.Axes(("q43",), (OWN["model"],), (OWN["dataset"],)),
        grid.settings_of(epochs=1, lr=0.05, datasets=(OWN["dataset"],)),
    )
    outcomes = go(cells, "out", watcher=Second())
    assert refused and [result["state"] for result in outcomes.values()] == ["done", "done"]
    assert len(go(cells, "out")) == 2, "free again"


def find_children(pid):
    return [
        int(p)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for p in (task / "children").read_text().split()
    ]


@pytest.mark.slow
def test_a_cell_ends_with_whoever_asked_for_it_however_that_ends(own, tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch_dtypes",
        "sweep",
        "--model",
        OWN["model"],
        "--data",
        OWN["dataset"],
        "--format",
        "e8m4",
        "--out",
        "out",
    ]
    asking = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").glob("cells/*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)  # the hanging cell has begun
    (server,) = find_children(asking.pid)
    (hanging,) = find_children(server)
    asking.kill()
    while (is_running(server) or is_running(hanging)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_running(server) and not is_running(hanging)
    assert "Traceback" not in asking.communicate()[1]


@pytest.mark.slow
def test_cells_go_over_a_dask_cluster(own, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra dask")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        found = sweep(
            ["q43", "q52"],
            recipe=["ptq", "all"],
            **OWN,
            out=tmp_path / "out",
            scheduler=cluster.scheduler_address,
        )
    here = sweep(["q43", "q52"], recipe=["ptq", "all"], **OWN)
    assert [{**row, "seconds": 0} for row in found.rows()] == [
        {**row, "seconds": 0} for row in here.rows()
    ]
    assert [row["state"] for row in found.rows()] == ["done", "done", "done", "failed"]


def test_dask_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torch-dtypes\[dask\]'"):
        engines.Dask(Store(tmp_path), "tcp://nowhere:1", None)
