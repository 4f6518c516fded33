"""torch_dtypes.fuzzy in float64, float16, bfloat16 and in the formats of format tensors."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import torch_dtypes

WHOLE = pytest.mark.whole
DTYPES = [
    torch.float64,
    torch.bfloat16,
    pytest.param(torch.float16, marks=WHOLE),
    pytest.param(torch.float32, marks=WHOLE),
]
N = 20_000


def root(v):
    """Return a square root to 400 bits."""
    return Fraction(math.isqrt(v.numerator * v.denominator << 800), v.denominator << 400)


OPERATIONS = {
    "add": (torch.add, lambda a, b: a + b),
    "sub": (torch.sub, lambda a, b: a - b),
    "mul": (torch.mul, lambda a, b: a * b),
    "div": (torch.div, lambda a, b: a / b),
    "sqrt": (lambda a, b: torch.sqrt(a), lambda a, b: root(a)),
}


def operands(dtype):
    """Yield operations with operands as multiples of powers of two: ordinary ones, and at the edges
    of the dtype."""
    eps, tiny, most = (getattr(torch.finfo(dtype), x) for x in ("eps", "tiny", "max"))
    yield from ((name, 1 + 5 * eps, 3.0) for name in OPERATIONS)
    yield from [
        ("add", 1.0, eps / 2),  # a tie
        ("add", 1.0, eps / 8),
        ("add", 1.0, -eps / 8),  # below a power of two
        ("sub", 1 + eps, 1.0),  # exact
        ("mul", 1.5, 0.5),
        ("sqrt", 2.25, 0.0),
        ("add", tiny, tiny * eps),  # subnormal
        ("mul", tiny, 0.625),
        ("mul", tiny * eps, 0.25),  # below the smallest
        ("div", -tiny * eps, 8.0),
        ("add", most, most * (eps / 4)),  # beyond the largest
        ("sub", -most, most * (eps / 8)),
        ("mul", most, -2.0),
    ]


def neighbours(exact, dtype):
    """Return the numbers of a dtype around a fraction, found by bisection of their codes; beyond
    the largest number, the next power of two has infinity's place."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    size, infinity = abs(exact), torch.tensor(math.inf, dtype=dtype).view(words).item()
    infinite = 2 * Fraction(2) ** math.floor(math.log2(torch.finfo(dtype).max / 2) + 0.5)

    def value(code):
        if code >= infinity:
            return infinite
        return Fraction(torch.tensor(code, dtype=words).view(dtype).double().item())

    low, high = 0, infinity + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) <= size else (low, middle)
    if value(low) == size:
        return exact, exact
    below, above = value(low), value(low + 1)
    return (below, above) if exact > 0 else (-above, -below)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_goes_up_with_the_share_that_is_cut_off(dtype):
    for name, *numbers in operands(dtype):
        run, of_fractions = OPERATIONS[name]
        a, b = (torch.full((N,), x, dtype=dtype) for x in numbers)
        exact = of_fractions(*(Fraction(t[0].double().item()) for t in (a, b)))
        down, up = neighbours(exact, dtype)
        with torch_dtypes.fuzzy(seed=1) as block:
            found = run(a, b)
        assert found.dtype is dtype and sum(block.operations.values()) == 1, name
        case = (name, numbers)
        found = found.double()
        most = Fraction(torch.finfo(dtype).max)
        bottom, top = (
            float(x) if abs(x) <= most else math.inf * (1 if x > 0 else -1) for x in (down, up)
        )
        if down == up:
            assert (found == top).all(), case
            continue
        goes_up = found == top
        assert (goes_up | (found == bottom)).all(), case
        share = float((exact - down) / (up - down))
        bound = 5 * math.sqrt(share * (1 - share) / N) + 1 / N
        assert abs(goes_up.double().mean().item() - share) <= bound, case


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=WHOLE)])
def test_every_exact_result_stays(dtype):
    """All sums and products of these numbers that the dtype has."""
    x = torch.arange(-60, 61).to(dtype)
    a, b = x[:, None].expand(121, 121), x.expand(121, 121)
    for operation in (torch.add, torch.mul):
        wide = operation(a.double(), b.double())
        is_exact = wide.to(dtype).double() == wide
        assert is_exact.sum() > 2000 and (operation is torch.add or not is_exact.all())
        with torch_dtypes.fuzzy(seed=1):
            found = operation(a, b).double()
        assert torch.equal(found[is_exact], wide[is_exact])


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_stay_next_to_float64s(dtype):
    """A function's result is next to float64's, and so is its mean. float64's own may be off by one
    in its last place, whose error nobody knows."""
    x = torch.linspace(-2, 3, 4001, dtype=torch.float64).to(dtype).repeat(5)
    cases = {
        "exp": torch.exp,
        "softmax": lambda x: x.view(-1, 5).softmax(1),
        "sum": lambda x: x.view(-1, 5).sum(1),
        "mm": lambda x: x.view(-1, 5) @ x[:25].view(5, 5),
    }
    for name, run in cases.items():
        exact = run(x.double())
        with torch_dtypes.fuzzy(seed=1) as block:
            found = run(x)
        assert found.dtype is dtype and not block.unseen and len(block.operations) >= 1
        last_place = exact.abs() * torch.finfo(dtype).eps + torch.finfo(dtype).tiny
        off = (found.double() - exact) / last_place
        assert off.abs().max() <= 1 and off.mean().abs() < 5 / math.sqrt(off.numel()), name
        moved = (off != 0).double().mean()
        assert (0.2 < moved < 0.3) if dtype is torch.float64 else moved > 0.5, name


def test_float64_keeps_what_it_cannot_move():
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 3e-310], dtype=torch.float64)
    with torch_dtypes.fuzzy(seed=1):
        found = torch.ops.aten.leaky_relu(x, 1.0)
    assert torch.equal(found.view(torch.int64)[:4], x.view(torch.int64)[:4])
    assert found[4].isnan() and found[5] == x[5]
    x = torch.linspace(-9, 9, 400, dtype=torch.float64)
    whole, rest = torch.div(x, 0.3, rounding_mode="floor"), x.fmod(0.3)
    with torch_dtypes.fuzzy(seed=1):
        assert torch.equal(torch.div(x, 0.3, rounding_mode="floor"), whole)
        assert torch.equal(x.fmod(0.3), rest) and torch.equal(x // 0.3, whole)
    many, at = torch.ones(1000, dtype=torch.float64) / 3, torch.tensor([5])
    before = many.clone()
    with torch_dtypes.fuzzy(mode="up_down", seed=1):
        many.index_add_(0, at, torch.ones(1, dtype=torch.float64))
        other = before.index_add(0, at, torch.ones(1, dtype=torch.float64))
    for found in (many, other):
        assert (found != before).nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_up_down_is_one_off_the_nearest(dtype):
    x, y = (torch.randn(500, dtype=torch.float64).to(dtype) for _ in range(2))
    nearest = x * y
    with torch_dtypes.fuzzy(mode="up_down", seed=1):
        found = x * y
    away = [torch.nextafter(nearest, torch.full_like(nearest, s * math.inf)) for s in (-1, 1)]
    assert ((found == away[0]) | (found == away[1])).all()
    assert 0.3 < (found == away[1]).double().mean() < 0.7


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.float32][:3])
def test_a_training_step_keeps_dtypes_and_depends_on_the_seed(dtype):
    found = {}
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        layers = nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)
        model = nn.Sequential(*layers).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with torch_dtypes.fuzzy(model, seed=seed) as block:
            y = model(torch.randn(5, 6).to(dtype))
            nn.functional.cross_entropy(y, torch.arange(5) % 3).backward()
            optimizer.step()
        assert not block.unseen and {"addmm", "native_layer_norm", "addcdiv_"} <= {
            *block.operations
        }
        assert y.dtype is dtype
        assert all(p.dtype is p.grad.dtype is dtype for p in model.parameters())
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        assert seed not in found or torch.equal(found[seed], weights)
        found[seed] = weights
    assert not torch.equal(found[1], found[2])


def test_operands_of_several_dtypes():
    """Each result is rounded once, to the dtype that the stock operator gives it."""
    third, half = torch.full((1000,), 1 / 3), torch.full((1000,), 3.0, dtype=torch.bfloat16)
    with torch_dtypes.fuzzy(seed=1) as block:
        in_place = half.clone().add_(third)  # a float32 operand, a bfloat16 result
        wide, promoted = half.double() + third, half + half.half()
        number = half * torch.tensor(0.1)
        outside = torch.add(half, half / 3, out=torch.empty(1000))
        rows = [t.to(torch.bfloat16) for t in torch.randn(2, 4, 8)]
        normal, *statistics = torch.ops.aten.native_layer_norm(
            rows[0], [8], torch.ones(8), torch.zeros(8), 1e-5
        )
        integer = half * torch.tensor([257])
    assert not block.unseen
    below, above = Fraction(3.328125), Fraction(3.34375)  # around 3 1/3, in bfloat16
    share = float((3 + Fraction(third[0].item()) - below) / (above - below))
    assert in_place.dtype is torch.bfloat16 and set(in_place.tolist()) == {3.328125, 3.34375}
    assert abs((in_place == 3.34375).double().mean() - share) < 5 * 0.5 / math.sqrt(1000)
    assert wide.dtype is torch.float64 and promoted.dtype is torch.float32 and (promoted == 6).all()
    assert number.dtype is torch.bfloat16 and len(number.unique()) == 2
    assert outside.dtype is torch.float32
    assert normal.dtype is torch.bfloat16 and [s.dtype for s in statistics] == [torch.float32] * 2
    assert integer.dtype is torch.bfloat16 and len(integer.unique()) == 2  # of 771


def test_format_tensors_round_in_their_own_format():
    torch.manual_seed(0)
    x = torch.rand(1000).to(torch.posit16es2)
    down, up = (torch_dtypes.with_rounding(torch.posit16es2, m) for m in ("down", "up"))
    ends = [x.to(torch.float64).to(d) * x.to(torch.float64).to(d) for d in (down, up)]
    with torch_dtypes.fuzzy(seed=1) as block:
        found, cast = x * x, torch.full((3,), 1.01).to(torch.q43)
        own = torch.full((1000,), 1.01).to(torch_dtypes.dtype("q43_stochastic"))
    with torch_dtypes.fuzzy(seed=2):
        other = x * x
    with torch_dtypes.fuzzy(format="e8m23", seed=1) as explicit:
        left = x * x
    assert found.dtype is torch.posit16es2 and block.operations == {"mul": 1}
    low, high, found = (t.double() for t in (*ends, found))
    assert ((found == low) | (found == high)).all() and not torch.equal(found, other.double())
    assert (cast == 1.0).all() and len(own.unique()) == 2  # a cast is no operation
    assert torch.equal(left, x * x) and not explicit.operations


def test_what_cannot_be_rounded_is_counted_and_said_once():
    x = torch.eye(3, dtype=torch.float64) / 3
    calls = {
        "aten::linalg_inv_ex": ("stochastic", lambda: torch.linalg.inv(x), "not known"),
        "aten::exp": ("up", lambda: x.exp(), "the mode draws nothing"),
        "numpy": ("stochastic", lambda: np.asarray(x), "PyTorch's operators alone"),
    }
    for name, (mode, call, why) in calls.items():
        with torch_dtypes.fuzzy(mode=mode) as block, pytest.warns(UserWarning, match=why) as said:
            call()
            call()
        assert block.unseen == {name: 2} and len(said) == 1, name
    with warnings.catch_warnings(), torch_dtypes.fuzzy() as block:
        warnings.simplefilter("error")
        torch.linalg.inv(x.float())  # computed in float64, rounded once
        torch.arange(3).numpy()
    with torch_dtypes.fuzzy(mode="nearest_even") as nearest:
        found = x.exp()
    assert not block.unseen and not nearest.unseen and torch.equal(found, x.exp())


def test_narrow_sums_round_each_instruction_in_float32():
    """2048 + 1 + 1 + ... in bfloat16 would stay at 2048; in float32 it grows, and the result rounds
    once."""
    x, ones = torch.ones(257, dtype=torch.bfloat16), torch.ones(257, dtype=torch.bfloat16)
    x[0] = 2048
    with torch_dtypes.fuzzy(level="instruction", seed=1) as block:
        found = [torch.mv(x.expand(64, 257), ones), x.expand(64, 257).sum(1)]
        into = torch.empty(64, dtype=torch.bfloat16)
        torch.mv(x.expand(64, 257), ones, out=into)
        soft = x.log2().softmax(0)
        small = torch.where(ones.cumsum(0) > 1, 2.0**-25, ones)
        sums = small.expand(64, 257).sum(1, dtype=torch.float32)
    assert not block.unseen and block.operations["mv"] == 2
    assert soft.dtype is torch.bfloat16 and abs(soft.sum().item() - 1) < 0.1
    for y in (*found, into):  # 2304, which bfloat16 has
        assert y.dtype is torch.bfloat16 and (y == 2304).all()
    assert sums.dtype is torch.float32 and len(sums.unique()) > 2
    refused = pytest.raises(NotImplementedError, match="level='operator'")
    with torch_dtypes.fuzzy(level="instruction"), refused:
        x.double() @ ones.double()
