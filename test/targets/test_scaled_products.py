"""Products of two block tensors by the block-scaled instructions of chips, bit for bit against
integers from the published definitions."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle_scaled import ELEMENTS, scaled_product

from torch_dtypes import accumulate, quantize, target
from torch_dtypes.targets.block_tensors import BlockTensor
from torch_dtypes.targets.packing import pack

# Element, scale, block.
KINDS = {
    "mxfp8_e4m3": ("e4m3", "e8m0", 32),
    "mxfp8_e5m2": ("e5m2", "e8m0", 32),
    "mxfp6_e3m2": ("e3m2", "e8m0", 32),
    "mxfp6_e2m3": ("e2m3", "e8m0", 32),
    "mxfp4": ("e2m1", "e8m0", 32),
    "block<e2m1finite,e8m0,16>": ("e2m1", "e8m0", 16),
    "nvfp4": ("e2m1", "e4m3", 16),
}
SAME = [(name, name) for name in KINDS]
MIXED = [
    ("mxfp8_e4m3", "mxfp8_e5m2"),
    ("mxfp8_e5m2", "mxfp6_e3m2"),
    ("mxfp6_e2m3", "mxfp4"),
    ("mxfp4", "mxfp8_e4m3"),
]
PAIRS = [*SAME, *MIXED]
CHIPS = ("nvidia-b200", "nvidia-rtx-blackwell")
WAYS = ("near", "far", "ends", "special")


def codes(rng, name, rows, k, way):
    """Return codes of elements and of scales."""
    kind, scale, size = KINDS[name]
    exp_bits, man_bits, _ = ELEMENTS[kind]
    bits, blocks = 1 + exp_bits + man_bits, -(-k // size)
    largest = {"e4m3": 0x7E, "e5m2": 0x7B}.get(kind, (1 << bits - 1) - 1)
    x = rng.integers(0, largest + 1, (rows, k))
    s = (
        rng.integers(0x20, 0x50, (rows, blocks))
        if scale == "e4m3"
        else 127 + rng.integers(-4, 5, (rows, blocks))
    )
    if way in ("far", "special"):
        s = rng.integers(0, 0x7F if scale == "e4m3" else 255, (rows, blocks))
    if way == "ends":
        x = rng.choice([0, 0, 1, (1 << man_bits) - 1, 1 << man_bits, largest], (rows, k))
        ends = [0, 1, 7, 8, 0x38, 0x7E] if scale == "e4m3" else [0, 1, 63, 126, 127, 128, 253, 254]
        s = rng.choice(ends, (rows, blocks))
    if way == "special":
        x = np.where(rng.random((rows, k)) < 2 / k, largest + 1, x)  # NaN of e4m3, inf of e5m2
        x = np.where(rng.random((rows, k)) < 0.5 / k, (1 << bits - 1) - 1, x)
        nan = 0x7F if scale == "e4m3" else 255
        s = np.where(rng.random((rows, blocks)) < 0.1 / blocks, nan, s)
        if scale == "e4m3":
            s |= rng.choice([0, 0x80], s.shape)  # the instruction has no sign there
    x = x & (1 << bits - 1) - 1 | rng.choice([0, 1 << bits - 1], (rows, k))
    return x, s


def block_tensor(name, x, s, above=None):
    fmt = target(name)
    data = pack(torch.from_numpy(x.astype(np.uint8)), fmt.bits)
    if above is None and fmt.tensor_scale:
        above = torch.tensor(1.0)
    return BlockTensor(
        fmt, x.shape, torch.float32, data, torch.from_numpy(s.astype(np.uint8)), above
    )


def same(got, want):
    want = torch.tensor(want).view_as(got)
    assert torch.equal(got.isnan(), want.isnan())
    got, want = got.nan_to_num(7, 8, 9), want.nan_to_num(7, 8, 9)
    assert torch.equal(got.view(torch.int32), want.view(torch.int32)), (got != want).sum()


def check(pair, way, k, rows, columns, chip="nvidia-b200", chunk=None):
    rng = np.random.default_rng([k, PAIRS.index(pair), WAYS.index(way)])
    a, b = codes(rng, pair[0], rows, k, way), codes(rng, pair[1], columns, k, way)
    policy = chip if chunk is None else f"chunked({chunk}, accumulator={chip})"
    with accumulate(policy):
        got = block_tensor(pair[0], *a) @ block_tensor(pair[1], *b).T
    kinds, (_, scale, size) = tuple(KINDS[name][0] for name in pair), KINDS[pair[0]]
    a, b = (list(zip(*(t.tolist() for t in x), strict=True)) for x in (a, b))
    want = [[scaled_product(kinds, scale, size, *x, *y, chunk) for y in b] for x in a]
    same(got, want)
    return got


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_as_published(pair, way):
    check(pair, way, 144, 5, 8)
    check(pair, way, 32, 3, 10, "nvidia-rtx-blackwell")
    check(pair, way, 7, 2, 10)


@pytest.mark.whole
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_ten_thousand_as_published(pair, way):
    """Check 2,500 products for each chip and way: 10,000 of a pair for each chip."""
    for k in (80, 160):
        check(pair, way, k, 25, 100, CHIPS[k // 160])


@pytest.mark.parametrize("pair", [SAME[0], SAME[-1]], ids="-".join)
def test_chunks_are_added_in_float32(pair):
    for way in ("far", "special", "near"):
        got = check(pair, way, 400, 3, 6, chunk=128)
    assert not torch.equal(got, check(pair, "near", 400, 3, 6))


def test_a_group_that_cancels_still_aligns():
    """0 * 2^40 from products that cancel cuts 2^0 * 0.25 away; from zeros it does not."""
    x = np.zeros((2, 64), int)
    x[0, :2] = 2, 10  # 1, -1
    x[:, 16] = 1  # 0.5
    y = np.zeros((1, 64), int)
    y[0, [0, 1, 16]] = 2, 2, 1
    s = np.full((2, 4), 127)
    s[:, 0] = 127 + 40
    with accumulate("nvidia-b200"):
        got = (
            block_tensor("block<e2m1finite,e8m0,16>", x, s)
            @ block_tensor("block<e2m1finite,e8m0,16>", y, np.full((1, 4), 127)).T
        )
    assert got.flatten().tolist() == [0.0, 0.25]


def test_scales_of_tensors_follow_in_float32():
    rng = np.random.default_rng(3)
    a, b = codes(rng, "nvfp4", 6, 96, "near"), codes(rng, "nvfp4", 7, 96, "near")
    one, two = torch.tensor(0.3), torch.tensor(1.7e-3)
    with accumulate("nvidia-b200"):
        plain = block_tensor("nvfp4", *a) @ block_tensor("nvfp4", *b).T
        scaled = block_tensor("nvfp4", *a, one) @ block_tensor("nvfp4", *b, two).T
    assert torch.equal(scaled, plain * (one * two))


def test_calls_and_shapes():
    g = torch.Generator().manual_seed(1)
    x, w = torch.randn(2, 3, 5, 96, generator=g), torch.randn(7, 96, generator=g)
    bias = torch.randn(7, generator=g)
    p, q = quantize(x, "mxfp8_e4m3"), quantize(w, "mxfp6_e3m2")
    with accumulate("nvidia-b200"):
        whole = p @ q.T
        assert whole.shape == (2, 3, 5, 7)
        rows = quantize(x[1, 2], "mxfp8_e4m3")
        assert torch.equal(torch.mm(rows, q.T), whole[1, 2])
        assert torch.equal(F.linear(p, q), whole)
        assert torch.equal(F.linear(p, q, bias), whole + bias)
        assert torch.equal(p @ quantize(w[3], "mxfp6_e3m2"), whole[..., 3])
        assert torch.equal(quantize(x[1, 2, 4], "mxfp8_e4m3") @ q.T, whole[1, 2, 4])
        batches = quantize(x[0], "mxfp8_e4m3")
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(torch.bmm(batches, batches.mT), batches @ batches.mT)
            four = quantize(w, "nvfp4") @ quantize(w, "nvfp4").T
        assert torch.equal(four, quantize(w, "nvfp4") @ quantize(w, "nvfp4").T)
        half = quantize(x.bfloat16(), "mxfp8_e4m3") @ quantize(w.bfloat16(), "mxfp6_e3m2").T
        empty = quantize(torch.ones(2, 0), "mxfp4") @ quantize(torch.ones(3, 0), "mxfp4").T
        none = quantize(torch.ones(0, 32), "mxfp4") @ quantize(torch.ones(3, 32), "mxfp4").T
        with pytest.raises(RuntimeError, match="whose inner sizes agree"):
            rows @ q
    assert half.dtype == torch.bfloat16 and torch.equal(empty, torch.zeros(2, 3))
    assert none.shape == (0, 3)
    torch.testing.assert_close(whole, p.dequantize() @ q.dequantize().T, rtol=1e-4, atol=1e-5)


def test_pieces_of_rows(monkeypatch):
    p, q = (quantize(torch.randn(n, 64), "mxfp8_e4m3") for n in (10, 4))
    with accumulate("nvidia-b200"):
        whole = p @ q.T
        monkeypatch.setattr("torch_dtypes.targets.scaled_products._TERMS_AT_ONCE", 3 * 4 * 32)
        assert torch.equal(p @ q.T, whole)


def test_what_no_model_is_published_for():
    x = torch.randn(64, 64)
    eight = quantize(x, "mxfp8_e4m3")

    def refused(message, a, b, policy="nvidia-b200"):
        with accumulate(policy), pytest.raises(RuntimeError, match=message):
            a @ b

    chips = "expected nvidia-b200 or nvidia-rtx-blackwell for a product of block tensors, but got "
    refused(chips + "nvidia-h100", eight, eight.T, "nvidia-h100")
    refused(chips + "amd-mi300x", eight, eight.T, "chunked(64, accumulator=amd-mi300x)")
    multiplies = "expected block tensors that nvidia-b200 multiplies .* but got "
    for name in ("mxint8", "hif4", "bfp8", "nvfp4", "block<e2m1finite,e5m3"):
        other = quantize(x, name + ",32>" if "<" in name else name).T
        refused(multiplies + f"mxfp8_e4m3 of shape .* and {name}", eight, other)
    refused(multiplies, eight, eight)  # the blocks of b lie along its columns
    refused(multiplies, quantize(x, "mxfp4_axis0"), eight.T)
    refused("expected two block tensors .* but got a tensor of torch.float32", eight, x)
    refused("expected two block tensors", x, eight.T)
    refused(
        "expected chunks of a multiple of 32 products for mxf8f6f4, but got 48",
        eight,
        eight.T,
        "chunked(48, accumulator=nvidia-b200)",
    )


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_as_mma_sim_has_it(pair):
    """Compare with the authors' own program (pip install mmasim)."""
    pytest.importorskip("mmasim")
    from mmasim import nv_ptx

    kinds = [KINDS[name][0] for name in pair]
    _, scale, size = KINDS[pair[0]]
    four = kinds == ["e2m1", "e2m1"]
    k, kind = (64, "mxf4nvf4") if four else (32, "mxf8f6f4")
    tail = f"kind::{kind}.block{size}.f32.{'.'.join(kinds)}"
    models = {
        "nvidia-b200": nv_ptx.TCGen05MMABlockScale("Blackwell", f"m128n8k{k}.{tail}.u{scale}"),
        "nvidia-rtx-blackwell": nv_ptx.MMABlockScale(
            "RTX Blackwell", f"m16n8k{k}.{tail}.f32.u{scale}"
        ),
    }
    for chip, model in models.items():
        for way in WAYS:
            rng = np.random.default_rng(11)
            a, b = codes(rng, pair[0], 32, 2 * k, way), codes(rng, pair[1], 40, 2 * k, way)
            with accumulate(chip):
                got = block_tensor(pair[0], *a) @ block_tensor(pair[1], *b).T
            want = torch.zeros(32, 40)
            for step in range(2):
                operands = [
                    stored(x[:, step * k : step * k + k], kind, four)
                    for (x, _), kind in zip((a, b), kinds, strict=True)
                ]
                each = k // size
                scales = [
                    torch.from_numpy(s[:, step * each : step * each + each].astype(np.uint8)).view(
                        torch.float8_e8m0fnu if scale == "e8m0" else torch.float8_e4m3fn
                    )
                    for _, s in (a, b)
                ]
                want = model(operands[0], operands[1].T, want, scales[0], scales[1].T)
            same(got, want.tolist())


def stored(x, kind, four):
    """Return codes as MMA-Sim takes them: two of 4 bits in a byte, or 6 and 4 bits in a byte."""
    x = torch.from_numpy(x.astype(np.uint8))
    if four:
        return x[:, ::2] << 4 | x[:, 1::2]
    stock = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    return x.view(stock[kind]) if kind in stock else x << (2 if kind == "e2m1" else 0)


def test_infinities_of_registers():
    big = np.full((1, 32), 0x7E)
    s = np.full((1, 1), 254)
    t, u = block_tensor("mxfp8_e4m3", big, s), block_tensor("mxfp8_e4m3", big | 0x80, s)
    with accumulate("nvidia-b200"):
        assert (t @ t.T).item() == math.inf and (t @ u.T).item() == -math.inf
