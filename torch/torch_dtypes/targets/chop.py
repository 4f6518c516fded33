"""chop: round float arrays to a number format, float values in and out."""

from __future__ import annotations

import array
import sys
import threading
from typing import Any, overload

import torch

from .. import _C
from ..formats.arguments import find_mode, outline
from ..formats.dtypes import format_of
from . import python_integers
from .base import Target
from .grid import (
    FLOATS,
    MAX_NAMES,
    by_parts,
    check_generator,
    expect_within_float64,
    floats_of,
    has_integers,
    mark_constant,
    name_of,
    record,
    round_tensor,
)
from .lookup import FormatTarget, target, target_of_chop
from .quantisers import Quantiser, is_quantiser

__all__ = ["chop"]

_PLAIN: dict[str, bool] = {}  # whether a name is one of a format, and not of another target


@mark_constant
def _is_plain(name: str) -> bool:
    """Whether a name is a format's or unknown, and not that of blocks or integers."""
    if (plain := _PLAIN.get(name)) is None:
        plain = target_of_chop(name) is None
        # An unknown name: format_of raises here, because the operator takes no text outside UTF-8.
        if plain and not name.isascii():
            format_of(name)
        if len(_PLAIN) >= MAX_NAMES:
            _PLAIN.clear()
        _PLAIN[name] = plain
    return plain


def _target_of(D: object, flip_prob: float) -> _C.Format | str | Any:
    """Return the target of D, or its name if it is one format."""
    if not isinstance(D, (str, torch.dtype, Target)) and not is_quantiser(D):
        return D if isinstance(D, _C.Format) else format_of(D)  # which raises the error
    result = target(D)
    if isinstance(result, FormatTarget):
        return result.format_name
    if flip_prob != 0:
        raise ValueError(
            f"expected flip_prob=0 with {result.name}, but got {flip_prob!r}: bits are flipped "
            "only in formats without scales"
        )
    return result


def _chop_traced(x, D, rounding, generator, flip_prob):
    """Round as ``chop`` does, where dynamo traces."""
    if isinstance(x, torch.Tensor) and x.dtype.is_complex:
        return by_parts(x, lambda parts: _chop_traced(parts, D, rounding, generator, flip_prob))
    if not isinstance(x, torch.Tensor) or x.dtype not in FLOATS:
        torch._dynamo.graph_break(msg="chop in a graph takes stock tensors of floating dtypes")
        return chop(x, D, rounding, generator, flip_prob)
    if (isinstance(D, str) and not _is_plain(D)) or not isinstance(
        D, (str, torch.dtype, _C.Format)
    ):
        D = _target_of(D, flip_prob)
        if hasattr(D, "quantize"):
            return D.quantize(x, rounding=rounding, generator=generator)
    return record(x, D, rounding, generator, flip_prob, chop)


def _chop_tensor(
    x: torch.Tensor,
    name: str | Any,
    mode: str | None,
    flip_prob: float,
    generator: torch.Generator | None,
) -> torch.Tensor:
    if isinstance(name, str):
        return round_tensor(x, name, mode, flip_prob, generator)
    return name.quantize(floats_of(x) if has_integers(x) else x, rounding=mode, generator=generator)


def tensor_of_array(x) -> torch.Tensor:
    """Return a NumPy array as a tensor, without a copy where torch can see its memory."""
    import numpy as np

    # torch takes native byte order, writeable memory and no negative strides.
    native = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("="))
    source = native if native.flags.writeable else native.copy()
    return torch.from_numpy(source).reshape(x.shape)


def _chop_numpy(
    x, name: str, mode: str | None, flip_prob: float, generator: torch.Generator | None
):
    import numpy as np

    if x.dtype.kind in "iu":
        x = floats_of(x)
    dtype = x.dtype.newbyteorder("=")
    if dtype not in (np.float16, np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(
            "expected an array of float16, float32, float64, complex64, complex128 or integers "
            f"to chop, but got {x.dtype}"
        )
    result = _chop_tensor(tensor_of_array(x), name, mode, flip_prob, generator).numpy()
    return (
        np.ma.array(result, mask=x.mask, fill_value=x.fill_value)
        if isinstance(x, np.ma.MaskedArray)
        else result
    )


def _chop_buffer(
    x, name: str, mode: str | None, flip_prob: float, generator: torch.Generator | None
):
    """Round a memoryview or an ``array.array``: MATLAB gives its matrices as the former, its
    vectors as the latter, and converts both back."""
    import numpy as np

    values = np.asarray(x)
    result = _chop_numpy(values, name, mode, flip_prob, generator)
    if isinstance(x, memoryview):
        # MATLAB's matrices lie column by column, and so does the result.
        return memoryview(result if values.flags.c_contiguous else np.asfortranarray(result))
    return array.array(result.dtype.char, result.tobytes())


def _expect_thread_with_blocks() -> None:
    """Raise in a thread that Python has not started: it does not see the ``with rounding(...)``
    block around the call."""
    if isinstance(threading.current_thread(), threading._DummyThread):
        raise RuntimeError(
            "expected a call on the thread of the rounding() block in which it was traced, but "
            "got one on a thread of JAX's. Give the mode by chop(..., rounding=) there."
        )


def _chop_jax(
    x,
    name: str,
    mode: str | None,
    of_block: bool,
    flip_prob: float,
    generator: torch.Generator | None,
):
    import jax
    import numpy as np

    if not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
        raise TypeError(
            f"expected a JAX array of floating-point numbers to chop, but got {x.dtype}"
        )
    if jax.numpy.iscomplexobj(x):
        return jax.lax.complex(
            *(
                _chop_jax(part, name, mode, of_block, flip_prob, generator)
                for part in (x.real, x.imag)
            )
        )
    if not isinstance(x, jax.core.Tracer):
        return jax.dlpack.from_dlpack(
            _chop_tensor(torch.from_dlpack(x).detach(), name, mode, flip_prob, generator)
        )

    # JAX reuses what it has traced in other blocks, so the call asks for the mode of the block in
    # which it runs.
    mode = None if of_block else mode

    @jax.custom_jvp
    def chop_call(x):
        def call(values):
            if of_block:
                _expect_thread_with_blocks()
            return _chop_numpy(np.asarray(values), name, mode, flip_prob, generator)

        # Blocks are cut along given dimensions, so they take no batch dimension in front.
        method = "expand_dims" if isinstance(name, str) else "sequential"
        return jax.pure_callback(
            call, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method=method
        )

    chop_call.defjvp(lambda primals, tangents: (chop_call(*primals), tangents[0]))
    return chop_call(x)


def _chop_list(
    x: list, name: str, mode: str | None, flip_prob: float, generator: torch.Generator | None
) -> list:
    try:
        tensor = torch.tensor(x, device="cpu")
        if tensor.dtype not in (torch.int64, torch.bool):  # Python's fractions are float64
            tensor = torch.tensor(
                x, dtype=torch.complex128 if tensor.is_complex() else torch.float64, device="cpu"
            )
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            "expected a list of numbers, or of such lists of one length, to chop, but got "
            f"{outline(x)}: {error}"
        ) from error
    return _chop_tensor(tensor, name, mode, flip_prob, generator).tolist()


def _is_column(x: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.Series)


def _chop_column(
    x, name: str, mode: str | None, flip_prob: float, generator: torch.Generator | None
):
    import numpy as np
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(x.dtype) or pd.api.types.is_bool_dtype(x.dtype):
        raise TypeError(f"expected a column of numbers to chop, but got one of {x.dtype}")
    if pd.api.types.is_integer_dtype(x.dtype) and x.count():
        expect_within_float64(int(x.min()), int(x.max()))
    missing = {} if isinstance(x.dtype, np.dtype) else {"na_value": np.nan}  # of a nullable column
    values = x.to_numpy(dtype=None if x.dtype.kind == "c" else np.float64, **missing)
    return pd.Series(
        _chop_numpy(values, name, mode, flip_prob, generator), index=x.index, name=x.name
    )


def _is_jax(x: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def is_numpy(x: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, (numpy.ndarray, numpy.number))


@overload
def chop(
    x: torch.Tensor,
    D: torch.dtype | str | _C.Format | Target | Quantiser,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> torch.Tensor: ...
@overload
def chop(
    x: float,
    D: torch.dtype | str | _C.Format | Target | Quantiser,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> float: ...
@overload
def chop(
    x: complex,
    D: torch.dtype | str | _C.Format | Target | Quantiser,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> complex: ...
@overload
def chop(
    x: Any,
    D: torch.dtype | str | _C.Format | Target | Quantiser,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> Any: ...
def chop(
    x: Any,
    D: torch.dtype | str | _C.Format | Target | Quantiser,
    rounding: str | int | None = None,
    generator: torch.Generator | None = None,
    flip_prob: float = 0.0,
) -> Any:
    """Round float values to a number format and return them as floats: ``chop(1.3, "q43")`` is
    1.25.

    Each value is rounded once, from its own type: float64 not through float32, a Python integer of
    any size not through float64. Of a complex value the real and the imaginary part are rounded.
    The gradient is the identity's (straight-through estimator), also where values overflow. NaN
    stays NaN where the format has a NaN, and becomes the value in docs/numerics.md where not;
    infinities likewise.

    On a tensor it is the operator ``torch.ops.torch_dtypes.chop``. torch.compile (whole graphs
    too), torch.export, make_fx, torch.jit.trace and torch.func record it as one call; stochastic
    modes and flips draw anew at each run of a graph.

    Args:
        x: a torch tensor of float16, bfloat16, float32 or float64, or of complex numbers (not for
            blocks and integers with scales); a NumPy or JAX array of the same dtypes, a memoryview
            or an ``array.array`` of them (MATLAB's matrices and vectors); or a number (the result
            is a float, or complex). The result has the same kind, type and shape.
            Tensors and NumPy arrays of integers, lists and pandas columns are rounded as float64,
            and the result is float64; an integer beyond 2^53 in one is an error. No memory is
            copied on the way in or out, with two exceptions: arrays that torch cannot see
            (read-only or byte-swapped), and the two half types, which are rounded as float32. A
            result that a half type lacks rounds to it. Under ``jax.jit`` a call goes back to the
            host (``pure_callback``), which JAX may repeat or drop: draw stochastic roundings
            outside of it. It rounds by the block that is open when it runs, whichever it was traced
            in. Where JAX runs it on its own thread, it sees no block; give the mode by
            ``rounding=``.
        D: a dtype of this package or a stock floating dtype; a format; the name of a format (any
            that ``torch_dtypes.target`` takes); blocks with their own scales, by name
            (``"mxfp8_e4m3"``) or as a target (``block_format``); or a quantiser of your own. Names
            and formats take none of the process's 64 dtypes, so sweeps over thousands of formats
            are possible. (torch.compile leaves a call with a format or a generator to eager code.)
        rounding: one of ``ROUNDING_MODES``, ``"stochastic_a4"`` (with 4 random bits, as in
            ``with_rounding``) or Pychop's number; default: the mode of a ``with
            torch_dtypes.rounding(...)`` block, else D's own.
        generator: a generator of the CPU, or of x's device, for stochastic modes and flips;
            default: torch's for x's device. Each call draws one seed (one more for flips), so the
            result depends on the generator's state alone, not on threads.
        flip_prob: 0 to 1: the probability with which one random significand bit of each result's
            code is flipped (fault injection); infinities and NaNs stay. For floats it is a fraction
            bit, for posits one of the fraction bits that the value has, for fixed point any bit but
            the sign.

    Raises:
        TypeError: x or D has another type.
        ValueError: an unknown name or mode; a flip_prob out of range; an integer beyond 64 bits
            that exceeds the range of a format with more than 51 significant bits.
        NotImplementedError: a tensor on a device other than the CPU, CUDA (if the package was built
            with kernels for it) and the meta device.

    Sources: Higham, Pranesh, "Simulating low precision floating-point arithmetic", SISC 41 (2019);
    Bengio, Leonard, Courville, "Estimating or propagating gradients through stochastic neurons"
    (2013), for the estimator.

    Example::

        >>> torch_dtypes.chop(torch.tensor([0.3, 250.0]), "q43")
        tensor([0.3125,    inf])
        >>> torch_dtypes.chop(torch.tensor([0.3, 250.0]), "q43", rounding="toward_zero")
        tensor([  0.2812, 240.0000])
    """
    if torch.compiler.is_dynamo_compiling():
        return _chop_traced(x, D, rounding, generator, flip_prob)
    if not (
        _is_plain(D)
        if isinstance(D, str)
        else isinstance(D, _C.Format)
        or (isinstance(D, torch.dtype) and _C.format_of(D) is not None)
    ):
        D = _target_of(D, flip_prob)
    name = D if hasattr(D, "quantize") else name_of(D)
    # The mode of a block too, so that recorders of this call (make_fx, torch.jit.trace) record it.
    mode = find_mode(rounding)
    if (
        isinstance(flip_prob, bool)
        or not isinstance(flip_prob, (int, float))
        or not 0 <= flip_prob <= 1
    ):
        raise ValueError(f"expected flip_prob from 0 to 1, but got {flip_prob!r}")
    check_generator(generator, x)
    if isinstance(x, torch.Tensor):
        return _chop_tensor(x, name, mode, flip_prob, generator)
    if is_numpy(x):
        result = _chop_numpy(x, name, mode, flip_prob, generator)
        return result if x.shape else result[()]
    if isinstance(x, (memoryview, array.array)):
        return _chop_buffer(x, name, mode, flip_prob, generator)
    if isinstance(x, list):
        return _chop_list(x, name, mode, flip_prob, generator)
    if _is_column(x):
        return _chop_column(x, name, mode, flip_prob, generator)
    if _is_jax(x):
        return _chop_jax(x, name, mode, rounding is None and mode is not None, flip_prob, generator)
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        if isinstance(x, int):
            x, mode = python_integers.before_rounding(x, name, mode, generator)
        return _chop_tensor(
            torch.tensor(x, dtype=torch.float64, device="cpu"), name, mode, flip_prob, generator
        ).item()
    if isinstance(x, complex):
        return _chop_tensor(
            torch.tensor(x, dtype=torch.complex128, device="cpu"), name, mode, flip_prob, generator
        ).item()
    raise TypeError(
        "expected a torch tensor, a NumPy or JAX array, a list, a pandas column or a number to "
        f"chop, but got {type(x).__name__}"
    )
