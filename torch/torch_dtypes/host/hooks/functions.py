"""Stock Python functions that make numbers no format need have (infinities, in masks for instance),
and what they do in ours instead."""

from __future__ import annotations

import torch

from ... import _C
from ...formats.code_types import compute_type
from ..stock_functions import canonical_mask, has_infinity, subsequent_mask, total_norm
from ..table import Hook, Kind
from .trampolines import When


def masked_identity(op_name: str, x: torch.Tensor, *args) -> torch.Tensor | None:
    """What stands for masked elements in torch.masked's functions. Where stock has an infinity and
    the format has none, its outermost number does the same."""
    if not _C.is_format_tensor(x):
        return None
    smallest = op_name in ("amax", "argmax", "logaddexp", "logsumexp")
    largest = op_name in ("amin", "argmin") or (
        op_name == "norm" and bool(args) and args[0] == float("-inf")
    )
    if not (smallest or largest) or has_infinity(x.dtype):
        return None
    info = torch.finfo(x.dtype)
    return torch.tensor(info.min if smallest else info.max, dtype=x.dtype, device=x.device)


# ---- tolerances of linear algebra ----


def _relative_tolerance(a: torch.Tensor) -> float:
    """sqrt(min(m, n)) * eps of our dtype, at most 1/2: what the rounding of entries can move a
    singular value by, twice over.

    Each entry is off by eps/2 of itself, the matrix by E with |E|_2 <= |E|_F <= eps/2 |A|_F <=
    eps/2 sqrt(min(m, n)) |A|_2, and no singular value by more than |E|_2 (Weyl; Golub and Van Loan,
    "Matrix Computations", section 2.4). PyTorch's default, max(m, n) * eps, allows for computing in
    eps, which we do not: of the type that we compute in it is the least that is asked for. In
    narrow formats it is above 1.
    """
    rows, columns = a.shape[-2:]
    least = max(rows, columns) * torch.finfo(compute_type(a.dtype)).eps
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
    """torch.linalg.lstsq(A, B, rcond=None, *, driver=None); the driver gels takes A to be of full
    rank.

    Stock's default, gelsy, gets the order of its first pivots from uninitialised memory. That
    decides where a format's large tolerance cuts, so that two calls differ by more than the last
    place; the default here is gelsd, which goes by singular values. Without a right-hand side
    LAPACK's gelsd is an error (gelsy is not).
    """
    a = args[0] if args else kwargs["input"]
    b = args[1] if len(args) > 1 else kwargs.get("b")
    given = args[2] if len(args) > 2 else kwargs.get("rcond")
    if given is None and a.dim() >= 2 and kwargs.get("driver") != "gels":
        args, kwargs = args[:2], {**kwargs, "rcond": _relative_tolerance(a)}
    if kwargs.get("driver") is None and not (isinstance(b, torch.Tensor) and b.numel() == 0):
        kwargs["driver"] = "gelsd"
    return stock(*args, **kwargs)


# ---- lists of tensors in several dtypes ----


def group_tensors(tensorlistlist, with_indices=False):
    """Groups for foreach and fused functions, by the first list's devices and dtypes.

    Stock's are by container, and where one list is float32, another of an 8-bit container is an
    error.
    """
    if not tensorlistlist or _C.format_in(tensorlistlist) is None:
        return None
    groups = {}
    for index, tensor in enumerate(tensorlistlist[0]):
        parted, kept = groups.setdefault(
            (tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], [])
        )
        for part, tensors in zip(parted, tensorlistlist, strict=True):
            part.extend(tensors[index : index + 1])  # a list may be empty
        if with_indices:
            kept.append(index)
    return groups


# ---- control flow, of which PyTorch captures the functions as graphs in eager code too ----


def chosen(pred, true_fn, false_fn, operands=()):
    """torch.cond with operands of ours: one of the functions is called."""
    if (
        not isinstance(pred, torch.Tensor)
        or pred.numel() != 1
        or _C.format_in((pred, operands)) is None
    ):
        return None
    made = (true_fn if pred else false_fn)(*operands)
    if made is None:
        raise NotImplementedError(
            "expected the functions of torch.cond to return tensors where operands are of a "
            "number format, but got None"
        )
    return made


def repeated(cond_fn, body_fn, carried_inputs):
    """while_loop of tensors of ours: a loop of Python's."""
    if _C.format_in(carried_inputs) is None:
        return None
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
        if isinstance(carried_inputs, torch.Tensor):
            carried_inputs = (carried_inputs,)
    return carried_inputs


def refuse_captured(*args, **kwargs) -> None:
    """An error: what scan and map capture of a function knows no dtype of ours."""
    if (name := _C.format_in((args, kwargs))) is not None:
        raise NotImplementedError(
            "expected operands of stock dtypes for a function that is captured as a graph, but "
            f"got torch.{name}: write a loop in Python, or use "
            "torch.vmap, instead of torch's scan and map."
        )


def refuse_jitted(*args, **kwargs) -> None:
    """An error: a user's CUDA code for each element, compiled at the call, would take codes for the
    container's numbers."""
    if (name := _C.format_in((args[1:], kwargs))) is not None:
        raise NotImplementedError(
            "expected operands of stock dtypes for a function of torch.cuda.jiterator, but got "
            f"torch.{name}: cast them to float32, and the result "
            "back."
        )


_CONTROL = "torch._higher_order_ops"
_LINALG = "torch._C._linalg"


def refuse_scaled_product(stock, *args, **kwargs):
    """torch._scaled_mm, whose errors speak of PyTorch's float8 dtypes alone."""
    a = args[0] if args else kwargs["input"]
    raise NotImplementedError(
        f"torch._scaled_mm: expected operands of PyTorch's float8 dtypes, but got {a.dtype}; use "
        "(a @ b) * (scale_a * scale_b), under torch_dtypes.accumulate('nvidia-h100') with the "
        "sums of a tensor core, or quantize_ for a layer with scales"
    )


HOOKS = [
    Hook("torch.masked._ops._reduction_identity", Kind.ASKED, masked_identity),
    Hook("torch.nn.functional._canonical_mask", Kind.ASKED, canonical_mask),
    Hook(
        "torch.nn.modules.transformer._generate_square_subsequent_mask", Kind.ASKED, subsequent_mask
    ),
    *(
        Hook(f"{_LINALG}.{name}", Kind.ASKING, rank_tolerance, When.OWN_SELF)
        for name in ("linalg_matrix_rank", "linalg_pinv")
    ),
    Hook(f"{_LINALG}.linalg_lstsq", Kind.ASKING, lstsq, When.OWN_SELF),
    Hook("torch._C._VariableFunctions.pinverse", Kind.ASKING, pinverse, When.OWN_SELF),
    Hook("torch._C.TensorBase.pinverse", Kind.ASKING, pinverse_method, When.OWN_SELF),
    *(
        Hook(
            f"torch._C._VariableFunctions.{name}",
            Kind.BUILTIN,
            refuse_scaled_product,
            When.OWN_SELF,
        )
        for name in ("_scaled_mm", "_scaled_mm_v2")
    ),
    Hook(
        "torch.utils._foreach_utils._group_tensors_by_device_and_dtype",
        Kind.ASKED,
        group_tensors,
        within=True,
    ),
    Hook("torch.nn.utils.get_total_norm", Kind.ASKED, total_norm, within=True),
    Hook("torch.cuda.jiterator._JittedFunction.__call__", Kind.ASKED, refuse_jitted),
    Hook("torch.cond", Kind.ASKED, chosen),
    Hook(f"{_CONTROL}.while_loop.while_loop", Kind.ASKED, repeated),
    *(Hook(f"{_CONTROL}.{name}.{name}", Kind.ASKED, refuse_captured) for name in ("scan", "map")),
]
