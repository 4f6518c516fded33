"""An eps that is 0 in the parameters' dtype is raised inside the step."""

from __future__ import annotations

import new_process
import pytest
import torch
from conftest import parametrize_dtypes

import torch_dtypes

OPTIMIZERS = {
    "Adadelta": {},
    "Adagrad": {},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {},
    "Adafactor": {"eps": (1e-8, 1e-3)},
}


def train(optimizer, dtype, ways, steps=8, **options):
    """A parameter whose gradients are 0."""
    p = torch.tensor([1.0, -2.0, 0.5], dtype=dtype, requires_grad=True)
    optim = getattr(torch.optim, optimizer)(
        [p], **{"eps": 1e-8, **OPTIMIZERS[optimizer], **ways, **options}
    )
    for _ in range(steps):
        p.grad = torch.zeros_like(p)
        optim.step()
    return p.detach(), optim


@pytest.mark.parametrize("ways", [{}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@parametrize_dtypes("q52 q43 e5m7")
def test_zero_gradients_leave_the_parameter(dtype, optimizer, ways):
    if "fused" in ways and optimizer not in ("Adagrad", "Adam", "AdamW"):
        pytest.skip("stock has no fused step of it")
    if "fused" in ways and optimizer == "Adagrad" and torch.ones(()).is_cuda:
        pytest.skip("stock has no fused step of it on a GPU")
    p, optim = train(optimizer, dtype, ways)
    assert p.isfinite().all()
    if optimizer != "AdamW":  # which decays the weights
        assert p.tolist() == [1.0, -2.0, 0.5]
    assert optim.param_groups[0]["eps"] == OPTIMIZERS[optimizer].get("eps", 1e-8)


@parametrize_dtypes("q52 float32 bfloat16 posit8es0")
def test_an_eps_that_the_dtype_has_stays(request, dtype):
    """Bit for bit, as with the one that is given; posits round nothing to 0."""

    def run():
        p = torch.tensor([1.0, -2.0, 0.5], dtype=dtype, requires_grad=True)
        optim = torch.optim.Adam([p], eps=2.0**-15 if dtype is torch.q52 else 1e-8)
        for k in range(5):
            p.grad = torch.tensor([0.1, 0.5, k / 8], dtype=dtype)
            optim.step()
        return p.detach()

    raised = run()
    request.getfixturevalue("eps_as_given")
    assert torch.equal(raised, run())


def test_parameters_of_several_dtypes():
    """Each format has its own eps; stock parameters keep the one that was given."""

    def run(dtypes):
        generator = torch.Generator().manual_seed(0)
        values = [torch.randn(4, generator=generator) for _ in range(6)]
        p = [
            v.to(d).requires_grad_()
            for v, d in zip(values[:3], (torch.q52, torch.float32, torch.e5m7), strict=True)
        ]
        optim = torch.optim.Adam([t for t in p if t.dtype in dtypes])
        for _ in range(3):
            for t, g in zip(p, values[3:], strict=True):
                t.grad = g.to(t.dtype)
            optim.step()
        return p

    together = run((torch.q52, torch.float32, torch.e5m7))
    for i, dtype in enumerate((torch.q52, torch.float32, torch.e5m7)):
        assert torch.equal(together[i], run((dtype,))[i])


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "NAdam", "RMSprop", "Adagrad"])
def test_added_to_a_root_it_is_raised_to_the_root_of_the_smallest_number(optimizer):

    def run(eps):
        p = torch.tensor([1.0, -2.0, 0.5], dtype=torch.q52, requires_grad=True)
        optim = getattr(torch.optim, optimizer)([p], lr=0.125, eps=eps)
        for k in range(4):
            p.grad = torch.tensor([2.0**-9, 2.0**-7, (k - 2) / 8], dtype=torch.q52)
            optim.step()
        return p.detach()

    assert torch.equal(run(1e-8), run(2.0**-8)) and not torch.equal(run(1e-8), run(2.0**-12))


def test_adam_learns_in_small_floats():
    """With the smallest number as eps the loss rises: squares of gradients underflow and the steps
    are up to 1 / root(smallest) too long."""
    torch.manual_seed(0)
    x, t = torch.randn(64, 8), torch.randint(0, 3, (64,))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to(
        torch.e5m5
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(model(x.to(torch.e5m5)), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.whole
def test_said_once_a_process():
    code = (
        "import torch, warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    for dtype in (torch.float32, torch.posit16es2, torch.q52, torch.q43):\n"
        "        p = torch.ones(2, dtype=dtype, requires_grad=True); o = torch.optim.Adam([p])\n"
        "        p.grad = torch.ones_like(p); o.step(); o.step()\n"
        "print(len(seen), seen[0].category.__name__, str(seen[0].message))\n"
    )
    said = new_process.run("-c", code, check=True).stdout
    assert (
        said.startswith("1 UserWarning the optimizer's eps of 1e-08 is 0 in torch.q52")
        and "optim.LowPrecision" in said
    )


@pytest.mark.parametrize("name", ["q52_stochastic", "e5m5_up_down"])
def test_asking_draws_no_random_word(name):
    """Else the first step of a process would differ from the same step of a later one, and eps be 0
    or not by chance."""
    from torch_dtypes.optim import eps

    dtype = torch_dtypes.dtype(name)
    eps.is_zero.cache_clear()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    eps.with_eps(dtype, {"eps": 1e-8}, "adam")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("optimizer", ["Adadelta", "Adagrad", "Adam", "Adamax", "NAdam", "RMSprop"])
@pytest.mark.parametrize("mode", torch_dtypes.ROUNDING_MODES)
def test_an_eps_that_a_mode_may_round_to_0(optimizer, mode):
    """1e-5 is between half of q52's smallest number and that number: to nearest it is that."""
    for dtype in (torch_dtypes.with_rounding(torch.q52, mode), torch.q52):
        with torch_dtypes.rounding(mode):
            p = torch.nn.Parameter(torch.ones(200, dtype=dtype))
            optim = getattr(torch.optim, optimizer)([p], eps=1e-5)
            for _ in range(4):
                p.grad = torch.zeros_like(p)
                optim.step()
        assert not p.isnan().any()
