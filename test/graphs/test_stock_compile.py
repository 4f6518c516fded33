"""Stock code under torch.compile gives the same results, graphs, graph breaks and errors with the
package as without it."""

import difflib
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_dtypes import _C
from torch_dtypes.host.hooks import graphs as overlay_graphs


@pytest.mark.whole
def test_the_same_with_and_without_the_package():
    script = str(Path(__file__).parent / "stock_compile_script.py")
    runs = []
    for loaded in ("without", "with"):
        env = {
            **os.environ,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(loaded == "with")),
            "OMP_NUM_THREADS": "1",
        }
        runs.append(
            subprocess.Popen(
                [sys.executable, script, loaded],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    (without, errors), (loaded, more_errors) = (run.communicate() for run in runs)
    assert [run.returncode for run in runs] == [0, 0], errors + more_errors
    assert without.count("\n") > 60
    assert without == loaded, "\n".join(
        difflib.unified_diff(without.splitlines(), loaded.splitlines(), lineterm="")
    )


# ---- what is looked into before a frame is compiled ----


class Refusing(dict):
    def values(self):
        raise AssertionError("users' code was called")

    __iter__ = items = keys = __len__ = values


class Net(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, dtype=dtype))

    def parameters(self, recurse=True):
        raise AssertionError("users' code was called")

    buffers = children = parameters


def optimizer(dtype):
    return torch.optim.SGD([torch.zeros(2, dtype=dtype, requires_grad=True)])


MAKE = {
    "tensor": lambda d: torch.zeros(2, dtype=d),
    "dtype": lambda d: d,
    "nested": lambda d: [{"a": (1, [d])}],
    "set": lambda d: {1, d},
    "dict subclass": lambda d: Refusing(a=d),
    "module": Net,
    "bound method": lambda d: Net(d).forward,
    "optimizer": optimizer,
    "partial": lambda d: functools.partial(print, end=d),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_formats_are_found(make):
    assert _C.format_in(make(torch.q43)) == "q43"
    assert _C.format_in(make(torch.float32)) is None


def test_half_made_objects_are_passed_by():
    for cls in (torch.optim.SGD, torch.nn.Linear, torch.nn.Module, functools.partial):
        assert (
            _C.format_in(cls.__new__(cls, *([print] if cls is functools.partial else []))) is None
        )
    module = torch.nn.Module()
    module.itself = module  # and no end of it
    assert _C.format_in(module) is None
    endless = []
    endless.append(endless)
    assert _C.format_in([endless] * 500) is None


@pytest.mark.whole
def test_what_is_looked_at_is_bounded(monkeypatch):
    """A format far inside a list is not seen here, but where the graph is made: the result is
    eager's."""
    far = [None] * 100_000 + [torch.q43]
    assert _C.format_in(far) is None

    def f(x):
        return (torch.sin(x) * 2).to(far[-1])

    x = torch.ones(3)
    monkeypatch.setattr(overlay_graphs, "_noticed", True)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(f, backend="eager")(x), f(x))
    torch._dynamo.reset()
