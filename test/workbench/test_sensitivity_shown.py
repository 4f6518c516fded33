"""Outputs of a sensitivity study: tables, figures, the page, the command and its rules."""

import copy
import functools
import io
import json
import math

import pytest
import torch
import yaml
from command_line import command
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from test_sensitivity import FORMATS, batches, compute_loss, network

import torch_dtypes
from torch_dtypes.workbench.sensitivity.choosing import Mixture
from torch_dtypes.workbench.sensitivity.figures import steps_of, unit_of
from torch_dtypes.workbench.sensitivity.layers import Layer
from torch_dtypes.workbench.sensitivity.report import sentences
from torch_dtypes.workbench.sensitivity.results import Sensitivity, Settings
from torch_dtypes.workbench.training.data import load_dataset

# ---- tables and figures ----


def build_result(layers, formats, rise=lambda i, j: 10.0 ** (-(i + j) % 5)):
    """Build a study's result without a run."""
    made = [
        Layer(f"features.{i}.residual.{i}", "Conv2d", ((1000 * (i + 1), 25),))
        for i in range(layers)
    ]
    found = Sensitivity(Settings(tuple(formats)), 1234, made, 0.5)
    found.rises = {
        x.name: {name: rise(i, j) for j, name in enumerate(formats)} for i, x in enumerate(made)
    }
    for j, name in enumerate(formats):
        found.uniform[name] = Mixture(
            dict.fromkeys(found.rises, name), {}, 4.0 + j, 4.0 + j, 0.7, 0.5 + 1 / (j + 1)
        )
    found._trade_off = []
    return found


def test_numbers_of_a_table_are_whole_on_a_narrow_terminal():
    stream = io.StringIO()
    build_result(3, FORMATS).print(Console(file=stream, width=30))
    words = stream.getvalue().split()
    assert {"features.1.residual.1", "25,000", "+1e+04", "weights"} <= set(words)


@pytest.mark.parametrize("width", ["page", "column"])
@pytest.mark.parametrize(
    "layers, formats",
    [
        (1, ["q43"]),
        (21, ["q43", "e5m7", "mxfp4", "int8", "mxfp8_e4m3", "posit16es2", "fp16", "nvfp4"]),
    ],
)
def test_figures_have_nothing_cut_off(layers, formats, width):
    found = build_result(
        layers, formats, lambda i, j: math.inf if i == j == 0 else 10.0 ** -((i + j) % 6)
    )
    for figure in found.figures(width).values():
        renderer, whole = FigureCanvasAgg(figure).get_renderer(), figure.bbox
        for part in (*figure.axes, *figure.legends):
            box = part.get_tightbbox(renderer)
            assert (
                whole.x0 - 1 <= box.x0
                and box.x1 <= whole.x1 + 1
                and whole.y0 - 1 <= box.y0
                and box.y1 <= whole.y1 + 1
            ), part
    cells = {text.get_text() for text in found.heatmap(width).axes[0].texts}
    assert ("not finite" in cells) == (width == "page" or layers == 1) and ("inf" in cells) == (
        width == "column" and layers == 21
    )


def test_the_scale_of_the_heat_map():
    assert (
        steps_of([0.2, -0.1, math.inf]) == [0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3]
        and steps_of([3.0])[-1] == 3.0
    )
    assert (
        steps_of([-1.0, math.inf]) == steps_of([]) == [0, 1]
        and steps_of([1e-9])[-1] == 1e-9
        and steps_of([1e6])[-1] == 1e6
    )
    assert [unit_of(x) for x in (0.3, 1.0, 3.0, 100.0, 300.0, 1000.0, 3e-5)] == [
        1e-3,
        1.0,
        1.0,
        1.0,
        1.0,
        1e3,
        1e-6,
    ]


def test_looking_at_it_runs_nothing():
    found = torch_dtypes.sensitivity(network(), batches(1), ["q43", "mxfp4"])
    runs = found.runs
    assert found._repr_html_().count("<svg") == 2 and found.runs == runs
    assert set(found.figures("column")) == {"heatmap", "tradeoff"} and found.runs > runs


def test_float32_is_a_format_of_32_bits():
    found = torch_dtypes.sensitivity(network(), batches(1), ["float32", "q43"])
    assert found.uniform["float32"].bits == 32 and {
        rises["float32"] for rises in found.rises.values()
    } == {0.0}


def test_a_uniform_format_that_does_better_is_said():
    found = build_result(2, ["q43", "q52"])
    found.mixtures = [
        Mixture(
            dict(zip(found.rises, found.settings.formats, strict=True)),
            {},
            4.5,
            4.5,
            0.9,
            2.0,
            None,
            ("bits", 5.0),
        )
    ]
    said = " ".join(sentences(found))
    assert (
        "At most 5 bits a weight: q43 in features.0.residual.0; q52 in features.1.residual.1. "
        "4.5 bits a weight, loss 2 measured"
    ) in said
    assert said.count("q43 in all layers does better with no more bits.") == 1


# ---- the command ----


run = functools.partial(command, "sensitivity")


SMALL = ("--train-samples", "64", "--test-samples", "40", "--threads", "1")

MODULE = """
from torch import nn


def tiny():
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(196, 20),
        nn.ReLU(),
        nn.Linear(20, 10),
    )
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Write a user's network into the current folder, and its weights."""
    (tmp_path / "tinynet.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import tinynet

    torch.manual_seed(0)
    model = tinynet.tiny()
    torch.save(model.state_dict(), "tiny.pt")
    return model.eval()


def test_command_writes_rules_that_give_what_was_measured(tiny, tmp_path):
    arguments = (
        "--model",
        "tinynet:tiny",
        "--weights",
        "tiny.pt",
        "--calibrate",
        "40",
        "--out",
        "out",
    )
    done = run(
        *SMALL,
        *arguments,
        *(word for name in FORMATS for word in ("--format", name)),
        "--bits",
        "5",
        "--bits",
        "6.5",
    )
    assert done.exit_code == 0, done.output
    assert (
        "Sensitivity of tinynet:tiny on digits to formats" in done.output
        and "The most sensitive layer is" in done.output
    )
    assert (
        "At most 5 bits a weight:" in done.output
        and "measured" in done.output
        and "all layers" in done.output
    )
    written = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {
        f"{name}.{ending}" for name in ("heatmap", "tradeoff") for ending in ("png", "svg", "pdf")
    }
    tables = {"layers.csv", "mixtures.csv", "assignment.csv", "sensitivity.json"}
    assert written == figures | tables | {"sensitivity.html", "rules-5.yaml", "rules-6.5.yaml"}
    page = (tmp_path / "out" / "sensitivity.html").read_text()
    assert page.count("<svg") == 2 and "http://" not in page and "https://" not in page
    assert (
        "torch-dtypes sensitivity --model tinynet:tiny --weights tiny.pt" in page
        and "--bits 6.5" in page
    )
    found = json.loads((tmp_path / "out" / "sensitivity.json").read_text())
    settings = {
        "formats": FORMATS,
        "recipe": "ptq",
        "metric": "loss",
        "seed": 0,
        "accumulate": None,
    }
    assert found["samples"] == 40 and found["settings"] == settings
    data = load_dataset("digits", "data", 64, 40, False)
    images = data.train.batch(torch.arange(40))[0].split(32)
    test = [data.test.batch(torch.arange(40))]
    for made, bits in zip(found["mixtures"], ("5", "6.5"), strict=True):
        path = tmp_path / "out" / f"rules-{bits}.yaml"
        assert yaml.safe_load(path.read_text()) == made["rules"] and made["bits"] <= float(bits)
        rounded = torch_dtypes.quantize_(copy.deepcopy(tiny), path, images)
        assert compute_loss(rounded, test) == made["measured"]
    assert compute_loss(tiny, test) == found["float32"]


def test_command_trains_where_there_are_no_weights(tiny):
    done = run(
        *SMALL,
        "--model",
        "tinynet:tiny",
        "--epochs",
        "1",
        "--format",
        "q43",
        "--layers",
        "nn.Linear",
        "--metric",
        "accuracy",
    )
    assert done.exit_code == 0, done.output
    assert (
        "rise of the error rate" in done.output
        and "Conv2d" not in done.output
        and "written" not in done.output
    )


def test_command_refuses_a_network_that_rounds_already(tiny, monkeypatch):
    import tinynet

    monkeypatch.setattr(
        tinynet,
        "rounding",
        lambda: torch_dtypes.quantize_(tinynet.tiny(), {"3": {"weight": "q43"}}),
        raising=False,
    )
    done = run(*SMALL, "--model", "tinynet:rounding", "--format", "q43")
    assert (
        done.exit_code == 1 and "'3' rounds by a rule: call torch_dtypes.dequantize_" in done.output
    )


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "--format"),
        (("--format", "q34"), "q43"),
        (("--format", "q43", "--format", "q43"), "differ, but got q43 twice"),
        (
            ("--format", "q43", "--bits", "4"),
            "at least 8 bits a weight, the fewest of these formats, but got 4",
        ),
        (("--format", "q43", "--bits", "0"), "above 0"),
        (("--format", "q43", "--layers", "head"), "match a module, but got 'head'"),
        (("--format", "q43", "--calibrate", "9"), "--calibrate with --recipe ptq and integers"),
        (
            ("--format", "int8", "--recipe", "weights", "--calibrate", "9"),
            "--calibrate with --recipe ptq and integers",
        ),
        (("--format", "q43", "--recipe", "qat"), "qat"),
        (("--format", "q43", "--metric", "speed"), "speed"),
        (("--format", "q43", "--momentum", "0.5"), "--optimizer sgd"),
        (("--format", "q43", "--data-dir", "x"), "--dataset of files"),
        (
            ("--format", "mxfp4_nopad", *SMALL),
            "Error: weight of 'features.0' (rule 'features.0'): expected whole blocks of 32",
        ),
        (("--format", "q43", "--out", "/proc/none"), "cannot write"),
    ],
)
def test_command_errors(arguments, words):
    done = run(*arguments)
    assert done.exit_code == 2 or (
        done.exit_code == 1 and isinstance(done.exception, SystemExit)
    ), done.output
    assert words in done.output


def test_command_says_where_scipy_is_from_before_it_trains(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    done = run(*SMALL, "--format", "q43", "--bits", "8")
    assert (
        done.exit_code == 1
        and "needs scipy" in done.output
        and "torch-dtypes[train]" in done.output
    )
