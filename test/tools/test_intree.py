"""The formats in a PyTorch tree (tools/intree): all edits or none, and programs that compile
against edited headers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import in_tree
import pytest
import torch
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from intree import applying, building, command, laying  # noqa: E402
from intree.edits import EDITS, edits_for  # noqa: E402
from intree.releases import RELEASES, Refused, Tree, include_tree, source_tree  # noqa: E402
from intree.rows import builtin_rows, header  # noqa: E402

COMMAND = ROOT / "tools" / "intree" / "build"
INCLUDE = Path(os.environ.get("INTREE_HEADERS", Path(torch.__file__).parent / "include"))
VERSION = re.search(
    r"^__version__ = '(\d+\.\d+)", (INCLUDE.parent / "version.py").read_text(), re.MULTILINE
)[1]
CPP = ROOT / "test" / "numbers" / "cpp"

known_headers = pytest.mark.skipif(
    VERSION not in RELEASES, reason=f"PyTorch {VERSION} has no table of edits"
)


def run(*arguments):
    return subprocess.run(
        [sys.executable, COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def source(tmp_path):
    """Build the parts of a source tree of 2.6 that the tool reads: each file has the anchors of its
    edits."""
    folder = tmp_path / "pytorch"
    release = RELEASES["2.6"]
    texts = {
        "version.txt": "2.6.0a0+debian\n",
        "aten/src/ATen/native/native_functions.yaml": "",
        "torch/csrc/Module.cpp": "",
    }
    for edit in EDITS:
        if release.name in edit.releases:
            place = edit.place(release)
            texts[place] = (
                texts.get(place, "") + edit.anchor.replace("{last}", release.last) + "\n//\n"
            )
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return folder


def copied_headers(folder):
    """Copy only the edited headers into an include folder, since a whole copy takes long."""
    tree = include_tree(INCLUDE)
    for path, _ in edits_for(tree):
        place = folder / tree.place(path).relative_to(INCLUDE)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree.place(path), place)
    shutil.copy(INCLUDE.parent / "version.py", folder.parent)
    return folder


@pytest.fixture
def include(tmp_path):
    return copied_headers(tmp_path / "torch" / "include")


# --- edits ---


def test_a_source_tree_is_edited(source):
    done = run("--edits-only", source)
    assert done.returncode == 0, done.stderr
    release = RELEASES["2.6"]
    for edit in EDITS:
        if release.name in edit.releases:
            assert edit.text in (source / edit.place(release)).read_text()
    laid = laying.laid_files(source_tree(source))
    assert all((source / path).read_text() == text for path, text in laid.items())
    assert {
        "c10/formats/NumberFormat.h",
        "c10/formats/FormatRegistry.cpp",
        "c10/formats/intree/ScalarTypeRows.h",
    } < set(laid)
    assert {
        "aten/src/ATen/FormatTensor.h",
        f"{laying.FORMATS}/operators/boxed/Boxed.cpp",
        f"{laying.FORMATS}/intree/FormatTensorImpl.cpp",
    } < set(laid)
    assert not [path for path in laid if "/overlay/" in path or "/host/hooks/" in path]
    assert (source / "c10/formats/FormatRegistry.h").read_text() == (
        ROOT / "c10/formats/intree/FormatRegistry.h"
    ).read_text()
    assert not list(source.rglob("*.new"))


@pytest.mark.parametrize("headers_only", [True, False])
def test_what_is_laid_includes_only_what_is_laid(headers_only):
    laid = laying.laid_files(Tree(ROOT, RELEASES["2.6"], headers_only))
    for path, text in laid.items():
        for name in re.findall(r"^#include <(.*)>", text, re.MULTILINE):
            ours = next(
                (place for place in (name, f"aten/src/{name}") if (ROOT / place).is_file()), None
            )
            assert ours is None or ours in laid, f"{path} includes {name}"


def test_every_source_that_is_laid_is_compiled_once():
    laid = laying.laid_files(Tree(ROOT, RELEASES["2.6"], headers_only=False))
    listed = re.findall(r"\S+\.cpp", laid[laying.SOURCES] + laid[laying.BINDING_SOURCES])
    # The kernels and sources that cmake/Codegen.cmake finds.
    kernels = {path for path in laid if re.fullmatch(rf"{laying.FORMATS}/cpu/\w+Kernel\.cpp", path)}
    c10 = {path for path in laid if path.startswith("c10/formats/") and path.endswith(".cpp")}
    assert len(listed) == len(set(listed)) > 60
    assert {path for path in laid if path.endswith(".cpp")} == {
        *listed,
        *kernels,
        *c10,
        f"{laying.FORMATS}/intree/Load.cpp",
        *laying.PYTHONS,
    }


def refusal(folder, *arguments):
    """Return the line with which the tool refuses a folder, which it must not change."""
    before = contents(folder)
    done = run(*arguments)
    assert done.returncode == 1, done.stdout
    assert contents(folder) == before
    assert not done.stdout
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_what_is_not_pytorch_is_refused(tmp_path):
    (tmp_path / "README").write_text("no PyTorch")
    assert "expected a PyTorch source tree, but got" in refusal(tmp_path, tmp_path)


@pytest.mark.parametrize(
    "version, why",
    [
        ("2.5.1", "expected PyTorch 2.6, 2.13, 2.14, 2.15, but got 2.5.1"),
        ("", "without a version"),
        ("2.13.0", "only the headers are known"),
    ],
)
def test_other_releases_are_refused(source, version, why):
    (source / "version.txt").write_text(version)
    assert why in refusal(source, "--edits-only", source)


def test_an_edited_tree_is_refused(source):
    assert run("--edits-only", source).returncode == 0
    assert "was edited before" in refusal(source, "--edits-only", source)


@pytest.mark.parametrize("count", [0, 2])
def test_an_anchor_must_be_there_once(source, count):
    place = source / "c10/core/Scalar.h"
    place.write_text("AT_FORALL_COMPLEX_TYPES(DEFINE_IMPLICIT_CTOR)\n" * count)
    error = refusal(source, "--edits-only", source)
    assert (
        "expected 'AT_FORALL_COMPLEX_TYPES(DEFINE_IMPLICIT_CTOR)' once in c10/core/Scalar.h of "
        f"PyTorch 2.6, but got it {count} times"
    ) in error


def test_a_missing_file_and_a_file_of_this_project_are_refused(source):
    (source / "c10/formats").mkdir()
    (source / "c10/formats/codec").mkdir(parents=True)
    (source / "c10/formats/codec/Philox.h").write_text("another's")
    assert "expected no c10/formats/codec/Philox.h in PyTorch" in refusal(
        source, "--edits-only", source
    )
    (source / "c10/util/typeid.cpp").unlink()
    assert "expected c10/util/typeid.cpp in PyTorch 2.6" in refusal(source, "--edits-only", source)


@pytest.mark.parametrize("failing", [0, 7, 30])
def test_where_writing_fails_everything_is_put_back(source, monkeypatch, failing):
    before = contents(source)
    write, written = applying._exchange, []

    def full(place, content):
        written.append(place)
        if len(written) == failing + 1:
            raise OSError("no space left on device")
        write(place, content)

    monkeypatch.setattr(applying, "_exchange", full)
    with pytest.raises(OSError, match="no space left"):
        applying.apply(source_tree(source))
    assert contents(source) == before
    assert not (source / "c10" / "formats").exists()


def test_another_link_to_a_file_keeps_its_text(source, tmp_path):
    os.link(source / "c10/core/Scalar.h", tmp_path / "other")
    before = (tmp_path / "other").read_text()
    applying.apply(source_tree(source))
    assert (tmp_path / "other").read_text() == before


@known_headers
def test_headers_are_edited_in_a_copy_alone(include, tmp_path):
    before = contents(include)
    done = run("--only-headers", include, "--to", tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    assert contents(include) == before
    after = contents(tmp_path / "copy")
    assert {path for path in before if after[path] == before[path]} == set()
    again = run("--only-headers", include, "--to", tmp_path / "copy")
    assert again.returncode == 1 and "a folder that does not exist yet" in again.stderr


@known_headers
def test_a_copy_that_fails_is_taken_away(include, tmp_path, monkeypatch):
    monkeypatch.setattr(applying, "apply", lambda tree: (_ for _ in ()).throw(Refused("no")))
    with pytest.raises(Refused):
        applying.edit_copy(include_tree(include), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_wrong_calls_are_explained(tmp_path):
    assert "expected one of SOURCE, --only-headers INCLUDE and --check INCLUDE" in run().stderr
    assert "expected --to COPY with --only-headers" in run("--only-headers", tmp_path).stderr
    assert "expected the include folder" in refusal(
        tmp_path, "--only-headers", tmp_path, "--to", tmp_path / "copy"
    )
    assert "expected the include folder" in refusal(tmp_path, "--check", tmp_path)


def test_what_a_build_lacks_is_named_at_once_and_before_any_edit(source, monkeypatch):
    monkeypatch.setattr(building, "PROGRAMS", ("no-such-program",))
    monkeypatch.setattr(building, "MODULES", ("no_such_module",))
    monkeypatch.setattr(
        building, "HEADERS", {"stdio.h": "libc6-dev", "no/such/header.h": "libnone-dev"}
    )
    before = contents(source)
    done = CliRunner().invoke(command.main, [str(source)])
    assert done.exit_code == 1
    assert (
        "but got one without the program no-such-program; Python's no_such_module; "
        "<no/such/header.h> (libnone-dev); install"
    ) in done.output
    assert contents(source) == before


def test_clang_is_taken_where_its_openmp_is(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, says in {
        "clang++": "a clang version",
        "clang": "",
        "c++": "a gcc version",
        "clang++-7": "clang",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\necho {says}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    assert building.choose_compiler() == str(programs / "c++")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libomp.so").touch()
    assert building.choose_compiler() == str(programs / "clang++")
    with_clang = building.configure_command(tmp_path, tmp_path / "build")
    assert {
        f"-DCMAKE_C_COMPILER={programs / 'clang'}",
        f"-DOpenMP_libomp_LIBRARY={tmp_path / 'lib' / 'libomp.so'}",
    } < set(with_clang)
    monkeypatch.setenv("CXX", "c++")
    assert not any(
        "libomp" in word or "C_COMPILER=" in word
        for word in building.configure_command(tmp_path, tmp_path / "build")
    )
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "CMakeCache.txt").write_text(
        "A:STRING=1\nCMAKE_CXX_COMPILER:FILEPATH=/x/g++\n"
    )
    assert building.choose_compiler(tmp_path / "build") == "/x/g++"
    (tmp_path / "lib" / "libomp.so").unlink()
    monkeypatch.setenv("CXX", str(programs / "clang++-7"))
    monkeypatch.setattr(building, "HEADERS", {})
    assert building.find_missing()[-1] == f"{tmp_path / 'lib' / 'libomp.so'} (libomp-dev)"


def test_a_build_configures_then_builds(source, monkeypatch):
    commands = []
    monkeypatch.setattr(building, "find_missing", list)
    monkeypatch.setattr(building, "is_clang", lambda cxx: False)

    def run_second_fails(words, **_):
        commands.append(words)
        return subprocess.CompletedProcess(words, int(len(commands) == 3))

    monkeypatch.setattr(building.subprocess, "run", run_second_fails)
    elsewhere = source.parent / "elsewhere"
    words = [
        str(source),
        "--target",
        "c10",
        "--jobs",
        "3",
        "--folder",
        str(elsewhere),
        "--define",
        "CXX_HAS_AVX512_2=OFF",
    ]
    done = CliRunner().invoke(command.main, words)
    assert [words[0] for words in commands] == ["flatc", "cmake", "ninja"]
    assert commands[0][-1] == str(source / "torch/csrc/jit/serialization/mobile_bytecode.fbs")
    assert {
        "-DUSE_CUDA=OFF",
        "-DUSE_SYSTEM_LIBS=ON",
        "-DBLAS=OpenBLAS",
        "-DCXX_HAS_AVX512_2=OFF",
        str(elsewhere),
    } < set(commands[1])
    assert commands[2][-3:] == ["-j", "3", "c10"]
    assert done.exit_code == 1 and "expected ninja to succeed, but got status 1" in done.output
    assert (source / "c10" / "formats").exists()
    finished = []
    monkeypatch.setattr(building, "finish", lambda *given: finished.append(given))
    # The tool goes on in the edited tree.
    again = CliRunner().invoke(
        command.main, [str(source), "--build-only", "--folder", str(elsewhere)]
    )
    assert again.exit_code == 0 and finished == [(source, elsewhere)]
    assert commands[-1][-2:] == ["torch_shm_manager", "torch_dtypes_python"]


@pytest.mark.parametrize("function", ["bits_of", "compute_of"])
def test_both_registries_say_the_same_of_a_format(function):
    texts = {path: path.read_text() for path in (ROOT / "c10/formats").rglob("*.[ch]*")}
    bodies = [
        path.name
        for path, text in texts.items()
        if re.search(rf"^(inline )?ScalarType {function}\(", text, re.MULTILINE)
    ]
    assert bodies == ["FormatRegistryTypes.h"], "there is one"
    for name in (laying.OWN, laying.OVERLAYS):
        assert f"{function}(format)" in texts[ROOT / f"{name}.cpp"]


def test_the_documents_table_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "intree" / "table.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        done.stderr or "docs/reference/edits.md is not up to date: python tools/intree/table.py"
    )


def test_rows_are_the_built_in_formats():
    from torch_dtypes import _C

    rows = builtin_rows(ROOT)
    assert [f"torch.{row.name}" for row in rows] == [str(dtype) for dtype in _C.builtin_dtypes()]
    assert [row.enumerator for row in rows][:2] == ["Posit8es0", "Posit8es1"]
    assert "_(c10::tf32, Tf32)" in header(
        rows
    ) and "using tf32 = formats::Element<8, uint32_t>;" in header(rows)


# --- programs ---


def compile_program(out, includes, *sources, link=()):
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folders = [word for folder in includes for word in ("-I", str(folder))]
    command = [
        compiler,
        "-std=gnu++20",
        "-O0",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        *folders,
        *map(str, sources),
        *link,
        "-o",
        str(out),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    # The compiler would warn of a switch in PyTorch without the rows of formats.
    assert "enumeration value" not in built.stderr, built.stderr
    done = subprocess.run([str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def includes(tmp_path_factory):
    """Return the include options: edited headers first, then the others. INTREE_HEADERS names
    another PyTorch's include folder."""
    folder = tmp_path_factory.mktemp("intree")
    applying.edit_copy(
        include_tree(copied_headers(folder / "torch" / "include")), folder / "edited"
    )
    return [folder / "edited", INCLUDE]


@pytest.mark.whole
@known_headers
def test_types_of_pytorchs_own_list(includes, tmp_path):
    library = Path(torch.__file__).parent / "lib"
    ours = includes[0] / "c10" / "formats"
    sources = (
        CPP / "intree" / "test_scalar_types.cpp",
        ours / "FormatRegistry.cpp",
        ours / "intree" / "ScalarTypes.cpp",
    )
    compile_program(
        tmp_path / "program",
        includes,
        *sources,
        link=[f"-L{library}", "-lc10", f"-Wl,-rpath,{library}"],
    )


@known_headers
def test_numbers_against_edited_headers(includes, tmp_path):
    compile_program(
        tmp_path / "program", [*includes, ROOT / "aten" / "src"], CPP / "test_dispatch.cpp"
    )


@known_headers
@pytest.mark.skipif(
    not (INCLUDE / "torch" / "headeronly").is_dir(),
    reason="this release has no headers for use without its libraries",
)
def test_headers_without_a_library(includes, tmp_path):
    compile_program(tmp_path / "program", includes, CPP / "intree" / "test_headers_alone.cpp")


def test_files_that_a_tree_leaves_out_are_there():
    assert not [path for path in in_tree.LEFT_OUT if not Path(path).exists()]
