"""What makes a table what it is, as data: for c10/formats/tables/ValueTable.h, for its name by
content, and as the text that travels with a file."""

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
    """What becomes of numbers beyond the outermost value of one side.

    ``code`` None: they become that value. Else they become this code from ``limit`` on (None:
    halfway to ``next``), as if ``next`` were the next value; ``infinity`` is the code of an
    infinity, the outermost value's where None.
    """

    code: int | None = None
    infinity: int | None = None
    next: float = 0.0
    limit: float | None = None


@dataclasses.dataclass(frozen=True)
class Definition:
    """``values`` by code, NaN where a code is no number. ``boundaries`` between neighbours in
    ascending order; None: midpoints.

    Of logarithmic numbers, ``logarithm`` ("binary" or "natural") says the base, and logarithms of
    values and boundaries are multiples of 2^-log_bits. ``rests`` are what is to be added to the
    boundaries, which float64 has to 52 bits.
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

        def end(given: End, outermost: int) -> tuple:
            infinity = outermost if given.infinity is None else given.infinity
            limit = math.nan if given.limit is None else given.limit
            return (
                given.code is None,
                outermost if given.code is None else given.code,
                infinity,
                given.next,
                limit,
            )

        with _disable_current_modes():  # a name may be read within one of fake tensors
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
                end(self.high, max(finite)[1]),
                end(self.low, min(finite)[1]),
                self.minpos,
                self.negative_is_nan,
                self.logarithm,
                self.log_bits,
            )

    def content(self) -> bytes:
        """All of a user's table, in one way only: a line of JSON, then the values and boundaries as
        little-endian float64."""
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
    """The definition that ``Definition.text`` wrote. Raises ValueError where it is none."""
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
            f"expected the text of a table of values, but got one that cannot be read: {error}"
        ) from None


def expect_format(d: Definition) -> Definition:
    """The same definition; an error where its values make no format."""
    if len(d.values) > MAX_VALUES:
        raise ValueError(
            f"expected at most {MAX_VALUES} values, but got {len(d.values)} or more: codes have "
            "16 bits at most"
        )
    places: dict[tuple[float, bool], int] = {}
    for code, v in enumerate(d.values):
        if math.isnan(v):
            continue
        key = (v, math.copysign(1, v) < 0)
        if key in places:
            raise ValueError(
                f"expected different values, but got {v!r} for the codes {places[key]} and "
                f"{code}: leave one out, or write NaN for a code that is not used"
            )
        places[key] = code
        if 0 < abs(v) < 2.0**-1022:
            raise ValueError(
                f"expected values that float64 has as normal numbers, but got {v!r} for the code "
                f"{code}: scale them"
            )
    if len({v for v in d.values if math.isfinite(v)}) < 2:
        raise ValueError(f"expected two finite values at least, but got {list(d.values[:8])}")
    return d
