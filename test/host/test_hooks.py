"""Hooks: the requirements of each row on PyTorch or another library, and that the rows are
complete."""

import enum
import functools
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_dtypes import _C, integrations
from torch_dtypes.host import distributed, imports, install, table
from torch_dtypes.host import hooks as folder
from torch_dtypes.host.hooks.trampolines import When
from torch_dtypes.host.imports import call_when_imported
from torch_dtypes.host.table import Hook, Kind

ROOT = Path(__file__).resolve().parents[2]
ROWS = [*install.list_hooks(), *integrations.HOOKS]
IN_PYTHON = [kind for kind in Kind if kind is not Kind.CPP]
every_kind = pytest.mark.parametrize("kind", IN_PYTHON, ids=lambda kind: kind.value)


@every_kind
@pytest.mark.parametrize(
    "target",
    ["torch.no_such_function", "torch.no_such_module.f", "torch._C.TensorBase.no_such_method"],
)
def test_a_missing_target_is_an_error_unless_its_row_is_for_other_releases(kind, target):
    release = torch.__version__.split("+")[0]
    with pytest.raises(
        ImportError, match=rf"expected .* at {target}, but got none in torch {release}"
    ):
        table.install([Hook(target, kind, lambda *args: None, When.GUARD_ALWAYS)])
    for releases in ({"first": "2.99"}, {"last": "2.10"}, {"first": "3.0"}):
        table.install([Hook(target, kind, lambda *args: None, When.GUARD_ALWAYS, **releases)])


def test_rows_go_by_the_running_release(monkeypatch):
    monkeypatch.setattr(table, "RUNNING", (2, 12))
    needed = {(None, None), ("2.11", None), ("2.12", "2.12"), (None, "2.100"), ("2.9", "3.0")}
    for first, last in (*needed, ("2.13", None), ("2.100", None), (None, "2.9"), (None, "2.11")):
        row = Hook("torch.f", Kind.TOLD, None, first=first, last=last)
        assert row.is_needed is ((first, last) in needed)


def test_a_function_that_is_not_torchs_own_is_an_error(monkeypatch):
    monkeypatch.setattr(torch._linalg_utils, "get_floating_dtype", lambda x: None)
    target = "torch._linalg_utils.get_floating_dtype"
    with pytest.raises(
        ImportError, match=r"torch's own function at torch\._linalg_utils\.get_floating_dtype"
    ):
        Hook(target, Kind.ASKED, lambda *args: None).install()
    with pytest.raises(ImportError, match="expected a wrapped function"):
        Hook(target, Kind.REPLACED, lambda stock: stock, within=True).install()


def test_code_is_exchanged_only_where_it_differs_in_the_call():
    def ours(self, x):
        return _torch_dtypes_called(self.other, x)  # noqa: F821

    with pytest.raises(
        ImportError, match=r"a function that uses \['other'\] at torch\._ops\.OpOverload\.__call__"
    ):
        Hook("torch._ops.OpOverload.__call__", Kind.CODE, ours).install()


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Return the name of a library of two modules. The second module imports the first half way
    through."""
    (tmp_path / "hooked_library.py").write_text(
        "__version__ = '7.1'\n"
        "import hooked_library_user\n\n"
        "def twice(x, scale=2):\n"
        "    return scale * x\n\n"
        "class Box:\n    size = property(lambda self: 3)\n"
        "    @staticmethod\n"
        "    def name():\n"
        "        return 'box'\n"
        "TABLE = {1: 2}\n"
    )
    (tmp_path / "hooked_library_user.py").write_text(
        "import hooked_library\nhooked_library.met()\n"
    )
    (tmp_path / "hooked_library_broken.py").write_text("raise ImportError('no such thing')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "hooked_library"
    for name in [name for name in imports._waiting if name.startswith("hooked_library")]:
        del imports._waiting[name]
    for name in [name for name in sys.modules if name.startswith("hooked_library")]:
        del sys.modules[name]


def import_library(name, monkeypatch, met=lambda: None):
    """Import the library. In the middle of it, another module calls `met`."""
    import builtins

    stock = builtins.__import__

    def import_with_met(name, *args, **kwargs):
        module = stock(name, *args, **kwargs)
        if name == "hooked_library" and not hasattr(module, "twice"):
            module.met = met
        return module

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", import_with_met)
        return importlib.import_module(name)


def test_a_function_runs_when_a_module_is_imported_also_one_half_imported(library, monkeypatch):
    seen = []

    def note(text):
        return lambda: seen.append((text, hasattr(sys.modules[library], "twice")))

    call_when_imported(library, note("before"))
    import_library(library, monkeypatch, lambda: call_when_imported(library, note("in the middle")))
    assert seen == [("before", True), ("in the middle", True)]
    call_when_imported(library, note("after"))
    assert seen[2:] == [("after", True)]


def test_a_function_waits_for_an_import_that_succeeds(library, tmp_path):
    seen = []
    call_when_imported("hooked_library_broken", lambda: seen.append(1))
    with pytest.raises(ImportError, match="no such thing"):
        importlib.import_module("hooked_library_broken")
    assert not seen
    (tmp_path / "hooked_library_broken.py").write_text("x = 11111111111111\n")
    importlib.invalidate_caches()
    importlib.import_module("hooked_library_broken")
    assert seen == [1]


def test_an_import_whose_rows_do_not_fit_fails_each_time(library, monkeypatch):
    table.install([table.wait_for(library, "no_such_function", Kind.CALLED, lambda stock: 0)])
    for _ in range(2):
        with pytest.raises(
            ImportError, match=r"expected it at hooked_library\.no_such_function, but got none"
        ):
            import_library(library, monkeypatch)
        assert library not in sys.modules


def test_rows_of_another_library_are_installed_when_it_is_imported(library, monkeypatch):
    def twice(stock, x, scale=2):
        return stock(x, scale) + 1

    told = []
    wait = functools.partial(table.wait_for, library)
    table.install(
        [
            wait("twice", Kind.CALLED, twice),
            wait("Box.size", Kind.REPLACED, lambda stock: lambda self: stock(self) + 1),
            wait("Box.name", Kind.REPLACED, lambda stock: lambda: stock() + "es"),
            wait("TABLE", Kind.REPLACED, lambda stock: {**stock, 3: 4}),
            wait("", Kind.TOLD, told.append),
        ]
    )
    assert library not in sys.modules
    module = import_library(library, monkeypatch)
    assert module.twice(4) == 9 and module.twice(4, scale=5) == 21 and told == [module]
    assert module.Box().size == 4 and module.Box.name() == "boxes" and module.TABLE == {1: 2, 3: 4}


@pytest.mark.parametrize(
    "other",
    [
        lambda stock, x: 0,
        lambda stock, x, scale=3: 0,
        lambda stock, y, scale=2: 0,
        lambda stock, x, *, scale=2: 0,
    ],
)
def test_a_function_of_other_parameters_is_left_alone(library, monkeypatch, other):
    module = import_library(library, monkeypatch)
    row = table.wait_for(library, "twice", Kind.CALLED, other)
    with pytest.raises(
        ImportError,
        match=r"expected a function of the parameters .* at hooked_library\.twice, but got .* in "
        r"hooked_library 7\.1",
    ):
        table.install([row])
    with pytest.warns(
        RuntimeWarning, match="expected a supported release of hooked_library, but got one"
    ):
        table.install([row], integrations._warn)
    assert module.twice(4) == 8


@pytest.mark.whole
def test_a_release_that_lacks_a_target_loads_nothing():
    script = (
        "import torch, torch.serialization\n"
        "del torch.serialization._legacy_load\n"
        "try:\n    import torch_dtypes\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "print(hasattr(torch, 'posit16es2'))"
    )
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert (
        "at torch.serialization._legacy_load, but got none" in done.stdout
        and done.stdout.endswith("False\n")
    ), done.stdout


def test_every_row_is_there_once_and_has_what_its_release_says():
    needed = [row for row in ROWS if row.is_needed]
    targets = [row.target for row in needed if row.kind is not Kind.TOLD]
    assert len(targets) == len(set(targets)) > 150
    for row in install.list_hooks():
        if row.is_needed and row.imported is None:
            row.find()


def test_every_module_that_has_hooks_is_installed():
    folders = (folder, distributed, integrations)
    names = [f"{f.__name__}.{m.name}" for f in folders for m in pkgutil.iter_modules(f.__path__)]
    names.remove(f"{integrations.__name__}.transformers_config")  # imports transformers
    assert {m for m in map(importlib.import_module, names) if hasattr(m, "HOOKS")} == set(
        install.MODULES
    )


def test_every_integration_has_its_function():
    for row in integrations.HOOKS:
        assert row.imported and callable(row.load_replacement())


def test_reasons_are_bound_from_cpp():
    assert issubclass(_C.When, enum.IntFlag) and When is _C.When
    assert [flag.value for flag in When] == [1 << bit for bit in range(len(When))]
    assert all(flag.meaning for flag in When)
    with pytest.raises(TypeError, match="expected a builtin"):
        _C.hook(len.__call__, None, int(When.GUARD_ALWAYS))


def test_patches_in_cpp_take_one_row_each():
    with pytest.raises(RuntimeError, match="expected one hook of"):
        Hook("torch.zeros", Kind.BUILTIN, None, When.GUARD_ALWAYS).install()
    rows = install.list_patches()
    assert len({row.target for row in rows}) == len(rows)
    folders = ("torch/csrc/formats", "aten/src/ATen")
    sources = {path.name for folder in folders for path in (ROOT / folder).rglob("*.cpp")}
    for row in rows:
        assert row.how and row.reason and row.is_needed and row.file.split("/")[-1] in sources
    reaching = {
        p.name
        for p in (ROOT / "torch/csrc/formats").rglob("*.cpp")
        if "Reaches into" in p.read_text()
    }
    assert reaching == {row.file for row in rows if "/" not in row.file}


def test_a_patch_in_cpp_asks_for_the_function_that_it_runs():
    with pytest.raises(
        RuntimeError,
        match=r"expected a function for torch\.dtype, but got none; name it in `runs` of its row",
    ):
        _C.install_patches({})


def test_the_document_has_every_patch():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "patch_table.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        done.stderr or "docs/reference/hooks.md is not up to date: python tools/patch_table.py"
    )
