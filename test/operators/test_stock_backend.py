"""Stock operators instead of kernels: the same bits, or an error if they cannot."""

import itertools
from contextlib import contextmanager

import gpu_cases
import pytest
import torch
from lenet import train_lenet
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.targets.grid import parse_call

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FEW = ["q43", "e5m10", "posit8es1", "fixed4_3", "posit32es2"]
FLOATS = [
    *("q52", "e5m5", "tf32", "bf16", "e8m4", "e4m3fn", "e4m3fn_saturate", "e2m1fn", "e5m2fnuz"),
    *("e8m18", "e11m20", "e11m30", "e4m3_flush", "e8m7_flush", "e3m23"),
]
OTHERS = [
    *("e5m0", "posit16es2", "posit12es1", "takum8_linear", "lns4_3", "posit24es1", "posit32es0"),
    *("posit48es3", "fixed12_12", "fixed4_20", "fixedminus3_24", "ufixed10_10"),
]
WIDE_TAKUMS_AND_WRAPPING = ["takum32_linear", "fixed4_3_wrap", "fixed12_12_wrap"]
DRAW = ["stochastic", "stochastic_equal", "up_down"]
FEW_BITS = ["stochastic_a4", "stochastic_b12", "stochastic_c5", "stochastic_c20", "stochastic_a40"]
MODES = [mode for mode in torch_dtypes.ROUNDING_MODES if mode not in DRAW]
STOCKS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def names(few, *more):
    return few + [pytest.param(name, marks=pytest.mark.whole) for group in more for name in group]


def cross(formats, modes, stocks, marks=()):
    return [
        pytest.param(*case, id="-".join(map(str, case)), marks=marks)
        for case in itertools.product(formats, modes, stocks)
    ]


def combine(modes, stocks):
    """Make parameters of each format, mode and stock dtype."""
    others = [*FLOATS, *OTHERS, *WIDE_TAKUMS_AND_WRAPPING]
    few, more = cross(FEW, modes, stocks), cross(others, modes, stocks, pytest.mark.whole)
    return thin_out(few, 3) + more


@contextmanager
def backend(name):
    torch_dtypes.set_backend(name)
    try:
        yield
    finally:
        torch_dtypes.set_backend(None)


def bits(t):
    return t.contiguous().view(BITS[t.element_size()])


def values_of(dtype):
    """Return the values of a format's codes (all of up to 16 bits), points between two of them, and
    the neighbours of both."""
    width = _C.format_of(dtype).bits
    if width <= 16:
        codes = torch.arange(1 << width)
    else:
        codes = torch.randint(1 << width, (20000,), generator=torch.Generator().manual_seed(1))
    codes = codes.to(BITS[dtype.itemsize])
    x = torch_dtypes.from_codes(codes, dtype).double()
    x = x[x.isfinite()].unique()
    return torch.cat([x, (x[1:] + x[:-1]) / 2, (x[1:] * 3 + x[:-1]) / 4])


def inputs(dtype, stock):
    g = torch.Generator().manual_seed(3)
    info = torch.finfo(stock)
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, info.max, -info.max, info.tiny]
    if stock.itemsize == 2:
        return torch.arange(1 << 16).to(torch.int16).view(stock)
    x = values_of(dtype).to(stock)
    seeded = torch.randn(4000, generator=g, dtype=torch.float64)
    seeded = seeded * torch.exp2(torch.randint(-160, 130, (4000,), generator=g).double())
    up, down = (x.nextafter(torch.tensor(to, dtype=stock)) for to in (torch.inf, -torch.inf))
    ends = torch.tensor([*special, -torch.nan], dtype=stock)
    return torch.cat([x, up, down, seeded.to(stock), ends])


def assert_same(found, expected, x):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    differ = bits(found) != bits(expected)
    assert not differ.any(), (
        int(differ.sum()),
        x[differ][:5].tolist(),
        found[differ][:5].tolist(),
        expected[differ][:5].tolist(),
    )


def compare(name, mode, stock):
    dtype = torch_dtypes.dtype(name)
    x = inputs(dtype, stock)
    results = []
    for way in ("kernels", "stock"):
        with backend(way), torch_dtypes.rounding(mode):
            torch.manual_seed(7)
            results.append((torch_dtypes.chop(x, name), x.to(dtype), x.to(dtype).to(stock)))
    for expected, found in zip(*results, strict=True):
        assert_same(found, expected, x)


@pytest.mark.parametrize(("name", "mode", "stock"), combine(MODES, STOCKS))
def test_deterministic_modes(name, mode, stock):
    compare(name, mode, stock)


@pytest.mark.parametrize(
    ("name", "mode", "stock"),
    combine([*DRAW, *FEW_BITS], STOCKS[:2]) + cross(FEW, DRAW, STOCKS[2:], pytest.mark.whole),
)
def test_random_modes(name, mode, stock):
    compare(name, mode, stock)


def codes_by_kernels_and_stock(call):
    results = []
    for way in ("kernels", "stock"):
        with backend(way):
            torch.manual_seed(7)
            results.append(torch_dtypes.codes(call()))
    return results


@pytest.mark.parametrize("mode", ["nearest_even", "stochastic", "up_down"])
@pytest.mark.parametrize("name", ["fixed12_12_wrap", "fixed4_20"])
def test_large_integers(name, mode):
    x = torch.randint(-(2**63), 2**63 - 1, (300,)) >> torch.arange(300) % 64
    x = torch.cat([x, torch.tensor([-(2**63), 2**63 - 1, 0])])
    with torch_dtypes.rounding(mode):
        expected, found = codes_by_kernels_and_stock(lambda: x.to(torch_dtypes.dtype(name)))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("stock", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", names(FEW, FLOATS, OTHERS, WIDE_TAKUMS_AND_WRAPPING))
def test_flipped_bits(name, stock):
    x = inputs(torch_dtypes.dtype(name), stock)
    results = []
    for way in ("kernels", "stock"):
        with backend(way):
            torch.manual_seed(7)
            results.append(torch_dtypes.chop(x, name, "stochastic", flip_prob=0.5))
    assert_same(*reversed(results), x)


@pytest.mark.parametrize("name", names(FEW, FLOATS, OTHERS, WIDE_TAKUMS_AND_WRAPPING))
def test_next_numbers(name):
    dtype = torch_dtypes.dtype(name)
    x = inputs(dtype, torch.float32).to(dtype)
    for towards in (0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan):
        to = torch.tensor(towards).to(dtype)
        expected, found = codes_by_kernels_and_stock(lambda to=to: x.nextafter(to))
        assert torch.equal(found, expected), towards


@pytest.mark.parametrize("name", ["q43", "posit32es2", "e11m48"])
def test_integers_round_once(name):
    """Ties of integers that float64 does not have, at every power of two."""
    odd = torch.tensor([1, 3, 5, 7]) << torch.arange(61)[:, None]
    x = torch.cat([odd + i for i in range(-3, 4)]).flatten()
    x = torch.cat([x, -x])
    expected, found = codes_by_kernels_and_stock(lambda: x.to(torch_dtypes.dtype(name)))
    assert torch.equal(found, expected)


def test_logarithms_are_exact():
    x = torch_dtypes.from_codes(torch.arange(256).to(torch.uint8), torch_dtypes.dtype("lns3_3"))
    for call in (torch.sqrt, torch.reciprocal, lambda x: x[:, None] / x):
        expected, found = codes_by_kernels_and_stock(lambda call=call: call(x))
        assert torch.equal(found, expected)


def test_overlaps_are_refused():
    x = torch.ones(4).to(torch.q43)
    with backend("stock"), pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])


@pytest.mark.parametrize("mode", ["down", "nearest_even"])
def test_signs_of_zero_sums(mode):
    values = torch.tensor([0.0, -0.0, 1.0, -1.0])
    x, y, z = torch.cartesian_prod(values, values, values).to(torch.e5m5).unbind(1)
    for call in (
        lambda: x + y,
        lambda: x - y,
        lambda: torch.addcmul(x, y, z),
        lambda: torch.addcmul(x, y, z, value=-1),
        lambda: torch.addcdiv(x, y, z + 3, value=-2),
        lambda: torch.lerp(x, y, z),
    ):
        with torch_dtypes.rounding(mode):
            expected, found = codes_by_kernels_and_stock(call)
        assert torch.equal(found, expected)


def test_counts_of_observe():
    """The same with kernels and stock operators, also of formats that no tensor has."""
    counts = []
    for way in ("kernels", "stock"):
        with backend(way):
            torch.manual_seed(7)
            model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 5))
            with torch_dtypes.observe(model, formats=["q43", "e11m20", "takum32_linear"]) as seen:
                model(torch.randn(7, 20)).sum().backward()
            counts.append(str(seen))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("case", thin_out(gpu_cases.CASES, 3))
def test_calls(case):
    expected = gpu_cases.run(case, "cpu")
    with backend("stock"):
        try:
            found = gpu_cases.run(case, "cpu")
        except NotImplementedError as error:
            assert "stock operators" in str(error)
            pytest.skip(str(error).splitlines()[0])
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, i
        differ = gpu_cases.bits(a) != gpu_cases.bits(b)
        assert not differ.any(), (i, a[differ][:5], b[differ][:5])


@pytest.mark.parametrize("name", thin_out(["q43_stochastic", "posit16es2", "e5m10"], ()))
def test_lenet_trains_alike(name):
    dtype = torch_dtypes.dtype(name)
    expected = train_lenet(dtype)
    with backend("stock"):
        found = train_lenet(dtype)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(torch_dtypes.codes(a), torch_dtypes.codes(b))


def test_one_choice():
    x = torch.ones(3)
    assert torch_dtypes.backend(x) == "kernels"
    with backend("stock"):
        assert torch_dtypes.backend(x) == "stock"
        assert torch_dtypes.backend(x.to(torch.q43)) == "stock"
    with pytest.raises(ValueError, match='expected "stock", "kernels" or None'):
        torch_dtypes.set_backend("cuda")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to(torch_dtypes.dtype("e11m30")) * 2,
        lambda x: x.to(torch.q43) * 1e200,
        lambda x: x.to(torch.posit16es2).add(x.to(torch.posit16es2), alpha=1e200),
        lambda x: x.long().add(2**54).to(torch_dtypes.dtype("e11m52")),
    ],
)
def test_what_has_no_way_says_so(call):
    with (
        backend("stock"),
        pytest.raises(NotImplementedError, match=r"stock operators.*set_backend\(None\)"),
    ):
        call(torch.ones(3))


@pytest.mark.parametrize(
    "name", names(FEW[2:3], FEW[:2], FEW[3:], FLOATS, OTHERS, WIDE_TAKUMS_AND_WRAPPING)
)
def test_operations_of_graphs(name):
    """The operations that a graph fuses, run without a compiler."""
    x = inputs(torch_dtypes.dtype(name), torch.float32)
    for mode in (*MODES, *DRAW, "stochastic_a4", "stochastic_c5"):
        fmt = parse_call(name, mode)
        if not _C.fuses_in_graphs(fmt):
            pytest.skip("a table is no such operation")
        torch.manual_seed(7)
        expected = torch_dtypes.chop(x, name, mode)
        torch.manual_seed(7)
        seed = torch.tensor(_C.next_seed()) if fmt.rounding.draws else None
        assert_same(_C.round_in_graph(x, fmt, seed), expected, x)


TABLES = ["lns4_3"]
FUSED = ["posit16es2", "e4m3_flush", "fixed4_3"]


@pytest.mark.whole
@pytest.mark.parametrize("name", names(["e5m10"], FUSED, TABLES))
def test_compiled_chop_is_one_graph(name):
    """In a graph, chop with a mode is stock operations, but for tables, where it stays an operator.
    Its seed is drawn at each run."""
    from torch._inductor.utils import run_and_get_code

    def both(x):
        return torch_dtypes.chop(x, name, "nearest_even"), torch_dtypes.chop(x, name, "stochastic")

    x = inputs(torch_dtypes.dtype(name), torch.float32).requires_grad_()
    torch.manual_seed(7)
    expected = [*both(x), *both(x)]
    with backend("stock"):
        compiled = torch.compile(both, fullgraph=True)
        torch.manual_seed(7)
        (near, drawn), sources = run_and_get_code(compiled, x)
        found = [near, drawn, *compiled(x)]
    calls = any("ops.torch_dtypes.chop" in source for source in sources)
    assert calls == (name in TABLES)
    for a, b in zip(found, expected, strict=True):
        assert_same(a, b, x)
    ones = torch.ones_like(x)
    (gradient,) = torch.autograd.grad([near, drawn], x, [ones, ones])
    assert torch.equal(gradient, ones * 2)
