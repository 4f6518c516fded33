"""Format versions of PyTorch's Python functions that make infinities or join several dtypes.

A format may lack infinities. Each function returns None where the stock function is right. Hooks
call them in a wheel (host/hooks/functions.py); inside PyTorch's tree the functions themselves do.
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
    """Return whether numbers of a format dtype can become infinite.

    Numbers that saturate never do, even if the format has codes for infinities.
    """
    fmt = _C.format_of(dtype)
    if fmt.kind == _C.Kind.table:
        with _disable_current_modes():  # fake tensors, for example
            both = torch.tensor([float("inf"), float("-inf")], dtype=torch.float64, device="cpu")
            return bool(_C.decode_exact(fmt, _C.encode_exact(fmt, both)).isinf().all())
    return fmt.has_infinity and fmt.overflow != _C.Overflow.saturate


# ---- masks of attention ----


def mask_value(dtype: torch.dtype) -> float:
    """Return the number added to masked attention scores: -inf, or the format's lowest number.

    Scores and a second mask are added to it. In fn floats, for example, such a sum leaves the range
    and becomes NaN, or wraps around. There it is a quarter of the lowest number, so that two masks
    and a score stay in range.
    """
    if has_infinity(dtype):
        return float("-inf")
    outermost = torch.finfo(dtype).min
    if outermost >= 0:
        raise TypeError(
            f"expected a dtype with negative numbers for an attention mask, but got {dtype}; "
            "compute the attention in a signed format"
        )
    limit = torch.tensor(outermost, dtype=dtype, device="cpu")
    return outermost if limit + limit == limit else outermost / 4


def _autocast_format(device: torch.device, dtype: torch.dtype) -> torch.dtype | None:
    """Return the format dtype without infinities to which autocast casts a stock dtype, or None."""
    # Autocast does not cast float64.
    low = None if dtype is torch.float64 else find_autocast_dtype(device.type)
    return None if low is None or has_infinity(low) else low


def _within(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Replace numbers of a mask below the dtype's range by the value of masked places.

    The mask has a dtype that is no narrower.
    """
    lowest, value = _limits(dtype)
    return mask.masked_fill(mask < lowest, value)


@clearable_cache
def _limits(dtype: torch.dtype) -> tuple[float, float]:
    """Return the dtype's lowest number and the value of masked places.

    Both are computed outside a graph that records the operations on masks.
    """
    with _disable_current_modes():
        return torch.finfo(dtype).min, mask_value(dtype)


def canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """Run torch.nn.functional._canonical_mask for attention in a format dtype.

    Bool masks and stock masks become masks of that dtype. Where autocast will cast them to a format
    dtype without infinities, they keep the stock dtype, with numbers that it has.
    """
    if mask is None or _C.format_of(mask.dtype) is not None:
        return None
    own = (
        target_type
        if _C.format_of(target_type) is not None
        else _autocast_format(mask.device, target_type)
    )
    if own is None:
        return None
    # PyTorch checks the arguments and fills bool masks; float64 loses nothing.
    mask = F._canonical_mask(
        mask, mask_name, other_type, other_name, torch.float64, check_other
    ).double()
    return _within(mask, own).to(target_type)


def autocast_mask(mask):
    """Put a stock mask, which is added to scores, into the range of autocast's format dtype.

    Any other mask is returned as it is.
    """
    if (
        not isinstance(mask, torch.Tensor)
        or not mask.is_floating_point()
        or _C.is_format_tensor(mask)
    ):
        return mask
    own = _autocast_format(mask.device, mask.dtype)
    return mask if own is None else _within(mask.float(), own)


def subsequent_mask(sz, device=None, dtype=None):
    """Run torch.nn.Transformer.generate_square_subsequent_mask for a format dtype."""
    wanted = torch.get_default_dtype() if dtype is None else dtype
    if _C.format_of(wanted) is None:
        return None
    return torch.triu(
        torch.full((sz, sz), mask_value(wanted), dtype=wanted, device=device), diagonal=1
    )


# ---- lists of tensors in several dtypes ----


def total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Run torch.nn.utils.get_total_norm for tensors of which some are format tensors.

    The norm is a float32 number, or float64 where one of the dtypes is wider, since a format may
    lack it. Nothing is rounded to a format on the way.
    """
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
            f"expected a finite total norm of order {norm_type}, but got {total.item()}; fix the "
            "gradients, or set error_if_nonfinite=False to scale them by it anyway"
        )
    return total


# ---- buffers and frozen parameters of modules ----


def write_infinities(source: object, cast: object) -> None:
    """Write the infinities of a stock tensor into its cast as the format's numbers for them."""
    plain = (torch.Tensor, torch.nn.Parameter)
    if (
        type(source) not in plain
        or type(cast) not in plain
        or source.is_meta
        or cast.is_meta
        or source.layout is not torch.strided
    ):
        return
    form, is_stock = _C.format_of(cast.dtype), _C.format_of(source.dtype) is None
    if (
        form is None
        or not form.infinity_is_nan
        or not is_stock
        or not source.is_floating_point()
        or source.shape != cast.shape
    ):
        return
    with torch.no_grad():
        for infinity in (float("inf"), float("-inf")):
            if (places := source == infinity).any():
                cast.masked_fill_(places.to(cast.device), infinity)
