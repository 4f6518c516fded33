"""Unchanged code in a format dtype raises where it does in bfloat16. Its results and gradients have
the format dtype where bfloat16 code has bfloat16."""

import copy
import io
import pickle
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DTYPES = (torch.posit16es2, torch.q43)


def ones(*shape, dtype, grad=True):
    return torch.ones(*shape, dtype=dtype, requires_grad=grad)


def twice(loss):
    loss.backward()
    loss.backward()


def stale(x):
    y = (x * 1).exp()
    z = y.mul(y)
    y.mul_(2)
    z.sum().backward()


# Requests that raise in bfloat16, for an x of three elements that requires a gradient and a dtype
# D.
ERRORS = {
    "the gradient of no scalar": lambda x, D: (x * 1).backward(),
    "a gradient of another shape": lambda x, D: x.sum().backward(ones(2, dtype=D)),
    "no graph": lambda x, D: ones(1, dtype=D, grad=False).backward(),
    "backward twice": lambda x, D: twice((x * x).sum()),
    "what was changed after it was saved": lambda x, D: stale(x),
    "grad of another shape": lambda x, D: setattr(x, "grad", torch.ones(2, dtype=D)),
    "grad of another dtype": lambda x, D: setattr(x, "grad", torch.ones(3)),
    "a leaf in place": lambda x, D: x.add_(1),
    "a view of a leaf in place": lambda x, D: x[0].fill_(1),
    "an unused input": lambda x, D: torch.autograd.grad(x.sum(), ones(1, dtype=D)),
    "inference tensors": lambda x, D: torch.inference_mode()(lambda: x * 1)().requires_grad_(),
    "a copy of what has a graph": lambda x, D: copy.deepcopy(x * 1),
    "numpy of what has a gradient": lambda x, D: x.numpy(),
    "one number of three": lambda x, D: x.item(),
    "a class that is not there": lambda x, D: F.cross_entropy(x[None], torch.tensor([7])),
    "a row that is not there": lambda x, D: F.embedding(torch.tensor([9]), x[:, None]),
    "an element that is not there": lambda x, D: x[5],
    "gather from nowhere": lambda x, D: torch.gather(x, 0, torch.tensor([9])),
    "an index of floats": lambda x, D: x[torch.ones(1, dtype=D)],
    "bits": lambda x, D: x & x,
    "channels": lambda x, D: F.conv2d(
        torch.ones(1, 2, 3, 3, dtype=D), torch.ones(1, 1, 2, 2, dtype=D)
    ),
    "one sample to normalise by": lambda x, D: nn.BatchNorm1d(3).to(D)(x[None]),
    "no leaf to optimise": lambda x, D: torch.optim.SGD([x * 1], lr=0.1),
    "another shape to load": lambda x, D: (
        nn.Linear(2, 2, bias=False).to(D).load_state_dict({"weight": torch.ones(3, 3, dtype=D)})
    ),
    "text": lambda x, D: torch.tensor(["a"], dtype=D),
    "a ragged list": lambda x, D: torch.tensor([[1], [1, 2]], dtype=D),
    "a negative size": lambda x, D: torch.empty(-1, dtype=D),
    "sizes that do not fit": lambda x, D: x @ torch.ones(4, dtype=D),
    "a negative deviation": lambda x, D: x.detach().clone().normal_(0, -1),
    "a distribution's arguments": lambda x, D: torch.distributions.Normal(
        x, -x, validate_args=True
    ),
    "more than there are": lambda x, D: torch.topk(x, 9),
    "the largest of none": lambda x, D: torch.max(torch.empty(0, dtype=D)),
    "float32 into a layer": lambda x, D: nn.Linear(3, 2).to(D)(torch.ones(1, 3)),
    "float32 into an LSTM": lambda x, D: nn.LSTM(3, 2).to(D)(torch.ones(2, 1, 3)),
    "float32 beside it in a product": lambda x, D: torch.einsum("i,ij", x, torch.ones(3, 2)),
    "into integers": lambda x, D: torch.ones(3, dtype=torch.long).add_(x.detach()),
    "float32 as out of a product": lambda x, D: torch.mm(
        x.detach()[None], x.detach()[:, None], out=torch.empty(1, 1, dtype=torch.long)
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_raises_in_bfloat16_raises(name):
    kinds = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
    for dtype in (torch.bfloat16, *DTYPES):
        with pytest.raises(kinds) as said:
            ERRORS[name](ones(3, dtype=dtype), dtype)
        # The engine names a tensor's type after the storage dtype: docs/limits.md.
        text = re.sub(r"operation: \[\w+ ", "", str(said.value))
        for words in (
            "INTERNAL ASSERT",
            "Unsupported TypeMeta",
            "please report",
            "uint8",
            "Float8",
        ):
            assert words not in text


def describe(value):
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.requires_grad, type(value)
    if isinstance(value, dict):
        return {k: describe(v) for k, v in value.items()}
    return [describe(v) for v in value] if isinstance(value, (list, tuple)) else value


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def gradient_penalty(D):
    critic, x = (
        nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1)).to(D),
        torch.randn(4, 3).to(D).requires_grad_(),
    )
    slope = torch.autograd.grad(critic(x).sum(), x, create_graph=True)[0]
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()
    return slope, penalty, gradients(critic), x.grad


def characters(D):
    words, rnn, out, hidden = (
        nn.Embedding(7, 4).to(D),
        nn.GRU(4, 5, 2).to(D),
        nn.Linear(5, 7).to(D),
        torch.zeros(2, 2, 5, dtype=D),
    )
    text = torch.randint(0, 7, (6, 2))
    y, hidden = rnn(words(text), hidden)
    loss = F.cross_entropy(out(y).view(-1, 7), text.view(-1))
    loss.backward()
    # For format tensors the norm is a float32 number.
    norm = nn.utils.clip_grad_norm_(rnn.parameters(), 0.25).to(D)
    return (
        y,
        hidden,
        loss,
        norm,
        gradients(rnn),
        gradients(words),
        torch.multinomial(out(y)[-1].div(0.8).exp(), 1),
    )


def averages(D):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(D)
    optimizer, x = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.randn(8, 4).to(D)
    plain = torch.optim.swa_utils.AveragedModel(model)
    moving = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    schedule = torch.optim.swa_utils.SWALR(optimizer, 0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        plain.update_parameters(model)
        moving.update_parameters(model)
        schedule.step()
    torch.optim.swa_utils.update_bn([x, x], plain)
    return plain(x), moving(x), plain.state_dict(), moving.state_dict()


def fuse(D):
    conv, norm = nn.Conv2d(1, 2, 3).to(D).eval(), nn.BatchNorm2d(2).to(D).eval()
    made = nn.utils.fusion.fuse_conv_bn_eval(conv, norm)
    return made(torch.ones(1, 1, 4, 4, dtype=D)), made.weight, made.bias


def ensemble(D):
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(D) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    x = torch.randn(5, 3).to(D)

    def call(p, b):
        return torch.func.functional_call(models[0], (p, b), (x,))

    return torch.func.vmap(call)(parameters, buffers), torch.func.vmap(
        torch.func.grad(lambda p, b: call(p, b).sum())
    )(parameters, buffers)


def whole_modules(D):
    model, file = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(D), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded, assigned = (
        torch.load(file, weights_only=False),
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to("meta"),
    )
    assigned.load_state_dict(model.state_dict(), assign=True)
    return [
        m.state_dict()
        for m in (loaded, assigned, copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
    ]


def policy_gradient(D):
    policy, states = (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(D),
        torch.randn(5, 4).to(D),
    )
    chances = torch.distributions.Categorical(F.softmax(policy(states), 1))
    action = chances.sample()
    reward = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).to(D)
    reward = (reward - reward.mean()) / (reward.std() + 1e-2)
    loss = torch.stack(
        [-p * r for p, r in zip(chances.log_prob(action), reward, strict=True)]
    ).sum()
    loss.backward()
    return action, reward, loss, gradients(policy), chances.entropy()


@pytest.mark.parametrize(
    "code",
    [gradient_penalty, characters, averages, fuse, ensemble, whole_modules, policy_gradient],
)
def test_dtypes_and_gradients_are_those_of_bfloat16(code):
    torch.manual_seed(0)
    want = str(describe(code(torch.bfloat16)))
    for dtype in DTYPES:
        assert str(describe(code(dtype))).replace(str(dtype), "torch.bfloat16") == want


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("corners", [True, False])
def test_the_gradient_of_affine_grid(dtype, corners):
    theta = torch.tensor([[[1.0, 0.25, 0.5], [0.75, 1.5, -0.5]]]).to(dtype).requires_grad_()
    exact = theta.detach().double().requires_grad_()
    upstream = torch.arange(24.0).reshape(1, 3, 4, 2).to(dtype)
    grids = [F.affine_grid(t, (1, 1, 3, 4), align_corners=corners) for t in (theta, exact)]
    grids[0].backward(upstream)
    grids[1].backward(upstream.double())
    assert (
        theta.grad.dtype is dtype
        and torch.equal(theta.grad, exact.grad.to(dtype))
        and torch.equal(grids[0], grids[1].to(dtype))
    )
