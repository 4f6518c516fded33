"""The API reference has every public name and every command, and names nothing else."""

import re
from pathlib import Path

import pytest

import torch_dtypes
from torch_dtypes import cli, optim

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def directives(folder=REFERENCE):
    """What the pages list: qualified Python names and ``module:attribute`` of commands."""
    found = set()
    for page in sorted(folder.glob("*.rst")):
        module = ""
        for kind, argument in re.findall(r"^\.\. (currentmodule|auto\w+|click):: (\S+)", page.read_text(), re.MULTILINE):
            if kind == "currentmodule":
                module = argument
            else:
                found.add(argument if kind == "click" or argument.startswith("torch_dtypes.") else f"{module}.{argument}")
    return found


def expected_names():
    own = {f"torch_dtypes.{name}" for name in torch_dtypes.__all__ if name != "optim"}
    return own | {f"torch_dtypes.optim.{name}" for name in optim.__all__}


def test_every_public_name_has_its_place():
    missing = sorted(expected_names() - directives())
    assert not missing, f"expected a directive in docs/reference/*.rst for {missing}"


def test_every_command_has_its_place():
    pytest.importorskip("click")
    commands = {f"{c.callback.__module__}:{c.callback.__name__}" for c in cli.group().commands.values()}
    listed = {name for name in directives() if ":" in name}
    assert {name.replace("-", "_") for name in commands} == listed


def test_every_page_is_in_the_index():
    index = (REFERENCE / "index.rst").read_text()
    assert {page.stem for page in REFERENCE.glob("*.rst")} - {"index"} == set(re.findall(r"^   (\w+)$", index, re.MULTILINE))
