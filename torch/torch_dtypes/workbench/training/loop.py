"""The training loop: an ordinary PyTorch loop that can stop after any step, and continue."""

import copy
import functools
import math
import time
from contextlib import nullcontext
from dataclasses import asdict, replace

import torch
from torch import nn

from ...distributed import same_random
from ..diagnosis.divergence import explain_divergence
from .generators import forked_generators
from .ranks import ALONE
from .recipes import (
    AFTER,
    OPTIMIZERS,
    build_optimizer,
    dtype_name,
    quantize,
    resolve_dtype,
    round_weights,
    set_up,
)
from .records import Config, Epoch, Run
from .repeatable import repeatable

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Config",
    "Epoch",
    "Run",
    "Training",
    "build_optimizer",
    "dtype_name",
    "evaluate",
    "resolve_dtype",
    "train",
]

# The factor of the learning rate after a share t of all steps.
SCHEDULES = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "step": lambda t: 1.0 if t < 0.5 else 0.1 if t < 0.75 else 0.01,
}


def lr_factor(config, step, steps):
    """Return the factor of the learning rate at a step, from 0, of so many."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    return SCHEDULES[config.schedule](
        min(1, (step - config.warmup) / max(1, steps - config.warmup))
    )


_EVALUATION_BATCH = 256  # affects memory, but not accuracy


def cross_entropy(logits, labels, loss_dtype="network"):
    """Return the mean cross-entropy, all its operators in the logits' dtype, or in float32 with
    ``loss_dtype="float32"``."""
    return nn.functional.cross_entropy(
        logits.float() if loss_dtype == "float32" else logits, labels
    )


class Training:
    """One run: a network, its optimizer, and its progress.

    The weights are initialised in float32 from ``seed`` and then set up by the recipe. Another
    generator with the same seed shuffles the images for each epoch, so all runs start alike and see
    the same order. The same arguments, machine and number of threads give the same figures, also if
    the run stops and continues from its ``state_dict()``. torch's default generators stay as they
    were.

    Args:
        config: a :class:`Config`. data: a ``data.Dataset``. seed: at least 0.
        number: the target of rounding: a floating-point ``torch.dtype`` or, for some recipes, a
            target.
        recipe: one of ``recipes.RECIPES``, but not of ``recipes.AFTER``, which start from a
            training in float32.
        ranks: the processes that train this together, a ``ranks.Ranks``: all construct it, call its
            methods in the same order and get the same figures.
        find_unused: whether parameters may have no gradient; only for several ranks.
    """

    def __init__(self, config, data, number, seed, recipe="all", ranks=ALONE, find_unused=False):
        self.config, self.data, self.ranks = config, data, ranks
        self.run = Run(dtype_name(number), seed, recipe=recipe)
        self._cuda = config.device == "cuda"
        with self._random():
            torch.manual_seed(seed)
            self.model, self.optimizer, self.dtype = set_up(config, data, number, recipe)
            self._wrapped_model = ranks.wrap_model(self.model, find_unused)
            ranks.seed()
            self._states = self._random_states()
        self.observed = nullcontext  # makes a block around the steps of an epoch
        self._shuffle = torch.Generator().manual_seed(seed)
        self._batch, self._total, self._seconds = 0, 0.0, 0.0  # of the current epoch
        self._epoch_began = self._shuffle.get_state()
        steps = max(1, config.epochs * math.ceil(len(data.train) / config.batch_size))
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: lr_factor(config, step, steps)
        )

    def _random(self):
        return forked_generators(self._cuda)

    def _random_states(self):
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if self._cuda else ())]

    @property
    def steps_done(self):
        """Number of steps so far."""
        return (
            len(self.run.epochs) * math.ceil(len(self.data.train) / self.config.batch_size)
            + self._batch
        )

    def go(self, on_step=None, on_epoch=None, should_stop=None):
        """Train to the end.

        Args:
            on_step: a function to call after each step with the mean loss of that batch.
            on_epoch: a function to call after each epoch with its :class:`Epoch`.
            should_stop: a function to ask after each step; if it returns True the run stops there,
                ``interrupted``.

        Returns:
            The :class:`Run`. A loss that is not finite ends it early and is recorded in its last
            epoch; it is not an error.
        """
        run, config = self.run, self.config
        run.interrupted = False
        with self._random(), repeatable(config.device):
            self._set_random_states(self._states)
            while len(run.epochs) < config.epochs and run.diverged_at is None:
                with self.observed():
                    train_loss, run.divergence = self._train_epoch(on_step, should_stop)
                if train_loss is None:
                    run.interrupted = True
                    break
                self._end_epoch(train_loss)
                if on_epoch:
                    self._states = self._random_states()
                    on_epoch(run.epochs[-1])
            self._states = self._random_states()
        return run

    def _common_random(self):
        """Make an optimizer with stochastic rounding round alike on all ranks, in a block."""
        return nullcontext() if self.ranks.size == 1 else same_random()

    def _set_random_states(self, states):
        torch.set_rng_state(states[0])
        if self._cuda:
            torch.cuda.set_rng_state_all(states[1:])

    def _end_epoch(self, train_loss):
        test_loss, accuracy = math.nan, math.nan
        if math.isfinite(train_loss):
            self.ranks.share_statistics(self.model)
            config = self.config
            test_loss, accuracy = evaluate(
                self.model, self.data.test, self.dtype, config.device, self.ranks
            )
        diverged = not math.isfinite(test_loss)
        if diverged and self.run.divergence is None:
            self.run.divergence = _explain(self.model, self.optimizer, None) or explain_test(
                self.model, self.data.test, self.dtype, self.config
            )
        self.run.epochs.append(
            Epoch(
                len(self.run.epochs) + 1, train_loss, test_loss, accuracy, self._seconds, diverged
            )
        )
        self._batch, self._total, self._seconds = 0, 0.0, 0.0
        self._epoch_began = self._shuffle.get_state()

    def _train_epoch(self, on_step, should_stop):
        """Run the rest of a pass over the images. Return the mean loss, or the first that is not
        finite with an explanation, or None if stopped."""
        config, split = self.config, self.data.train
        self._shuffle.set_state(self._epoch_began)
        order = torch.randperm(len(split), generator=self._shuffle)
        start, before = time.perf_counter(), self._seconds
        self.model.train()
        criterion = functools.partial(cross_entropy, loss_dtype=config.loss_dtype)
        scaled = getattr(self.optimizer, "scale", lambda loss: loss)
        for index in _indices(order[self._batch * config.batch_size :], config.batch_size):
            value = 0.0
            for place, micro in enumerate(index.chunk(config.micro_batches)):
                part, weight = self.ranks.part(micro)
                images, labels = _batch(split, part, self.dtype, config.device)
                loss = criterion(self._wrapped_model(images), labels)
                own, share = loss.item(), len(micro) / len(index)
                value += self.ranks.mean(own, weight) * share
                # Now, because the last step's gradients are still there
                if not math.isfinite(value):
                    self._seconds = before + time.perf_counter() - start
                    forward = (
                        None
                        if math.isfinite(own)
                        else lambda x=images, t=labels: criterion(self.model(x), t)
                    )
                    own_reason = forward and _explain(self.model, self.optimizer, forward)
                    return value, next(filter(None, self.ranks.gather(own_reason)), None)
                if place == 0:
                    self.optimizer.zero_grad()
                scaled(loss if weight * share == 1 else loss * (weight * share)).backward()
            if config.clip is not None:
                nn.utils.clip_grad_norm_(
                    self.model.parameters(),
                    config.clip * getattr(self.optimizer, "loss_scale", 1.0),
                )
            with self._common_random():
                self.optimizer.step()
            self._schedule.step()
            self._total += value * len(index)
            self._batch += 1
            self._seconds = before + time.perf_counter() - start
            if on_step:
                on_step(value)
            if should_stop and self.ranks.any(should_stop()):
                return None, None
        return self._total / len(order), None

    def state_dict(self):
        """Return the state on which the rest of the run depends, as plain data and tensors, the
        same on all ranks except for random states."""
        return {
            "key": list(self.run.key),
            "epochs": [asdict(epoch) for epoch in self.run.epochs],
            "batch": self._batch,
            "total": self._total,
            "seconds": self._seconds,
            "shuffle": self._epoch_began,
            "random": self._states,
            "random_of_ranks": self.ranks.gather(self._states),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
        }

    def load_state_dict(self, state):
        """Continue from a ``state_dict()``.

        Raises:
            ValueError: the state of another run.
        """
        if tuple(state["key"]) != self.run.key:
            raise ValueError(
                f"expected the state of {self.run.key}, but got that of {tuple(state['key'])}"
            )
        self.run.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self._batch, self._total, self._seconds = state["batch"], state["total"], state["seconds"]
        self._epoch_began = state["shuffle"]
        states = state.get("random_of_ranks", [state["random"]])
        if self.ranks.rank < len(states):  # a new rank continues with its own random numbers
            # Restore the states of GPUs that there were; others keep those of the seed.
            saved = states[self.ranks.rank]
            self._states = [*saved[: len(self._states)], *self._states[len(saved) :]]
        self.model.load_state_dict(state["model"])
        self._schedule.load_state_dict(state["schedule"])
        # After the schedule, so that the optimizer's learning rates win.
        self.optimizer.load_state_dict(state["optimizer"])


def train(config, data, number, seed, on_step=None, on_epoch=None, recipe="all"):
    """Train a network from scratch; see :class:`Training` for the arguments and :meth:`Training.go`
    for the result."""
    return Training(config, data, number, seed, recipe).go(on_step, on_epoch)


def _indices(order, size):
    return order.split(size) if len(order) else ()


def _batch(split, index, dtype, device):
    images, labels = split.batch(index)
    images = images.to(device)
    return images.to(dtype) if images.is_floating_point() else images, labels.to(device)


def _explain(model, optimizer, forward):
    divergence = explain_divergence(model, optimizer, forward)
    return str(divergence) if divergence else None


def explain_test(model, split, dtype, config):
    """Explain a test with infinities or NaN, if parameters are finite, by the first such tensor of
    the first such batch. Return None if all are finite."""
    criterion = functools.partial(cross_entropy, loss_dtype=config.loss_dtype)
    for index in _indices(torch.arange(len(split)), _EVALUATION_BATCH):
        images, labels = _batch(split, index, dtype, config.device)
        if reason := _explain(model, None, lambda x=images, t=labels: criterion(model(x), t)):
            return reason
    return None


@torch.no_grad()
def evaluate(model, split, dtype, device="cpu", ranks=ALONE):
    """Test a network in evaluation mode, and leave it in that mode.

    Args:
        model, dtype, device: the network, which maps inputs in ``dtype`` on ``device`` to logits.
            split: a ``data.Split``.
        ranks: the processes that share the batches, each with the same model; the figures are those
            of one process.

    Returns:
        ``(loss, accuracy)``: the mean cross-entropy, not finite if any batch's is, and the
        percentage of labels with the largest logit. The loss is computed in float64 from the
        logits, because in 8 bits it would have three digits.
    """
    model.eval()
    by_batch = {}  # by batch, to add them up in the order of a single process
    for number, index in enumerate(_indices(torch.arange(len(split)), _EVALUATION_BATCH)):
        if number % ranks.size == ranks.rank:
            images, labels = _batch(split, index, dtype, device)
            logits = model(images)
            by_batch[number] = (
                nn.functional.cross_entropy(logits.double(), labels).item() * len(labels),
                (logits.argmax(1) == labels).sum().item(),
            )
    by_batch = {
        number: figures for each in ranks.gather(by_batch) for number, figures in each.items()
    }
    total, right = (sum(by_batch[number][i] for number in sorted(by_batch)) for i in range(2))
    return total / len(split), 100 * right / split.labels.numel()


def after_training(trained, number, recipe="ptq", config=None, ranks=ALONE):
    """Return the run of a recipe that starts from a training: ``trained``, a finished
    :class:`Training` in float32, is rounded and tested.

    Its epochs are those of the training, but the last has the test of the rounded network.
    ``config`` holds for the rounding; by default it is the training's. ``ranks`` share the test.
    """
    data, before = trained.data, trained.run
    config = config or trained.config
    run = Run(dtype_name(number), before.seed, list(before.epochs), before.divergence, recipe)
    if before.diverged_at is None:
        model = copy.deepcopy(trained.model)
        with forked_generators(config.device == "cuda"):
            torch.manual_seed(before.seed)
            if recipe == "weights":
                round_weights(model, number)
            else:
                quantize(model, config, data, number, recipe)
            with repeatable(config.device):
                loss, accuracy = evaluate(model, data.test, torch.float32, config.device, ranks)
        diverged = not loss < float("inf")
        if diverged:
            run.divergence = explain_test(model, data.test, torch.float32, config)
        run.epochs[-1] = replace(
            run.epochs[-1], test_loss=loss, accuracy=accuracy, diverged=diverged
        )
    return run


def try_out(config, data, trial):
    """Train one step of a trial with two images, so that errors come before hours of training.

    Returns:
        Whether a parameter has no gradient.
    """
    few = replace(data, train=data.train.first(2), test=data.test.first(2))
    small = replace(config, epochs=1, batch_size=2)
    recipe, number = (
        ("all", torch.float32) if trial.recipe in AFTER else (trial.recipe, trial.number)
    )
    training = Training(small, few, number, 0, recipe)
    training.go()
    if trial.recipe in AFTER:
        after_training(training, trial.number, trial.recipe)
    return any(p.requires_grad and p.grad is None for p in training.model.parameters())
