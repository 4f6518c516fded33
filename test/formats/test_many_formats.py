"""More formats than a process has numbers for: a number goes to the next format when nobody has the
dtype any more."""

from pathlib import Path

import new_process
import pytest
from representatives import thin_out

ROOT = Path(__file__).resolve().parents[2]


def run_python(code):
    return new_process.run("-c", "import torch, torch_dtypes\n" + code, cwd=ROOT, timeout=240)


@pytest.mark.whole
@pytest.mark.parametrize(
    "code",
    thin_out(
        [
            # tensors and derivatives outlive their dtype
            """
kept, casts = [], []
leaf = torch.ones(2, requires_grad=True)
for n in range(2, 32):
    for es in range(4):
        dtype = torch_dtypes.posit_format(n, es)
        x = torch.ones(1, dtype=dtype)
        kept.append((str(dtype), x))
        del dtype, x
for e in range(3, 11):
    for m in range(1, 13):
        dtype = torch_dtypes.float_format(e, m)
        casts.append((str(dtype), (leaf * 1.0).to(dtype).float()))
        del dtype
for name, x in kept:
    assert str(x.dtype) == name and (x + x).item() >= 1 and str((x + x).dtype) == name
for name, y in casts:
    leaf.grad = None
    y.sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0], name
""",
            # a sweep: a model, its gradients and an optimizer in each of hundreds of formats
            """
for e in range(3, 10):
    for m in range(1, 13):
        for mode in ("nearest_even", "up", "stochastic"):
            dtype = torch_dtypes.float_format(e, m, rounding=mode)
            assert torch.finfo(dtype).bits >= 8
            w = torch.ones(4, dtype=dtype, requires_grad=True)
            (w * w).sum().backward()
            assert w.grad.dtype is dtype and getattr(torch, str(dtype)[6:]) is dtype
            torch.optim.SGD([w], lr=0.5).step()
assert torch_dtypes._C.format_count() <= 64
""",
            # the rules of one model after another: sums in each format, then everything in it
            """
layer, x = torch.nn.Linear(4, 2), torch.ones(2, 4)
for e in range(3, 10):
    for m in range(1, 11):
        for rule in (
            dict(accumulate=dict(policy="format", product=f"e{e}m{m}", accumulator=f"e{e}m{m}")),
            f"e{e}m{m}",
        ):
            torch_dtypes.quantize_(layer, {torch.nn.Linear: rule})
            layer(x).sum().backward()
""",
            # a limit is a dtype's as long as the limit is there
            """
info = torch.finfo(torch_dtypes.float_format(6, 7))
largest, name = info.max, info.dtype
for m in range(1, 60):
    torch_dtypes.fixed_format(m % 16, m // 4, rounding="up")
    torch_dtypes.float_format(3 + m % 8, 1 + m % 20)
assert (info.max, info.dtype) == (largest, name)
""",
        ],
        4,
    ),
    ids=["tensors", "sweep", "rules", "finfo"],
)
def test_hundreds_of_formats(code):
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_a_number_that_another_thread_takes_first():
    done = run_python("""
from torch_dtypes import _C
from torch_dtypes.formats import dtype_numbers

def made_free_and_taken():
    room = dtype_numbers.make_room()
    if others:
        torch_dtypes.posit_format(*others.pop())  # as a thread that runs in between
    return room

held = [torch_dtypes.posit_format(n, es) for n in range(5, 18) for es in range(4)]
m = 0
while _C.format_count() < 63:
    held.append(torch_dtypes.float_format(4 + m // 20, 1 + m % 20))
    m += 1
torch_dtypes.float_format(9, 5)  # nobody has it
assert _C.format_count() == 64
others = [(20, 1)]
_C.set_room_maker(made_free_and_taken)
held.append(torch_dtypes.posit_format(21, 1))
assert not others and torch.ones(1, dtype=held[-1]).dtype is held[-1]
""")
    assert done.returncode == 0, done.stderr


def test_what_is_in_use_stays():
    done = run_python("""
held = [torch_dtypes.posit_format(n, es) for n in range(5, 18) for es in range(4)]
names = [str(d) for d in held]
try:
    for n in range(20, 33):
        held.append(torch_dtypes.posit_format(n, 3))
except ValueError as error:
    assert "at most 64 number formats in one process" in str(error) and "let some go" in str(
        error
    ), error
else:
    raise AssertionError("expected an error")
assert [str(d) for d in held[: len(names)]] == names and all(
    torch.ones(1, dtype=d).dtype is d for d in held
)
del held[:]
assert torch.ones(1, dtype=torch_dtypes.posit_format(30, 3)).item() == 1
torch_dtypes.set_accumulation(torch_dtypes.float_format(5, 9), "exact")  # keeps its number
for n in range(2, 32):
    (
        torch_dtypes.posit_format(n, 0, underflow="zero"),
        torch_dtypes.posit_format(n, 1, underflow="zero"),
        torch_dtypes.posit_format(n, 2),
    )
assert torch_dtypes.accumulation_of(torch_dtypes.float_format(5, 9)).policy == "exact"
""")
    assert done.returncode == 0, done.stderr


def test_a_dtype_without_a_number_is_an_error():
    """Of a tensor whose format's number has gone to others; it ended the process."""
    done = run_python("""
x = torch.ones(2, dtype=torch_dtypes.dtype("posit11es1"))
held = []
try:
    while True:
        held.append(torch_dtypes.float_format(2 + len(held) % 7, 1 + len(held) // 7))
except ValueError:
    pass
for ask in (lambda: x.dtype, lambda: repr(x), lambda: x.grad_dtype):
    try:
        ask()
    except (RuntimeError, ValueError) as error:
        assert "64" in str(error), error
        print("an error")
held.clear()
assert str(x.dtype) == "torch.posit11es1"
""")
    assert (done.returncode, done.stdout) == (0, "an error\n" * 3), done.stderr
