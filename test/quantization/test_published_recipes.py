"""Recipes of the literature in small form: QPyTorch's low-precision training, SWALP; on
scikit-learn's digits, a network of two layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

import torch_dtypes
from torch_dtypes import chop
from torch_dtypes.optim import LowPrecision
from torch_dtypes.workbench.training.data import load_dataset

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def digits():
    """(images, labels) for training and for testing, 8 x 8 pixels."""
    data = load_dataset("digits")
    return [
        (F.avg_pool2d(split.inputs.float() / 255, 4).flatten(1), split.labels)
        for split in (data.train, data.test)
    ]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


def fit(model, optimizer, split, dtype=torch.float32, epochs=6, after_epoch=lambda epoch: None):
    images, labels = split
    scaled = getattr(optimizer, "scale", lambda loss: loss)
    shuffle = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    for epoch in range(epochs):
        for index in torch.randperm(len(labels), generator=shuffle).split(32):
            optimizer.zero_grad()
            scaled(F.cross_entropy(model(images[index].to(dtype)), labels[index])).backward()
            optimizer.step()
        after_epoch(epoch)
    return model


@torch.no_grad()
def measure(model, split, dtype=torch.float32):
    """Mean loss and percent right."""
    images, labels = split
    logits = model(images.to(dtype)).float()
    return F.cross_entropy(logits, labels).item(), 100 * (
        logits.argmax(1) == labels
    ).float().mean().item()


def sgd(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


@pytest.fixture(scope="module")
def float32(digits):
    model = network()
    return measure(fit(model, sgd(model), digits[0]), digits[1])


@pytest.mark.whole
def test_e5m2_with_e6m9_accumulators_and_loss_scaling(digits, float32):
    """Zhang et al., "QPyTorch: a low-precision arithmetic simulation framework" (arXiv 1910.04540),
    section 4, after Wang et al. (arXiv 1812.08011): weights, activations, gradients and errors in
    e5m2, momentum and the weights' accumulators in e6m9, stochastically, the loss scaled. With
    accumulators in e5m2, to nearest, updates are lost."""
    train, test = digits
    model = network().to(torch.q52)
    optimizer = LowPrecision(sgd(model), grad="q52", state="e6m9", master="e6m9", grad_scale=256)
    loss, accuracy = measure(fit(model, optimizer, train, torch.q52), test, torch.q52)
    assert accuracy > float32[1] - 2
    for p in model.parameters():
        assert p.dtype is p.grad.dtype is torch.q52
        buffer = optimizer.state[p]["momentum_buffer"]
        assert torch.equal(buffer, chop(buffer, "e6m9")) and not torch.equal(
            buffer, chop(buffer, "e6m8")
        )
    model = network().to(torch.q52)
    without = LowPrecision(
        sgd(model), grad="q52", state="q52", master="q52", rounding=None, grad_scale=256
    )
    lost, _ = measure(fit(model, without, train, torch.q52), test, torch.q52)
    assert lost > 1.3 * loss


@pytest.mark.whole
def test_swalp(digits, float32):
    """Yang et al., "SWALP: stochastic weight averaging in low-precision training" (ICML 2019),
    algorithm 2. Weights, activations, errors, gradients and momentum are in block floating point
    (an exponent for each tensor), with stochastic rounding, no masters and a high learning rate.
    The float32 mean of the weights after some epochs is better than the last weights."""
    train, test = digits
    model = network()
    low = "bfp6_stochastic"
    torch_dtypes.quantize_(
        model, {nn.Linear: dict(activation=low, error="bfp8_stochastic", grad="bfp8_stochastic")}
    )
    optimizer = LowPrecision(sgd(model), weight="bfp6", state="bfp8", master=None)
    averaged = AveragedModel(model)

    def average(epoch):
        if epoch >= 4:
            averaged.update_parameters(model)

    fit(model, optimizer, train, epochs=10, after_epoch=average)
    for p in model.parameters():
        assert torch.equal(p, torch_dtypes.target("bfp6").quantize(p.detach()))
    exact = [torch_dtypes.dequantize_(m) for m in (model, averaged.module)]
    (last_loss, _), (mean_loss, accuracy) = (measure(m, test) for m in exact)
    assert mean_loss < last_loss and accuracy > float32[1] - 2
