"""Sums and dot products that are rounded once, bit for bit, against exact rationals; for posits
also against softposit's quire."""

import math

import numpy as np
import pytest
import torch
from conftest import codes_of, from_codes
from oracle import MODES, binary
from oracle_sums import exact_sum, over, round_value, times
from rationals import Fraction
from sums import (
    FORMATS,
    assert_codes,
    assert_products,
    dtype_of,
    ends,
    every_format,
    exact_codes,
    largest,
    lines,
    random_codes,
    some,
    tensor_of,
    values_of,
)

import torch_dtypes
from torch_dtypes import accumulate


@every_format
@pytest.mark.parametrize("k", [1, 2, 3, 17, 60])
def test_exact_is_the_correctly_rounded_dot_product(name, k):
    for operands in (some, ends):
        assert_products("exact", operands(name, 5, k), operands(name, k, 4, seed=1), name)


@every_format
def test_exact_of_many_terms(name):
    """With 5000 terms, carries reach far."""
    assert_products("exact", ends(name, 1, 5000), some(name, 5000, 1, seed=1), name)


def hard_dots(spec, rng):
    """Return dots with ties that a far smaller product breaks or leaves, large terms that cancel,
    and the ends of the range."""
    top, least = largest(spec), spec.decode(1)
    one, half = Fraction(1), Fraction(1, 2)
    k = spec.encode(Fraction(3, 2)) + int(rng.integers(0, 2))
    low, high = spec.decode(k), spec.decode(k + 1)
    ulp = round_value(spec, high - low)
    dots = (
        [[(top, top)] * n for n in (1, 2, 9)]
        + [[(least, least)] * n for n in (1, 2, 9)]
        + [[(top, least)], [(-top, least), (top, top)]]
    )
    for tiny in ([], [(least, least)], [(-least, least)], [(least, least), (-least, least)]):
        tie = [(low, one), (ulp, half), *tiny]
        dots += [
            tie,
            [(-x, y) for x, y in tie],
            [(top, top), *tie, (-top, top)],
            [(top, one), (top, one), *tie, (-top, one), (top, -one)],
        ]
    for _ in range(12):
        codes = random_codes(spec, 24, rng)
        x = [Fraction(spec.decode(c)) for c in codes]
        big = [(p, q) for p, q in zip(x[:8], x[8:16], strict=True)] + [
            (round_value(spec, -p), q) for p, q in zip(x[:8], x[8:16], strict=True)
        ]
        terms = [*big, (x[16], x[17]), (x[18], one)]
        dots.append([terms[i] for i in rng.permutation(18)])
    return dots


@every_format
def test_exact_of_hard_dots(name):
    """Zeros pad the dots to one length, so that each is a row of one product in a batch."""
    spec, rng = FORMATS[name], np.random.default_rng(3)
    dots = hard_dots(spec, rng)
    length = max(map(len, dots))
    dots = [dot + [(Fraction(0), Fraction(0))] * (length - len(dot)) for dot in dots]
    a, b = (
        tensor_of([spec.encode(pair[i]) for dot in dots for pair in dot], name, len(dots), length)
        for i in (0, 1)
    )
    with accumulate("exact"):
        found = torch.bmm(a.unsqueeze(1), b.unsqueeze(2))
        sums = a.sum(1)
    assert_codes(found, exact_codes(dots, spec), spec, name)
    assert_codes(
        sums, [spec.encode(exact_sum(x for x, _ in dot)) for dot in dots], spec, f"{name} sum"
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["posit8es1", "posit16es1", "q43", "tf32", "e5m2fn", "fixed4_4", "posit32es2"]
)
def test_exact_in_every_rounding_mode(name, mode):
    spec, a, b = FORMATS[name], ends(name, 4, 7, seed=2), ends(name, 7, 4, seed=3)
    with accumulate("exact"), torch_dtypes.rounding(mode):
        product, total, mean = a @ b, a.sum(1), a.mean(1)
    assert_codes(product, exact_codes(lines(a, b, spec), spec, mode), spec, name)
    rows = [exact_sum(values_of(row, spec)) for row in a]
    assert_codes(total, [spec.encode(x, mode) for x in rows], spec, name)
    assert_codes(mean, [spec.encode(over(x, 7), mode) for x in rows], spec, name)


@every_format
@pytest.mark.parametrize("k", [1, 3, 10, 1000])
def test_exact_sum_mean_and_cumsum(name, k):
    spec, x = FORMATS[name], ends(name, 2, k, seed=4)
    rows = [values_of(row, spec) for row in x]
    with accumulate("exact"):
        total, mean, running = x.sum(1), x.mean(1), x[:, :40].cumsum(1)
    assert_codes(total, [spec.encode(exact_sum(row)) for row in rows], spec, name)
    assert_codes(mean, [spec.encode(over(exact_sum(row), k)) for row in rows], spec, name)
    assert_codes(
        running,
        [spec.encode(exact_sum(row[: i + 1])) for row in rows for i in range(min(k, 40))],
        spec,
        name,
    )


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "fixed4_4"])
def test_exact_with_nan_and_infinities(name):
    """inf - inf, inf * 0 and NaN give NaN, and a lone infinity stays one. In posits all of these
    are NaR."""
    spec = FORMATS[name]
    values = torch.tensor(
        [0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan], dtype=torch.float64
    ).to(dtype_of(name))
    pairs = torch.cartesian_prod(*[torch.arange(7)] * 4)[::13]
    a, b = (
        from_codes(codes_of(values)[pairs[:, :2]], values.dtype),
        from_codes(codes_of(values)[pairs[:, 2:]], values.dtype),
    )
    with accumulate("exact"):
        found = torch.bmm(a.unsqueeze(1), b.unsqueeze(2))
        running = values.cumsum(0)
    dots = [
        list(zip(values_of(x, spec), values_of(y, spec), strict=True))
        for x, y in zip(a, b, strict=True)
    ]
    assert_codes(found, exact_codes(dots, spec), spec, name)
    assert_codes(
        running,
        [spec.encode(exact_sum(values_of(values, spec)[: i + 1])) for i in range(7)],
        spec,
        name,
    )


@every_format
def test_what_the_accumulator_starts_with(name):
    """In addmm with beta = alpha = 1, self counts with all digits of the products, and the total is
    rounded once."""
    spec, a, b, bias = (
        FORMATS[name],
        ends(name, 4, 9),
        ends(name, 9, 3, seed=1),
        ends(name, 4, 3, seed=2),
    )
    with accumulate("exact"):
        found, none = torch.addmm(bias, a, b), torch.addmm(bias, a[:, :0], b[:0])
    assert_codes(
        found, exact_codes(lines(a, b, spec), spec, starts=values_of(bias, spec)), spec, name
    )
    assert_codes(none, [spec.encode(exact_sum([x])) for x in values_of(bias, spec)], spec, name)


@pytest.mark.parametrize("bias", [-20, 500])
def test_exact_where_all_values_are_large_or_small(bias):
    """One is no value of these formats, and the digits of a sum are far from those of products."""
    spec, dtype = binary(4, 3, bias=bias), torch_dtypes.float_format(4, 3, bias=bias)
    codes = torch.tensor([[8, 30, 55, 1, 119, 128 + 119, 128 + 7, 64]])
    x = from_codes(codes, dtype)
    values = values_of(x, spec)
    with accumulate("exact"):
        assert_codes(x.sum(1), [spec.encode(exact_sum(values))], spec, bias)
        assert_codes(x @ x.t(), [spec.encode(exact_sum([times(v, v) for v in values]))], spec, bias)
        assert_codes(
            torch.addmm(x[:, :1], x[:, :2], x[:, :2].t()),
            [spec.encode(exact_sum([v * v for v in values[:2]], values[0]))],
            spec,
            bias,
        )


@pytest.mark.parametrize(
    "name", ["posit8es0", "posit8es2", "posit16es1", "posit16es2", "posit32es2"]
)
def test_exact_as_softposit_s_quire(name):
    softposit = pytest.importorskip(
        "softposit", reason="softposit is the independent implementation"
    )
    spec = FORMATS[name]
    if spec.exp_bits == 2:
        make, quire, down = (
            (lambda c: softposit.posit_2(x=spec.bits, bits=c)),
            (lambda: softposit.quire_2(spec.bits)),
            32 - spec.bits,
        )
    else:
        posit = {8: softposit.posit8, 16: softposit.posit16}[spec.bits]
        make, quire, down = (
            (lambda c: posit(bits=c)),
            {8: softposit.quire8, 16: softposit.quire16}[spec.bits],
            0,
        )
    expected, (a, b) = (
        [],
        (torch.cat([operands(name, 100, 30, seed=i) for operands in (some, ends)]) for i in (1, 2)),
    )
    for x, y in zip(codes_of(a).tolist(), codes_of(b).tolist(), strict=True):
        total = quire()
        for p, q in zip(x, y, strict=True):
            total.qma(make(p), make(q))
        expected.append(total.toPosit().v.v >> down)
    with accumulate("exact"):
        found = torch.bmm(a.unsqueeze(1), b.unsqueeze(2))
    assert_codes(found, expected, spec, name)


@pytest.mark.parametrize("columns", [0, 1, 150])
def test_factors_of_a_sum_reach_every_column(columns):
    """A start whose multiples are several terms is added some columns at a time."""
    g = torch.Generator().manual_seed(4)
    start, a, b = (
        (torch.randn(shape, generator=g) * 2.0**40).to(torch.posit32es2)
        for shape in ((3, columns), (3, 5), (5, columns))
    )
    with accumulate("exact"):
        whole = torch.addmm(start, a, b, beta=math.pi, alpha=1 / 3)
        apart = [
            torch.addmm(start[:, i : i + 1], a, b[:, i : i + 1], beta=math.pi, alpha=1 / 3)
            for i in range(columns)
        ]
    assert whole.dtype is torch.posit32es2 and whole.shape == (3, columns)
    for i, column in enumerate(apart):
        assert torch.equal(codes_of(whole)[:, i : i + 1], codes_of(column))
