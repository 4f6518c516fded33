"""Infinities written as numbers in formats without infinities: filling, comparing, masking;
saturating posits."""

import math

import new_process
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_dtypes

INF = math.inf
# Formats without an infinity.
WITHOUT = ["posit16es2", "posit8es0", "posit32es2", "posit16es1_underflow", "e4m3fn", "e4m3fnuz"]
SATURATING = ["e4m3fn_saturate", "e2m1finite", "fixed8_8", "posit16es2_saturate"]
WITH = ["q43", "e5m5", "tf32"]
without_infinity = pytest.mark.parametrize("name", WITHOUT)


def outermost(name):
    info = torch.finfo(torch_dtypes.dtype(name))
    return {INF: info.max, -INF: info.min}


MASK = torch.tensor([[True, False, False], [False, True, True]])


def ones(d):
    return torch.ones(2, 3, dtype=d)


def set_item(d, index, number):
    x = ones(d)
    x[index] = number
    return x


# Each makes a tensor in which some places are filled with v, and finite numbers are 1 or 0.
FILLS = {
    "tensor": lambda d, v: torch.tensor(v, dtype=d),
    "tensor of a list": lambda d, v: torch.tensor([[1.0, v], [v, 0.0]], dtype=d),
    "as_tensor": lambda d, v: torch.as_tensor([1.0, v], dtype=d),
    "asarray": lambda d, v: torch.asarray([1.0, v], dtype=d),
    "scalar_tensor": lambda d, v: torch.scalar_tensor(v, dtype=d),
    "new_tensor": lambda d, v: ones(d).new_tensor([v, 1.0]),
    "new": lambda d, v: ones(d).new([v, 1.0]),
    "full": lambda d, v: torch.full((2, 3), v, dtype=d),
    "full of a tensor": lambda d, v: torch.full((2, 3), torch.tensor(v), dtype=d),
    "full_like": lambda d, v: torch.full_like(ones(d), v),
    "full_like of stock": lambda d, v: torch.full_like(torch.ones(3), v, dtype=d),
    "new_full": lambda d, v: ones(d).new_full((2,), v),
    "fill_": lambda d, v: ones(d).fill_(v),
    "fill": lambda d, v: torch.fill(ones(d), v),
    "fill_ of a tensor": lambda d, v: ones(d).fill_(torch.tensor(v)),
    "masked_fill": lambda d, v: ones(d).masked_fill(MASK, v),
    "masked_fill_": lambda d, v: ones(d).masked_fill_(MASK, v),
    "masked_fill of a tensor": lambda d, v: ones(d).masked_fill(MASK, torch.tensor(v)),
    "index_fill": lambda d, v: ones(d).index_fill(1, torch.tensor([0, 2]), v),
    "index_fill_": lambda d, v: ones(d).index_fill_(1, torch.tensor([0, 2]), v),
    "fill_diagonal_": lambda d, v: ones(d).fill_diagonal_(v),
    "setitem": lambda d, v: set_item(d, (0, 1), v),
    "setitem of a slice": lambda d, v: set_item(d, (slice(None), 1), v),
    "setitem of a mask": lambda d, v: set_item(d, MASK, v),
    "setitem of indices": lambda d, v: set_item(d, torch.tensor([1]), v),
    "where": lambda d, v: torch.where(MASK, v, ones(d)),
    "where, other": lambda d, v: ones(d).where(MASK, v),
    "where of a tensor": lambda d, v: torch.where(MASK, ones(d), torch.tensor(v)),
    "pad": lambda d, v: F.pad(ones(d), (1, 2), value=v),
    "constant_pad_nd": lambda d, v: torch.constant_pad_nd(ones(d), (1, 0, 0, 1), v),
    "ConstantPad1d": lambda d, v: nn.ConstantPad1d(1, v)(ones(d)),
    "scatter": lambda d, v: ones(d).scatter(1, torch.tensor([[0], [2]]), v),
    "scatter_": lambda d, v: ones(d).scatter_(1, torch.tensor([[0], [2]]), v),
    "clamp above": lambda d, v: ones(d).clamp(**({"max": v} if v < 0 else {"min": v})),
    "clamp_": lambda d, v: ones(d).clamp_(**({"max": v} if v < 0 else {"min": v})),
    "clip": lambda d, v: torch.clip(ones(d), v, v),
    "threshold": lambda d, v: F.threshold(ones(d), 2.0, v),
    "nan_to_num": lambda d, v: torch.nan_to_num(torch.tensor([1.0, math.nan], dtype=d), nan=v),
    "pad_sequence": lambda d, v: nn.utils.rnn.pad_sequence(
        [torch.ones(3, dtype=d), torch.ones(2, dtype=d)], padding_value=v
    ),
    "triu of full": lambda d, v: torch.triu(torch.full((3, 3), v, dtype=d), diagonal=1),
    "tril_ of full": lambda d, v: torch.full((3, 3), v, dtype=d).tril_(),
    "_foreach_clamp_min": lambda d, v: (
        torch._foreach_clamp_min([ones(d)], v)[0]
        if v > 0
        else torch._foreach_clamp_max([ones(d)], v)[0]
    ),
    "_foreach_maximum of a list": lambda d, v: (
        torch._foreach_maximum if v > 0 else torch._foreach_minimum
    )([ones(d)], [v])[0],
    "vmap": lambda d, v: torch.vmap(lambda x, m: x.masked_fill(m, v))(ones(d), MASK),
    "vmap of where": lambda d, v: torch.vmap(lambda x, m: torch.where(m, x, v))(ones(d), MASK),
    "vmap of full_like": lambda d, v: torch.vmap(lambda x: torch.full_like(x, v))(ones(d)),
    "grad": lambda d, v: (
        torch.func.grad_and_value(lambda x: x.masked_fill(MASK, v).amax())(ones(d))[1]
        if v > 0
        else ones(d).fill_(v)
    ),
    "functionalize": lambda d, v: torch.func.functionalize(lambda x: x.masked_fill_(MASK, v))(
        ones(d)
    ),
    "with a gradient": lambda d, v: ones(d).requires_grad_().masked_fill(MASK, v).detach(),
    "clamp with a gradient": lambda d, v: ones(d).requires_grad_().clamp(v, v).detach(),
}


@without_infinity
@pytest.mark.parametrize("v", [INF, -INF])
@pytest.mark.parametrize("fill", FILLS)
def test_a_number_that_is_put_into_a_tensor_is_the_outermost_one(fill, v, name):
    made = FILLS[fill](torch_dtypes.dtype(name), v)
    values = made.double()
    assert made.dtype is torch_dtypes.dtype(name) and values.isfinite().all()
    filled = values == outermost(name)[v]
    assert filled.any() and ((values == 0) | (values == 1))[~filled].all()


@pytest.mark.parametrize("name", WITH + SATURATING)
@pytest.mark.parametrize("fill", FILLS)
def test_other_formats_are_as_ever(fill, name):
    d = torch_dtypes.dtype(name)
    for v in (INF, -INF):
        if fill != "nan_to_num" or name not in ("e2m1finite", "fixed8_8"):  # these have no NaN
            expected = v if name in WITH else outermost(name)[v]
            assert (FILLS[fill](d, v).double() == expected).any()


def test_tensors_are_cast_by_the_standard():
    for name in WITHOUT:
        d = torch_dtypes.dtype(name)
        wide = torch.tensor([INF, -INF, 1.0])
        for cast in (
            wide.to(d),
            torch.tensor(wide, dtype=d),
            torch.asarray(wide.numpy(), dtype=d),
            ones(d).new_zeros(3).copy_(wide),
        ):
            assert cast.isnan().tolist() == [True, True, False]
        x = torch.zeros(3, dtype=d)
        x[:] = wide
        assert x.isnan().tolist() == [True, True, False]
        assert (ones(d) / 0).isnan().all() or name.startswith("e4m3fn")


PROGRAM = """
import warnings, torch, torch_dtypes

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    x = torch.zeros(3, dtype=torch.q43).fill_(float("inf"))
    y = torch.zeros(3, dtype=torch.posit16es2)
    assert (
        not (y == float("inf")).any()
        and not (y > float("inf")).any()
        and y.clamp(min=float("-inf")).sum() == 0
    )
    assert not seen
    y[0] = float("-inf")
    assert len(seen) == 1, seen
    y.masked_fill(y == 0, float("inf"))
    torch.tensor([float("inf")], dtype=torch.posit8es0)
    assert len(seen) == 1
    text = str(seen[0].message)
    assert issubclass(seen[0].category, UserWarning)
    assert (
        "torch.posit16es2 has no infinity: -inf put into a tensor" in text
        and "Casts of tensors make it NaN" in text
    ), text
"""


def test_one_notice_a_process():
    new_process.run("-c", PROGRAM, check=True)


# ---- comparisons ----

COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", WITHOUT + SATURATING)
def test_comparisons_find_what_was_filled(name):
    d = torch_dtypes.dtype(name)
    for v in (INF, -INF):
        x = ones(d).masked_fill(MASK, v)
        assert (
            torch.equal(x == v, MASK) and torch.equal(v == x, MASK) and torch.equal(x != v, ~MASK)
        )
        assert torch.equal(torch.eq(x, v), MASK) and torch.equal(torch.isin(x, v), MASK)
        assert torch.equal(x < INF, MASK & torch.tensor(v < 0) | ~MASK) and torch.equal(
            x > -INF, MASK & torch.tensor(v > 0) | ~MASK
        )
        assert torch.equal(torch.vmap(lambda row, v=v: row == v)(x), MASK)
        for op in COMPARISONS:
            number = outermost(name)[v]
            assert torch.equal(getattr(torch, op)(x, v), getattr(torch, op)(x, number))
            assert torch.equal(
                getattr(x.clone(), op + "_")(v), getattr(x.clone(), op + "_")(number)
            )
        # These functions look at the stored values.
        assert x.isfinite().all() and not x.isinf().any() and not x.isneginf().any()


def test_comparisons_where_infinities_are_numbers():
    x = torch.tensor([INF, 240.0, -INF], dtype=torch.q43)
    assert (x == INF).tolist() == [True, False, False] and (x > -INF).tolist() == [
        True,
        True,
        False,
    ]


# ---- uses of masks ----


@without_infinity
def test_softmax_of_masked_scores(name):
    d = torch_dtypes.dtype(name)
    scores = torch.tensor([[0.5, -1.0, 2.0], [1.0, 1.5, -0.5]], dtype=d).requires_grad_()
    weights = scores.masked_fill(MASK, -INF).softmax(-1)
    wide = scores.detach().double().requires_grad_()
    expected = wide.masked_fill(MASK, -INF).softmax(-1)
    near = 4 * torch.finfo(d).eps
    assert weights.isfinite().all() and (weights.double() - expected).abs().max() < near
    weight = torch.tensor([[1.0, 2.0, 4.0]])
    (weights * weight.to(d)).sum().backward()
    (expected * weight).sum().backward()
    assert (scores.grad[MASK] == 0).all() and (
        scores.grad.double() - wide.grad
    ).abs().max() < 2 * near
    logs = scores.detach().masked_fill(MASK, -INF).log_softmax(-1)
    assert not logs.isnan().any() and (logs[MASK] < logs[~MASK].min()).all()


@without_infinity
def test_filled_places_come_last(name):
    d = torch_dtypes.dtype(name)
    loss = torch.tensor([0.5, 2.0, 1.0, 1.5], dtype=d)
    loss[torch.tensor([False, True, False, False])] = -INF
    assert loss.sort(descending=True)[1].tolist() == [3, 2, 0, 1]
    assert loss.topk(2)[0].tolist() == [1.5, 1.0] and loss.argmax() == 3 and loss.max() == 1.5
    loss[0] = INF
    assert loss.argmax() == 0 and loss.min() == torch.finfo(d).min


@without_infinity
def test_gradients_of_filling(name):
    d = torch_dtypes.dtype(name)
    for fill in (
        lambda x: x.masked_fill(MASK, -INF),
        lambda x: torch.where(MASK, -INF, x),
        lambda x: torch.where(MASK, torch.tensor(-INF), x),
    ):
        x = ones(d).requires_grad_()
        fill(x).amax(-1).sum().backward()
        assert x.grad.dtype is d and (x.grad[MASK] == 0).all() and x.grad.sum() == 2


# ---- masks stored in modules ----


class Masked(nn.Module):
    """Attention as in language models: the causal mask is a buffer, or a parameter without
    gradients."""

    def __init__(self, held="buffer"):
        super().__init__()
        mask = torch.full((3, 3), -INF).triu(1)
        self.mask = nn.Buffer(mask) if held == "buffer" else nn.Parameter(mask, requires_grad=False)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        scores = x @ x.transpose(-2, -1) + self.mask
        return self.attention(x, x, x, attn_mask=self.mask)[0], scores.softmax(-1)


@pytest.mark.filterwarnings("ignore:an infinite number")
@without_infinity
@pytest.mark.parametrize("held", ["buffer", "parameter"])
@pytest.mark.parametrize("how", ["to", "type", "load", "assign"])
def test_a_mask_that_a_module_holds_masks_in_a_dtype_without_infinities(name, how, held):
    dtype, x = (
        torch_dtypes.dtype(name),
        torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(1)) / 4,
    )
    model = Masked(held)
    if how in ("load", "assign"):
        state, model = model.state_dict(), Masked(held).to(dtype)
        state = {key: t if key == "mask" else t.to(dtype) for key, t in state.items()}
        model.load_state_dict(state, assign=how == "assign")
        model = model.to(dtype)
    else:
        model = model.type(dtype) if how == "type" else model.to(dtype=dtype)
    most = torch.finfo(dtype).max
    assert (
        model.mask.dtype is dtype
        and model.mask[0].tolist() == [0, -most, -most]
        and not model.mask.isnan().any()
    )
    attended, weights = model(x.to(dtype))
    assert not attended.isnan().any() and not weights.isnan().any()


def test_buffers_in_dtypes_with_infinities():
    assert (
        Masked().to(torch.q43).mask[0].tolist() == [0, -INF, -INF]
        and Masked().to(torch.bfloat16).mask.isinf().sum() == 3
    )


# ---- posits whose infinities saturate everywhere ----


def test_saturating_posits_have_names_that_last(tmp_path):
    d = torch_dtypes.posit_format(16, 2, infinity="saturate")
    assert (
        d is torch.posit16es2_saturate
        and torch_dtypes.dtype("posit16es2_saturate") is d
        and d is not torch.posit16es2
    )
    assert torch_dtypes.posit_format(16, 2, infinity="nan") is torch.posit16es2
    assert torch_dtypes.format_of(d).infinity.name == "saturate"
    other = torch_dtypes.posit_format(12, 1, underflow="zero", infinity="saturate", rounding="up")
    assert (
        str(other) == "torch.posit12es1_underflow_saturate_up"
        and torch_dtypes.dtype(str(other)) is other
    )
    assert torch_dtypes.with_rounding(d, "toward_zero") is torch_dtypes.dtype(
        "posit16es2_saturate_toward_zero"
    )
    torch.save(torch.tensor([1.0, INF], dtype=d), tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt")
    assert loaded.dtype is d and loaded.tolist() == [1.0, 2.0**56]
    with pytest.raises(
        ValueError, match="expected infinity to be one of 'nan', 'saturate', but got 'inf'"
    ):
        torch_dtypes.posit_format(16, 2, infinity="inf")


def test_saturating_posits_saturate_everywhere():
    d, most = torch_dtypes.dtype("posit16es2_saturate"), 2.0**56
    wide = torch.tensor([INF, -INF, math.nan, 1.0, 1e300, 0.0], dtype=torch.float64)
    for x in (
        wide.to(d),
        wide.float().to(d),
        torch.tensor(wide.tolist(), dtype=d),
        wide.to(torch.float16).to(d),
        wide.to(torch.q52).to(d),
    ):
        assert x[[0, 1]].tolist() == [most, -most] and x[2].isnan() and x[3] == 1 and x[5] == 0
    x = torch.tensor([3.0, -2.0, 0.0], dtype=d)
    assert (x / 0)[:2].tolist() == [most, -most] and (x / 0)[2].isnan() and x.log()[2] == -most
    assert torch_dtypes.chop(wide, "posit16es2_saturate")[:2].tolist() == [most, -most]
    half = torch.tensor([1.0, 2.0], dtype=d).requires_grad_()
    (half * torch.tensor([INF, 1.0], dtype=d)).sum().backward()
    assert half.grad.tolist() == [most, 1.0]


@pytest.mark.parametrize("name", ["posit8es1", "posit16es2", "posit32es2", "takum32_linear"])
def test_nar_compares_as_nan_and_its_code_as_the_posit_standard_says(name):
    nar, x = (
        torch.tensor([math.nan]).to(torch_dtypes.dtype(name)),
        torch.tensor([-1e9, 0.0, 3.0]).to(torch_dtypes.dtype(name)),
    )
    assert (
        (nar != nar).all()
        and not (nar == nar).any()
        and not ((nar < x) | (nar > x) | (nar == x)).any()
    )
    both = torch.cat([nar, x])
    assert both.sort().values[-1:].isnan().all() and both.max().isnan() and both.min().isnan()
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32}[nar.itemsize]
    assert (nar.view(signed) < x.view(signed)).all() and (
        nar.view(signed) == nar.view(signed)
    ).all()
