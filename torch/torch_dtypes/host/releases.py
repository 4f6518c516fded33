"""Differences between the supported releases of PyTorch, other than the rows of hooks.

A row has its own releases (``first``, ``last`` in host/table.py). The differences in C++ are in
aten/src/ATen/Releases.h.
"""

from .._torch_version import RUNNING

SKIP_RULES_KNOW_FRAMES = RUNNING >= (2, 12)  # torch._dynamo.trace_rules.check(frame=)
SKIPS_HAVE_REASONS = RUNNING >= (2, 13)  # torch._dynamo.types.ConvertFrameReturn
