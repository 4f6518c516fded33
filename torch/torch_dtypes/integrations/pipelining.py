"""torch.distributed.pipelining.pipeline refuses models in our dtypes: it splits a program that torch.export makes, and one over codes has no modules
to split at: it would be one stage."""

from __future__ import annotations

import functools


def install(module) -> None:
    """module: torch.distributed.pipelining._IR."""
    stock = module.Pipe._trace_with_export

    @functools.wraps(stock)
    def trace(*args, **kwargs):
        program = stock(*args, **kwargs)
        # Inside PyTorch's own tree programs have tensors of ours as they are, and can be split.
        if any(getattr(node.target, "namespace", None) == "torch_dtypes_codes" for node in program.graph.nodes):
            raise NotImplementedError(
                "pipeline: expected a model and arguments of stock dtypes, but got some in number formats: make a PipelineStage of each stage's "
                "modules by hand."
            )
        return program

    module.Pipe._trace_with_export = staticmethod(trace)
