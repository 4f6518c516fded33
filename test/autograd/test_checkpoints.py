"""Activation checkpointing under rounding() and accumulate(): the second pass repeats the first
one's results."""

import contextlib
import functools

import pytest
import torch
from torch import nn
from torch.distributed._composable import checkpoint as composable_checkpoint
from torch.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from torch_dtypes import accumulate, accumulation_of, rounding

DTYPE = torch.q43
BLOCKS = {
    "rounding": lambda: rounding("up"),
    "accumulate": lambda: accumulate("format"),
    "none": contextlib.nullcontext,
    "both": lambda: nest(rounding("down"), accumulate("format")),
}
SELECTIVE = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
WAYS = {
    "non-reentrant": lambda f, x: checkpoint(f, x, use_reentrant=False),
    "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "keyword": lambda f, x: checkpoint(
        lambda x, scale: f(x) * scale, x, use_reentrant=False, scale=1
    ),
    "selective": lambda f, x: checkpoint(f, x, use_reentrant=False, context_fn=SELECTIVE),
    "nested": lambda f, x: checkpoint(
        lambda x: checkpoint(f, x, use_reentrant=False), x, use_reentrant=False
    ),
    "nested reentrant": lambda f, x: checkpoint(
        lambda x: checkpoint(f, x, use_reentrant=True), x, use_reentrant=True
    ),
    "sequential": lambda f, x: checkpoint_sequential(f, 2, x, use_reentrant=False),
    "sequential reentrant": lambda f, x: checkpoint_sequential(f, 2, x, use_reentrant=True),
    "composable": lambda f, x: composable_checkpoint(f)(x),
}
each_block = pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@contextlib.contextmanager
def nest(*blocks):
    with contextlib.ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block)
        yield


def network(seen):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(20, 20),
        nn.Tanh(),
        nn.Linear(20, 20),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(20, 1),
    ).to(DTYPE)
    for i, module in enumerate(model):
        module.register_forward_hook(
            lambda module, given, result, i=i: seen.setdefault(i, []).append(
                result.detach().clone()
            )
        )
    return model


def run(way, forward, backward):
    """Run the forward pass in one block and the backward pass in another. Return the activations by
    layer and the gradients."""
    seen = {}
    model = network(seen)
    x = (torch.arange(80).view(4, 20) % 13 / 8).to(DTYPE).requires_grad_()
    with forward():
        loss = way(model, x).sum()
    with backward():
        loss.backward()
    return seen, [x.grad, *(p.grad for p in model.parameters())]


def equal(xs, ys):
    return all(torch.equal(x, y) for x, y in zip(xs, ys, strict=True))


@each_way
@each_block
def test_the_second_pass_repeats_the_first(block, way):
    with set_checkpoint_early_stop(False):
        seen, gradients = run(way, block, contextlib.nullcontext)
    plain, expected = run(lambda f, x: f(x), block, contextlib.nullcontext)
    for i, results in seen.items():
        assert all(torch.equal(result, plain[i][0]) for result in results)
    assert len(seen[0]) >= 2 and equal(gradients, expected)


@each_way
@pytest.mark.parametrize(
    "block", [BLOCKS["rounding"], BLOCKS["accumulate"]], ids=["rounding", "accumulate"]
)
def test_the_backward_pass_keeps_its_own_block(block, way):
    """A block around backward() applies to the gradients, but not to the recomputed activations."""
    seen, gradients = run(way, contextlib.nullcontext, block)
    plain, expected = run(lambda f, x: f(x), contextlib.nullcontext, block)
    assert equal(gradients, expected)
    for i, results in seen.items():
        assert all(torch.equal(result, plain[i][0]) for result in results)


def test_blocks_change_something_here():
    """Otherwise the tests above would prove nothing."""
    first, _ = run(lambda f, x: f(x), contextlib.nullcontext, contextlib.nullcontext)
    for name in ("rounding", "accumulate", "both"):
        other, _ = run(lambda f, x: f(x), BLOCKS[name], contextlib.nullcontext)
        assert not torch.equal(first[0][0], other[0][0])


@each_way
def test_no_override_is_left_behind(way):
    def holds():
        return torch.tensor([1.05], dtype=DTYPE).item(), accumulation_of(DTYPE)

    before = holds()
    run(way, lambda: nest(rounding("up"), accumulate("format")), contextlib.nullcontext)
    assert holds() == before
    with rounding("down"), accumulate("exact"):
        inside = holds()
        run(way, contextlib.nullcontext, contextlib.nullcontext)
        assert holds() == inside


def test_an_exception_of_the_recomputation_leaves_no_override_behind():
    calls = []

    def once(x):
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("second pass")
        return x.sin().cos()

    x = torch.ones(3, dtype=DTYPE, requires_grad=True)
    for reentrant in (False, True):
        calls.clear()
        with rounding("up"):
            y = checkpoint(once, x, use_reentrant=reentrant)
        with pytest.raises(KeyError, match="second pass"):
            y.sum().backward()
        assert torch.tensor([1.05], dtype=DTYPE).item() == 1


def test_stock_functions_keep_their_names():
    from torch.utils import checkpoint as module

    assert (
        module.checkpoint.__module__ == "torch.utils.checkpoint" and module.checkpoint is checkpoint
    )
    assert (
        module._checkpoint_without_reentrant_generator.__name__
        == "_checkpoint_without_reentrant_generator"
    )
    x = torch.randn(5, requires_grad=True)
    for reentrant in (False, True):
        (gradient,) = torch.autograd.grad(x.sin().sum(), x)
        x.grad = None
        checkpoint(torch.sin, x, use_reentrant=reentrant).sum().backward()
        assert torch.equal(x.grad, gradient)


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("policy", ["exact", "format"])
@pytest.mark.parametrize("layer", ["function", "encoder layer"])
def test_attention_under_a_policy(layer, policy, reentrant):
    """A checkpoint recomputes in a block without autocast. Attention's cast to float32 was once
    taken for autocast's own there."""
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(
        torch.e5m5
    )
    f = (
        module
        if layer == "encoder layer"
        else lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x)
    )
    q = torch.randn(2, 7, 8).to(torch.e5m5)

    def gradient(f):
        x = q.clone().requires_grad_()
        f(x).sum().backward()
        return x.grad.tolist()

    with accumulate(policy):
        assert gradient(lambda x: checkpoint(f, x, use_reentrant=reentrant)) == gradient(f)
