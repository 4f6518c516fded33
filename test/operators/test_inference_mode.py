"""torch.inference_mode: a tensor made in it is an inference tensor. A view is one if its base is,
whatever mode the view is taken in."""

import pytest
import torch
from conftest import parametrize_dtypes
from test_views import VIEWS, every_dtype, expect_same, sample
from torch import nn

TO_INTEGERS = {"codes": lambda x: x.view(torch.int32 if x.element_size() == 4 else torch.uint8)}
HERE = {name: view for name, view in VIEWS.items() if name != "view of its dtype"} | TO_INTEGERS


def tensors(made):
    return made if isinstance(made, (tuple, list)) else [made]


@every_dtype
@pytest.mark.parametrize("view", HERE)
def test_views_of_ordinary_tensors(view, dtype):
    x, reference = sample(dtype, 4, 6)
    with torch.inference_mode():
        made, expected = HERE[view](x), HERE[view](reference)
        if view not in TO_INTEGERS:
            expect_same(made, expected)
        for m, e in zip(tensors(made), tensors(expected), strict=True):
            # Stock PyTorch decides by the mode in these.
            assert m.is_inference() == (False if view in TO_INTEGERS else e.is_inference())
            assert m.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            m.zero_()
            e.zero_()
    assert x._version == reference._version or view in TO_INTEGERS


@every_dtype
@pytest.mark.parametrize("view", HERE)
def test_views_of_inference_tensors_outside(view, dtype):
    with torch.inference_mode():
        x, reference = sample(dtype, 4, 6)
        assert x.is_inference()
    for m, e in zip(tensors(HERE[view](x)), tensors(HERE[view](reference)), strict=True):
        assert m.is_inference() == (view in TO_INTEGERS or e.is_inference())


@every_dtype
def test_integers_viewed_as_the_dtype(dtype):
    codes = sample(dtype, 4)[0].view(torch.uint8)
    with torch.inference_mode():
        assert not codes.view(dtype).is_inference()
        made = codes.clone()
    assert made.view(dtype).is_inference()


@parametrize_dtypes("posit16es2 q43 e5m5")
def test_models_infer_as_without_gradients(dtype):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.Unflatten(1, (2, 4)),
    ]
    model = (
        nn.Sequential(
            *layers,
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
            nn.LSTM(4, 3, batch_first=True),
        )
        .to(dtype)
        .eval()
    )
    x = torch.randn(3, 1, 6, 6).to(dtype)
    with torch.no_grad():
        expected, _ = model(x)
    with torch.inference_mode():
        found, _ = model(x)
        assert found.is_inference()
        expect_same(found, expected.double())
        found[0] = 1.5
        assert found[0].double().eq(1.5).all()
    with pytest.raises(RuntimeError, match="Inference tensors"):
        (found * model[0].weight.sum()).sum().backward()


@parametrize_dtypes("posit16es2 q43 e5m5")
def test_views_in_inference_mode_take_part_in_training_afterwards(dtype):
    w = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    with torch.inference_mode():
        row = w[0]
    (w * row.detach()).sum().backward()
    assert w.grad.dtype is dtype and w.grad.double().eq(1).all()
