"""LowPrecision around optimizers that call a closure within their step: LBFGS, and a user's own."""

import io

import pytest
import torch
from conftest import parametrize_dtypes
from small_network import batch, bits, network
from torch import nn

from torch_dtypes import chop
from torch_dtypes.optim import LowPrecision

LBFGS = torch.optim.LBFGS
KINDS = {
    "step": dict(lr=0.3, history_size=3, max_iter=4),
    "search": dict(line_search_fn="strong_wolfe", max_iter=4),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def evaluation(model, optimizer, seed=0, calls=None):
    x, t = batch(seed)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(model[0].weight.dtype)).float(), t)
        (optimizer.scale(loss) if isinstance(optimizer, LowPrecision) else loss).backward()
        if calls is not None:
            calls.append(loss.item())
        return loss

    return closure


@every_kind
def test_float32_has_the_bits_of_the_optimizer_alone(kind):
    a, b = network(torch.float32), network(torch.float32)
    plain, wrapped = (
        LBFGS(a.parameters(), **KINDS[kind]),
        LowPrecision(LBFGS(b.parameters(), **KINDS[kind])),
    )
    for seed in range(3):
        assert torch.equal(
            plain.step(evaluation(a, plain, seed)), wrapped.step(evaluation(b, wrapped, seed))
        )
        assert all(map(torch.equal, a.parameters(), b.parameters()))


@every_kind
@parametrize_dtypes("q52 posit8es2 posit16es2")
def test_the_model_has_rounded_weights_at_each_call(dtype, kind):
    """By hand: LBFGS over float32 tensors, whose closure writes their rounding into the model and
    takes its gradients, divided."""
    model, hand, calls, expected = network(dtype), network(dtype), [], []
    wrapped = LowPrecision(LBFGS(model.parameters(), **KINDS[kind]), grad="q52", grad_scale=16)
    masters = [p.detach().float().requires_grad_() for p in hand.parameters()]
    alone = LBFGS(masters, **KINDS[kind])
    for seed in range(3):
        x, t = batch(seed)

        def closure(x=x, t=t):
            with torch.no_grad():
                for p, w in zip(hand.parameters(), masters, strict=True):
                    p.copy_(w)
            hand.zero_grad()
            loss = nn.functional.cross_entropy(hand(x.to(dtype)).float(), t)
            (loss * 16).backward()
            for p, w in zip(hand.parameters(), masters, strict=True):
                w.grad = chop(p.grad.float(), "q52") / 16
            expected.append(loss.item())
            return loss

        wrapped.step(evaluation(model, wrapped, seed, calls))
        alone.step(closure)
        for p, w in zip(model.parameters(), masters, strict=True):
            assert torch.equal(wrapped._masters[p], w) and torch.equal(
                p.float(), w.detach().to(dtype).float()
            )
    assert calls == expected and len(calls) > 3 and calls[-1] < calls[0]


WAYS = {
    "masters": dict(state=torch.q52),
    "accumulators": dict(master="e6m9", state="e6m9", grad_scale=64),
    "none": dict(master=None, state="posit8es2"),
    "blocks": dict(state="mxfp8_e4m3"),
}


@every_kind
@pytest.mark.parametrize("way", WAYS)
def test_a_run_resumes_bit_for_bit(way, kind):
    def build():
        model = network(torch.q52)
        return model, LowPrecision(LBFGS(model.parameters(), **KINDS[kind]), **WAYS[way])

    model, optimizer = build()
    for seed in range(2):
        optimizer.step(evaluation(model, optimizer, seed))
    kept = next(iter(optimizer.state.values()))
    if way == "masters":
        assert {
            t.dtype
            for t in (kept["d"], kept["prev_flat_grad"], *kept["old_dirs"], *kept["old_stps"])
        } == {torch.q52}
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict(), torch.get_rng_state()), file)
    file.seek(0)
    of_model, of_optimizer, random = torch.load(file, weights_only=True)
    again, resumed = build()
    again.load_state_dict(of_model), resumed.load_state_dict(of_optimizer)
    results = []
    for m, o in ((model, optimizer), (again, resumed)):
        torch.set_rng_state(random)
        for seed in (2, 3):
            o.step(evaluation(m, o, seed))
        results.append(bits(m))
    assert all(map(torch.equal, *results))


def test_weights_of_a_format_in_float32_without_masters():
    model = network(torch.float32)
    optimizer = LowPrecision(LBFGS(model.parameters(), **KINDS["step"]), weight="q43", master=None)
    calls: list = []
    for seed in range(2):
        optimizer.step(evaluation(model, optimizer, seed, calls))
    assert all(torch.equal(p, chop(p, "q43")) for p in model.parameters()) and calls[-1] < calls[0]


class Sharpness(torch.optim.SGD):
    """Looks at a point nearby, and steps by the gradient there: Foret et al., arXiv 2010.01412."""

    def step(self, closure):
        with torch.enable_grad():
            loss = closure()
        params = [p for group in self.param_groups for p in group["params"]]
        with torch.no_grad():
            before = [p.clone() for p in params]
            for p in params:
                p.add_(p.grad, alpha=0.5)
        with torch.enable_grad():
            closure()
        with torch.no_grad():
            for p, old in zip(params, before, strict=True):
                p.copy_(old)
        super().step()
        return loss


def test_a_user_s_optimizer_that_calls_twice():
    model, plain, calls = network(torch.q52), network(torch.float32), []
    with torch.no_grad():
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            q.copy_(p)
    optimizer, alone = (
        LowPrecision(Sharpness(model.parameters(), lr=0.5)),
        Sharpness(plain.parameters(), lr=0.5),
    )
    optimizer.step(evaluation(model, optimizer, 0, calls)), alone.step(evaluation(plain, alone))
    assert len(calls) == 2 and calls[1] > calls[0]  # uphill
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert (p.float() - q).norm() < 0.3 * q.norm()


def test_what_cannot_be_run():
    model = network(torch.q52)
    with pytest.raises(ValueError, match="expected a constant grad_scale or None for LBFGS"):
        LowPrecision(LBFGS(model.parameters()), grad_scale="dynamic")
    optimizer = LowPrecision(LBFGS(model.parameters()), grad_scale=8)
    for closure, message in (
        (None, "which LBFGS calls within a step, but got None"),
        (3, "but got 3"),
        (lambda m: m, "closure without arguments"),
    ):
        with pytest.raises(TypeError, match=message):
            optimizer.step(closure)
    x, t = batch(0)
    with pytest.raises(
        RuntimeError, match="expected gradients of a loss scaled by 8, but got a step without one"
    ):
        optimizer.step(lambda: nn.functional.cross_entropy(model(x).float(), t))
    groups = [list(group["params"]) for group in optimizer.param_groups]
    assert all(p is q for p, q in zip(groups[0], model.parameters(), strict=True))
    optimizer.step(evaluation(model, optimizer))  # goes on
