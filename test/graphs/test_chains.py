"""Chains of elementwise operators in compiled graphs: one operator with the bits of eager code's, one by one."""

import pytest
import torch
import torch.nn.functional as F
from capture import FUSES, WHOLE_GRAPHS, Graphs, assert_same, clean  # noqa: F401 (clean is a fixture)
from oracle_tables import DETERMINISTIC

import torch_dtypes
from torch_dtypes.compiling import tables
from torch_dtypes.compiling.chains import chain

pytestmark = WHOLE_GRAPHS
NAMES = ["posit16es2", "posit16es1", "e5m7", "e8m4", "tf32", "posit32es2", "q43", "posit8es1", "takum16_linear", "nf4", "fixed16_8"]
FUSED = {"torch_dtypes_codes.chain.default", "torch_dtypes_codes.look_up.default", "<built-in function getitem>"}


def compare(f, *operands, **options):
    """What a compiled function gives and leaves, beside eager code; its graphs' operators."""
    torch._dynamo.reset()
    graphs = Graphs()
    found, expected = torch.compile(f, backend=graphs, fullgraph=True, **options)(*operands), f(*operands)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        assert_same(a, b)
        assert a.stride() == b.stride()
    return [graphs.targets(i) for i in range(len(graphs.seen))]


def codes(dtype, *shape, seed=0):
    """Codes of all sizes, half of them near 1."""
    g = torch.Generator().manual_seed(seed)
    near = torch_dtypes.codes(torch.randn(shape, generator=g).to(dtype))
    known = torch.randint(-(2**62), 2**62, shape, generator=g).to(near.dtype)
    if (bits := torch_dtypes.format_of(dtype).bits) < 8 * dtype.itemsize:
        known &= 2**bits - 1
    return torch_dtypes.from_codes(torch.where(torch.rand(shape, generator=g) < 0.5, near, known), dtype)


FUNCTIONS = {
    "gelu": lambda x, a, b: F.gelu(x * a + b),
    "numbers": lambda x, a, b: (x * 0.1 + a) * 1.5 - (2 - b) / 3,
    "quotients": lambda x, a, b: (x / a - b).abs().sqrt() / 0.7,
    "results": lambda x, a, b: (x * a, x * a + b, -(x * a)),
    "itself": lambda x, a, b: x.sigmoid() * x + a * a - 1e9,
    "reciprocals": lambda x, a, b: (1 / x + a.reciprocal()) * b,
}


def everything(x, a, b):
    found = [f(x, a, b) for f in FUNCTIONS.values()]
    return tuple(v for each in found for v in (each if isinstance(each, tuple) else (each,)))


@pytest.mark.parametrize("name", NAMES)
def test_bits_are_those_of_single_operators(name):
    dtype = torch_dtypes.dtype(name)
    compare(everything, *(codes(dtype, 2500, seed=seed) for seed in range(3)))


@pytest.mark.parametrize("name, modes", [("posit16es2", DETERMINISTIC), ("e5m7", ("up", "down", "to_odd")), ("q43", ("down",))])
def test_modes(name, modes):
    dtype = torch_dtypes.dtype(name)
    operands = [codes(dtype, 3000, seed=seed) for seed in range(3)]
    for mode in modes:
        with torch_dtypes.rounding(mode):  # whose tables are others
            compare(everything, *operands)


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.posit32es2], ids=str)
def test_sums_and_products_of_all_sizes(dtype):
    x, a = codes(dtype, 300, 1, seed=4), codes(dtype, 1, 300, seed=5)
    x, a = x.expand(300, 300).contiguous(), a.expand(300, 300).contiguous()
    graphs = compare(lambda x, a: (x + a - 1, x * a + 1, x - a - x), x, a)
    assert set(graphs[0]) <= FUSED or not FUSES


def test_what_is_fused():
    x, a, b = (codes(torch.posit16es2, 40, seed=seed) for seed in range(3))
    assert compare(FUNCTIONS["gelu"], x, a, b) == [["torch_dtypes_codes.chain.default", "<built-in function getitem>"]]
    assert len(compare(lambda x, a: x * a, x, a)[0]) == 1  # a call by itself
    assert compare(lambda x: x.tanh(), x) == [["torch_dtypes_codes.look_up.default"]]
    x, a = x.to(torch.q43), a.to(torch.q43)
    assert compare(lambda x, a: F.silu(x * a).maximum(x), x, a) == [["torch_dtypes_codes.chain.default", "<built-in function getitem>"]]


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43], ids=str)
def test_layouts(dtype):
    f = FUNCTIONS["gelu"]
    x, row, column, number = codes(dtype, 30, 50), codes(dtype, 50, seed=1), codes(dtype, 30, 1, seed=2), codes(dtype, seed=3)
    for a, b in ((row, column), (number, row), (column, number), (x.T.contiguous().T, row), (codes(dtype, 30, 100)[:, ::2], column)):
        assert ("torch_dtypes_codes.chain.default" in compare(f, x, a, b)[0]) == FUSES
        compare(f, x.T, a.T if a.dim() > 1 else number, number)
    long = codes(dtype, 3, 2100)
    compare(f, long, codes(dtype, 2100, seed=1), codes(dtype, 3, 1, seed=2))
    compare(f, column, row, number)  # no operand is laid out as the result
    compare(f, codes(dtype, 2, 3, 4, 5).to(memory_format=torch.channels_last), codes(dtype, 3, 1, 1), codes(dtype, 4, 1, seed=1))
    compare(f, codes(dtype, 0), codes(dtype, 0), codes(dtype, 0))


def test_no_circles():
    def f(x, a):
        y = x * a + a
        return y * y.sum() + y, (x - a) * y.mean()

    def woven(x, a):
        p, q = x + a, x - a
        return p * q.cumsum(0), q * p.cumsum(0), p / q

    operands = [codes(torch.posit16es2, 60, seed=seed).nan_to_num() for seed in range(2)]
    compare(f, *operands)
    compare(woven, *operands)


def test_writes_stay_in_order():
    def f(x, a):
        before = x * a + a
        x += before
        return before * x + a, x * a - before

    results = []
    for run in (torch.compile(f, backend=Graphs(), fullgraph=True), f):
        x, a = codes(torch.posit16es2, 60), codes(torch.posit16es2, 60, seed=1)
        results.append((*run(x, a), x))
    for found, expected in zip(*results, strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43], ids=str)
def test_backward(dtype):
    def run(f):
        x, a, b = (codes(dtype, 20, 30, seed=seed).nan_to_num().clamp(-4, 4).requires_grad_() for seed in range(3))
        f(x, a, b).backward(torch.full((20, 30), 0.5).to(dtype))
        return x.grad, a.grad, b.grad

    for f in (lambda x, a, b: F.gelu(x * a + b), lambda x, a, b: (x * a).tanh() * b / (x * x + 1)):
        graphs = Graphs()
        for found, expected in zip(run(torch.compile(f, backend=graphs, fullgraph=True)), run(f), strict=True):
            assert_same(found, expected)
        torch._dynamo.reset()
    assert ("torch_dtypes_codes.chain.default" in graphs.targets(1)) == FUSES


def test_tables_know_the_mode():
    x = codes(torch.posit16es2, 500)
    for mode in ("nearest_even", "up", "nearest_even"):
        with torch_dtypes.rounding(mode):
            compare(lambda x: F.gelu(x * 1.5 + 0.25), x)


def test_random_modes_draw_as_eager_code():
    run, x = torch.compile(FUNCTIONS["gelu"], backend=Graphs(), fullgraph=True), codes(torch.posit16es2, 50)
    run(x, x, x)
    with torch_dtypes.rounding("stochastic"):
        torch.manual_seed(1)
        found = run(x, x, x)
        torch.manual_seed(1)
        assert_same(found, FUNCTIONS["gelu"](x, x, x))


def test_inductor_is_not_asked(monkeypatch):
    from torch._inductor import compile_fx

    monkeypatch.setattr(compile_fx, "compile_fx", None)
    x, a, b = (codes(torch.posit16es2, 40, seed=seed) for seed in range(3))
    assert_same(torch.compile(FUNCTIONS["gelu"], fullgraph=True)(x, a, b), FUNCTIONS["gelu"](x, a, b))


# ---- the operator ----


def test_opcheck_of_chains():
    x, y = torch.arange(-30, 30, dtype=torch.int16), torch.arange(60, dtype=torch.int16)
    table = torch.arange(2**16).to(torch.int16)
    for program, given in (
        ("posit16es2 of 2; mul 0 1; add 2 #0x1.8p+0; give 3 2", []),
        ("posit16es2 of 2; div #-1 1; look_up 2 0; sub 0 3; sqrt 4; give 5", [table]),
    ):
        torch.library.opcheck(chain, ([x, y], given), {"program": program})


def test_look_ups():
    """A graph's may lie on a GPU, too: there the host followed a pointer into its memory."""
    g = torch.Generator().manual_seed(0)
    x, table = torch.arange(-300, 300, dtype=torch.int16), torch.randint(-(2**15), 2**15, (2**16,), generator=g).to(torch.int16)
    torch.library.opcheck(tables.look_up, (x, table))
    found = tables.look_up(x.view(20, 30).t(), table)
    assert torch.equal(found, table[x.view(20, 30).t().long() % 2**16]) and found.device == x.device
    if x.is_cuda:
        with pytest.raises(RuntimeError, match=r"(?i)same device"):
            tables.look_up(x.cpu(), table)


@pytest.mark.parametrize(
    "program",
    ["", "posit16es2", "posit16es2 of 0; give 0", "posit16es2 of 1; add 0 1; give 1", "posit16es2 of 1; pow 0 0; give 1", "nothing of 1; neg 0",
     "posit16es2 of 2; add 0 1; give 2", "posit16es2 of 1; look_up 0 0; give 1", "posit16es2 of 1; add 0; give 1", "posit16es2 of 1; give 0",
     "posit32es2 of 1; add 0 0; give 1", "q43 of 1; sqrt 0; give 1", "posit16es2 of 1; look_up_pair 0 0 0; give 1"],
)  # fmt: skip
def test_errors(program):
    with pytest.raises((ValueError, RuntimeError), match="expected"):
        chain([torch.zeros(3, dtype=torch.int16)], [], program=program)


def test_tables_are_kept(monkeypatch):
    monkeypatch.setattr(tables, "_known", {})
    x, y = codes(torch.posit16es2, 40), codes(torch.posit16es2, 4, 10, seed=1)
    for v in (x, y):
        compare(lambda v: F.gelu(v * 1.5 + 0.25), v)
    assert len(tables._known) == 1
