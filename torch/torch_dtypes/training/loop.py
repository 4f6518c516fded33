"""The training loop: an ordinary PyTorch loop whose dtype is a parameter."""

import math
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field

import torch
from torch import nn

from .models import build_model

OPTIMIZERS = ("adam", "sgd")

_EVALUATION_BATCH = 256  # accuracy does not depend on it; memory does


@dataclass(frozen=True)
class Config:
    """What all runs of one comparison have in common.

    Attributes:
        model: one of ``models.MODELS``.
        epochs: passes over the training images, at least 1.
        batch_size: images in a step, at least 1; the last batch may be smaller.
        optimizer: ``adam`` or ``sgd``.
        lr: learning rate, above 0; ``None`` is the optimizer's default (adam) or 0.01 (sgd).
        momentum: for ``sgd``, at least 0 and below 1.
        device: ``cpu`` or ``cuda``.
        image_size: side of the images as the network sees them, 32 or 224.
    """

    model: str = "lenet5"
    epochs: int = 7
    batch_size: int = 32
    optimizer: str = "adam"
    lr: float | None = None
    momentum: float = 0.0
    device: str = "cpu"
    image_size: int = 32


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave.

    Attributes:
        epoch: counted from 1.
        train_loss: mean over the training images, each at the step that used it; NaN or
            infinite in an epoch that diverged, which is broken off there.
        test_loss: mean over the test images, after the epoch.
        accuracy: percent of the test images classified right, after the epoch.
        seconds: time of the training part, without the test.
        diverged: whether a loss was not finite; the figures then mean nothing.
    """

    epoch: int
    train_loss: float
    test_loss: float
    accuracy: float
    seconds: float
    diverged: bool


@dataclass
class Run:
    """One training from scratch, in one dtype with one seed.

    Attributes:
        dtype: name without ``torch.``.
        seed: for the initial weights, the order of the images and dropout.
        epochs: a list of :class:`Epoch`; shorter than asked for after divergence.
        divergence: of a run that diverged, a sentence on the first tensor that was not
            finite, its layer and pass, the likely cause and what to try; or ``None``.
    """

    dtype: str
    seed: int
    epochs: list[Epoch] = field(default_factory=list)
    divergence: str | None = None

    @property
    def diverged_at(self):
        """The epoch that diverged, counted from 1, or ``None``."""
        return self.epochs[-1].epoch if self.epochs and self.epochs[-1].diverged else None

    def as_json(self):
        """The run as plain data for JSON, with ``None`` where a figure is not finite."""

        def finite(value):
            return None if isinstance(value, float) and not math.isfinite(value) else value

        epochs = [{key: finite(value) for key, value in asdict(epoch).items()} for epoch in self.epochs]
        return {
            "dtype": self.dtype,
            "seed": self.seed,
            "diverged_at": self.diverged_at,
            "divergence": self.divergence,
            "epochs": epochs,
        }


def resolve_dtype(name):
    """The floating-point ``torch.dtype`` called ``name``.

    Args:
        name: ``posit16es2``, ``float32``, ``torch.bfloat16``, or any name that
            ``torch_dtypes.dtype`` understands.

    Returns:
        ``torch.<name>`` where that is a dtype, otherwise ``torch_dtypes.dtype(name)``.

    Raises:
        ValueError: for an unknown name, or a dtype in which nothing can be trained.
    """
    name = name.removeprefix("torch.")
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        import torch_dtypes

        dtype = torch_dtypes.dtype(name)
    if not dtype.is_floating_point:
        raise ValueError(f"expected a floating-point dtype, but got {name}")
    return dtype


def dtype_name(dtype):
    """The dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def build_optimizer(config, parameters):
    """The optimizer that ``config`` asks for, over ``parameters``.

    Raises:
        ValueError: for an unknown name.
    """
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, **({} if config.lr is None else {"lr": config.lr}))
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=config.lr or 0.01, momentum=config.momentum)
    raise ValueError(f"expected an optimizer out of {', '.join(OPTIMIZERS)}, but got {config.optimizer!r}")


def train(config, data, dtype, seed, on_step=None, on_epoch=None):
    """Train a network from scratch with everything in one dtype.

    The weights are initialised in float32 from ``seed`` and then moved with
    ``model.to(dtype)``, so all dtypes start from the same weights, each rounded to its
    format; every batch is moved with ``x.to(dtype)``; gradients and the optimizer's
    state follow. The images are shuffled anew for each epoch by a generator of its own
    seeded with ``seed``, so all dtypes see them in the same order. The loss is
    cross-entropy. The same arguments on the same machine with the same number of
    threads give the same figures. torch's default generators are left as they were.

    Args:
        config: a :class:`Config`.
        data: a ``data.Dataset``.
        dtype: a floating-point ``torch.dtype``.
        seed: at least 0.
        on_step: called after each step with the mean loss of that batch.
        on_epoch: called after each epoch with its :class:`Epoch`.

    Returns:
        A :class:`Run`. A loss that is not finite ends it early and is recorded in its
        last epoch; it is not an error.
    """
    run = Run(dtype_name(dtype), seed)
    cuda = config.device == "cuda"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else []), _exact(cuda):
        torch.manual_seed(seed)
        model = build_model(config.model, data.channels, image_size=config.image_size)
        model.to(config.device).to(dtype)
        optimizer = build_optimizer(config, model.parameters())
        shuffle = torch.Generator().manual_seed(seed)
        for epoch in range(1, config.epochs + 1):
            order = torch.randperm(len(data.train), generator=shuffle)
            start = time.perf_counter()
            train_loss, run.divergence = _train_epoch(model, optimizer, config, data.train, order, dtype, on_step)
            seconds = time.perf_counter() - start
            test_loss, accuracy = math.nan, math.nan
            if math.isfinite(train_loss):
                test_loss, accuracy = evaluate(model, data.test, dtype, config.device, config.image_size)
            diverged = not math.isfinite(test_loss)
            if diverged and run.divergence is None:
                run.divergence = _explanation(model, optimizer, None)
            run.epochs.append(Epoch(epoch, train_loss, test_loss, accuracy, seconds, diverged))
            if on_epoch:
                on_epoch(run.epochs[-1])
            if diverged:
                break
    return run


def _exact(cuda):
    # On a GPU, convolutions in float32 would otherwise run in TF32 and be no baseline,
    # and may pick an algorithm that adds in a different order each time.
    if not cuda:
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def _batches(split, order, size, dtype, device, image_size):
    for index in order.split(size):
        images, labels = split.batch(index, image_size)
        yield images.to(device).to(dtype), labels.to(device)


def _explanation(model, optimizer, forward):
    from ..divergence import explain_divergence

    found = explain_divergence(model, optimizer, forward)
    return str(found) if found else None


def _train_epoch(model, optimizer, config, split, order, dtype, on_step):
    """One pass over the images; returns the mean loss, or the first that is not finite and why it is not."""
    model.train()
    criterion = nn.CrossEntropyLoss()
    total = 0.0
    for images, labels in _batches(split, order, config.batch_size, dtype, config.device, config.image_size):
        loss = criterion(model(images), labels)
        value = loss.item()
        if not math.isfinite(value):  # while the gradients of the step before are there
            return value, _explanation(model, optimizer, lambda x=images, t=labels: criterion(model(x), t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += value * len(labels)
        if on_step:
            on_step(value)
    return total / len(order), None


@torch.no_grad()
def evaluate(model, split, dtype, device="cpu", image_size=32):
    """Test a network in evaluation mode, in which it is left.

    Args:
        model: maps ``(n, C, image_size, image_size)`` in ``dtype`` to logits.
        split: a ``data.Split``.
        dtype: the dtype of the model's parameters.
        device: where they are.
        image_size: side of the images as the model wants them.

    Returns:
        ``(loss, accuracy)``: mean cross-entropy, not finite where any batch's is, and
        the percentage of images whose largest logit is that of their label.
    """
    model.eval()
    criterion = nn.CrossEntropyLoss()
    total, right = 0.0, 0
    order = torch.arange(len(split))
    for images, labels in _batches(split, order, _EVALUATION_BATCH, dtype, device, image_size):
        logits = model(images)
        total += criterion(logits, labels).item() * len(labels)
        right += (logits.argmax(1) == labels).sum().item()
    return total / len(split), 100 * right / len(split)
