"""How torch.distributed.tensor may split what chop rounds: wherever it likes, for each element is rounded by itself; blocks stay whole."""

from __future__ import annotations

import torch


def install(module) -> None:
    """module: torch.distributed.tensor."""
    from torch.distributed.tensor.experimental import register_sharding

    def strategies(operator, dims):
        others = [None] * (len(operator._schema.arguments) - 1)

        def strategy(input, *args, **kwargs):
            places = [module.Replicate(), *(module.Shard(d) for d in range(dims(input.ndim)))]
            return [([place], [place, *others]) for place in places]

        register_sharding(operator)(strategy)

    strategies(torch.ops.torch_dtypes.chop.default, lambda ndim: ndim)
    strategies(torch.ops.torch_dtypes.chop_blocks.default, lambda ndim: ndim - 1)  # blocks lie along the last dimension
