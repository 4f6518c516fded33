"""What names of formats, targets, policies and rounding modes are matched by."""

from __future__ import annotations

import re


def name_pattern(pattern: str) -> re.Pattern:
    r"""A compiled regular expression in which ``\d+`` is a number as names have them: of ASCII
    digits (other scripts' would make a second name of the same format), at most 99 of them (int()
    refuses thousands, by an error that says nothing of names)."""
    return re.compile(pattern.replace(r"\d+", "[0-9]{1,99}"))
