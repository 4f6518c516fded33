"""Doors under their original names: ``install`` and ``python -m torch_dtypes.compat``."""

import sys
import types
from pathlib import Path

import new_process
import pytest

from torch_dtypes import compat

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def restore_modules():
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in compat.DOORS]:
        del sys.modules[name]


def test_an_unmodified_script_runs():
    program = new_process.run("-m", "torch_dtypes.compat", "qtorch", HERE / "qtorch_script.py", 3)
    assert program.returncode == 0, program.stderr
    rounded, trained = program.stdout.splitlines()
    share, is_rounded = trained.split()
    assert rounded == "[0.3125, 7.9375]" and float(share) > 0.85 and is_rounded == "True"


@pytest.mark.parametrize("name", ["qtorch", "qtorch_plus", "mx", "pychop"])
def test_modules_have_one_copy(name):
    door = compat.install(name)
    assert sys.modules[name] is door is compat.install(name)
    for alias, module in sys.modules.items():
        if alias.startswith(f"{name}."):
            assert module is sys.modules[compat.DOORS[name] + alias.removeprefix(name)]


def test_imports_of_pychop_find_the_door():
    compat.install("pychop")
    names = {}
    exec(
        "import pychop\n"
        "from pychop import Chop, math_func\n"
        "from pychop.builtin import CPFloat\n"
        "from pychop.layers import *\n"
        "from pychop.mx_formats import MXTensor\n"
        "half = Chop(exp_bits=5, sig_bits=10)\n"
        "a = CPFloat(1.234567, half) * 2.0\n",
        names,
    )
    assert names["a"].value == 2.46875 and names["Chop"] is compat.pychop.Chop
    assert issubclass(names["ChopSTE"], names["Chop"]) and "QuantizedLinear" in names


def test_other_names_and_imported_originals_are_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"expected one of 'qtorch'.*, but got 'cpfloat'"):
        compat.install("cpfloat")
    original = types.ModuleType("qtorch")
    original.__file__ = "/site-packages/qtorch/__init__.py"
    monkeypatch.setitem(sys.modules, "qtorch", original)
    with pytest.raises(ImportError, match=r"but got /site-packages/qtorch/__init__.py imported"):
        compat.install("qtorch")


def test_usage():
    program = new_process.run("-m", "torch_dtypes.compat", "qtorch")
    assert (
        program.returncode == 1
        and "usage: python -m torch_dtypes.compat {qtorch," in program.stderr
    )


def test_a_script_that_is_not_there_is_one_line():
    program = new_process.run("-m", "torch_dtypes.compat", "qtorch", "none.py")
    assert program.returncode == 1
    assert program.stderr == "expected a Python script, but got none.py: there is no such file\n"
