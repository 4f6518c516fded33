"""Operators, layers and gradients under the policies that add several products at once."""

import math

import pytest
import torch
import torch.nn.functional as F
from block_sums import FLOAT32, HALF, fractions, operands
from oracle_adders import Adder, Register, block_sum

import torch_dtypes
from torch_dtypes import Accumulation, accumulate, matmul

POLICY = Accumulation("block", terms=4, extra_bits=1, register="e5m7")


def test_operators_follow():
    x, w, bias = operands("q43", 5, 13), operands("q43", 6, 13, seed=1), operands("q43", 6, seed=2)
    with accumulate(POLICY):
        each = torch.stack([torch.stack([x[i] @ w[j] for j in range(6)]) for i in range(5)])
        for got in (
            x @ w.T,
            F.linear(x, w),
            torch.einsum("ik,jk->ij", x, w),
            torch.bmm(x[None], w.T[None])[0],
            torch.stack([w @ r for r in x]),
        ):
            assert torch.equal(got.view(torch.uint8), each.view(torch.uint8))
        assert torch.equal(x.sum(1), x @ torch.ones(13, dtype=x.dtype))
        assert torch.equal(x.cumsum(1)[:, -1], x.sum(1)) and torch.equal(
            x.cumsum(1)[:, 4], x[:, :5].sum(1)
        )
        with_bias = F.linear(x, w, bias)
    with accumulate("machine"):
        assert not torch.equal(x @ w.T, each)
    adder = Adder(4, 8, Register(7, -14, 15), (-6, -6))
    for i in range(5):
        for j in range(6):
            want = block_sum(
                adder, list(zip(fractions(x[i]), fractions(w[j]), strict=True)), fractions(bias)[j]
            )
            assert (
                with_bias[i, j].item()
                == torch.tensor(float(want), dtype=torch.float64).to(torch.q43).item()
            )


def test_convolutions_and_gradients_follow():
    x, w = operands("q43", 2, 3, 6, 6), operands("q43", 4, 3, 3, 3, seed=1)
    x.requires_grad_()
    w.requires_grad_()
    with accumulate(POLICY):
        y = F.conv2d(x, w, padding=1)
        columns = F.unfold(F.pad(x.detach().float(), (1, 1, 1, 1)), 3).to(torch.q43)  # [2, 27, 36]
        assert torch.equal(y.detach().reshape(2, 4, 36), w.detach().reshape(4, 27) @ columns)
        g = operands("q43", 2, 4, 6, 6, seed=3)
        y.backward(g)
        rows = g.transpose(0, 1).reshape(4, -1)
        want = rows @ columns.transpose(0, 1).reshape(27, -1).T
        assert torch.equal(w.grad.reshape(4, 27), want)
        # The input's gradient is ordered by (output channel, position), with 0 in place of missing
        # terms.
        spread = F.unfold(F.pad(g.float(), (1, 1, 1, 1)), 3).to(torch.q43)  # [2, 36, 36]
        turned = w.detach().flip(2, 3).transpose(0, 1).reshape(3, 36)
        assert torch.equal(x.grad.reshape(2, 3, 36), turned @ spread)


def test_holes_meet_no_infinity():
    w = torch.full((1, 1, 3), math.inf).to(torch.q43)
    x = torch.ones(1, 1, 2, dtype=torch.q43)
    with accumulate("block", terms=2):
        y = F.conv_transpose1d(x, w, stride=3)
    assert y.double().flatten().tolist() == [math.inf] * 6


def test_a_layer_trains():
    layer = torch.nn.Linear(32, 8).to(HALF)
    x = operands("e5m10", 4, 32)
    with accumulate("nvidia-a100"):
        layer(x).square().mean().backward()
    assert layer.weight.grad.isfinite().all() and layer.weight.grad.abs().sum() > 0


def test_layers_that_quantize_rounds():
    x = operands("q43", 3, 40).float()
    steps = "format(accumulator=e5m4, order=tree)"
    for policy, native in (
        ("block(terms=4, register=e5m4)", False),
        (steps, False),
        ("nvidia-h100", True),
        ("chunked(32, accumulator=nvidia-h100)", True),
    ):
        layer = torch.nn.Linear(40, 5, bias=False)
        places = (
            ("weight", "activation", "output", "error", "grad", "bias")
            if native
            else ("weight", "activation")
        )
        torch_dtypes.quantize_(
            layer, {torch.nn.Linear: {**dict.fromkeys(places, "q43"), "accumulate": policy}}
        )
        w = layer.weight.detach().to(torch.q43)
        # A layer's products are rounded to the dtype of its operands.
        with accumulate(policy if policy is not steps else steps[:-1] + ", product=q43)"):
            want = matmul(x.to(torch.q43), w.T, out=torch.q43 if native else FLOAT32).float()
        assert torch.equal(layer(x).float(), want), policy
    for policy in ("nvidia-h100", "chunked(32, accumulator=nvidia-h100)"):
        with pytest.raises(
            ValueError,
            match="expected one dtype for weight, activation, error and grad with 'nvidia-h100'",
        ):
            torch_dtypes.quantize_(
                torch.nn.Linear(4, 4),
                {torch.nn.Linear: {"weight": "q43", "activation": "q43", "accumulate": policy}},
            )


@pytest.mark.parametrize("chip", ["nvidia-h100", "amd-mi300x"])
def test_chunks_of_a_chip(chip):
    """The chip adds up each chunk from 0, and float32 the chunks' sums, from the start."""
    a, b = operands("q43", 3, 150), operands("q43", 150, 18, seed=1)
    start = operands(FLOAT32, 3, 18, seed=2)
    total = start.float()
    with accumulate(chip):
        for first in range(0, 150, 64):
            part = slice(first, first + 64)
            total = total + matmul(a[:, part], b[part], out=FLOAT32).float()
        whole = matmul(a, b, out=FLOAT32, start=start).float()
    with accumulate("chunked(64)", accumulator=chip):
        got = matmul(a, b, out=FLOAT32, start=start).float()
        assert torch.equal(got, total) and not torch.equal(got, whole)
        bias = operands("q43", 18, seed=2)
        want = matmul(a, b, out=FLOAT32, start=bias.to(torch_dtypes.dtype(FLOAT32)))
        assert torch.equal(F.linear(a, b.T, bias), want.to(torch.q43))
        assert torch.equal(torch.addmm(bias, a, b, alpha=1), want.to(torch.q43))
        ones = torch.ones(150, 1, dtype=torch.q43)
        sums = matmul(a, ones, out=FLOAT32).double()[:, 0]
        assert torch.equal(a.sum(1), sums.to(torch.q43))
        assert torch.equal(a.mean(1), (sums / 150).to(torch.q43))
        x, w = a[0].view(1, 3, 50), b.T.reshape(18, 3, 50)
        assert torch.equal(F.conv1d(x, w)[0, :, 0], (a @ b)[0])
        assert (a[:, :0] @ b[:0]).double().eq(0).all()
        with pytest.raises(RuntimeError, match="without chunks of a chip"):
            a.cumsum(1)
        with pytest.raises(RuntimeError, match=f"formats that {chip} multiplies .* but got e5m5"):
            torch.ones(2, 2, dtype=torch.e5m5).sum()
