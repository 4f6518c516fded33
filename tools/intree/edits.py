"""The list of all edited places of PyTorch, one row each, with its reason.

Each folder of PyTorch has a file of rows; the build's are here. The table in
docs/reference/edits.md is made from this list.
"""

from __future__ import annotations

from .aten_edits import ATEN_EDITS
from .c10_edits import C10_EDITS
from .csrc_edits import CSRC_EDITS
from .edit import SOURCES, Edit
from .python_edits import PYTHON_EDITS
from .releases import Tree

_BUILD_EDITS = (
    Edit(
        "c10/CMakeLists.txt",
        "          util/*.cpp\n",
        "after",
        "          formats/*.cpp\n          formats/*/*.cpp\n",
        "The formats' sources of c10.",
        SOURCES,
    ),
    Edit(
        "c10/CMakeLists.txt",
        "if(NOT BUILD_LIBTORCHLESS)\n  add_library(c10 ",
        "before",
        "# Number formats are written in C++20.\n"
        "file(GLOB C10_FORMAT_SRCS formats/*.cpp formats/*/*.cpp)\n"
        "set_source_files_properties(${C10_FORMAT_SRCS} PROPERTIES COMPILE_OPTIONS "
        '"-std=gnu++20;-fvisibility=default;-ffp-contract=off;-ftrapping-math;-fmath-errno")\n',
        "PyTorch 2.6 is C++17, and so are the formats' headers that its other headers include.",
        SOURCES,
    ),
    Edit(
        "cmake/Codegen.cmake",
        '"${PROJECT_SOURCE_DIR}/aten/src/ATen/native/quantized/cpu/kernels/*.cpp")',
        "instead",
        '"${PROJECT_SOURCE_DIR}/aten/src/ATen/native/quantized/cpu/kernels/*.cpp" '
        '"${PROJECT_SOURCE_DIR}/aten/src/ATen/native/formats/cpu/*Kernel.cpp")',
        "Kernels are compiled once per vector unit. In the order of linking, no inline function of "
        "a newer unit replaces an older unit's.",
        SOURCES,
    ),
    Edit(
        "torch/CMakeLists.txt",
        'install(TARGETS torch_python DESTINATION "${TORCH_INSTALL_LIB_DIR}")\n',
        "after",
        "include(${Torch_SOURCE_DIR}/torch/csrc/formats/intree/Bindings.cmake)\n",
        "The extension module of the package `torch_dtypes`.",
        SOURCES,
    ),
    Edit(
        "caffe2/CMakeLists.txt",
        "add_library(torch ${DUMMY_EMPTY_FILE})\n",
        "after",
        "include(${Torch_SOURCE_DIR}/aten/src/ATen/native/formats/intree/Formats.cmake)\n",
        "The formats' sources of ATen, as C++20 without precompiled headers.",
        SOURCES,
    ),
)

EDITS = (*C10_EDITS, *ATEN_EDITS, *CSRC_EDITS, *PYTHON_EDITS, *_BUILD_EDITS)


def edits_for(tree: Tree) -> list[tuple[str, Edit]]:
    """Return the edits of a tree, with their files. Where only headers are, headers only."""
    rows = [edit for edit in EDITS if tree.release.name in edit.releases]
    return [
        (path, edit) for edit in rows if tree.place(path := edit.place(tree.release)) is not None
    ]
