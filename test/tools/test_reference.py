"""The API reference: every public name and command has an entry, a complete docstring, and a
correct example."""

import doctest
import inspect
import io
import re
import typing
from pathlib import Path

import pytest
import torch

import torch_dtypes
from torch_dtypes import cli, linalg, optim

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def directives(folder=REFERENCE):
    """Return the entries of the pages: qualified Python names and ``module:attribute`` of
    commands."""
    found = set()
    for page in sorted(folder.glob("*.rst")):
        module = ""
        for kind, argument in re.findall(
            r"^\.\. (currentmodule|auto\w+|click):: (\S+)", page.read_text(), re.MULTILINE
        ):
            if kind == "currentmodule":
                module = argument
            else:
                found.add(
                    argument
                    if kind == "click" or argument.startswith("torch_dtypes.")
                    else f"{module}.{argument}"
                )
    return found


def expected_names():
    rooms = {"linalg": linalg, "optim": optim}
    own = {f"torch_dtypes.{name}" for name in torch_dtypes.__all__ if name not in rooms}
    return own | {f"torch_dtypes.{room}.{name}" for room in rooms for name in rooms[room].__all__}


def test_every_public_name_has_its_place():
    missing = sorted(expected_names() - directives())
    assert not missing, f"expected a directive in docs/reference/*.rst for {missing}"


def test_every_command_has_its_place():
    pytest.importorskip("click")
    commands = {
        f"{c.callback.__module__}:{c.callback.__name__}" for c in cli.group().commands.values()
    }
    listed = {name for name in directives() if ":" in name}
    assert {name.replace("-", "_") for name in commands} == listed


def test_every_page_is_in_the_index():
    index = (REFERENCE / "index.rst").read_text()
    pages = {page.stem for page in REFERENCE.glob("*.rst")} - {"index"}
    assert pages == set(re.findall(r"^   (\w+)$", index, re.MULTILINE))


def test_every_document_is_in_the_contents():
    docs = REFERENCE.parent
    contents = (docs / "site" / "conf.py").read_text()
    pages = {
        str(page.relative_to(docs).with_suffix(""))
        for pattern in ("**/*.md", "tutorials/*.py", "reference/index.rst")
        for page in docs.glob(pattern)
    }
    listed = set(re.findall(r"^(?:.* <)?([\w/-]+)>?$", contents, re.MULTILINE))
    assert not pages - listed - {"index"}


# ---- docstrings ----

MODULES = {
    "torch_dtypes": torch_dtypes,
    "torch_dtypes.linalg": linalg,
    "torch_dtypes.optim": optim,
}
# These take arguments and raise no error of this package.
NEVER_RAISE = {"is_format_dtype", "BlockCard", "Card", "Divergence"}
# Results of this package's functions: their docstrings list attributes, and the function has the
# example.
RESULTS = {
    "Accumulation",   "BlockCard",      "BlockTensor",    "Card",           "Cholesky",
    "Digits",         "Divergence",     "Fuzzy",          "LDL",            "LU",
    "Mixture",        "QR",             "Refinement",     "RoundingCounts", "Sensitivity",
    "Statistics",     "Target",         "Variability",
}  # fmt: skip


# Their examples start processes, and run with the slow tests.
LONG = {"sweep"}


def list_documented():
    for name in sorted(expected_names()):
        module, _, short = name.rpartition(".")
        if short != "ROUNDING_MODES":  # a tuple, documented beside it in the source
            yield pytest.param(short, getattr(MODULES[module], short), id=name)


def examples():
    return [
        pytest.param(*p.values, id=p.id, marks=[pytest.mark.slow] * (p.values[0] in LONG))
        for p in list_documented()
    ]


def parameters(thing):
    names = set(inspect.signature(thing).parameters) - {"self", "args", "kwargs"}
    if "options" in names:  # a TypedDict has their names
        (options,) = typing.get_args(typing.get_type_hints(thing)["options"])
        names = names - {"options"} | options.__annotations__.keys()
    return names


@pytest.mark.parametrize("name, thing", list(list_documented()))
def test_a_docstring_is_whole(name, thing):
    text = inspect.getdoc(thing) or ""
    assert len(text.partition("\n")[0]) > 20, "expected a sentence that says what it is"
    takes = parameters(thing)
    if takes and name not in RESULTS:
        section = re.search(r"^Args:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
        assert section, f"expected a section Args for {sorted(takes)}"
        said = set(
            re.findall(
                r"\w+",
                " ".join(re.findall(r"^    ([\w, ]+?)(?= ?\(.*\):|:)", section[1], re.MULTILINE)),
            )
        )
        assert takes <= said, f"expected {sorted(takes - said)} among the arguments"
    if takes and name not in NEVER_RAISE | RESULTS:
        assert re.search(r"^Raises:\n    \w+(Error|Exception)", text, re.MULTILINE), (
            "expected a section Raises"
        )
    assert ">>> " in text or name in RESULTS, "expected an example that can be run"


@pytest.mark.parametrize("name, thing", examples())
def test_examples_are_right(name, thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"torch": torch, "torch_dtypes": torch_dtypes, "nn": torch.nn}
    tests = doctest.DocTestFinder(recurse=inspect.isclass(thing)).find(
        thing, name, module=False, globs=names
    )
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    failed = sum(runner.run(test, out=report.write, clear_globs=False).failed for test in tests)
    assert not failed, report.getvalue()


def test_errors_are_listed_one_by_one():
    """A line of Raises names one error, so that each gets a row."""
    for name, thing in ((p.values[0], p.values[1]) for p in list_documented()):
        section = re.search(
            r"^Raises:\n((?:    .*\n|\n)+)", (inspect.getdoc(thing) or "") + "\n", re.MULTILINE
        )
        assert not section or not re.search(r"\S.*[.;] \w+Error: ", section[1]), name
