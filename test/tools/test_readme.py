"""The examples of README.md run unchanged, and print the text of their comments."""

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


@pytest.fixture(scope="module")
def run():
    """Return the names and the printed lines after all code blocks, which follow one another."""
    names, lines = {"print": lambda value: lines.append(str(value))}, []
    torch.manual_seed(0)
    for block in re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        exec(block, names)
    return names, lines


def test_the_examples_print_what_they_say(run):
    said = re.findall(r"^ *print\(.*\)  # (.*)$", README, re.MULTILINE)
    assert len(said) == len(run[1]) == 8
    exact = [pair for pair in zip(said, run[1], strict=True) if not pair[0].startswith(("a", "w"))]
    assert len(exact) == 6 and all(text == line for text, line in exact)


def test_the_loop_in_8_bits_learns_with_running_statistics(run):
    names, lines = run
    model, inputs, labels = (names[name] for name in ("model", "inputs", "labels"))
    assert not model.training and model[1].running_var.dtype == torch.float32
    assert {p.dtype for p in model.parameters()} == {torch.q52, torch.float32}
    right = model.train()(inputs.to(torch.q52)).argmax(1) == labels
    accuracy = float(re.search(r"[\d.]+", lines[-1])[0])
    assert accuracy > 0.9 and abs(accuracy - right.float().mean()) < 0.05


def test_the_first_page_is_short():
    assert README.count("\n") <= 150
    examples = README.partition("## Five examples")[2].partition("## A complete loop")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", examples, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5 and all(block.count("\n") <= 8 for block in blocks)
