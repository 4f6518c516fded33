"""Operators that only move elements: whole codes move, and only into the operator's places."""

import pytest
import torch
from conftest import codes_of, from_codes

import torch_dtypes

AT, M = (
    torch.tensor([2, 0, 2]),
    torch.tensor(
        [[True, False, True, False], [False, True, True, False], [True, True, False, False]]
    ),
)
CALLS = {
    "index": lambda x, y: x[AT],
    "index of two": lambda x, y: x[AT, AT],
    "mask": lambda x, y: x[M],
    "index_select": lambda x, y: x.index_select(1, AT),
    "gather": lambda x, y: x.gather(0, AT.expand(1, 3)),
    "take": lambda x, y: x.take(AT),
    "embedding": lambda x, y: torch.nn.functional.embedding(AT, x),
    "flip": lambda x, y: x.flip(0, 1),
    "roll": lambda x, y: x.roll(1, 0),
    "rot90": lambda x, y: x.rot90(),
    "repeat": lambda x, y: x.repeat(2, 1),
    "repeat_interleave": lambda x, y: x.repeat_interleave(AT, 0),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "tril": lambda x, y: x.tril(),
    "triu": lambda x, y: x.triu(1),
    "index_copy": lambda x, y: x.index_copy(0, AT[:2], y[:2]),
    "index_put": lambda x, y: x.index_put((AT[:2],), y[:2]),
    "scatter": lambda x, y: x.scatter(0, AT.expand(1, 3), y),
    "masked_select": lambda x, y: x.masked_select(M),
    "masked_scatter": lambda x, y: x.masked_scatter(M, y),
    "where": lambda x, y: torch.where(M, x, y),
    "slice_scatter": lambda x, y: x.slice_scatter(y[:1], 0, 1, 2),
    "select_scatter": lambda x, y: x.select_scatter(y[0], 0, 2),
    "diag_embed": lambda x, y: x.diag_embed(),
    "diagonal_scatter": lambda x, y: x.diagonal_scatter(y[:, 0]),
    "pixel_shuffle": lambda x, y: torch.nn.functional.pixel_shuffle(
        x[None, None].expand(1, 4, 3, 4), 2
    ),
    "setitem": lambda x, y: x.__setitem__(AT[:2], y[:2]) or x,
    "setitem mask": lambda x, y: x.__setitem__(M, y[M]) or x,
    "index_copy_": lambda x, y: x.index_copy_(0, AT[:2], y[:2]),
    "scatter_": lambda x, y: x.t().scatter_(1, AT[:2].expand(4, 2), y.t()),
    "masked_scatter_": lambda x, y: x.masked_scatter_(M, y),
    "tril_": lambda x, y: x.tril_(),
    "out": lambda x, y: torch.cat([x, y], out=x.new_empty(0)),
}


@pytest.mark.parametrize(
    "name", ["posit16es2", "q52", "e5m5", "tf32", "posit32es2", "fixed4_3", "q43_stochastic"]
)
@pytest.mark.parametrize("call", CALLS)
def test_codes_move_with_every_bit(call, name):
    dtype = torch_dtypes.dtype(name)
    bits = torch_dtypes.format_of(dtype).bits
    codes = torch.randint(0, 2**bits, (2, 3, 4), generator=torch.Generator().manual_seed(0))
    x, y = (from_codes(c, dtype) for c in codes)
    state = torch.get_rng_state()
    found = CALLS[call](x, y)
    if call != "out":  # a cast made it
        assert torch.equal(codes_of(found), CALLS[call](*codes))
        assert torch.equal(torch.get_rng_state(), state)
    assert found.dtype is dtype and found.stride() == CALLS[call](*torch.zeros(2, 3, 4)).stride()


def test_other_operands_are_converted_as_ever():
    x, y = torch.tensor([1.5, 2.5, 4.0]).to(torch.q43), torch.tensor([1.3, 2.7])
    assert torch.cat([x, y]).dtype is torch.float32
    assert torch.cat([x, torch.tensor([300])]).tolist() == [1.5, 2.5, 4.0, float("inf")]
    assert x.index_copy(0, AT[:2], y.to(torch.q43)).tolist() == [2.75, 2.5, 1.25]
    assert x.index_put((AT,), x, accumulate=True).tolist() == [4.0, 2.5, 10.0]
    x[AT[:1]] = 1.3
    assert x.tolist() == [1.5, 2.5, 1.25]
    with pytest.raises(RuntimeError, match="expected tensors of one number format"):
        torch.cat([x, x.to(torch.posit16es2)])
    with pytest.raises(IndexError):
        x[torch.tensor([7])]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x.index_copy_(0, AT[:2], x[:2])


def test_gradients_of_what_moved():
    x = torch.tensor(
        [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.posit16es2, requires_grad=True
    )
    (torch.cat([x[AT], x.flip(0)]) * x.detach()[:1]).sum().backward()
    assert x.grad.dtype is torch.posit16es2 and x.grad.tolist() == [
        [2.0, 4.0],
        [1.0, 2.0],
        [3.0, 6.0],
    ]
    y = torch.zeros(3, 2, dtype=torch.posit16es2)
    y[AT[:2]] = x[:2] * 2
    y.sum().backward()
    assert x.grad.tolist() == [[4.0, 6.0], [3.0, 4.0], [3.0, 6.0]]


SELECTING = {
    "unique_consecutive": torch.unique_consecutive,
    "unique_consecutive of rows": lambda x: torch.unique_consecutive(x.reshape(4, 1), dim=0),
    "diag": lambda x: torch.diag(x.reshape(2, 2)),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x[:1], (1,), (1,)),
    "slice_copy": lambda x: torch.slice_copy(x, 0, 1, 3),
    "split_copy": lambda x: torch.split_copy(x, 2)[1],
    "expand_copy": lambda x: torch.expand_copy(x, (2, 4)),
    "permute_copy": lambda x: torch.permute_copy(x.reshape(2, 2), (1, 0)),
    "narrow_copy": lambda x: torch.narrow_copy(x, 0, 1, 2),
    "functionalized": lambda x: torch.func.functionalize(
        lambda y: y[1:3].view(2, 1), remove="mutations_and_views"
    )(x),
}


@pytest.mark.parametrize("f", SELECTING.values(), ids=SELECTING)
@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_what_only_moves_rounds_nothing(f):
    x = torch.tensor([0.5, 2.5, 2.5, 4.5])
    expected = f(x)
    for dtype in (torch.q43, torch.posit16es2):
        own = x.to(dtype)
        with torch_dtypes.rounding("up_down"):  # this mode moves every rounded result
            state = torch.get_rng_state()
            assert f(own).tolist() == expected.tolist()
            assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "f",
    [lambda x: x[1:3], lambda x: x[2], lambda x: x.reshape(2, 2).diagonal()],
    ids=["slice", "select", "diagonal"],
)
@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_gradients_that_only_move_round_nothing(f):
    x = torch.tensor([0.5, 2.5, 2.5, 4.5]).to(torch.q43).requires_grad_()
    y = f(x)
    slope = torch.ones_like(y).detach()
    with torch_dtypes.rounding("up_down"):
        (found,) = torch.autograd.grad(y, x, slope)
    plain = x.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(f(plain).sum(), plain)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 6, 0), (0, 6, 2, 2)])
@pytest.mark.parametrize(
    "shuffle",
    [
        torch.channel_shuffle,
        torch.native_channel_shuffle,
        torch.nn.functional.native_channel_shuffle,
    ],
)
def test_shuffled_channels_of_a_batch_without_elements(shuffle, shape):
    x = torch.arange(torch.tensor(shape).prod()).reshape(shape).float()
    own = x.to(torch.posit16es2).requires_grad_()
    found = shuffle(own, 3)
    assert found.dtype is torch.posit16es2 and found.shape == x.shape
    assert found.tolist() == shuffle(x, 3).tolist()
    found.backward(x.to(torch.posit16es2))
    assert own.grad.tolist() == shuffle(x, shape[1] // 3).tolist()
