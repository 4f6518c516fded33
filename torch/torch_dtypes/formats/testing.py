"""What torch.testing knows of a dtype: the tolerances of assert_close, and that make_tensor takes
it. Both are modules' data."""

from __future__ import annotations

import torch
from torch.testing import _comparison, _creation  # `import torch` has imported them

from .. import _C


def tolerances(dtype: torch.dtype) -> tuple[float, float]:
    """(rtol, atol) for a dtype of ours: two steps of the numbers from 1 on, and one step of those
    from 0 on or stock's 1e-5.

    Stock's rtol are 1 eps (float16), 2 (bfloat16) and 11 (float32), its atol 1e-5. Formats without
    a fraction, or one bit of it, get rtol = 1/2, as do tables without a neighbour of 1: twice their
    eps would let 0 pass for any number. Fixed point's numbers lie equally far apart: two steps,
    rtol = 0.
    """
    info, fmt = torch.finfo(dtype), _C.format_of(dtype)
    if fmt.kind == _C.Kind.table:
        return min(2 * info.eps, 0.5) if info.eps == info.eps else 0.5, max(1e-5, info.tiny)
    if fmt.kind == _C.Kind.fixed:
        return 0.0, max(1e-5, 2 * info.eps)
    subnormal = fmt.kind == _C.Kind.float and fmt.subnormals == _C.Subnormals.gradual
    return min(2 * info.eps, 0.5), max(1e-5, info.tiny * info.eps if subnormal else info.tiny)


def add(dtype: torch.dtype) -> None:
    """Makes a new dtype known to assert_close and make_tensor, whose lists of types are modules'
    data."""
    _comparison._DTYPE_PRECISIONS[dtype] = tolerances(dtype)
    _creation._FLOATING_OR_COMPLEX_TYPES.append(dtype)


def remove(dtype: torch.dtype) -> None:
    """Undoes ``add``."""
    _comparison._DTYPE_PRECISIONS.pop(dtype, None)
    if dtype in _creation._FLOATING_OR_COMPLEX_TYPES:
        _creation._FLOATING_OR_COMPLEX_TYPES.remove(dtype)
