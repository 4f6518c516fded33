"""Stock Python functions that make numbers no format need have (infinities, in masks for instance), and what they do in ours instead."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.utils import _foreach_utils

from .. import _C
from .table import Builtin, Extended, When

_stock_canonical_mask = F._canonical_mask


def _has_infinity(dtype: torch.dtype) -> bool:
    """Whether numbers of a dtype of ours become infinite: not where they saturate, whatever codes there are."""
    fmt = _C.format_of(dtype)
    return fmt.has_infinity and fmt.overflow != _C.Overflow.saturate


def masked_identity(op_name: str, x: torch.Tensor, *args) -> torch.Tensor | None:
    """What stands for masked elements in torch.masked's functions. Where stock has an infinity and the format has none, its outermost number
    does the same."""
    if not _C.is_format_tensor(x):
        return None
    smallest = op_name in ("amax", "argmax", "logaddexp", "logsumexp")
    largest = op_name in ("amin", "argmin") or (op_name == "norm" and bool(args) and args[0] == float("-inf"))
    if not (smallest or largest) or _has_infinity(x.dtype):
        return None
    info = torch.finfo(x.dtype)
    return torch.tensor(info.min if smallest else info.max, dtype=x.dtype, device=x.device)


# ---- masks of attention ----


def mask_value(dtype: torch.dtype) -> float:
    """What an attention score gets added where it is masked: -inf, or in a format without infinities its outermost number.

    Scores and a second mask are added to it. Where that would leave the range for NaN or wrap around, as in fn floats, it is a quarter of
    the outermost number, so that two masks and a score stay within.
    """
    if _has_infinity(dtype):
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
    """sqrt(min(m, n)) * eps of our dtype, at most 1/2: what the rounding of entries can move a singular value by, twice over.

    Each entry is off by eps/2 of itself, the matrix by E with |E|_2 <= |E|_F <= eps/2 |A|_F <= eps/2 sqrt(min(m, n)) |A|_2, and no singular
    value by more than |E|_2 (Weyl; Golub and Van Loan, "Matrix Computations", section 2.4). PyTorch's default, max(m, n) * eps, allows for
    computing in eps, which we do not: of the type that we compute in it is the least that is asked for. In narrow formats it is above 1.
    """
    rows, columns = a.shape[-2:]
    computed_in = torch.float32 if _C.format_of(a.dtype).fits_float else torch.float64
    least = max(rows, columns) * torch.finfo(computed_in).eps
    return min(max(min(rows, columns) ** 0.5 * torch.finfo(a.dtype).eps, least), 0.5)


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
    """Tensor.pinverse, likewise."""
    given = args or kwargs or self.dim() < 2
    return stock(*args, **kwargs) if given else stock(_relative_tolerance(self))


def lstsq(stock, *args, **kwargs):
    """torch.linalg.lstsq(A, B, rcond=None, *, driver=None); the driver gels takes A to be of full rank.

    Stock's default, gelsy, gets the order of its first pivots from uninitialised memory. That decides where a format's large tolerance cuts,
    so that two calls differ by more than the last place; the default here is gelsd, which goes by singular values.
    """
    a = args[0] if args else kwargs["input"]
    given = args[2] if len(args) > 2 else kwargs.get("rcond")
    if given is None and a.dim() >= 2 and kwargs.get("driver") != "gels":
        args, kwargs = args[:2], {**kwargs, "rcond": _relative_tolerance(a)}
    if kwargs.get("driver") is None:
        kwargs["driver"] = "gelsd"
    return stock(*args, **kwargs)


# ---- lists of tensors in several dtypes ----


def group_tensors(tensorlistlist, with_indices=False):
    """Groups for foreach and fused functions, which want one dtype: stock's, which are by container, parted by dtype."""
    if not tensorlistlist or not any(isinstance(t, torch.Tensor) and _C.is_format_tensor(t) for t in tensorlistlist[0]):
        return None
    groups = {}
    for (device, _), (lists, indices) in torch._C._group_tensors_by_device_and_dtype(tensorlistlist, True).items():
        for place, (tensor, index) in enumerate(zip(lists[0], indices, strict=True)):
            parted, kept = groups.setdefault((device, tensor.dtype), ([[] for _ in lists], []))
            for part, tensors in zip(parted, lists, strict=True):
                part.extend(tensors[place : place + 1])  # a list may be empty
            if with_indices:
                kept.append(index)
    return groups


def total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """torch.nn.utils.get_total_norm of tensors in several dtypes, one of them ours: the norm of each is of its dtype, and these, which no
    tensor of one format could hold, are numbers of float32, or of float64 where one of the dtypes is wider."""
    if isinstance(tensors, torch.Tensor):
        return None
    if not isinstance(tensors, (list, tuple)):
        return torch.nn.utils.get_total_norm(list(tensors), norm_type, error_if_nonfinite, foreach)
    dtypes = {t.dtype for t in tensors}
    formats = [f for f in map(_C.format_of, dtypes) if f is not None]
    if len(dtypes) < 2 or not formats:
        return None
    wide = torch.float32
    if not all(f.fits_float for f in formats) or dtypes & {torch.float64, torch.complex128}:
        wide = torch.float64
    norms, norm_type = [], float(norm_type)
    for (device, _), ([group], _) in _foreach_utils._group_tensors_by_device_and_dtype([list(tensors)]).items():
        if foreach or (foreach is None and _foreach_utils._has_foreach_support(group, device)):
            norms += torch._foreach_norm(group, norm_type)
        else:
            norms += [torch.linalg.vector_norm(t, norm_type) for t in group]
    total = torch.linalg.vector_norm(torch.stack([n.to(tensors[0].device, wide) for n in norms]), norm_type)
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError(
            f"expected a finite total norm of order {norm_type}, but got {total.item()}: such gradients cannot be clipped. Set "
            "error_if_nonfinite=False to scale them by it anyway."
        )
    return total


_LINALG = "torch._C._linalg"
HOOKS = [
    Extended("torch.masked._ops", "_reduction_identity", masked_identity),
    Extended("torch.nn.functional", "_canonical_mask", canonical_mask),
    Extended("torch.nn.modules.transformer", "_generate_square_subsequent_mask", subsequent_mask),
    *(Builtin(_LINALG, name, rank_tolerance, When.OWN_SELF) for name in ("linalg_matrix_rank", "linalg_pinv")),
    Builtin(_LINALG, "linalg_lstsq", lstsq, When.OWN_SELF),
    Builtin("torch._C._VariableFunctions", "pinverse", pinverse, When.OWN_SELF),
    Builtin("torch._C.TensorBase", "pinverse", pinverse_method, When.OWN_SELF),
    Extended("torch.utils._foreach_utils", "_group_tensors_by_device_and_dtype", group_tensors, within=True),
    Extended("torch.nn.utils", "get_total_norm", total_norm, within=True),
]
