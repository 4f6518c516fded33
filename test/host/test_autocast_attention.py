"""Attention, nn.TransformerEncoder and scripts under autocast with a format dtype."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_dtypes

KIND = torch.empty(0).device.type  # set by `--device`
LOW = ["q43", "posit8es1", "posit16es2", "e5m5"]
low_dtypes = pytest.mark.parametrize("low", [getattr(torch, name) for name in LOW], ids=LOW)


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("as_layer", [False, True])
@pytest.mark.parametrize("low", ["posit16es2", "posit8es0", "e4m3fn", "q43"])
def test_masks_of_infinities_in_autocast(low, as_layer):
    """Autocast casts float masks, and a format without infinities would turn theirs into NaN."""
    low, mask = torch_dtypes.dtype(low), nn.Transformer.generate_square_subsequent_mask(3)
    x = numbers(2, 3, 4).requires_grad_()
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 2, batch_first=True)

    def attend(x, mask):
        if not as_layer:
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        keys = torch.tensor([False, False, True]).expand(2, 3)
        keys = (
            keys if mask.dtype is torch.bool else torch.zeros(2, 3).masked_fill(keys, float("-inf"))
        )
        y, weights = layer(x, x, x, attn_mask=mask, key_padding_mask=keys)
        # The softmax of a masked score is 1/64 in posit8es0, and never 0.
        assert not weights[..., 2].any() or low is torch.posit8es0
        return y

    with torch.autocast(KIND, dtype=low):
        got = attend(x, mask)
        with_bools = attend(x, mask != 0 if as_layer else mask == 0)
        in_low = attend(x.to(low), mask)
    assert got.dtype is low and got.isfinite().all()
    assert torch.equal(got, in_low) and (torch.equal(got, with_bools) or low is torch.posit8es0)
    got.float().sum().backward()
    assert x.grad.isfinite().all()
    with torch.autocast(KIND, dtype=low):  # other dtypes are unchanged
        biases = torch.zeros(3, 3).double()
        assert F._canonical_mask(biases, "mask", None, "", torch.float64) is biases
        assert (
            F._canonical_mask(mask != 0, "mask", None, "", torch.float32) == float("-inf")
        ).any() == (low is torch.q43)
        with torch.autocast(KIND, enabled=False):
            assert F._canonical_mask(mask, "mask", None, "", torch.float32) is mask


ENCODER_MASKS = {
    "none": {},
    "keys": dict(src_key_padding_mask=torch.tensor([[False, False, True], [False] * 3])),
    "pairs": dict(mask=torch.ones(3, 3).triu(1).bool()),
    "both": dict(
        src_key_padding_mask=torch.tensor([[False, False, True], [False] * 3]),
        mask=torch.ones(3, 3).triu(1).bool(),
    ),
}


def encoder(norm_first, activation="relu"):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        4, 2, 8, 0.0, activation, batch_first=True, norm_first=norm_first
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.7)
    return model.eval()


def encoder_by_hand(model, x, low, mask=None, src_key_padding_mask=None):
    for layer in model.layers:
        layer.train()  # training takes no fused operator; dropout is 0

        def attention(x, layer=layer):
            return layer.self_attn(
                x, x, x, attn_mask=mask, key_padding_mask=src_key_padding_mask, need_weights=False
            )[0]

        def feed_forward(x, layer=layer):
            return layer.linear2(layer.activation(layer.linear1(x)))

        if layer.norm_first:
            x = attention(layer.norm1(x)) + x.to(low)
            x = feed_forward(layer.norm2(x)) + x
        else:
            x = layer.norm1(attention(x) + x.to(low))
            x = layer.norm2(feed_forward(x) + x)
    return x


@pytest.mark.parametrize("masks", ENCODER_MASKS.values(), ids=ENCODER_MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@low_dtypes
def test_a_transformer_encoder_in_inference(low, norm_first, masks):
    """PyTorch runs one operator for each layer. The second layer gets the first one's result beside
    float32 weights."""
    model, x = encoder(norm_first, "gelu" if norm_first else "relu"), torch.randn(2, 3, 4)
    with torch.no_grad(), torch.autocast(KIND, dtype=low):
        got = model(x, **masks)
        want = encoder_by_hand(model, x, low, **masks)
    assert got.dtype is low and torch.equal(got, want)


def test_a_transformer_encoder_in_inference_is_as_bfloat16_s():
    results = []
    for low in (torch.bfloat16, torch_dtypes.dtype("bf16")):
        model = encoder(False)
        x = numbers(2, 3, 4)
        with torch.no_grad(), torch.autocast(KIND, dtype=low):
            results += [model(x), model.to(low)(x), model.layers[0](torch.zeros(0, 3, 4))]
        assert (
            results[-3].dtype is low and results[-2].dtype is low and results[-1].shape == (0, 3, 4)
        )
    for stock, ours in zip(results[:2], results[3:5], strict=True):
        torch.testing.assert_close(ours.float(), stock.float(), atol=0.1, rtol=0.05)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_of_a_transformer_encoder_in_autocast():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    with (
        torch.no_grad(),
        torch.autocast(KIND, dtype=torch.q43),
        pytest.raises(NotImplementedError, match="enable_nested_tensor=False"),
    ):
        model(torch.randn(2, 3, 4), **ENCODER_MASKS["keys"])


def test_scripts_in_autocast():
    """A script function gets the dtype of each block; a script module raises."""

    @torch.jit.script
    def product(x, y):
        return x @ y

    x = torch.randn(4, 4)
    for low in (torch.bfloat16, torch.q43, torch.posit16es2, torch.q43):
        with torch.autocast(KIND, dtype=low):
            assert product(x, x).dtype is low
    assert product(x, x).dtype is torch.float32
    ours = x.to(torch.q52)
    with torch.autocast(KIND, dtype=torch.bfloat16):
        assert product(ours, ours).dtype is torch.q52
    scripted = torch.jit.script(torch.nn.MultiheadAttention(8, 2, batch_first=True))
    with (
        torch.autocast(KIND, dtype=torch.q43),
        pytest.raises(NotImplementedError, match="expected stock dtypes in TorchScript"),
    ):
        scripted(torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(2, 3, 8))
