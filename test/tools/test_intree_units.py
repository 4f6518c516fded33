"""Every unit of the build inside PyTorch's tree compiles against the headers of the installed wheel
(tools/intree/syntax.py)."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from intree import syntax  # noqa: E402
from intree.releases import RELEASES, Tree, include_tree  # noqa: E402

INCLUDE = Path(torch.__file__).parent / "include"
RELEASE = re.match(r"\d+\.\d+", torch.__version__)[0]

pytestmark = pytest.mark.skipif(
    RELEASE not in RELEASES, reason=f"PyTorch {RELEASE} has no table of edits"
)


@pytest.fixture
def compiler():
    found = next(filter(None, map(syntax.find_compiler, syntax.COMPILERS)), None)
    return found or pytest.skip("needs a C++ compiler")


@pytest.mark.whole
@pytest.mark.parametrize("names", syntax.COMPILERS, ids=lambda names: names[0])
def test_every_unit_compiles(names, tmp_path):
    compiler = syntax.find_compiler(names) or pytest.skip(f"needs {names[0]}")
    results = list(syntax.check_units(include_tree(INCLUDE), tmp_path, compiler, os.cpu_count()))
    assert "".join(text for _, text in results) == ""


def test_units_are_all_files_that_are_laid():
    laid = syntax.laid_files(Tree(INCLUDE, RELEASES[RELEASE], headers_only=False))
    units = list(syntax.build_units(laid))
    files = [path for unit in units for path in unit.files]
    assert sorted([*files, *syntax.NOT_IN_WHEELS]) == sorted(
        path for path in laid if path.endswith((".h", ".cpp"))
    )
    assert set(syntax.NOT_IN_WHEELS) <= set(laid)


def test_a_name_that_two_headers_declare_is_refused(compiler, tmp_path):
    header = ROOT / "c10" / "formats" / "arithmetic" / "FunctionEnds.h"
    (tmp_path / "Other.h").write_text(
        "#pragma once\nnamespace c10::formats { enum class Side { Left, Right }; }\n"
    )
    (tmp_path / "FunctionEnds.h").write_text(header.read_text())
    assert (
        syntax.check_unit(compiler, tmp_path, INCLUDE, syntax.Unit("one", ("FunctionEnds.h",)))
        == ""
    )
    assert "Side" in syntax.check_unit(
        compiler, tmp_path, INCLUDE, syntax.Unit("both", ("FunctionEnds.h", "Other.h"))
    )


def test_a_warning_that_pytorch_makes_an_error_is_refused(compiler, tmp_path):
    (tmp_path / "Nothing.h").write_text("#pragma once\ninline int nothing() {}\n")
    assert "return-type" in syntax.check_unit(
        compiler, tmp_path, INCLUDE, syntax.Unit("unit", ("Nothing.h",))
    )
