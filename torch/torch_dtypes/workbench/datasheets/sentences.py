"""The sentences of a verdict, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """A sentence of a verdict.

    Attributes:
        format: the format that it is about. rests: the part and the row's place in it, of each row
            that it is made from. is_detail: it stands at the head of that part, not at the page's.
    """

    format: str
    text: str
    rests: tuple[tuple[str, int], ...] = ()
    is_detail: bool = False


def share_text(share: float) -> str:
    """Write a share in percent with three digits; only the whole is 100 %."""
    if 0.9995 <= share < 1:
        return f"{100 * share:.2f} %" if share < 0.99995 else "over 99.99 %"
    return f"{100 * share:.3g} %"


def join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
