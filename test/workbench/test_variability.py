"""Variability studies: estimators of digits, delta debugging, the study of a network, the
command."""

import csv
import functools
import io
import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import command
from rich.console import Console
from scipy.stats import binom
from torch import nn

import torch_dtypes
from torch_dtypes.formats.naming import PYCHOP_MODES
from torch_dtypes.workbench.training.models import build_model
from torch_dtypes.workbench.variability.delta import Search, responsible
from torch_dtypes.workbench.variability.report import sentences
from torch_dtypes.workbench.variability.results import Layer, Metric, Settings, Variability
from torch_dtypes.workbench.variability.spreads import minimum_dice

digits = torch_dtypes.significant_digits
_DRAWING = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "harmonic.py"))
harmonic, harmonic_figure = _DRAWING["harmonic"], _DRAWING["harmonic_figure"]


def uniform(n):
    """Return n numbers spread evenly over 1 - 1e-3 to 1 + 1e-3, in random order."""
    return (1 + 1e-3 * torch.linspace(-1, 1, n, dtype=torch.float64))[
        torch.randperm(n, generator=torch.Generator().manual_seed(0))
    ]


@pytest.mark.parametrize("n", [2, 10, 59, 93, 200, 1000])
def test_nonparametric_against_closed_forms(n):
    found = digits(uniform(n), reference=1.0)
    assert found.samples == n and found.confidence == 0.95
    if n < 59:  # all agree, for the probability of so few samples
        assert found.probability == pytest.approx(
            0.05 ** (1 / n)
        ) and found.decimal == pytest.approx(3)
        return
    assert found.probability == 0.95
    kept = next(k for k in range(1, n + 1) if binom.cdf(k - 1, n, 0.95) >= 0.95)
    assert kept <= n if n < 93 else kept < n  # from 93 samples on, one may disagree
    distance = sorted((uniform(n) - 1).abs().tolist())[kept - 1]
    assert found.decimal.item() == pytest.approx(
        -math.log10(distance)
    ) and found.bits.item() == pytest.approx(-math.log2(distance))


@pytest.mark.parametrize("n", [12, 59, 150])
def test_nonparametric_against_significantdigits(n):
    other = pytest.importorskip("significantdigits", reason="needs the package significantdigits")
    x = 1 + 1e-4 * torch.randn(
        n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(n)
    )
    found = digits(x, reference=1.0)
    theirs = other.significant_digits(
        x.numpy(),
        reference=np.ones(6),
        axis=0,
        method=other.Method.General,
        error=other.Error.Relative,
        probability=found.probability,
        confidence=0.95,
    )
    if n < 93:  # the reference has whole bits, and counts all samples
        assert found.bits.floor().tolist() == theirs.tolist()
    else:
        assert (found.bits.numpy() >= theirs).all() and (found.bits.numpy() < theirs + 2.5).all()


def test_classic_against_the_formula():
    x = 5 + 1e-3 * torch.randn(
        40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    found = digits(x, method="classic")
    expected = [
        -math.log10(np.std(x[:, i].numpy(), ddof=1) / abs(np.mean(x[:, i].numpy())))
        for i in range(3)
    ]
    assert found.decimal.tolist() == pytest.approx(expected) and found.probability is None
    assert torch.allclose(found.mean, x.mean(0)) and torch.allclose(found.deviation, x.std(0))


@pytest.mark.parametrize("method", ["nonparametric", "classic"])
def test_digits_at_the_edges(method):
    all_bits = 24.0
    for samples, bits in (
        ([0.0, 0.0], all_bits),
        ([0.1, 0.1, 0.1], all_bits),
        ([-1.0, 1.0], 0.0),
        ([1.0, 100.0, -50.0], 0.0),
    ):
        assert digits(samples, method=method).bits == bits
    for samples in ([1.0, math.nan], [math.inf, math.inf], [1.0, -math.inf]):
        assert digits(samples, method=method).bits.isnan()
    assert (
        digits([1.0, 1.0 + 2**-40], method=method, digits=53).bits > 30
        and digits([1.0, 1.0 + 2**-40], method=method).bits == all_bits
    )


def test_digits_against_a_reference():
    assert digits([1.0, 1.0], reference=1.001).decimal.item() == pytest.approx(
        -math.log10(0.001 / 1.001)
    )
    assert (
        digits([0.0, 1e-30], reference=0.0).bits == 0
        and digits([0.0, 0.0], reference=0.0).bits == 24
    )
    assert digits([1.0, 1.0], reference=math.nan).bits.isnan()
    assert digits(torch.ones(4, 3), reference=torch.tensor([1.0])).bits.tolist() == [24, 24, 24]


@pytest.mark.parametrize(
    "samples, options, words",
    [
        ([1.0], {}, "at least two samples"),
        (torch.tensor(1.0), {}, "at least two samples"),
        ([1.0, 2.0], {"method": "median"}, "nonparametric, classic"),
        ([1.0, 2.0], {"probability": 1.0}, "probability between 0 and 1"),
        ([1.0, 2.0], {"confidence": 0}, "confidence between 0 and 1"),
        ([1.0, 2.0], {"method": "classic", "reference": 1.0}, "no reference"),
        ([1.0, 2.0], {"digits": -1}, "digits from 1 to 64, but got -1"),
        ([1.0, 2.0], {"digits": 10**30}, "digits from 1 to 64"),
        ([1.0, 2.0], {"digits": math.inf}, "an integer for digits"),
        ([1.0, 2.0], {"reference": torch.tensor([1 + 2j])}, "a reference of real numbers"),
        ([1.0, 2.0], {"reference": "1,0"}, "of real numbers"),
        (
            torch.ones(4, 3),
            {"reference": torch.ones(2)},
            r"broadcasts over results of shape \(3,\), but got \(2,\)",
        ),
        (
            torch.ones(4, 3),
            {"reference": torch.ones(4, 3)},
            r"over results of shape \(3,\), but got \(4, 3\)",
        ),
    ],
)
def test_digits_errors(samples, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        digits(samples, **options)


@pytest.mark.parametrize(
    "causes", [[{3, 7}, {12}], [{0}], [set(range(16))], [{1, 2, 14}], [{15}, {0}, {5, 6}], []]
)
def test_delta_debugging_finds_the_smallest_sets(causes):
    asked = []

    def fails(items):
        asked.append(frozenset(items))
        return any(cause <= set(items) for cause in causes)

    search = Search(fails)
    found = responsible(range(16), search)
    assert sorted(map(sorted, found)) == sorted(map(sorted, causes))
    assert len(asked) == len(set(asked)) == search.runs  # nothing runs twice


def test_minimum_dice():
    a, b = torch.tensor([[0, 0, 1], [1, 2, 2]]), torch.tensor([[0, 0, 1], [1, 1, 2]])
    # Label 2: 2 * 1 / (2 + 1).
    assert minimum_dice([a, a, a]) == 1 and minimum_dice([a, b]) == pytest.approx(2 / 3)
    # The second map has no label 1.
    assert minimum_dice([torch.tensor([0, 1]), torch.tensor([0, 0])]) == 0


def test_harmonic_series():
    """Past 2^21 terms float32 stands still. Stochastic rounding follows float64. Up-down rounding
    stays, with the larger variance."""
    found = harmonic(8000, runs=16, points=5, first=1 << 22, seed=1)
    last = {mode: x[:, -1] for mode, x in found.sums.items()}
    grown = (found.exact[-1] - found.exact[0]).item()
    assert (last["nearest_even"] == found.sums["nearest_even"][:, 0]).all() and grown > 1.8e-3
    deviation = {mode: x.std().item() for mode, x in last.items() if len(x) > 1}
    assert (
        abs(last["stochastic"].mean() - found.exact[-1]).item()
        < 4 * deviation["stochastic"] / 4 + 1e-6
    )
    assert abs(last["up_down"].mean() - last["nearest_even"]).item() < 4 * deviation["up_down"] / 4
    assert 4 * deviation["stochastic"] < grown  # separates the two modes
    assert 0 < deviation["stochastic"] ** 2 < deviation["up_down"] ** 2
    # Each step adds the variance of one rounding: stochastically u^2 p (1 - p), with p = (1/i) / u;
    # up-down u^2.
    u, i = 2.0**-20, torch.arange(1 << 22, (1 << 22) + 8000, dtype=torch.float64)
    p = 1 / i / u
    assert deviation["stochastic"] ** 2 == pytest.approx(
        (u * u * p * (1 - p)).sum().item(), rel=1.2
    )
    assert deviation["up_down"] ** 2 == pytest.approx(8000 * u * u, rel=1.2)
    assert len(harmonic_figure(found).axes) == 2


def test_harmonic_float32_is_a_loops():
    found = harmonic(3000, runs=2, points=20)
    sums = np.cumsum(np.float32(1) / np.arange(1, 3001, dtype=np.float32), dtype=np.float32)
    assert found.sums["nearest_even"][0].tolist() == sums[found.terms - 1].tolist()
    assert torch.allclose(
        found.exact, torch.from_numpy(np.cumsum(1 / np.arange(1.0, 3001)))[found.terms - 1]
    )


class Cancels(nn.Module):
    """Return x after adding and subtracting a large number, so that few digits are left."""

    def forward(self, x):
        return (x + 4096.0) - 4096.0


def culprit():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), Cancels(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )


def batches(n=40):
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 6, generator=g), torch.randint(0, 3, (n,), generator=g)) for _ in range(2)
    ]


def test_a_study_finds_the_module_that_cancels(tmp_path):
    model, stages = culprit().train(), []
    found = torch_dtypes.variability(
        model, batches(), repeats=4, on_run=lambda what, total: stages.append((what, total))
    )
    assert (
        found.responsible == [["2"]]
        and found.deterministic
        and found.runs == len(stages)
        and model.training
    )
    parts = {p.name: p for p in found.parts}
    # ReLU rounds nothing, and the model itself computes nothing.
    assert set(parts) == {"0", "1", "2", "3", "5"}
    assert parts["2"].fails and parts["2"].digits < 5 < parts["0"].digits and not parts["0"].fails
    layers = {x.name: x for x in found.layers}
    assert layers["1"].median > 6 > layers["2"].median > 2
    assert [m.name for m in found.metrics] == ["loss", "accuracy"] and found.metrics[
        0
    ].nonparametric.samples == 4
    assert stages.count(("repeats", 4)) == 4 and 0.9 < found.dice <= 1
    written = {path.name for path in found.write(tmp_path, "torch-dtypes variability")}
    assert {
        "variability.html",
        "variability.json",
        "metrics.csv",
        "layers.csv",
        "modules.csv",
        "layers.png",
        "modules.svg",
        "modules.pdf",
    } <= written
    page = (tmp_path / "variability.html").read_text()
    assert (
        "Responsible: 2." in page
        and "http://" not in page
        and "https://" not in page
        and page.count("<svg") == 2
    )
    data = json.loads((tmp_path / "variability.json").read_text())
    assert data["responsible"] == [["2"]] and len(data["metrics"][0]["values"]) == 4
    rows = list(csv.reader((tmp_path / "modules.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[1][0] == "2" and rows[1][-1] == "yes"
    assert "svg" in found._repr_html_() and set(found.figures("column")) == {"layers", "modules"}


def test_numbers_of_a_table_are_whole_on_a_narrow_terminal():
    stream = io.StringIO()
    metrics = [
        Metric(
            "loss",
            2.0771200234,
            [2.0, 2.1],
            digits([2.0, 2.1]),
            digits([2.0, 2.1], method="classic"),
        )
    ]
    Variability(
        Settings(),
        "inference",
        40,
        metrics,
        [Layer("a.module.with.a.name", "Linear", 1_234_567, 1.0, 2.0, 3.0, 4.0)],
    ).print(Console(file=stream, width=30))
    words = stream.getvalue().split()
    assert {"2.07712002", "1,234,567", "deviation"} <= set(
        words
    ) and "a.module.with.a.name" not in words


def test_a_study_of_numbers_and_of_nothing_to_find():
    g = torch.Generator().manual_seed(1)
    data = [(torch.randn(5, 6, generator=g), torch.randn(5, 3, generator=g))]
    found = torch_dtypes.variability(culprit(), data, repeats=3, tolerance=0.5, metric="loss")
    assert (
        found.responsible == []
        and found.dice is None
        and [m.name for m in found.metrics] == ["loss"]
    )
    exact = torch_dtypes.variability(
        nn.Sequential(nn.ReLU()), [(torch.ones(3, 4), torch.ones(3, 4))], repeats=2
    )
    assert exact.parts == [] and exact.metrics[0].nonparametric.bits == 24 and exact.deviation == 0


def test_what_no_module_rounds_is_told_from_what_all_do_together(capsys):
    """In bfloat16 the loss's own rounding outweighs that of the modules, so all of them may be
    within the tolerance."""
    found = torch_dtypes.variability(
        nn.Sequential(nn.ReLU()),
        batches(),
        repeats=4,
        metric="loss",
        format="bf16",
        tolerance=1e-3,
        criterion=large,
    )
    found.print(Console(width=200))
    said = capsys.readouterr().out
    assert found.responsible == [] and found.deviation > found.tolerance
    assert (
        "all together stay within the tolerance in 3 runs. The rest comes from rounding "
        "outside of modules"
    ) in " ".join(said.split())


def large(outputs, labels):
    return outputs.square().sum() + 1000.0


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.rand(())


def test_what_is_not_deterministic_is_said(capsys):
    found = torch_dtypes.variability(
        nn.Sequential(nn.Linear(6, 3), Draws()), batches(), repeats=2, where=False
    )
    assert not found.deterministic and found.parts == []
    found.print()
    assert "NOT the same" in capsys.readouterr().out


@pytest.mark.parametrize(
    "mode, draws", [("nearest_even", False), ("stochastic_a4", True), ("up_down", True), (1, False)]
)
def test_no_probability_is_quoted_of_a_mode_that_draws_nothing(mode, draws):
    found = torch_dtypes.variability(nn.Linear(6, 3), batches(), repeats=2, where=False, mode=mode)
    words = " ".join(sentences(found))
    assert ("with probability" in words) == draws and ("draws nothing" in words) != draws


@pytest.mark.parametrize(
    "settings, error, words",
    [
        ({"repeats": 1}, ValueError, "repeats of at least 2"),
        ({"metric": "speed"}, ValueError, "distance, loss, accuracy"),
        ({"mode": "random"}, ValueError, "rounding mode"),
        ({"tolerance": -1.0}, ValueError, "tolerance"),
        ({"format": "e9"}, ValueError, "e9"),
        ({"probability": 2}, ValueError, "between 0 and 1"),
        ({"repeat": 3}, TypeError, "repeat"),
    ],
)
def test_settings_are_looked_at_first(settings, error, words):
    with pytest.raises(error, match=words):
        torch_dtypes.variability(culprit(), batches(), **settings)
    with pytest.raises(ValueError, match="inputs and targets"):
        torch_dtypes.variability(culprit(), [torch.randn(3, 6)])


run = functools.partial(command, "variability")


SMALL = ("--train-samples", "64", "--test-samples", "20", "--threads", "1")


@pytest.mark.whole
def test_command_on_weights(tmp_path):
    torch.manual_seed(0)
    model = build_model("lenet5", 1)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    done = run(
        *SMALL,
        "--weights",
        str(tmp_path / "weights.pt"),
        "--repeats",
        "3",
        "--where-repeats",
        "1",
        "--out",
        str(tmp_path / "out"),
    )
    assert done.exit_code == 0, done.output
    assert (
        "Responsible:" in done.output
        and "classifier.3" in done.output
        and "same to the last bit" in done.output
    )
    page = (tmp_path / "out" / "variability.html").read_text()
    assert "torch-dtypes variability --weights weights.pt" in page and "lenet5 on digits" in page
    data = json.loads((tmp_path / "out" / "variability.json").read_text())
    assert (
        data["what"] == "inference" and data["samples"] == 20 and data["settings"]["repeats"] == 3
    )


def test_modules_keep_their_own_modes():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    torch_dtypes.variability(
        model, [(torch.randn(8, 4), torch.randint(2, (8,)))], repeats=2, where=False
    )
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_command_repeats_a_training():
    number = next(str(n) for n, name in PYCHOP_MODES.items() if name == "stochastic")
    done = run(*SMALL, "--training", "--repeats", "2", "--no-where", "--mode", number)
    assert done.exit_code == 0, done.output
    assert "Training repeated 2 times" in done.output and "training loss" in done.output


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--repeats", "1"), "2"),
        (("--data-dir", "there"), "expected --data-dir with a --dataset of files"),
        (("--mode", "99"), "Pychop"),
        (("--mode", "random"), "stochastic"),
        (("--format", "posit65es2"), "nbits from 2 to 64"),
        (("--tolerance", "-1"), "at least 0"),
        (("--format", "posit32es2"), "values float32 has"),
        (("--no-where", "--tolerance", "1"), "--no-where leaves out"),
        (
            ("--format", "q43_stochastic", "--mode", "up"),
            "expected one rounding mode, but got up, and stochastic in the name q43_stochastic",
        ),
        (
            ("--format", "q43_down"),
            "expected one rounding mode, but got stochastic, and down in the name q43_down",
        ),
        (("--model", "lenet"), "lenet5"),
        (("--weights", "nowhere.pt"), "nowhere.pt"),
        (("--probability", "1"), "between 0 and 1"),
        (("--momentum", "0.5"), "--optimizer sgd"),
        (("--out", "/proc/none"), "cannot write"),
        (("--data", "nowhere:load"), "nowhere"),
    ],
)
def test_command_errors(arguments, words):
    done = run(*arguments)
    assert done.exit_code == 2 or (
        done.exit_code == 1 and isinstance(done.exception, SystemExit)
    ), done.output
    assert words in done.output


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"seed": 2**63 - 1},
            ValueError,
            "expected seed from 0 to 9223344366821, but got 9223372036854775807",
        ),
        (
            {"fused": "no"},
            TypeError,
            "expected True or False for fused, but got 'no'",
        ),
        (
            {"probability": None},
            TypeError,
            "expected a number between 0 and 1 for probability, but got None",
        ),
    ],
)
def test_settings_out_of_range_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        torch_dtypes.variability(
            torch.nn.Linear(2, 2),
            [(torch.ones(2, 2), torch.zeros(2).long())],
            repeats=2,
            progress=False,
            **settings,
        )


def test_metrics_of_the_user():
    def shares(output, labels):
        return torch.bincount(output.argmax(1), minlength=3).double() / len(labels)

    found = torch_dtypes.variability(
        culprit(),
        batches(),
        metrics={"margin": lambda output, _: output.max().item(), "dice": "dice", "share": shares},
        repeats=3,
        metric="margin",
    )
    exact = culprit().eval()(torch.cat([x for x, _ in batches()])).detach()
    metrics = {m.name: m for m in found.metrics}
    assert metrics["margin"].exact == exact.max().item() and found.responsible == [["2"]]
    assert (
        0 < metrics["margin"].nonparametric.decimal < 6 and len(set(metrics["margin"].values)) > 1
    )
    right = exact.argmax(1)
    labels = torch.cat([t for _, t in batches()])
    for c in range(3):
        a, b = right == c, labels == c
        assert metrics[f"share {c}"].exact == a.double().mean()
        if a.any():
            assert (
                metrics[f"dice {c}"].exact == 2 * (a & b).sum().item() / (a.sum() + b.sum()).item()
            )
    for metrics, error, words in (
        ("dice", TypeError, "put it into a list"),
        (["f1"], ValueError, "the nearest are|there are"),
        ([3], TypeError, "functions of output and targets"),
        ([lambda output, _: output], TypeError, "one-dimensional"),
    ):
        with pytest.raises(error, match=words):
            torch_dtypes.variability(culprit(), batches(), metrics=metrics, repeats=2)


@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.whole)]
)
def test_digits_are_the_outputs_own(dtype):
    data = [(x.to(dtype), labels) for x, labels in batches()]
    found = torch_dtypes.variability(culprit().to(dtype), data, repeats=2, where=False)
    bits = {torch.float64: 53, torch.bfloat16: 8}[dtype]
    assert found.bits == bits and found.deterministic and not found.unseen
    layers = {x.name: x.low for x in found.layers}
    assert bits * 0.31 > layers["1"] > layers["2"] and layers["1"] > bits * 0.3 - 2


@pytest.mark.whole
def test_digits_by_epoch_and_by_parameter(tmp_path):
    done = run(*SMALL, *"--training --epochs 2 --repeats 2 --no-where --out".split(), str(tmp_path))
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "variability.json").read_text())
    assert [e["epoch"] for e in data["epochs"]] == [1, 2] and len(data["parameters"]) == 10
    last = {m["name"]: m["exact"] for m in data["epochs"][-1]["metrics"]}
    final = {m["name"]: m["exact"] for m in data["metrics"]}
    assert last["training loss"] == final["training loss"]
    assert last["loss"] == pytest.approx(final["loss"]) and last["accuracy"] == final["accuracy"]
    assert all(0 < x["median"] < 7.3 for x in data["parameters"])
    page = (tmp_path / "variability.html").read_text()
    assert page.count("<svg") == 3 and "features.0.weight" in page
