"""Regular expressions that match names of formats, targets, policies and rounding modes."""

from __future__ import annotations

import re


def name_pattern(pattern: str) -> re.Pattern:
    r"""Compile a regular expression in which ``\d+`` matches a number of 1 to 99 ASCII digits.

    Digits of other scripts would give a format a second name. int() refuses thousands of digits, by
    an error that does not mention the name.
    """
    return re.compile(pattern.replace(r"\d+", "[0-9]{1,99}"))
