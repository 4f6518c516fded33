"""``torch-dtypes train --observe``: files, the report's sections, and a run with the same figures
as without it."""

import dataclasses
import functools
import json

import pytest
import torch

pytest.importorskip("click")
pytest.importorskip("matplotlib")

from click.testing import CliRunner
from train_command import few_cell, figures

from torch_dtypes import Statistics, cli
from torch_dtypes.workbench.sweeps.work import work
from torch_dtypes.workbench.training.loop import Training
from torch_dtypes.workbench.training.observing import Observed, sentence
from torch_dtypes.workbench.training.records import Config


def test_an_observed_run_has_the_figures_of_the_same_run(few_digits):
    plain = Training(Config(epochs=2), few_digits, torch.posit16es2, 0)
    plain.go()
    observed = Training(Config(epochs=2), few_digits, torch.posit16es2, 0)
    observations = Observed(["posit16es2"])
    observed.observed = lambda: observations.epoch(observed, "all")
    run = observed.go()
    assert figures(run) == figures(plain.run)
    assert all(
        torch.equal(a.double(), b.double())
        for a, b in zip(plain.model.parameters(), observed.model.parameters(), strict=True)
    )
    assert sentence(run, observations.state()).startswith("posit16es2 seed 0, epoch 2: ")
    stats = Statistics.from_json(observations.state())
    assert observations.state()["epoch"] == 2
    assert stats["classifier.3", "forward", "posit16es2"].elements == 70 * 10
    assert stats["classifier.3", "updates", "posit16es2"].compared == 3 * 850


@pytest.mark.whole
def test_files_and_sections(tmp_path):
    device = torch.empty(0).device.type  # the device of the tests
    options = (
        "--dataset digits --train-samples 20 --test-samples 20 --epochs 1 --dtype q43 --observe "
        f"--observe-format nvfp4 --threads 1 --device {device}"
    ).split()
    result = CliRunner().invoke(cli.group(), ["train", *options, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for run in ("float32", "q43"):
        data = json.loads((tmp_path / f"rounding_{run}_seed0.json").read_text())
        stats = Statistics.from_json(data)
        formats = ["nvfp4", "q43"] if run == "float32" else ["q43"]
        assert (data["run"], data["epoch"], stats.formats()) == (f"{run} seed 0", 1, formats)
        assert f"{run} seed 0, epoch 1: {stats.worst()}" in result.output
        assert (
            (tmp_path / f"rounding_{run}_seed0.csv")
            .read_text()
            .startswith("layer,pass,format,elements,overflow")
        )
        assert (tmp_path / f"rounding_{run}_seed0_q43.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert page.count("Effects of rounding: ") == 2
    assert page.count("<svg") == 6 and "clipped blocks" in page
    assert (tmp_path / "rounding_float32_seed0_nvfp4_scales.png").exists()
    result = CliRunner().invoke(cli.group(), ["train", "--observe-format", "nvfp4"])
    assert result.exit_code == 2 and "expected --observe with --observe-format" in result.output


@pytest.mark.parametrize("name", ["posit16es2", "float32"])
def test_an_epoch_that_was_interrupted_is_counted_whole(name, tmp_path):
    cell = few_cell(name, epochs=2, observe=("posit16es2",))

    def counts(stops, folder):
        """Return the counts of a run that stops after each number of steps and continues in another
        process."""
        folder.mkdir()
        for stop in stops:
            asked = iter([False] * (stop - 1) + [True])
            assert (
                work(cell, folder, None, should_stop=functools.partial(next, asked, False)) is None
            )
        observed = work(cell, folder, None)["observed"]
        assert observed["epoch"] == 2
        return Statistics.from_json(observed)

    # 3 steps an epoch: stop twice within the second one.
    whole, resumed = counts([], tmp_path / "whole"), counts([4, 1], tmp_path / "resumed")
    assert list(whole) == list(resumed)
    for key, expected in whole.items():
        found = dataclasses.asdict(resumed[key])
        for name, count in dataclasses.asdict(expected).items():
            assert found[name] == (
                pytest.approx(count) if name in ("signal", "noise") else count
            ), (key, name)
