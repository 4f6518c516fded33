"""Metrics that a user gives: functions of a network's output for all data, and the targets."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping

import torch

from ...formats.arguments import nearest, outline

Functions = dict[str, Callable]


def dice(output: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Return the Dice score, 2 |A and B| / (|A| + |B|), of each class that occurs.

    Args:
        output: scores of shape ``(N, classes, ...)``; the largest one decides. targets: labels,
            ``(N, ...)``.
    """
    labels = output.argmax(1)
    scores = {}
    for c in range(output.shape[1]):
        a, b = labels == c, targets == c
        if total := (a.sum() + b.sum()).item():
            scores[str(c)] = 2 * (a & b).sum().item() / total
    return scores


_NAMED = {"dice": dice}


def check_metrics(metrics: object) -> Functions:
    """Return metrics by name. They are a mapping of names to functions, or a list of functions and
    names of built-in ones (``"dice"``); None: no more than loss and accuracy."""
    if metrics is None:
        return {}
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise TypeError(
            "expected metrics= as functions by name, or a list of functions and names, but got "
            f"{outline(metrics)}; put it into a list"
        )
    pairs = metrics.items() if isinstance(metrics, Mapping) else ((None, m) for m in metrics)
    functions: Functions = {}
    for name, metric in pairs:
        if isinstance(metric, str):
            if metric not in _NAMED:
                raise ValueError(
                    f"expected a function or the name of a metric, but got {metric!r}; "
                    f"{nearest(metric, _NAMED)}"
                )
            name, metric = name or metric, _NAMED[metric]
        if not callable(metric):
            raise TypeError(
                f"expected metrics= of functions of output and targets, but got {outline(metric)}"
            )
        functions[name or getattr(metric, "__name__", type(metric).__name__)] = metric
    return functions


def compute_metrics(
    functions: Functions, output: torch.Tensor, targets: torch.Tensor
) -> dict[str, float]:
    """Compute metrics in stock arithmetic. Those that return several numbers, as a mapping or a
    one-dimensional tensor, have a name for each."""
    values: dict[str, float] = {}
    for name, function in functions.items():
        found = function(output, targets)
        if isinstance(found, torch.Tensor) and found.dim() == 1:
            found = dict(enumerate(found.tolist()))
        if isinstance(found, Mapping):
            values |= {f"{name} {key}": _number(name, x) for key, x in found.items()}
        else:
            values[name] = _number(name, found)
    return values


def _number(name: str, value: object) -> float:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"expected one number, a mapping or a one-dimensional tensor of the metric {name!r}, "
            f"but got {outline(value)}"
        )
    return float(value)
