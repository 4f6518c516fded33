"""An observation as plain data and as CSV."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import IO

import torch

from ...formats.arguments import outline
from ..report.folders import whole_file
from .counts import BLOCK_FIELDS, RoundingCounts
from .outliers import Channels
from .rows import name_layer

_DERIVED = ("snr", "nonzero", "trouble")  # in plain data, but no fields of RoundingCounts
_BINS = ("exponents", *BLOCK_FIELDS)


def write_plain(rows: list[RoundingCounts], channels: Channels | None) -> dict:
    """Return plain data, as ``Statistics.as_json``."""
    counts = [c.as_json() | {"trouble": c.trouble} for c in rows]
    if channels is None:
        return {"counts": counts}
    plain = {
        layer: [None if x == math.inf else x for x in largest.tolist()]
        for layer, largest in channels.items()
    }
    return {"counts": counts, "channels": plain}


def read_plain(
    data: Mapping | str | os.PathLike | IO[str],
) -> tuple[dict[tuple[str, str, str], RoundingCounts], Channels | None]:
    """Read counts and channels from plain data, a file of it or its path, as
    ``Statistics.from_json``."""
    if isinstance(data, (str, os.PathLike)):
        with open(data, encoding="utf-8") as file:
            data = json.load(file)
    elif hasattr(data, "read"):
        data = json.load(data)
    if not isinstance(data, Mapping):
        raise TypeError(
            "expected the result of as_json(), or a file of to_json() or its path, but got "
            f"{outline(data)}"
        )
    if "counts" not in data:
        raise KeyError(
            "expected the result of as_json(), with 'counts', but got only "
            f"{', '.join(map(repr, data)) or 'an empty mapping'}"
        )
    counts = [_read_counts(row) for row in data["counts"]]
    channels = data.get("channels")
    if channels is not None:
        channels = {
            layer: torch.tensor([_read_number(x) for x in largest], dtype=torch.float64)
            for layer, largest in channels.items()
        }
    return {(c.layer, c.where, c.format): c for c in counts}, channels


def _read_number(x):
    return math.inf if x is None else x


def _read_counts(row: Mapping) -> RoundingCounts:
    plain = {k: _read_number(v) for k, v in row.items() if k not in _DERIVED}
    bins = {name: {int(e): n for e, n in row[name].items()} for name in _BINS if name in row}
    return RoundingCounts(**plain | bins)


def write_csv(rows: list[RoundingCounts], file: IO[str]) -> None:
    """Write a row for each record as CSV, as ``Statistics.to_csv``."""
    plain = [c.as_json() for c in rows]
    # Rows of block formats have more columns.
    names = list(dict.fromkeys(name for row in plain for name in row))
    names = names or list(RoundingCounts("", "", "", 0).as_json())
    writer = csv.writer(file)
    writer.writerow("pass" if name == "where" else name for name in names)
    for row in plain:
        bins = {
            name: " ".join(f"{e}:{n}" for e, n in row[name].items())
            for name in _BINS
            if name in row
        }
        shown = row | {"layer": name_layer(row["layer"])} | bins
        writer.writerow([shown.get(name, "") for name in names])


@contextlib.contextmanager
def open_text(path: str | os.PathLike | IO[str], newline: str | None = None) -> Iterator[IO]:
    """Open a path to write text, or pass an open file on."""
    if hasattr(path, "write"):
        yield path
        return
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"expected a path or an open text file to write into, but got {outline(path)}"
        )
    with whole_file(path, newline=newline) as file:
        yield file
