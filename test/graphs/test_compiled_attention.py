"""Attention, recurrent cells and functions with stock formulas of their own, in whole graphs of torch.compile, with eager code's bits."""

# ruff: noqa: F811 (a fixture that is imported)

import pytest
import torch
import torch.nn.functional as F
from capture import WHOLE_GRAPHS, assert_same, backend, clean  # noqa: F401 (the last two are fixtures)

pytestmark = WHOLE_GRAPHS

MASKS = {
    "causal": {"src_mask": torch.nn.Transformer.generate_square_subsequent_mask(5), "is_causal": True},
    "pairs": {"src_mask": torch.eye(5, dtype=torch.bool)},
    "keys": {"src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
    "both": {"src_mask": torch.nn.Transformer.generate_square_subsequent_mask(5), "src_key_padding_mask": torch.tensor([[False] * 4 + [True]] * 2)},
}


@pytest.mark.filterwarnings("ignore:Support for mismatched src_key_padding_mask")  # stock's, of a mask of bool beside one of numbers
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dtype", [torch.q43, torch.posit16es2], ids=str)
@pytest.mark.parametrize("masks", MASKS)
def test_stock_masks_of_attention(backend, masks, dtype, training):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).to(dtype).train(training)
    x = torch.linspace(-2, 2, 80).reshape(2, 5, 8).to(dtype).requires_grad_(training)
    run = torch.compile(layer, backend=backend, fullgraph=True)
    for _ in range(2):
        found, expected = run(x, **MASKS[masks]), layer(x, **MASKS[masks])
        assert_same(found.detach(), expected.detach())
        if training:
            slope = torch.ones_like(expected)
            assert_same(*(torch.autograd.grad(y, x, slope)[0] for y in (found, expected)))


@pytest.mark.parametrize(
    "mask", [torch.ones(5, 5, dtype=torch.bool).tril(), torch.zeros(5, 5).index_fill(1, torch.tensor([3]), -2.0)], ids=["bool", "float"]
)
def test_masks_of_scores(backend, mask):
    def attend(q, m):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=m)

    q = torch.linspace(-2, 2, 160).reshape(2, 2, 5, 8).to(torch.posit16es2)
    assert_same(torch.compile(attend, backend=backend, fullgraph=True)(q, mask), attend(q, mask))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_recurrent_cells(name, bias):
    """On a GPU each is one operator, whose results without values PyTorch does not know."""
    torch.manual_seed(0)
    cell = getattr(torch.nn, name)(3, 4, bias=bias).to(torch.posit16es2)
    x, h = (torch.randn(2, n).to(torch.posit16es2).requires_grad_() for n in (3, 4))

    def results(g):
        found = g(x, (h, h * 2) if name == "LSTMCell" else h)
        found = found if name == "LSTMCell" else (found,)
        return *found, *torch.autograd.grad(found, [x, h, *cell.parameters()], [torch.ones_like(v) for v in found])

    for a, b in zip(results(torch.compile(cell, backend="aot_eager", fullgraph=True)), results(cell), strict=True):
        assert_same(a, b)


OF_STOCK_FORMULAS = {
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: F.interpolate(x, size=(6, 5), mode="bilinear"),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
}


@pytest.mark.parametrize("f", OF_STOCK_FORMULAS.values(), ids=OF_STOCK_FORMULAS)
def test_functions_whose_stock_formulas_know_dtypes(backend, f):
    run, results = torch.compile(lambda x: f(x) * 2, backend=backend, fullgraph=True), []
    for g in (run, lambda x: f(x) * 2):
        x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(torch.posit16es2).requires_grad_()
        y = g(x)
        y.float().square().sum().backward()
        results.append((y, x.grad))
    for a, b in zip(*results, strict=True):
        assert_same(a, b)
    with torch.no_grad():
        assert_same(run(x), f(x) * 2)
