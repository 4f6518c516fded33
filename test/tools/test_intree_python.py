"""The Python files that tools/intree adds to a PyTorch tree: bindings and the package, without the
overlay. Also the completion of the tree's package after a build."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from intree import finishing, laying  # noqa: E402
from intree.releases import RELEASES, Refused, Tree  # noqa: E402

LAID = laying.laid_files(Tree(Path("nowhere"), RELEASES["2.6"], headers_only=False))
MODULES = {
    path: ast.parse(text)
    for path, text in LAID.items()
    if path.startswith("torch_dtypes/") and path.endswith(".py")
}
CHECKS = ROOT / "tools" / "intree" / "checks"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package_of(path):
    parts = path.removesuffix(".py").split("/")
    return parts[:-1]


def relative_imports(path, tree):
    """Yield the package's modules that a file imports, as lists of names; for `from . import a`,
    each `a`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package_of(path)[: len(package_of(path)) - node.level + 1] + (
                node.module.split(".") if node.module else []
            )
            yield from (
                [[*base, alias.name] for alias in node.names] if node.module is None else [base]
            )
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "torch_dtypes"
        ):
            yield node.module.split(".")


def names_in(tree):
    """Return the names that a package's __init__ imports and defines: `from . import name` may mean
    one of them."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return imported | {
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
    }


def test_the_package_is_laid_without_the_overlay():
    assert len(MODULES) > 120
    assert {
        "torch_dtypes/host/install.py",
        "torch_dtypes/formats/dtype_numbers.py",
        "torch_dtypes/workbench/report/templates/page.html",
    } <= set(LAID)
    assert not [
        path for path in LAID if "host/hooks" in path or path.endswith((".so", ".pyc", ".pyi"))
    ]
    # These are the tree's own files, not the overlay's.
    for name in ("host/install.py", "formats/dtype_numbers.py"):
        assert (
            LAID[f"torch_dtypes/{name}"]
            == (ROOT / laying.IN_PLACE / "torch_dtypes" / name).read_text()
        )


def test_its_modules_import_what_is_laid_alone():
    for path, parts in [(p, parts) for p in MODULES for parts in relative_imports(p, MODULES[p])]:
        here, package = "/".join(parts), "/".join(parts[:-1]) + "/__init__.py"
        known = (
            f"{here}.py" in LAID
            or f"{here}/__init__.py" in LAID
            or here in ("torch_dtypes/_C", "torch_dtypes/_build_info")
        )
        known = known or (package in MODULES and parts[-1] in names_in(MODULES[package]))
        assert known, f"{path}: {'.'.join(parts)}"


def bound_names():
    """Return the names that the tree's extension module defines, from the sources of its
    bindings."""
    text = "".join(
        text
        for path, text in LAID.items()
        if path.startswith("torch/csrc/formats/") and path.endswith(".cpp")
    )
    patterns = (r'm\.(?:def|attr)\(\s*"(\w+)"', r'\(\s*m,\s*"(\w+)"', r'\{"(\w+)", &')
    return {name for pattern in patterns for name in re.findall(pattern, text)}


def test_its_modules_use_what_the_bindings_define():
    bound = bound_names()
    assert {
        "Format",
        "Rounding",
        "Accumulation",
        "is_format_tensor",
        "ROUNDING_MODES",
        "first_load",
    } <= bound
    used = {}
    for path, tree in MODULES.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "_C"
            ):
                used.setdefault(node.attr, path)
    assert len(used) > 40
    assert {name: path for name, path in used.items() if name not in bound} == {}


def test_the_bindings_are_those_of_both_builds():
    from torch_dtypes import _C

    assert bound_names() <= set(dir(_C))


def test_the_bindings_include_nothing_of_the_overlay():
    hooks = {
        Path(path).with_suffix(".h").as_posix() for path in laying._read_sources("PYTHON_SOURCES")
    }
    assert hooks
    for path in (path for path in LAID if path.startswith(laying.BINDINGS)):
        named = set(re.findall(r'#include [<"]([^>"]+)', LAID[path]))
        assert not named & hooks, path
        assert not [name for name in named if "/overlay/" in name], path
        assert {name for name in named if name.startswith(laying.BINDINGS)} <= set(LAID), path


def test_the_dtype_object_is_made_in_one_place_a_build():
    defined = [
        path
        for path in (ROOT / laying.BINDINGS).rglob("*.cpp")
        if re.search(r"^PyObject\* dtype_object\(", path.read_text(), re.MULTILINE)
    ]
    assert sorted(path.relative_to(ROOT / laying.BINDINGS).as_posix() for path in defined) == [
        "dtype/DtypeTable.cpp",
        "intree/DtypeTable.cpp",
    ]
    sources = LAID[laying.BINDING_SOURCES]
    assert sources.count("DtypeTable.cpp") == 1 and "intree/DtypeTable.cpp" in sources
    assert "bindings/Module.cpp" not in sources


# --- after a build ---


@pytest.fixture
def built(tmp_path):
    """Return a source tree and a build folder with the right file names only."""
    source, folder = tmp_path / "pytorch", tmp_path / "build"
    for path in finishing.LOADED:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (source / "torch" / "csrc").mkdir(parents=True)
    (source / "torch" / "csrc" / "stub.c").write_text("int main(void) { return 0; }\n")
    return source, folder


def test_a_finished_build_makes_the_packages_complete(built, monkeypatch):
    source, folder = built
    commands = []
    monkeypatch.setattr(
        finishing.subprocess,
        "run",
        lambda words, **_: commands.append(words) or subprocess.CompletedProcess(words, 0),
    )
    for _ in range(2):  # the second time over existing files
        finishing.finish(source, folder)
    assert (source / "torch/lib/libtorch_python.so").read_text() == "lib/libtorch_python.so"
    assert (source / "torch/bin/torch_shm_manager").resolve() == (
        folder / "bin/torch_shm_manager"
    ).resolve()
    assert (source / "torch_dtypes/_C.so").read_text() == "torch_dtypes/_C.so"
    assert (
        str(source / "torch/csrc/stub.c") in commands[0]
        and "-ltorch_python" in commands[0]
        and "-Wl,-rpath,$ORIGIN/lib" in commands[0]
    )
    assert Path(commands[0][commands[0].index("-o") + 1]).name.startswith("_C.cpython-")


def test_an_unfinished_build_is_refused(built):
    source, folder = built
    (folder / "lib/libtorch_cpu.so").unlink()
    with pytest.raises(Refused, match=r"without lib/libtorch_cpu\.so; run"):
        finishing.finish(source, folder)
    assert not (source / "torch/lib").exists()


def test_a_module_that_does_not_compile_is_said(built):
    source, folder = built
    (source / "torch" / "csrc" / "stub.c").write_text("#error no\n")
    with pytest.raises(Refused, match=r"expected .* to make torch\._C"):
        finishing.finish(source, folder)


# --- the checks that run in such a PyTorch ---

FIRST = load(CHECKS / "first_tensor.py")


@pytest.mark.whole
@pytest.mark.parametrize(
    "check", [c for c in FIRST.CHECKS if c not in FIRST.IN_THE_TREE], ids=lambda c: c.__name__
)
def test_what_the_checks_ask_holds_beside_a_stock_pytorch(check):
    check()


@pytest.mark.parametrize("check", FIRST.IN_THE_TREE, ids=lambda c: c.__name__)
def test_the_checks_tell_a_tree_from_the_overlay(check):
    with pytest.raises(AssertionError):
        check()


def test_curves_are_compared_bit_for_bit(tmp_path):
    epoch = {"train_loss": 0.1 + 0.2, "test_loss": 1.0, "accuracy": 50.0, "weights": "ab"}
    curve = {"torch": "2.13.0", "settings": {"epochs": 1}, "begins": "cd", "epochs": [epoch]}
    files = [tmp_path / f"{name}.json" for name in "abc"]
    files[0].write_text(json.dumps(curve))
    files[1].write_text(json.dumps(curve | {"torch": "2.6.0"}))
    files[2].write_text(json.dumps(curve | {"epochs": [epoch | {"train_loss": 0.3}]}))

    def compare(*given):
        command = [sys.executable, CHECKS / "training_curve.py", "--compare", *given]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    assert compare(files[0], files[1]).stdout == "equal, bit for bit\n"
    other = compare(files[0], files[2])
    assert (
        other.returncode == 1
        and other.stdout == "epoch 1, train_loss: 0.30000000000000004 and 0.3\n"
    )
