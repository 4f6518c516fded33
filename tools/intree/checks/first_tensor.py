#!/usr/bin/env python3
"""Checks the basic abilities of a PyTorch with the dtypes in its own list. Run it in one:
PYTHONPATH=SOURCE python tools/intree/checks/first_tensor.py

It prints for each check whether it passed. The first checks use torch alone, the last ones
torch_dtypes.
"""

import io
import pickle
import subprocess
import sys
import traceback

import torch


def names_are_dtypes():
    assert (
        isinstance(torch.posit16es2, torch.dtype) and repr(torch.posit16es2) == "torch.posit16es2"
    )
    assert (
        torch.posit16es2.itemsize == 2
        and torch.posit16es2.is_floating_point
        and not torch.posit16es2.is_complex
    )


def torch_alone_has_them():
    assert "torch_dtypes" not in sys.modules


def a_tensor_is_made_and_added():
    x = torch.tensor([1.5, -2.25], dtype=torch.posit16es2)
    assert x.dtype is torch.posit16es2 and x.device.type == "cpu"
    y = x + 1
    assert y.dtype is torch.posit16es2 and y.tolist() == [2.5, -1.25]
    assert (x * x).tolist() == [2.25, 5.0625] and x.sum().item() == -0.75


def a_number_is_rounded_once():
    assert torch.tensor(1 + 2**-12, dtype=torch.posit16es2).item() == 1.0  # a tie, to even
    assert (
        torch.tensor(1 + 2**-12 + 2**-30, dtype=torch.float64).to(torch.posit16es2).item()
        == 1 + 2**-11
    )
    assert torch.full((2,), 300.0, dtype=torch.q43).tolist() == [float("inf")] * 2


def factories_know_the_dtype():
    for tensor in (
        torch.zeros(3, dtype=torch.q43),
        torch.ones(3, dtype=torch.q43),
        torch.empty(3, dtype=torch.q43),
        torch.arange(3, dtype=torch.q43),
        torch.zeros(3).to(torch.q43),
        torch.zeros(3, dtype=torch.q43).new_ones(3),
        torch.rand(3, dtype=torch.q43),
    ):
        assert tensor.dtype is torch.q43
    assert torch.zeros_like(torch.ones(2, dtype=torch.e5m5)).dtype is torch.e5m5


def items_are_read_and_written():
    x = torch.zeros(3, dtype=torch.posit8es1)
    x[1] = 1.5
    x[2] = x[1] + x[1]
    assert x.tolist() == [0.0, 1.5, 3.0]
    assert x.view(torch.uint8).view(torch.posit8es1).equal(x)


def types_promote():
    x = torch.ones(2, dtype=torch.posit16es2)
    assert (x + torch.ones(2, dtype=torch.int64)).dtype is torch.posit16es2
    assert torch.promote_types(torch.posit16es2, torch.float32) is torch.float32
    assert torch.result_type(x, 2.5) is torch.posit16es2


def finfo_says_the_limits():
    info = torch.finfo(torch.q43)
    assert (info.max, info.eps, info.bits, info.dtype) == (240.0, 0.125, 8, "q43")


def tensors_are_printed():
    assert (
        repr(torch.tensor([1.5, 2.0], dtype=torch.posit16es2))
        == "tensor([1.5000, 2.0000], dtype=torch.posit16es2)"
    )


def gradients_have_the_dtype():
    x = torch.tensor([1.5, -2.0], dtype=torch.posit16es2, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.dtype is torch.posit16es2 and x.grad.tolist() == [3.0, -4.0]


def a_layer_runs():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2 * 6 * 6, 3)
    ).to(torch.posit16es2)
    y = layer(torch.rand(2, 1, 8, 8).to(torch.posit16es2))
    assert y.dtype is torch.posit16es2 and y.shape == (2, 3)
    torch.nn.functional.cross_entropy(y, torch.tensor([0, 2])).backward()
    assert all(p.grad.dtype is torch.posit16es2 for p in layer.parameters())


def optimizers_step():
    for make in (torch.optim.SGD, torch.optim.Adam):
        p = torch.nn.Parameter(torch.ones(3, dtype=torch.posit16es2))
        step = make([p], lr=0.125)
        p.sum().backward()
        step.step()
        assert p.dtype is torch.posit16es2 and (p < 1).all()


def files_hold_them():
    x = torch.tensor([1.5, 3.0], dtype=torch.posit16es2)
    file = io.BytesIO()
    torch.save({"x": x, "dtype": x.dtype}, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    assert (
        back["dtype"] is torch.posit16es2
        and back["x"].dtype is torch.posit16es2
        and back["x"].equal(x)
    )
    assert pickle.loads(pickle.dumps(torch.posit16es2)) is torch.posit16es2


def errors_name_the_dtype():
    try:
        torch.ones(2, dtype=torch.posit16es2) @ torch.ones(2, dtype=torch.q43)
    except RuntimeError as error:
        assert "posit16es2" in str(error).lower(), error
    else:
        raise AssertionError("two formats in one product")


def the_package_loads_and_agrees():
    import torch_dtypes

    assert torch_dtypes.posit16es2 is torch.posit16es2
    assert torch_dtypes.format_of(torch.q43).man_bits == 3
    x = torch.tensor([1.0, -1.0, 0.0], dtype=torch.posit8es1)
    assert torch_dtypes.codes(x).tolist() == [64, 192, 0]
    assert torch_dtypes.chop(torch.tensor([0.3, 250.0]), "q43").tolist() == [0.3125, float("inf")]


def nothing_of_the_overlay_is_there():
    assert "torch_dtypes.host.hooks" not in sys.modules


def formats_are_made_at_run_time():
    import torch_dtypes

    dtype = torch_dtypes.posit_format(12, 1)
    assert torch_dtypes.dtype("posit12es1") is dtype and torch.posit12es1 is dtype
    x = torch.tensor([1.5, 0.1], dtype=dtype)
    assert (
        x.dtype is dtype
        and (x + x).dtype is dtype
        and torch_dtypes.codes(x)[0] == 0b0_10_0_10000000
    )
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.load(file).equal(x)
    # The reading process knows only the format's name.
    script = (
        "import io, sys, torch, torch_dtypes; "
        "print(torch.load(io.BytesIO(sys.stdin.buffer.read())).dtype)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=file.getvalue(), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "torch.posit12es1"


def blocks_of_rounding_and_accumulation_hold():
    import torch_dtypes

    x = torch.tensor([1 + 2**-12 + 2**-30], dtype=torch.float64)
    with torch_dtypes.rounding("toward_zero"):
        assert x.to(torch.posit16es2).item() == 1.0
    ones = torch.ones(3, 3, dtype=torch.q43)
    for policy in ("machine", "float32", "exact", "format"):
        with torch_dtypes.accumulate(policy):
            assert (ones @ ones).tolist() == [[3.0] * 3] * 3


# The other checks also pass with a stock PyTorch and the package.
IN_THE_TREE = (torch_alone_has_them, nothing_of_the_overlay_is_there)
CHECKS = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", None) == __name__ and callable(value)
]


def report(checks) -> int:
    """Run all checks and print their outcomes; return 1 if one failed."""
    failed = []
    for check in checks:
        outcome = "passed"
        try:
            check()
        except Exception:  # all are run, and each failure is shown
            outcome = "FAILED"
            failed.append(check)
            traceback.print_exc(limit=-3)
        print(outcome, check.__name__.replace("_", " "), flush=True)
    print(f"{len(checks) - len(failed)} of {len(checks)} passed, torch {torch.__version__}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(report(CHECKS))
