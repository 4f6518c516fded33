"""Processes that train one network together: what each has of a step, and what all must know."""

from __future__ import annotations

import os
import re

import torch
import torch.distributed as dist
from torch import nn

# What gloo says where another process is gone or does not answer.
_LOST = re.compile(r"gloo|connection (closed|reset|refused)|timed out|broken pipe", re.IGNORECASE)


class Ranks:
    """This process among those that train together over the default process group; by default it is
    alone, and nothing is sent.

    A step takes ``batch_size`` images on any number of ranks: rank r of n has every n-th of them
    from the r-th on, as ``torch.utils.data.DistributedSampler`` deals them out, but repeats none
    where they do not come out even. Methods whose description says *all ranks* are called by all,
    in the same order.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this is the one that prints and writes files."""
        return self.rank == 0

    def take_gpu(self) -> None:
        """Makes ``cuda`` this rank's own GPU among its machine's, where there are several ranks: an
        error where it has none."""
        if self.size == 1:
            return
        number, count = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if number >= count:
            raise ValueError(
                f"expected a GPU for each process of a machine, but got process {number} (from 0) "
                f"and {count} GPUs; start fewer processes"
            )
        torch.cuda.set_device(number)

    # ---- a step ----

    def part(self, index: torch.Tensor) -> tuple[torch.Tensor, float]:
        """What this rank has of a step.

        Returns:
            Its indices, and by how much its mean counts in the average of all ranks: 1 where all
            have as many, 0 where there was nothing left and it takes the first image, so that it
            can join in.
        """
        own = index[self.rank :: self.size]
        return (own, len(own) * self.size / len(index)) if len(own) else (index[:1], 0.0)

    def joined(self, model: nn.Module, find_unused: bool = False) -> nn.Module:
        """All ranks: the model as a training step calls it, whose gradients become the averages of
        all ranks; rank 0's weights go to all."""
        if self.size == 1:
            return model
        return nn.parallel.DistributedDataParallel(model, find_unused_parameters=find_unused)

    def mean(self, loss: float, weight: float) -> float:
        """All ranks: the mean loss of a step, the same on all; not finite where one rank's is
        not."""
        if self.size == 1:
            return loss
        everyone = [torch.empty((), dtype=torch.float64) for _ in range(self.size)]
        dist.all_gather(everyone, torch.tensor(loss * weight, dtype=torch.float64))
        return sum(map(float, everyone)) / self.size

    def any(self, flag: bool) -> bool:
        """All ranks: whether it is so on one of them."""
        if self.size == 1:
            return flag
        told = torch.tensor([flag], dtype=torch.uint8)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        return bool(told)

    # ---- what all have alike ----

    def gather(self, value: object) -> list:
        """All ranks: what each gives, by rank."""
        if self.size == 1:
            return [value]
        everyone = [None] * self.size
        dist.all_gather_object(everyone, value)
        return everyone

    def from_first(self, value: object) -> object:
        """All ranks: what rank 0 gives."""
        if self.size == 1:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=0)
        return told[0]

    def share_statistics(self, model: nn.Module) -> None:
        """All ranks: what a model keeps beside its parameters (running means, scales of recent
        steps) becomes rank 0's, as it is to be tested."""
        if self.size == 1:
            return
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        kept = model.state_dict()
        for name in parameters:
            del kept[name]
        kept = self.from_first(kept)  # scales are in its _metadata
        if not self.is_first:
            model.load_state_dict(kept, strict=False)

    def seed(self) -> None:
        """Gives each rank's default generator, the same on all, random words of its own (dropout,
        stochastic rounding); rank 0 keeps its."""
        if self.size > 1:
            seeds = torch.randint(
                2**32, (self.size,), generator=torch.Generator().manual_seed(torch.initial_seed())
            )
            if not self.is_first:
                torch.manual_seed(int(seeds[self.rank]))


ALONE = Ranks()


def launched() -> tuple[int, int]:
    """Which process of how many a launcher like ``torchrun`` has made this one: ``(0, 1)`` without
    one."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(os.environ.get(name) for name in names):
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its type where it says nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def is_lost(error: BaseException) -> bool:
    """Whether an error of this rank only says that another one is gone, or cannot be reached."""
    return isinstance(error, dist.DistError) or bool(_LOST.search(str(error)))
