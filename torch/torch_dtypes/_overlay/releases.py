"""What the supported releases of PyTorch do not have in common. Told apart here, and for C++ in aten/src/ATen/Releases.h.

A row of a table of hooks (``table.py``) whose target not every release has names the reason from here.
"""

from __future__ import annotations

import torch

from .._torch_version import RUNNING


def since(release: str) -> str | None:
    """Why what PyTorch has from a release on may be missing in the running one; None where it may not."""
    return None if RUNNING >= tuple(map(int, release.split("."))) else f"PyTorch has it from {release} on"


# Reasons of rows.
NO_DISTRIBUTED = None if torch.distributed.is_available() else "this build of PyTorch has no torch.distributed"
NO_BOXED_BACKWARD = since("2.13")  # BackwardCFunction.apply_boxed
NO_CHUNKED_CROSS_ENTROPY = since("2.13")  # linear_cross_entropy(options=...)

# Differences in what all have.
SKIP_RULES_KNOW_FRAMES = RUNNING >= (2, 12)  # torch._dynamo.trace_rules.check(frame=)
SKIPS_HAVE_REASONS = RUNNING >= (2, 13)  # torch._dynamo.types.ConvertFrameReturn
SUBCLASSES_OF_DTENSOR_DISPATCH = RUNNING >= (2, 12)  # before, operators of DTensors never come to a subclass's __torch_dispatch__
OVERLOADS_CALL_TWO_WAYS = RUNNING >= (2, 14)  # torch._ops.OpOverload.__call__
SHARDS_NAME_GRADIENTS = RUNNING >= (2, 15)  # fully_shard says what dtype the gradients of gathered parameters have
COLLECTIVES_WRAP_LISTS = RUNNING >= (2, 15)  # _functional_collectives._maybe_wrap_tensors; before, each by _maybe_wrap_tensor
# Which function of torch.utils.checkpoint keeps what the recomputation runs; from 2.14 on the one of the old name only calls it.
CHECKPOINT_GENERATOR = "_checkpoint_without_reentrant_generator"
OLD_NAMES = {}  # of targets that a release has renamed: documents call them by these
if RUNNING >= (2, 14):
    OLD_NAMES[CHECKPOINT_GENERATOR + "_impl"] = CHECKPOINT_GENERATOR
    CHECKPOINT_GENERATOR += "_impl"
