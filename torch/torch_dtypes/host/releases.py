"""What the supported releases of PyTorch do not have in common, beside the rows of hooks.

A row says its own releases (``first``, ``last`` in host/table.py). C++'s differences are in
aten/src/ATen/Releases.h.
"""

from .._torch_version import RUNNING

SKIP_RULES_KNOW_FRAMES = RUNNING >= (2, 12)  # torch._dynamo.trace_rules.check(frame=)
SKIPS_HAVE_REASONS = RUNNING >= (2, 13)  # torch._dynamo.types.ConvertFrameReturn
