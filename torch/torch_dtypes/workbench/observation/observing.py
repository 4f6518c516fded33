"""``observe``: count roundings in a block, by layer and pass."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ... import _C
from ...formats.arguments import outline
from ...formats.dtypes import is_format_dtype
from ...targets.base import Target
from ...targets.quantisers import Quantiser, is_quantiser
from .blocks import find_format
from .counts import OUTSIDE
from .hooks import Hooks
from .outliers import ChannelMagnitudes
from .statistics import Statistics

_one_at_a_time = threading.Lock()


def _check_formats(model: nn.Module, formats) -> list[_C.Format | Target]:
    if formats is None:
        return []
    if isinstance(formats, (str, torch.dtype, _C.Format)) or is_quantiser(formats):
        formats = [formats]
    if not isinstance(formats, Iterable) or isinstance(formats, torch.Tensor):
        raise TypeError(
            "expected formats as a list of dtypes or names, one of them, or None, but got "
            f"{outline(formats)}"
        )
    counted = dict(map(find_format, formats))
    if not counted:
        raise ValueError(
            "expected at least one format in formats=, but got none: leave it out to count the "
            "model's own roundings"
        )
    ours = next((name for name, p in model.named_parameters() if is_format_dtype(p.dtype)), None)
    if ours is not None:
        dtype = model.get_parameter(ours).dtype
        raise ValueError(
            f"expected a model of stock floating parameters with formats=, but got {ours} of "
            f"{dtype}: leave formats= out to count the roundings to {dtype}, or observe the "
            "float32 model"
        )
    return list(counted.values())


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"expected a torch.nn.Module to observe, but got {type(model).__name__}: pass the "
            "model, before it is called"
        )
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        what = "a compiled module" if hasattr(model, "_orig_mod") else "a ScriptModule"
        raise TypeError(
            f"expected an eager torch.nn.Module to observe, but got {what}, which runs no hooks: "
            "observe the module it was made of"
        )
    if not any(True for _ in model.children()) and not any(True for _ in model.parameters()):
        raise ValueError(
            "expected a model with layers or parameters to observe, but got "
            f"{type(model).__name__}, which has neither"
        )


class observe(contextlib.AbstractContextManager):
    """Count what rounding does to a model's numbers, by layer, pass and format, in a block::

        with torch_dtypes.observe(model) as stats:
            criterion(model(images), labels).backward()
            optimizer.step()
        stats.table()                                     # the worst first
        stats["conv2", "backward", "q43"].share("to_zero")  # 0.87: most of its gradients are lost

    It counts every number that is rounded to a number format: in operators on format tensors,
    casts, ``chop``, and all that uses it (``Cast``, ``quantize_``). With ``formats`` it measures
    the model's float tensors against each of them instead. The run stays the same in either case,
    bit for bit, with the same random numbers. :class:`RoundingCounts` and
    docs/reference/rounding-counts.md define the counts and where they belong.

    Args:
        model: the module whose modules are the layers; neither compiled nor a ScriptModule.
        formats: one or several dtypes of this package, stock dtypes, formats, block formats or
            names (as :func:`card` takes them), or quantisers of your own, for models with stock
            floating parameters. They take none of the process's 64 dtypes.
        outliers: whether to keep the largest magnitude of each channel that enters a linear layer
            or a convolution, for ``Statistics.outliers``.

    Yields:
        A :class:`Statistics`, readable within the block and after it.

    Raises:
        TypeError: no module, or a module whose layers run no hooks.
        ValueError: a model without layers, an unknown format, an empty list, or ``formats`` for a
            model whose parameters have format dtypes.
        RuntimeError: this process is already in an observation.
        NotImplementedError: a model on a GPU that cannot compute with ``formats``; a CUDA graph
            captured in the block.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
        >>> _ = nn.init.constant_(model[0].weight, 2**-12)
        >>> with torch_dtypes.observe(model, formats="q43") as stats:
        ...     _ = model(torch.ones(1, 2))
        >>> stats.worst()
        '0, forward: 100% of 2 nonzero numbers underflow in q43'
        >>> stats["0", "weights", "q43"].share("to_zero")
        1.0
    """

    def __init__(
        self,
        model: nn.Module,
        formats: Sequence[torch.dtype | str | _C.Format | Target | Quantiser]
        | torch.dtype
        | str
        | None = None,
        *,
        outliers: bool = False,
    ) -> None:
        _check_model(model)
        self._model = model
        self._formats = _check_formats(model, formats)
        self._channels = ChannelMagnitudes() if outliers else None
        self._hooks: Hooks | None = None

    def __enter__(self) -> Statistics:
        if not _one_at_a_time.acquire(blocking=False):
            raise RuntimeError(
                "expected one observation at a time, but got a second observe(); leave the first "
                "block before"
            )
        try:
            self._hooks = Hooks(self._model, self._formats, self._channels)
            self._hooks.try_formats()
            self._hooks.attach()
        except BaseException:
            _one_at_a_time.release()
            raise
        self._stats = Statistics(self._hooks)
        return self._stats

    def __exit__(self, *error) -> None:
        hooks, self._hooks = self._hooks, None
        try:
            hooks.detach()
            hooks.finish()
            self._stats.close()
            if (
                not hooks.called
                and error[0] is None
                and any(layer == OUTSIDE for layer, *_ in hooks.read())
            ):
                warnings.warn(
                    f"observe: no module of the {type(self._model).__name__} ran in the block, "
                    f"and numbers that were rounded there count as {OUTSIDE}: expected the model "
                    "that runs there, not a copy of it",
                    stacklevel=2,
                )
        except Exception:
            if error[0] is None:
                raise
            # The error of the block explains more: memory is exhausted, or a graph is being
            # captured.
        finally:
            _one_at_a_time.release()
