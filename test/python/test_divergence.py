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


def test_a_layer_in_place_that_overflows():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.SELU(inplace=True)).to(torch.q43)
    nn.init.ones_(model[0].weight)
    why = explain_divergence(model, None, lambda: model(torch.full((1, 1), 240.0, dtype=torch.q43)).sum())
    assert (why.tensor, why.layer) == ("the output of SELU", "1") and "out of finite operands" in why.cause
    assert not any(m._forward_pre_hooks for m in model.modules())


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


def test_a_format_without_a_sign_says_what_it_lacks():
    model = network(torch_dtypes.dtype("ue4m3p3109"))  # of initial weights, every other one is below 0
    found = explain_divergence(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert "or below 0, of which torch.ue4m3p3109 has none" in found.cause and "a format with a sign" in found.advice
    signed = network(torch.q52)
    with torch.no_grad():
        signed[0].weight.fill_(torch.inf)
    assert "below 0" not in str(explain_divergence(signed, torch.optim.SGD(signed.parameters(), lr=0.1)))


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, but got 'model'"):
        explain_divergence("model")


def test_a_layer_that_rounds_beyond_its_format_says_which_number():
    model = network(torch.float32)
    with torch.no_grad():
        model[0].weight.fill_(200.0)
    torch_dtypes.quantize_(model, {nn.Linear: {"weight": "q43", "activation": "q43"}})
    x = torch.ones(3, 4)
    why = explain_divergence(model, None, lambda: model(x).sum())
    assert (why.layer, why.where) == ("1.0", "forward")  # the first layer's rounded weights give 768, which is in float32's range
    assert why.cause.startswith("its activation goes up to 768") and "rounded to q43, whose largest number is 240" in why.cause
    with torch.no_grad():
        model[0].weight.fill_(300.0)
    why = explain_divergence(model, None, lambda: model(x).sum())
    assert why.layer == "0" and why.cause.startswith("its weight goes up to 300, and is rounded to q43")
    torch_dtypes.dequantize_(model)
    torch_dtypes.quantize_(model, {nn.Linear: {"weight": {"format": "q43", "scale": "power_of_two"}}})
    assert explain_divergence(model, None, lambda: model(x).sum()) is None


def test_weights_that_were_rounded_beyond_the_range_are_not_the_optimizer_s():
    model = network(torch.float32)
    with torch.no_grad():
        model[1][0].weight[0, :3] = float("inf")
    why = explain_divergence(model)
    assert (why.tensor, why.layer, why.where) == ("1.0.weight", "1.0", "forward") and "3 of its 64 numbers" in why.cause


def test_statistics_are_as_before():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).to(torch.q43)
    before = {name: b.clone() for name, b in model.named_buffers()}
    found = torch_dtypes.explain_divergence(model, forward=lambda: model(torch.full((3, 2), torch.inf).to(torch.q43)).sum())
    assert found is not None
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
