"""Sets of golden vectors: their definition, and their codes in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

import torch_dtypes

from ... import _C
from ...formats import naming
from ...formats.arguments import set_rounding
from ...formats.codes import codes as codes_of
from ...formats.codes import from_codes
from ...formats.dtype_numbers import define
from ...policies.accumulation import accumulation_block, modes_of
from ...targets.lookup import FormatTarget, target
from ..cards.card import card, describe_elements
from . import exact
from .directed import Directed
from .flags import BITS, INVALID
from .operations import ARITY, evaluate, flags_of

OPERATIONS = (*ARITY, "dot")
_MOST = 2**24  # vectors in a set of all: a file of some hundred megabytes
_BATCH = 2**14


@dataclass(frozen=True)
class Job:
    """The definition of a set of vectors.

    Args:
        format: the format of the operands and, but for ``cast``, of the results: any name that
            ``show`` takes.
        operation: one of ``OPERATIONS``.
        mode: a deterministic rounding mode; None: the format's own (for a cast, the target's).
        to: the format of the results, for ``cast`` only.
        terms: the number of products, for ``dot`` only.
        accumulate: a policy of :func:`torch_dtypes.accumulate`, for ``dot`` only.
        count: the number of vectors; None: all combinations of operands.
        seed: the seed of random vectors.

    Raises:
        ValueError: an unknown name, a meaningless combination, or a format whose exact results
            float64 cannot carry.
        TypeError: a value that is no format.
    """

    format: str
    operation: str
    mode: str | None = None
    to: str | None = None
    terms: int | None = None
    accumulate: str = "machine"
    count: int | None = 10_000
    seed: int = 0

    def __post_init__(self):
        if self.operation not in OPERATIONS:
            hint = "; quantize is for blocks, such as 'nvfp4'" * (self.operation == "quantize")
            raise ValueError(
                f"expected an operation, one of {', '.join(OPERATIONS)}, but got "
                f"{self.operation!r}{hint}"
            )
        if (self.operation == "cast") != (self.to is not None):
            raise ValueError(
                "expected the format of the results (--to) with cast and only there, but got "
                f"{self.to or 'none'} with {self.operation}"
            )
        terms = "none" if self.terms is None else self.terms
        if (self.operation == "dot") != (self.terms is not None):
            raise ValueError(
                f"expected the number of terms (--terms) with dot and only there, but got {terms} "
                f"with {self.operation}"
            )
        if self.operation != "dot" and self.accumulate != "machine":
            raise ValueError(
                f"expected an accumulation policy with dot only, but got {self.accumulate!r} with "
                f"{self.operation}"
            )
        if self.terms is not None and not 1 <= self.terms <= 65_536:
            raise ValueError(f"expected 1 to 65536 terms, but got {self.terms}")
        if self.operation == "dot":
            self._check_policy()
        for fmt in {self.operand, self.result}:
            check_format(fmt)
        total = 2 ** (self.operand.bits * self.operands)
        if self.count is None and total > _MOST:
            raise ValueError(
                f"expected at most {_MOST:,} vectors, but all of {self.operation} in "
                f"{self.format} are 2^{self.operand.bits * self.operands}; give a count"
            )
        if self.count is not None and self.count < 1:
            raise ValueError(f"expected a count of at least 1, but got {self.count}")

    def _check_policy(self) -> None:
        with accumulation_block(self.accumulate):
            drawing = sorted(modes_of(self._dtype()).intersection(naming.DRAWING_MODES))
            if drawing:
                raise ValueError(
                    "expected an accumulation policy of deterministic rounding modes, but "
                    f"{self.accumulate} has {drawing[0]}: its results depend "
                    "on random words; name another mode"
                )
            one = torch.zeros(1, 1, 1, dtype=self._dtype())
            try:
                torch.bmm(one, one)
            except RuntimeError as error:  # the format cannot follow the policy
                raise ValueError(str(error)) from error

    @property
    def operand(self) -> _C.Format:
        return find_format(self.format)

    @property
    def result(self) -> _C.Format:
        fmt = _C.Format(self.operand if self.to is None else find_format(self.to))
        if self.mode is not None:
            set_rounding(fmt, self.mode)
        if fmt.rounding.name in naming.DRAWING_MODES:
            raise ValueError(
                f"expected a deterministic rounding mode, but got {naming.mode_of_format(fmt)}: "
                "its results depend on random words; name another mode"
            )
        return fmt

    @property
    def operands(self) -> int:
        return 2 * self.terms if self.terms is not None else ARITY[self.operation]

    @property
    def total(self) -> int:
        return 2 ** (self.operand.bits * self.operands) if self.count is None else self.count

    def columns(self) -> list[tuple[str, int]]:
        """Return the names of a vector's numbers and their bits, from left to right."""
        names = list("abc"[: self.operands])
        if self.terms is not None:
            names = [f"{name}{i}" for name in "ab" for i in range(self.terms)]
        return [
            *((name, self.operand.bits) for name in names),
            ("result", self.result.bits),
            ("flags", BITS),
        ]

    def header(self) -> dict[str, object]:
        """Return the header of a file."""
        data: dict[str, object] = {
            "format": both_names(self.format, self.operand),
            "operation": self.operation,
        }
        if self.to is not None:
            data["to"] = both_names(self.to, find_format(self.to))
        if self.terms is not None:
            data |= {"terms": self.terms, "accumulate": self.accumulate}
        inputs = "all" if self.count is None else f"directed random, seed {self.seed}"
        return data | {
            "rounding": self.result.rounding.name,
            "inputs": inputs,
            "vectors": self.total,
            "version": f"torch_dtypes {torch_dtypes.__version__}",
        }

    def batches(self) -> Iterator[list[torch.Tensor]]:
        """Yield the vectors, some thousands at a time, as an int64 tensor for each column. A
        smaller count gives the first vectors of a larger one."""
        directed = Directed(self.operation, self.operand, self.result, self.seed)
        size = _BATCH if self.terms is None else max(64, _BATCH // self.terms)
        for first in range(0, self.total, size):
            most = min(size, self.total - first)
            if self.count is None:
                columns = _all_codes(first, most, self.operand.bits, self.operands)
            else:
                drawn = (
                    directed.draw(size)
                    if self.terms is None
                    else directed.draw_dots(size, self.terms)
                )
                columns = [c[:most] for c in drawn]
            yield [*columns, *self._results(columns)]

    def _results(self, columns: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        values = [_C.decode_exact(self.operand, c) for c in columns]
        if self.terms is None:
            return evaluate(self.operation, values, self.operand, self.result)
        return self._dots(columns, torch.stack(values, 1))

    def _dtype(self) -> torch.dtype:
        """Return the dtype, for dot, that rounds as the results do. (A mode for all dtypes would
        change the accumulator too.)"""
        return define(self.result)

    def _dots(
        self, columns: list[torch.Tensor], values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute dot products by the package's own operators. The flags compare them with the
        exact sum of exact products."""
        dtype = self._dtype()
        stored = torch.stack(columns, 1).to(
            {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        )
        a, b = from_codes(stored, dtype).chunk(2, dim=1)
        with accumulation_block(self.accumulate):
            dots = torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).flatten()
        codes = codes_of(dots).to(torch.int64) & (2**self.operand.bits - 1)
        delivered = _C.decode_exact(self.result, codes)
        canonical = _C.encode_exact(self.result, torch.full_like(delivered, torch.nan))
        codes = torch.where(delivered.isnan(), canonical, codes)

        finite = values.isfinite().all(1)
        x, y = values.chunk(2, dim=1)
        exact_sums = torch.zeros_like(delivered)
        exact_sums[finite] = exact.odd_dots(x[finite], y[finite])
        flags = flags_of(exact_sums, delivered, finite, self.result)
        # A step overflowed though the sum would not have.
        lost = finite & ~delivered.isfinite() & ~exact_sums.isinf()
        flags = torch.where(lost, flags | 5, flags)
        products = x * y
        undefined = products.isnan().any(1) | (
            (products == torch.inf).any(1) & (products == -torch.inf).any(1)
        )
        return codes, flags | (~finite & ~values.isnan().any(1) & undefined) * INVALID


def find_format(name: str) -> _C.Format:
    parsed = target(name)
    if not isinstance(parsed, FormatTarget):
        raise ValueError(
            f"expected a format without scales, but got {parsed.name}; name that of its elements, "
            f"{describe_elements(parsed)}"
        )
    return parsed.format


def both_names(spelling: str, fmt: _C.Format) -> str:
    name = naming.name_of_format(fmt)
    return name if name == spelling else f"{spelling} ({name})"


def check_format(fmt: _C.Format) -> None:
    limits = card(fmt)
    if fmt.significand_bits > 51 or (limits.smallest is not None and limits.smallest < 2.0**-1071):
        raise ValueError(
            "expected a format of at most 51 significant bits and numbers of at least 2^-1071, "
            f"whose exact results float64 carries, but got {limits.canonical} of "
            f"{fmt.significand_bits} bits, with {limits.smallest:.3g}"
        )


def _all_codes(first: int, count: int, bits: int, operands: int) -> list[torch.Tensor]:
    index = torch.arange(first, first + count)
    return [(index >> bits * (operands - 1 - i)) & (2**bits - 1) for i in range(operands)]
