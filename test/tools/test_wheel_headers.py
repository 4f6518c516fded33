"""Headers that a build reads are in this repository, in PyTorch's wheel, or come with the compiler.
A build must not depend on a library that a machine happens to have, which PyTorch's headers may
include and its wheels lack. (Names without a folder are skipped: most belong to the C and C++
libraries.)"""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
WHEEL = Path(torch.__file__).parent / "include"
FOLDERS = [
    ROOT,
    ROOT / "aten/src",
    ROOT / "third_party/include",
    WHEEL,
    WHEEL / "torch/csrc/api/include",
]
INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]", re.MULTILINE)

# Headers that PyTorch includes under conditions that a wheel for Linux does not meet, and system
# headers.
ELSEWHERE = {
    "ATen/selected_mobile_ops.h",
    "CL",
    "android",
    "experimental",
    "gflags",
    "glog",
    "hip",
    "sycl",
    "sys",
    "thrust",
}


def sources():
    """Return the sources that g++ compiles. CUDA's headers come with nvcc, and those of a PyTorch
    tree with the tree."""
    return [
        path
        for folder in ("aten", "c10", "torch")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".h", ".cpp") and not {"cuda", "intree"} & set(path.parts)
    ]


def find_missing(todo):
    """Return the names in folders that are found nowhere, each with a header that includes it."""
    seen, found = set(), {}
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for quote, name in INCLUDE.findall(path.read_text(errors="replace")):
            folders = [path.parent, *FOLDERS] if quote == '"' else FOLDERS
            header = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if header is not None:
                todo.append(header)
            elif "/" in name:
                found[name] = path
    return found


@pytest.mark.whole
@pytest.mark.skipif(not WHEEL.is_dir(), reason="needs a PyTorch installed with its headers")
def test_no_build_needs_a_library_of_the_machine():
    libraries = {
        name: path
        for name, path in find_missing(sources()).items()
        if not {name, name.split("/")[0]} & ELSEWHERE
    }
    assert libraries == {}


def test_such_a_library_is_found(tmp_path):
    header = tmp_path / "a.h"
    header.write_text('#include <no_such_library/b.hpp>\n#include "c.h"\n#include <vector>\n')
    (tmp_path / "c.h").write_text("#include <nor_this/d.h>\n")
    assert find_missing([header]) == {
        "no_such_library/b.hpp": header,
        "nor_this/d.h": tmp_path / "c.h",
    }
