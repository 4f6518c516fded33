"""What ``observe`` gives: counts by layer, pass and format, as a mapping, a table, a figure, files and plain data."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..folders import whole_file, write_json
from .counts import RoundingCounts, counted

_SHARES = ("overflow", "saturated", "underflow", "to_zero", "subnormal", "zeros", "nan_made", "unchanged")
_COLUMNS = ("layer", "pass", "format", "numbers", *(name.replace("_", " ") for name in _SHARES), "SNR dB", "exponents")
_ORDERS = ("trouble", "layer")


class Statistics(Mapping):
    """:class:`RoundingCounts` by (layer, pass, format)::

        stats["conv1", "backward", "q43"].share("underflow")
        max(stats.values(), key=lambda c: c.trouble)

    Layers are qualified names of modules, in the model's order, ``""`` the model itself, ``"(outside)"`` what none of them rounded; passes those
    of ``RoundingCounts.where``; formats by the package's names. What counted nothing is not there. It is made by :func:`observe`; within the block
    it is what was counted so far, and afterwards plain data, which copies and pickles. A notebook shows it as its table.
    """

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks
        self._counts: dict[tuple[str, str, str], RoundingCounts] = {}

    def _now(self) -> dict[tuple[str, str, str], RoundingCounts]:
        if self._hooks is None:
            return self._counts
        from .observing import read

        made = [counted(*row) for row in read(self._hooks)]
        return {(c.layer, c.where, c.format): c for c in made}

    def close(self) -> None:
        """Keeps what was counted, and lets go of the model: the end of the block does it."""
        self._counts, self._hooks = self._now(), None

    def __getitem__(self, key: tuple[str, str, str]) -> RoundingCounts:
        found = self._now()
        if key not in found:
            there = next(iter(found), "none, for nothing was counted")
            raise KeyError(f"expected (layer, pass, format) with counts, such as {there}, but got {key!r}")
        return found[key]

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
        """The counts, those of most trouble first (of equal ones the lowest signal-to-noise ratio), or in the model's order.

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
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ValueError(f"expected a limit of at least 1 row, or None, but got {limit!r}")
        return [dict(zip(_COLUMNS, _row(c), strict=True)) for c in self.sorted(by)[:limit]]

    def table(self, limit: int | None = 20, by: str = "trouble", console: Any = None) -> None:
        """Prints a row for each layer, pass and format: shares of all numbers, the signal-to-noise ratio, and the exponents that came, as many
        columns as the console is wide for.

        Args:
            limit: how many rows at most; None: all. by: ``"trouble"``, the worst first, or ``"layer"``. console: rich's; default: a new one.
        """
        from rich.console import Console
        from rich.table import Table

        console = console or Console()
        rows = self.rows(limit, by)
        if not rows:
            console.print(_NOTHING, highlight=False)
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        used = _fitting(rows, console.width)
        for name in used:
            table.add_column(name, justify="left" if name in _COLUMNS[:3] else "right", no_wrap=name != "layer", overflow="fold")
        for row in rows:
            table.add_row(*(row[name] for name in used))
        console.print(table)
        if (left := len(self) - len(rows)) > 0:
            console.print(f"and {left} more: table(limit=None)", highlight=False)

    def plot(self, format: str | None = None, passes: Sequence[str] | None = None, limit: int | None = 12, width: str = "page"):
        """A matplotlib figure: for each layer and pass the exponents of the numbers before rounding, against the format's range.

        Args:
            format: one of the formats counted, by any of its names; may be left out where there is one.
            passes: those to draw, a column each; default: forward, backward, gradients and updates, as far as there are counts.
            limit: so many layers at most, those of most trouble; None: all.
            width: ``"page"`` or ``"column"`` (one column of a paper).

        Raises:
            ValueError: nothing was counted, or not of that format or pass; several formats and none chosen.
        """
        from .figures import exponent_figure

        rows = self.sorted("layer")
        if not rows:
            raise ValueError(f"expected counts to plot, but got none: {_NOTHING}")
        return exponent_figure(rows, self._chosen(format), passes, limit, width)

    def worst(self) -> str:
        """One line on the counts of most trouble: ``conv1, backward: 87% of 1,204 numbers underflow in q43``; empty where nothing was counted."""
        rows = self.sorted()
        if not rows:
            return ""
        c = rows[0]
        where = f"{_name(c.layer)}, {c.where}"
        if c.trouble == 0:
            return f"{where}: no number left the range of {c.format}, and the signal-to-noise ratio is {_decibels(c.snr)} dB"
        shares = {"overflow": "overflow", "underflow": "underflow", "nan_made": "become NaN"}
        what = [f"{_percent(c.share(name))} of {c.elements:,} numbers {verb} in {c.format}" for name, verb in shares.items() if c.share(name) > 0]
        if c.compared and c.unchanged:
            what.append(f"{_percent(c.share('unchanged'))} of the parameters stay as they were in {c.format}")
        return f"{where}: {', '.join(what)}"

    def formats(self) -> list[str]:
        """The names of the formats that were counted."""
        return sorted({c.format for c in self._now().values()})

    def _chosen(self, name: str | None) -> str:
        from ..cards import card

        there = self.formats()
        if name is None:
            if len(there) > 1:
                raise ValueError(f"expected one of the formats {', '.join(there)} to plot, but got none chosen: say plot({there[0]!r})")
            return there[0]
        wanted = name if name in there else card(name).canonical
        if wanted not in there:
            raise ValueError(f"expected a format that was counted, {', '.join(there)}, but got {name!r}")
        return wanted

    # ---- writing them ----

    def as_json(self) -> dict:
        """Plain data: ``{"counts": [...]}``, each :meth:`RoundingCounts.as_json` with its share of trouble."""
        return {"counts": [c.as_json() | {"trouble": c.trouble} for c in self.sorted("layer")]}

    @classmethod
    def from_json(cls, data: Mapping) -> Statistics:
        """What :meth:`as_json` gave, from a file of :meth:`to_json` for instance.

        Raises:
            KeyError, TypeError: it is something else.
        """
        made = cls(None)
        for row in data["counts"]:
            own = {k: v for k, v in row.items() if k not in ("snr", "trouble")} | {"exponents": {int(e): n for e, n in row["exponents"].items()}}
            counts = RoundingCounts(**{k: math.inf if v is None else v for k, v in own.items()})
            made._counts[counts.layer, counts.where, counts.format] = counts
        return made

    def to_json(self, path: str | os.PathLike) -> None:
        """Writes :meth:`as_json` to a file.

        Raises:
            OSError: it cannot be written.
        """
        write_json(path, self.as_json())

    def to_csv(self, path: str | os.PathLike) -> None:
        """Writes a row for each layer, pass and format: the counts, signal, noise and ``snr``; exponents as ``exponent:count`` with spaces between.

        Raises:
            OSError: it cannot be written.
        """
        rows = [c.as_json() for c in self.sorted("layer")]
        names = list(rows[0]) if rows else list(RoundingCounts("", "", "", 0).as_json())
        with whole_file(path, newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            for row in rows:
                writer.writerow(row | {"exponents": " ".join(f"{e}:{n}" for e, n in row["exponents"].items())})

    def _repr_html_(self) -> str:
        from html import escape

        rows = self.rows(20)
        if not rows:
            return f"<p>{_NOTHING}</p>"
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join("<tr>" + "".join(f"<td>{escape(row[name])}</td>" for name in _COLUMNS) + "</tr>" for row in rows)
        more = f"<p>and {len(self) - 20} more</p>" if len(self) > 20 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def together(first: Mapping, second: Mapping) -> Statistics:
    """The counts of two stretches of one run as those of both."""
    made = Statistics(None)
    for key in {**second, **first}:
        found = [counts[key] for counts in (first, second) if key in counts]
        sums = {f.name: sum(getattr(c, f.name) for c in found) for f in fields(RoundingCounts) if f.name not in (*_KEYS, "exponents")}
        exponents = sorted({e for c in found for e in c.exponents})
        made._counts[key] = RoundingCounts(*key, **sums, exponents={e: sum(c.exponents.get(e, 0) for c in found) for e in exponents})
    return made


_KEYS = ("layer", "where", "format")
_NOTHING = (
    "nothing was rounded to a number format in this block. Of a float model say observe(model, formats=['q43']); else call the model in the block."
)


def _name(layer: str) -> str:
    return layer or "(model)"


def _percent(share: float) -> str:
    """A share in three digits; nothing for 0 and for what there is none of."""
    if not share > 0:
        return ""
    percent = 100 * share
    return "<0.01%" if percent < 0.01 else f"{percent:.3g}%" if percent < 99.95 else f"{percent:.4g}%"


def _decibels(snr: float) -> str:
    return "" if math.isnan(snr) else "exact" if snr == math.inf else f"{snr:.1f}"


def _fitting(rows: list[dict[str, str]], room: int) -> list[str]:
    """The columns that have something to say, as many as there is room for."""
    used = [name for name in _COLUMNS if name in _COLUMNS[:4] or any(row[name] for row in rows)]
    for name in ("saturated", "exponents", "zeros", "subnormal", "numbers", "to zero"):
        if sum(max(len(column), *(len(row[column]) for row in rows)) + 2 for column in used) <= room:
            break
        if name in used:
            used.remove(name)
    return used


def _row(c: RoundingCounts) -> tuple[str, ...]:
    shares = [_percent(c.share(name)) for name in _SHARES]
    exponents = f"{min(c.exponents)} to {max(c.exponents)}" if c.exponents else ""
    return _name(c.layer), c.where, c.format, f"{c.elements:,}", *shares, _decibels(c.snr), exponents
