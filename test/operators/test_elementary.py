"""Elementary functions give the exact function of the exact operands, rounded once: every input,
against mpmath (oracle_elementary.py).

The tables LOSSES, AS_STOCK, ZERO_SIGNS and COMPOSED list where PyTorch's float64 functions are less
exact. Each entry has a reason and an example that must still differ. Where the package has become
better, the entry has to go. docs/elementary.md has the errors of every function in every format
(tools/elementary_errors.py)."""

import itertools
import math
import operator

import numpy as np
import oracle
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes, parametrize_dtypes
from mpmath import mp, mpf
from oracle_elementary import (
    FUNCTIONS,
    FUNCTIONS2,
    SLACK,
    as_float,
    exact,
    exact2,
    expected_codes,
    expected_codes2,
    filtered_codes,
    same_codes,
)
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.usefixtures("one_thread")

FORMATS = BUILTIN | {"e5m10": oracle.binary(5, 10)}
BYTES = [n for n, s in FORMATS.items() if s.bits == 8]
SAMPLED = ["e5m5", "e5m7", "e8m4", "posit16es1", "posit16es2", "e5m10", "tf32"]
WORDS = ["posit16es2", "e5m10"]
MOST_USED = """sin cos tan atan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
    reciprocal square erf sigmoid silu gelu softplus mish""".split()
INF, NAN, ULP = math.inf, math.nan, 2.0**-52

# ---- results that are not the exact function rounded once ----

# Absolute errors beyond rounding in PyTorch's float64 formulas: bound(x, result), the reason, and a
# format with an operand that shows it.
LOSSES = {
    "gelu": (lambda x, y: abs(x) * ULP, "x/2 (1 + erf) cancels where erf is near -1", "e8m4", -8.5),
    "gelu_tanh": (
        lambda x, y: abs(x) * ULP,
        "x/2 (1 + tanh) cancels where tanh is near -1",
        "e8m4",
        -8.5,
    ),
    "ndtr": (lambda x, y: ULP, "(1 + erf) / 2 cancels where erf is near -1", "e8m4", -10.0),
    "silu": (
        lambda x, y: abs(y) * ULP,
        "beyond 16 bits: of a subnormal x it is x/2, a tie, and a trifle that float64 lacks",
        "tf32",
        2.0**-136,
    ),
    "i1e": (
        lambda x, y: abs(y) * ULP,
        "beyond 16 bits: of a subnormal x it is x/2, a tie, less a trifle that float64 lacks",
        "tf32",
        3 * 2.0**-136,
    ),
    "log_ndtr": (
        lambda x, y: abs(y) * ULP,
        "of a large -x it is -x^2/2, a tie, less a trifle that float64 lacks",
        "e8m4",
        -7 * 2.0**27,
    ),
    "sinc": (
        lambda x, y: ULP,
        "sin(pi x) with pi in float64: not 0 at integers",
        "posit16es2",
        1.0,
    ),
}
LOSSES2 = {
    "logaddexp2": (lambda x, y: ULP * max(abs(x), 1), "cancels near 0", "posit8es2", (-1.0, -1.0)),
    "atan2": (
        lambda x, y: abs(y) * ULP,
        "y/x may be a tie, and y/x - (y/x)^3/3 is not, which float64 does not tell",
        "e8m4",
        (3 * 2.0**-130, 2.0),
    ),
}

# A function, or a part of it (exp(-x) in silu), may exceed float64's range. Then a posit is the
# largest or smallest number, and directed modes round float64's last number
# (test_elementary_ends.py).
RANGED = set(
    (
        "exp exp2 expm1 sinh cosh erfc sigmoid silu gelu gelu_tanh softplus mish logsigmoid i0 i1 "
        "log_ndtr ndtr"
    ).split()
)

# Functions whose exact result comes close to a number that float64 returns:
# test_elementary_directed.py.
BESIDE = {n.removeprefix("special_") for n in _C.functions_with_limits()} | {
    "logsigmoid",
    "gelu_tanh",
}


def is_short(y):
    return (torch.frexp(y).mantissa * 2**40).frac() == 0


# PyTorch's float64 function differs from the limit here (or, for sign, returns no NaN). Format
# tensors get the same.
AS_STOCK = {
    "i0": (INF, -INF),
    "i1": (INF, -INF),
    "sinc": (INF, -INF),
    "sign": (NAN,),
    "pow_half": (-INF,),
}

# Signs of zeros follow PyTorch's formulas: at -0, at exact zeros elsewhere, or where a negative
# result is too small.
ZERO_SIGNS = {
    "frac",
    "i1",
    "i1e",
    "pow_half",
    "entr",
    "sinc",
    "logsigmoid",
    "log_ndtr",
    "remainder",
    "logaddexp2",
}

# PyTorch composes these of several operators, which each round. The lambdas are the steps on
# float64 numbers.
COMPOSED = {
    "softsign": lambda r, x: r(x / r(1 + abs(x))),
    "tanhshrink": lambda r, x: r(x - r(np.tanh(x))),
}
SINGLE = [n for n in FUNCTIONS if n not in COMPOSED]


def dtype_of(name):
    return torch_dtypes.float_format(5, 10) if name == "e5m10" else getattr(torch, name)


def by_float64(name, f, x, dtype):
    """Return f of float64 values, rounded. For posits, and modes other than nearest, f is kept
    within float64's range."""
    y = f(x)
    if name in ("elu", "selu", "celu"):
        y = torch.where(x == 0, x, y)  # PyTorch 2.6 turns -0 into +0
    ends = torch.tensor([5e-324, -5e-324, 1e308], dtype=torch.float64).to(dtype)
    if name in RANGED and (ends[:2].ne(0).any() or ends[2].isfinite()):
        counts, sign = (
            x.isfinite() & (x != 0),
            torch.where(y.signbit() | (name in ("logsigmoid", "log_ndtr")), -1.0, 1.0).double(),
        )
        y = torch.where(
            counts & y.isinf(), sign * 1e308, torch.where(counts & (y == 0), sign * 5e-324, y)
        )
    return y.to(dtype)


def is_allowed(name, spec, x, y, found, right):
    """Tell whether the tables allow a code other than the rounded exact result y. x: the operand or
    operands."""
    value, size = float(spec.decode(found)), x if not isinstance(x, tuple) else max(map(abs, x))
    if value == 0 and spec.decode(right) == 0:
        return name in ZERO_SIGNS
    if any(size == s or (size != size and s != s) for s in AS_STOCK.get(name, ())):
        stock = FUNCTIONS[name].torch(torch.tensor([x], dtype=torch.float64)).item()
        return value == stock or (math.isnan(value) and math.isnan(stock))
    finite = as_float(y)
    loss = (LOSSES | LOSSES2).get(name)
    if loss is None or not math.isfinite(finite) or math.isnan(value):
        return False
    slack = loss[0](size, finite)
    low, high = (
        float(spec.decode(int(c)))
        for c in oracle.table(spec).encode(np.array([finite - slack, finite + slack]))
    )
    return low <= value <= high


def check(name, spec, x, found, expected, result):
    """Check codes against the expected ones. result(i) is the exact result for input i."""
    differ = np.flatnonzero(~same_codes(spec, found, expected))
    bad = [
        i
        for i in differ.tolist()
        if not is_allowed(name, spec, x(i), result(i), int(found[i]), int(expected[i]))
    ]
    rows = [
        (
            f"{name}({x(i)!r}) is {as_float(result(i))!r} -> {spec.decode(int(expected[i]))}, got "
            f"{spec.decode(int(found[i]))}"
        )
        for i in bad[:5]
    ]
    assert not bad, f"{len(bad)} of {len(found)} wrong: " + "; ".join(map(str, rows))


def run(name, format_name, codes=None, expect=filtered_codes):
    """Check all codes of a format, or the given ones."""
    function, spec, dtype = FUNCTIONS[name], FORMATS[format_name], dtype_of(format_name)
    codes = torch.arange(1 << spec.bits) if codes is None else codes
    t = from_codes(codes, dtype)
    x = t.double().numpy()
    found = codes_of(function.torch(t)).numpy()
    check(
        name,
        spec,
        lambda i: float(x[i]),
        found,
        expect(function, spec, x),
        lambda i: exact(function, float(x[i])),
    )


def sample(spec, count, seed=0):
    """Return seeded codes, more of them where the numbers are near 1 in size, and the ends of the
    format."""
    rng = np.random.default_rng(seed)
    one = spec.encode(1.0)
    near = one + rng.integers(-(one >> 3), one >> 3, count // 3)
    ends = [0, 1, 2, 3, one - 1, one, one + 1, spec.largest - 1, spec.largest, spec.sign_code - 1]
    k = np.concatenate([near, rng.integers(0, spec.sign_code, count - len(near) - len(ends)), ends])
    return torch.from_numpy((k + rng.integers(0, 2, count) * spec.sign_code) % (1 << spec.bits))


each_single = pytest.mark.parametrize("name", thin_out(SINGLE, 3))


@each_single
def test_every_code_of_8_bits(name):
    for format_name in BYTES:
        run(name, format_name, expect=expected_codes)


@pytest.mark.parametrize("name", thin_out(SINGLE, 7))
def test_seeded_codes_of_wider_formats(name):
    for format_name in SAMPLED:
        run(name, format_name, sample(FORMATS[format_name], 500))


@pytest.mark.parametrize(
    ("name", "format_name"),
    thin_out(
        [
            pytest.param(name, word, marks=[pytest.mark.slow] * ((i + j) % 2))
            for i, name in enumerate(MOST_USED)
            for j, word in enumerate(WORDS)
        ],
        11,
    ),
)
def test_every_code_of_16_bits(name, format_name):
    run(name, format_name)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", [n for n in SAMPLED if n != "tf32"])
@each_single
def test_every_code_without_a_filter(name, format_name):
    run(name, format_name, expect=expected_codes)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if FUNCTIONS[n].fast])
def test_the_filter_is_as_good_as_it_claims(name):
    """The filter's error is at most an eighth of its allowance, on operands of every size."""
    function = FUNCTIONS[name]
    x = np.concatenate(
        [
            from_codes(sample(FORMATS[n], 100, 5), dtype_of(n)).double().numpy()
            for n in ("posit16es2", "e5m10", "tf32")
        ]
    )
    with np.errstate(all="ignore"):
        y = np.asarray(function.fast(x))
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        e = exact(function, a)
        if math.isfinite(a) and not isinstance(e, float) and 1e-290 < abs(b) < 1e290:
            assert abs(mpf(b) - e) <= (abs(e) * SLACK + function.near_zero) / 8, (
                f"{name}({a!r}) = {b!r}, exactly {mp.nstr(e, 20)}"
            )


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_functions_round_every_step(name):
    for format_name in BYTES:
        t = oracle.table(FORMATS[format_name])
        x = t.decode()
        with np.errstate(all="ignore"):
            expected = t.encode(COMPOSED[name](lambda v, t=t, x=x: x[t.encode(v)], x))
        found = codes_of(
            FUNCTIONS[name].torch(from_codes(torch.arange(256), dtype_of(format_name)))
        ).numpy()
        assert same_codes(t.spec, found, expected).all()


# ---- functions of two tensors ----


def run2(name, format_name, a, b):
    function, spec, dtype = FUNCTIONS2[name], FORMATS[format_name], dtype_of(format_name)
    s, t = from_codes(a, dtype), from_codes(b, dtype)
    x, y = s.double().numpy(), t.double().numpy()
    # a NaN's sign is unspecified
    keep = ~np.isnan(y) if name == "copysign" else np.ones(len(x), bool)
    x, y, found = x[keep], y[keep], codes_of(function.torch(s, t)).numpy()[keep]
    expected = expected_codes2(function, spec, x, y)
    check(
        name,
        spec,
        lambda i: (float(x[i]), float(y[i])),
        found,
        expected,
        lambda i: exact2(function, float(x[i]), float(y[i])),
    )


@pytest.mark.parametrize(("name", "format_name"), thin_out(itertools.product(FUNCTIONS2, BYTES), 7))
def test_all_pairs_of_8_bits(name, format_name):
    a, b = torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij")
    step = 1 if name != "pow" else 3  # powers beyond float64's range take mpmath, one by one
    run2(name, format_name, a.flatten()[::step], b.flatten()[::step])


@pytest.mark.parametrize(
    ("name", "format_name"), thin_out(itertools.product(FUNCTIONS2, SAMPLED), 3)
)
def test_seeded_pairs_of_wider_formats(name, format_name):
    spec = FORMATS[format_name]
    a, b = sample(spec, 1500, 1), sample(spec, 1500, 2)
    near = (a[:300] + torch.arange(300) % 9 - 4) % (1 << spec.bits)
    run2(name, format_name, torch.cat([a, a[:300]]), torch.cat([b, near]))


# ---- tables of the differences ----


def one_code(name, format_name, *x):
    t = [torch.tensor([v], dtype=torch.float64).to(dtype_of(format_name)) for v in x]
    function = (FUNCTIONS | FUNCTIONS2)[name]
    values = [v.double().numpy() for v in t]
    expect = expected_codes if len(x) == 1 else expected_codes2
    return codes_of(function.torch(*t)).item(), int(
        expect(function, FORMATS[format_name], *values)[0]
    )


@pytest.mark.parametrize("name", [*LOSSES, *LOSSES2])
def test_losses_are_still_there(name):
    _, _, format_name, x = (LOSSES | LOSSES2)[name]
    found, right = one_code(name, format_name, *(x if isinstance(x, tuple) else (x,)))
    assert found != right, (
        "expected a loss, but the result is right: take the function out of LOSSES"
    )


@pytest.mark.parametrize("name", ["posit8es2", "posit16es2", "posit32es2"])
def test_posits_beyond_float64_get_the_outermost_numbers(name):
    dtype = getattr(torch, name)
    info = torch.finfo(dtype)
    for function, x, right in [
        (torch.logaddexp, (0.0, -(2.0**24)), info.smallest_normal),
        (torch.logaddexp2, (-2e3, 0.0), info.smallest_normal),
        (torch.logaddexp, (0.0, -1e3), info.smallest_normal),
        (torch.special.i1, (-1e3,), -info.max),
    ]:
        assert function(*(torch.tensor([v]).to(dtype) for v in x)).tolist() == [right]


@pytest.mark.parametrize("name", ["posit8es2", "posit16es2"])
def test_bessel_functions_beyond_float64(name):
    dtype = getattr(torch, name)
    x, info = torch.tensor([1e3, 4096.0]).to(dtype), torch.finfo(dtype)
    for function, limit in (
        ("k0", info.smallest_normal),
        ("k1", info.smallest_normal),
        ("i0", info.max),
        ("i1", info.max),
    ):
        assert getattr(torch.special, f"modified_bessel_{function}")(x).tolist() == [limit] * 2
    assert torch.special.i1(-x).tolist() == [-info.max] * 2


def test_a_larger_operand_that_is_not_0_decides_nothing():
    """A 0 beside an infinity of the format stays 0."""
    assert torch.logaddexp(*torch.tensor([[0.0], [-math.inf]]).to(torch.q43)).tolist() == [0]
    assert math.isnan(
        torch.logaddexp(*torch.tensor([[0.0], [math.nan]]).to(torch.posit16es2)).item()
    )


@pytest.mark.parametrize("name", AS_STOCK)
def test_stock_special_values(name):
    for x in AS_STOCK[name]:
        found, expected = (operator.itemgetter(i)(one_code(name, "q43", x)) for i in (0, 1))
        assert not same_codes(FORMATS["q43"], np.array([found]), np.array([expected])).all()


# ---- sums, products, extremes ----


def exact_sums(v):
    """Return {name: (exact result or results, absolute error of float32 arithmetic)} for a list of
    Fractions. u = 2^-24, and n u allows n roundings."""
    n, u = len(v), oracle.Fraction(1, 1 << 24)
    total, size, squares = sum(v), sum(map(abs, v)), sum(x * x for x in v)
    mean, product = total / n, math.prod(v)
    sums = [sum(v[: i + 1]) for i in range(n)]
    products = [math.prod(v[: i + 1]) for i in range(n)]
    results = {
        "sum": (total, n * u * size),
        "mean": (mean, 2 * u * size),
        "prod": (product, 2 * n * u * abs(product)),
        "max": (max(v), 0),
        "min": (min(v), 0),
        "norm": (root(squares), (n + 4) * u * root(squares)),
        "cumsum": (sums, [n * u * size] * n),
        "cumprod": (products, [2 * n * u * abs(p) for p in products]),
    }
    if n > 1:
        var = sum((x - mean) ** 2 for x in v) / (n - 1)
        loss = 4 * n * u * (var + mean * mean)
        results |= {"var": (var, loss), "std": (root(var), loss / root(var) if var else root(loss))}
    return results


def root(x):
    """Return a square root to 100 bits."""
    return oracle.Fraction(math.isqrt((x.numerator << 400) // x.denominator), 1 << 200)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("format_name", [*BYTES, *SAMPLED])
def test_sums_are_within_float32_s_loss(format_name, n):
    """Sums and products are rounded once to the format, from float32 (from float64 for wider
    formats)."""
    spec, dtype = FORMATS[format_name], dtype_of(format_name)
    normal = torch.randn(2, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    # Products of many numbers stay in float32's range: beyond it a posit gets NaR or 0.
    t = (normal[0] * 4 if n <= 7 else normal[0].sign() * torch.exp(normal[1] / 5)).to(dtype)
    v = [oracle.Fraction(x) for x in t.double().tolist()]
    calls = {
        name: getattr(torch, name) for name in ("sum", "mean", "prod", "max", "min", "var", "std")
    }
    calls |= {
        "norm": torch.linalg.vector_norm,
        "cumsum": lambda x: x.cumsum(0),
        "cumprod": lambda x: x.cumprod(0),
    }
    for name, (result, slack) in exact_sums(v).items():
        found = calls[name](t).double().reshape(-1).tolist()
        results, slacks = (result, slack) if isinstance(result, list) else ([result], [slack])
        for y, r, s in zip(found, results, slacks, strict=True):
            low, high = (float(spec.decode(spec.encode(w))) for w in (r - s, r + s))
            assert low <= y <= high, f"{name} of {n}: {y}, exactly {float(r)} +- {float(s)}"


# ---- tables of results and the function itself ----

MODES = [name for name, _, draws in _C.ROUNDING_MODES if not draws]  # without the random ones
ARGUMENTS = [
    lambda x: torch.nn.functional.celu(x, 0.5),
    lambda x: torch.nn.functional.celu(x, 3.0),
    lambda x: torch.nn.functional.elu(x, 2.0),
    lambda x: torch.clamp(x, max=1),
    lambda x: torch.clamp(x, min=1),
    lambda x: torch.clamp(x, min=1.0, max=2),
    lambda x: torch.clamp(x, -1, 2),
    lambda x: torch.pow(x, 2),
    lambda x: torch.pow(x, 2.5),
    lambda x: torch.pow(x, -2),
    lambda x: torch.round(x, decimals=1),
    lambda x: torch.round(x, decimals=2),
    lambda x: torch.logit(x, 0.1),
    lambda x: torch.logit(x, 0.2),
    lambda x: torch.polygamma(1, x),
    lambda x: torch.polygamma(2, x),
    lambda x: torch.nn.functional.softplus(x, 2.0),
    lambda x: torch.nn.functional.leaky_relu(x, 0.3),
    lambda x: torch.nan_to_num(x, 2.0, 5.0, -5.0),
    lambda x: torch.nan_to_num(x, 3.0, 4.0, -4.0),
    lambda x: torch.nn.functional.threshold(x, 0.5, 7.0),
    lambda x: torch.nn.functional.hardtanh(x, -0.5, 2),
    torch.nn.functional.hardswish,
    torch.special.erfcx,
    torch.special.bessel_j0,
]


def same_bits(a, b, nan_signs=True):
    """Tell whether two tensors of a dtype are equal bit for bit."""
    assert a.dtype is b.dtype and a.shape == b.shape
    same = codes_of(a.contiguous()) == codes_of(b.contiguous())
    return bool((same if nan_signs else same | (a.double().isnan() & b.double().isnan())).all())


def all_of(dtype, repeat=1):
    return from_codes(torch.arange(1 << torch_dtypes.format_of(dtype).bits).repeat(repeat), dtype)


@parametrize_dtypes("posit10es1 e4m4 posit6es1")
def test_a_table_gives_what_the_function_gives(dtype):
    """A dtype of this test alone: its first calls are too few to make a table, the later ones make
    and use it."""
    x = all_of(dtype)
    few = {f: f(x[:100]) for f in [*ARGUMENTS, *(FUNCTIONS[n].torch for n in SINGLE)]}
    many = x.repeat((1 << 8 * dtype.itemsize) // len(x) + 1)
    for _ in range(2):
        for f, direct in few.items():
            by_table = f(many)
            assert same_bits(by_table[: len(direct)], direct), f
            y = f(x.double())
            inside = y.isfinite() & (y != 0)  # inside float64's range
            assert same_bits(by_table[: len(x)][inside], y.to(dtype)[inside]), f
            assert same_bits(
                torch.cat([f(v.reshape(1)) for v in x[::7]]),
                by_table[: len(x)][::7],
                nan_signs=False,
            ), f


@pytest.mark.parametrize(("name", "mode"), thin_out(itertools.product(SINGLE, MODES), 7))
def test_tables_of_every_rounding_mode(name, mode):
    f = FUNCTIONS[name].torch
    for dtype in (torch.q43, torch.posit8es2):
        x, stock = all_of(dtype, 2), all_of(dtype, 2).double()
        plain = f(x)
        with torch_dtypes.rounding(mode):
            inside, expected = f(x), by_float64(name, f, stock, dtype)
        own = torch_dtypes.with_rounding(dtype, mode)
        assert same_bits(plain, f(x)), "a block must not change what lies behind it"
        # Arithmetic does not go through float64.
        if name not in ("sqrt", "abs", "neg", "sign", "reciprocal"):
            same = ~is_short(f(stock)) if name in BESIDE else slice(None)
            assert same_bits(inside[same], expected[same], nan_signs=False)
            y = f(x.view(torch.uint8).view(own))
            assert y.dtype is own and same_bits(
                y.view(torch.uint8).view(dtype), inside, nan_signs=False
            )


@parametrize_dtypes("q52 posit16es2")
def test_views_and_targets_of_tables(dtype):
    x = all_of(dtype).reshape(2, -1, 4)
    for name in ("exp", "tanh", "sigmoid", "erf", "floor", "log1p"):
        f = getattr(torch, name)
        for _ in range(2):
            right = by_float64(name, f, x.double(), dtype)
            for view in (
                x,
                x.transpose(0, 1),
                x[:, ::3],
                x.permute(2, 0, 1)[1:],
                x[:, :1].expand(2, 5, 4),
                x[0, 0, 0],
                x[:0],
            ):
                expected = by_float64(name, f, view.double(), dtype)
                assert same_bits(f(view), expected, nan_signs=False)
                assert f(view).stride() == f(view.double()).stride()
                target = torch.empty_like(view)
                assert f(view, out=target) is target and same_bits(
                    target, expected, nan_signs=False
                )
            for change in (
                lambda t: t,
                lambda t: t.transpose(0, 2),
                lambda t: t[:, ::2],
                lambda t: t[1],
            ):
                t = x.clone()
                part = change(t)
                assert getattr(part, name + "_")() is part
                expected = x.clone()
                change(expected).copy_(change(right))
                assert same_bits(t, expected, nan_signs=False)
    with pytest.raises(RuntimeError, match="more than one element"):
        x[:, :1].expand(2, x.shape[1], 4).exp_()


def test_stochastic_functions_are_unbiased_and_use_no_table():
    n = 200_000
    for dtype in (torch.q43, torch.posit8es2):
        values = torch.tensor([0.3125, -1.25, 1.5, 2.25], dtype=dtype)
        with torch_dtypes.rounding("stochastic"):
            torch.manual_seed(3)
            y = torch.exp(values.reshape(-1, 1).repeat(1, n)).double()
        for row, x in zip(y, values.tolist(), strict=True):
            low, high = row.unique().tolist()
            p = (math.exp(x) - low) / (high - low)
            assert abs(row.mean().item() - math.exp(x)) < 5 * (high - low) * math.sqrt(
                p * (1 - p) / n
            )


def test_derivatives_go_through_tables():
    x = all_of(torch.posit8es2).requires_grad_()
    for _ in range(3):
        (g,) = torch.autograd.grad(torch.tanh(x).sum(), x)
    few = torch.cat(
        [
            torch.autograd.grad(torch.tanh(v).sum(), v)[0]
            for v in (x.detach()[i : i + 1].requires_grad_() for i in range(256))
        ]
    )
    assert same_bits(g, few)
