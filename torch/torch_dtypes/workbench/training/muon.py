"""Muon for the matrices of hidden layers, with AdamW for everything else."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of two dimensions, except embeddings and the last linear layer's
    weight."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    outside = tables | {id(weight) for weight in linear[-1:]}
    return [p for p in model.parameters() if p.dim() == 2 and id(p) not in outside]


class MuonWithAdamW(torch.optim.Optimizer):
    """Updates hidden matrices by ``torch.optim.Muon``, and the other parameters by
    ``torch.optim.AdamW``. Both have one learning rate and one weight decay, since Muon's updates
    are scaled to AdamW's size.

    Source: Liu et al., "Muon is scalable for LLM training" (arXiv 2502.16982), section 2.2.

    Raises:
        ValueError: a model without hidden matrices.
    """

    def __init__(self, model: nn.Module, lr: float = 1e-3, weight_decay: float = 0.1):
        matrices = hidden_matrices(model)
        if not matrices:
            raise ValueError(
                "expected a network with a linear layer before its last one for muon, but got a "
                f"{type(model).__name__}; use --optimizer adamw"
            )
        ids = set(map(id, matrices))
        others = [p for p in model.parameters() if id(p) not in ids]
        settings = {"lr": lr, "weight_decay": weight_decay}
        self._parts = [torch.optim.Muon(matrices, **settings, adjust_lr_fn="match_rms_adamw")]
        if others:
            self._parts.append(torch.optim.AdamW(others, **settings))
        super().__init__([group for part in self._parts for group in part.param_groups], settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Groups and states may have come from a state dict.
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state
            part.step()
        return loss
