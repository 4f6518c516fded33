"""Sums of several products at once, as in tensor cores, bit for bit against exact rationals from
the published descriptions."""

import math

import numpy as np
import pytest
import torch
from block_sums import FLOAT32, HALF, KINDS, assert_same, check, fractions, operands
from oracle import binary
from oracle_adders import CHIPS, Adder, Register, nvidia
from oracle_stochastic import encode as stochastic
from oracle_stochastic import random_words
from rationals import Fraction
from representatives import thin_out

import torch_dtypes
from torch_dtypes import accumulate, matmul

chips = pytest.mark.parametrize(
    ("chip", "name", "adder"), CHIPS, ids=[f"{chip}-{name}" for chip, name, _ in CHIPS]
)


@pytest.mark.parametrize(
    ("chip", "name", "adder", "kind"),
    thin_out(
        [
            pytest.param(*chip, kind, id=f"{kind}-{chip[0]}-{chip[1]}")
            for chip in CHIPS
            for kind in KINDS
        ],
        3,
    ),
)
def test_chips(chip, name, adder, kind):
    a, b = operands(name, 3, 75, kind=kind), operands(name, 75, 18, seed=1, kind=kind)
    start = operands(FLOAT32, 3, 18, seed=2, kind="near")
    with accumulate(chip):
        check(matmul(a, b, out=FLOAT32), adder, a, b)
        check(matmul(a, b, out=FLOAT32, start=start), adder, a, b, start)
        narrow = a @ b  # the register's number is rounded once
        assert_same(narrow, matmul(a, b, out=FLOAT32).to(a.dtype))


GENERAL = {
    "register e8m10, to nearest": (
        {"terms": 4, "extra_bits": 3, "register": "tf32", "rounding": "nearest_even"},
        Adder(4, 13, Register(10, nearest=True), (-14, -14)),
    ),
    "one product at a time": ({"terms": 1, "extra_bits": 0}, nvidia(1, 23, -14, min_exponent=None)),
    "a register that overflows": (
        {"terms": 8, "register": "e5m10"},
        Adder(8, 10, Register(10, -14, 15), (-14, -14)),
    ),
    "subnormal registers": (
        {"terms": 8, "register": "e4m9", "extra_bits": 1},
        Adder(8, 10, Register(9, -6, 7), (-14, -14)),
    ),
    "a least exponent": (
        {"terms": 8, "extra_bits": 1, "min_exponent": -3},
        nvidia(8, 24, -14, min_exponent=-3),
    ),
    "the register behind": (
        {"terms": 4, "extra_bits": 2, "late": 5},
        Adder(4, 25, Register(), (-14, -14), None, 28),
    ),
    "interleaved": (
        {"terms": 6, "extra_bits": 1, "late": 4, "interleave": 3, "rounding": "nearest_even"},
        Adder(6, 24, Register(nearest=True), (-14, -14), None, 27, 3),
    ),
    "interleaved, one bit more": (
        {"terms": 6, "extra_bits": 1, "late": 1, "interleave": 3, "rounding": "nearest_even"},
        Adder(6, 24, Register(nearest=True), (-14, -14), None, 24, 3),
    ),
    "interleaved with the register": (
        {"terms": 6, "extra_bits": 1, "interleave": 3, "register": "tf32"},
        Adder(6, 11, Register(10), (-14, -14), groups=3),
    ),
    "one by one": (
        {"terms": 4, "extra_bits": 1, "register": "tf32", "product_limit": True},
        Adder(4, 11, Register(10), (-14, -14)),
    ),
    "many bits": ({"terms": 5, "extra_bits": 29}, nvidia(5, 52, -14, min_exponent=None)),
    "a least exponent, one by one": (
        {"terms": 8, "extra_bits": 1, "min_exponent": -3, "product_limit": True},
        Adder(8, 24, Register(), (-14, -14), -3, product_limit=True),
    ),
    "a least exponent, interleaved": (
        {"terms": 6, "extra_bits": 1, "late": 4, "interleave": 3, "min_exponent": -3},
        Adder(6, 24, Register(), (-14, -14), -3, 27, 3),
    ),
    "a least exponent, interleaved with the register": (
        {"terms": 6, "extra_bits": 1, "interleave": 3, "register": "tf32", "min_exponent": -3},
        Adder(6, 11, Register(10), (-14, -14), -3, groups=3),
    ),
    "a least exponent, the register behind": (
        {"terms": 4, "extra_bits": 1, "late": 2, "register": "tf32", "min_exponent": -3},
        Adder(4, 11, Register(10), (-14, -14), -3, 12),
    ),
    "the register behind, one bit more": (
        {"terms": 4, "extra_bits": 1, "late": 1, "register": "tf32", "rounding": "nearest_even"},
        Adder(4, 11, Register(10, nearest=True), (-14, -14), None, 11),
    ),
}


@pytest.mark.parametrize("which", GENERAL)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters(which, kind):
    options, adder = GENERAL[which]
    a, b = operands("e5m10", 3, 29, kind=kind), operands("e5m10", 29, 17, seed=1, kind=kind)
    with accumulate("block", **options):
        check(matmul(a, b, out=FLOAT32), adder, a, b)


@pytest.mark.parametrize(
    "rounding", [name for name, _, draws in torch_dtypes._C.ROUNDING_MODES if not draws]
)
def test_every_mode_of_the_register(rounding):
    """In a register that loses nothing before, a block of one product is a fused multiply-add."""
    a, b = operands("e5m2", 5, 1, kind="far"), operands("e5m2", 1, 40, seed=1, kind="far")
    start = operands("e5m4", 5, 40, seed=2, kind="near")
    target = torch_dtypes.with_rounding("e5m4", rounding)
    with accumulate("block", terms=1, extra_bits=48, register="e5m4", rounding=rounding):
        got = matmul(a, b, out="e5m4", start=start)
    want = (a.double() * b.double() + start.double()).to(target).double()
    finite = want.isfinite() & got.double().isfinite()  # a register overflows in every mode
    assert torch.equal(got.double()[finite], want[finite]) and finite.sum() > 150


# Registers in which every number here is subnormal or nearly so: in lanes, and one by one.
SMALL = {
    "with the products": ({"extra_bits": 1}, {"bits": 10}),
    "with the products, to nearest": (
        {"extra_bits": 4, "rounding": "nearest_even"},
        {"bits": 13, "nearest": True},
    ),
    "behind them": ({"extra_bits": 1, "late": 3}, {"bits": 10, "late": 12}),
    "behind two groups": (
        {"extra_bits": 1, "late": 3, "interleave": 2, "rounding": "nearest_even"},
        {"bits": 10, "late": 12, "groups": 2, "nearest": True},
    ),
    "one by one": ({"extra_bits": 1, "product_limit": True}, {"bits": 10, "product_limit": True}),
    "behind three groups": (
        {"extra_bits": 1, "late": 3, "interleave": 3},
        {"bits": 10, "late": 12, "groups": 3},
    ),
}


@pytest.mark.parametrize("which", SMALL)
@pytest.mark.parametrize("least", [None, -7, -9])
def test_registers_below_their_smallest_exponent(which, least):
    """e4m9's smallest normal number is 2^-6. Products are 2^-10 to 2^-17, and registers about
    2^-8."""
    options, numbers = SMALL[which]
    numbers = dict(numbers)
    register = Register(9, -6, 7, nearest=numbers.pop("nearest", False))
    adder = Adder(terms=6, register=register, low=(-14, -14), min_exponent=least, **numbers)
    rng = np.random.default_rng(5)
    a = torch.from_numpy(
        np.ldexp(rng.uniform(1, 2, (4, 30)), -rng.integers(5, 9, (4, 30)))
        * rng.choice([-1, 1, 1], (4, 30))
    ).to(HALF)
    b = torch.from_numpy(np.ldexp(rng.uniform(1, 2, (30, 19)), -rng.integers(5, 9, (30, 19)))).to(
        HALF
    )
    start = torch.from_numpy(rng.uniform(-(2.0**-7), 2.0**-7, (4, 19))).to(
        torch_dtypes.dtype("e4m9")
    )
    with accumulate("block", terms=6, register="e4m9", min_exponent=least, **options):
        check(matmul(a, b, out=FLOAT32), adder, a, b)
        check(
            matmul(a, b, out=FLOAT32, start=start.to(torch_dtypes.dtype(FLOAT32))),
            adder,
            a,
            b,
            start,
        )


@pytest.mark.parametrize("groups", [2, 3])
def test_a_subnormal_register_behind_groups_counts_as_the_smallest_normal_number(groups):
    """-2^-15 beside products of 1/8 is aligned as 2^-6. So it is not left out, but cut downwards to
    -2^-13."""
    rng = np.random.default_rng(6)
    a = torch.from_numpy(rng.choice([-1, 1], (3, 6)) * rng.uniform(0.25, 0.5, (3, 6))).to(HALF)
    b = torch.from_numpy(rng.uniform(0.5, 1, (6, 40))).to(HALF)
    start = (-1.0 - torch.arange(120).view(3, 40) % 7).mul(2.0**-15).to(torch_dtypes.dtype("e4m9"))
    register = Register(9, -6, 7)
    with accumulate("block", terms=6, extra_bits=1, late=3, interleave=groups, register="e4m9"):
        got = matmul(a, b, out=FLOAT32, start=start.to(torch_dtypes.dtype(FLOAT32)))
    check(got, Adder(6, 10, register, (-14, -14), None, 12, groups), a, b, start)
    with accumulate("block", terms=6, extra_bits=1, late=3, interleave=groups, register="e4m9"):
        assert not torch.equal(got, matmul(a, b, out=FLOAT32))


@pytest.mark.parametrize(
    "options",
    [{}, {"late": 3}, {"late": 3, "interleave": 2}, {"product_limit": True}, {"rounding": "down"}],
)
def test_a_register_overflows_at_its_next_binade(options):
    """e5m10's largest number is 2^16 - 2^5. Sums of 2^16 to 2^17 are infinite with either sign, and
    stay so."""
    sign = torch.tensor([[1.0], [-1.0]])
    rows = torch.tensor([[128, 128, 128, 128, 0, 0, 0, 0], [128, 128, 127.9375, 128, 0, 0, 0, 1.0]])
    a = (rows.repeat(2, 1) * sign.repeat_interleave(2, 0)).to(HALF)
    b = (
        torch.tensor([128, 128, 128, 128, 1, 1, 1, -128.0])
        .to(HALF)
        .unsqueeze(1)
        .expand(8, 20)
        .contiguous()
    )
    with accumulate("block", terms=4, extra_bits=2, register="e5m10", **options):
        got = matmul(a, b, out=FLOAT32).double()[:, 0].tolist()
    # The sum is cut to the largest number, and one more product is added. Cut downwards it would be
    # -2^16.
    finite = 65504 - 128
    assert got == [
        math.inf,
        finite,
        -math.inf,
        -math.inf if options.get("rounding") == "down" else -finite,
    ]


# The result rounds the register again, or starts with more digits than the register holds.
@pytest.mark.parametrize("fraction_bits", [1, 3])
def test_words_of_stochastic_registers(fraction_bits):
    """Element i of n starts with word i, and each block takes a word n further on. The words of the
    results come after all of those."""
    a, b, start = (
        operands("q43", 3, 7),
        operands("q43", 7, 5, seed=1),
        operands(f"e5m{fraction_bits}_stochastic", 3, 5, seed=2),
    )
    register, result = binary(5, 2), binary(5, fraction_bits)
    torch.manual_seed(7)
    seed = torch_dtypes._C.next_seed() % 2**64
    words = random_words(seed, 0, 15 * 6)
    torch.manual_seed(7)
    with accumulate("block", terms=2, extra_bits=40, register="e5m2", rounding="stochastic"):
        got = matmul(a, b, out=start.dtype, start=start)

    def drawn(spec, x, word):
        return spec.decode(stochastic(spec, x, "stochastic", int(words[word])))

    for place in range(15):
        i, j = divmod(place, 5)
        products = [x * y for x, y in zip(fractions(a[i]), fractions(b[:, j]), strict=True)]
        value = drawn(register, fractions(start[i])[j], place)
        for block in range(4):
            value = drawn(
                register,
                Fraction(value) + sum(products[2 * block : 2 * block + 2]),
                place + 15 * (block + 1),
            )
        assert got[i, j].item() == drawn(result, Fraction(value), place + 15 * 5), (i, j)


def test_stochastic_registers_draw_for_each_block():
    a, b = torch.ones(400, 16).to(torch.q43), torch.ones(16, 20).to(torch.q43)
    with accumulate("block", terms=1, extra_bits=8, register="e5m2", rounding="stochastic"):
        torch.manual_seed(3)
        first = matmul(a, b, out=FLOAT32).double()
        torch.manual_seed(3)
        assert torch.equal(first, matmul(a, b, out=FLOAT32).double())
    # From 8 on, steps are 2.
    assert first.mean().item() == pytest.approx(16, abs=0.2) and len(first.unique()) > 2


def test_a_sum_that_is_cut_to_0_is_positive():
    a, b = torch.full((1, 3), -(2.0**-14)).to(HALF), torch.full((3, 20), 2.0**-14).to(HALF)
    for options in ({}, {"product_limit": True}):  # in lanes, and one by one
        with accumulate("block", terms=2, extra_bits=2, register="e4m9", **options):
            got = matmul(a, b, out=FLOAT32)
        assert (got == 0).all() and not got.signbit().any()


def test_products_at_the_end_of_the_register():
    """The last binade is finite. A product beyond it is infinite by itself, whatever would cancel
    it."""
    big = 2.0**64
    a = torch.tensor([[big, 0.0], [big, big], [big, big]]).to(torch_dtypes.dtype("e8m7"))
    b = torch.tensor([[1.5 * big / 2, big], [0.0, -big]]).to(torch_dtypes.dtype("e8m7"))
    with accumulate("amd-mi300x"):
        got = matmul(a, b, out=FLOAT32).double()
    assert (
        got[:2, 0].tolist() == [1.5 * 2.0**127] * 2
        and got[0, 1].item() == math.inf
        and got[1:, 1].isnan().all()
    )


def test_what_is_not_finite():
    inf = math.inf
    a = torch.tensor([[1, inf, 1, 0], [1, 1, inf, 1], [1, math.nan, 1, 1], [2, 3, 4, 5]]).to(HALF)
    b = torch.tensor([[1, 2, 1], [1, 1, 0], [1, -inf, 1], [1, 1, 1]]).to(HALF)
    # in lanes, and one by one
    for options in ({"terms": 2, "extra_bits": 2}, {"terms": 4, "align": "nearest_even"}):
        with accumulate("block", **options):
            got = matmul(a, b, out=FLOAT32).double()
        want = a.double() @ b.double()
        assert_same(got, want)


def test_lanes_agree_with_the_general_way():
    """product_limit=True forces the general way, although no product here is infinite. Formats,
    sizes and few columns choose different lanes."""
    for name in ("q43", "q52", "posit8es2", "posit8es0", "e8m7", "posit16es2", "tf32", "e2m1"):
        for m, k, n in ((3, 50, 40), (40, 7, 3), (1, 300, 1)):
            a, b = operands(name, m, k), operands(name, k, n, seed=1)
            with accumulate("block", terms=5, extra_bits=20 if n == 40 else 4, register="e8m8"):
                fast = matmul(a, b, out=FLOAT32)
            with accumulate(
                "block",
                terms=5,
                extra_bits=20 if n == 40 else 4,
                register="e8m8",
                product_limit=True,
            ):
                slow = matmul(a, b, out=FLOAT32)
            assert torch.equal(fast.view(torch.int32), slow.view(torch.int32)), (name, m, k, n)


@pytest.mark.parametrize("name", ["e5m11", "e5m12", "e5m25"])
def test_operands_whose_products_the_lanes_just_hold(name):
    """24 bits in float32's lanes, 26 and 52 in float64's. The part cut off a product is not rounded
    before."""
    a, b = operands(name, 4, 9), operands(name, 9, 40, seed=1)
    for extra_bits in (2, 3):
        with accumulate("block", terms=4, extra_bits=extra_bits):
            check(
                matmul(a, b, out=FLOAT32), Adder(4, 23 + extra_bits, Register(), (-14, -14)), a, b
            )


def test_a_start_below_every_product():
    """Beside products that are all 0 the start stays as it is. Beside the smallest product it is
    cut at that product's last place."""
    b = torch.ones(9, 20).to(torch.q43)
    a = torch.zeros(2, 9)
    a[1, 0] = 2.0**-9
    start = (torch.full((2, 20), 1.75) * 2.0 ** -torch.arange(20, 60, 2)).to(
        torch_dtypes.dtype(FLOAT32)
    )
    with accumulate("block", terms=4, extra_bits=1):
        got = matmul(a.to(torch.q43), b, out=FLOAT32, start=start)
    assert torch.equal(got[0].double(), start[0].double())
    check(got, Adder(4, 24, Register(), (-6, -6)), a, b, start)


@pytest.mark.parametrize("options", [{}, {"product_limit": True}])  # in lanes, and one by one
def test_each_operand_has_its_own_smallest_exponent(options):
    """Subnormal numbers are aligned with 2^-6 and 2^-14."""
    for names, low in ((("q43", "q52"), (-6, -14)), (("q52", "q43"), (-14, -6))):
        a, b = (
            operands(names[0], 4, 12, kind="subnormal"),
            operands(names[1], 12, 20, seed=1, kind="subnormal"),
        )
        with accumulate("block", terms=4, extra_bits=0, register="e8m3", **options):
            got = matmul(a, b, out=FLOAT32)
        check(got, Adder(4, 3, Register(3), low, product_limit=bool(options)), a, b)


def test_late_bits_that_two_registers_of_float64_do_not_hold():
    """The lanes would round the sum of kept and late bits: 2^10 - 2^-50 was 2^10."""
    a, b = (
        torch.tensor([[2.0**10, -(2.0**-50)]]).to(torch_dtypes.dtype("e8m7")),
        torch.ones(2, 1).to(torch_dtypes.dtype("e8m7")),
    )
    with accumulate("block", terms=1, extra_bits=0, late=31, rounding="toward_zero"):
        assert matmul(a, b, out="fp32").item() == 2.0**10 - 2.0**-14
