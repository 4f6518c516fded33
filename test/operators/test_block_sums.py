"""Sums of several products at once, as tensor cores make them: bit for bit against exact rationals from the published descriptions."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import binary
from oracle_adders import CHIPS, Adder, Register, block_sum, nvidia
from oracle_stochastic import encode as stochastic
from oracle_stochastic import random_words

import torch_dtypes
from torch_dtypes import Accumulation, accumulate, format_of, matmul

FLOAT32, HALF = "e8m23", torch_dtypes.dtype("e5m10")
chips = pytest.mark.parametrize(("chip", "name", "adder"), CHIPS, ids=[f"{chip}-{name}" for chip, name, _ in CHIPS])


def operands(name, *sizes, seed=0, kind="near"):
    """Values near 1, over all exponents, around the smallest normal number, and the largest beside the smallest, which cancel."""
    rng, fmt = np.random.default_rng([seed, *sizes]), format_of(torch_dtypes.dtype(name))
    low, high = max(fmt.min_exponent, -126), min(fmt.max_exponent, 126)
    if kind == "near":
        x = rng.standard_normal(sizes)
    elif kind == "far":
        x = np.ldexp(rng.uniform(1, 2, sizes), rng.integers(low - fmt.man_bits, high, sizes)) * rng.choice([-1, 1], sizes)
    elif kind == "subnormal":
        x = np.ldexp(rng.uniform(0, 2, sizes), low - rng.integers(0, 3, sizes)) * rng.choice([-1, 1], sizes)
    else:
        ends = [2.0**high, 2.0 ** (high - 1), 2.0 ** (low - fmt.man_bits), 2.0**low, 1.0]
        x = rng.choice([0.0, *ends, *(-e for e in ends)], sizes)
    return torch.from_numpy(x).to(torch_dtypes.dtype(name))


KINDS = ("near", "far", "subnormal", "ends")


def fractions(row):
    return [Fraction(x) if math.isfinite(x) else x for x in row.double().tolist()]


def same(got, want):
    want = float(want)
    return got == want or (math.isnan(got) and math.isnan(want))


def check(result, adder, a, b, start=None):
    """Every element of a product into float32's format."""
    for i in range(a.shape[0]):
        x = fractions(a[i])
        for j in range(b.shape[1]):
            begin = Fraction(0) if start is None else fractions(start[i])[j]
            want = block_sum(adder, list(zip(x, fractions(b[:, j]), strict=True)), begin)
            assert same(result[i, j].item(), want), (i, j, result[i, j].item(), float(want))


@chips
@pytest.mark.parametrize("kind", KINDS)
def test_chips(chip, name, adder, kind):
    a, b = operands(name, 3, 75, kind=kind), operands(name, 75, 18, seed=1, kind=kind)
    start = operands(FLOAT32, 3, 18, seed=2, kind="near")
    with accumulate(chip):
        check(matmul(a, b, out=FLOAT32), adder, a, b)
        check(matmul(a, b, out=FLOAT32, start=start), adder, a, b, start)
        narrow = a @ b  # the register's number, rounded once
        assert torch.equal(narrow.double().nan_to_num(), matmul(a, b, out=FLOAT32).to(a.dtype).double().nan_to_num())


GENERAL = {
    "register e8m10, to nearest": (
        {"terms": 4, "extra_bits": 3, "register": "tf32", "rounding": "nearest_even"}, Adder(4, 13, Register(10, nearest=True), (-14, -14))),
    "one product at a time": ({"terms": 1, "extra_bits": 0}, nvidia(1, 23, -14, min_exponent=None)),
    "a register that overflows": ({"terms": 8, "register": "e5m10"}, Adder(8, 10, Register(10, -14, 15), (-14, -14))),
    "subnormal registers": ({"terms": 8, "register": "e4m9", "extra_bits": 1}, Adder(8, 10, Register(9, -6, 7), (-14, -14))),
    "a least exponent": ({"terms": 8, "extra_bits": 1, "min_exponent": -3}, nvidia(8, 24, -14, min_exponent=-3)),
    "the register behind": ({"terms": 4, "extra_bits": 2, "late": 5}, Adder(4, 25, Register(), (-14, -14), None, 28)),
    "interleaved": ({"terms": 6, "extra_bits": 1, "late": 4, "interleave": 3, "rounding": "nearest_even"},
                    Adder(6, 24, Register(nearest=True), (-14, -14), None, 27, 3)),
    "interleaved, one bit more": ({"terms": 6, "extra_bits": 1, "late": 1, "interleave": 3, "rounding": "nearest_even"},
                                  Adder(6, 24, Register(nearest=True), (-14, -14), None, 24, 3)),
    "interleaved with the register": ({"terms": 6, "extra_bits": 1, "interleave": 3, "register": "tf32"},
                                      Adder(6, 11, Register(10), (-14, -14), groups=3)),
    "one by one": ({"terms": 4, "extra_bits": 1, "register": "tf32", "product_limit": True}, Adder(4, 11, Register(10), (-14, -14))),
    "many bits": ({"terms": 5, "extra_bits": 29}, nvidia(5, 52, -14, min_exponent=None)),
    "a least exponent, one by one": (
        {"terms": 8, "extra_bits": 1, "min_exponent": -3, "product_limit": True}, Adder(8, 24, Register(), (-14, -14), -3, product_limit=True)),
    "a least exponent, interleaved": (
        {"terms": 6, "extra_bits": 1, "late": 4, "interleave": 3, "min_exponent": -3}, Adder(6, 24, Register(), (-14, -14), -3, 27, 3)),
    "a least exponent, interleaved with the register": (
        {"terms": 6, "extra_bits": 1, "interleave": 3, "register": "tf32", "min_exponent": -3}, Adder(6, 11, Register(10), (-14, -14), -3, groups=3)),
    "a least exponent, the register behind": (
        {"terms": 4, "extra_bits": 1, "late": 2, "register": "tf32", "min_exponent": -3}, Adder(4, 11, Register(10), (-14, -14), -3, 12)),
    "the register behind, one bit more": (
        {"terms": 4, "extra_bits": 1, "late": 1, "register": "tf32", "rounding": "nearest_even"},
        Adder(4, 11, Register(10, nearest=True), (-14, -14), None, 11)),
}  # fmt: skip


@pytest.mark.parametrize("which", GENERAL)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters(which, kind):
    options, adder = GENERAL[which]
    a, b = operands("e5m10", 3, 29, kind=kind), operands("e5m10", 29, 17, seed=1, kind=kind)
    with accumulate("block", **options):
        check(matmul(a, b, out=FLOAT32), adder, a, b)


@pytest.mark.parametrize("rounding", [name for name, _, draws in torch_dtypes._C.ROUNDING_MODES if not draws])
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


SMALL = {  # registers of which every number here is subnormal or next to that: in lanes, and one by one
    "with the products": ({"extra_bits": 1}, {"bits": 10}),
    "with the products, to nearest": ({"extra_bits": 4, "rounding": "nearest_even"}, {"bits": 13, "nearest": True}),
    "behind them": ({"extra_bits": 1, "late": 3}, {"bits": 10, "late": 12}),
    "behind two groups": ({"extra_bits": 1, "late": 3, "interleave": 2, "rounding": "nearest_even"},
                          {"bits": 10, "late": 12, "groups": 2, "nearest": True}),
    "one by one": ({"extra_bits": 1, "product_limit": True}, {"bits": 10, "product_limit": True}),
    "behind three groups": ({"extra_bits": 1, "late": 3, "interleave": 3}, {"bits": 10, "late": 12, "groups": 3}),
}  # fmt: skip


@pytest.mark.parametrize("which", SMALL)
@pytest.mark.parametrize("least", [None, -7, -9])
def test_registers_below_their_smallest_exponent(which, least):
    """Of e4m9, whose smallest normal number is 2^-6: products of 2^-10 to 2^-17 beside registers of some 2^-8."""
    options, numbers = SMALL[which]
    numbers = dict(numbers)
    register = Register(9, -6, 7, nearest=numbers.pop("nearest", False))
    adder = Adder(terms=6, register=register, low=(-14, -14), min_exponent=least, **numbers)
    rng = np.random.default_rng(5)
    a = torch.from_numpy(np.ldexp(rng.uniform(1, 2, (4, 30)), -rng.integers(5, 9, (4, 30))) * rng.choice([-1, 1, 1], (4, 30))).to(HALF)
    b = torch.from_numpy(np.ldexp(rng.uniform(1, 2, (30, 19)), -rng.integers(5, 9, (30, 19)))).to(HALF)
    start = torch.from_numpy(rng.uniform(-(2.0**-7), 2.0**-7, (4, 19))).to(torch_dtypes.dtype("e4m9"))
    with accumulate("block", terms=6, register="e4m9", min_exponent=least, **options):
        check(matmul(a, b, out=FLOAT32), adder, a, b)
        check(matmul(a, b, out=FLOAT32, start=start.to(torch_dtypes.dtype(FLOAT32))), adder, a, b, start)


@pytest.mark.parametrize("groups", [2, 3])
def test_a_subnormal_register_behind_groups_counts_as_the_smallest_normal_number(groups):
    """-2^-15 beside products of 1/8 is no further below them than 2^-6, so that it is not left out, but cut downwards, to -2^-13."""
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


@pytest.mark.parametrize("options", [{}, {"late": 3}, {"late": 3, "interleave": 2}, {"product_limit": True}, {"rounding": "down"}])
def test_a_register_overflows_at_its_next_binade(options):
    """2^16 - 2^5 is e5m10's largest number; sums of 2^16 to 2^17 are infinite, of either sign, and stay so."""
    sign = torch.tensor([[1.0], [-1.0]])
    rows = torch.tensor([[128, 128, 128, 128, 0, 0, 0, 0], [128, 128, 127.9375, 128, 0, 0, 0, 1.0]])
    a = (rows.repeat(2, 1) * sign.repeat_interleave(2, 0)).to(HALF)
    b = torch.tensor([128, 128, 128, 128, 1, 1, 1, -128.0]).to(HALF).unsqueeze(1).expand(8, 20).contiguous()
    with accumulate("block", terms=4, extra_bits=2, register="e5m10", **options):
        got = matmul(a, b, out=FLOAT32).double()[:, 0].tolist()
    finite = 65504 - 128  # what is cut to the largest number, and one product more; downwards it would be -2^16
    assert got == [math.inf, finite, -math.inf, -math.inf if options.get("rounding") == "down" else -finite]


@pytest.mark.parametrize("fraction_bits", [1, 3])  # of the result, which rounds the register again, or begins with more than that holds
def test_words_of_stochastic_registers(fraction_bits):
    """Element i of n begins with word i, and each block takes word n further on; the result's own come behind all of those."""
    a, b, start = operands("q43", 3, 7), operands("q43", 7, 5, seed=1), operands(f"e5m{fraction_bits}_stochastic", 3, 5, seed=2)
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
            value = drawn(register, Fraction(value) + sum(products[2 * block : 2 * block + 2]), place + 15 * (block + 1))
        assert got[i, j].item() == drawn(result, Fraction(value), place + 15 * 5), (i, j)


def test_stochastic_registers_draw_for_each_block():
    a, b = torch.ones(400, 16).to(torch.q43), torch.ones(16, 20).to(torch.q43)
    with accumulate("block", terms=1, extra_bits=8, register="e5m2", rounding="stochastic"):
        torch.manual_seed(3)
        first = matmul(a, b, out=FLOAT32).double()
        torch.manual_seed(3)
        assert torch.equal(first, matmul(a, b, out=FLOAT32).double())
    assert first.mean().item() == pytest.approx(16, abs=0.2) and len(first.unique()) > 2  # from 8 on, steps of 2


def test_a_sum_that_is_cut_to_0_is_positive():
    a, b = torch.full((1, 3), -(2.0**-14)).to(HALF), torch.full((3, 20), 2.0**-14).to(HALF)
    for options in ({}, {"product_limit": True}):  # in lanes, and one by one
        with accumulate("block", terms=2, extra_bits=2, register="e4m9", **options):
            got = matmul(a, b, out=FLOAT32)
        assert (got == 0).all() and not got.signbit().any()


def test_products_at_the_end_of_the_register():
    """The last binade is finite; a product beyond it is infinite by itself, whatever would cancel it."""
    big = 2.0**64
    a = torch.tensor([[big, 0.0], [big, big], [big, big]]).to(torch_dtypes.dtype("e8m7"))
    b = torch.tensor([[1.5 * big / 2, big], [0.0, -big]]).to(torch_dtypes.dtype("e8m7"))
    with accumulate("amd-mi300x"):
        got = matmul(a, b, out=FLOAT32).double()
    assert got[:2, 0].tolist() == [1.5 * 2.0**127] * 2 and got[0, 1].item() == math.inf and got[1:, 1].isnan().all()


def test_what_is_not_finite():
    inf = math.inf
    a = torch.tensor([[1, inf, 1, 0], [1, 1, inf, 1], [1, math.nan, 1, 1], [2, 3, 4, 5]]).to(HALF)
    b = torch.tensor([[1, 2, 1], [1, 1, 0], [1, -inf, 1], [1, 1, 1]]).to(HALF)
    for options in ({"terms": 2, "extra_bits": 2}, {"terms": 4, "align": "nearest_even"}):  # in lanes, and one by one
        with accumulate("block", **options):
            got = matmul(a, b, out=FLOAT32).double()
        want = a.double() @ b.double()
        assert torch.equal(got.nan_to_num(7), want.nan_to_num(7)) and torch.equal(got.isnan(), want.isnan())


def test_lanes_agree_with_the_general_way():
    """Infinite products, which there are none of, ask for the general way; formats, sizes and few columns take others."""
    for name in ("q43", "q52", "posit8es2", "posit8es0", "e8m7", "posit16es2", "tf32", "e2m1"):
        for m, k, n in ((3, 50, 40), (40, 7, 3), (1, 300, 1)):
            a, b = operands(name, m, k), operands(name, k, n, seed=1)
            with accumulate("block", terms=5, extra_bits=20 if n == 40 else 4, register="e8m8"):
                fast = matmul(a, b, out=FLOAT32)
            with accumulate("block", terms=5, extra_bits=20 if n == 40 else 4, register="e8m8", product_limit=True):
                slow = matmul(a, b, out=FLOAT32)
            assert torch.equal(fast.view(torch.int32), slow.view(torch.int32)), (name, m, k, n)


@pytest.mark.parametrize("name", ["e5m11", "e5m12", "e5m25"])
def test_operands_whose_products_the_lanes_just_hold(name):
    """24 bits in float32's, 26 and 52 in float64's; what is cut off of a product is not rounded before."""
    a, b = operands(name, 4, 9), operands(name, 9, 40, seed=1)
    for extra_bits in (2, 3):
        with accumulate("block", terms=4, extra_bits=extra_bits):
            check(matmul(a, b, out=FLOAT32), Adder(4, 23 + extra_bits, Register(), (-14, -14)), a, b)


def test_a_start_below_every_product():
    """Beside products that are all 0 it stays as it is; beside the smallest one it is cut at that one's last place."""
    b = torch.ones(9, 20).to(torch.q43)
    a = torch.zeros(2, 9)
    a[1, 0] = 2.0**-9
    start = (torch.full((2, 20), 1.75) * 2.0 ** -torch.arange(20, 60, 2)).to(torch_dtypes.dtype(FLOAT32))
    with accumulate("block", terms=4, extra_bits=1):
        got = matmul(a.to(torch.q43), b, out=FLOAT32, start=start)
    assert torch.equal(got[0].double(), start[0].double())
    check(got, Adder(4, 24, Register(), (-6, -6)), a, b, start)


@pytest.mark.parametrize("options", [{}, {"product_limit": True}])  # in lanes, and one by one
def test_each_operand_has_its_own_smallest_exponent(options):
    """2^-6 and 2^-14, with which subnormal numbers are aligned."""
    for names, low in ((("q43", "q52"), (-6, -14)), (("q52", "q43"), (-14, -6))):
        a, b = operands(names[0], 4, 12, kind="subnormal"), operands(names[1], 12, 20, seed=1, kind="subnormal")
        with accumulate("block", terms=4, extra_bits=0, register="e8m3", **options):
            got = matmul(a, b, out=FLOAT32)
        check(got, Adder(4, 3, Register(3), low, product_limit=bool(options)), a, b)


# ---- operators ----


POLICY = Accumulation("block", terms=4, extra_bits=1, register="e5m7")


def test_operators_follow():
    x, w, bias = operands("q43", 5, 13), operands("q43", 6, 13, seed=1), operands("q43", 6, seed=2)
    with accumulate(POLICY):
        each = torch.stack([torch.stack([x[i] @ w[j] for j in range(6)]) for i in range(5)])
        for got in (x @ w.T, F.linear(x, w), torch.einsum("ik,jk->ij", x, w), torch.bmm(x[None], w.T[None])[0], torch.stack([w @ r for r in x])):
            assert torch.equal(got.view(torch.uint8), each.view(torch.uint8))
        assert torch.equal(x.sum(1), x @ torch.ones(13, dtype=x.dtype))
        assert torch.equal(x.cumsum(1)[:, -1], x.sum(1)) and torch.equal(x.cumsum(1)[:, 4], x[:, :5].sum(1))
        with_bias = F.linear(x, w, bias)
    with accumulate("machine"):
        assert not torch.equal(x @ w.T, each)
    adder = Adder(4, 8, Register(7, -14, 15), (-6, -6))
    for i in range(5):
        for j in range(6):
            want = block_sum(adder, list(zip(fractions(x[i]), fractions(w[j]), strict=True)), fractions(bias)[j])
            assert with_bias[i, j].item() == torch.tensor(float(want), dtype=torch.float64).to(torch.q43).item()


def test_convolutions_and_gradients_follow():
    x, w = operands("q43", 2, 3, 6, 6), operands("q43", 4, 3, 3, 3, seed=1)
    x.requires_grad_()
    w.requires_grad_()
    with accumulate(POLICY):
        y = F.conv2d(x, w, padding=1)
        columns = F.unfold(F.pad(x.detach().float(), (1, 1, 1, 1)), 3).to(torch.q43)  # [2, 27, 36]
        assert torch.equal(y.detach().reshape(2, 4, 36), w.detach().reshape(4, 27) @ columns)
        g = operands("q43", 2, 4, 6, 6, seed=3)
        y.backward(g)
        rows = g.transpose(0, 1).reshape(4, -1)
        want = rows @ columns.transpose(0, 1).reshape(27, -1).T
        assert torch.equal(w.grad.reshape(4, 27), want)
        # The input's gradient: (output channel, position), what is not there in its place as 0.
        spread = F.unfold(F.pad(g.float(), (1, 1, 1, 1)), 3).to(torch.q43)  # [2, 36, 36]
        turned = w.detach().flip(2, 3).transpose(0, 1).reshape(3, 36)
        assert torch.equal(x.grad.reshape(2, 3, 36), turned @ spread)


def test_holes_meet_no_infinity():
    w = torch.full((1, 1, 3), math.inf).to(torch.q43)
    x = torch.ones(1, 1, 2, dtype=torch.q43)
    with accumulate("block", terms=2):
        y = F.conv_transpose1d(x, w, stride=3)
    assert y.double().flatten().tolist() == [math.inf] * 6


def test_a_layer_trains():
    layer = torch.nn.Linear(32, 8).to(HALF)
    x = operands("e5m10", 4, 32)
    with accumulate("nvidia-a100"):
        layer(x).square().mean().backward()
    assert layer.weight.grad.isfinite().all() and layer.weight.grad.abs().sum() > 0


def test_layers_that_quantize_rounds():
    x = operands("q43", 3, 40).float()
    for policy, native in (("block(terms=4, register=e5m4)", False), ("format(accumulator=e5m4, order=tree)", False), ("nvidia-h100", True)):
        layer = torch.nn.Linear(40, 5, bias=False)
        places = ("weight", "activation", "output", "error", "grad", "bias") if native else ("weight", "activation")
        torch_dtypes.quantize_(layer, {torch.nn.Linear: {**dict.fromkeys(places, "q43"), "accumulate": policy}})
        w = layer.weight.detach().to(torch.q43)
        with accumulate(policy):
            want = matmul(x.to(torch.q43), w.T, out=torch.q43 if native else FLOAT32).float()
        if not policy.startswith("format"):  # whose products are rounded to q43, not to the result's dtype
            assert torch.equal(layer(x).float(), want)
    with pytest.raises(ValueError, match="expected a layer whose places all have one dtype for the policy 'nvidia-h100'"):
        torch_dtypes.quantize_(torch.nn.Linear(4, 4), {torch.nn.Linear: {"weight": "q43", "activation": "q43", "accumulate": "nvidia-h100"}})


# ---- errors ----


def test_operands_that_a_chip_has_not():
    for name, chip in (("posit8es2", "nvidia-h100"), ("e4m3fn", "nvidia-a100"), ("e5m5", "amd-mi300x"), ("fixed4_3", "nvidia-v100")):
        x = torch.ones(2, 2).to(torch_dtypes.dtype(name))
        for call in (lambda x=x: x @ x, lambda x=x: x.sum(), lambda x=x: x.cumsum(0), lambda x=x: x[:0] @ x):
            with accumulate(chip), pytest.raises(RuntimeError, match=f"expected operands of formats that {chip} multiplies .*, but got {name}"):
                call()
    a, b = torch.ones(2, 2).to(HALF), torch.ones(2, 2).to(torch.q43)
    with accumulate("nvidia-h100"), pytest.raises(RuntimeError, match="but got e5m10 and q43"):
        matmul(a, b, out=FLOAT32)


@pytest.mark.parametrize(("message", "policy", "options"), [
    ("expected terms=, the number of products", "block", {}),
    ("expected terms from 1 to", "block", {"terms": 0}),
    ("expected terms from 1 to .* but got True", "block", {"terms": True}),
    ("expected extra_bits from 0 to 52, but got -1", "block", {"terms": 4, "extra_bits": -1}),
    ("expected a block whose sum has 62 bits", "block", {"terms": 4, "extra_bits": 30}),
    ("expected a block whose sum has 62 bits", "block", {"terms": 2**20, "extra_bits": 20}),
    ("expected a float as the register", "block", {"terms": 4, "register": "posit16es2"}),
    ("expected a float as the register", "block", {"terms": 4, "register": "fixed8_8"}),
    ("expected a mode without random words as align", "block", {"terms": 4, "align": "stochastic"}),
    ("expected a rounding mode", "block", {"terms": 4, "rounding": "sideways"}),
    ("expected interleave of at most terms=2, but got 3", "block", {"terms": 2, "interleave": 3}),
    ("expected late, .* at least extra_bits=3, but got 2", "block", {"terms": 2, "extra_bits": 3, "late": 2}),
    ("expected min_exponent from -2000", "block", {"terms": 2, "min_exponent": -3000}),
    ("expected accumulator with the policies 'format' and 'chunked' only, but got 'block'", "block", {"terms": 2, "accumulator": "q43"}),
    ("expected terms with the policy 'block' only, but got 'nvidia-h100'", "nvidia-h100", {"terms": 2}),
    ("expected terms, align with the policy 'block' only, but got 'format'", "format", {"terms": 2, "align": "down"}),
    ("expected terms as an integer", "block(terms=many)", {}),
    ("once, but got it in", "block(4, register=tf32)", {"register": "tf32"}),
])  # fmt: skip
def test_not_a_block(message, policy, options):
    with pytest.raises(ValueError, match=message):
        Accumulation(policy, **options)


def test_a_block_in_one_text():
    long = Accumulation("block", terms=16, extra_bits=2, register="tf32", min_exponent=0, late=3, interleave=2, rounding=1, product_limit=True)
    text = "block(rounding=nearest_even, terms=16, extra_bits=2, register=tf32, interleave=2, late=3, min_exponent=0, product_limit=True)"
    assert str(long) == text
    assert Accumulation(str(long)) == long and Accumulation("block(16, extra_bits=2)") == Accumulation("block", terms=16, extra_bits=2)
    assert Accumulation("block(4, register=float32)") == Accumulation("block", terms=4, register=torch.float32)
    for policy in (long, Accumulation("nvidia-b200"), POLICY):
        with accumulate(str(policy)):
            assert torch_dtypes.accumulation_of("q43") == policy


# ---- other people's models ----


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_as_mma_sim_has_it(kind):
    """The authors' own program (pip install mmasim), on 1,024 sums for each chip, format and kind of operands."""
    pytest.importorskip("mmasim")
    from mmasim import amd, nv_ptx

    stock = {"e5m10": torch.float16, "e8m7": torch.bfloat16, "tf32": torch.float32, "e4m3fn": torch.float8_e4m3fn, "q52": torch.float8_e5m2,
             "e4m3fnuz": torch.float8_e4m3fnuz, "e5m2fnuz": torch.float8_e5m2fnuz}  # fmt: skip
    ptx = {"e5m10": "f16", "e8m7": "bf16", "tf32": "tf32", "e4m3fn": "e4m3", "q52": "e5m2"}
    models = {
        "nvidia-v100": lambda n: (nv_ptx.MMA("Volta", "m8n8k4.f32.f16.f16.f32"), 4),
        "nvidia-a100": lambda n: (nv_ptx.MMA("Ampere", f"m16n8k{8 if n == 'tf32' else 16}.f32.{ptx[n]}.{ptx[n]}.f32"), 8 if n == "tf32" else 16),
        "nvidia-h100": lambda n: (lambda k: (nv_ptx.WGMMA("Hopper", f"m64n16k{k}.f32.{ptx[n]}.{ptx[n]}"), k))(K_OF[n]),
        "nvidia-b200": lambda n: (lambda k: (nv_ptx.TCGen05MMA("Blackwell", f"m64n16k{k}.kind::{KIND[k]}.f32.{ptx[n]}.{ptx[n]}"), k))(K_OF[n]),
        "amd-mi300x": lambda n: (amd.MFMA("CDNA3", AMD[n]), {"tf32": 8, "e4m3fnuz": 32, "e5m2fnuz": 32}.get(n, 16)),
    }
    for chip, name, _adder in CHIPS:
        model, k = models[chip](name)
        m, n = 64, 16
        a, b = operands(name, m, k, kind=kind, seed=7), operands(name, k, n, kind=kind, seed=8)
        start = operands(FLOAT32, m, n, kind=kind, seed=9)
        if name in ("q52", "e4m3fn") and chip == "nvidia-h100":  # its register has no more digits
            start = start.double().to(torch_dtypes.with_rounding("e8m13", "toward_zero")).double().to(torch_dtypes.dtype(FLOAT32))
        for begin in (start, torch.zeros_like(start)):
            with accumulate(chip):
                got = matmul(a, b, out=FLOAT32, start=begin).float()
            want = model.dpa(*(x.double().to(stock[name]) for x in (a[:, None].expand(m, n, k), b.T[None].expand(m, n, k))), begin.float())
            got, want = got.nan_to_num(7), want.nan_to_num(7)
            assert torch.equal(got.view(torch.int32), want.view(torch.int32)), (chip, name, (got != want).sum())


K_OF = {"e5m10": 16, "e8m7": 16, "tf32": 8, "e4m3fn": 32, "q52": 32}
KIND = {8: "tf32", 16: "f16", 32: "f8f6f4"}
AMD = {"e5m10": "f32_16x16x16_f16", "e8m7": "f32_16x16x16_bf16", "tf32": "f32_16x16x8_xf32", "e4m3fnuz": "f32_16x16x32_fp8_fp8",
       "e5m2fnuz": "f32_16x16x32_bf8_bf8"}  # fmt: skip


def test_late_bits_that_two_registers_of_float64_do_not_hold():
    """The lanes' sum of what is kept and what is held would be rounded: 2^10 - 2^-50 was 2^10."""
    a, b = torch.tensor([[2.0**10, -(2.0**-50)]]).to(torch_dtypes.dtype("e8m7")), torch.ones(2, 1).to(torch_dtypes.dtype("e8m7"))
    with accumulate("block", terms=1, extra_bits=0, late=31, rounding="toward_zero"):
        assert matmul(a, b, out="fp32").item() == 2.0**10 - 2.0**-14
