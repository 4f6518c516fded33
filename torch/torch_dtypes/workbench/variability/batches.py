"""Data, outputs and criteria of a study: batches, the tensors of an output, and its loss."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset

from ...formats.arguments import outline
from ...quantization.calibrate import describe_batch

# (inputs, targets), (first, second, ..., targets), or (a dict of keyword arguments, targets)
Batch = tuple

_BATCHES = (
    "expected batches of inputs and targets, a DataLoader or a list of (inputs, targets), where "
    "inputs are a tensor, several, or a dict of keyword arguments"
)


def load_batches(data: Iterable) -> list[Batch]:
    """Load batches as tuples into memory.

    Raises:
        TypeError: other data, such as a data set of single examples.
        ValueError: no batch, an object that is no batch, or targets without a batch dimension.
    """
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise TypeError(
            f"{_BATCHES}, but got {describe_batch(data)}, which has single examples: "
            "DataLoader(dataset, batch_size=...) makes batches"
        )
    # Some loaders have only __getitem__.
    is_sequence = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if isinstance(data, (torch.Tensor, Mapping, str, nn.Module)) or not is_sequence:
        raise TypeError(f"{_BATCHES}, but got {describe_batch(data)}")
    batches = []
    for batch in data:
        *inputs, targets = (
            batch if isinstance(batch, (tuple, list)) and len(batch) > 1 else (None, None)
        )
        by_keyword = (
            len(inputs) == 1
            and isinstance(inputs[0], Mapping)
            and any(isinstance(x, torch.Tensor) for x in inputs[0].values())
        )
        if not isinstance(targets, torch.Tensor) or not (
            by_keyword or all(isinstance(x, torch.Tensor) for x in inputs)
        ):
            raise ValueError(
                f"{_BATCHES}, but got {describe_batch(batch)} as a batch; a single one is "
                "[(inputs, targets)]"
            )
        if not targets.dim():
            single = (
                f"the {type(data).__name__} seems to have single examples, of which "
                "DataLoader(dataset, batch_size=...) makes batches"
            )
            raise ValueError(f"{_BATCHES}, but got targets that are one 0-d tensor: {single}")
        batches.append(tuple(batch))
    if not batches:
        raise ValueError("expected batches of inputs and targets, but got none")
    return batches


def answer(model: nn.Module, batch: Batch) -> object:
    """Call the model on a batch's inputs."""
    inputs = batch[:-1]
    return model(**inputs[0]) if isinstance(inputs[0], Mapping) else model(*inputs)


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested dicts, lists, tuples and data classes, in order."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, (tuple, list)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        parts = ()
    for part in parts:
        yield from tensors_in(part)


def numbers_in(output: object) -> torch.Tensor:
    """Return an output as one tensor: itself, or else all floating-point numbers of its tensors as
    float32, concatenated in one dimension.

    Raises:
        TypeError: an output without such tensors.
    """
    if isinstance(output, torch.Tensor):
        return output
    parts = [t.to(torch.float32).flatten() for t in tensors_in(output) if t.is_floating_point()]
    if not parts:
        raise TypeError(
            "expected a model that returns a tensor, or floating-point ones in a dict, list or "
            f"tuple, but got {describe_batch(output)}"
        )
    return torch.cat(parts)


def concatenate(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Concatenate the outputs of all batches along the first dimension; if shapes differ,
    concatenate all numbers in one dimension."""
    alike = outputs[0].dim() > 0 and len({output.shape[1:] for output in outputs}) == 1
    return torch.cat(outputs if alike else [output.flatten() for output in outputs])


def distance(output: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the Euclidean distance of two outputs over the norm of the exact one."""
    exact = exact.double()
    norm, far = exact.norm().item(), (output.double() - exact).norm().item()
    return far / norm if norm else (0.0 if far == 0 else math.inf)


def check_criterion(criterion: object) -> None:
    if criterion is not None and not callable(criterion):
        raise TypeError(
            "expected criterion= as a function of an output and its targets, but got "
            f"{outline(criterion)}"
        )


def compute_loss(output: object, targets: torch.Tensor, criterion: Callable | None) -> float:
    """Return the criterion's number. Without one it is cross-entropy for integer targets (labels),
    else the mean squared error.

    Raises:
        TypeError: an output that is no tensor, without a criterion; a criterion that returns no
            number.
        ValueError: a criterion that returns several numbers; labels that are no integers; targets
            whose shape differs from the output's.
    """
    if criterion is None and not isinstance(output, torch.Tensor):
        raise TypeError(
            "expected a model that returns one tensor where no criterion= is given, but got "
            f"{describe_batch(output)}: give a function of it and the "
            "targets, such as criterion=lambda output, targets: "
            "F.cross_entropy(output['logits'], targets)"
        )
    seem_labels = (
        isinstance(output, torch.Tensor)
        and targets.is_floating_point()
        and targets.dim() == output.dim() - 1
    )
    labels = (
        f"{targets.dtype} of shape {tuple(targets.shape)} for an output of shape "
        f"{tuple(getattr(output, 'shape', ()))}"
    )
    if criterion is None and targets.is_floating_point():
        if targets.shape != output.shape:
            hint = (
                "labels of classes are integers: targets.long()"
                if seem_labels
                else "another loss is given as criterion="
            )
            raise ValueError(
                "expected targets of the output's shape for the mean squared error, but got "
                f"{labels}; {hint}"
            )
        criterion = F.mse_loss
    try:
        value = (criterion or F.cross_entropy)(output, targets)
    except RuntimeError as error:
        if not seem_labels:
            raise
        raise ValueError(
            f"expected targets that criterion= takes, but got {labels}; labels of classes are "
            "integers: targets.long()"
        ) from error
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise ValueError(
            "expected one number (a 0-d tensor) of criterion=, but got shape "
            f"{tuple(value.shape)}; use reduction='mean'"
        )
    value = value.item() if isinstance(value, torch.Tensor) else value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            "expected one number (a 0-d tensor or a float) of criterion=, but got "
            f"{describe_batch(value)}"
        )
    return float(value)


def check_metric(metric: object) -> None:
    """Refuse a function in place of a metric's name."""
    if callable(metric):
        raise TypeError(
            f"expected metric= as a name, but got {outline(metric)}: a function of an output and "
            "its targets is criterion=, metric='loss'"
        )
