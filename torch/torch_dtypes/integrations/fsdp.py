"""FullyShardedDataParallel refuses a model with parameters of ours when it is made; without this its first backward pass would, at a collective."""

from __future__ import annotations

import functools

from .._overlay.distributed import refuse_parallel


def install(module) -> None:
    """module: torch.distributed.fsdp.fully_sharded_data_parallel."""
    sharded = module.FullyShardedDataParallel
    stock = sharded.__init__

    @functools.wraps(stock)
    def __init__(self, module, *args, **kwargs):
        refuse_parallel("FullyShardedDataParallel", module)
        stock(self, module, *args, **kwargs)

    sharded.__init__ = __init__
