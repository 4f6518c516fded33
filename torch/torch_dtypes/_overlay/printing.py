"""How a tensor is printed: its exact values, by PyTorch's own formatter."""

from __future__ import annotations

import torch
from torch import _tensor_str

from .. import _C
from .table import Extended


def tensor_str(self: torch.Tensor, indent: int) -> str | None:
    """The numbers of a tensor of ours. Stock chooses how to write them by operators in the tensor's dtype, which round: so the text would
    depend on the rounding mode, and printing would draw from the generator in a stochastic one."""
    if not _C.is_format_tensor(self) or self.numel() == 0:
        return None
    values = self.detach().resolve_neg()
    summarize = values.numel() > _tensor_str.PRINT_OPTS.threshold
    shown = _tensor_str.get_summarized_data(values) if summarize else values  # the formatter's copies are of what is shown only
    return _tensor_str._tensor_str_with_formatter(values, indent, summarize, _tensor_str._Formatter(shown.double()))


HOOKS = [Extended("torch._tensor_str", "_tensor_str", tensor_str)]
