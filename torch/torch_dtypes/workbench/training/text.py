"""Texts as data of language models: windows of bytes, whose labels are the bytes after them."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from .data import Dataset, Examples
from .gpt import VOCABULARY, is_gpt, sizes_of

TOPICS = "topics"  # the text that comes with Python
WINDOW = 128  # bytes that a network other than a GPT sees


class Text(Examples):
    """Windows of a text, kept as bytes: uint8 of shape ``(N, T)``. Labels are the same text, one
    byte further."""

    def batch(self, index):
        """Return the windows and their labels at ``index``, as int64."""
        return self.inputs[index].long(), self.labels[index].long()


def default_dataset(models: Sequence[str]) -> str:
    """Return the data of networks for which none are chosen: a text if all are GPTs."""
    return TOPICS if all(map(is_gpt, models)) else "digits"


@functools.cache
def read_topics() -> bytes:
    """Return the reference topics of Python's documentation, each paragraph once. They differ by
    Python's version."""
    from pydoc_data.topics import topics

    return "\n\n".join(dict.fromkeys("\n\n".join(topics.values()).split("\n\n"))).encode()


def digest_of(text: bytes) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text).hexdigest()


def load_text(model: str, path: str | os.PathLike | None = None) -> Dataset:
    """Load a file as a text of bytes, or Python's topics. The last tenth is for testing.

    Both parts are cut into windows without overlap, as long as the GPT's context, or 128 bytes for
    another network.

    Raises:
        ValueError: a text without a window in each part. OSError: the file cannot be read.
    """
    window = sizes_of(model)["context"] if is_gpt(model) else WINDOW
    text = read_topics() if path is None else Path(path).read_bytes()
    name = TOPICS if path is None else Path(path).name
    cut = len(text) * 9 // 10
    if len(text) - cut <= window:
        raise ValueError(
            f"expected a text of more than {10 * window:,} bytes for windows of {window}, but "
            f"{name} has {len(text):,}; use a longer text or a smaller context"
        )
    train, test = (_cut_windows(part, window) for part in (text[:cut], text[cut:]))
    return Dataset(name, train, test, VOCABULARY, digest_of(text))


def _cut_windows(text: bytes, window: int) -> Text:
    numbers = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    count = (len(numbers) - 1) // window
    inputs, labels = (numbers[i : i + count * window].view(count, window) for i in (0, 1))
    return Text(inputs, labels)
