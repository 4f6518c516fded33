"""``observe``: counts roundings in a block, by layer and pass."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ... import _C
from ...formats.arguments import said
from ...formats.dtypes import is_format_dtype
from ..cards.card import card
from .counts import OUTSIDE
from .hooks import Hooks
from .statistics import Statistics

_one_at_a_time = threading.Lock()


def _checked_formats(model: nn.Module, formats) -> list[_C.Format]:
    if formats is None:
        return []
    if isinstance(formats, (str, torch.dtype, _C.Format)):
        formats = [formats]
    if not isinstance(formats, Iterable) or isinstance(formats, torch.Tensor):
        raise TypeError(
            "expected formats as a list of dtypes or names, one of them, or None, but got "
            f"{said(formats)}"
        )
    cards = {c.canonical: c for c in map(card, formats)}
    if not cards:
        raise ValueError(
            "expected at least one format in formats=, but got none: leave it out to count the "
            "model's own roundings"
        )
    ours = next((name for name, p in model.named_parameters() if is_format_dtype(p.dtype)), None)
    if ours is not None:
        dtype = model.get_parameter(ours).dtype
        raise ValueError(
            f"expected a model of stock floating parameters beside formats=, but got {ours} of "
            f"{dtype}: leave formats= out to count the roundings to {dtype}, or observe the "
            "float32 model"
        )
    return [c.format for c in cards.values()]


def _checked_model(model: nn.Module) -> None:
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
    """Counts what rounding does to a model's numbers, by layer, pass and format, while the block
    runs::

        with torch_dtypes.observe(model) as stats:
            criterion(model(images), labels).backward()
            optimizer.step()
        stats.table()                                     # the worst first
        stats["conv2", "backward", "q43"].share("to_zero")  # 0.87: most of its gradients are lost

    Every number that is rounded to a number format is counted: results of operators on tensors of
    our dtypes, casts, ``chop`` and what is built on it (``Cast``, ``quantize_``). With ``formats``
    the float tensors of a model are measured against each of them instead. Nothing of the run
    changes in either case: same bits, same random numbers. :class:`RoundingCounts` and
    docs/reference/rounding-counts.md say what counts where, and what each count means.

    Args:
        model: its modules give the layers. Not compiled and no ScriptModule.
        formats: dtypes of this package, stock ones, formats or names (as :func:`card` takes them),
            one or several; for models of stock floating parameters. They take none of the process's
            64 dtypes.

    Yields:
        A :class:`Statistics`, which may be read within the block and after it.

    Raises:
        TypeError: no module, or one whose layers run no hooks.
        ValueError: a model without layers, an unknown format, no format, or ``formats`` for a model
            whose parameters are of our dtypes.
        RuntimeError: another observation is going on in this process.
        NotImplementedError: ``formats`` with which a GPU does not compute, for a model there; a
            CUDA graph that is captured in the block.

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
        formats: Sequence[torch.dtype | str | _C.Format] | torch.dtype | str | None = None,
    ) -> None:
        _checked_model(model)
        self._model = model
        self._formats = _checked_formats(model, formats)
        self._hooks: Hooks | None = None

    def __enter__(self) -> Statistics:
        if not _one_at_a_time.acquire(blocking=False):
            raise RuntimeError(
                "expected one observation at a time, but got another observe() within one or "
                "beside it: leave that block first"
            )
        try:
            self._hooks = Hooks(self._model, self._formats)
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
            # Else what went wrong in the block says why: memory that is spent, a graph that is
            # being captured.
        finally:
            _one_at_a_time.release()
