"""Hooks of Python functions that make numbers which a format may lack, as infinities in masks."""

from __future__ import annotations

import torch

from ... import _C
from ...formats.code_types import compute_type
from ..stock_functions import canonical_mask, has_infinity, subsequent_mask, total_norm
from ..table import Hook, Kind
from .trampolines import When


def masked_identity(op_name: str, x: torch.Tensor, *args) -> torch.Tensor | None:
    """Return the number that torch.masked puts in the place of masked elements.

    Where PyTorch uses an infinity and the format has none, its outermost number does the same.
    """
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
    """Return sqrt(min(m, n)) * eps of the format, at most 1/2.

    It is twice as far as the rounding of entries can move a singular value. Each entry is off by
    eps/2 of itself, the matrix by E with |E|_2 <= |E|_F <= eps/2 |A|_F <= eps/2 sqrt(min(m, n))
    |A|_2, and no singular value by more than |E|_2 (Weyl; Golub and Van Loan, "Matrix
    Computations", section 2.4).

    PyTorch's default, max(m, n) * eps, allows for errors of a computation in this eps, and is above
    1 in narrow formats. Here the computation runs in the compute dtype, whose default is the lower
    bound.
    """
    rows, columns = a.shape[-2:]
    least = max(rows, columns) * torch.finfo(compute_type(a.dtype)).eps
    return min(max(min(rows, columns) ** 0.5 * torch.finfo(a.dtype).eps, least), 0.5)


def rank_tolerance(stock, *args, atol=None, rtol=None, **kwargs):
    """Choose the default tolerance of torch.linalg.matrix_rank and pinv by the format.

    The arguments are (A, [tolerance,] *, atol, rtol, hermitian, out).
    """
    a = args[0] if args else kwargs["input"]
    has_tolerance = len(args) > 1 or rtol is not None or "tol" in kwargs or "rcond" in kwargs
    if not has_tolerance and a.dim() >= 2:
        if isinstance(atol, torch.Tensor):
            rtol = torch.where(atol > 0, 0.0, _relative_tolerance(a))
        elif atol is None or atol <= 0:
            rtol = _relative_tolerance(a)
    tolerances = {name: v for name, v in (("atol", atol), ("rtol", rtol)) if v is not None}
    return stock(*args, **tolerances, **kwargs)


def pinverse(stock, *args, **kwargs):
    """Replace the default rcond=1e-15 of torch.pinverse, for which no format is precise enough."""
    a = args[0] if args else kwargs["input"]
    has_tolerance = len(args) > 1 or "rcond" in kwargs or a.dim() < 2
    return (
        stock(*args, **kwargs)
        if has_tolerance
        else stock(*args, rcond=_relative_tolerance(a), **kwargs)
    )


def pinverse_method(stock, self, *args, **kwargs):
    """Replace the default rcond=1e-15 of Tensor.pinverse."""
    has_tolerance = args or kwargs or self.dim() < 2
    return stock(*args, **kwargs) if has_tolerance else stock(_relative_tolerance(self))


def lstsq(stock, *args, **kwargs):
    """Choose rcond and the driver of torch.linalg.lstsq(A, B, rcond=None, *, driver=None).

    PyTorch's default driver, gelsy, gets the order of its first pivots from uninitialised memory.
    The order decides where a format's large tolerance cuts, so that two calls differ by more than
    the last place. The default here is gelsd, which uses singular values. LAPACK's gelsd, unlike
    gelsy, raises without a right-hand side. The driver gels takes A to be of full rank and gets no
    rcond.
    """
    a = args[0] if args else kwargs["input"]
    b = args[1] if len(args) > 1 else kwargs.get("b")
    rcond = args[2] if len(args) > 2 else kwargs.get("rcond")
    if rcond is None and a.dim() >= 2 and kwargs.get("driver") != "gels":
        args, kwargs = args[:2], {**kwargs, "rcond": _relative_tolerance(a)}
    if kwargs.get("driver") is None and not (isinstance(b, torch.Tensor) and b.numel() == 0):
        kwargs["driver"] = "gelsd"
    return stock(*args, **kwargs)


# ---- lists of tensors in several dtypes ----


def group_tensors(tensorlistlist, with_indices=False):
    """Group tensors for foreach and fused functions by the first list's devices and dtypes.

    PyTorch groups by storage dtype, and raises where one list is float32 and another is stored in 8
    bits.
    """
    if not tensorlistlist or _C.format_in(tensorlistlist) is None:
        return None
    groups = {}
    for index, tensor in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault(
            (tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], [])
        )
        for part, tensors in zip(lists, tensorlistlist, strict=True):
            part.extend(tensors[index : index + 1])  # a list may be empty
        if with_indices:
            indices.append(index)
    return groups


# ---- control flow: PyTorch captures its functions as graphs, in eager code too ----


def choose_branch(pred, true_fn, false_fn, operands=()):
    """Call one of the functions of torch.cond where operands are format tensors."""
    if (
        not isinstance(pred, torch.Tensor)
        or pred.numel() != 1
        or _C.format_in((pred, operands)) is None
    ):
        return None
    result = (true_fn if pred else false_fn)(*operands)
    if result is None:
        raise NotImplementedError(
            "expected the functions of torch.cond to return tensors where operands are format "
            "tensors, but got None; return a tensor"
        )
    return result


def run_loop(cond_fn, body_fn, carried_inputs):
    """Run while_loop with format tensors as a loop in Python."""
    if _C.format_in(carried_inputs) is None:
        return None
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
        if isinstance(carried_inputs, torch.Tensor):
            carried_inputs = (carried_inputs,)
    return carried_inputs


def refuse_captured(*args, **kwargs) -> None:
    """Raise: the graphs that scan and map capture cannot hold format dtypes."""
    if (name := _C.format_in((args, kwargs))) is not None:
        raise NotImplementedError(
            "expected operands of stock dtypes for a function that is captured as a graph, but "
            f"got torch.{name}; write a loop in Python, or use torch.vmap, instead of torch's "
            "scan and map"
        )


def refuse_jitted(*args, **kwargs) -> None:
    """Raise: a user's CUDA code, compiled at the call, would take codes for numbers."""
    if (name := _C.format_in((args[1:], kwargs))) is not None:
        raise NotImplementedError(
            "expected operands of stock dtypes for a function of torch.cuda.jiterator, but got "
            f"torch.{name}; cast them to float32, and the result back"
        )


_CONTROL = "torch._higher_order_ops"
_LINALG = "torch._C._linalg"


def refuse_scaled_product(stock, *args, **kwargs):
    """Raise for torch._scaled_mm, whose own errors mention only PyTorch's float8 dtypes."""
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
    Hook("torch.cond", Kind.ASKED, choose_branch),
    Hook(f"{_CONTROL}.while_loop.while_loop", Kind.ASKED, run_loop),
    *(Hook(f"{_CONTROL}.{name}.{name}", Kind.ASKED, refuse_captured) for name in ("scan", "map")),
]
