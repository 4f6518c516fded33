"""The code of README.md and of the pages for users runs as it stands, and prints what its comments
say."""

import re
import sys
from pathlib import Path

import pytest
import torch

BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("docs/getting-started.md", "docs/how-to/*.md")
    for path in ROOT.glob(pattern)
)


def run_page(text):
    """Return the names after all blocks of code, which follow one another, and what each line of
    the page printed last."""
    names, printed = {}, {}

    def record(*values):
        printed[sys._getframe(1).f_lineno] = " ".join(map(str, values))

    names["print"] = record
    torch.manual_seed(0)
    for block in BLOCKS.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], "page", "exec"), names)
    return names, printed


def announced(text):
    """Return the exact texts that comments announce behind calls of print, by line."""
    return {
        number: comment[1]
        for number, line in enumerate(text.split("\n"), 1)
        if (comment := re.match(r" *print\(.*\) +# (?!about |what )(.*)$", line))
    }


@pytest.fixture(scope="module")
def run():
    return run_page(README)


def test_the_examples_print_what_they_say(run):
    texts = announced(README)
    assert len(texts) == 6 and len(run[1]) == 8
    assert texts == {line: run[1][line] for line in texts}


def test_the_loop_in_8_bits_learns_with_running_statistics(run):
    names, printed = run
    model, inputs, labels = (names[name] for name in ("model", "inputs", "labels"))
    assert not model.training and model[1].running_var.dtype == torch.float32
    assert {p.dtype for p in model.parameters()} == {torch.q52, torch.float32}
    right = model.train()(inputs.to(torch.q52)).argmax(1) == labels
    accuracy = float(re.search(r"[\d.]+", printed[max(printed)])[0])
    assert accuracy > 0.9 and abs(accuracy - right.float().mean()) < 0.05


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for the files that a page writes
    text = (ROOT / page).read_text()
    printed, texts = run_page(text)[1], announced(text)
    assert texts == {line: printed[line] for line in texts}


def test_how_to_pages_are_short():
    how_to = [page for page in PAGES if page.parent.name == "how-to"]
    assert how_to
    assert not [page for page in how_to if (ROOT / page).read_text().count("\n") > 120]


def test_the_first_page_is_short():
    assert README.count("\n") <= 150
    examples = README.partition("## Five examples")[2].partition("## A complete loop")[0]
    blocks = BLOCKS.findall(examples)
    assert len(blocks) == 5 and all(block.count("\n") <= 8 for block in blocks)
