"""Dot products and sums, bit for bit: each policy that rounds its steps against exact rationals."""

import numpy as np
import pytest
import torch
from conftest import codes_of
from oracle import MODES
from oracle_sums import chunk_sum, exact_sum, over, step_sum, times
from rationals import Fraction
from sums import (
    FORMATS,
    assert_codes,
    assert_products,
    dtype_of,
    lines,
    some,
    step_codes,
    values_of,
)

import torch_dtypes
from torch_dtypes import accumulate

STEPS = [name for name in FORMATS if name != "e11m52"]  # formats whose arithmetic float64 can do


# ---- every policy ----


@pytest.mark.parametrize("policy", ["exact", "format", "chunked(2)", "float64"])
def test_zeros_add_up_to_plus_zero(policy):
    zeros = torch.full((3, 4), -0.0).to(torch.q43)
    with accumulate(policy):
        results = [
            zeros.sum(),
            zeros.sum(0),
            zeros.mean(),
            zeros @ torch.ones(4, 2, dtype=torch.q43),
            zeros.cumsum(0),
        ]
        nothing = [
            torch.empty(2, 0, dtype=torch.q43) @ torch.empty(0, 3, dtype=torch.q43),
            torch.empty(0, dtype=torch.q43).sum(),
        ]
        cancelled = torch.tensor([3.0, -3.0]).to(torch.q43).sum()
    for t in [*results, *nothing, cancelled]:
        assert not codes_of(t).any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "policy", ["format", "format(order=pairwise)", "chunked(2)", "format(accumulator=e5m6)"]
)
def test_posits_wider_than_float32_s_codes(policy):
    """Posits of 25 bits have no more digits than float32's arithmetic takes."""
    x = torch.arange(1.0, 10).reshape(3, 3).to(torch_dtypes.posit_format(25, 1))
    with torch_dtypes.accumulate(policy):
        assert torch.equal((x @ x).double(), x.double() @ x.double())
        assert x.sum().item() == 45


@pytest.mark.parametrize(
    ("beta", "alpha"), [(1, 2.0), (0.3, 1), (-1.7, 0.1), (0, 1), (0, -3.0), (0.5, 0)]
)
@pytest.mark.parametrize("name", ["posit16es1", "posit32es2", "q43"])
def test_other_scalars(name, beta, alpha):
    """The exact policy sums all of it. Under others the accumulator's number is scaled and added in
    float64, and rounded once."""
    spec, a, b, bias = (
        FORMATS[name],
        some(name, 3, 5),
        some(name, 5, 4, seed=1),
        some(name, 4, seed=2),
    )
    starts = values_of(bias, spec) * 3
    with accumulate("exact"):
        found = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
        batched = torch.baddbmm(bias.expand(1, 3, 4), a[None], b[None], beta=beta, alpha=alpha)[0]
    products = [
        [times(times(x, y), Fraction(alpha)) for x, y in line] for line in lines(a, b, spec)
    ]
    wanted = [
        spec.encode(exact_sum([*p, times(s, Fraction(beta))] if beta else p))
        for p, s in zip(products, starts, strict=True)
    ]
    assert_codes(found, wanted, spec), assert_codes(batched, wanted, spec)
    for policy, dtype in (
        ("format", a.dtype),
        ("format(product=exact,accumulator=fp32)", torch.float32),
        ("chunked(5)", a.dtype),
    ):
        # float64 lacks digits for these products.
        if dtype is torch.float32 and name == "posit32es2":
            continue
        with accumulate(policy):
            found = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
            # The format's own steps make one chunk.
            held = torch_dtypes.matmul(a, b, out="fp32") if dtype is torch.float32 else a @ b
        rest = bias.double() * beta if beta else 0.0
        assert torch.equal(codes_of(found), codes_of((held.double() * alpha + rest).to(a.dtype)))


def test_scalars_do_not_overflow_on_the_way():
    a, c = torch.full((1, 2), 15.0).to(torch.q43), torch.full((1, 1), 3.0).to(torch.q43)
    for policy in (
        "machine",
        "exact",
        "format(product=exact,accumulator=fp32)",
        "block(terms=16, extra_bits=2)",
    ):
        with accumulate(policy):
            assert torch.addmm(c, a, a.t(), alpha=0.25).item() == 112
    with (
        accumulate("exact"),
        pytest.raises(
            RuntimeError, match='addmm under "exact": expected finite alpha, but got inf'
        ),
    ):
        torch.addmm(c, a, a.t(), alpha=float("inf"))
    wide = torch.ones(1, 2).to(torch_dtypes.dtype("e8m23"))
    with (
        accumulate("exact"),
        pytest.raises(
            RuntimeError,
            match="expected alpha whose products with the operand float64 holds exactly",
        ),
    ):
        torch.addmm(c.to(wide.dtype), wide, wide.t(), alpha=1e-320)


# ---- every step rounded ----


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("shape", [(2, 1, 3), (3, 17, 2), (9, 6, 2), (2, 5, 18)])
def test_format_rounds_every_product_and_sum(name, shape):
    m, k, n = shape
    assert_products("format", some(name, m, k), some(name, k, n, seed=1), name)


@pytest.mark.parametrize(
    "options",
    [
        {"fused": True},
        {"kahan": True},
        {"product": "e8m4"},
        {"accumulator": "posit16es2"},
        {"product": "q52", "accumulator": "e5m7"},
        {"accumulator": "tf32", "fused": True},
        {"accumulator": "e5m5", "kahan": True, "product": "tf32"},
        {"accumulator": "posit32es2"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["q43", "posit8es1", "posit16es2", "posit32es2", "e8m4"])
def test_options_of_format(name, options):
    assert_products("format", some(name, 3, 12, seed=5), some(name, 12, 3, seed=6), name, **options)
    by_dtype = {k: dtype_of(v) if isinstance(v, str) else v for k, v in options.items()}
    with accumulate("format", **options):
        by_name = torch_dtypes.accumulation_of(dtype_of(name))
    with accumulate("format", **by_dtype):
        assert torch_dtypes.accumulation_of(dtype_of(name)) == by_name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["q43", "posit8es1", "posit16es1", "posit32es2", "tf32", "fixed4_4"]
)
def test_rounding_of_format(name, mode):
    """The steps use the given mode; the result uses the mode of its dtype."""
    a, b = some(name, 3, 9, seed=7), some(name, 9, 3, seed=8)
    assert_products("format", a, b, name, rounding=mode)
    if name in ("q43", "posit16es1"):
        assert_products("format", a, b, name, rounding=mode, accumulator="tf32")
        assert_products("format", a, b, name, rounding=mode, fused=True)
        assert_products("format", a, b, name, rounding=mode, kahan=True)


@pytest.mark.parametrize("name", ["q43", "posit16es1", "e8m4", "fixed4_4", "posit32es2"])
@pytest.mark.parametrize(
    "options", [{}, {"kahan": True}, {"rounding": "toward_zero"}, {"fused": True}], ids=str
)
def test_format_s_sum_start_and_running_sum(name, options):
    """A sum has no products to round. The start is the accumulator's first value, and a mean
    divides the last one."""
    spec, x = FORMATS[name], some(name, 3, 11, seed=9)
    a, b, bias = some(name, 3, 4), some(name, 4, 3, seed=1), some(name, 3, seed=2)
    mode, kahan = options.get("rounding", "nearest_even"), options.get("kahan", False)
    with accumulate("format", **options):
        total, mean, running, started = x.sum(1), x.mean(1), x.cumsum(1), torch.addmm(bias, a, b)
    starts = values_of(bias, spec) * 3
    assert_codes(
        started,
        step_codes(
            lines(a, b, spec), spec, mode, starts, kahan=kahan, fused=options.get("fused", False)
        ),
        spec,
        "addmm",
    )
    sums = [
        [
            step_sum(
                [(None, v) for v in values_of(row, spec)[: i + 1]], spec, spec, mode, kahan=kahan
            )
            for i in range(11)
        ]
        for row in x
    ]
    assert_codes(total, [spec.encode(row[-1]) for row in sums], spec, "sum")
    assert_codes(mean, [spec.encode(over(row[-1], 11)) for row in sums], spec, "mean")
    assert_codes(running, [spec.encode(v) for row in sums for v in row], spec, "cumsum")


@pytest.mark.parametrize("shape", [(2, 7, 600), (600, 7, 3), (3, 7, 257)])
def test_columns_do_not_mind_their_neighbours(shape):
    """With more columns than are computed side by side, each column has the bits of a single
    one."""
    m, k, n = shape
    a, b = some("posit16es1", m, k), some("posit16es1", k, n, seed=1)
    with accumulate("format", kahan=True):
        whole = codes_of(a @ b)
        for j in (0, n // 2, n - 1):
            assert torch.equal(whole[:, j], codes_of(a @ b[:, j])), j
        assert torch.equal(whole[m - 1], codes_of(a[m - 1] @ b))


def test_ones_in_e5m2_stop_at_eight():
    """8 + 1 is a tie that rounds to 8."""
    ones = torch.ones(4096, dtype=torch.q52)
    with accumulate("format"):
        assert ones.sum().item() == ones @ ones == 8
    for policy in ("machine", "float32", "float64", "exact", "chunked(8)"):
        with accumulate(policy):
            assert ones.sum().item() == ones @ ones == 4096


@pytest.mark.parametrize("product", [None, "exact", "q43"])
@pytest.mark.parametrize("name", ["q43", "posit16es2", "e5m10"])
def test_float32_accumulators_are_the_machine_s(name, product):
    dtype, g = torch_dtypes.dtype(name), torch.Generator().manual_seed(4)
    sizes = (9, 50), (50, 20), (20,)
    a, b, start = (
        (torch.randn(size, generator=g) * torch.exp2(torch.randint(-6, 4, size, generator=g))).to(
            dtype
        )
        for size in sizes
    )
    options = {} if product is None else {"product": product}
    with torch_dtypes.accumulate("format", accumulator="fp32", **options):
        found = torch.addmm(start, a, b)
    sums = start.float().expand(9, 20).clone()
    for i in range(50):
        products = a[:, i, None].double() * b[None, i].double()  # exact
        rounded = (
            products.float()
            if product == "exact"
            else products.to(dtype if product is None else torch.q43).float()
        )
        sums += rounded
    assert torch.equal(codes_of(found), codes_of(sums.to(dtype)))


# ---- chunks ----


@pytest.mark.parametrize(
    "name", ["q43", "posit8es1", "posit16es1", "posit32es2", "e8m4", "fixed4_4", "tf32"]
)
@pytest.mark.parametrize(
    "options", [{}, {"kahan": True}, {"fused": True}, {"rounding": "toward_zero"}], ids=str
)
def test_chunked_adds_sums_of_k_terms_in_the_machine_s_type(name, options):
    spec, a, b, bias = (
        FORMATS[name],
        some(name, 3, 12),
        some(name, 12, 3, seed=1),
        some(name, 3, seed=2),
    )
    machine = np.float64 if name == "posit32es2" else np.float32
    named = {"mode" if key == "rounding" else key: value for key, value in options.items()}
    starts = values_of(bias, spec) * 3

    def sum_chunks(dots, k, starts=None, **named):
        with np.errstate(all="ignore"):
            sums = [
                chunk_sum(dot, spec, k, machine, s, **named)
                for dot, s in zip(dots, starts or [None] * len(dots), strict=True)
            ]
        return [spec.encode(x) for x in sums]

    for k in (1, 3, 4, 12, 50):
        with accumulate(f"chunked({k})", **options):
            found, started, total = a @ b, torch.addmm(bias, a, b), a.sum(1)
        assert_codes(found, sum_chunks(lines(a, b, spec), k, **named), spec, f"mm, k={k}")
        assert_codes(
            started, sum_chunks(lines(a, b, spec), k, starts, **named), spec, f"addmm, k={k}"
        )
        rows = [[(None, v) for v in values_of(row, spec)] for row in a]
        assert_codes(
            total,
            sum_chunks(rows, k, **{key: v for key, v in named.items() if key != "fused"}),
            spec,
            f"sum, k={k}",
        )


def test_chunks_of_narrow_formats_meet_in_float32():
    """float32 has every value of e8m4, and 2^30 + 1 is 2^30 in it."""
    x = torch.tensor([2.0**30, 1.0, -(2.0**30)])
    with accumulate("chunked(1)"):
        for name in ("e8m4", "tf32", "posit16es2"):
            assert x.to(dtype_of(name)).sum().item() == 0, name
        assert x.to(torch.posit32es2).sum().item() == 1


# ---- the machine's types ----


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in ("e11m52", "fixed4_4")])
def test_float64_and_float32_are_the_stock_kernels_rounded_once(name, one_thread):
    """Equal sizes and layouts give the same order of additions inside."""
    dtype = dtype_of(name)
    a, b, bias = (
        torch.randn(sizes, generator=torch.Generator().manual_seed(1)).to(dtype)
        for sizes in ((9, 70), (70, 11), (11,))
    )
    wide = name == "posit32es2"
    for policy, stock in (
        ("float64", torch.float64),
        ("float32", torch.float32),
        ("machine", torch.float64 if wide else torch.float32),
    ):
        with accumulate(policy):
            if policy == "float32" and wide:
                with pytest.raises(RuntimeError, match=r"float32.*posit32es2|posit32es2.*float32"):
                    a @ b
                continue
            found = [a @ b, torch.addmm(bias, a, b), a.sum(0), a.mean(1), a.cumsum(1)]
        x, y, z = a.to(stock), b.to(stock), bias.to(stock)
        expected = [x @ y, torch.addmm(z, x, y), x.sum(0), x.mean(1), x.cumsum(1)]
        for f, e in zip(found, expected, strict=True):
            assert torch.equal(codes_of(f), codes_of(e.to(dtype))), policy


def test_tables_of_float32_numbers_have_float32_sums():
    x = torch.ones(2, 2).to(torch_dtypes.dtype("nf4"))
    held = torch.mm(x, x)
    with accumulate("float32"):
        assert torch.equal(codes_of(torch.mm(x, x)), codes_of(held))
