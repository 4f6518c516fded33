"""Delayed scales under DistributedDataParallel come from the largest numbers on all ranks, as in
NVIDIA's Transformer Engine by default."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from .layers import is_quantized, state_of
from .scalers import Scaler


def delayed_scalers(model: nn.Module) -> list[Scaler]:
    """Return the delayed scales of a model, in the order of its modules and places."""
    rounders = (
        r
        for module in model.modules()
        if is_quantized(module)
        for r in state_of(module).all_rounders().values()
    )
    return [r.scaler for r in rounders if r.scaler is not None and r.scaler.rule.when == "delayed"]


def share_scales(ddp: nn.Module) -> None:
    """Make all ranks begin each training step with the same history, if a model has delayed
    scales."""
    scalers = delayed_scalers(ddp.module)
    for scaler in scalers:
        scaler.own = len(scaler.history)
    if scalers:
        ddp.register_forward_pre_hook(_before_forward)


def _before_forward(ddp: nn.Module, args: tuple) -> None:
    if (
        ddp.training
        and torch.is_grad_enabled()
        and ddp.require_backward_grad_sync
        and not ddp._join_config.enable
    ):
        exchange(
            delayed_scalers(ddp.module), ddp.process_group, next(ddp.module.parameters()).device
        )


def join_hook(ddp: nn.Module, stock):
    """Exchange histories where a block of ``join()`` ends; within it each rank keeps its own.

    PyTorch leaves its configuration of the block enabled. It is disabled here, so that later steps
    exchange again.
    """
    run = stock.post_hook

    def post_hook(is_last_joiner: bool) -> None:
        run(is_last_joiner)
        ddp._join_config = ddp._join_config._replace(enable=False)
        exchange(
            delayed_scalers(ddp.module), ddp.process_group, next(ddp.module.parameters()).device
        )

    stock.post_hook = post_hook
    return stock


def exchange(scalers: list[Scaler], group: dist.ProcessGroup, device: torch.device) -> None:
    """Replace each rank's bounds of the calls since the last exchange by those of all ranks.

    1. All ranks agree on each scale's number of channels and largest number of calls. Ranks may
       have fewer calls, since calls with infinities are not recorded.
    2. They exchange (-low, high) of each call, newest first, and take the maximum. A rank without
       the call sends -inf.
    """
    sizes = [
        [scaler.own or 0, scaler.history[0][0].numel() if scaler.history else 0]
        for scaler in scalers
    ]
    shape = torch.tensor(sizes, dtype=torch.int64, device=device)
    dist.all_reduce(shape, dist.ReduceOp.MAX, group)
    sent = []
    for scaler, (calls, channels) in zip(scalers, shape.tolist(), strict=True):
        part = torch.full((calls, 2, channels), -torch.inf, dtype=torch.float64, device=device)
        for place, (low, high) in enumerate(scaler.history[: scaler.own]):
            part[place] = torch.stack([-low.reshape(-1), high.reshape(-1)])
        sent.append(part)
    numbers = torch.cat([part.reshape(-1) for part in sent])
    if not len(numbers):
        return
    dist.all_reduce(numbers, dist.ReduceOp.MAX, group)
    for scaler, part in zip(scalers, sent, strict=True):
        agreed, numbers = numbers[: part.numel()].reshape(part.shape), numbers[part.numel() :]
        like = (
            scaler.history[0][0]
            if scaler.history
            else torch.empty(part.shape[2] if scaler.axis is not None else (), device=device)
        )
        pairs = [(-lows, highs) for lows, highs in agreed.unbind()]
        pairs = [tuple(t.reshape(like.shape).to(like) for t in pair) for pair in pairs]
        scaler.history = [*pairs, *scaler.history[scaler.own :]][: scaler.rule.history]
        scaler.own = 0
