"""Definitions of tables as data: for c10/formats/tables/ValueTable.h, for names by content, and as
texts that files carry."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import struct
import zlib

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ... import _C

MAX_VALUES = 2**16
TIES = ("even", "zero", "away", "up", "down")


@dataclasses.dataclass(frozen=True)
class End:
    """Overflow on one side of a table.

    If ``code`` is None, numbers beyond the outermost value become that value. Else they become
    ``code`` from ``limit`` on, as if ``next`` were the next value. A ``limit`` of None means
    halfway to ``next``. ``infinity`` is the code of an infinity; None is the outermost value's.
    """

    code: int | None = None
    infinity: int | None = None
    next: float = 0.0
    limit: float | None = None


@dataclasses.dataclass(frozen=True)
class Definition:
    """Fields of a table. ``values`` are by code; NaN marks a code that is no number.
    ``boundaries`` are between neighbours in ascending order; None means midpoints.

    For logarithmic numbers, ``logarithm`` is the base, "binary" or "natural". Logarithms of values
    and boundaries are then multiples of 2^-log_bits. ``boundaries`` have 52 bits, and ``rests``
    are the differences to the exact ones.
    """

    values: tuple[float, ...]
    nan_code: int
    ties: str = "even"
    boundaries: tuple[float, ...] | None = None
    high: End = End()
    low: End = End()
    minpos: bool = False
    negative_is_nan: bool = False
    rests: tuple[float, ...] | None = None
    logarithm: str = ""
    log_bits: int = 0

    @property
    def bits(self) -> int:
        return max(1, (len(self.values) - 1).bit_length())

    def format(self, name: str) -> _C.Format:
        finite = [(v, code) for code, v in enumerate(self.values) if math.isfinite(v)]

        def end_fields(end: End, outermost: int) -> tuple:
            infinity = outermost if end.infinity is None else end.infinity
            limit = math.nan if end.limit is None else end.limit
            return (
                end.code is None,
                outermost if end.code is None else end.code,
                infinity,
                end.next,
                limit,
            )

        with _disable_current_modes():  # else a mode of fake tensors would replace these tensors
            values = torch.tensor(self.values, dtype=torch.float64, device="cpu")
            boundaries = None
            if self.boundaries is not None:
                boundaries = torch.tensor(
                    [*self.boundaries, *(self.rests or ())], dtype=torch.float64, device="cpu"
                )
            return _C.Format.table(
                name,
                self.bits,
                values,
                self.nan_code,
                self.ties,
                boundaries,
                end_fields(self.high, max(finite)[1]),
                end_fields(self.low, min(finite)[1]),
                self.minpos,
                self.negative_is_nan,
                self.logarithm,
                self.log_bits,
            )

    def content(self) -> bytes:
        """Return a user's table in its one canonical form: a line of JSON, then the values and
        boundaries as little-endian float64."""
        fields = {
            name: getattr(self, name) for name in ("nan_code", "ties", "minpos", "negative_is_nan")
        }
        ends = {
            side: [_text(x) for x in dataclasses.astuple(getattr(self, side))]
            for side in ("high", "low")
        }
        head = {
            **fields,
            **ends,
            "count": len(self.values),
            "boundaries": None if self.boundaries is None else len(self.boundaries),
        }
        numbers = [
            math.nan if math.isnan(v) else v for v in (*self.values, *(self.boundaries or ()))
        ]
        return (
            json.dumps(head, sort_keys=True).encode()
            + b"\n"
            + struct.pack(f"<{len(numbers)}d", *numbers)
        )

    def name(self) -> str:
        return f"table{self.bits}_{hashlib.sha256(self.content()).hexdigest()[:16]}"

    def text(self) -> str:
        return base64.urlsafe_b64encode(zlib.compress(self.content(), 9)).decode().rstrip("=")


def _text(x: object) -> object:
    return x.hex() if isinstance(x, float) else x


def _number(x: object) -> object:
    return float.fromhex(x) if isinstance(x, str) else x


def of_text(text: str) -> Definition:
    """Parse a text of ``Definition.text``. Another text raises ValueError."""
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(
            base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), 16 * MAX_VALUES + 4096
        )
        head, _, numbers = content.partition(b"\n")
        head = json.loads(head)
        count, boundaries = head.pop("count"), head.pop("boundaries")
        doubles = struct.unpack(f"<{count + (boundaries or 0)}d", numbers)
        ends = {side: End(*map(_number, head.pop(side))) for side in ("high", "low")}
        return Definition(
            tuple(doubles[:count]),
            boundaries=None if boundaries is None else tuple(doubles[count:]),
            **ends,
            **head,
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        struct.error,
        zlib.error,
        RecursionError,
    ) as error:
        raise ValueError(
            f"expected the text of a table of values, but got another text: {error}"
        ) from None


def expect_format(d: Definition) -> Definition:
    """Return the definition, or raise ValueError if its values make no format."""
    if len(d.values) > MAX_VALUES:
        raise ValueError(
            f"expected at most {MAX_VALUES} values, since codes have at most 16 bits, but got "
            f"{len(d.values)} or more"
        )
    places: dict[tuple[float, bool], int] = {}
    for code, v in enumerate(d.values):
        if math.isnan(v):
            continue
        key = (v, math.copysign(1, v) < 0)
        if key in places:
            raise ValueError(
                f"expected different values, but got {v!r} for the codes {places[key]} and "
                f"{code}; leave one out, or write NaN for a code that is not used"
            )
        places[key] = code
        if 0 < abs(v) < 2.0**-1022:
            raise ValueError(
                f"expected normal numbers of float64 as values, but got {v!r} for the code {code}; "
                "scale them"
            )
    if len({v for v in d.values if math.isfinite(v)}) < 2:
        raise ValueError(f"expected at least two finite values, but got {list(d.values[:8])}")
    return d
