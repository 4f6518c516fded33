"""Orders other than one running sum, sums of rounded chunks, exact products, and accumulators that
wrap, against rationals."""

import pytest
import torch
import torch.nn.functional as F
from oracle import binary
from oracle_fixed import Fixed
from oracle_sums import round_value
from rationals import Fraction
from sums import some, values_of

import torch_dtypes
from torch_dtypes import Accumulation, accumulate

Q43, E5M4, TF32 = binary(4, 3), binary(5, 4), binary(8, 10)


def pairwise(terms, add):
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return add(pairwise(terms[:half], add), pairwise(terms[half:], add))


def tree(terms, add):
    while len(terms) > 1:
        terms = [
            add(*terms[i : i + 2]) if i + 1 < len(terms) else terms[i]
            for i in range(0, len(terms), 2)
        ]
    return terms[0]


def in_lanes(k):
    def total(terms, add):
        sums = []
        for lane in range(min(k, len(terms))):
            running = Fraction(0)
            for term in terms[lane::k]:
                running = add(running, term)
            sums.append(running)
        return tree(sums, add)

    return total


ORDERS = {"pairwise": pairwise, "tree": tree, "lanes(3)": in_lanes(3), "lanes(16)": in_lanes(16)}


def total(order, terms, spec, start=None):
    """Return the finished sum, which is always a number of the accumulator."""
    add = lambda x, y: round_value(spec, Fraction(x) + Fraction(y))  # noqa: E731
    result = round_value(spec, ORDERS[order](terms, add))
    return result if start is None else add(round_value(spec, start), result)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 16, 37])
def test_orders(order, k):
    a, b, bias = (
        some("q43", 3, k, spread=0.5),
        some("q43", k, 5, seed=1, spread=0.5),
        some("q43", 5, seed=2),
    )
    a, b, bias = (t.clamp(-4, 4) for t in (a, b, bias))
    rows, columns, start = (
        [values_of(r, Q43) for r in a],
        [values_of(c, Q43) for c in b.T],
        values_of(bias, Q43),
    )
    for product, spec in (("tf32", TF32), ("exact", None)):
        with accumulate("format", product=product, accumulator="e5m4", order=order):
            plain, biased = a @ b, F.linear(a, b.T, bias)
        for i in range(3):
            for j in range(5):
                terms = [
                    Fraction(x) * Fraction(y) for x, y in zip(rows[i], columns[j], strict=True)
                ]
                terms = [t if spec is None else round_value(spec, t) for t in terms]
                assert Fraction(plain[i, j].item()) == round_value(Q43, total(order, terms, E5M4))
                assert Fraction(biased[i, j].item()) == round_value(
                    Q43, total(order, terms, E5M4, start[j])
                )


def test_orders_of_sums():
    x = some("q43", 9, 21, spread=0.5).clamp(-4, 4)
    for order in ORDERS:
        with accumulate("format", accumulator="e5m4", order=order):
            got = x.sum(1)
        assert got.tolist() == [
            float(round_value(Q43, total(order, values_of(row, Q43), E5M4))) for row in x
        ]


def test_lanes_of_one_and_of_running_fused_sums():
    a, b = some("q43", 4, 30), some("q43", 30, 6, seed=1)
    for options in ({}, {"fused": True}, {"kahan": True}):
        with accumulate("format", accumulator="e5m4", **options):
            want = a @ b
        with accumulate("format", accumulator="e5m4", order="lanes(1)", **options):
            assert torch.equal((a @ b).view(torch.uint8), want.view(torch.uint8))


def test_holes_have_no_part_in_a_tree():
    """Each output of a strided transposed convolution has one or two terms."""
    x, w = some("q43", 1, 1, 9).clamp(-4, 4), some("q43", 1, 1, 4, seed=1).clamp(-4, 4)
    with accumulate("format", accumulator="e5m4"):
        want = F.conv_transpose1d(x, w, stride=2)
    for order in ORDERS:
        with accumulate("format", accumulator="e5m4", order=order):
            # A sum of two terms is the same in every order.
            assert torch.equal(F.conv_transpose1d(x, w, stride=2), want)


def test_holes_are_no_terms_of_exact_products():
    """A sum of one term, or of two, is rounded once; no term is rounded before."""
    x, w = some("q43", 1, 1, 40).clamp(-4, 4), some("q43", 1, 1, 4, seed=1).clamp(-4, 4)
    inputs, weights = values_of(x.flatten(), Q43), values_of(w.flatten(), Q43)
    for order in ("pairwise", "tree"):
        with accumulate("format", product="exact", accumulator="e5m2", order=order):
            got = F.conv_transpose1d(x, w, stride=2).flatten().tolist()
        terms = [
            [inputs[i] * weights[t - 2 * i] for i in range(40) if 0 <= t - 2 * i < 4]
            for t in range(82)
        ]
        assert got == [
            float(round_value(Q43, total(order, products, binary(5, 2)))) for products in terms
        ]


def test_a_tree_of_negative_zeros_is_one():
    """A tree starts with its first terms and not with 0."""
    a, b = torch.full((2, 4), -0.0).to(torch.q43), torch.ones(4, 3).to(torch.q43)
    for order, sign in (("pairwise", True), ("tree", True), ("lanes(2)", False)):
        with accumulate("format", order=order):
            assert (a @ b).signbit().eq(sign).all(), order


def test_a_bias_is_rounded_to_the_accumulator():
    bias, a, b = (
        some("q43", 60, seed=2),
        some("q43", 1, 3, spread=0.5).clamp(-4, 4),
        some("q43", 3, 60, seed=1, spread=0.5).clamp(-4, 4),
    )
    spec, start = binary(5, 1), values_of(bias, Q43)
    row, columns = values_of(a[0], Q43), [values_of(c, Q43) for c in b.T]
    for order in ORDERS:
        with accumulate("format", product="exact", accumulator="e5m1", order=order):
            got, nothing = torch.addmm(bias, a, b), torch.addmm(bias, a[:, :0], b[:0])
        terms = [[x * y for x, y in zip(row, column, strict=True)] for column in columns]
        assert got[0].tolist() == [
            float(round_value(Q43, total(order, t, spec, s)))
            for t, s in zip(terms, start, strict=True)
        ], order
        assert nothing[0].tolist() == [
            float(round_value(Q43, round_value(spec, s))) for s in start
        ], order


def test_lanes_draw_words_of_their_own():
    """Two lanes have equal terms, and each ends half way between two numbers. If both drew the same
    words, their sum would never fall between."""
    x = torch.tensor([1, 1, 0.0625, 0.0625]).to(torch.q43).expand(500, 4)
    with accumulate("format", accumulator="fixed8_3", rounding="stochastic", order="lanes(2)"):
        sums = torch_dtypes.matmul(x, torch.ones(4, 1, dtype=torch.q43), out="fp32")
    assert sorted(set(sums.flatten().tolist())) == [2.0, 2.125, 2.25]


def test_stochastic_trees_draw_for_each_sum():
    ones = torch.ones(2000, 32, dtype=torch.q52)
    torch.manual_seed(0)
    with accumulate("format", rounding="stochastic", order="lanes(2)"):
        sums = ones.sum(1).double()
    assert sums.mean().item() == pytest.approx(32, rel=0.02) and len(sums.unique()) > 2


@pytest.mark.parametrize("chunk", [1, 4, 7])
def test_rounded_sums_of_chunks(chunk):
    x = some("q43", 6, 23, spread=0.5).clamp(-4, 4)
    for start in (None, some("q43", 6, seed=3).clamp(-4, 4)):
        with accumulate(f"chunked({chunk})", accumulator="e5m4", outer="e4m3"):
            got = (
                x.sum(1) if start is None else torch.addmv(start, x, torch.ones(23, dtype=x.dtype))
            )
        for i, row in enumerate(x):
            add = lambda spec, s, t: round_value(spec, Fraction(s) + Fraction(t))  # noqa: E731
            outer = Fraction(0) if start is None else values_of(start[i : i + 1], Q43)[0]
            terms = values_of(row, Q43)
            for at in range(0, 23, chunk):
                inner = Fraction(0)
                for term in terms[at : at + chunk]:
                    inner = add(E5M4, inner, term)
                outer = add(Q43, outer, inner)
            assert Fraction(got[i].item()) == round_value(Q43, outer)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ("format(accumulator=e6m9)", 1024),
        ("chunked(8, accumulator=e6m9, outer=e6m9)", 8192),
        ("chunked(32, accumulator=e6m9, outer=e6m9)", 32768),
        ("chunked(64, accumulator=e6m9, outer=e6m9)", 65536),
        ("format(accumulator=e6m9, order=pairwise)", 65536),
        ("format(accumulator=e6m9, order=lanes(64))", 65536),
        ("block(64, register=e6m9, extra_bits=10)", 65536),
    ],
)
def test_swamping(policy, want):
    """Wang et al., arXiv 1812.08011, figure 3: 65,536 ones."""
    ones = torch.ones(65536).to(torch_dtypes.dtype("e6m9"))
    with accumulate(policy):
        assert ones.sum().item() == want


def test_swamping_stochastically():
    torch.manual_seed(0)
    with accumulate("format(accumulator=e6m9, rounding=stochastic)"):
        assert torch.ones(65536).to(torch_dtypes.dtype("e6m9")).sum().item() == pytest.approx(
            66_000, rel=0.05
        )


def test_accumulators_that_wrap():
    a, b = some("q43", 5, 40), some("q43", 40, 6, seed=1)
    spec = Fixed(4, 10, overflow="wrap")
    for options in ({"product": "exact"}, {"fused": True}, {"product": "e5m10"}):
        with accumulate("format", accumulator="fixed4_10_wrap", **options):
            got = torch_dtypes.matmul(a, b, out="fixed4_10_wrap")
        for i in range(5):
            for j in range(6):
                acc = Fraction(0)
                for x, y in zip(values_of(a[i], Q43), values_of(b[:, j], Q43), strict=True):
                    term = Fraction(x) * Fraction(y)
                    acc = round_value(
                        spec,
                        acc
                        + (
                            round_value(binary(5, 10), term)
                            if "product" in options and options["product"] != "exact"
                            else term
                        ),
                    )
                assert Fraction(got[i, j].item()) == acc
    with accumulate("format", accumulator="fixed16_8_wrap", product="exact"):
        x = torch.full((1, 4), 2.0).to(torch_dtypes.dtype("e8m7"))
        with pytest.raises(
            RuntimeError,
            match=r"expected a wrapping format whose sums float64 has to the last place .* but got "
            r"fixed16_8_wrap",
        ):
            x @ x.T


@pytest.mark.parametrize(
    ("message", "policy", "options"),
    [
        (
            "expected order as 'sequential', 'pairwise', 'tree' or 'lanes",
            "format",
            {"order": "random"},
        ),
        ("expected order .* but got 'lanes\\(0\\)'", "format", {"order": "lanes(0)"}),
        (
            "expected order with the policy 'format' only, but got 'chunked'",
            "chunked(4)",
            {"order": "tree"},
        ),
        (
            "expected fused and kahan with order 'sequential' or 'lanes",
            "format",
            {"order": "tree", "fused": True},
        ),
        (
            "expected outer with the policy 'chunked' only, but got 'format'",
            "format",
            {"outer": "q43"},
        ),
        (
            "expected fused=True without kahan= and product=",
            "format",
            {"product": "exact", "fused": True},
        ),
    ],
)
def test_not_an_order(message, policy, options):
    with pytest.raises(ValueError, match=message):
        Accumulation(policy, **options)


def test_what_an_order_cannot_do():
    x = torch.ones(3, 3, dtype=torch.q43)
    with (
        accumulate("format", order="tree"),
        pytest.raises(RuntimeError, match="cumsum: expected an accumulation policy of order"),
    ):
        x.cumsum(0)
    wide = torch.ones(2, 2, dtype=torch.posit32es2)
    with (
        accumulate("format", product="exact"),
        pytest.raises(RuntimeError, match="whose products float64 has exactly"),
    ):
        wide @ wide


def test_orders_in_one_text():
    for text in (
        "format(product=exact, accumulator=e5m7, order=lanes(8))",
        "chunked(chunk=32, accumulator=e5m7, outer=tf32)",
        "format(order=tree)",
    ):
        assert str(Accumulation(text)) == text
        with accumulate(text):
            assert torch_dtypes.accumulation_of("q43") == Accumulation(text)


def test_each_bit_is_worth_four_times_the_length():
    """Sakr et al., arXiv 1901.06588: the share of a sum's variance that swamping removes."""
    torch.manual_seed(0)

    def lost(bits, length):
        terms = torch.randn(length, 256).to(torch_dtypes.dtype("e8m10"))
        with accumulate("format", accumulator=f"e8m{bits}"):
            rounded_sums = terms.sum(0).double()
        with accumulate("exact"):
            exact = terms.sum(0).double()
        return ((rounded_sums - exact).square().mean() / exact.square().mean()).sqrt().item()

    errors = [lost(2, 16), lost(3, 64), lost(4, 256), lost(5, 1024)]
    assert max(errors) < 1.35 * min(errors) and lost(2, 1024) > 4 * errors[3]
