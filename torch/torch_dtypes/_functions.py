"""Stock Python functions that make numbers no format need have (infinities in masks), and what they do in ours instead."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from . import _C

_stock_canonical_mask = F._canonical_mask


# ---- masks of attention ----


def mask_value(dtype: torch.dtype) -> float:
    """What an attention score gets added where it is masked: -inf, or in a format without infinities its outermost number.

    Scores and a second mask are added to it. Where that would leave the range for NaN or wrap around, as in fn floats, it is a quarter of
    the outermost number, so that two masks and a score stay within.
    """
    if torch.tensor(float("-inf"), dtype=dtype).isinf():
        return float("-inf")
    outermost = torch.finfo(dtype).min
    if outermost >= 0:
        raise TypeError(
            f"expected a dtype with negative numbers for an attention mask, but got {dtype}: masked scores have none there. Compute the "
            "attention in a signed format."
        )
    limit = torch.tensor(outermost, dtype=dtype)
    return outermost if limit + limit == limit else outermost / 4


def canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """torch.nn.functional._canonical_mask for attention in a dtype of ours: bool and stock masks become masks of that dtype."""
    if mask is None or _C.format_of(target_type) is None or _C.is_format_tensor(mask):
        return None
    # Stock checks its arguments and fills bool masks; nothing is lost in float64.
    mask = _stock_canonical_mask(mask, mask_name, other_type, other_name, torch.float64, check_other).double()
    value = mask_value(target_type)
    beyond = mask < torch.finfo(target_type).min
    return mask.masked_fill(beyond, 0.0).to(target_type).masked_fill(beyond, value)


def subsequent_mask(sz, device=None, dtype=None):
    """torch.nn.Transformer.generate_square_subsequent_mask in a dtype of ours."""
    wanted = torch.get_default_dtype() if dtype is None else dtype
    if _C.format_of(wanted) is None:
        return None
    return torch.triu(torch.full((sz, sz), mask_value(wanted), dtype=wanted, device=device), diagonal=1)
