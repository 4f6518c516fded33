"""The table of docs/reference/format-names.md says what each format has."""

import math
import pathlib
import re

import pytest
import torch

import torch_dtypes

PAGE = (pathlib.Path(__file__).parents[2] / "docs/reference/format-names.md").read_text()
EXAMPLES = PAGE.partition("## Examples")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `(\w+)`(?: = `(\w+)`)? \| (.*) \|$", EXAMPLES, re.MULTILINE)


def number(text):
    base, _, exponent = text.partition("^")
    return float(base) ** int(exponent or 1)


def same(x, text, largest):
    """Whether a cell of four digits means x."""
    if text == "NaN":
        return math.isnan(x)
    if text in ("largest", "infinity"):
        return x == (largest if text == "largest" else math.inf)
    return f"{x:.4g}" == f"{number(text):.4g}"


def test_the_table_is_there():
    assert len(ROWS) > 30


@pytest.mark.parametrize(("name", "canonical", "cells"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_says_what_the_format_has(name, canonical, cells):
    card = torch_dtypes.card(name)
    bits, largest, smallest, minus_zero, infinities, nans, *results = cells.split(" | ")
    assert card.canonical == (canonical or name) and card.bits == int(bits)
    assert same(card.largest, largest, None) and same(card.smallest, smallest, None)
    assert (card.zeros == 2) == (minus_zero == "yes")
    assert [str(card.infinities or "no"), str(card.nans or "no")] == [infinities, nans]
    inputs = torch.tensor([4 * card.largest, math.inf, math.nan], dtype=torch.float64)
    rounded = torch_dtypes.chop(inputs, name).tolist()
    assert all(same(x, text, card.largest) for x, text in zip(rounded, results, strict=True))


@pytest.mark.parametrize("name", ["E4M3", "f8_e4m3", "posit16", "takum16", "float16", "mxfp4"])
def test_a_name_that_the_page_calls_an_error_is_one(name):
    assert f"`{name}`" in PAGE.partition("## Names that are errors")[2]
    with pytest.raises(ValueError):
        torch_dtypes.dtype(name)
