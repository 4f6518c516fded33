"""The suite ``scaling``: the rate of casts, addition and products against size, with the machine's
limits.

The limits are measured on stock PyTorch: ``copy_`` of as many bytes as the work reads and writes,
and the product of float32 matrices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from .measuring import Group, Row, Sizes, named_dtypes

SUMMARY = (
    "Rates against size. Grey is what the machine gives at most: a stock copy_ of as many bytes "
    "as the work reads and writes, the stock product of float32 matrices."
)
BASELINE = "bfloat16"
_DTYPES = ("posit16es2", "q43")
_BYTES = {
    "encode": lambda width: 4 + width,
    "decode": lambda width: 4 + width,
    "add": lambda width: 3 * width,
}
# Bytes per element of all tensors of one size, results and the operands of the copies included.
_BYTES_PER_ELEMENT = 32


def copy_name(bytes_per_element: int) -> str:
    return f"copy_, {bytes_per_element} bytes an element"


def _available() -> int | None:
    """Return the bytes of memory available without swapping; None if the system does not tell."""
    try:
        match = re.search(
            r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE
        )
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _fits(size: int) -> bool:
    available = _available()
    return available is None or size * _BYTES_PER_ELEMENT < available / 2


def _elementwise(operation: str, size: int, named: dict[str, torch.dtype]) -> Group:
    everything = {BASELINE: torch.bfloat16, **named}
    code = {"encode": "x.to(torch.{})", "decode": "x.to(torch.float32)", "add": "x + y"}[operation]
    widths = sorted({_BYTES[operation](d.itemsize) for d in everything.values()})
    codes = {name: code.format(name) for name in everything} | {
        copy_name(b): "target.copy_(source)" for b in widths
    }

    def spaces():
        x, y = torch.randn(size), torch.randn(size if operation == "add" else 0)
        variables = {
            name: {"x": x if operation == "encode" else x.to(d), "y": y.to(d)}
            for name, d in everything.items()
        }
        for width in widths:  # half of the bytes are read, half written
            source = torch.randint(256, (size * width // 2,), dtype=torch.uint8)
            variables[copy_name(width)] = {"source": source, "target": torch.empty_like(source)}
        return variables

    rows = [
        Row(f"{operation}, {size:,} elements", name, BASELINE, operations=size) for name in codes
    ]
    few = size >= 10**7
    return Group(
        codes, spaces, rows, rounds=5 if few else 15, quick_rounds=2, calls=max(1, 100_000 // size)
    )


def _products(n: int, named: dict[str, torch.dtype]) -> Group:
    everything = {"float32": torch.float32, BASELINE: torch.bfloat16, **named}

    def spaces():
        a, b = torch.randn(n, n), torch.randn(n, n)
        return {name: {"a": a.to(d), "b": b.to(d)} for name, d in everything.items()}

    rows = [Row(f"matmul, n = {n}", name, "float32", operations=n**3) for name in everything]
    return Group(
        dict.fromkeys(everything, "a @ b"),
        spaces,
        rows,
        rounds=5 if n > 512 else 15,
        quick_rounds=2,
        calls=max(1, 1_000_000 // n**3),
    )


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, _DTYPES)
    elementwise = [
        _elementwise(operation, size, named)
        for operation in _BYTES
        for size in sizes.scaling
        if _fits(size)
    ]
    return elementwise + [_products(n, named) for n in sizes.scaling_matmul]


def notes(sizes: Sizes) -> list[str]:
    return [
        f"{size:,} elements: left out, memory does not suffice"
        for size in sizes.scaling
        if not _fits(size)
    ]
