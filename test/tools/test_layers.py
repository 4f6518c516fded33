"""Headers that each layer may include: numbers, kernels, numerics, operators, overlay, in the
direction in which data flows."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMATS = "aten/src/ATen/native/formats"


def find_header(name):
    """Return the path of a header of this project by the name under which it is included, or
    None."""
    return next((path for path in (name, f"aten/src/{name}") if (ROOT / path).is_file()), None)


def includes(path):
    return re.findall(
        r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", (ROOT / path).read_text(), re.MULTILINE
    )


def sources(folder, *, but=()):
    """Return the sources below a folder, except in the named folders."""
    found = [p.relative_to(ROOT / folder) for p in (ROOT / folder).rglob("*")]
    kept = [p for p in found if p.suffix in (".h", ".cpp", ".cu") and p.parts[0] not in but]
    return sorted(f"{folder}/{p.as_posix()}" for p in kept)


def find_headers(path):
    """Return the headers that a source includes through this project's headers: their paths, and
    the names of other headers."""
    seen, others, todo = set(), set(), [path]
    while todo:
        for name in includes(todo.pop()):
            header = find_header(name)
            if header is None:
                others.add(name)
            elif header not in seen:
                seen.add(header)
                todo.append(header)
    return seen, others


def of_pytorch(name):
    return name.startswith(("ATen/", "c10/", "torch/"))


NUMBERS = sources("c10/formats", but=("intree",))
# Files for PyTorch's own tree, which tools/intree places there.
IN_TREE = sources("c10/formats/intree")
SEAM = "c10/formats/FormatRegistry"  # gives a format its ScalarType
KERNELS = sources(f"{FORMATS}/cpu")
DEVICE_KERNELS = sources(f"{FORMATS}/cuda")
BINDING = f"{FORMATS}/cuda/Binding.cpp"
NUMERICS = sources("aten/src/ATen", but=("native",)) + sources(
    FORMATS, but=("cpu", "cuda", "operators", "overlay", "intree")
)
OPERATORS = sources(f"{FORMATS}/operators")
OVERLAY = sources(f"{FORMATS}/overlay")
TREE = sources(f"{FORMATS}/intree")  # replaces the overlay in a PyTorch tree
TENSORS = NUMERICS + OPERATORS + OVERLAY + TREE


def test_the_layers_are_there():
    assert len(NUMBERS) > 15
    assert len(KERNELS) > 7
    assert len(DEVICE_KERNELS) > 6
    assert len(NUMERICS) > 35
    assert len(OPERATORS) > 35
    assert len(OVERLAY) > 5
    assert TREE


def test_numbers_include_nothing_of_pytorch():
    for path in NUMBERS:
        if not path.startswith(SEAM):
            headers, others = find_headers(path)
            assert not [name for name in others if of_pytorch(name)], path
            assert all(h.startswith("c10/formats/") for h in headers), path


def test_the_seam_includes_scalar_types_and_errors_alone():
    _, others = find_headers(f"{SEAM}.cpp")
    assert {name for name in others if of_pytorch(name)} <= {
        "c10/core/ScalarType.h",
        "c10/util/Exception.h",
    }


def test_the_seam_in_a_tree_is_as_narrow():
    assert len(IN_TREE) > 3
    named = {
        name
        for path in IN_TREE
        for name in includes(path)
        if of_pytorch(name) and find_header(name) is None
    }
    rows = "c10/formats/intree/ScalarTypeRows.h"  # generated when the files are placed in a tree
    assert named == {
        rows,
        "c10/core/ScalarType.h",
        "c10/macros/Export.h",
        "c10/util/Exception.h",
        "c10/util/typeid.h",
    }
    assert {name for name in includes("c10/formats/intree/ScalarTypes.h") if of_pytorch(name)} == {
        rows
    }
    users = [
        path
        for path in NUMBERS + KERNELS + TENSORS
        for name in includes(path)
        if name.startswith("c10/formats/intree/")
    ]
    assert not users


def test_kernels_include_nothing_of_pytorch_and_no_tensor():
    allowed = ("c10/formats/", f"{FORMATS}/cpu/", "aten/src/ATen/FormatDispatch.h")
    for path in KERNELS:
        headers, others = find_headers(path)
        assert not [name for name in others if of_pytorch(name)], path
        assert all(h.startswith(allowed) and not h.startswith(SEAM) for h in headers), path


def test_device_kernels_include_the_runtime_alone():
    allowed = (
        "c10/formats/",
        f"{FORMATS}/cuda/",
        f"{FORMATS}/cpu/Kernels.h",
        f"{FORMATS}/cpu/Instructions.h",
    )
    for path in DEVICE_KERNELS:
        if path != BINDING:
            headers, others = find_headers(path)
            assert not [name for name in others if of_pytorch(name)], path
            assert {name for name in others if name.endswith(".h")} <= {"cuda_runtime.h"}, path
            assert all(h.startswith(allowed) and not h.startswith(SEAM) for h in headers), path


def test_one_file_includes_pytorchs_cuda():
    users = [
        p
        for p in sources("aten/src/ATen") + sources("torch/csrc")
        if any("/cuda/CUDA" in name for name in includes(p))
    ]
    assert users == [BINDING]


def test_numerics_include_nothing_of_the_layers_above():
    above = (f"{FORMATS}/operators/", f"{FORMATS}/overlay/", "torch/")
    for path in NUMERICS:
        headers, _ = find_headers(path)
        assert not [h for h in headers if h.startswith(above)], path


def test_operators_include_nothing_of_the_overlay():
    for path in OPERATORS + TREE:
        headers, _ = find_headers(path)
        assert not [h for h in headers if h.startswith((f"{FORMATS}/overlay/", "torch/"))], path


def test_the_overlay_includes_nothing_of_python():
    for path in OVERLAY:
        headers, _ = find_headers(path)
        assert not [h for h in headers if h.startswith("torch/")], path


@pytest.mark.parametrize(
    "declared", ["make_format_impl(", "& entry_of(", "bool any_format_tensor("]
)
def test_how_a_tensor_holds_its_format_is_defined_once_a_build(declared):
    impl = "FormatTensorImpl.cpp"
    definition = re.compile(rf"^(?! ).*{re.escape(declared)}[^;{{]*\{{$", re.MULTILINE)
    defined = [path for path in TENSORS if definition.search((ROOT / path).read_text())]
    assert defined == [f"{FORMATS}/overlay/{impl}", f"{FORMATS}/intree/{impl}"]


CMAKE = (ROOT / "CMakeLists.txt").read_text()


def list_sources(name):
    """Return the sources of a list in CMakeLists.txt."""
    return set(re.findall(r"\S+\.cpp", re.search(rf"set\({name}\b(.*?)\n\)", CMAKE, re.DOTALL)[1]))


def names_of_its_own(text):
    """Return the names that a source defines in an unnamed namespace or as static, and the aliases
    that it makes in a namespace."""
    spaces, names = [], set()
    for line in text.splitlines():
        if re.match(r"namespace.*\{$", line):
            spaces.append(line)
        elif line.startswith("} // namespace"):
            spaces.pop()
        elif re.match(r"[A-Za-z\[]", line) and (
            "namespace {" in spaces or line.startswith(("static ", "using "))
        ):
            alias = re.match(r"using (\w+) = ([^;]*)", line)
            kind = re.match(r"(?:struct|class|enum class|enum) (\w+)", line)
            called = re.search(r"\b(\w+)(?:\(|\[| =|\{|;)", line)
            if alias:
                names.add((alias[1], alias[2]))
            elif not line.startswith(("using ", "template <", "TORCH_LIBRARY")) and (
                kind or called
            ):
                names.add(((kind or called)[1], None))
    return names


OWN = """
using std::pair;
using Row = int;
int shown();
namespace a {
namespace {

template <class T>
T made(T t) {
  return f(t);
}

struct S {};
constexpr int kA = 1;
} // namespace
static void quiet() {
}
int loud() {
}
} // namespace a
"""


def test_names_of_its_own_are_found():
    assert names_of_its_own(OWN) == {
        ("Row", "int"),
        ("made", None),
        ("S", None),
        ("kA", None),
        ("quiet", None),
    }


BINDINGS = ("OVERLAY_SOURCES", "BINDING_SOURCES", "SCRIPT_SOURCES", "PYTHON_SOURCES")


@pytest.mark.parametrize(
    "lists",
    [("FORMAT_SOURCES", "NUMERICS_SOURCES"), ("OPERATOR_SOURCES",), BINDINGS],
    ids=lambda lists: lists[-1],
)
def test_sources_of_a_target_share_no_name_of_their_own(lists):
    """Sources may be compiled as one (cmake/BuildTime.cmake), where two functions of one name would
    be overloads."""
    users, meanings = defaultdict(set), defaultdict(set)
    for path in set().union(*map(list_sources, lists)):
        for name, alias in names_of_its_own((ROOT / path).read_text()):
            users[name].add(path)
            meanings[name].add(alias)
    assert len(users) > 50
    assert not {
        name: paths
        for name, paths in users.items()
        if len(paths) > 1 and (None in meanings[name] or len(meanings[name]) > 1)
    }


def test_targets_are_these_layers():
    assert list_sources("NUMERICS_SOURCES") == {p for p in NUMERICS if p.endswith(".cpp")} | {
        f"{FORMATS}/cpu/Kernels.cpp"
    }
    assert set(re.findall(r"\S+\.cu\b", CMAKE)) == {p for p in DEVICE_KERNELS if p.endswith(".cu")}
    assert list_sources("OPERATOR_SOURCES") == {p for p in OPERATORS if p.endswith(".cpp")}
    assert list_sources("OVERLAY_SOURCES") == {p for p in OVERLAY if p.endswith(".cpp")}


def test_pythons_sources_define_nothing_of_the_layers_below():
    for path in sources("torch/csrc"):
        assert not re.search(r"^namespace at::", (ROOT / path).read_text(), re.MULTILINE), path


def test_loops_get_their_kernels_by_the_device():
    users = [p for p in TENSORS if "cpu_kernels()" in (ROOT / p).read_text()]
    assert users == [f"{FORMATS}/gpu/DeviceKernels.cpp"]


def test_loops_of_dot_products_know_no_tensor():
    headers, others = find_headers(f"{FORMATS}/sums/DotLoops.cpp")
    assert f"{FORMATS}/sums/StepSums.h" in headers
    assert "aten/src/ATen/FormatTensor.h" not in headers
    assert not [name for name in others if re.search(r"\bTensor|/ops/|^torch/", name)]


def test_the_rule_for_signs_of_nan_stands_once():
    assert not [p for p in KERNELS + TENSORS if "Specials::None" in (ROOT / p).read_text()]


PACKAGE = ROOT / "torch/torch_dtypes"
LIBRARIES = frozenset(
    (
        "click distributed jax jinja2 joblib matplotlib ml_dtypes numpy pandas pydoc_data rich "
        "safetensors scipy sklearn torchvision transformers yaml"
    ).split()
)  # optional or heavy modules
HEAVY = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.nn.attention",
    "torch.nn.modules",
    "torch.utils.flop_counter",
)
# Modules whose functions import others of the package, because these need click, rich or
# transformers, or are heavy.
MAY_IMPORT_LATE = {
    "_torch_version.py": {"_build_info"},
    "cli.py": {"torch", "torch_dtypes", "torch_dtypes.workbench.training.together"},
    "host/distributed/dtensor.py": {""},
    "host/distributed/wrappers.py": {""},
    "workbench/bench/running.py": {"", "charts"},
    "workbench/perplexity/models.py": {"integrations.transformers_config"},
    "workbench/show_command.py": {"cards.comparison"},
    "workbench/sweeps/calling.py": {"", "report.progress", "display", "sweeping"},
}


def late_imports(path):
    """Return the modules that functions of a source import."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    tree = ast.parse(path.read_text())
    inside = [n for f in ast.walk(tree) if isinstance(f, functions) for n in ast.walk(f)]
    for node in inside:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_functions_import_only_what_is_optional_or_heavy():
    for path in sorted(PACKAGE.rglob("*.py")):
        found = {name for name in late_imports(path) if name.split(".")[0] not in LIBRARIES}
        found = {name for name in found if not name.startswith(HEAVY)}
        assert found == MAY_IMPORT_LATE.get(path.relative_to(PACKAGE).as_posix(), set()), path


def test_the_package_has_few_files_at_the_top():
    top = [p for p in PACKAGE.iterdir() if p.is_file() and p.suffix not in (".so", ".pyc")]
    assert len([p for p in top if p.name != "_build_info.py"]) <= 8, top
