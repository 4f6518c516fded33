"""Format dtypes in torch.testing: tolerances for assert_close, and the dtypes of make_tensor. Both
are module data there."""

from __future__ import annotations

import torch
from torch.testing import _comparison, _creation  # `import torch` has imported them

from .. import _C


def tolerances(dtype: torch.dtype) -> tuple[float, float]:
    """Return (rtol, atol) for a format dtype: two steps at 1, and one step at 0 or 1e-5.

    PyTorch's own rtol is 1 eps for float16, 2 for bfloat16 and 11 for float32, and its atol is
    1e-5. Formats with at most one fraction bit get rtol = 1/2, since twice their eps would let 0
    pass for any number. So do tables without a neighbour of 1. Fixed-point numbers have equal
    steps, so their rtol is 0 and their atol two steps.
    """
    info, fmt = torch.finfo(dtype), _C.format_of(dtype)
    if fmt.kind == _C.Kind.table:
        return min(2 * info.eps, 0.5) if info.eps == info.eps else 0.5, max(1e-5, info.tiny)
    if fmt.kind == _C.Kind.fixed:
        return 0.0, max(1e-5, 2 * info.eps)
    subnormal = fmt.kind == _C.Kind.float and fmt.subnormals == _C.Subnormals.gradual
    return min(2 * info.eps, 0.5), max(1e-5, info.tiny * info.eps if subnormal else info.tiny)


def add(dtype: torch.dtype) -> None:
    """Add a new dtype to the lists of assert_close and make_tensor."""
    _comparison._DTYPE_PRECISIONS[dtype] = tolerances(dtype)
    _creation._FLOATING_OR_COMPLEX_TYPES.append(dtype)


def remove(dtype: torch.dtype) -> None:
    """Undo ``add``."""
    _comparison._DTYPE_PRECISIONS.pop(dtype, None)
    if dtype in _creation._FLOATING_OR_COMPLEX_TYPES:
        _creation._FLOATING_OR_COMPLEX_TYPES.remove(dtype)
