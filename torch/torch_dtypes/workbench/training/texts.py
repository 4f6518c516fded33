"""Texts for language models, as bytes."""

from __future__ import annotations

from pathlib import Path


def load_text(path: Path | None) -> bytes:
    """Return the bytes of a file. None: the reference topics of Python's own documentation, which
    come with Python (``pydoc_data.topics``) and differ by its version.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty.
    """
    if path is None:
        from pydoc_data.topics import topics

        return "\n".join(topics.values()).encode()
    text = Path(path).read_bytes()
    if not text:
        raise ValueError(f"expected a text, but {path} is empty")
    return text
