"""Networks and data from outside this package: a user's own by ``package.module:name``,
torchvision's networks by name, weights from a file.

Torchvision is no dependency: it is imported only for the names of other networks than this
package's.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from ...formats.imports import SPELLING, find_object
from .data import Dataset, Examples
from .generators import forked_generators
from .gpt import VOCABULARY, build_gpt, is_gpt, sizes_of
from .models import MODELS, build_model
from .ranks import first_line

_TRAIN_AND_TEST = (
    "(train, test), each a pair of tensors (inputs, labels), a data set of such pairs, or an "
    "iterable of batches of them"
)
_DETECTION = dict.fromkeys(
    ("nms", "qnms"), "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
)


def find(spec: str, what: str) -> Callable:
    """Import the function that ``package.module:name`` names.

    Raises:
        ValueError: as ``find_object``, or an object that is not callable.
    """
    value = find_object(spec, what)
    if not callable(value):
        raise ValueError(f"expected {what} that can be called, but {spec} is {value!r}")
    return value


def import_torchvision_models() -> ModuleType:
    """Import ``torchvision.models``.

    A torchvision for another build of PyTorch, such as PyPI's beside PyTorch for CPUs, lacks its
    compiled operators. Its import needs the schemas of two, which no classifier calls.

    Raises:
        ImportError, RuntimeError: there is none, or it is for another version of PyTorch.
    """
    try:
        from torchvision import models
    except RuntimeError:
        for name, schema in _DETECTION.items():
            if not hasattr(torch.ops.torchvision, name):
                torch.library.define(f"torchvision::{name}", schema)
        from torchvision import models
    return models


def check_model(name: str) -> None:
    """Check that there is a network of that name.

    Raises:
        ValueError: there is none.
    """
    if name in MODELS:
        return
    if is_gpt(name):
        sizes_of(name)
        return
    if ":" in name:
        find(name, "a factory of a network")
        return
    known = (
        f"expected a model out of {', '.join(MODELS)}, gpt, torchvision's by name, or your own as "
        f"{SPELLING}, but got {name!r}"
    )
    names = []
    try:
        names = import_torchvision_models().list_models()
    except (ImportError, RuntimeError) as error:
        # A RuntimeError means a torchvision for another PyTorch.
        known += (
            f"; torchvision, which might have it, cannot be imported ({error}): pip install "
            "torchvision"
        )
    if name not in names:
        near = difflib.get_close_matches(name, [*MODELS, "gpt", *names], 3)
        raise ValueError(known + (f"; near to it: {', '.join(near)}" if near else ""))


def build_network(config, data) -> nn.Module:
    """Build the network of ``config``, a ``records.Config``, for a data set: initialised from
    torch's default generator, or with the weights of a file.

    Raises:
        ValueError: the network does not fit the data, or the weights are another network's.
        OSError: the file cannot be read.
    """
    name = config.model
    if name in MODELS:
        if data.shape[1:] != (32, 32):
            raise ValueError(
                f"expected images of shape (C, 32, 32) for {name}, but {data.name} has "
                f"{data.shape}; give a --model for them"
            )
        model = build_model(name, data.channels, data.classes)
    elif is_gpt(name):
        context = sizes_of(name)["context"]
        if (
            data.train.inputs.is_floating_point()
            or len(data.shape) != 1
            or data.shape[0] > context
            or data.classes > VOCABULARY
        ):
            raise ValueError(
                f"expected windows of at most {context} bytes for {name}, but {data.name} has "
                f"inputs of shape {data.shape}; use --dataset topics, or --text FILE"
            )
        model = build_gpt(name)
    elif ":" in name:
        model = _call(find(name, "a factory of a network"), name)
        if isinstance(model, (tuple, list)) and len(model) == 2:  # with a batch, for bench
            model = model[0]
        if not isinstance(model, nn.Module):
            raise ValueError(f"expected {name} to return a torch.nn.Module, but got {model!r}")
    else:
        check_model(name)
        if data.shape[0] != 3:
            raise ValueError(
                f"expected images of 3 channels for torchvision's {name}, but {data.name} has "
                f"{data.shape}"
            )
        model = import_torchvision_models().get_model(name, weights=None, num_classes=data.classes)
    if config.weights is not None:
        load_weights(model, config.weights)
    return model


def _call(function, spec):
    try:
        return function()
    except Exception as error:  # a user's function may raise any error
        raise ValueError(
            f"expected {spec} to run without arguments, but it raised {type(error).__name__}: "
            f"{error}"
        ) from error


def load_weights(model: nn.Module, path: str | os.PathLike) -> None:
    """Load a state dict, from ``torch.save`` (no code in it runs) or a .safetensors file, into a
    network.

    Raises:
        ValueError: the file has no state dict, or another network's.
        OSError: the file cannot be read.
    """
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:
        # Safetensors has its own errors. For a file that is no pickle, torch raises an accidental
        # error, whose text is left out.
        says = isinstance(error, RuntimeError) or type(error).__module__.startswith("safetensors")
        reason = f" ({first_line(error)})" if says else ""
        message = (
            f"expected a file of weights that torch.save or safetensors wrote, but {path} holds "
            f"something else{reason}"
        )
        raise ValueError(f"{message}; save model.state_dict()") from error
    # Checkpoints of trainers have the weights under the first key, those of ``train`` under the
    # second one.
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(value, torch.Tensor) for value in state.values()
    ):
        raise ValueError(
            f"expected a state dict of tensors, but {path} holds a {type(state).__name__}"
        )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reasons = " ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise ValueError(
            f"expected the weights of {type(model).__name__}, but {path} has others: {reasons}"
        ) from error


def load_own_data(spec: str) -> Dataset:
    """Load a user's data into memory: ``package.module:loader`` is called without arguments.

    It returns ``(train, test)``. Each is a pair of tensors ``(inputs, labels)``, a
    ``torch.utils.data.Dataset`` of such pairs, or an iterable of batches of them. An iterable, such
    as a ``DataLoader``, is read once. Inputs are floating (they become float32) or integers, of
    shape ``(N, ...)``. Labels are integers from 0, of shape ``(N,)``, or ``(N, ...)`` for maps of
    labels.

    Raises:
        ValueError: the loader returns something else.
    """
    data = _call(find(spec, "a loader of data"), spec)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(f"expected {spec} to return {_TRAIN_AND_TEST}, but got {_describe(data)}")
    train, test = (
        _load_examples(part, f"{name} data of {spec}")
        for part, name in zip(data, ("training", "test"), strict=True)
    )
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise ValueError(
            f"expected test inputs of shape {tuple(train.inputs.shape[1:])} as in training, but "
            f"got {tuple(test.inputs.shape[1:])}"
        )
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    return Dataset(spec, train, test, classes)


def load_own_batch(spec: str) -> Dataset | None:
    """Load the batch of a user's function that returns ``(model, (inputs, labels))``, for training
    and test alike. Return None if it returns a network alone.

    Raises:
        ValueError: the function returns something else.
    """
    made = _call(find(spec, "a factory of a network"), spec)
    if isinstance(made, nn.Module):
        return None
    if not isinstance(made, (tuple, list)) or len(made) != 2 or not isinstance(made[0], nn.Module):
        raise ValueError(
            f"expected {spec} to return a torch.nn.Module, or (module, (inputs, labels)), but got "
            f"{_describe(made)}"
        )
    batch = _load_examples(made[1], f"the batch of {spec}")
    return Dataset(spec, batch, batch, int(batch.labels.max()) + 1)


def _describe(value):
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _load_examples(part, what):
    if isinstance(part, torch.utils.data.Dataset):
        part = torch.utils.data.DataLoader(part, batch_size=256)
    if (
        isinstance(part, (tuple, list))
        and len(part) == 2
        and all(isinstance(t, torch.Tensor) for t in part)
    ):
        batches = [part]
    elif hasattr(part, "__iter__") and not isinstance(part, torch.Tensor):
        try:
            batches = list(part)
        except Exception as error:  # a user's data set may raise any error
            raise ValueError(
                f"expected {what} to be read, but it raised {type(error).__name__}: {error}"
            ) from error
    else:
        raise ValueError(
            f"expected {what} as a pair of tensors, a data set or an iterable of batches, but got "
            f"{_describe(part)}"
        )
    for batch in itertools.islice(batches, 1) if batches else [None]:
        pair = (
            isinstance(batch, (tuple, list))
            and len(batch) == 2
            and all(isinstance(t, torch.Tensor) for t in batch)
        )
        if not pair:
            raise ValueError(
                f"expected {what} in pairs of tensors (inputs, labels), but got "
                f"{'nothing' if batch is None else _describe(batch)}"
            )
    try:
        inputs, labels = (
            torch.cat([batch[i] for batch in batches]).detach().clone() for i in (0, 1)
        )
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(
            f"expected {what} in batches of one shape, but got {first_line(error)}"
        ) from error
    return _check_examples(inputs, labels, what)


def _check_examples(inputs, labels, what):
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"expected {what} with integers as labels, but got {labels.dtype}")
    if labels.numel() == 0 or inputs.numel() == 0:
        raise ValueError(
            f"expected {what} of at least one input, but got inputs of {tuple(inputs.shape)} and "
            f"labels of {tuple(labels.shape)}"
        )
    if labels.dim() < 1 or inputs.dim() < 1 or len(inputs) != len(labels):
        raise ValueError(
            f"expected {what} with a label for each input, but got inputs of "
            f"{tuple(inputs.shape)} and labels of {tuple(labels.shape)}"
        )
    if labels.min() < 0:
        raise ValueError(f"expected {what} with labels from 0, but got {int(labels.min())}")
    if inputs.is_floating_point():
        inputs = inputs.to(torch.float32)
        if not inputs.isfinite().all():
            raise ValueError(
                f"expected {what} with finite inputs, but got {int((~inputs.isfinite()).sum())} "
                "that are not"
            )
    elif inputs.is_complex():
        raise ValueError(f"expected {what} with real inputs, but got {inputs.dtype}")
    return Examples(inputs, labels.to(torch.int64))


def check_network(config, data) -> int:
    """Run two inputs through the network in float32, so that errors come before any long work.

    Returns:
        The number of parameters.

    Raises:
        ValueError: the network raises, or returns no logits for the classes of the data.
        OSError: the weights cannot be read.
    """
    with forked_generators():
        model = build_network(config, data).eval()
        inputs, labels = data.train.batch(torch.arange(min(2, len(data.train))))
        try:
            with torch.no_grad():
                logits = model(inputs)
        except Exception as error:  # a user's network may raise any error
            raise ValueError(
                f"expected {config.model} to take inputs of shape {tuple(inputs.shape)}, but it "
                f"raised: {first_line(error)}"
            ) from error
    if not isinstance(logits, torch.Tensor):
        raise ValueError(
            f"expected {config.model} to return logits as a tensor, but got {_describe(logits)}"
        )
    shape = tuple(logits.shape)
    if logits.dim() < 2 or (shape[0], *shape[2:]) != tuple(labels.shape) or shape[1] < data.classes:
        expected = (
            f"(N, classes{', ...' if labels.dim() > 1 else ''}) for {data.classes} classes and "
            f"labels of {tuple(labels.shape)}"
        )
        raise ValueError(
            f"expected {config.model} to return logits of shape {expected}, but got {shape}"
        )
    return sum(p.numel() for p in model.parameters())
