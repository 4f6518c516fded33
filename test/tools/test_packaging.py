"""Packaging: the torch that a build finds, the entry point that loads the dtypes, the version
guard, and the build's error lines."""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _build_info, _torch_version

ROOT = Path(__file__).resolve().parents[2]
RELEASE = _torch_version.release(_build_info.TORCH_VERSION)


def python(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess:
    """Run `code` in a new interpreter, in the repository's root."""
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


# --- import torch ---


def test_torch_folder_is_no_package():
    assert not (ROOT / "torch" / "__init__.py").exists(), (
        "a package torch/ here would hide PyTorch from whoever runs Python in this folder"
    )


@pytest.mark.whole
def test_import_torch_from_the_root_loads_pytorch_and_the_dtypes():
    done = python(
        "import torch; print(torch.__file__, torch.q43, float(torch.ones(2).sum()))", "-W", "error"
    )
    assert done.returncode == 0, done.stderr
    file, dtype, total = done.stdout.split()
    assert Path(file).parent != ROOT / "torch"
    assert (dtype, total) == ("torch.q43", "2.0")
    assert not done.stderr


def test_import_torch_dtypes_first():
    # The import of torch inside torch_dtypes calls the entry point while torch_dtypes is half
    # imported.
    done = python(
        "import torch_dtypes, sys; assert torch_dtypes._C is sys.modules['torch_dtypes._C']; "
        "print('done')",
        "-W",
        "error",
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "done", "")


@pytest.mark.whole
def test_autoload_can_be_turned_off():
    done = python("import torch; print(hasattr(torch, 'q43'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


# --- metadata of the installed package ---


def test_entry_points_are_declared():
    points = importlib.metadata.distribution("torch-dtypes").entry_points
    assert {(p.group, p.name, p.value) for p in points} == {
        ("torch.backends", "torch_dtypes", "_torch_dtypes_autoload:load"),
        ("console_scripts", "torch-dtypes", "torch_dtypes.cli:main"),
    }


def test_metadata_names_the_torch_that_it_was_built_for():
    distribution = importlib.metadata.distribution("torch-dtypes")
    assert f"torch=={RELEASE}.*" in distribution.requires
    assert distribution.version in (f"0.2.0+torch{RELEASE}", "0.2.0")  # the latter from an sdist


def test_metadata_say_whose_it_is_and_under_which_licence():
    metadata = importlib.metadata.distribution("torch-dtypes").metadata
    assert (
        metadata["License-Expression"] == "BSD-3-Clause" and metadata["License-File"] == "LICENSE"
    )
    assert metadata["Author"] == "the torch-dtypes authors"
    assert "posit" in metadata["Keywords"] and "# torch-dtypes" in metadata.get_payload()
    assert "Neither the name of the copyright holder" in (ROOT / "LICENSE").read_text()


def test_one_version(backend):
    assert torch_dtypes.__version__ == backend.VERSION


# --- the version guard ---


def test_guard_accepts_the_torch_it_was_built_for(monkeypatch):
    _torch_version.check()
    # Another patch release, and another build.
    monkeypatch.setattr(torch, "__version__", f"{RELEASE}.99+cu999")
    _torch_version.check()


@pytest.mark.parametrize("running", ["2.10.0", "2.131.0+cu130", "3.0.0a0+gitabc"])
def test_guard_refuses_another_torch(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    with pytest.raises(ImportError) as caught:
        _torch_version.check()
    message = str(caught.value)
    assert f"expected torch {RELEASE}" in message and f"but got torch {running}" in message
    assert (
        f'pip install "torch=={RELEASE}.*"' in message
        and "pip install --force-reinstall --no-deps ." in message
    )


def test_guard_refuses_another_cxx_abi(monkeypatch):
    monkeypatch.setattr(_build_info, "CXX11_ABI", 1 - int(torch.compiled_with_cxx11_abi()))
    with pytest.raises(
        ImportError, match=r"expected a torch with _GLIBCXX_USE_CXX11_ABI=.*but got"
    ):
        _torch_version.check()


def test_guard_without_build_info(monkeypatch):
    # Importing it raises ImportError.
    monkeypatch.setitem(sys.modules, "torch_dtypes._build_info", None)
    with pytest.raises(
        ImportError, match=r"expected torch_dtypes/_build_info\.py.*but got .*; build .*pip install"
    ):
        _torch_version.check()


# A package built for another torch, as _C would meet it: the module exists before the package
# imports it.
FOREIGN = """
import sys, types

sys.modules["torch_dtypes._build_info"] = types.SimpleNamespace(
    TORCH_VERSION="2.9.1+cu126", CXX11_ABI=1
)
"""


@pytest.mark.whole
def test_torch_survives_a_package_for_another_torch():
    done = python(
        FOREIGN
        + "import torch; print(float(torch.ones(2).sum()), hasattr(torch, 'q43'), torch.q43)"
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert (
        "AttributeError: torch.q43: expected torch_dtypes to load, but got ImportError: "
        "torch_dtypes: expected torch 2.9"
    ) in done.stderr
    assert "pip install" in done.stderr and "Warning" not in done.stderr


def test_import_torch_dtypes_raises_when_built_for_another_torch():
    done = python(FOREIGN + "import torch_dtypes")
    assert done.returncode == 1
    assert "ImportError: torch_dtypes: expected torch 2.9" in done.stderr
    assert "Warning" not in done.stderr, (
        "the one who asks gets the exception, not a warning besides"
    )


# A torch with a function that the hooks do not know.
CHANGED = """
import torch

torch.nn.functional._canonical_mask.__module__ = "elsewhere"
try:
    import torch_dtypes
except ImportError as error:
    print(error)
print(
    [name for name in ("posit16es2", "q43", "e5m5") if hasattr(torch, name)],
    torch.tensor([1.5]).tolist(),
)
"""


@pytest.mark.whole
def test_nothing_is_left_of_a_package_that_could_not_be_loaded():
    done = python(CHANGED, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    first, second = done.stdout.splitlines()
    assert (
        "expected torch's own function at torch.nn.functional._canonical_mask, but got <function"
        in first
    ), done.stderr
    assert second == "[] [1.5]"


@pytest.mark.whole
@pytest.mark.parametrize(
    "error",
    thin_out(
        [
            "ImportError('no _C')",
            "OSError('undefined symbol')",
            "RuntimeError('hook failed')",
            "AssertionError()",
        ]
    ),
)
def test_any_failure_to_load_is_an_attribute_error(error):
    broken = (
        "class Broken:\n"
        "  def find_spec(self, name, path=None, target=None):\n"
        f"    if name == 'torch_dtypes': raise {error}\n"
    )
    end = (
        "import sys, torch\n"
        "sys.meta_path.insert(0, Broken())\n"
        "print(hasattr(torch, 'q43'), float(torch.ones(2).sum()))\n"
        "torch.posit16es2"
    )
    done = python(broken + end)
    assert (done.returncode, done.stdout) == (1, "False 2.0\n"), done.stderr
    kind, message = error.removesuffix(")").split("(")
    assert (
        f"AttributeError: torch.posit16es2: expected torch_dtypes to load, but got {kind}: "
        f"{message.strip(chr(39))}"
    ) in done.stderr


# --- the build backend ---


@pytest.fixture
def backend(monkeypatch):
    monkeypatch.delenv("TORCH_DTYPES_TORCH_DIR", raising=False)
    path = ROOT / "tools" / "build_backend.py"
    spec = importlib.util.spec_from_file_location("build_backend_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_torch(folder: Path, version="2.13.0+cpu", *, headers=True, config="", library=b"") -> Path:
    for part in ("lib", "share/cmake/Torch", *(["include/c10/core"] if headers else [])):
        (folder / part).mkdir(parents=True)
    if version is not None:
        (folder / "version.py").write_text(
            f"from typing import Optional\n__version__: str = '{version}'\n"
        )
    if headers:
        (folder / "include/c10/core/TensorImpl.h").touch()
    (folder / "share/cmake/Torch/TorchConfig.cmake").write_text(config)
    (folder / "lib/libc10.so").write_bytes(b"\x7fELF" + library)
    return folder


def line_of(caught) -> str:
    message = caught.value.code
    assert isinstance(message, str) and "\n" not in message
    assert (
        message.startswith("torch-dtypes: expected ")
        and ", but got " in message
        and "; " in message
    )
    return message


@pytest.mark.parametrize(
    "version", ["2.11.0", "2.12.1+cu130", "2.13.0a0+git1234", "2.14.1+cu130", "2.15.0+cu132"]
)
def test_backend_accepts_supported_torch(backend, tmp_path, version):
    folder = fake_torch(tmp_path / "torch", version)
    assert backend.find_torch(str(folder)) == (folder, version, 0)
    assert backend.find_torch(str(tmp_path)).dir == folder  # finds the folder above


@pytest.mark.parametrize("version", ["1.13.1", "2.1.0", "2.10.0+cpu", "2.16.0", "3.11.0"])
def test_backend_refuses_other_torch(backend, tmp_path, version):
    with pytest.raises(SystemExit) as caught:
        backend.find_torch(str(fake_torch(tmp_path / "torch", version)))
    message = line_of(caught)
    assert (
        version in message and ", ".join(backend.SUPPORTED) in message and "pip install" in message
    )


def test_backend_without_torch(backend, monkeypatch):
    monkeypatch.setattr(backend, "locate_torch", lambda: None)
    with pytest.raises(SystemExit) as caught:
        backend.find_torch()
    assert sys.executable in line_of(caught) and "TORCH_DTYPES_TORCH_DIR" in line_of(caught)


@pytest.mark.parametrize("broken", [{"version": None}, {"headers": False}], ids=str)
def test_backend_with_a_broken_torch(backend, tmp_path, monkeypatch, broken):
    monkeypatch.setenv("TORCH_DTYPES_TORCH_DIR", str(fake_torch(tmp_path / "torch", **broken)))
    with pytest.raises(SystemExit) as caught:
        backend.find_torch()
    assert str(tmp_path) in line_of(caught)


def test_backend_ends_with_one_line_and_no_traceback(backend, tmp_path):
    env = {**os.environ, "TORCH_DTYPES_TORCH_DIR": str(fake_torch(tmp_path / "torch", "2.1.0"))}
    done = subprocess.run(
        [sys.executable, backend.__file__], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    "tree,abi",
    [
        (
            {
                "config": 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")',
                "library": b"NSt7__cxx1112basic_stringIcE",
            },
            0,
        ),
        ({"config": 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")'}, 1),
        ({"library": b"_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcE"}, 1),
        ({"library": b"_ZN3c105ErrorC1ESs"}, 0),
    ],
)
def test_backend_reads_the_cxx_abi(backend, tmp_path, tree, abi):
    assert backend.find_torch(str(fake_torch(tmp_path / "torch", **tree))).cxx11_abi == abi


def test_backend_describes_this_torch_without_importing_it(backend, monkeypatch):
    # In pip's isolation, this process finds no torch, but a child without its PYTHONPATH does.
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: None)
    assert backend.locate_torch() == Path(torch.__file__).parent
    found = backend.find_torch(str(Path(torch.__file__).parent))
    assert (found.version, found.cxx11_abi) == (torch.__version__, torch.compiled_with_cxx11_abi())
    assert "import torch\n" not in Path(backend.__file__).read_text()


def test_namespace_folder_torch_is_not_taken_for_pytorch(backend, monkeypatch):
    namespace = types.SimpleNamespace(origin=None, submodule_search_locations=[str(ROOT / "torch")])
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: namespace)
    assert backend.locate_torch() != ROOT / "torch"


def test_metadata_of_wheels_and_sdists(backend, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "TORCH_DTYPES_TORCH_DIR", str(fake_torch(tmp_path / "torch", "2.12.1+cu130"))
    )
    monkeypatch.chdir(tmp_path)
    backend.build_state("wheel")
    assert backend.dynamic_metadata({}, {}) == {
        "version": "0.2.0+torch2.12",
        "dependencies": ["torch==2.12.*"],
    }
    backend.build_state("sdist")
    assert backend.dynamic_metadata({}, {}) == {
        "version": "0.2.0",
        "dependencies": ["torch>=2.11,<2.16"],
    }
    # A wheel from an sdist keeps the sdist's version: installers insist on it.
    (tmp_path / "PKG-INFO").touch()
    backend.build_state("wheel")
    assert backend.dynamic_metadata({}, {}) == {
        "version": "0.2.0",
        "dependencies": ["torch==2.12.*"],
    }


def test_an_sdist_excludes_releases_between_the_supported_ones(backend, monkeypatch):
    backend.build_state("sdist")
    monkeypatch.setattr(backend, "SUPPORTED", ("2.9", "2.11", "2.14"))
    assert backend.dynamic_metadata({}, {})["dependencies"] == [
        "torch>=2.9,!=2.10.*,!=2.12.*,!=2.13.*,<2.15"
    ]
    monkeypatch.setattr(backend, "SUPPORTED", ("2.9",))
    assert backend.dynamic_metadata({}, {})["dependencies"] == ["torch>=2.9,<2.10"]


# --- requirements ---


def test_requirements_are_exact_pins(backend):
    pins = {}
    for file in sorted((ROOT / "requirements").glob("*.txt")):
        for line in file.read_text().splitlines():
            if line and not line.startswith(("#", "-c ")):
                assert re.fullmatch(r"[\w.-]+==[\w.]+", line), (
                    f"expected name==version in {file.name}, but got {line!r}"
                )
                name, version = line.split("==")
                assert pins.setdefault(name.lower().replace("-", "_"), version) == version, (
                    f"{name} is pinned twice"
                )
    assert ".".join(pins["torch"].split(".")[:2]) in backend.SUPPORTED
