"""What ``observe`` gives: counts by layer, pass and format, as a mapping, a table, a figure, files
and plain data."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import IO, Any

import torch

from ... import _C
from ...formats.arguments import outline
from ..cards.card import card
from ..report.folders import json_text, whole_file
from ..report.page import Report
from ..report.tables import print_rows
from .counts import PASSES, RoundingCounts, counted
from .figures import exponent_figure

_SHARES = (
    "overflow",
    "saturated",
    "underflow",
    "to_zero",
    "subnormal",
    "zeros",
    "nan_made",
    "unchanged",
)
_COLUMNS = (
    "layer",
    "pass",
    "format",
    "numbers",
    "nonzero",
    *(name.replace("_", " ") for name in _SHARES),
    "SNR dB",
    "exponents",
)
_ORDERS = ("trouble", "layer")


class Statistics(Mapping):
    """:class:`RoundingCounts` by (layer, pass, format)::

        stats["conv2", "backward", "q43"].share("underflow")
        max(stats.values(), key=lambda c: c.trouble)

    Layers are qualified names of modules, in the model's order, ``""`` the model itself
    (``"(model)"`` finds it, too), ``"(outside)"`` what none of them rounded; passes those of
    ``RoundingCounts.where``; formats the package's names, and a dtype or any other name of one
    finds it. What counted nothing is not there, such as the backward pass of a dtype's first layer,
    for no gradient is computed for the data. It is made by :func:`observe`; within the block it is
    what was counted so far, and afterwards plain data, which copies and pickles. A notebook shows
    it as its table.
    """

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks
        self._counts: dict[tuple[str, str, str], RoundingCounts] = {}

    def _now(self) -> dict[tuple[str, str, str], RoundingCounts]:
        if self._hooks is None:
            return self._counts
        made = [counted(*row) for row in self._hooks.read()]
        return {(c.layer, c.where, c.format): c for c in made}

    def close(self) -> None:
        """Keeps what was counted, and lets go of the model: the end of the block does it."""
        self._counts, self._hooks = self._now(), None

    def __getitem__(self, key: tuple[str, str, str | torch.dtype | _C.Format]) -> RoundingCounts:
        found = self._now()
        if key in found:
            return found[key]
        if isinstance(key, tuple) and len(key) == 3:
            layer, where, name = key
            same = (
                ("" if layer == _name("") else layer),
                where,
                name if name in self.formats() else _canonical(name),
            )
            if same in found:
                return found[same]
        raise KeyError(_missing(key, found))

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __getstate__(self) -> dict:
        return {"_counts": self._now()}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state, _hooks=None)

    def __deepcopy__(self, memo: dict) -> Statistics:
        made = Statistics(None)
        made._counts = dict(self._now())  # whose records nobody changes
        return made

    def __repr__(self) -> str:
        rows = self.sorted()
        if not rows:
            return "<Statistics: nothing was counted>"
        layers, formats = {c.layer for c in rows}, sorted({c.format for c in rows})
        return f"<Statistics of {len(layers)} layers in {', '.join(formats)}; {self.worst()}>"

    # ---- looking at them ----

    def sorted(self, by: str = "trouble") -> list[RoundingCounts]:
        """The counts, those of most trouble first (of equal ones the lowest signal-to-noise ratio),
        or in the model's order.

        Args:
            by: ``"trouble"`` or ``"layer"``.

        Raises:
            ValueError: another order.
        """
        if by not in _ORDERS:
            raise ValueError(f"expected an order of {', '.join(_ORDERS)}, but got {by!r}")
        rows = list(self._now().values())
        if by == "layer":
            return rows
        return sorted(rows, key=lambda c: (-c.trouble, math.inf if math.isnan(c.snr) else c.snr))

    def rows(self, limit: int | None = None, by: str = "trouble") -> list[dict[str, str]]:
        """The rows of the printed table as texts, by column."""
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or limit < 1
        ):
            raise ValueError(f"expected a limit of at least 1 row, or None, but got {limit!r}")
        return [dict(zip(_COLUMNS, _row(c), strict=True)) for c in self.sorted(by)[:limit]]

    def table(self, limit: int | None = 20, by: str = "trouble", console: Any = None) -> None:
        """Prints a row for each layer, pass and format: shares as of :meth:`RoundingCounts.share`,
        the signal-to-noise ratio, and the exponents that came, as many columns as the console is
        wide for.

        Args:
            limit: how many rows at most; None: all. by: ``"trouble"``, the worst first, or
                ``"layer"``. console: rich's; default: a new one.
        """
        from rich.console import Console

        console = console or Console()
        rows = self.rows(limit, by)
        if not rows:
            console.print(_NOTHING, highlight=False)
            return
        used = _fitting(rows, console.width)
        print_rows(console, used, [[row[name] for name in used] for row in rows], fold=True)
        if (left := len(self) - len(rows)) > 0:
            console.print(f"and {left} more: table(limit=None)", highlight=False)
        if dropped := [
            name for name in _COLUMNS if name not in used and any(row[name] for row in rows)
        ]:
            console.print(
                f"no room for: {', '.join(dropped)} (a wider console, or rows())", highlight=False
            )

    def plot(
        self,
        format: str | None = None,
        passes: Sequence[str] | None = None,
        limit: int | None = 12,
        width: str = "page",
    ):
        """A matplotlib figure: for each layer and pass the exponents of the numbers before
        rounding, against the format's range.

        Args:
            format: one of the formats counted, by any of its names; may be left out where there is
                one.
            passes: those to draw, a column each; default: forward, backward, gradients and updates,
                as far as there are counts.
            limit: so many layers at most, those of most trouble; None: all.
            width: ``"page"`` or ``"column"`` (one column of a paper).

        Raises:
            ValueError: nothing was counted, or not of that format or pass; several formats and none
                chosen.
        """
        rows = self.sorted("layer")
        if not rows:
            raise ValueError(f"expected counts to plot, but got none: {_NOTHING}")
        return exponent_figure(rows, self._chosen(format), passes, limit, width)

    def worst(self) -> str:
        """One line on the counts of most trouble: ``conv2, backward: 87% of 1,204 nonzero numbers
        underflow in q43``; empty where nothing was counted."""
        rows = self.sorted()
        if not rows:
            return ""
        c = rows[0]
        where = f"{_name(c.layer)}, {c.where}"
        if c.trouble == 0:
            return (
                f"{where}: no number left the range of {c.format}, and the signal-to-noise ratio "
                f"is {_decibels(c.snr)} dB"
            )
        shares = {"overflow": "overflow", "underflow": "underflow", "nan_made": "become NaN"}
        of = f"of {c.nonzero:,} nonzero numbers"
        what = [
            f"{_percent(c.share(name))} {of} {verb} in {c.format}"
            for name, verb in shares.items()
            if c.share(name) > 0
        ]
        if c.compared and c.unchanged:
            what.append(
                f"{_percent(c.share('unchanged'))} of the parameters stay as they were in "
                f"{c.format}"
            )
        return f"{where}: {', '.join(what)}"

    def formats(self) -> list[str]:
        """The names of the formats that were counted."""
        return sorted({c.format for c in self._now().values()})

    def _chosen(self, name: str | None) -> str:
        there = self.formats()
        if name is None:
            if len(there) > 1:
                raise ValueError(
                    f"expected one of the formats {', '.join(there)} to plot, but got none "
                    f"chosen: say plot({there[0]!r})"
                )
            return there[0]
        wanted = name if name in there else card(name).canonical
        if wanted not in there:
            raise ValueError(
                f"expected a format that was counted, {', '.join(there)}, but got {name!r}"
            )
        return wanted

    # ---- writing them ----

    def as_json(self) -> dict:
        """Plain data: ``{"counts": [...]}``, each :meth:`RoundingCounts.as_json` with its share of
        trouble."""
        return {"counts": [c.as_json() | {"trouble": c.trouble} for c in self.sorted("layer")]}

    @classmethod
    def from_json(cls, data: Mapping | str | os.PathLike | IO[str]) -> Statistics:
        """What :meth:`as_json` gave, or a file of :meth:`to_json`: its path, or it itself, open.

        Raises:
            KeyError, TypeError: it is something else. ValueError: a file without JSON. OSError: it
                cannot be read.
        """
        if isinstance(data, (str, os.PathLike)):
            with open(data, encoding="utf-8") as file:
                data = json.load(file)
        elif hasattr(data, "read"):
            data = json.load(data)
        if not isinstance(data, Mapping):
            raise TypeError(
                "expected what as_json() gave, or a file of to_json() by its path, but got "
                f"{outline(data)}"
            )
        if "counts" not in data:
            raise KeyError(
                "expected what as_json() gave, with 'counts', but got only "
                f"{', '.join(map(repr, data)) or 'an empty mapping'}"
            )
        made = cls(None)
        for row in data["counts"]:
            own = {k: v for k, v in row.items() if k not in _DERIVED} | {
                "exponents": {int(e): n for e, n in row["exponents"].items()}
            }
            counts = RoundingCounts(**{k: math.inf if v is None else v for k, v in own.items()})
            made._counts[counts.layer, counts.where, counts.format] = counts
        return made

    def to_json(self, path: str | os.PathLike | IO[str]) -> None:
        """Writes :meth:`as_json` to a file: a path, or an open text file.

        Raises:
            OSError: it cannot be written.
        """
        with _opened(path) as file:
            file.write(json_text(self.as_json()))

    def to_csv(self, path: str | os.PathLike | IO[str]) -> None:
        """Writes a row for each layer, pass and format to a file, a path or an open text file: the
        counts, signal, noise, ``snr`` and ``nonzero``; exponents as ``exponent:count`` with spaces
        between; the model itself as ``(model)``.

        Raises:
            OSError: it cannot be written.
        """
        rows = [c.as_json() for c in self.sorted("layer")]
        names = list(rows[0]) if rows else list(RoundingCounts("", "", "", 0).as_json())
        with _opened(path, newline="") as file:
            writer = csv.writer(file)
            writer.writerow("pass" if name == "where" else name for name in names)
            for row in rows:
                exponents = " ".join(f"{e}:{n}" for e, n in row["exponents"].items())
                shown = row | {"layer": _name(row["layer"]), "exponents": exponents}
                writer.writerow([shown[name] for name in names])

    def _repr_html_(self) -> str:
        made, rows = Report("Statistics"), self.rows(20)
        if not rows:
            return made.text(_NOTHING).fragment()
        made.table(_COLUMNS, [list(row.values()) for row in rows], dense=True)
        return made.text(*([f"and {len(self) - 20} more"] if len(self) > 20 else [])).fragment()


def together(first: Mapping, second: Mapping) -> Statistics:
    """The counts of two stretches of one run as those of both."""
    made = Statistics(None)
    for key in {**second, **first}:
        found = [counts[key] for counts in (first, second) if key in counts]
        sums = {
            f.name: sum(getattr(c, f.name) for c in found)
            for f in fields(RoundingCounts)
            if f.name not in (*_KEYS, "exponents")
        }
        exponents = sorted({e for c in found for e in c.exponents})
        made._counts[key] = RoundingCounts(
            *key,
            **sums,
            exponents={e: sum(c.exponents.get(e, 0) for c in found) for e in exponents},
        )
    return made


_KEYS = ("layer", "where", "format")
_DERIVED = ("snr", "nonzero", "trouble")  # in plain data, and no fields of RoundingCounts
_NOTHING = (
    "nothing was rounded to a number format in this block. Of a float model say observe(model, "
    "formats=['q43']); else call the model in the block."
)


def _name(layer: str) -> str:
    return layer or "(model)"


def _canonical(name: object) -> str | None:
    """The name that counts in a format have; None of what names no format."""
    try:
        return card(name).canonical
    except (TypeError, ValueError):
        return None


def _missing(key: object, found: Mapping) -> str:
    """The error of a key that is not there: what is."""
    text = f"expected (layer, pass, format) with counts, but got {key!r}"
    if not found:
        return f"{text}: nothing was counted"
    if not (isinstance(key, tuple) and len(key) == 3):
        return f"{text}: say stats[{', '.join(map(repr, next(iter(found))))}], for instance"
    formats = f"formats: {', '.join(sorted({name for _, _, name in found}))}"
    layer = "" if key[0] == _name("") else key[0]
    there = {where for name, where, _ in found if name == layer}
    if not there:
        layers = list(dict.fromkeys(_name(name) for name, _, _ in found))
        more = f" and {len(layers) - 20} more" if len(layers) > 20 else ""
        return f"{text}; layers: {', '.join(layers[:20])}{more}; {formats}"
    none = (
        ""
        if key[1] != "backward" or "backward" in there
        else "; without a gradient for what comes in, as at a dtype's first layer, none is there"
    )
    return (
        f"{text}; passes of {_name(layer)}: "
        f"{', '.join(where for where in PASSES if where in there)}{none}; {formats}"
    )


@contextlib.contextmanager
def _opened(path: str | os.PathLike | IO[str], newline: str | None = None) -> Iterator[IO]:
    """A file to write text into: a path's, or what is open."""
    if hasattr(path, "write"):
        yield path
        return
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"expected a path or an open text file to write into, but got {outline(path)}"
        )
    with whole_file(path, newline=newline) as file:
        yield file


def _percent(share: float) -> str:
    """A share in three digits; nothing for 0 and for what there is none of."""
    if not share > 0:
        return ""
    percent = 100 * share
    if percent < 0.01:
        return "<0.01%"
    return f"{percent:.3g}%" if percent < 99.95 else f"{percent:.4g}%"


def _decibels(snr: float) -> str:
    if math.isnan(snr):
        return ""
    return "exact" if snr == math.inf else f"{snr:.1f}"


def _fitting(rows: list[dict[str, str]], room: int) -> list[str]:
    """The columns that have something to say, as many as there is room for."""
    used = [name for name in _COLUMNS if name in _COLUMNS[:5] or any(row[name] for row in rows)]
    for name in ("saturated", "exponents", "zeros", "subnormal", "numbers", "to zero", "nonzero"):
        if (
            sum(max(len(column), *(len(row[column]) for row in rows)) + 2 for column in used)
            <= room
        ):
            break
        if name in used:
            used.remove(name)
    return used


def _row(c: RoundingCounts) -> tuple[str, ...]:
    shares = [_percent(c.share(name)) for name in _SHARES]
    exponents = f"{min(c.exponents)} to {max(c.exponents)}" if c.exponents else ""
    return (
        _name(c.layer),
        c.where,
        c.format,
        f"{c.elements:,}",
        f"{c.nonzero:,}",
        *shares,
        _decibels(c.snr),
        exponents,
    )
