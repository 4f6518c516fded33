"""Perplexity by a window that slides over a text (Press, Smith, Lewis, "Shortformer",
arXiv 2012.15832, section 2).

A window of ``context`` tokens moves by ``stride``. Each token is scored once, in the first window
that has it and a token before it. With a stride as long as the window, windows do not overlap, as
in papers on quantisation (GPTQ, arXiv 2210.17323). The first token of such a window is not scored.
A shorter stride gives tokens more context, and takes more windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

_POSITIONS = 256  # scored at once: a vocabulary of 128,000 then takes 256 MiB in float64


@dataclass(frozen=True)
class Window:
    """A piece of a text, from token ``begin`` to before ``end``. Tokens from ``first`` on are
    scored."""

    begin: int
    end: int
    first: int

    @property
    def scored(self) -> int:
        return self.end - self.first

    @property
    def shape(self) -> tuple[int, int]:
        """The length and the number of scored tokens. Windows of one shape can run together."""
        return self.end - self.begin, self.scored


def find_windows(tokens: int, context: int, stride: int) -> list[Window]:
    """Return the windows over a text of this many tokens.

    Args:
        tokens: at least 2.
        context: the length of a window, at least 2.
        stride: 1 to ``context``.
    """
    windows, done = [], 0
    for begin in range(0, tokens, stride):
        end = min(begin + context, tokens)
        first = max(begin + 1, done)
        if first < end:
            windows.append(Window(begin, end, first))
        done = end
        if end == tokens:
            break
    return windows


def group_windows(windows: list[Window], size: int) -> Iterator[list[Window]]:
    """Group up to ``size`` successive windows of one shape."""
    group: list[Window] = []
    for window in windows:
        if group and (len(group) == size or group[0].shape != window.shape):
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def logits_of(output: object) -> torch.Tensor:
    """Return the logits in a model's output: the output itself, its attribute ``logits``, or the
    first of a tuple.

    Raises:
        TypeError: another output.
    """
    logits = getattr(output, "logits", output)
    if isinstance(logits, tuple) and logits:
        logits = logits[0]
    if not isinstance(logits, torch.Tensor):
        raise TypeError(
            "expected a model that returns logits, as a tensor or an attribute logits, but got "
            f"{type(output).__name__}"
        )
    return logits


@torch.no_grad()
def score(model: nn.Module, tokens: torch.Tensor, group: list[Window]) -> list[float]:
    """Return the negative log-likelihood of each window's scored tokens, in nats.

    The logarithm of the softmax and the sum are in float64. NaN logits give NaN.
    """
    ids = torch.stack([tokens[w.begin : w.end] for w in group])
    logits = logits_of(model(ids))
    length, scored = group[0].shape
    logits, targets = logits[:, length - scored - 1 : -1], ids[:, length - scored :]
    losses = torch.zeros(len(group), dtype=torch.float64)
    for some, of in zip(logits.split(_POSITIONS, 1), targets.split(_POSITIONS, 1), strict=True):
        each = F.cross_entropy(some.double().flatten(0, 1), of.flatten(), reduction="none")
        losses += each.view(of.shape).sum(1).cpu()
    return losses.tolist()
