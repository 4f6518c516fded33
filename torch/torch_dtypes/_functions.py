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


# ---- tolerances of linear algebra ----


def _relative_tolerance(a: torch.Tensor) -> float:
    """What PyTorch documents as the default, max(m, n) * eps, by the eps of our dtype: stock takes that of what it computes in."""
    return max(a.shape[-2:]) * torch.finfo(a.dtype).eps


def rank_tolerance(stock, *args, atol=None, rtol=None, **kwargs):
    """torch.linalg.matrix_rank and pinv: (A, [tolerance,] *, atol, rtol, hermitian, out)."""
    a = args[0] if args else kwargs["input"]
    given = len(args) > 1 or rtol is not None or "tol" in kwargs or "rcond" in kwargs
    if not given and a.dim() >= 2:
        if isinstance(atol, torch.Tensor):
            rtol = torch.where(atol > 0, 0.0, _relative_tolerance(a))
        elif atol is None or atol <= 0:
            rtol = _relative_tolerance(a)
    tolerances = {name: v for name, v in (("atol", atol), ("rtol", rtol)) if v is not None}
    return stock(*args, **tolerances, **kwargs)


def pinverse(stock, *args, **kwargs):
    """torch.pinverse(A, rcond=1e-15), whose default no format is precise enough for."""
    a = args[0] if args else kwargs["input"]
    given = len(args) > 1 or "rcond" in kwargs or a.dim() < 2
    return stock(*args, **kwargs) if given else stock(*args, rcond=_relative_tolerance(a), **kwargs)


def pinverse_method(stock, self, *args, **kwargs):
    given = args or kwargs or self.dim() < 2
    return stock(*args, **kwargs) if given else stock(_relative_tolerance(self))


def lstsq(stock, *args, **kwargs):
    """torch.linalg.lstsq(A, B, rcond=None, *, driver=None); the driver gels takes A to be of full rank."""
    a = args[0] if args else kwargs["input"]
    given = args[2] if len(args) > 2 else kwargs.get("rcond")
    if given is None and a.dim() >= 2 and kwargs.get("driver") != "gels":
        args, kwargs = args[:2], {**kwargs, "rcond": _relative_tolerance(a)}
    return stock(*args, **kwargs)
