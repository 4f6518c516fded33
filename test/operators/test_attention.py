"""Attention with masks: a masked place has no effect, also in formats without infinities."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

import torch_dtypes

NAMES = ["posit16es2", "posit32es2", "e4m3fn", "e4m3fn_saturate", "q43", "e5m5"]
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 8, 2
PADDING = torch.tensor([[False, False, False, True, True], [False, False, False, False, True]])
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)

pytestmark = pytest.mark.usefixtures("one_thread")


def tolerance(dtype):
    return 3 * torch.finfo(dtype).eps


def pair(module, name):
    """Return the module in the format, and in float64 with the same values."""
    ours = module.to(torch_dtypes.dtype(name))
    return ours, copy.deepcopy(ours).double()


def values(dtype, seed=0):
    return (
        torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed)) / 2
    ).to(dtype)


def masks(kind):
    """Return a causal mask and a padding mask."""
    if kind == "bool":
        return CAUSAL, PADDING
    zeros = [torch.zeros(m.shape) for m in (CAUSAL, PADDING)]
    fill = -1e30 if kind == "finite" else float("-inf")
    return tuple(z.masked_fill(m, fill) for z, m in zip(zeros, (CAUSAL, PADDING), strict=True))


def expect_near(found, expected, dtype):
    assert found.dtype is dtype and torch_dtypes.is_format_dtype(found.dtype)
    assert found.isfinite().all()
    assert (found.double() - expected).abs().max() <= tolerance(dtype) * max(
        1, expected.abs().max()
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["bool", "float", "finite"])
@pytest.mark.parametrize("given", ["causal", "padding", "both"])
@pytest.mark.parametrize("weights", [True, False])
def test_masked_places_have_no_weight(name, kind, given, weights):
    torch.manual_seed(1)
    layer, wide = pair(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), name)
    dtype = torch_dtypes.dtype(name)
    x = values(dtype)
    causal, padding = masks(kind)
    asked = {
        "attn_mask": None if given == "padding" else causal,
        "key_padding_mask": None if given == "causal" else padding,
    }
    found, shares = layer(x, x, x, need_weights=weights, **asked)
    w = x.double()
    stock = {k: m if m is None or m.dtype is torch.bool else m.double() for k, m in asked.items()}
    expected, expected_shares = wide(w, w, w, need_weights=weights, **stock)
    expect_near(found, expected, dtype)
    if weights:
        expect_near(shares, expected_shares, dtype)
        masked = torch.zeros(BATCH, LENGTH, LENGTH, dtype=torch.bool)
        if given != "padding":
            masked |= CAUSAL
        if given != "causal":
            masked |= PADDING[:, None]
        assert (shares[masked] == 0).all() and (shares[~masked] != 0).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stock", [True, False])
def test_what_is_masked_does_not_matter(name, stock):
    dtype = torch_dtypes.dtype(name)
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True).to(dtype)
    x = values(dtype)
    other = torch.where(PADDING[..., None], values(dtype, 9), x)
    other[:, 2:] = values(dtype, 9)[:, 2:]
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH) if stock else CAUSAL
    found = [
        layer(v, src_mask=mask, src_key_padding_mask=masks("float")[1] if stock else PADDING)
        for v in (x, other)
    ]
    assert torch.equal(found[0][:, :2], found[1][:, :2])


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_is_the_format_s_own(name):
    dtype = torch_dtypes.dtype(name)
    made = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=dtype)
    assert made.dtype is dtype and (made[~CAUSAL] == 0).all() and not made.isnan().any()
    for mask in (CAUSAL, made.double().masked_fill(CAUSAL, float("-inf")), made):
        canonical = nn.functional._canonical_mask(mask, "mask", None, "", dtype)
        assert canonical.dtype is dtype and torch.equal(canonical.double(), made.double())
    two = made + made
    assert not two.isnan().any() and (two[CAUSAL] <= made[CAUSAL]).all()
    assert (two.softmax(-1)[CAUSAL] == 0).all()


def test_values_of_a_stock_mask_stay_and_have_gradients():
    bias = torch.tensor([[0.5, float("-inf"), -2.0]], requires_grad=True)
    mask = nn.functional._canonical_mask(bias, "mask", None, "", torch.posit16es2)
    assert mask.tolist() == [[0.5, torch.finfo(torch.posit16es2).min, -2.0]]
    mask.sum().backward()
    assert bias.grad.tolist() == [[1.0, 0.0, 1.0]]
    assert (
        nn.functional._canonical_mask(torch.tensor([math.nan]), "mask", None, "", torch.e5m5)
        .isnan()
        .all()
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_transformers(name, training, kind):
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warns of nested tensors, which are not used
        model = nn.Transformer(WIDTH, HEADS, 1, 1, 16, dropout=0.0, batch_first=True)
    ours, wide = pair(model.train(training), name)
    dtype = torch_dtypes.dtype(name)
    x, y = values(dtype, 3), values(dtype, 4)
    causal, padding = masks(kind)

    def run(model, x, y, cast):
        m, p = (t if t.dtype is torch.bool else t.to(cast) for t in (causal, padding))
        asked = {"src_key_padding_mask": p, "tgt_key_padding_mask": p, "memory_key_padding_mask": p}
        return model(x, y, src_mask=m, tgt_mask=m, **asked), model.encoder(
            x, mask=m, src_key_padding_mask=p
        )

    with torch.set_grad_enabled(training):
        found = run(ours, x, y, torch.float32)
        expected = run(wide, x.double(), y.double(), torch.float64)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype is dtype and f.isfinite().all()
        if torch.finfo(dtype).eps < 0.05:
            expect_near(f, e, dtype)
    if training:
        found[0].square().mean().backward()
        assert all(
            p.grad.dtype is dtype and p.grad.isfinite().all()
            for p in ours.parameters()
            if p.grad is not None
        )
        assert ours.decoder.layers[0].self_attn.in_proj_weight.grad.abs().sum() > 0


def test_what_masks_cannot_be():
    dtype = torch.posit16es2
    x = values(dtype)
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(dtype)
    with pytest.raises(AssertionError, match="only bool and floating types of attn_mask"):
        layer(x, x, x, attn_mask=CAUSAL.int())
    with pytest.raises(RuntimeError, match="shape of the 2D attn_mask"):
        layer(x, x, x, attn_mask=CAUSAL[:2])
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        layer(x, x, x, attn_mask=CAUSAL, key_padding_mask=masks("float")[1])
    unsigned = torch_dtypes.dtype("ufixed8_8")
    with pytest.raises(
        TypeError,
        match=r"expected a dtype with negative numbers for an attention mask, but got "
        r"torch\.ufixed8_8",
    ):
        nn.functional._canonical_mask(CAUSAL, "mask", None, "", unsigned)
    with pytest.raises(TypeError, match="expected a dtype with negative numbers"):
        nn.Transformer.generate_square_subsequent_mask(3, dtype=unsigned)


@pytest.mark.parametrize("policy", ["machine", "exact"])
def test_a_mask_of_another_narrow_dtype_is_an_error(policy):
    q = torch.randn(1, 3, 4).to(torch.posit16es2)
    with torch_dtypes.accumulate(policy):
        for other in (torch.q43, torch.e5m7, torch.bfloat16, torch.float16):
            with pytest.raises(
                RuntimeError,
                match=r"attn_mask of bool, float32 or the query's dtype, torch\.posit16es2, but "
                r"got "
                rf"{other}",
            ):
                nn.functional.scaled_dot_product_attention(
                    q, q, q, attn_mask=torch.zeros(3, 3, dtype=other)
                )
        for same in (torch.posit16es2, torch.float32):
            assert (
                nn.functional.scaled_dot_product_attention(
                    q, q, q, attn_mask=torch.zeros(3, 3, dtype=same)
                ).dtype
                is torch.posit16es2
            )


def test_stock_masks_are_unchanged():
    mask = nn.functional._canonical_mask(CAUSAL, "mask", None, "", torch.float32)
    assert torch.equal(
        mask, nn.Transformer.generate_square_subsequent_mask(LENGTH)
    ) and mask.min() == float("-inf")
    given = mask.double()
    assert nn.functional._canonical_mask(given, "mask", None, "", torch.float32) is given


@pytest.mark.filterwarnings("ignore")
def test_scripts_and_compiled_attention_of_stock_dtypes():
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    x = values(torch.float32)
    expected = layer(x, x, x, key_padding_mask=PADDING)[0]
    assert torch.equal(torch.jit.script(layer)(x, x, x, key_padding_mask=PADDING)[0], expected)
    compiled = torch.compile(copy.deepcopy(layer), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, x, x, key_padding_mask=PADDING)[0], expected)
    torch.jit.script(nn.Transformer(WIDTH, HEADS, 1, 1, 16))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", [None, "exact", "float64", "chunked(4)"])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_function_takes_masks_of_every_kind(name, policy, recorded):
    dtype = torch_dtypes.dtype(name)
    q, k, v = (values(dtype, seed).requires_grad_(recorded) for seed in range(3))
    own = torch.zeros(LENGTH, LENGTH, dtype=dtype).masked_fill_(CAUSAL, float("-inf"))
    expected = nn.functional.scaled_dot_product_attention(
        q.detach().double(), k.detach().double(), v.detach().double(), attn_mask=~CAUSAL
    )
    for mask in (~CAUSAL, torch.zeros(LENGTH, LENGTH).masked_fill(CAUSAL, float("-inf")), own):
        with torch_dtypes.accumulate(policy or "machine"):
            found = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        expect_near(found, expected, dtype)
        if recorded:
            grads = torch.autograd.grad(found.sum(), (q, k, v))
            assert all(g.dtype is dtype and g.isfinite().all() for g in grads)


@pytest.mark.parametrize("policy", ["exact", "format"])
@pytest.mark.parametrize("name", ["e8m18", "posit20es1", "e5m5"])
def test_softmax_is_computed_in_the_compute_type(name, policy):
    """Also for formats stored in float32, where a cast to float32 names the storage dtype, and in a
    block without autocast."""
    dtype = torch_dtypes.dtype(name)
    torch.manual_seed(0)
    q = torch.randn(2, 7, 8).to(dtype)
    with torch_dtypes.accumulate(policy):
        scores = (q @ q.transpose(1, 2)).float() * 8**-0.5
        expected = scores.softmax(-1).to(dtype) @ q
        found = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        with torch.autocast("cpu", enabled=False):
            within = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert found.tolist() == expected.tolist() == within.tolist()
