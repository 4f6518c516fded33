"""Loading the package in one process: second loads, failed loads, the default dtype over threads
and modes, forked children."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import torch_dtypes


def run(script: str, autoload: bool = True) -> str:
    env = {
        **os.environ,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload)),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


CHECK = """
import importlib, io, pickle, sys
import torch

x = torch.ones(2)


def check_stock():
    assert (
        x.dtype is torch.float32
        and torch.zeros(2).dtype is torch.float32
        and x.to(torch.float64).sum() == 2
    )
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.equal(torch.load(file), x) and torch.equal(pickle.loads(pickle.dumps(x)), x)
    assert torch.finfo(torch.float32).bits == 32 and repr(x) == "tensor([1., 1.])"
    assert torch.ops.aten.sum(x) == 2 and torch.result_type(x, 1.0) is torch.float32
"""

AGAIN = """
import torch_dtypes

first, own = torch_dtypes, torch.ones(2, dtype=torch.q43)


def check():
    import torch_dtypes

    assert torch_dtypes is first and sys.modules["torch_dtypes.formats"] is first.formats
    check_stock()
    assert (
        own.dtype is torch.q43 is torch_dtypes.dtype("q43")
        and torch_dtypes.chop(1.3, "q43") == 1.25
    )
    assert pickle.loads(pickle.dumps(own)).dtype is torch.q43
    file = io.BytesIO()
    torch.save(own, file)
    file.seek(0)
    assert torch.load(file).dtype is torch.q43


def forget(which):
    for name in [name for name in sys.modules if which(name)]:
        del sys.modules[name]


assert importlib.reload(torch_dtypes) is first
check()
forget(lambda name: name.startswith("torch_dtypes"))
from torch_dtypes import chop

check()
forget(lambda name: name == "torch_dtypes")
check()
forget(lambda name: name.startswith("torch_dtypes."))
importlib.reload(first)
check()
print("done")
"""

FAILING = """
def refuse(*_):
    raise OSError("no safe globals today")


add, torch.serialization.add_safe_globals = (
    torch.serialization.add_safe_globals,
    refuse,
)  # among the last things that are patched
for expected in (OSError, ImportError, ImportError):
    try:
        import torch_dtypes

        print("loaded")
    except expected as error:
        print(type(error).__name__, error)
    torch.serialization.add_safe_globals = add
    check_stock()
    assert not hasattr(torch, "q43")
"""


@pytest.mark.whole
def test_a_second_load_is_the_first():
    assert run(CHECK + AGAIN) == "done\n"


def test_after_a_failed_load_stock_works_and_loads_say_why():
    first, *later = run(CHECK + FAILING, autoload=False).splitlines()
    assert first == "OSError no safe globals today"
    assert len(later) == 2
    for line in later:
        assert line.startswith(
            "ImportError expected a process in which torch_dtypes has not failed to load, but "
            "got one in which it did"
        )
        assert "OSError: no safe globals today" in line


# ---- the default dtype ----


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


OUTER = _get_current_function_mode_stack()  # set by `--device`


def users_modes():
    return [mode for mode in _get_current_function_mode_stack() if mode not in OUTER]


@pytest.fixture
def default():
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)
    assert not users_modes()


def fraction_dtype():
    return (torch.arange(3) / 2).dtype


def test_default_dtype_leaves_users_modes_alone(default):
    with Mode() as outer:
        default(torch.q43)
        assert fraction_dtype() is torch.q43
        with Mode() as inner:
            default(torch.posit16es2)
            assert fraction_dtype() is torch.posit16es2
            default(torch.float32)
            assert users_modes() == [outer, inner]
            default(torch.q43)
        assert fraction_dtype() is torch.q43
    assert fraction_dtype() is torch.q43
    default(torch.float32)
    assert users_modes() == []
    assert fraction_dtype() is torch.float32


def test_default_dtype_within_a_users_block(default):
    default(torch.q43)
    with Mode() as mode:
        default(torch.float32)
        assert users_modes() == [mode]
    assert fraction_dtype() is torch.float32


def test_default_dtype_beside_a_default_device(default):
    torch.set_default_device("cpu")
    default(torch.q43)
    assert fraction_dtype() is torch.q43
    torch.set_default_device(None)
    assert fraction_dtype() is torch.q43
    torch.set_default_device("cpu")
    default(torch.float32)
    torch.set_default_device(None)


def in_thread(f):
    results = []
    thread = threading.Thread(target=lambda: results.append(f()))
    thread.start()
    thread.join()
    return results[0]


def test_default_dtype_over_threads(default):
    default(torch.q43)
    assert in_thread(torch.get_default_dtype) is torch.q43
    assert in_thread(lambda: torch.zeros(2).dtype) is torch.q43
    in_thread(lambda: torch.set_default_dtype(torch.float64))
    assert torch.get_default_dtype() is torch.float64
    assert fraction_dtype() is torch.float64
    in_thread(lambda: torch.set_default_dtype(torch.posit16es2))
    assert torch.zeros(2).dtype is torch.posit16es2
    default(torch.float32)
    assert fraction_dtype() is torch.float32


def test_a_dtype_that_cannot_be_the_default_changes_nothing(default):
    default(torch.q43)
    with pytest.raises(TypeError, match="floating"):
        default(torch.int64)
    assert torch.get_default_dtype() is torch.q43
    assert fraction_dtype() is torch.q43


# ---- forks ----


# Python 3.12 and later warn.
@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_children_forked_while_a_thread_works():
    """A child finds the tables of functions, the plans of operators and the list of formats
    complete and unlocked."""
    x = torch.linspace(-2, 2, 1 << 16).to(torch.posit16es2)
    small = x[:8].clone()
    end = threading.Event()

    def work():
        bound = 0.0
        while not end.is_set():
            bound += 0.125
            torch.clamp(x, max=bound)  # each bound makes a new table

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                torch.sin(small)
                torch_dtypes.dtype("q43")
                os._exit(0)
            deadline = time.monotonic() + 10
            while not (done := os.waitpid(child, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    pytest.fail("a forked child hangs")
                time.sleep(0.001)
            assert done[1] == 0
    finally:
        end.set()
        worker.join()
