"""What is said of a run that diverges: the first tensor that was not finite, its layer and pass, the cause, what to try."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes.divergence import explain_divergence


def network(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2)).to(dtype)


def test_forward_overflow_names_the_innermost_layer():
    model = network(torch.q43)
    with torch.no_grad():
        model[1][0].weight.fill_(240)
    x = torch.full((3, 4), 100.0, dtype=torch.q43)
    with torch.no_grad():
        model[0].weight.fill_(0.25)
    why = explain_divergence(model, None, lambda: model(x).sum())
    assert (why.layer, why.where) == ("1.0", "forward") and "240" in why.cause
    assert "layer '1.0'" in str(why) and "Try a lower learning rate" in str(why)
    assert not any(m._forward_hooks for m in model.modules())


def test_the_data_and_the_loss():
    model = network(torch.q43)
    x = torch.full((3, 4), float("nan"), dtype=torch.q43)
    assert explain_divergence(model, None, lambda: model(x).sum()).tensor == "the input"
    x = torch.ones(3, 4, dtype=torch.q43)
    assert explain_divergence(model, None, lambda: model(x).sum() / 0).tensor == "the loss"
    assert explain_divergence(model, None, lambda: model(x).sum()) is None


def test_backward_names_the_last_layer_with_such_a_gradient():
    model = network(torch.q52)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    model[1][0].weight.grad[0, 0] = float("inf")
    model[0].weight.grad[0, 0] = float("inf")
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    why = explain_divergence(model)
    assert (why.tensor, why.layer, why.where) == ("1.0.weight.grad", "1.0", "backward") and "an infinity" in why.cause


def test_update_names_the_state_that_is_zero():
    torch_dtypes.set_optimizer_eps("keep")
    try:
        model = network(torch.q52)
        optimizer = torch.optim.Adam(model.parameters())
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
    finally:
        torch_dtypes.set_optimizer_eps("raise")
    why = explain_divergence(model, optimizer)
    assert (why.tensor, why.where) == ("0.weight", "update") and "exp_avg_sq is 0" in why.cause and "an eps that the dtype has" in why.advice
    assert "LowPrecision" in why.advice and "--recipe master" in str(why)


def test_update_that_leaves_the_range():
    model = network(torch.q52)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e6)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert "57344" in explain_divergence(model, optimizer).cause


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, but got 'model'"):
        explain_divergence("model")
