"""Networks whose layers have several dtypes: functions on lists of tensors treat each dtype by
itself."""

import copy
import math

import pytest
import torch
from conftest import parametrize_dtypes
from torch import nn
from torch.nn import utils

import torch_dtypes

PAIRS = {
    "posit16es2 and e5m5": (torch.posit16es2, torch.e5m5),
    "posit16es2 and q43": (torch.posit16es2, torch.q43),
    "posit16es2 and float32": (torch.posit16es2, torch.float32),
    # The other dtype is the storage dtype of posit16es2.
    "bfloat16 and posit16es2": (torch.bfloat16, torch.posit16es2),
    "posit32es2 and posit16es2": (torch.posit32es2, torch.posit16es2),
}
OPTIMIZERS = {
    "SGD": lambda p, **o: torch.optim.SGD(p, 0.125, momentum=0.5, **o),
    "Adam": lambda p, **o: torch.optim.Adam(p, 0.125, **o),
    "AdamW": lambda p, **o: torch.optim.AdamW(p, 0.125, amsgrad=True, **o),
    "Adagrad": lambda p, **o: torch.optim.Adagrad(p, 0.125, **o),
}

pytestmark = pytest.mark.usefixtures("one_thread")


def parameters(pair):
    """Return five parameters with gradients, their dtypes by turns."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i, shape in enumerate([(3, 2), (4,), (2, 2), (5,), (1,)]):
        p = nn.Parameter(torch.randn(shape, generator=generator).to(PAIRS[pair][i % 2]))
        p.grad = torch.randn(shape, generator=generator).to(p.dtype)
        found.append(p)
    return found


def groups(tensors):
    dtypes = list(dict.fromkeys(t.dtype for t in tensors))
    return [[t for t in tensors if t.dtype is d] for d in dtypes]


def expect_same(found, expected):
    for f, e in zip(found, expected, strict=True):
        assert f.dtype is e.dtype and torch.equal(f.detach().double(), e.detach().double())


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    ("optimizer", "how"),
    [*((o, "foreach") for o in OPTIMIZERS), *((o, "fused") for o in OPTIMIZERS if o != "Adagrad")],
)
def test_optimizers(pair, optimizer, how):
    together = parameters(pair)
    before = copy.deepcopy(together)
    apart = copy.deepcopy(together)
    for p, q in zip(together, apart, strict=True):
        q.grad = p.grad.clone()
    optims = [OPTIMIZERS[optimizer](together, **{how: True})]
    optims += [OPTIMIZERS[optimizer](group, **{how: True}) for group in groups(apart)]
    for _ in range(3):
        for o in optims:
            o.step()
    expect_same(together, apart)
    assert all((p.double() != b.double()).any() for p, b in zip(together, before, strict=True))
    for p in together:
        assert all(
            s.dtype is p.dtype
            for s in optims[0].state[p].values()
            if isinstance(s, torch.Tensor) and s.dim()
        )


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping_by_value(pair, foreach):
    p = parameters(pair)
    expected = [x.grad.clamp(-0.5, 0.5) for x in p]
    utils.clip_grad_value_(p, 0.5, foreach=foreach)
    expect_same([x.grad for x in p], expected)
    assert max(x.grad.double().abs().max().item() for x in p) == 0.5


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("order", [2.0, 1.0, math.inf])
def test_clipping_by_norm(pair, foreach, order):
    p = parameters(pair)
    wide = torch.float64 if torch.posit32es2 in PAIRS[pair] else torch.float32
    total = torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(x.grad.to(wide), order) for x in p]), order
    )
    coefficient = (0.5 / (total + 1e-6)).clamp(max=1.0)
    expected = [x.grad * coefficient for x in p]
    found = utils.get_total_norm([x.grad for x in p], order, foreach=foreach)
    assert found.dtype is wide and not found.requires_grad
    torch.testing.assert_close(found, total)
    again = utils.get_total_norm((x.grad for x in p), order, foreach=foreach)
    assert torch.equal(again, found)
    clipped = utils.clip_grad_norm_(iter(p), 0.5, order, foreach=foreach)
    assert torch.equal(clipped, found)
    for x, e in zip(p, expected, strict=True):
        assert x.grad.dtype is x.dtype and e.dtype is x.dtype
        torch.testing.assert_close(x.grad.double(), e.double(), rtol=1e-5, atol=1e-7)


def test_norms_that_are_not_finite():
    p = parameters("posit16es2 and e5m5")
    p[1].grad[0] = math.inf
    grads = [x.grad for x in p]
    assert utils.get_total_norm(grads).isinf()
    with pytest.raises(
        RuntimeError, match=r"expected a finite total norm of order 2\.0, but got inf"
    ):
        utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    assert utils.get_total_norm([]).item() == 0.0


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("name", ["q43", "posit8es0", "posit16es2", "posit32es2", "e4m3fn"])
def test_total_norm_is_a_number_of_the_compute_dtype(name, foreach):
    dtype = torch_dtypes.dtype(name)
    wide = torch.float64 if name == "posit32es2" else torch.float32
    p = [nn.Parameter(torch.zeros(50_000, dtype=dtype)) for _ in range(2)]
    for x in p:
        x.grad = torch.full_like(x, 3)
    grads = [x.grad for x in p]
    for found in (
        utils.get_total_norm(grads, foreach=foreach),
        utils.get_total_norm(iter(grads)),
        utils.clip_grad_norm_(p, 1.0, foreach=foreach),
    ):
        assert found.dtype is wide
        torch.testing.assert_close(found.item(), 3 * math.sqrt(100_000), rtol=1e-6, atol=0)
    right = torch.tensor(3 * (1 / (3 * math.sqrt(100_000) + 1e-6)), dtype=torch.float64).to(dtype)
    assert all((x.grad == right).all() for x in p) and right != 0
    assert utils.get_total_norm(grads[0]).dtype is wide
    assert (
        utils.get_total_norm(g.float() for g in grads).dtype
        is utils.get_total_norm(grads[0].float()).dtype
        is torch.float32
    )


def test_a_total_norm_in_a_format_is_not_the_type_of_the_factor():
    x = nn.Parameter(torch.zeros(3, dtype=torch.q43))
    x.grad = torch.full_like(x, 240)
    # 0.5 / 240 is no number of q43
    utils.clip_grads_with_norm_(x, 0.5, torch.tensor(240.0, dtype=torch.q43))
    assert x.grad.tolist() == [0.5] * 3


def test_groups():
    group = torch.utils._foreach_utils._group_tensors_by_device_and_dtype
    a, b, c = (
        torch.ones(1, dtype=torch.posit16es2),
        torch.ones(2, dtype=torch.e5m5),
        torch.ones(3, dtype=torch.posit16es2),
    )
    device = a.device
    found = group([[a, b, c], [], [None, b, c]], with_indices=True)
    assert set(found) == {(device, torch.posit16es2), (device, torch.e5m5)}
    (first, empty, third), indices = found[device, torch.posit16es2]
    assert (
        first[0] is a
        and first[1] is c
        and empty == []
        and third[0] is None
        and third[1] is c
        and indices == [0, 2]
    )
    assert found[device, torch.e5m5][1] == [1] and group([[a, b]])[device, torch.e5m5][1] == []
    stock = group([[torch.ones(1), torch.ones(1).double()]])
    assert set(stock) == {(device, torch.float32), (device, torch.float64)}


@parametrize_dtypes("q43 posit8es1 posit16es2 posit32es2")
def test_lists_of_float32_beside_lists_of_format_tensors(dtype):
    """8-bit storage dtypes once raised."""
    found = []
    for foreach in (False, True):
        p = [nn.Parameter(torch.full((n,), 0.7)) for n in (1, 2)]
        optimizer = torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=foreach)
        for step in range(3):
            for x in p:
                x.grad = torch.full_like(x, 0.3 + step)
            optimizer.step()
            for x in p:
                optimizer.state[x]["momentum_buffer"] = optimizer.state[x]["momentum_buffer"].to(
                    dtype
                )
        found.append([*p, *(optimizer.state[x]["momentum_buffer"] for x in p)])
    for a, b in zip(*found, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b)
    model = nn.Linear(2, 2).to(dtype)
    average, first = (
        torch.optim.swa_utils.AveragedModel(model).float(),
        model.weight.detach().double(),
    )
    average.update_parameters(model)
    with torch.no_grad():
        model.weight.add_(1)
    average.update_parameters(model)
    # The first value is float32's. The average then uses all digits, and is rounded to float32
    # once.
    assert torch.equal(
        average.module.weight, first.float().double().lerp(model.weight.double(), 0.5).float()
    )


@pytest.mark.filterwarnings("ignore")
def test_compiled_clipping_of_stock_dtypes():
    p = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    for x in p:
        x.grad = torch.ones(3)
    compiled = torch.compile(utils.get_total_norm, backend="eager", fullgraph=True)
    assert torch.equal(compiled([x.grad for x in p]), utils.get_total_norm([x.grad for x in p]))
