"""Processes that train one network together: the share of each in a step, and the values that all
need."""

from __future__ import annotations

import os
import re

import torch
import torch.distributed as dist
from torch import nn

# Texts of gloo's errors if another process is gone or does not answer.
_LOST = re.compile(r"gloo|connection (closed|reset|refused)|timed out|broken pipe", re.IGNORECASE)


class Ranks:
    """This process among those that train together over the default process group. By default it is
    alone, and sends nothing.

    A step takes ``batch_size`` images on any number of ranks: rank r of n takes every n-th of them,
    from the r-th on, as ``torch.utils.data.DistributedSampler`` does. But it repeats none where
    their number is no multiple of n. All ranks must call methods whose description begins with *all
    ranks*, in the same order.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and writes files."""
        return self.rank == 0

    def take_gpu(self) -> None:
        """Make ``cuda`` this rank's own GPU of its machine, if there are several ranks; raise if it
        has none."""
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
        """Return this rank's share of a step.

        Returns:
            Its indices, and the weight of its mean in the average of all ranks: 1 if all have
            equally many. It is 0 if there was no image left; then the rank takes the first image,
            so that it can take part.
        """
        own = index[self.rank :: self.size]
        return (own, len(own) * self.size / len(index)) if len(own) else (index[:1], 0.0)

    def wrap_model(self, model: nn.Module, find_unused: bool = False) -> nn.Module:
        """All ranks: wrap the model for training steps, so that gradients become the averages of
        all ranks; all get rank 0's weights."""
        if self.size == 1:
            return model
        return nn.parallel.DistributedDataParallel(model, find_unused_parameters=find_unused)

    def mean(self, loss: float, weight: float) -> float:
        """All ranks: return the mean loss of a step, the same on all; not finite if one rank's is
        not."""
        if self.size == 1:
            return loss
        everyone = [torch.empty((), dtype=torch.float64) for _ in range(self.size)]
        dist.all_gather(everyone, torch.tensor(loss * weight, dtype=torch.float64))
        return sum(map(float, everyone)) / self.size

    def any(self, flag: bool) -> bool:
        """All ranks: return whether the flag is set on one of them."""
        if self.size == 1:
            return flag
        flags = torch.tensor([flag], dtype=torch.uint8)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    # ---- exchange ----

    def gather(self, value: object) -> list:
        """All ranks: return the values of all, by rank."""
        if self.size == 1:
            return [value]
        everyone = [None] * self.size
        dist.all_gather_object(everyone, value)
        return everyone

    def from_first(self, value: object) -> object:
        """All ranks: return rank 0's value."""
        if self.size == 1:
            return value
        objects = [value]
        dist.broadcast_object_list(objects, src=0)
        return objects[0]

    def share_statistics(self, model: nn.Module) -> None:
        """All ranks: take over rank 0's buffers (running means, scales of recent steps), with which
        the model is tested."""
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
        """Seed each rank's default generator, equal on all so far, differently (for dropout and
        stochastic rounding); rank 0 keeps its own."""
        if self.size > 1:
            seeds = torch.randint(
                2**32, (self.size,), generator=torch.Generator().manual_seed(torch.initial_seed())
            )
            if not self.is_first:
                torch.manual_seed(int(seeds[self.rank]))


ALONE = Ranks()


def read_launcher() -> tuple[int, int]:
    """Return rank and number of processes of a launcher such as ``torchrun``: ``(0, 1)`` without
    one."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(os.environ.get(name) for name in names):
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def first_line(error: BaseException) -> str:
    """Return an error's first line, or its type if it has no text; with notes on its origin."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "; ".join((line, *getattr(error, "__notes__", ())))


def with_notes(error: BaseException) -> str:
    """Return an error's text, with the notes on its origin as lines."""
    return "\n".join((str(error), *getattr(error, "__notes__", ())))


def is_lost(error: BaseException) -> bool:
    """Whether an error of this rank only means that another one is gone, or cannot be reached."""
    return isinstance(error, dist.DistError) or bool(_LOST.search(str(error)))
