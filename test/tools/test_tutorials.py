"""The tutorials run in their small form and print the expected lines; each is a page of cells."""

import json
import re
import sys
from pathlib import Path

import pytest
from representatives import thin_out

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import notebooks

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
# A line that each must print in its small form: its main result, which holds on every machine.
EXPECTED = {
    "accumulator": r"^format +1024\.0$",
    "block_size": r"^ue5m3fn +blocks of 16, 8, 4: 0\.009\d+ 0\.007\d+ 0\.005\d+$",
    "coming_from": r"^4 \[240\.0, 240\.0, 240\.0, 240\.0, -240\.0\]$",
    "golden_vectors": r"^2000 vectors, 0 wrong; without subnormal numbers [1-9]\d* wrong$",
    "linear_systems": r"^fp16        squeeze  +\d+ +\d+ *$",
    "propose_a_format": r"^first in this sweep: (e3m2finite|fixed1_4)$",
    "train_in_8_bits": r"^q52, float32 masters +\d\d\.\d %$",
    "where_digits_go": r"^smallest first +[67]\.\d decimal digits$",
}


def test_each_tutorial_is_expected_here():
    assert {path.stem for path in TUTORIALS.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", thin_out(sorted(EXPECTED), EXPECTED.keys() - {"propose_a_format"}))
def test_a_tutorial_runs(name, monkeypatch, tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the tutorials' data come with scikit-learn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--small"])
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads(
        json.dumps(notebooks.build_notebook((TUTORIALS / f"{name}.py").read_text()))
    )
    names = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert re.search(EXPECTED[name], capsys.readouterr().out, re.MULTILINE)
    if name != "coming_from":  # its tables are the answer
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_tutorial_is_text_and_code(name):
    head, *cells = re.split(r"^# %%", (TUTORIALS / f"{name}.py").read_text(), flags=re.MULTILINE)
    assert not head.strip() and cells[0].startswith(" [markdown]\n# # ")
    texts = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert 2 < len(texts) < len(cells)
    for text in texts:
        assert all(line.startswith("#") for line in text.partition("\n")[2].splitlines() if line)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            assert (TUTORIALS / target).exists(), target
