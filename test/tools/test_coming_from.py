"""The rows of docs/tutorials/coming_from.py for QPyTorch's functions, and the door that has their
names, against results of the real package (test/data/qtorch.json)."""

import base64
import json
import re
from pathlib import Path

import pytest
import torch

import torch_dtypes
from torch_dtypes.compat.qtorch import quant

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "test/data/qtorch.json").read_text())
PAGE = (ROOT / "docs/tutorials/coming_from.py").read_text()
CALL = r"^# \| `((?:float|fixed_point|block)_quantize\(.*?\))` \| `(.*?)`"
ROWS = dict(re.findall(CALL, PAGE, re.MULTILINE))
NEAREST = 'float_quantize(x, exp={}, man={}, rounding="nearest")'
ROWS |= {
    NEAREST.format(e, m): ROWS[NEAREST.format(5, 2)].replace("e5m2", f"e{e}m{m}")
    for e, m in ((4, 3), (2, 1), (5, 10))
}
NAMES = {"torch": torch, "torch_dtypes": torch_dtypes, "chop": torch_dtypes.chop}


def numbers(text, shape=(-1,)):
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32).reshape(shape)


def run_row(call, x):
    return eval(ROWS[call], NAMES, {"x": x})


def run_door(call, x):
    return eval(call, vars(quant), {"x": x})


BOTH_WAYS = pytest.mark.parametrize("run", [run_row, run_door])


def same(a, b):
    """Tell where two tensors have the same bits, except for the sign of zero and the bits of
    NaN."""
    return (a == b) | (a.isnan() & b.isnan())


def after_the_sum(call, x):
    """Return x after the float32 sum that QPyTorch rounds: x plus the smallest normal number, half
    a step, or 6 times the block's power of two."""
    if call.startswith("float"):
        exp = int(re.search(r"exp=(\d)", call)[1])
        normal = torch.tensor(2.0 ** (2 - 2 ** (exp - 1))).copysign(x)
        return torch.where(x.abs() < normal.abs(), (x + normal) - normal, x)
    if call.startswith("fixed"):
        return torch.where(x.abs() < 1e6, ((x * 16 + 0.5) - 0.5) / 16, x)
    dim = re.search(r"dim=(\d)", call)
    largest = x.abs().amax(1 - int(dim[1]), keepdim=True) if dim else x.abs().amax()
    base = 6 * torch.where(largest.isfinite(), torch.exp2(largest.frexp()[1] - 1.0), largest)
    return torch.where(largest == 0, x, (x + base) - base)


def test_every_row_was_recorded():
    assert RECORDED["qtorch"] == "0.3.0" and set(ROWS) == set(RECORDED["calls"])


@BOTH_WAYS
@pytest.mark.parametrize("call", [call for call in RECORDED["calls"] if "nearest" in call])
def test_results_are_qpytorchs(call, run):
    entry = RECORDED["calls"][call]
    x, theirs = numbers(entry["x"], entry["shape"]), numbers(entry["result"], entry["shape"])
    without_end = "clamp=False" in call and run is run_door  # all floats, and NaN
    if call.startswith("fixed") and not without_end:
        assert theirs[x.isnan()].isnan().all() and (run(call, x)[x.isnan()] == 0).all()
        x, theirs = x[~x.isnan()], theirs[~x.isnan()]
    if "clamp=False" in call:
        small = x.abs() < 2.0 ** (124 if without_end else 27)  # x * 2^4 overflows there
        x, theirs = x[small], theirs[small]
    moved = after_the_sum(call, x)
    assert same(run(call, moved), theirs).all()
    assert (same(run(call, x), theirs) | (moved != x)).all()


@BOTH_WAYS
@pytest.mark.parametrize("call", [call for call in RECORDED["calls"] if "nearest" not in call])
def test_stochastic_results_are_qpytorchs_in_distribution(call, run):
    entry = RECORDED["calls"][call]
    x, low, high = (numbers(entry[name]) for name in ("x", "low", "high"))
    draws = entry["draws"]
    torch.manual_seed(0)
    drawn = run(call, x.expand(draws, -1).contiguous())
    assert (drawn.amin(0) == low).all() and (drawn.amax(0) == high).all()
    times, theirs = (drawn == high).sum(0), torch.tensor(entry["times high"])
    # at most 5 standard deviations of the difference
    assert ((times - theirs).abs() < 5 * (draws / 2) ** 0.5).all()


def test_the_quantizer_is_its_two_functions():
    cast = eval(
        re.search(r"`quantizer\(FloatingPoint\(4, 3\).*?`(Cast\(.*?)` \|", PAGE)[1],
        {"Cast": torch_dtypes.Cast},
    )
    entry = RECORDED["calls"][NEAREST.format(4, 3)]
    x = numbers(entry["x"]).requires_grad_()
    y = cast(x)
    assert same(y, run_row(NEAREST.format(4, 3), x.detach())).all()
    some = RECORDED["calls"]["float_quantize(x, exp=5, man=2)"]
    g = torch.zeros_like(x)
    g[: len(some["times high"])] = numbers(some["x"])
    y.backward(g)
    drawn = x.grad[: len(some["times high"])]
    assert ((drawn == numbers(some["low"])) | (drawn == numbers(some["high"]))).all()
