"""What a study takes of data, network and criterion: batches, the tensors of an output, and the
number that a criterion makes of it."""

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


def batches_of(data: Iterable) -> list[Batch]:
    """Batches as tuples, in memory.

    Raises:
        TypeError: no batches, but a data set of single examples, say.
        ValueError: none, a batch that is something else, or one without a dimension of inputs.
    """
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise TypeError(
            f"{_BATCHES}, but got {describe_batch(data)}, which has single examples: "
            "DataLoader(dataset, batch_size=...) makes batches"
        )
    # Which some loaders have alone.
    is_sequence = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if isinstance(data, (torch.Tensor, Mapping, str, nn.Module)) or not is_sequence:
        raise TypeError(f"{_BATCHES}, but got {describe_batch(data)}")
    found = []
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
        found.append(tuple(batch))
    if not found:
        raise ValueError("expected batches of inputs and targets, but got none")
    return found


def answer(model: nn.Module, batch: Batch) -> object:
    """What the model returns for a batch's inputs."""
    inputs = batch[:-1]
    return model(**inputs[0]) if isinstance(inputs[0], Mapping) else model(*inputs)


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors of nested dicts, lists, tuples and data classes, in order."""
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
    """An output as one tensor: itself, or all floating-point numbers of its tensors, one behind the
    other in one dimension, as float32.

    Raises:
        TypeError: it has none.
    """
    if isinstance(output, torch.Tensor):
        return output
    found = [t.to(torch.float32).flatten() for t in tensors_in(output) if t.is_floating_point()]
    if not found:
        raise TypeError(
            "expected a model that returns a tensor, or floating-point ones in a dict, list or "
            f"tuple, but got {describe_batch(output)}"
        )
    return torch.cat(found)


def joined(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Outputs of all batches as one tensor: along the first dimension, or of different shapes all
    numbers in one dimension."""
    alike = outputs[0].dim() > 0 and len({output.shape[1:] for output in outputs}) == 1
    return torch.cat(outputs if alike else [output.flatten() for output in outputs])


def distance(output: torch.Tensor, exact: torch.Tensor) -> float:
    """The distance of two outputs over the exact one's Euclidean norm."""
    exact = exact.double()
    norm, far = exact.norm().item(), (output.double() - exact).norm().item()
    return far / norm if norm else (0.0 if far == 0 else math.inf)


def check_criterion(criterion: object) -> None:
    if criterion is not None and not callable(criterion):
        raise TypeError(
            "expected criterion= as a function of an output and its targets, but got "
            f"{outline(criterion)}"
        )


def loss_of(output: object, targets: torch.Tensor, criterion: Callable | None) -> float:
    """The criterion's number; without one, cross-entropy for labels, which are integers, else the
    mean squared error.

    Raises:
        TypeError: an output that is no tensor, without a criterion; a criterion that returns no
            number.
        ValueError: one that returns several; labels that are no integers, targets of another shape
            than the output's.
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
    """An error for a function in the place of a metric's name."""
    if callable(metric):
        raise TypeError(
            f"expected metric= as a name, but got {outline(metric)}: a function of an output and "
            "its targets is criterion=, metric='loss'"
        )
