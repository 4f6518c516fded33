"""Names that load their modules at first use: type checkers and programs see the same."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import torch_dtypes

PACKAGE = Path(torch_dtypes.__file__).parent
LAZY = (
    "torch_dtypes",
    *(f"torch_dtypes.{n}" for n in "fuzzing nn optim quantization workbench".split()),
)


def names_for_type_checkers(package):
    """The names that a package imports in `if TYPE_CHECKING:`."""
    tree = ast.parse(Path(package.__file__).read_text())
    blocks = [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    return {a.name for block in blocks for n in block.body for a in n.names}


@pytest.mark.parametrize("name", LAZY)
def test_each_name_is_there(name):
    package = importlib.import_module(name)
    names = names_for_type_checkers(package)
    assert names
    for each in names:
        assert getattr(package, each) is vars(package)[each]
        assert each in dir(package)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        getattr(package, "nothing")  # noqa: B009


def test_all_has_what_type_checkers_see():
    known = names_for_type_checkers(torch_dtypes) - {"distributed", "nn"}
    assert known <= set(torch_dtypes.__all__)


def test_the_package_loads_without_what_most_programs_do_not_use():
    program = """
import sys, torch_dtypes
heavy = ("fuzzing", "workbench", "optim.low_precision", "quantization.layers", "distributed")
print([n for n in sys.modules if n.startswith(tuple(f"torch_dtypes.{h}" for h in heavy))])
import torch
print(torch.ops.torch_dtypes.product.default.name())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "torch_dtypes::product"]
