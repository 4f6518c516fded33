"""Activation checkpointing of modules whose rule reaches the products of their own forward."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_dtypes import quantize_


class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        return F.linear(x, self.table).relu() @ self.table


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x):
        inner = functools.partial(Attention.forward, self)
        return checkpoint(inner, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize(
    "build, rule",
    [
        (Attention, dict(query="q43", key="q43", probabilities="q43", value="q43", error="q52")),
        (Projected, dict(weight_grad=dict(error="q52"), activation="q43", weight="q43")),
    ],
)
def test_a_checkpoint_around_a_module_computes_again_by_the_rule(build, rule):
    torch.manual_seed(0)
    module, x, found = quantize_(build(), {"": rule}), torch.randn(2, 6, 16), []
    for run in (module, lambda x: checkpoint(module, x, use_reentrant=False)):
        leaf = x.clone().requires_grad_()
        run(leaf).square().sum().backward()
        found.append(leaf.grad)
    assert torch.equal(*found)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_within_a_module_is_an_error(reentrant):
    """Its recomputation would not see the rule."""
    module = quantize_(Checkpointed(reentrant), {"": dict(scores="q43")})
    x = torch.randn(2, 6, 16, requires_grad=True)
    with pytest.raises(ValueError, match="put the checkpoint around the module"):
        module(x)
    checkpoint(torch.sin, x, use_reentrant=reentrant)  # outside of it one may run
