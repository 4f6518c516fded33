"""``torch-dtypes solve``: matrices, cells, tables, the heat map, files and errors."""

import csv
import json
import math

import pytest
import torch
from command_line import command

from torch_dtypes import linalg
from torch_dtypes.workbench import solve
from torch_dtypes.workbench.solving.heatmap import heatmap_figure
from torch_dtypes.workbench.solving.systems import find_systems

pytest.importorskip("rich", reason="the command line needs rich")
pytest.importorskip("matplotlib", reason="the figures need matplotlib")

SINGULAR = """%%MatrixMarket matrix coordinate real symmetric
3 3 3
1 1 2.0
2 1 1.0
3 3 1e6
"""
TEXTS = ("randsvd(n=12, cond=10)", "hilbert(9)")


def test_matrices_by_expressions_and_files(tmp_path):
    pytest.importorskip("scipy", reason="SciPy reads Matrix Market files")
    (tmp_path / "a.mtx").write_text(SINGULAR)
    texts = ["hilbert(3)", "toeplitz([2, -1, 0], [2, 5, 0])", str(tmp_path / "a.mtx")]
    random = "randsvd(n=20, cond=1e3, mode='one small')"
    found = find_systems([random, *texts], "float64", seed=1)
    assert [s.name for s in found[1:]] == ["hilbert(3)", "toeplitz([2, -1, 0], [2, 5, 0])", "a.mtx"]
    assert found[0].condition == pytest.approx(1e3)
    assert torch.equal(found[1].matrix, linalg.hilbert(3))
    assert found[2].matrix.tolist() == [[2, 5, 0], [-1, 2, 5], [0, -1, 2]]
    assert found[3].matrix.tolist() == [[2, 1, 0], [1, 0, 0], [0, 0, 1e6]]
    again = find_systems([random], "float32", seed=1)[0]
    other = find_systems([random], "float32", seed=2)[0]
    for name in ("matrix", "right"):
        assert torch.equal(getattr(again, name), getattr(found[0], name).float().double())
        assert not torch.equal(getattr(again, name), getattr(other, name))


@pytest.mark.parametrize(
    "matrices, error, message",
    [
        (["eye(3)"], ValueError, "an expression such as randsvd"),
        (["hilbert(3) + 1"], ValueError, "an expression such as randsvd"),
        (["hilbert(3"], ValueError, "an expression such as randsvd"),
        (["hilbert(open('x'))"], ValueError, "hilbert"),
        (["hilbert(0)"], ValueError, "hilbert\\(0\\)"),
        (["randsvd(n=2)"], ValueError, "cond"),
        (["nowhere.mtx"], OSError, "nowhere.mtx"),
        (["randsvd(2, 3, m=4)"], ValueError, "square"),
        ({"mine": torch.ones(2, 2) / 0}, ValueError, "finite"),
        ({"mine": [[1.0]]}, TypeError, "real tensor"),
    ],
)
def test_bad_matrices(matrices, error, message):
    with pytest.raises(error, match=message):
        find_systems(matrices, "float32", seed=0)


def test_a_study_calls_refine(tmp_path, monkeypatch):
    """Rows are ``linalg.refine``'s results; what is done is not done again."""
    options = dict(formats=["fp16", "posit8es0"], methods=["lu", "gmres"], out=tmp_path)
    found = solve(TEXTS, **options)
    assert [(r.matrix, r.format, r.method) for r in found.rows] == [
        (m, f, method) for m in TEXTS for f in options["formats"] for method in options["methods"]
    ]
    system = find_systems(TEXTS, "float32", 0)[0]
    a, b = system.matrix.float(), system.right.float()
    row = found.rows[1].outcome
    assert row.converged and row.reason == f"converged: forward error {row.forward:.1e}"
    options_of_one = dict(factor="fp16", method="gmres", tolerance=1e-300, max_steps=row.steps)
    expected = linalg.refine(a, b, **options_of_one)
    assert row.inner_steps == sum(expected.inner_steps)
    x = expected.x.double()
    assert row.backward == linalg.backward_error(a, x, b)
    solution = torch.linalg.solve(a.double(), b.double())
    error = (x - solution).abs().max() / solution.abs().max()
    assert row.forward == pytest.approx(error.item(), abs=1e-12) and error <= 4 * 2.0**-24
    before = linalg.refine(a, b, **options_of_one | {"max_steps": row.steps - 1}).x.double()
    assert (before - solution).abs().max() / solution.abs().max() > 4 * 2.0**-24

    monkeypatch.setattr(linalg, "refine", None)
    assert solve(TEXTS, **options).rows == found.rows
    (tmp_path / "cells" / next((tmp_path / "cells").iterdir())).write_text("{")
    with pytest.raises(ValueError, match="could not read"):
        solve(TEXTS, **options)


def test_cells_fail_one_by_one():
    """A factorisation without a pivot, and an error, each have a reason."""
    zero = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    found = solve({"zero": zero, "one": torch.eye(2)}, ["fp16", "fixed0_7"], ["lu"])
    bad, _, good, without_one = (row.outcome for row in found.rows)
    assert good.converged
    assert not bad.converged and "singular" in bad.reason
    assert not without_one.converged and "the number 1" in without_one.reason
    assert without_one.steps is None and math.isnan(without_one.backward)
    assert found.rows[0].condition > 1e15
    with pytest.raises(ValueError, match="methods"):
        solve(TEXTS, ["fp16"], ["jacobi"])
    with pytest.raises(ValueError, match="fp17"):
        solve(TEXTS, ["fp17"])


def test_the_command(tmp_path):
    pytest.importorskip("scipy", reason="SciPy reads Matrix Market files")
    (tmp_path / "a.mtx").write_text(SINGULAR.replace("1e6", "nan"))
    line = ["solve", "--matrix", TEXTS[0], "--format", "fp16", "--out", tmp_path / "out"]
    bad = command(*line, "--matrix", tmp_path / "a.mtx")
    assert bad.exit_code == 1 and "expected finite numbers in a.mtx" in bad.output
    line += ["--matrix", TEXTS[1], "--format", "e4m3"]
    good = command(*line, "--max-steps", 7)
    assert good.exit_code == 0 and "randsvd(n=12, cond=10)" in good.output
    data = json.loads((tmp_path / "out" / "solutions.json").read_text())
    assert data["settings"]["max_steps"] == 7 and len(data["rows"]) == 8
    assert data["rows"][0]["converged"] and data["rows"][0]["backward"] < 1e-6
    with (tmp_path / "out" / "solutions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == [
        "-" if row["steps"] is None else str(row["steps"]) for row in data["rows"]
    ]
    assert (tmp_path / "out" / "heatmap.png").stat().st_size > 10_000
    page = (tmp_path / "out" / "solutions.html").read_text()
    assert all(row["reason"] in page for row in data["rows"])
    assert "| fp16 | lu |" in (tmp_path / "out" / "solutions.md").read_text()


def test_the_heat_map_says_why():
    """Cells that did not converge have the letter of their reason below."""
    singular = torch.ones(3, 3)
    found = solve({"singular": singular, "one": torch.eye(3)}, ["fp16"], ["lu"])
    figure = heatmap_figure(found)
    texts = [text.get_text() for axes in figure.findobj(match=_is_axes) for text in axes.texts]
    assert texts == ["\u00d7 a", str(found.rows[1].outcome.steps)]
    strips = [text.get_text() for part in figure.subfigs for text in part.texts]
    reason = found.rows[0].outcome.reason
    assert "".join(strips).replace("\n      ", " ").startswith(f"(a) {reason}")


def _is_axes(artist):
    return hasattr(artist, "get_xlabel") and artist.get_label() != "<colorbar>"


# ---- published ----


@pytest.mark.parametrize(
    "method, name, conditions, expected",
    [
        ("lu", "fp16", ("1e3", "1e6"), [True, False]),
        pytest.param("lu", "bf16", ("1e2", "1e4"), [True, False], marks=pytest.mark.whole),
        pytest.param("lu", "posit16es2", ("1e3", "1e6"), [True, False], marks=pytest.mark.whole),
        ("gmres", "fp16", ("1e7",), [True]),
        pytest.param("gmres", "posit16es2", ("1e7",), [True], marks=pytest.mark.whole),
    ],
)
def test_limits_of_condition_numbers(method, name, conditions, expected):
    """Carson and Higham (2018): with fp16, float32 and float64, LU gets to some 1e4 and GMRES to
    some 1e8."""
    found = solve([f"randsvd(n=20, cond={c})" for c in conditions], [name], [method])
    assert [row.outcome.converged for row in found.rows] == expected
