"""The tables of hooks: what each row asks of PyTorch, and that they are all there is."""

import enum
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_dtypes import _C, _overlay
from torch_dtypes._overlay import hooks, releases, table
from torch_dtypes._overlay.table import Builtin, ExchangedCode, Extended, Native, Registered, Replaced, When

ROOT = Path(__file__).resolve().parents[2]
ROWS = [row for module in hooks.MODULES for row in (*module.HOOKS, *getattr(module, "LATER_HOOKS", ()))]

KINDS = {
    "builtin": lambda owner, name, **more: Builtin(owner, name, None, When.GUARD_ALWAYS, **more),
    "replaced": lambda owner, name, **more: Replaced(owner, name, lambda stock: stock, **more),
    "extended": lambda owner, name, **more: Extended(owner, name, lambda *args: None, **more),
    "exchanged code": lambda owner, name, **more: ExchangedCode(owner, name, lambda: None, ("ours", len), **more),
    "registered": lambda owner, name, **more: Registered(owner, name, lambda it: None, **more),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("owner, name", [("torch", "no_such_function"), ("torch.no_such_module", "f"), ("torch._C.TensorBase", "no_such_method")])
def test_a_missing_target_is_an_error_unless_its_row_is_optional(kind, owner, name):
    with pytest.raises(ImportError, match=rf"expected .* at {owner}\.{name}, but got none in torch {torch.__version__.split('+')[0]}"):
        KINDS[kind](owner, name).install()
    KINDS[kind](owner, name, optional="a release lacks it").install()


def test_a_function_that_is_not_torchs_own_is_an_error(monkeypatch):
    monkeypatch.setattr(torch._linalg_utils, "get_floating_dtype", lambda x: None)
    with pytest.raises(ImportError, match=r"torch's own function at torch\._linalg_utils\.get_floating_dtype"):
        Extended("torch._linalg_utils", "get_floating_dtype", lambda *args: None).install()
    with pytest.raises(ImportError, match="expected a wrapped function"):
        Replaced("torch._linalg_utils", "get_floating_dtype", lambda stock: stock, within=True).install()


def test_code_is_exchanged_only_where_it_differs_in_the_call():
    def ours(self, x):
        return called(self.other, x)  # noqa: F821

    with pytest.raises(ImportError, match=r"a function that uses \['other'\] at torch\._ops\.OpOverload\.__call__"):
        ExchangedCode("torch._ops.OpOverload", "__call__", ours, ("called", len)).install()


def test_a_release_that_lacks_a_target_loads_nothing():
    script = (
        "import torch, torch.serialization\ndel torch.serialization._legacy_load\n"
        "try:\n    import torch_dtypes\nexcept ImportError as error:\n    print(error)\nprint(hasattr(torch, 'posit16es2'))"
    )
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True, timeout=120)
    assert "at torch.serialization._legacy_load, but got none" in done.stdout and done.stdout.endswith("False\n"), done.stdout


def test_every_row_is_there_once_and_has_what_its_release_says():
    targets = [row.target for row in ROWS if not isinstance(row, (Native, Registered))]
    assert len(targets) == len(set(targets)) > 150
    for row in ROWS:
        if not isinstance(row, Native):
            assert row.find() is not None or row.optional


def test_optional_rows_go_by_the_running_release(monkeypatch):
    monkeypatch.setattr(releases, "RUNNING", (2, 12))
    assert releases.since("2.11") is None and releases.since("2.12") is None
    assert releases.since("2.13") == "PyTorch has it from 2.13 on" and releases.since("2.100") and releases.since("3.0")


def test_every_module_of_the_overlay_that_has_hooks_is_installed():
    names = [f"{_overlay.__name__}.{m.name}" for m in pkgutil.iter_modules(_overlay.__path__)]
    assert {m for m in map(importlib.import_module, names) if hasattr(m, "HOOKS")} == set(hooks.MODULES)


def test_reasons_are_bound_from_cpp():
    assert issubclass(_C.When, enum.IntFlag) and When is _C.When and table.When is _C.When
    assert [flag.value for flag in When] == [1 << bit for bit in range(len(When))]
    assert all(flag.meaning for flag in When)
    with pytest.raises(TypeError, match="expected a builtin"):
        _C.hook(len.__call__, None, int(When.GUARD_ALWAYS))


def test_patches_in_cpp_take_one_row_each():
    with pytest.raises(RuntimeError, match="is hooked already"):
        Builtin("torch", "zeros", None, When.GUARD_ALWAYS).install()
    targets = [target for target, *_ in _C.patches()]
    assert len(targets) == len(set(targets))
    assert {row.name for row in ROWS if isinstance(row, Native)} <= set(targets)
    folders = ("torch/csrc/formats", "aten/src/ATen", "aten/src/ATen/native/formats/operators")
    sources = {path.name for folder in folders for path in (ROOT / folder).glob("*.cpp")}
    for _, how, why, file, seen in _C.patches():
        assert how and why and seen and file.split("/")[-1] in sources
    reaching = {p.name for p in (ROOT / "torch/csrc/formats").glob("*.cpp") if "Reaches into" in p.read_text()}
    assert reaching == {file for *_, file, _ in _C.patches() if "/" not in file}


def test_the_document_has_every_patch():
    done = subprocess.run([sys.executable, ROOT / "tools" / "patch_table.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "docs/design.md is not up to date: python tools/patch_table.py"
