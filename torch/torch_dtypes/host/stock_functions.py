"""What stock's Python functions do with tensors of ours: those that make infinities, which no
format need have, or join tensors of several dtypes.

Each returns None where stock's own is right. Beside a wheel hooks call them
(host/hooks/functions.py), inside PyTorch's tree those functions do.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from .. import _C
from ..formats.caches import clearable_cache
from ..formats.code_types import compute_type
from ..policies.autocast import find_autocast_dtype


@clearable_cache
def has_infinity(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype of ours become infinite: not where they saturate, whatever codes
    there are."""
    fmt = _C.format_of(dtype)
    if fmt.kind == _C.Kind.table:
        with _disable_current_modes():  # of fake tensors, for one
            both = torch.tensor([float("inf"), float("-inf")], dtype=torch.float64, device="cpu")
            return bool(_C.decode_exact(fmt, _C.encode_exact(fmt, both)).isinf().all())
    return fmt.has_infinity and fmt.overflow != _C.Overflow.saturate


# ---- masks of attention ----


def mask_value(dtype: torch.dtype) -> float:
    """What an attention score gets added where it is masked: -inf, or in a format without
    infinities its outermost number.

    Scores and a second mask are added to it. Where that would leave the range for NaN or wrap
    around, as in fn floats, it is a quarter of the outermost number, so that two masks and a score
    stay within.
    """
    if has_infinity(dtype):
        return float("-inf")
    outermost = torch.finfo(dtype).min
    if outermost >= 0:
        raise TypeError(
            f"expected a dtype with negative numbers for an attention mask, but got {dtype}: "
            "masked scores have none there. Compute the attention in a signed format."
        )
    limit = torch.tensor(outermost, dtype=dtype, device="cpu")
    return outermost if limit + limit == limit else outermost / 4


def _autocast_format(device: torch.device, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype of ours, without infinities, to which autocast casts operands of a stock dtype."""
    # It leaves float64 alone.
    low = None if dtype is torch.float64 else find_autocast_dtype(device.type)
    return None if low is None or has_infinity(low) else low


def _within(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask, of a dtype that is no narrower, with the value of masked places where it is beyond
    the range."""
    lowest, value = _limits(dtype)
    return mask.masked_fill(mask < lowest, value)


@clearable_cache
def _limits(dtype: torch.dtype) -> tuple[float, float]:
    """The lowest number, and that of masked places. Known before a graph of what is done with masks
    is recorded, which has no part in this."""
    with _disable_current_modes():
        return torch.finfo(dtype).min, mask_value(dtype)


def canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """torch.nn.functional._canonical_mask for attention in a dtype of ours: bool and stock masks
    become masks of that dtype. Where autocast is to cast them to one that has no infinity, they
    stay in the stock dtype and have its numbers."""
    if mask is None or _C.format_of(mask.dtype) is not None:
        return None
    own = (
        target_type
        if _C.format_of(target_type) is not None
        else _autocast_format(mask.device, target_type)
    )
    if own is None:
        return None
    # Stock checks its arguments and fills bool masks; nothing is lost in float64.
    mask = F._canonical_mask(
        mask, mask_name, other_type, other_name, torch.float64, check_other
    ).double()
    return _within(mask, own).to(target_type)


def autocast_mask(mask):
    """A mask that scores get added, of a stock dtype, as autocast can cast it to one of ours;
    another one as it is."""
    if (
        not isinstance(mask, torch.Tensor)
        or not mask.is_floating_point()
        or _C.is_format_tensor(mask)
    ):
        return mask
    own = _autocast_format(mask.device, mask.dtype)
    return mask if own is None else _within(mask.float(), own)


def subsequent_mask(sz, device=None, dtype=None):
    """torch.nn.Transformer.generate_square_subsequent_mask in a dtype of ours."""
    wanted = torch.get_default_dtype() if dtype is None else dtype
    if _C.format_of(wanted) is None:
        return None
    return torch.triu(
        torch.full((sz, sz), mask_value(wanted), dtype=wanted, device=device), diagonal=1
    )


# ---- lists of tensors in several dtypes ----


def total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """torch.nn.utils.get_total_norm of tensors of which some are ours: a number of float32, or of
    float64 where one of the dtypes is wider, since no format need have it. Nothing is rounded to a
    format on the way."""
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    if not isinstance(tensors, (list, tuple)):
        return torch.nn.utils.get_total_norm(list(tensors), norm_type, error_if_nonfinite, foreach)
    dtypes = {t.dtype for t in tensors}
    if not any(_C.format_of(dtype) is not None for dtype in dtypes):
        return None
    wide, norm_type = (
        torch.float64 if torch.complex128 in dtypes else compute_type(*dtypes),
        float(norm_type),
    )
    norms = [
        torch.linalg.vector_norm(t, norm_type, dtype=None if t.is_complex() else wide).to(
            tensors[0].device, wide
        )
        for t in tensors
    ]
    total = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError(
            f"expected a finite total norm of order {norm_type}, but got {total.item()}: such "
            "gradients cannot be clipped. Set error_if_nonfinite=False to scale them by it "
            "anyway."
        )
    return total


# ---- buffers and frozen parameters of modules ----


def write_infinities(given: object, kept: object) -> None:
    """The infinities of a stock tensor, put once more into what a cast has made of it, as the
    numbers that they are."""
    plain = (torch.Tensor, torch.nn.Parameter)
    if (
        type(given) not in plain
        or type(kept) not in plain
        or given.is_meta
        or kept.is_meta
        or given.layout is not torch.strided
    ):
        return
    form, is_stock = _C.format_of(kept.dtype), _C.format_of(given.dtype) is None
    if (
        form is None
        or not form.infinity_is_nan
        or not is_stock
        or not given.is_floating_point()
        or given.shape != kept.shape
    ):
        return
    with torch.no_grad():
        for infinity in (float("inf"), float("-inf")):
            if (there := given == infinity).any():
                kept.masked_fill_(there.to(kept.device), infinity)
