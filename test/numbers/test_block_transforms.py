"""Blocks with scales under autograd, chop, torch.func and in graphs."""

import numpy as np
import pytest
import torch
from same_numbers import same
from torch.fx.experimental.proxy_tensor import make_fx

import torch_dtypes
from torch_dtypes import block_format, chop, target


def test_gradients():
    x = torch.tensor([1.0, 511.0, 300.0, -480.0, -449.0], requires_grad=True)
    for clamped, expected in (("pass", [1, 1, 1, 1, 1]), ("zero", [1, 0, 1, 0, 0])):
        x.grad = None
        y = target("mxfp8_e4m3").quantize(x, clamped=clamped)
        assert y.tolist() == [1, 448, 288, -448, -448]  # the scale is 1
        y.mul_(2).sum().backward()
        assert x.grad.tolist() == [2 * e for e in expected]
    y = target("nvfp4").quantize(x.half())
    assert y.dtype == torch.float16


def test_chop_takes_targets_and_names():
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(2))
    for D in ("mxfp8_e4m3", target("mxfp8_e4m3"), block_format("e4m3fn", "e8m0", 32)):
        same(chop(x, D), target("mxfp8_e4m3").quantize(x))
        same(chop(x, D, "up"), target("mxfp8_e4m3").quantize(x, rounding="up"))
        np.testing.assert_array_equal(chop(x.numpy(), D), chop(x, D).numpy())
    same(chop(x, target("q43")), chop(x, "q43"))
    same(chop(x, target("bf16")), x.bfloat16().float())
    assert chop(1.3, "bfp4") == 1.25 and chop(np.float32(1.3), "bfp4") == 1.25
    draws = [chop(x, "mxfp4", "stochastic", torch.Generator().manual_seed(1)) for _ in range(2)]
    same(*draws)
    with torch_dtypes.rounding("down"):
        same(chop(x, "mxfp4"), target("mxfp4").quantize(x, rounding="down"))


SAMPLE = torch.linspace(-3, 5, 120).reshape(3, 40)
BLOCK = target("mxfp8_e4m3")


def use_all(x):
    two = chop(x, "nvfp4") + chop(x, BLOCK, "up") + target("bfp6_dim0").quantize(x * 2)
    return (
        two
        + BLOCK.quantize(x, clamped="zero") * x
        + block_format("q43", "bf16", 16, -2).quantize(x)
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_graphs_and_transforms():
    same(make_fx(use_all)(SAMPLE)(SAMPLE / 3), use_all(SAMPLE / 3))
    same(make_fx(use_all, tracing_mode="fake")(SAMPLE)(SAMPLE / 3), use_all(SAMPLE / 3))
    stack = torch.stack([SAMPLE, SAMPLE * 100, SAMPLE.sin()])
    same(torch.func.vmap(use_all)(stack), torch.stack([use_all(s) for s in stack]))
    same(
        torch.func.vmap(use_all, in_dims=1, out_dims=1)(stack.movedim(0, 1)),
        torch.stack([use_all(s) for s in stack], 1),
    )
    leaf = SAMPLE.clone().requires_grad_()
    use_all(leaf).sum().backward()
    same(torch.func.grad(lambda x: use_all(x).sum())(SAMPLE), leaf.grad)
    torch.testing.assert_close(
        torch.func.jvp(use_all, (SAMPLE,), (torch.ones_like(SAMPLE),))[1], leaf.grad
    )


def in_a_graph(x):
    two = chop(x, "nvfp4") + chop(x, BLOCK, "up") + target("bfp6_dim0").quantize(x * 2)
    return two + BLOCK.quantize(x, clamped="zero") * x


# PyTorch's own.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_in_one_graph():
    torch._dynamo.reset()
    compiled = torch.compile(in_a_graph, backend="aot_eager", fullgraph=True)
    leaves = [SAMPLE.clone().requires_grad_() for _ in range(2)]
    left, right = compiled(leaves[0]), in_a_graph(leaves[1])
    same(left, right)
    left.sum().backward(), right.sum().backward()
    same(leaves[0].grad, leaves[1].grad)
    with torch_dtypes.rounding("up_down"):
        torch.manual_seed(0)
        left = compiled(SAMPLE)
        torch.manual_seed(0)
        same(left, in_a_graph(SAMPLE))
    torch._dynamo.reset()
