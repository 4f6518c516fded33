"""explain_divergence: the first tensor that is not finite, its layer and pass, the cause, the
advice."""

from __future__ import annotations

import pytest
import torch
from third_party_optimizers import AdaHessian, DAdaptation
from torch import nn

import torch_dtypes
from torch_dtypes.workbench.diagnosis.divergence import explain_divergence


def network(dtype):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2)
    ).to(dtype)


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
    why = explain_divergence(
        model, None, lambda: model(torch.full((1, 1), 240.0, dtype=torch.q43)).sum()
    )
    assert (why.tensor, why.layer) == (
        "the output of SELU",
        "1",
    ) and "out of finite operands" in why.cause
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
    assert (why.tensor, why.layer, why.where) == (
        "1.0.weight.grad",
        "1.0",
        "backward",
    ) and "an infinity" in why.cause


def test_update_names_the_state_that_is_zero(eps_as_given):
    model = network(torch.q52)
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    why = explain_divergence(model, optimizer)
    assert (
        (why.tensor, why.where) == ("0.weight", "update")
        and "exp_avg_sq is 0" in why.cause
        and "an eps that the dtype can hold" in why.advice
    )
    assert "LowPrecision" in why.advice and "--recipe master" in str(why)


def test_update_that_leaves_the_range():
    model = network(torch.q52)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e6)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert "57344" in explain_divergence(model, optimizer).cause


def test_a_format_without_a_sign_says_what_it_lacks():
    # Every other initial weight is below 0.
    model = network(torch_dtypes.dtype("ue4m3p3109"))
    found = explain_divergence(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert (
        "or below 0, of which torch.ue4m3p3109 has none" in found.cause
        and "a signed format" in found.advice
    )
    signed = network(torch.q52)
    with torch.no_grad():
        signed[0].weight.fill_(torch.inf)
    assert "below 0" not in str(
        explain_divergence(signed, torch.optim.SGD(signed.parameters(), lr=0.1))
    )


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
    # The first layer's rounded weights give 768, which is in float32's range.
    assert (why.layer, why.where) == ("1.0", "forward")
    assert (
        why.cause.startswith("its activation goes up to 768")
        and "rounded to q43, whose largest number is 240" in why.cause
    )
    with torch.no_grad():
        model[0].weight.fill_(300.0)
    why = explain_divergence(model, None, lambda: model(x).sum())
    assert why.layer == "0" and why.cause.startswith(
        "its weight goes up to 300, and is rounded to q43"
    )
    torch_dtypes.dequantize_(model)
    torch_dtypes.quantize_(
        model, {nn.Linear: {"weight": {"format": "q43", "scale": "power_of_two"}}}
    )
    assert explain_divergence(model, None, lambda: model(x).sum()) is None


def test_weights_that_were_rounded_beyond_the_range_are_not_the_optimizer_s():
    model = network(torch.float32)
    with torch.no_grad():
        model[1][0].weight[0, :3] = float("inf")
    why = explain_divergence(model)
    assert (why.tensor, why.layer, why.where) == (
        "1.0.weight",
        "1.0",
        "forward",
    ) and "3 of its 64 numbers" in why.cause


def test_statistics_are_as_before():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).to(torch.q43)
    before = {name: b.clone() for name, b in model.named_buffers()}
    found = torch_dtypes.explain_divergence(
        model, forward=lambda: model(torch.full((3, 2), torch.inf).to(torch.q43)).sum()
    )
    assert found is not None
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())


# Runs with finite numbers


def flat(dtype, **options):
    model, x = network(dtype), torch.randn(16, 4).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), **{"lr": 1e-4, **options})
    return (
        model,
        optimizer,
        lambda: nn.functional.cross_entropy(model(x).float(), torch.arange(16) % 2),
    )


def kept_states(model, optimizer):
    tensors = [
        *model.parameters(),
        *model.buffers(),
        *(p.grad for p in model.parameters() if p.grad is not None),
    ]
    return [t.detach().double().clone() for t in tensors], torch.get_rng_state()


@pytest.mark.parametrize("with_forward", [True, False])
def test_updates_below_half_a_unit_are_said_by_layer(with_forward):
    model, optimizer, forward = flat(torch.q52)
    forward().backward()
    before, words = kept_states(model, optimizer)
    found = explain_divergence(model, optimizer, forward if with_forward else None)
    assert (
        found.where == "update"
        and "below half a unit" in found.cause
        and "stands still (update pass" in str(found)
    )
    # By hand: compare the update, in exact rationals of float64, with half the distance to the
    # neighbour.
    expected = {}
    for name, p in model.named_parameters():
        w, step = p.detach().double(), p.grad.double() * 1e-4
        moved = (w - step).float().to(torch.q52).double()
        lost = expected.setdefault(name.rpartition(".")[0], [0, 0])
        lost[0], lost[1] = (
            lost[0] + int(((step != 0) & (moved == w)).sum()),
            lost[1] + int((step != 0).sum()),
        )
    for layer, (lost, of) in expected.items():
        assert f"{layer} {100 * lost / of:.0f} %" in found.cause
    assert "LowPrecision" in found.advice and "stochastic" in found.advice
    after, words_after = kept_states(model, optimizer)
    assert (
        all(map(torch.equal, before, after))
        and torch.equal(words, words_after)
        and not optimizer.state
    )


def test_updates_that_are_not_lost_are_not_said():
    model, optimizer, forward = flat(torch.q52, lr=30.0)
    forward().backward()
    assert explain_divergence(model, optimizer, forward) is None
    model, optimizer, forward = flat(torch.q52)
    forward().backward()
    assert explain_divergence(model, torch_dtypes.optim.LowPrecision(optimizer), forward) is None
    # At random.
    assert (
        explain_divergence(model, torch_dtypes.optim.LowPrecision(optimizer, master=None), forward)
        is None
    )
    nearest = torch_dtypes.optim.LowPrecision(
        torch.optim.Adam(model.parameters(), 1e-5), master=None, rounding="nearest_even"
    )
    assert "below half a unit" in explain_divergence(model, nearest, forward).cause
    model, optimizer, forward = flat(torch.float32)
    forward().backward()
    assert explain_divergence(model, optimizer, forward) is None


def test_gradients_that_a_clip_has_made_0():
    model, optimizer, forward = flat(torch.q43, lr=1.0)
    forward().backward()
    for p in model.parameters():
        p.grad.mul_(1e-4)  # a factor that q43 rounds to 0
    found = explain_divergence(model, optimizer, forward)
    assert (
        found.tensor == "0.weight.grad"
        and "a factor by which they were multiplied is 0 in torch.q43" in found.cause
    )


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch, self.gamma = nn.Linear(4, 4), nn.Parameter(torch.full((4,), 1e-5))

    def forward(self, x):
        return x + self.gamma * self.branch(x)


def test_a_factor_that_is_0():
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(Scaled(), nn.Linear(4, 2)).to(torch.q43),
        torch.randn(16, 4).to(torch.q43),
    )
    optimizer = torch_dtypes.optim.LowPrecision(torch.optim.SGD(model.parameters(), 0.1))
    found = explain_divergence(
        model,
        optimizer,
        lambda: nn.functional.cross_entropy(model(x).float(), torch.arange(16) % 2),
    )
    assert (
        (found.tensor, found.layer) == ("0.gamma", "0")
        and "is 0 (forward pass" in str(found)
        and "0.branch.weight" in found.cause
    )


def test_evaluation_by_statistics_that_stand_still():
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="running statistics"):
        model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)).to(
            torch.q52
        )
    x = (torch.randn(64, 4) + 3).to(torch.q52)
    t = (x[:, 0] > 3).long()
    optimizer = torch_dtypes.optim.LowPrecision(torch.optim.Adam(model.parameters(), 0.01))
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).float(), t).backward()
        optimizer.step()
    found = explain_divergence(
        model, optimizer, lambda: nn.functional.cross_entropy(model(x).float(), t)
    )
    assert (found.layer, found.where) == (
        "1",
        "evaluation",
    ) and "running statistics in torch.q52" in found.cause
    assert model.training and model[1].training
    model[1].float()
    for _ in range(60):
        model(x)
    assert (
        explain_divergence(
            model, optimizer, lambda: nn.functional.cross_entropy(model(x).float(), t)
        )
        is None
    )


def test_an_optimizer_of_another_library_is_named():
    """In posits, a sum below the smallest number rounds to that number."""
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(8, 2)).to(torch.posit8es1),
        torch.randn(64, 8).to(torch.posit8es1),
    )
    optimizer = DAdaptation(model.parameters())
    loss = nn.functional.cross_entropy(model(x).float(), torch.arange(64) % 2)
    loss.backward()
    optimizer.step()
    found = explain_divergence(model, optimizer)
    assert (
        "DAdaptation rounds after each operator" in found.cause
        and "LowPrecision(DAdaptation(...))" in found.advice
    )


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_a_curvature_of_0_names_the_optimizer():
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(torch.q52),
        torch.randn(64, 8).to(torch.q52),
    )
    optimizer = AdaHessian(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).float(), torch.arange(64) % 2).backward(
            create_graph=True
        )
        optimizer.step()
        if not all(p.isfinite().all() for p in model.parameters()):
            break
    found = explain_divergence(model, optimizer)
    assert (
        "AdaHessian divided by 0" in found.cause
        and "exp_hessian_diag_sq" in found.cause
        and "LowPrecision" in found.advice
    )
