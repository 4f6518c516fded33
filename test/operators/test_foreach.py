"""_foreach_ operators have the bits of a loop over the single operators, and so do optimizers and
averages that use them."""

from __future__ import annotations

import itertools

import pytest
import torch
from conftest import BUILTIN, parametrize_dtypes
from rationals import Fraction
from representatives import thin_out

import torch_dtypes

DTYPES = ["posit16es2", "q43", "posit32es2", "e5m7"]
MODES = [None, "toward_zero", "down", "stochastic"]
LENGTHS = (300, 1, 17)
# By overload name: a function that makes the operator's further arguments for place i.
NUMBERS = (0.9, 3.0, 1e-3)
# These have no single operator of the same name.
OTHERS = {"copy", "clone", "norm", "powsum", "zero", "mm", "max"}
# The single operator's name where it differs from the list's.
SINGLE = {"maximum": "clamp_min", "minimum": "clamp_max"}


def operators():
    names = {n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::_foreach_")}
    return sorted(n.removeprefix("aten::") for n in names if not n.endswith("out"))


def operand(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, generator=generator).abs() + 0.01).clamp(max=30).to(dtype) for n in LENGTHS
    ]


def call(name, x, y, z):
    """Return the arguments after the first list, and those of the single operator at place i."""
    base, _, overload = name.partition(".")
    base = base.removeprefix("_foreach_").rstrip("_")
    three = base in ("addcmul", "addcdiv")
    lists = [y] if overload == "List" or base in ("lerp", "copy", "mm") else []
    if three or (base == "lerp" and overload == "List"):
        lists = [y, z]
    numbers = {"Scalar": lambda i: 0.9, "ScalarList": lambda i: NUMBERS[i]}.get(overload)
    if three and overload == "Tensor":
        numbers = NUMBERS.__getitem__
    if base in ("norm", "powsum"):
        numbers = None
    given = [*lists]
    if three and overload == "Tensor":
        given.append(torch.tensor(NUMBERS, dtype=torch.float64, device="cpu"))
    elif overload == "Tensor":
        given.append(torch.tensor(0.9, dtype=torch.float64))
    elif numbers:
        given.append(list(NUMBERS) if overload == "ScalarList" else 0.9)
    named = (
        {"alpha": 0.3}
        if base in ("add", "sub")
        and overload in ("List", "Tensor")
        and not (base == "sub" and overload == "Tensor")
        else {}
    )

    def single(i):
        tensors = [part[i] for part in lists]
        if three:
            return tensors, {"value": numbers(i) if numbers else 1}
        if overload == "Tensor":
            tensors = [given[-1]]
        return [*tensors, *([numbers(i)] if numbers else [])], named

    return given, named, single


@pytest.mark.parametrize(("name", "mode"), thin_out(itertools.product(DTYPES, MODES), 3))
def test_every_operator_has_the_loops_bits(name, mode):
    dtype = torch_dtypes.dtype(name)
    x, y, z = (operand(dtype, seed) for seed in (1, 2, 3))
    seen = 0
    with torch_dtypes.rounding(mode or "nearest_even"):
        for operator in operators():
            base = operator.partition(".")[0].removeprefix("_foreach_").rstrip("_")
            if base in OTHERS or operator.endswith("ScalarAndTensor"):
                continue
            packet, _, overload = operator.partition(".")
            given, named, single = call(operator, x, y, z)
            in_place = packet.endswith("_")
            ours = [t.clone() for t in x]
            torch.manual_seed(7)
            result = getattr(getattr(torch.ops.aten, packet), overload or "default")(
                ours, *given, **named
            )
            result = ours if in_place else result
            torch.manual_seed(7)
            for i, found in enumerate(result):
                further, options = single(i)
                method = SINGLE.get(base, base) + "_" * in_place
                expected = getattr(x[i].clone(), method)(*further, **options)
                assert found.dtype is expected.dtype is dtype, operator
                assert torch.equal(torch_dtypes.codes(found), torch_dtypes.codes(expected)), (
                    operator,
                    i,
                )
            seen += 1
    assert seen > 120


def test_the_operators_left_out_above():
    dtype = torch.posit16es2
    x, y = operand(dtype, 1), operand(dtype, 2)
    with torch_dtypes.rounding("toward_zero"):
        for i, (norm, power) in enumerate(
            zip(torch._foreach_norm(x), torch._foreach_pow(0.9, x), strict=True)
        ):
            assert torch.equal(norm, torch.linalg.vector_norm(x[i])) and norm.dtype is dtype
            assert torch.equal(power, 0.9 ** x[i])
    if hasattr(torch, "_foreach_mm"):  # not in PyTorch 2.11
        squares = [t[:1].reshape(1, 1) for t in x]
        for i, product in enumerate(torch._foreach_mm(squares, squares)):
            assert torch.equal(product, squares[i] @ squares[i])
    copied = [torch.empty_like(t) for t in x]
    torch._foreach_copy_(copied, [t.double() for t in y])
    assert all(map(torch.equal, copied, y))
    torch._foreach_zero_(copied)
    assert not any(t.any() for t in copied)


@pytest.mark.parametrize("out", ["Scalar_out", "ScalarList_out", "List_out"])
def test_out(out):
    x, y = operand(torch.posit16es2, 1), operand(torch.posit16es2, 2)
    given = {"Scalar_out": 0.9, "ScalarList_out": list(NUMBERS), "List_out": y}[out]
    into = [torch.empty_like(t) for t in x]
    getattr(torch.ops.aten._foreach_mul, out)(x, given, out=into)
    assert all(map(torch.equal, into, torch._foreach_mul(x, given)))


@pytest.mark.parametrize("mode", ["nearest_even", "up"])
@pytest.mark.parametrize("name", ["posit16es2", "q43"])
def test_numbers_count_with_their_float64_value(name, mode):
    spec, dtype = BUILTIN[name], torch_dtypes.dtype(name)
    x = torch.randn(2000, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = [Fraction(v) for v in x.double().tolist()]
    number = Fraction(0.9)
    wanted = {
        "mul": [v * number for v in exact],
        "div": [v / number for v in exact],
        "add": [v + number for v in exact],
        "sub": [v - number for v in exact],
    }
    with torch_dtypes.rounding(mode):
        for operator, values in wanted.items():
            found = torch_dtypes.codes(getattr(torch, "_foreach_" + operator)([x], 0.9)[0]).tolist()
            mask = (1 << spec.bits) - 1
            for value, operand_, code in zip(values, exact, found, strict=True):
                if operand_ != 0:
                    assert code & mask == spec.encode(value, mode), (operator, operand_)


OPTIMIZERS = {
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "lr": 0.05},
}


@pytest.mark.parametrize("mode", ["nearest_even", "down"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_over_lists_have_the_loops_bits(optimizer, mode):
    dtype = torch.posit16es2

    def run(foreach):
        generator = torch.Generator().manual_seed(3)
        p = [
            torch.randn(40, 3, generator=generator).to(dtype).requires_grad_(),
            torch.randn(5, generator=generator).to(dtype).requires_grad_(),
        ]
        optim = getattr(torch.optim, optimizer)(p, foreach=foreach, **OPTIMIZERS[optimizer])
        for _ in range(8):
            for t in p:
                t.grad = torch.randn(t.shape, generator=generator).to(dtype)
            optim.step()
        return [torch_dtypes.codes(t.detach()) for t in p]

    with torch_dtypes.rounding(mode):
        assert all(map(torch.equal, run(False), run(True)))


def test_averages_have_the_loops_bits():
    from torch.optim.swa_utils import get_ema_multi_avg_fn

    averages, current = operand(torch.posit16es2, 1), operand(torch.posit16es2, 2)
    expected = [a.lerp(c, 1 - 0.999) for a, c in zip(averages, current, strict=True)]
    get_ema_multi_avg_fn(0.999)(averages, current, torch.tensor(1))
    assert all(map(torch.equal, averages, expected))


def test_every_overload_with_out_is_the_functional_one():
    names = [
        n.removeprefix("aten::")
        for n in torch._C._dispatch_get_all_op_names()
        if n.startswith("aten::_foreach_") and n.endswith("out")
    ]
    assert len(names) > 70
    for name in names:
        packet, _, overload = name.partition(".")
        form = overload[:-3].rstrip("_")
        x, y, z = (operand(torch.posit16es2, seed) for seed in (1, 2, 3))
        if packet == "_foreach_mm":
            x = y = [t[:1].reshape(1, 1) for t in x]
        given, named, _ = call(packet + "." + form, x, y, z)
        results = getattr(getattr(torch.ops.aten, packet), form or "default")(x, *given, **named)
        for dtype in (torch.posit16es2, torch.float64):
            into = [torch.full_like(t, 3.0, dtype=dtype) for t in results]
            getattr(getattr(torch.ops.aten, packet), overload)(x, *given, **named, out=into)
            assert all(
                torch.equal(a.double().nan_to_num(77), b.double().nan_to_num(77))
                for a, b in zip(into, results, strict=True)
            ), name


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("numbers", [1j, [1j], [0.5, 1j]], ids=["one", "list", "mixed list"])
@pytest.mark.parametrize(
    "op", [torch._foreach_mul, torch._foreach_div, torch._foreach_add, torch._foreach_pow]
)
def test_gradients_beside_complex_numbers(op, numbers):
    x = [
        torch.tensor([0.5, 2.0]).to(torch.posit16es2).requires_grad_()
        for _ in range(len(numbers) if isinstance(numbers, list) else 1)
    ]
    wide = [t.detach().float().requires_grad_() for t in x]
    sum(y.abs().sum().float() for y in op(x, numbers)).backward()
    sum(y.abs().sum() for y in op(wide, numbers)).backward()
    for t, w in zip(x, wide, strict=True):
        assert t.grad.dtype is torch.posit16es2 and torch.allclose(
            t.grad.float(), w.grad, rtol=1e-2, atol=1e-2
        )


@parametrize_dtypes("float32 q43")
def test_operators_in_place_count_versions(dtype):
    """They once did not. A backward pass then took the overwritten values for the saved ones."""
    x = torch.full((3,), 3.0, dtype=dtype, requires_grad=True)
    y = (x * x).sum()
    with torch.no_grad():
        torch._foreach_add_([x], 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_steps_and_clipping_count_versions():
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.posit16es2))
    p.grad = torch.ones(3, dtype=torch.posit16es2)
    versions = p._version, p.grad._version
    torch.nn.utils.clip_grad_norm_([p], 1.0)
    torch.optim.RMSprop([p], foreach=True).step()
    assert p._version > versions[0]
    assert p.grad._version > versions[1]
    out = [torch.zeros(3, dtype=torch.posit16es2)]
    torch.ops.aten._foreach_add.Scalar_out([p.detach()], 1.0, out=out)
    assert out[0]._version > 0
