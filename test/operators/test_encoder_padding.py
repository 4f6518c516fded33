"""Rows of padding that nn.TransformerEncoder sets to 0 in inference."""

import pytest
import torch
from torch import nn

import torch_dtypes

PADDING = torch.tensor(
    [[False, False, False, False], [False, False, True, True], [False, True, True, True]]
)
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def encoder(norm=False, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8) if norm else None, **options).eval()


def run(model, x, padding=PADDING, **options):
    with torch.no_grad():
        return model(x, src_key_padding_mask=padding, **options)


@pytest.mark.parametrize("name", ["posit16es2", "q43", "e4m3fn"])
@pytest.mark.parametrize("norm", [False, True])
def test_padded_rows_are_those_of_stock(name, norm):
    dtype, x = torch_dtypes.dtype(name), torch.randn(3, 4, 8)
    model = encoder(norm)
    stock = run(model, x)
    got = run(model.to(dtype), x.to(dtype))
    padded = stock[PADDING]
    assert torch.equal(
        padded,
        model.float().norm(torch.zeros(1, 8)).expand_as(padded)
        if norm
        else torch.zeros_like(padded),
    )
    assert torch.equal(got[PADDING], padded.to(dtype)) and got.dtype is dtype
    plain = run(encoder(norm, enable_nested_tensor=False).to(dtype), x.to(dtype))
    assert torch.equal(got[~PADDING], plain[~PADDING]) and (plain[PADDING] != got[PADDING]).any()


@pytest.mark.parametrize(
    "options, padding, settings",
    [
        ({"enable_nested_tensor": False}, PADDING, {}),
        ({}, PADDING.flip(1), {}),  # padding in front
        ({}, PADDING, {"mask": torch.zeros(4, 4, dtype=torch.bool)}),
    ],
)
def test_where_stock_leaves_padded_rows(options, padding, settings):
    x = torch.randn(3, 4, 8)
    model = encoder(**options)
    assert (run(model, x, padding, **settings)[padding] != 0).all()
    assert (
        run(model.to(torch.posit16es2), x.to(torch.posit16es2), padding, **settings)[padding] != 0
    ).any()


def test_in_training_and_with_gradients_they_stay():
    model, x = encoder().to(torch.posit16es2), torch.randn(3, 4, 8).to(torch.posit16es2)
    assert (model(x, src_key_padding_mask=PADDING)[PADDING] != 0).any()
    assert (run(model.train(), x)[PADDING] != 0).any()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert (run(model.eval(), x)[PADDING] != 0).any()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_stock_encoders_are_scripted_and_compiled_as_before():
    model, x = encoder(enable_nested_tensor=False), torch.randn(3, 4, 8)
    want = run(model, x)
    assert torch.equal(run(torch.compile(model, backend="eager", fullgraph=True), x), want)
