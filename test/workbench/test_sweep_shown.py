"""Outputs of ``torch-dtypes sweep``: tables in every form, the heat map, files of outcomes."""

import csv
import io
import itertools
import json
from dataclasses import replace

import pytest
from sweeps import cell

from torch_dtypes.workbench.sweeps import grid
from torch_dtypes.workbench.sweeps.cells import Settings
from torch_dtypes.workbench.sweeps.store import Store
from torch_dtypes.workbench.sweeps.sweeping import Sweep
from torch_dtypes.workbench.sweeps.work import outcome


def example():
    """Build a sweep of two formats by two modes and two seeds, with a failure, a divergence and a
    missing cell."""
    axes = grid.Axes(
        ("q43", "bf16"), roundings=("nearest_even", "up"), recipes=("ptq",), seeds=(0, 1)
    )
    cells = grid.cells_of(axes, Settings())
    results = {}
    accuracies = iter([90.0, 91.0, 10.0, None, 90.5, 91.5])  # q43 nearest, up; bf16 nearest
    for c in cells[:6]:
        accuracy = next(accuracies)
        results[c.key] = {**outcome(c, "done"), "accuracy": accuracy, "loss": 0.5}
        if accuracy is None:
            results[c.key] = outcome(
                c, "failed", "its process was ended by SIGKILL", ["last | line"]
            )
    results[cells[6].key] = outcome(
        cells[6], "diverged", "0.weight was the first tensor & not finite"
    )
    for base, accuracy in zip(grid.with_bases(cells)[:2], (90.5, 91.5), strict=True):
        results[base.key] = {**outcome(base, "done"), "accuracy": accuracy, "loss": 0.4}
    return Sweep(cells, results, {"digits": 12.0})


def test_tables_in_every_form(tmp_path):
    found = example()
    assert found.table() == [
        {
            "model": "lenet5",
            "dataset": "digits",
            "recipe": "ptq",
            "accumulate": "machine",
            "format": "q43",
            "bits stored": "8",
            "bits moved": "8",
            "product bits": "8",
            "nearest_even": "90.50 ± 0.71 (-0.50)",
            "up": "10.00 (-80.50), failed 1 of 2",
        },
        {
            "model": "lenet5",
            "dataset": "digits",
            "recipe": "ptq",
            "accumulate": "machine",
            "format": "bf16",
            "bits stored": "16",
            "bits moved": "16",
            "product bits": "16",
            "nearest_even": "91.00 ± 0.71 (+0.00)",
            "up": "diverged 1 of 2, 1 not done",
        },
    ]
    rows = list(csv.DictReader(io.StringIO(found.to_csv(tmp_path / "r.csv"))))
    assert (
        len(rows) == 8
        and rows[0]["gap"] == "-0.5"
        and rows[3]["reason"] == "its process was ended by SIGKILL"
        and rows[7]["state"] == "not done"
    )
    markdown = found.to_markdown()
    assert "| q43 | 8 | 8 | 8 | 90.50 ± 0.71 (-0.50) | 10.00 (-80.50), failed 1 of 2 |" in markdown
    assert "float32's 91.00 ± 0.71; a guess has 12.0." in markdown
    assert (
        "q43 up: its process was ended by SIGKILL; bf16 up: 0.weight was the first tensor & not "
        "finite."
    ) in markdown
    latex = found.to_latex()
    assert (
        r"q43 & 8 & 8 & 8 & 90.50 $\pm$ 0.71 (-0.50) &" in latex
        and r"nearest\_even" in latex
        and r"tensor \& not finite" in latex
    )
    # Of accuracies and of losses
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert r"q43 & 0.5000 $\pm$ 0.0000 & 0.5000 \\" in latex
    found.to_json(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == found.rows()
    assert repr(found) == "<Sweep of 8 cells, 7 with an outcome, 2 failed or diverged>"


def test_counts_are_of_what_was_asked_for():
    """One cell of rounding after training, whose training in float32 failed: it counts 1 failure of
    1 cell, and 1 training."""
    cells = grid.cells_of(grid.Axes(("q43",), recipes=("ptq",)), Settings())
    base = cells[0].base
    failed = {c.key: outcome(c, "failed", "for a test") for c in (cells[0], base)}
    lost = (
        "<Sweep of 1 cell, 1 with an outcome, 1 failed or diverged; of 1 training in float32 "
        "for them, 1>"
    )
    assert repr(Sweep(cells, failed)) == lost
    assert (
        repr(Sweep([base], failed)) == "<Sweep of 1 cell, 1 with an outcome, 1 failed or diverged>"
    )
    assert repr(Sweep(cells, {})) == "<Sweep of 1 cell, 0 with an outcome, 0 failed or diverged>"
    done = Sweep(
        cells,
        {c.key: {**outcome(c, "done"), "accuracy": 90.0, "loss": 0.5} for c in (cells[0], base)},
    )
    assert "1 of 1 cell is done; 7 epochs" in done.report().html()


@pytest.mark.parametrize("width", ["page", "column"])
def test_heat_map(width):
    from matplotlib.patches import Rectangle

    figure = example().heatmap(width)
    axes = next(a for f in (figure, *figure.subfigs) for a in f.axes if a.images)
    shown = axes.images[0].get_array()
    assert (
        shown[0, 0] == 0.5
        and shown[0, 1] == 80.5
        and shown.mask.tolist() == [[False, False], [False, True]]
    )
    assert {t.get_text() for t in axes.texts} >= {"-0.50", "(a)", "+0.00", "(b)"}
    assert any("float32 91.0 %, guess 12.0 %, mean of 2 seeds" in t.get_text() for t in axes.texts)
    hatched = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_hatch()]
    assert [(p.get_x(), p.get_y()) for p in hatched] == [(0.5, -0.5), (0.5, 0.5)]
    strip = " ".join(t.get_text() for f in figure.subfigs for t in f.texts)
    assert "(a) its process was ended by SIGKILL" in strip and "(b) 0.weight was the first" in strip
    # 10 % is no better than a guess
    assert (
        sum(p.get_linestyle() not in ("-", "solid") for p in axes.patches if not p.get_hatch()) == 1
    )
    # Darker is worse, also in grey.
    colours = [axes.images[0].cmap(axes.images[0].norm(g)) for g in (0.05, 0.2, 0.5, 2, 5, 20, 50)]
    greys = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b, _ in colours]
    assert all(a - b > 0.04 for a, b in itertools.pairwise(greys))


@pytest.mark.parametrize(
    ("name", "recipe", "settings", "cost"),
    [
        ("q43", "all", {}, (8, 8, 8)),
        ("posit16es2", "master", {}, (32, 16, 24)),
        ("q52", "master", {"master": "bf16"}, (16, 8, 6)),
        ("q52", "master", {"master": "none"}, (8, 8, 6)),
        ("nvfp4", "mixed", {}, (32, 4.5, 4)),
        ("mxfp8_e4m3", "ptq", {}, (8.25, 8.25, 8)),
        ("int8", "qat", {}, (32, 8, 16)),
        ("bf16", "weights", {}, (16, 24, 32)),
    ],
)
def test_costs_in_bits(name, recipe, settings, cost):
    own = replace(cell(), format=name, recipe=recipe, settings=replace(cell().settings, **settings))
    (row,) = Sweep([own], {}).rows()
    assert (row["bits_stored"], row["bits_moved"], row["product_bits"]) == cost


def test_costs_of_a_file_of_rules_are_unknown():
    own = replace(cell(), recipe="mixed", settings=replace(cell().settings, rules="rules.yaml"))
    done = {**outcome(own, "done"), "accuracy": 90.0, "loss": 0.5}
    found = Sweep([own], {own.key: done})
    assert found.rows()[0]["bits_moved"] is None and found.table()[0]["bits moved"] == ""
    with pytest.raises(ValueError, match="expected a cell that is done, of a format by its name"):
        found.pareto()
    assert "pareto" not in found.figures()


@pytest.mark.parametrize("width", ["page", "column"])
def test_pareto_figure(width):
    axes = grid.Axes(("q43", "bf16", "nvfp4", "fp16"), recipes=("ptq",))
    cells = grid.cells_of(axes, Settings())
    results = {
        c.key: {**outcome(c, "done"), "accuracy": accuracy, "loss": 0.5}
        for c, accuracy in zip(cells, (90.0, 91.0, 60.0, 89.0), strict=True)
    }
    base = cells[0].base
    results[base.key] = {**outcome(base, "done"), "accuracy": 91.5, "loss": 0.4}
    (drawn,) = Sweep(cells, results).pareto(width).axes
    line, baseline = drawn.lines
    # fp16 has more bits than q43, and is worse.
    assert line.get_xydata().tolist() == [[4.5, 60], [8, 90], [16, 91]]
    assert list(baseline.get_ydata()) == [91.5, 91.5]
    assert [t.get_text() for t in drawn.get_legend().get_texts()] == [
        "ptq",
        "float32",
        "nvfp4",
        "q43",
        "fp16",
        "bf16",
    ]


def test_files_of_a_sweep(tmp_path):
    written = example().write(tmp_path, "torch-dtypes sweep --format q43")
    assert {p.name for p in written} == {
        "results.csv",
        "results.json",
        "results.md",
        "results.tex",
        "heatmap.png",
        "heatmap.svg",
        "heatmap.pdf",
        "pareto.png",
        "pareto.svg",
        "pareto.pdf",
        "report.html",
    }
    html = (tmp_path / "report.html").read_text()
    assert (
        "torch-dtypes sweep --format q43" in html
        and "SIGKILL" in html
        and "<svg" in html
        and "http" not in html.replace("http-equiv", "")
    )


def test_a_damaged_outcome_names_its_file(tmp_path):
    store = Store(tmp_path)
    store.open()
    store.outcome_path(cell()).write_text("{")
    with pytest.raises(ValueError, match=f"could not read .*{cell().key}.json"):
        store.read(cell())
    other = replace(cell(), seed=4)
    store.write(other, outcome(other, "failed", "for a test"))
    assert (
        store.read(other)["reason"] == "for a test"
        and [p.name for p in tmp_path.glob("cells/*.partial")] == []
    )
