"""torch.distributed.pipelining.pipeline refuses models in our dtypes: it splits a program that torch.export makes, and ours, a graph over codes,
has no modules to split at: it would be one stage."""

from __future__ import annotations

import functools

from .. import _C


def install(module) -> None:
    """module: torch.distributed.pipelining._IR."""
    stock = module.Pipe._trace_with_export

    @functools.wraps(stock)
    def trace(mod, *args, **kwargs):
        if (name := _C.format_in([*mod.parameters(), *mod.buffers(), args, kwargs])) is not None:
            raise NotImplementedError(
                f"pipeline: expected a model and arguments of stock dtypes, but got torch.{name}: make a PipelineStage of each stage's modules "
                "by hand."
            )
        return stock(mod, *args, **kwargs)

    module.Pipe._trace_with_export = staticmethod(trace)
