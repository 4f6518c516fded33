"""Results of ``observe``: counts by layer, pass and format, as a mapping, table, figure, files and
plain data."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import IO, Any

import torch

from ... import _C
from ..cards.card import card
from ..report.folders import json_text
from ..report.page import Report
from ..report.tables import print_rows
from .blocks import merge_counts
from .counts import BLOCK_FIELDS, RoundingCounts, build_counts
from .figures import exponent_figure, scale_figure
from .files import open_text, read_plain, write_csv, write_plain
from .keys import find_key
from .outliers import Channels, OutlierChannels, find_outliers, merge_channels
from .rows import NOTHING, build_rows, choose_columns, describe_counts

_ORDERS = ("trouble", "layer")


class Statistics(Mapping):
    """:class:`RoundingCounts` by (layer, pass, format)::

        stats["conv2", "backward", "q43"].share("underflow")
        max(stats.values(), key=lambda c: c.trouble)

    A layer is a module's qualified name, in the model's order. ``""`` is the model itself
    (``"(model)"`` finds it, too), and ``"(outside)"`` all that no module rounded. The passes are
    those of ``RoundingCounts.where``. Formats have the package's names; a dtype or any other name
    finds them too. A key exists only where something was counted. So the backward pass of the first
    layer in a format dtype is missing: the data need no gradient. :func:`observe` makes it. Within
    the block it has the counts so far. Afterwards it is plain data, which can be copied and
    pickled. A notebook shows it as its table.
    """

    # The largest magnitude of each channel that entered a layer, if the observation keeps them.
    _channels: Channels | None = None

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks
        if hooks is not None and hooks.channels is not None:
            self._channels = hooks.channels.largest
        self._counts: dict[tuple[str, str, str], RoundingCounts] = {}

    def _now(self) -> dict[tuple[str, str, str], RoundingCounts]:
        if self._hooks is None:
            return self._counts
        counts = [build_counts(*row) for row in self._hooks.read()]
        return {(c.layer, c.where, c.format): c for c in counts}

    def close(self) -> None:
        """Keep the counts and release the model. The end of the block calls it."""
        self._counts, self._hooks = self._now(), None

    def __getitem__(self, key: tuple[str, str, str | torch.dtype | _C.Format]) -> RoundingCounts:
        counts = self._now()
        return counts[find_key(key, counts)]

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __getstate__(self) -> dict:
        return {"_counts": self._now(), "_channels": self._channels}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state, _hooks=None)

    def __deepcopy__(self, memo: dict) -> Statistics:
        copied = Statistics(None)
        copied._counts = dict(self._now())  # a shallow copy will do: the records are immutable
        copied._channels = copy.deepcopy(self._channels)
        return copied

    def __repr__(self) -> str:
        rows = self.sorted()
        if not rows:
            return "<Statistics: nothing was counted>"
        layers, formats = {c.layer for c in rows}, sorted({c.format for c in rows})
        return f"<Statistics of {len(layers)} layers in {', '.join(formats)}; {self.worst()}>"

    # ---- reading ----

    def sorted(self, by: str = "trouble") -> list[RoundingCounts]:
        """Return the counts by falling trouble (where equal, by rising signal-to-noise ratio), or
        in the model's order.

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
        """Return the rows of the printed table as texts, by column; with those of blocks if there
        are any."""
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or limit < 1
        ):
            raise ValueError(f"expected a limit of at least 1 row, or None, but got {limit!r}")
        return build_rows(self.sorted(by)[:limit])

    def table(self, limit: int | None = 20, by: str = "trouble", console: Any = None) -> None:
        """Print a row for each layer, pass and format: shares as in :meth:`RoundingCounts.share`,
        the signal-to-noise ratio, and the exponents. Columns that do not fit the console are left
        out.

        Args:
            limit: the most rows; None: all. by: ``"trouble"``, the worst first, or ``"layer"``.
                console: rich's; default: a new one.
        """
        from rich.console import Console

        console = console or Console()
        rows = self.rows(limit, by)
        if not rows:
            console.print(NOTHING, highlight=False)
            return
        used = choose_columns(rows, console.width)
        print_rows(console, used, [[row[name] for name in used] for row in rows], fold=True)
        if (left := len(self) - len(rows)) > 0:
            console.print(f"and {left} more: table(limit=None)", highlight=False)
        if dropped := [
            name for name in rows[0] if name not in used and any(row[name] for row in rows)
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
        """Draw a matplotlib figure: for each layer and pass the exponents of the numbers before
        rounding, against the format's range.

        Args:
            format: one of the counted formats, by any of its names; optional if there is only one.
            passes: the passes to draw, a column each; default: forward, backward, gradients and
                updates, if they have counts.
            limit: the most layers, those of most trouble; None: all.
            width: ``"page"`` or ``"column"`` (one column of a paper).

        Raises:
            ValueError: no counts, or none for that format or pass; no format named where there are
                several.
        """
        rows = self.sorted("layer")
        if not rows:
            raise ValueError(f"expected counts to plot, but got none: {NOTHING}")
        return exponent_figure(rows, self._choose_format(format), passes, limit, width)

    def plot_scales(
        self,
        format: str | None = None,
        passes: Sequence[str] | None = None,
        limit: int | None = 12,
        width: str = "page",
    ):
        """Draw a matplotlib figure: for each layer and pass the exponents of the blocks' scales,
        against the range of their format, with the shares of blocks that clip or flush a number.

        Args:
            format: one of the counted block formats; optional if there is only one. passes, limit,
                width: as in :meth:`plot`.

        Raises:
            ValueError: no counts of blocks, or none for that format or pass; no format named where
                there are several.
        """
        rows = [c for c in self.sorted("layer") if c.blocks]
        if not rows:
            raise ValueError(
                "expected counts of a block format to plot its scales, but got none; use "
                "observe(model, formats=['nvfp4'])"
            )
        name = self._choose_format(format, sorted({c.format for c in rows}))
        return scale_figure(rows, name, passes, limit, width)

    def worst(self) -> str:
        """Describe the counts of most trouble in a line: ``conv2, backward: 87% of 1,204 nonzero
        numbers underflow in q43``; empty without counts."""
        rows = self.sorted()
        return describe_counts(rows[0]) if rows else ""

    def outliers(self, times: float = 8.0) -> list[OutlierChannels]:
        """Return the layers that channels enter whose largest magnitude is more than ``times`` the
        median channel's, the largest quotient first. NaN does not count.

        Each has ``layer``, the ``channels`` (the largest first) of ``of``, their ``share``, the
        ``largest`` magnitude, the (lower) ``median``, and the quotient of both, ``times``.

        Raises:
            ValueError: ``times`` below 1, or an observation without ``outliers=True``.
        """
        if self._channels is None:
            raise ValueError(
                "expected the magnitudes of channels, but got an observation without them; use "
                "observe(model, outliers=True)"
            )
        return find_outliers(self._channels, times)

    def formats(self) -> list[str]:
        """Return the names of the counted formats."""
        return sorted({c.format for c in self._now().values()})

    def _choose_format(self, name: str | None, there: list[str] | None = None) -> str:
        there = self.formats() if there is None else there
        if name is None:
            if len(there) > 1:
                raise ValueError(
                    f"expected one of the formats {', '.join(there)} to plot, but got none "
                    f"named; use plot({there[0]!r})"
                )
            return there[0]
        wanted = name if name in there else card(name).canonical
        if wanted not in there:
            raise ValueError(
                f"expected a format that was counted, {', '.join(there)}, but got {name!r}"
            )
        return wanted

    # ---- writing ----

    def as_json(self) -> dict:
        """Return plain data: ``{"counts": [...]}``, each :meth:`RoundingCounts.as_json` with its
        share of trouble; and ``channels``, the largest magnitudes by layer, if they were kept."""
        return write_plain(self.sorted("layer"), self._channels)

    @classmethod
    def from_json(cls, data: Mapping | str | os.PathLike | IO[str]) -> Statistics:
        """Rebuild the result of :meth:`as_json`, or read a file of :meth:`to_json`, given its path
        or open.

        Raises:
            KeyError, TypeError: other data. ValueError: a file without JSON. OSError: an unreadable
                file.
        """
        result = cls(None)
        result._counts, result._channels = read_plain(data)
        return result

    def to_json(self, path: str | os.PathLike | IO[str]) -> None:
        """Write :meth:`as_json` to a file: a path, or an open text file.

        Raises:
            OSError: the file cannot be written.
        """
        with open_text(path) as file:
            file.write(json_text(self.as_json()))

    def to_csv(self, path: str | os.PathLike | IO[str]) -> None:
        """Write a row for each layer, pass and format as CSV, to a path or an open text file. The
        columns are the counts, signal, noise, ``snr`` and ``nonzero``. Exponents, and the counts of
        blocks, are written as ``exponent:count`` with spaces between, the model itself as
        ``(model)``.

        Raises:
            OSError: the file cannot be written.
        """
        with open_text(path, newline="") as file:
            write_csv(self.sorted("layer"), file)

    def _repr_html_(self) -> str:
        report, rows = Report("Statistics"), self.rows(20)
        if not rows:
            return report.text(NOTHING).fragment()
        report.table(list(rows[0]), [list(row.values()) for row in rows], dense=True)
        return report.text(*([f"and {len(self) - 20} more"] if len(self) > 20 else [])).fragment()


def merge_statistics(first: Mapping, second: Mapping) -> Statistics:
    """Add up the counts of two stretches of one run."""
    merged = Statistics(None)
    for key in {**second, **first}:
        parts = [counts[key] for counts in (first, second) if key in counts]
        sums = {
            f.name: sum(getattr(c, f.name) for c in parts)
            for f in fields(RoundingCounts)
            if f.name not in (*_KEYS, "exponents", *BLOCK_FIELDS)
        }
        for name in ("exponents", *BLOCK_FIELDS):
            sums[name] = {}
            for c in parts:
                merge_counts(sums[name], getattr(c, name))
            sums[name] = dict(sorted(sums[name].items()))
        merged._counts[key] = RoundingCounts(*key, **sums)
    channels = (getattr(counts, "_channels", None) for counts in (first, second))
    merged._channels = merge_channels(*channels)
    return merged


_KEYS = ("layer", "where", "format")
