"""LowPrecision: loss scaling, constant and dynamic, and torch.amp.GradScaler beside it."""

from __future__ import annotations

import math

import pytest
import torch
from small_network import batch, bits, masters, network
from torch import nn

import torch_dtypes
from torch_dtypes.optim import DynamicScale, LowPrecision


@pytest.mark.parametrize("factors", [(2.0, 0.5), (4.0, 0.25), (3.0, 0.3)])
def test_a_dynamic_scale_moves_as_gradscaler_s(factors):
    growth, backoff = factors
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    ours = LowPrecision(
        torch.optim.SGD([p], lr=0.25), grad_scale=DynamicScale(1024.0, growth, backoff, 3)
    )
    stock = torch.optim.SGD([q], lr=0.25)
    scaler = torch.amp.GradScaler("cpu", 1024.0, growth, backoff, 3)
    bad = {4, 5, 9, 13, 20}
    for i in range(28):
        for optimizer, parameter, scale in ((ours, p, ours.scale), (stock, q, scaler.scale)):
            optimizer.zero_grad()
            scale((parameter * parameter).sum() / 3).backward()
            if i in bad:
                parameter.grad[1] = math.inf if i % 2 else math.nan
        ours.step()
        scaler.step(stock)
        scaler.update()
        assert torch.tensor(ours.loss_scale) == scaler.get_scale() and torch.equal(p, q)


# format, a gradient that overflows there, one just below
OVERFLOWS = [
    ("q52", math.inf, 57344.0),
    ("e4m3fn", 1000.0, 448.0),
    ("e4m3fn_saturate", 448.0, 416.0),
    ("posit8es1", 5000.0, 1024.0),
    ("posit8es1", math.nan, 1024.0),
    ("fixed4_3", 20.0, 15.75),
    ("e2m1finite", 7.0, 4.0),
    ("fp16", 70000.0, 65504.0),
]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("name", "bad", "good"), OVERFLOWS, ids=str)
def test_overflow_is_seen_in_every_format(name, bad, good, native):
    dtype = torch.float16 if name == "fp16" else torch_dtypes.dtype(name)
    p = nn.Parameter(torch.ones(3).to(dtype if native else torch.float32))
    optimizer = LowPrecision(
        torch.optim.SGD([p], lr=2.0**-12),
        grad=None if native else name,
        grad_scale=DynamicScale(init=4.0),
    )
    for value, scale in ((good, 4.0), (bad, 2.0), (-bad, 1.0), (good, 1.0)):
        optimizer.scale(torch.ones(()))
        before = next(iter(masters(optimizer)), p.detach()).clone()
        p.grad = torch.tensor([0.5, value, -0.5]).to(p.dtype)
        optimizer.step()
        assert optimizer.loss_scale == scale
        after = next(iter(masters(optimizer)), p.detach())
        assert torch.equal(before, after) == (value is not good)


def test_a_factor_that_the_loss_s_dtype_rounds_is_what_the_step_divides_by():
    """posit8es1 has no 2048, and 1000 is 1024 in q52."""
    for dtype, factor in ((torch.posit8es1, 2048.0), (torch.q52, 1000.0), (torch.float32, 1000.0)):
        p = nn.Parameter(torch.ones(1, dtype=dtype))
        optimizer = LowPrecision(
            torch.optim.SGD([p], lr=1.0),
            weight=None if dtype is not torch.float32 else "q43",
            grad_scale=factor,
        )
        optimizer.scale((p * 2.0**-5).sum()).backward()
        optimizer.step()
        assert 1 - masters(optimizer)[0].item() == pytest.approx(2.0**-5, rel=1e-6)
    optimizer.scale(torch.ones((), dtype=torch.float32))
    with pytest.raises(
        RuntimeError, match=r"got torch.q52, which rounds the factor of 1000 differently"
    ):
        optimizer.scale(torch.ones((), dtype=torch.q52))


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(torch.posit8es1, 4096), (torch.posit8es0, 64), (torch.q52, 57344)],
    ids=str,
)
def test_a_factor_beyond_the_loss_s_dtype_is_overflow(dtype, largest):
    """It is the first gradient of the backward pass, and saturates in silence."""
    p = nn.Parameter(torch.tensor([1.0], dtype=dtype))
    optimizer = LowPrecision(
        torch.optim.SGD([p], lr=2.0**-4), grad_scale=DynamicScale(init=2.0**16)
    )
    for _ in range(40):
        optimizer.zero_grad()
        before = masters(optimizer)[0].clone()
        factor = optimizer.loss_scale
        optimizer.scale((p * 2.0**-5).sum()).backward()
        optimizer.step()
        if not torch.equal(before, masters(optimizer)[0]):
            break
    assert factor < largest and before - masters(optimizer)[0] == 2.0**-9


@pytest.mark.parametrize(
    ("name", "factor", "becomes"),
    [("q43", 1024.0, "inf"), ("e4m3fn", 2.0**14, "nan"), ("q43", 2.0**-12, "0")],
)
def test_a_constant_factor_that_the_loss_s_dtype_lacks_is_refused(name, factor, becomes):
    """All gradients would be infinite, NaN or 0."""
    p = nn.Parameter(torch.ones(1, dtype=torch_dtypes.dtype(name)))
    optimizer = LowPrecision(torch.optim.SGD([p], lr=1.0), grad_scale=factor)
    with pytest.raises(
        ValueError,
        match=rf"holds, but got {factor:g}, which is {becomes} in torch.{name}; "
        r"compute the loss",
    ):
        optimizer.scale((p * 2.0**-5).sum())
    slope = 2.0**-7 if factor > 1 else 2.0**7
    optimizer.scale((p.float() * slope).sum()).backward()  # what it says to do
    optimizer.step()
    assert 1 - masters(optimizer)[0] == slope


@pytest.mark.parametrize("dtype", [torch.q52, torch.posit8es2], ids=str)
def test_gradscaler_beside(dtype):
    model = network(dtype)
    optimizer, scaler = (
        LowPrecision(torch.optim.SGD(model.parameters(), lr=0.1)),
        torch.amp.GradScaler("cpu", init_scale=4.0),
    )
    reference = network(dtype)
    plain = LowPrecision(torch.optim.SGD(reference.parameters(), lr=0.1))
    for i in range(4):
        x, t = batch(i, dtype)
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), t)).backward()
        if i == 2:
            model[0].weight.grad[0, 0] = torch.tensor(math.nan)
        scaler.unscale_(optimizer)
        if i != 2:
            plain.zero_grad()
            for p, r in zip(model.parameters(), reference.parameters(), strict=True):
                r.grad = p.grad.clone()
            plain.step()
        scaler.step(optimizer)
        scaler.update()
        assert all(map(torch.equal, bits(model), bits(reference)))
    assert scaler.get_scale() == 2.0


@pytest.mark.parametrize("number", [1e39, 1e-46, 1e-40])
def test_factors_of_which_float32_has_no_reciprocal_are_refused(number):
    with pytest.raises(
        ValueError, match="expected init as a number that float32 holds with its reciprocal"
    ):
        DynamicScale(init=number)
    with pytest.raises(
        ValueError, match="expected grad_scale as a number that float32 holds with its reciprocal"
    ):
        LowPrecision(torch.optim.SGD(network().parameters(), 0.1), grad_scale=number)


def test_a_dynamic_factor_ends_in_an_error_and_not_in_zeros():
    """Nothing would be learned from then on, without a word."""
    model = network(torch.float32)
    optimizer = LowPrecision(
        torch.optim.SGD(model.parameters(), 0.1), grad_scale=DynamicScale(init=2.0**-124)
    )
    with pytest.raises(
        RuntimeError, match="expected gradients that a smaller loss scale keeps finite"
    ):
        for _ in range(4):
            optimizer.scale(model(torch.ones(1, 4)).sum() * float("inf")).backward()
            optimizer.step()
    low = network(torch.q43)
    optimizer = LowPrecision(
        torch.optim.SGD(low.parameters(), 0.1), grad_scale=DynamicScale(init=2.0**-11)
    )
    with pytest.raises(ValueError, match=r"which is 0 in"):
        optimizer.scale(low(torch.ones(1, 4, dtype=torch.q43)).sum())
