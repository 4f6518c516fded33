"""linear_cross_entropy in chunks: sums in a stock dtype that holds the operands, and results
rounded once."""

import pytest
import torch
from conftest import parametrize_dtypes

Options = getattr(torch.nn, "LinearCrossEntropyOptions", None)
linear_cross_entropy = getattr(torch.nn.functional, "linear_cross_entropy", None)
pytestmark = pytest.mark.skipif(Options is None, reason="not in this version of torch")
TARGET = torch.tensor([0, 4, 2, 2, 1, 3])


def operands(dtype):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((6, 8), (5, 8), (5,))]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@parametrize_dtypes("posit16es2 q43 e5m5")
def test_loss_and_gradients_are_the_exact_ones_rounded_once(dtype, reduction):
    ours = [t.requires_grad_() for t in operands(dtype)]
    exact = [t.detach().double().requires_grad_() for t in ours]
    options = Options(batch_chunk_size=2, acc_dtype=torch.float64)
    loss = linear_cross_entropy(
        *ours[:2], TARGET, linear_bias=ours[2], reduction=reduction, options=options
    )
    expected = linear_cross_entropy(*exact[:2], TARGET, linear_bias=exact[2], reduction=reduction)
    assert loss.dtype is dtype
    assert torch.equal(loss, expected.to(dtype))
    loss.sum().backward()
    expected.sum().backward()
    for t, e in zip(ours, exact, strict=True):
        assert torch.equal(t.grad, e.grad.to(dtype))


@parametrize_dtypes("posit16es2 posit32es2")
def test_accumulates_in_what_holds_the_operands(dtype):
    x, w, b = operands(dtype)
    loss = linear_cross_entropy(x, w, TARGET, linear_bias=b, options=Options())
    wide = torch.float32 if dtype is torch.posit16es2 else torch.float64
    assert torch.equal(
        loss,
        linear_cross_entropy(
            x.to(wide), w.to(wide), TARGET, linear_bias=b.to(wide), options=Options()
        ).to(dtype),
    )


def test_module():
    x, _, _ = operands(torch.posit16es2)
    module = torch.nn.LinearCrossEntropyLoss(8, 5, options=Options(batch_chunk_size=3)).to(
        torch.posit16es2
    )
    module(x, TARGET).backward()
    assert {p.grad.dtype for p in module.parameters()} == {torch.posit16es2}


def test_an_acc_dtype_that_does_not_hold_the_operands():
    x, w, _ = operands(torch.posit32es2)
    with pytest.raises(
        ValueError,
        match=r"holds the numbers of torch.posit32es2, torch.float64 or None, but got "
        r"torch.float32",
    ):
        linear_cross_entropy(x, w, TARGET, options=Options(acc_dtype=torch.float32))


def test_operands_of_several_dtypes():
    x, w, _ = operands(torch.posit16es2)
    with pytest.raises(
        RuntimeError, match=r"of one dtype, but got torch.float32 and torch.posit16es2"
    ):
        linear_cross_entropy(x, w.float(), TARGET, options=Options())


def test_stock_operands_keep_their_way():
    x, w, _ = (t.half() for t in operands(torch.e5m5))
    assert linear_cross_entropy(x, w, TARGET, options=Options()).dtype is torch.float16
