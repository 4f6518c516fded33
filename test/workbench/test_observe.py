"""observe: every count against exact rationals, in each place where numbers are rounded."""

import math

import numpy as np
import pytest
import torch
from oracle import binary, posit
from oracle_counts import assert_counts, counts
from oracle_fixed import Fixed
from rationals import Fraction
from spec_formats import by_name, dtype_of, name_of
from torch import nn

import torch_dtypes

by_spec = by_name(
    [
        posit(16, 2),
        posit(8, 1),
        binary(4, 3),
        binary(5, 2),
        binary(4, 3, specials="fn"),
        Fixed(4, 3),
        Fixed(4, 4, False),
    ]
)


class Apply(nn.Module):
    """A layer with a single operator."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


class Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.add_module("0", layer)

    def forward(self, *x):
        return self._modules["0"](*x)


def one_layer(function):
    return Model(Apply(function))


def numbers(seed=0, count=3000):
    """Return all magnitudes and all specials, with both signs."""
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.standard_normal(count), rng.integers(-70, 70, count)).astype(np.float32)
    near = np.ldexp(rng.standard_normal(count), rng.integers(-12, 12, count)).astype(np.float32)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        240.0,
        248.0,
        448.0,
        464.0,
        57344.0,
        2.0**-9,
        2.0**-10,
        2.0**-17,
        -15.9375,
        16.0,
    ]
    return np.concatenate([x, near, np.array(special, np.float32)])


@by_spec
def test_a_cast_is_counted_number_by_number(spec):
    x = numbers()
    model = one_layer(lambda t: t.to(dtype_of(spec)))
    with torch_dtypes.observe(model) as stats:
        model(torch.from_numpy(x))
    ((key, counted),) = stats.items()
    assert key == ("0", "forward", torch_dtypes.card(name_of(spec)).canonical)
    assert_counts(counted, counts(spec, x))


@by_spec
def test_a_float_model_against_formats(spec):
    x = numbers(1)
    model = one_layer(lambda t: t * 1)
    with torch_dtypes.observe(model, formats=[name_of(spec)]) as stats:
        model(torch.from_numpy(x))
    (counted,) = stats.values()
    assert_counts(counted, counts(spec, x))


@pytest.mark.parametrize("mode", ["up", "toward_zero", "to_odd"])
@by_name([posit(8, 1), binary(4, 3), Fixed(4, 3)])
def test_chop_in_other_modes(spec, mode):
    x = numbers(2)
    model = one_layer(lambda t: torch_dtypes.chop(t, name_of(spec), rounding=mode))
    with torch_dtypes.observe(model) as stats:
        model(torch.from_numpy(x))
    (counted,) = stats.values()
    assert_counts(counted, counts(spec, x, mode))


@pytest.mark.parametrize("name", ["posit16es2", "q43", "q52"])
@pytest.mark.parametrize("function", [torch.add, torch.mul, torch.div])
def test_arithmetic_of_two_tensors(name, function):
    """Products of two short numbers are exact in float64. Quotients are not, but they round to the
    same numbers."""
    dtype = getattr(torch, name)
    spec = {"posit16es2": posit(16, 2), "q43": binary(4, 3), "q52": binary(5, 2)}[name]
    a, b = (torch.from_numpy(numbers(seed)).to(dtype) for seed in (3, 4))
    model = one_layer(function)
    with torch_dtypes.observe(model) as stats:
        model(a, b)
    with np.errstate(all="ignore"):
        exact = {torch.add: np.add, torch.mul: np.multiply, torch.div: np.divide}[function](
            a.double().numpy(), b.double().numpy()
        )
    if function is torch.add:
        pairs = zip(a.tolist(), b.tolist(), exact, strict=True)
        exact = [
            Fraction(x) + Fraction(y) if math.isfinite(x) and math.isfinite(y) else s
            for x, y, s in pairs
        ]
    got, expected = stats["0", "forward", name], counts(spec, exact)
    if function is torch.mul:
        assert_counts(got, expected)
    else:  # 24 bits, rounded to odd, stand for the exact value
        names = (
            "elements",
            "overflow",
            "saturated",
            "underflow",
            "to_zero",
            "subnormal",
            "zeros",
            "nan_in",
            "nan_made",
        )
        assert {n: getattr(got, n) for n in names} == {n: expected.get(n, 0) for n in names}
        assert got.exponents == expected["exponents"]
        assert math.isclose(got.noise, float(expected["noise"]), rel_tol=2e-3)
        assert math.isclose(got.signal, float(expected["signal"]), rel_tol=1e-6)


def test_functions_with_tables_are_counted_by_their_exact_results():
    x = torch.randn(300_000).to(torch.q43)
    torch.tanh(x)  # enough elements for a table
    model = one_layer(torch.tanh)
    with torch_dtypes.observe(model) as stats:
        model(x[:2000])
    got, expected = (
        stats["0", "forward", "q43"],
        counts(binary(4, 3), torch.tanh(x[:2000].double()).numpy()),
    )
    assert (got.elements, got.inexact, got.underflow, got.subnormal) == (
        2000,
        *(expected[n] for n in ("inexact", "underflow", "subnormal")),
    )
    assert got.exponents == expected["exponents"]
    assert math.isclose(got.noise, float(expected["noise"]), rel_tol=2e-3)


def test_what_selects_is_not_counted():
    x = torch.randn(4, 4, 8, 8).to(torch.q43)
    model = one_layer(lambda t: torch.relu(torch.nn.functional.max_pool2d(t, 2))[0].clone())
    with torch_dtypes.observe(model) as stats:
        model(x)
    assert len(stats) == 0


def test_the_steps_of_a_dot_product():
    a, b = torch.randn(5, 7).to(torch.q43), torch.randn(7, 3).to(torch.q43)
    model = one_layer(torch.mm)
    with (
        torch_dtypes.observe(model) as stats,
        torch_dtypes.accumulate("format", product=torch.q52, accumulator=torch.posit16es2),
    ):
        model(a, b)
    products = (a.double()[:, :, None] * b.double()[None]).flatten().numpy()
    assert_counts(stats["0", "accumulation", "q52"], counts(binary(5, 2), products))
    rounded = torch.from_numpy(products).reshape(5, 7, 3).to(torch.q52).double()
    sums, running = [], torch.zeros(5, 3, dtype=torch.float64)
    for i in range(7):
        sums.append(running + rounded[:, i])
        running = sums[-1].to(torch.posit16es2).double()
    assert_counts(
        stats["0", "accumulation", "posit16es2"],
        counts(posit(16, 2), torch.stack(sums).flatten().numpy()),
    )
    assert_counts(stats["0", "forward", "q43"], counts(binary(4, 3), running.flatten().numpy()))


@pytest.mark.parametrize("name", ["q43", "posit16es2"])
def test_exact_sums(name):
    a, b = torch.randn(6, 40).to(getattr(torch, name)), torch.randn(40, 5).to(getattr(torch, name))
    model = one_layer(torch.mm)
    with torch_dtypes.observe(model) as stats, torch_dtypes.accumulate("exact"):
        model(a, b)
    exact = (a.double() @ b.double()).flatten().numpy()  # sums of 40 products of 24 bits
    got, expected = (
        stats["0", "forward", name],
        counts({"q43": binary(4, 3), "posit16es2": posit(16, 2)}[name], exact),
    )
    assert (got.elements, got.inexact, got.exponents) == (
        30,
        expected["inexact"],
        expected["exponents"],
    )
    assert math.isclose(got.noise, float(expected["noise"]), rel_tol=1e-5)


def test_blocks_are_counted_behind_their_scales():
    x = torch.randn(4, 64)
    model = one_layer(lambda t: torch_dtypes.chop(t, "mxfp8_e4m3"))
    with torch_dtypes.observe(model) as stats:
        model(x)
    scaled = (
        torch.cat(
            [v / 2.0 ** (torch.floor(torch.log2(v.abs().max())) - 8) for v in x.reshape(-1, 32)]
        )
        .double()
        .numpy()
    )
    (counted,) = stats.values()
    assert_counts(counted, counts(binary(4, 3, specials="fn", overflow="saturate"), scaled))


def test_the_elements_of_hif4_alone_are_counted():
    x = torch.randn(4, 128)
    model = one_layer(lambda t: torch_dtypes.chop(t, "hif4"))
    with torch_dtypes.observe(model) as stats:
        model(x)
    (counted,) = stats.values()
    scales = torch_dtypes.target("hif4").scales(x).double()
    # Its reciprocal is rounded to bfloat16.
    shared = scales / torch.exp2(torch.floor(torch.log2(scales)))
    inverse = (1 / shared).float().bfloat16().double() * torch.exp2(
        -torch.floor(torch.log2(scales))
    )
    assert_counts(
        counted,
        counts(binary(1, 2, bias=1, specials="none"), (x.double() * inverse).flatten().numpy()),
    )


def block_sums(a, b, start, terms):
    """The observed numbers are those of an e6m5 register before it rounds, after each block of
    terms; nothing is cut before."""
    products = a.double()[:, :, None] * b.double()[None]
    running, exact = start, []
    for part in products.split(terms, 1):
        exact.append(running + part.sum(1))
        running = torch_dtypes.chop(exact[-1], "e6m5")
    return torch.stack(exact).flatten()


@pytest.mark.parametrize("register", ["e6m5", "e6m5finite"])
def test_the_registers_of_block_sums(register):
    """In machine arithmetic (e6m5), and one number at a time."""
    a, b, c = (torch.randn(*size).clamp(-7, 7).to(torch.q43) for size in ((5, 10), (10, 3), (3,)))
    policy = {
        "policy": "block",
        "terms": 4,
        "extra_bits": 24,
        "register": register,
        "rounding": "nearest_even",
    }
    with torch_dtypes.accumulate(**policy):
        expected = (torch.mm(a, b), torch.addmm(c, a, b), torch.cumsum(a, 1))
    model = one_layer(lambda *_: [torch.mm(a, b), torch.addmm(c, a, b)])
    with torch_dtypes.observe(model) as stats, torch_dtypes.accumulate(**policy):
        found = model(a)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1]), (
        "counting changes no bit"
    )
    plain = block_sums(a, b, torch.zeros(5, 3).double(), 4)
    starts = c.double().expand(5, 3)
    started = block_sums(a, b, torch_dtypes.chop(starts, "e6m5"), 4)
    spec = binary(6, 5, **({"specials": "none"} if register == "e6m5finite" else {}))
    exact = torch.cat([plain, starts.flatten(), started])
    assert_counts(stats["0", "accumulation", register], counts(spec, exact.numpy()))
    model = one_layer(lambda x: torch.cumsum(x, 1))
    with torch_dtypes.observe(model) as stats, torch_dtypes.accumulate(**policy):
        found = model(a)
    assert torch.equal(found, expected[2])
    held = torch.zeros(5).double()
    exact = []
    for i in range(10):
        exact.append(held + a[:, i // 4 * 4 : i + 1].double().sum(1))
        held = torch_dtypes.chop(exact[-1], "e6m5") if i % 4 == 3 else held
    assert_counts(
        stats["0", "accumulation", register], counts(spec, torch.stack(exact).flatten().numpy())
    )


def test_a_register_that_overflows():
    a = torch.full((1, 12), 200.0).to(torch.q43)
    model = one_layer(lambda x: torch.mm(x, x.t()))
    with (
        torch_dtypes.observe(model) as stats,
        torch_dtypes.accumulate("block", terms=4, register="e5m10"),
    ):
        model(a)
    counted = stats["0", "accumulation", "e5m10_toward_zero"]
    assert (counted.elements, counted.overflow, counted.infinite_in) == (3, 1, 2), (
        "147,456 is beyond it; then it holds infinity"
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(threads):
    before = torch.get_num_threads()
    x = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    model = one_layer(lambda t: t.to(torch.q43) * t.to(torch.q43))
    torch.set_num_threads(threads)
    try:
        with torch_dtypes.observe(model) as stats:
            model(x)
    finally:
        torch.set_num_threads(before)
    got = stats["0", "forward", "q43"]
    assert got.elements == 1_200_000
    assert (got.inexact, got.signal, got.noise) == (
        ONCE.setdefault("all", (got.inexact, got.signal, got.noise))
    )


ONCE: dict = {}


def test_zeros_of_a_format_that_has_none():
    """Count as ``to_zero`` the zeros among results less those among operands: -300 of 32 bits."""
    dtype = torch_dtypes.table_format([-1.0, 1.0])
    layer = one_layer(lambda x: x.to(dtype))
    with torch_dtypes.observe(layer) as stats:
        layer(torch.zeros(300))
    ((_, counted),) = stats.items()
    assert (counted.elements, counted.to_zero) == (300, 0)


@pytest.mark.parametrize("policy", ["format", "chunked(2)"])
def test_terms_that_are_not_there_are_not_counted(policy):
    """A strided transposed convolution has holes: each of 9 numbers meets each of 9 weights once,
    so -360 of 441 products."""
    model = nn.ConvTranspose2d(1, 1, 3, stride=2, bias=False)
    nn.init.ones_(model.weight)
    with (
        torch_dtypes.observe(model.to(torch.q43)) as stats,
        torch_dtypes.accumulate(policy, accumulator=torch.q52),
    ):
        model(torch.ones(1, 1, 3, 3, dtype=torch.q43))
    for name in "q43", "q52":
        steps = stats["", "accumulation", name]
        assert (steps.elements, steps.zeros) == (81, 0)
