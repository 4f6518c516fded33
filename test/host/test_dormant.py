"""Before its first use the package changes nothing in PyTorch. Tests show which calls wake it, and
that objects taken from PyTorch before still work."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

import _torch_dtypes_autoload as autoload
import torch_dtypes
from torch_dtypes.storage import pickling


def run(program: str, *arguments: str, **environment: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


ASLEEP = """
import sys, torch


def check_asleep():
    assert "torch_dtypes" not in sys.modules and not any(
        "torch_dtypes/_C" in line for line in open("/proc/self/maps")
    )


check_asleep()
"""

# Print every function, class member and small container of PyTorch's modules by name, with a mark
# that shows a change.
LOOK = """
import json, sys, types, warnings
import torch

warnings.simplefilter("ignore")


def look(value):
    if isinstance(value, types.FunctionType):
        return [
            value.__module__,
            value.__qualname__,
            value.__code__.co_filename,
            value.__code__.co_firstlineno,
            len(value.__code__.co_code),
        ]
    if isinstance(value, (list, dict, set, tuple)):
        return [type(value).__name__, len(value)]
    return [
        type(value).__module__,
        type(value).__qualname__,
        value.__qualname__ if isinstance(value, type) else "",
    ]


seen = {}
for name, module in list(sys.modules.items()):
    if name == "torch" or name.startswith("torch."):
        for key, value in list(vars(module).items()):
            seen[f"{name}.{key}"] = look(value)
            if isinstance(value, type) and value.__module__.startswith("torch"):
                seen.update({f"{name}.{key}.{k}": look(v) for k, v in list(vars(value).items())})
seen["modules"] = sorted(sys.modules)
json.dump(seen, sys.stdout)
"""


@pytest.mark.whole
def test_pytorch_differs_in_one_function_and_one_set():
    with_it, without = (json.loads(run(LOOK, TORCH_DEVICE_BACKEND_AUTOLOAD=auto)) for auto in "10")
    modules = set(with_it.pop("modules")) - set(without.pop("modules"))
    own = {
        name for name in modules if "torch_dtypes" in name and not name.startswith("_editable_skbc")
    }
    assert own == {"_torch_dtypes_autoload"}
    assert {
        name for name in modules - own if "torch" in name and not name.startswith("_editable_skbc")
    } == set()
    changed = {name for name in {**with_it, **without} if with_it.get(name) != without.get(name)}
    # One set, which two modules share.
    assert {name.rpartition(".")[2] for name in changed} == {
        "__getattr__",
        "_marked_safe_globals_set",
    }, changed
    assert "torch.__getattr__" in changed and len(without) > 10_000
    run(ASLEEP)


def test_every_built_in_dtype_wakes_it():
    for dtype in torch_dtypes.builtin_dtypes():
        assert autoload._DTYPES.fullmatch(str(dtype).removeprefix("torch."))
    program = (
        "import torch\n"
        "from torch import posit16es2\n"
        "assert posit16es2 is torch.posit16es2\n"
        "print(torch.ones(2, dtype=torch.tf32).dtype)"
    )
    assert run(program).strip() == "torch.tf32"


def test_files_may_call_what_the_package_allows():
    assert autoload._IN_FILES == {
        (functions[0].__module__, before): tuple(f.__name__ for f in functions)
        for before, functions in pickling.IN_FILES_BEFORE.items()
    }


@pytest.mark.whole
def test_names_of_others_stay_errors_and_wake_nothing():
    program = ASLEEP + (
        'assert not hasattr(torch, "posit") and not hasattr(torch, "e5") and not '
        'hasattr(torch, "nobody")\n'
        "check_asleep()\n"
    )
    run(
        program
        + (
            'assert not hasattr(torch, "q99") and not hasattr(torch, "e5m99")\n'
            "assert torch.ones(2).sum() == 2"
        )
    )


@pytest.mark.whole
def test_warnings_of_stock_names_show_the_caller():
    program = (
        "import warnings, torch\n"
        "with warnings.catch_warnings(record=True) as w:\n"
        "  warnings.simplefilter('always')\n"
        "  torch.has_mps\n"
    )
    assert run(program + "print(w[0].filename)").strip() == "<string>"


TAKEN = """
from torch import Tensor, cond, tensor, zeros_like
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim.adam import adam
from torch.autograd import grad
compiled = torch.compile(lambda x: normalize(x, dim=0) * 2, backend="eager", fullgraph=True)
x = tensor([3.0, 4.0], requires_grad=True)
kept = torch.compile(lambda x: x / 2 + 0.5, backend="eager", fullgraph=True)
y, before = compiled(x), x * 1.3
assert kept(x).tolist() == [2.0, 2.5]
"""


def test_what_was_taken_before_it_woke_works():
    program = (
        ASLEEP
        + TAKEN
        + """
check_asleep()
q = tensor([1.3, 200.0, 200.0], dtype=torch.q43)
assert (
    torch.equal(normalize(q, dim=0), torch.nn.functional.normalize(q, dim=0))
    and normalize is torch.nn.functional.normalize
)
assert (
    normalize(q, dim=0).tolist() == [0.00390625, 0.6875, 0.6875]
    and zeros_like(q).dtype is torch.q43
)
assert get_total_norm([q]).dtype is torch.float32 and get_total_norm([q]).isfinite()
logits = torch.zeros(128, 10, dtype=torch.q43)
assert cross_entropy(logits, torch.zeros(128, dtype=torch.long), label_smoothing=0.1).isfinite()
assert cond(torch.tensor(True), lambda t: t * 2, lambda t: t, (q,)).dtype is torch.q43
assert torch.equal(
    compiled(x), y
)  # compiled anew, once, where an exchanged function was in the graph
with torch._dynamo.config.patch(error_on_recompile=True):
    assert kept(x).tolist() == [2.0, 2.5]
assert torch.compile(lambda x: x / 2, backend="eager")(x.detach().to(torch.q43)).dtype is torch.q43
assert grad(before.sum(), x)[0].tolist() == [1.2999999523162842] * 2
assert Tensor([1.0]).dtype is torch.float32
"""
    )
    run(
        program.replace(
            "import sys", "import warnings; warnings.simplefilter('ignore')\nimport sys"
        )
    )


@pytest.fixture
def files(tmp_path):
    t = torch.tensor([1.3, -2.5], dtype=torch.posit16es2)
    torch.save({"a": t, "b": t * 2, "d": torch.q43}, tmp_path / "zip.pt")
    torch.save([t, t + 1], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "pickle").write_bytes(pickle.dumps([t, torch.q43]))
    return tmp_path


@pytest.mark.whole
@pytest.mark.parametrize("weights_only", [True, False])
def test_files_wake_it(files, weights_only):
    program = (
        f"loaded = torch.load(sys.argv[1], weights_only={weights_only})\n"
        "print(loaded['b'].tolist(), loaded['b'].dtype, loaded['d'])"
    )
    assert (
        run(ASLEEP + program, str(files / "zip.pt")).strip()
        == "[2.599609375, -5.0] torch.posit16es2 torch.q43"
    )


@pytest.mark.whole
def test_pickles_and_workers_wake_it(files):
    assert (
        run(
            ASLEEP + "import pickle\nprint(pickle.load(open(sys.argv[1], 'rb')))",
            str(files / "pickle"),
        ).count("posit16es2")
        == 1
    )
    program = """
import torch, torch.utils.data as data, multiprocessing

if __name__ == "__main__":
    rows = data.TensorDataset(torch.ones(4, 2, dtype=torch.q43))
    print(
        [
            b[0].dtype
            for b in data.DataLoader(rows, 2, num_workers=1, multiprocessing_context="spawn")
        ]
    )
"""
    (files / "main.py").write_text(program)
    done = subprocess.run(
        [sys.executable, files / "main.py"], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[torch.q43, torch.q43]", done.stderr


@pytest.mark.whole
@pytest.mark.parametrize("weights_only", [True, False])
def test_files_of_the_old_layout_ask_for_an_import(files, weights_only):
    program = f"""
try:
    torch.load(sys.argv[1], weights_only={weights_only})
except Exception as error:
    print(error)
import torch_dtypes
print(torch.load(sys.argv[1], weights_only={weights_only})[1].dtype)
"""
    first, *_, last = run(ASLEEP + program, str(files / "old.pt")).splitlines()
    assert "import torch_dtypes first" in first and last == "torch.posit16es2"


@pytest.mark.whole
def test_threads_and_forks_wake_it():
    program = (
        ASLEEP
        + """
import os, threading

found = []
threads = [
    threading.Thread(target=lambda: found.append(torch.tensor([1.3], dtype=torch.q43).tolist()))
    for _ in range(8)
]
child = os.fork()
if child == 0:
    os._exit(0 if torch.ones(1, dtype=torch.posit16es2).tolist() == [1.0] else 1)
[t.start() for t in threads]
[t.join() for t in threads]
assert found == [[1.25]] * 8 and os.waitpid(child, 0)[1] == 0
"""
    )
    run(program)
