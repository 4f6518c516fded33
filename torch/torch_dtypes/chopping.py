"""chop: rounding float arrays to a number format, float values in and out."""

from __future__ import annotations

import sys
from typing import Any, overload

import torch

from . import _C
from .formats import format_of, rounding_mode

__all__ = ["chop"]

_FLOATS = (torch.float32, torch.float64)
_NARROW_FLOATS = (torch.float16, torch.bfloat16)


class _Chop(torch.autograd.Function):
    """The straight-through estimator: the gradient of the identity."""

    @staticmethod
    def forward(x: torch.Tensor, fmt: _C.Format, flip_prob: float, generator: torch.Generator | None) -> torch.Tensor:
        return _C.chop(x, fmt, flip_prob, generator)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return tangent.view_as(tangent)

    @staticmethod
    def vmap(info, in_dims, x, fmt, flip_prob, generator):
        return _Chop.apply(x, fmt, flip_prob, generator), in_dims[0]


def _chop_tensor(x: torch.Tensor, fmt: _C.Format, flip_prob: float, generator: torch.Generator | None) -> torch.Tensor:
    if x.dtype in _FLOATS:
        return _Chop.apply(x, fmt, flip_prob, generator)
    if x.dtype in _NARROW_FLOATS:
        return _Chop.apply(x.float(), fmt, flip_prob, generator).to(x.dtype)
    raise TypeError(f"expected a tensor of float16, bfloat16, float32 or float64 to chop, but got {x.dtype}")


def _chop_numpy(x, fmt: _C.Format, flip_prob: float, generator: torch.Generator | None):
    import numpy as np

    dtype = x.dtype.newbyteorder("=")
    if dtype not in (np.float16, np.float32, np.float64):
        raise TypeError(f"expected an array of float16, float32 or float64 to chop, but got {x.dtype}")
    # torch takes native byte order, writeable memory and strides that are not negative.
    native = np.ascontiguousarray(x, dtype=dtype)
    source = native if native.flags.writeable else native.copy()
    return _chop_tensor(torch.from_numpy(source), fmt, flip_prob, generator).numpy().reshape(x.shape)


def _chop_jax(x, fmt: _C.Format, flip_prob: float, generator: torch.Generator | None):
    import jax
    import numpy as np

    if not isinstance(x, jax.core.Tracer):
        return jax.dlpack.from_dlpack(_chop_tensor(torch.from_dlpack(x).detach(), fmt, flip_prob, generator))

    @jax.custom_jvp
    def chopped(x):
        def call(values):
            return _chop_numpy(np.asarray(values), fmt, flip_prob, generator)

        return jax.pure_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")

    chopped.defjvp(lambda primals, tangents: (chopped(*primals), tangents[0]))
    return chopped(x)


def _is_jax(x: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def _is_numpy(x: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, (numpy.ndarray, numpy.floating))


@overload
def chop(
    x: torch.Tensor,
    D: torch.dtype | str | _C.Format,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> torch.Tensor: ...
@overload
def chop(
    x: float,
    D: torch.dtype | str | _C.Format,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> float: ...
@overload
def chop(
    x: Any,
    D: torch.dtype | str | _C.Format,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> Any: ...
def chop(
    x: Any,
    D: torch.dtype | str | _C.Format,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> Any:
    """Rounds float values to a number format and gives them back as floats: ``chop(1.3, "q43")`` is 1.25.

    Each value is rounded once, from its own type (float64 not by way of float32). Differentiable by the straight-through estimator: the
    gradient is the identity's, also where values overflow. NaN stays NaN where the format has one, and becomes what docs/numerics.md says
    where not; infinities likewise.

    Args:
        x: a torch tensor of float16, bfloat16, float32 or float64; a NumPy array or JAX array of those that they have; or a number (the
            result is a float). The result is of the same kind, type and shape. No memory is copied on the way in or out, but for arrays
            that torch cannot see (read-only or byte-swapped ones) and for the two half types, which are rounded as float32 and whose
            result rounds to the half type where that lacks the value. Under ``jax.jit`` a call goes back to the host
            (``pure_callback``), which JAX may repeat or drop: draw stochastic roundings outside of it.
        D: a dtype of this package, or the name of a format (any that ``torch_dtypes.dtype`` takes), or a format. Names and formats take
            none of the process's 64 dtypes, so sweeps over thousands of formats are possible.
        rounding: one of ``ROUNDING_MODES`` or Pychop's number; default: D's own, or that of a ``with torch_dtypes.rounding(...)`` block.
        generator: a CPU generator for stochastic modes and flips; default: torch's. One seed is drawn each call (one more for flips),
            so the result depends on the generator's state alone, not on threads.
        flip_prob: 0 to 1: with this probability each, one random significand bit of a result's code is flipped (fault injection), of
            infinities and NaNs none. float: a fraction bit; posit: one of the fraction bits that the value has; fixed point: any bit but
            the sign.

    Raises:
        TypeError: x or D is none of the above. ValueError: an unknown name or mode, or a flip_prob out of range. NotImplementedError: a
            tensor that is not on the CPU.

    Sources: Higham, Pranesh, "Simulating low precision floating-point arithmetic", SISC 41 (2019); Bengio, Leonard, Courville, "Estimating
    or propagating gradients through stochastic neurons" (2013), for the estimator.
    """
    fmt = _C.Format(D) if isinstance(D, _C.Format) else format_of(D)
    if rounding is not None:
        fmt.rounding = rounding_mode(rounding)
    elif (override := _C.rounding_override()) is not None:
        fmt.rounding = override
    if isinstance(flip_prob, bool) or not isinstance(flip_prob, (int, float)) or not 0 <= flip_prob <= 1:
        raise ValueError(f"expected flip_prob from 0 to 1, but got {flip_prob!r}")
    if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != "cpu"):
        raise TypeError(f"expected a torch.Generator on the CPU, but got {generator!r}")
    if isinstance(x, torch.Tensor):
        return _chop_tensor(x, fmt, flip_prob, generator)
    if _is_numpy(x):
        result = _chop_numpy(x, fmt, flip_prob, generator)
        return result if x.shape else result[()]
    if _is_jax(x):
        return _chop_jax(x, fmt, flip_prob, generator)
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return _chop_tensor(torch.tensor(x, dtype=torch.float64), fmt, flip_prob, generator).item()
    raise TypeError(f"expected a torch tensor, a NumPy or JAX array or a number to chop, but got {type(x).__name__}")
