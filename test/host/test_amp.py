"""torch.autocast leaves format tensors alone, because they are an explicit choice.
torch.amp.GradScaler works with them. test_autocast.py has format dtypes as autocast's own."""

import pytest
import torch
from conftest import parametrize_dtypes
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

KIND = torch.empty(0).device.type  # set by `--device`
every_dtype = parametrize_dtypes("posit16es2 q43 q52 posit32es2")
autocast_dtypes = pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])


def numbers(dtype, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def network(dtype):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 4),
        nn.LayerNorm(4),
    ]
    return nn.Sequential(*layers).to(dtype)


def step(dtype):
    model, x = network(dtype), numbers(dtype, 3, 1, 6, 6).requires_grad_()
    y = model(x)
    loss = F.cross_entropy(y, torch.tensor([0, 3, 1]))
    loss.backward()
    return [
        y,
        loss,
        x.grad,
        *(p.grad for p in model.parameters()),
        *(b for b in model.buffers() if b.is_floating_point()),
    ]


@autocast_dtypes
@every_dtype
def test_a_training_step_in_autocast_is_the_one_without(low, dtype):
    want = step(dtype)
    with torch.autocast(KIND, dtype=low):
        got = step(dtype)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is dtype and torch.equal(a, b)


# Operators of each of autocast's lists: lower precision, float32, widest. An integer operand brings
# autocast's kernel in.
OPERATORS = {
    "mm": lambda x: x @ x,
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None]),
    "linear": lambda x: F.linear(x, x),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None], x[None], x[None], attn_mask=torch.ones(4, 4, dtype=torch.bool)
    ),
    "mse_loss": lambda x: F.mse_loss(x, x + 1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 3, 1, 2])),
    "nll_loss": lambda x: F.nll_loss(x, torch.tensor([0, 3, 1, 2])),
    "prod": lambda x: x.prod(),
    "vector_norm": torch.linalg.vector_norm,
    "cdist": lambda x: torch.cdist(x, x + 1),
    "quantile": lambda x: torch.quantile(x, 0.3),
    "avg_pool3d": lambda x: F.avg_pool3d(x.reshape(1, 1, 4, 2, 2), 2),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, torch.tensor([0, 3, 1, 2])),
    "ctc_loss": lambda x: F.ctc_loss(
        F.log_softmax(x[:, None], -1), torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])
    ),
    "cat": lambda x: torch.cat([x, x]),
    "index_put": lambda x: torch.index_put(x, (torch.tensor([0, 1]),), x[2:]),
    "scatter_add": lambda x: torch.scatter_add(x, 0, torch.tensor([[0, 3, 1, 2]]), x),
}


@pytest.mark.parametrize("name", OPERATORS)
@autocast_dtypes
@every_dtype
def test_operators_keep_the_dtype_and_the_bits(name, low, dtype):
    x = numbers(dtype, 4, 4)
    torch.manual_seed(1)
    want = OPERATORS[name](x)
    torch.manual_seed(1)
    with torch.autocast(KIND, dtype=low):
        got = OPERATORS[name](x)
    assert got.dtype is dtype and torch.equal(got, want)


@autocast_dtypes
@every_dtype
def test_stock_layers_beside_format_layers(low, dtype):
    stock, ours, x = nn.Linear(3, 4), nn.Linear(4, 2).to(dtype), torch.randn(5, 3)
    with torch.autocast(KIND, dtype=low):
        hidden = stock(x)
        assert hidden.dtype is low
        y = ours(hidden.to(dtype))
        assert y.dtype is dtype
        with pytest.raises(RuntimeError, match="expected operands of one dtype"):
            ours(hidden)
    y.sum().backward()
    assert ours.weight.grad.dtype is dtype and stock.weight.grad.dtype is torch.float32


def test_what_a_user_casts_in_autocast_is_cast():
    x = numbers(torch.posit16es2, 3)
    with torch.autocast(KIND):
        assert x.float().dtype is torch.float32
        assert x.to(torch.bfloat16).dtype is torch.bfloat16
        assert torch.ones(3).to(torch.posit16es2).dtype is torch.posit16es2


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_in_autocast(reentrant):
    model, x = (
        network(torch.posit16es2).eval(),
        numbers(torch.posit16es2, 2, 1, 6, 6).requires_grad_(),
    )
    with torch.autocast(KIND):
        y = checkpoint(model, x, use_reentrant=reentrant)
    y.sum().backward()
    assert y.dtype is torch.posit16es2 and x.grad.dtype is torch.posit16es2


# ---- GradScaler ----


@every_dtype
def test_unscaled_gradients(dtype):
    model = nn.Linear(3, 1).to(dtype)
    optimizer, scaler = (
        torch.optim.SGD(model.parameters(), lr=0.5),
        torch.amp.GradScaler(KIND, init_scale=3.0),
    )
    scaler.scale(model(numbers(dtype, 2, 3)).sum()).backward()
    scaled = model.weight.grad.double().clone()
    scaler.unscale_(optimizer)
    inverse = torch.tensor(1 / 3.0, dtype=torch.float64).float().double()
    assert model.weight.grad.dtype is dtype
    assert torch.equal(model.weight.grad, (scaled * inverse).to(dtype))


@pytest.mark.parametrize("foreach", [False, True])
@every_dtype
def test_steps_and_what_is_not_finite(foreach, dtype):
    model = nn.Linear(3, 1).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, foreach=foreach)
    scaler = torch.amp.GradScaler(KIND, init_scale=4.0, growth_interval=2)
    for bad, scale in (
        (None, 4.0),
        (float("nan"), 2.0),
        (float("inf"), 1.0),
        (None, 1.0),
        (None, 2.0),
    ):
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        scaler.scale(model(numbers(dtype, 2, 3)).sum()).backward()
        if bad is not None:
            # A posit's infinity is NaR too, because it is cast (a finite number would become the
            # largest one).
            model.weight.grad[0, 0] = torch.tensor(bad)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert torch.equal(before, model.weight) == (bad is not None)
    scaler.load_state_dict(scaler.state_dict())


def test_scaled_tensors():
    scaler, x = torch.amp.GradScaler(KIND, init_scale=16.0), numbers(torch.posit16es2, 3)
    assert torch.equal(scaler.scale(x), x * 16)
    # As with half: of two numbers without dimensions, the scale has the wider dtype.
    assert (
        scaler.scale(x.sum()).dtype
        is torch.float32
        is torch.amp.GradScaler(KIND).scale(torch.ones((), dtype=torch.half)).dtype
    )
