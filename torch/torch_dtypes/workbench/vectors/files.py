"""Golden vectors as files: lines of hexadecimal codes, JSON, or words for Verilog's $readmemh."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

import torch

from ..report.folders import whole_file
from .blocks import BlockJob
from .flags import NAMES
from .lines import KINDS, digits
from .making import Job


def put(
    job: Job | BlockJob,
    file: TextIO,
    kind: str,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the vectors of a job into an open text file; otherwise as ``write``."""
    if kind not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}, but got {kind!r}")
    for text, count in _texts(job, kind):
        file.write(text.encode("ascii", "backslashreplace").decode())
        if progress:
            progress(count)


def write(
    job: Job | BlockJob,
    path: str | os.PathLike,
    kind: str,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write the vectors of a job. A file appears once it is whole, at the target of a link; pipes
    and devices are written directly.

    Args:
        kind: one of ``KINDS``. ``"hex"``: a vector a line, with spaces between the codes, after
            header lines that begin with ``#``. ``"readmemh"``: a vector a line as one word, the
            first column in its highest bits, underscores between columns, after header lines that
            begin with ``//``; each column fills whole digits. ``"json"``: an object with ``header``
            and ``vectors``, a list of lists of integers.
        progress: a function to call after each batch with the number of its vectors.

    Raises:
        OSError: the file cannot be written.
        ValueError: an unknown kind.
    """
    with whole_file(path) as file:
        put(job, file, kind, progress)
    return Path(os.path.realpath(path))


def _texts(job: Job | BlockJob, kind: str) -> Iterable[tuple[str, int]]:
    columns = job.columns()
    if kind == "json":
        yield _json_head(job), 0
        comma = ""
        for batch in job.batches():
            rows = _rows(batch)
            yield comma + ",\n".join(map(json.dumps, rows)), len(batch[0])
            comma = ",\n"
        yield "\n]}\n", 0
        return
    mark, between = ("#", " ") if kind == "hex" else ("//", "_")
    yield _head(job, mark, kind), 0
    line = between.join(f"%0{digits(bits)}x" for _, bits in columns) + "\n"
    for batch in job.batches():
        yield "".join([line % tuple(row) for row in _rows(batch)]), len(batch[0])


def _rows(batch: list[torch.Tensor]) -> list[list[int]]:
    return torch.stack(batch, 1).tolist()


def _flags_text() -> str:
    return " ".join(f"{name}={bit}" for name, bit in NAMES.items())


def _json_head(job: Job | BlockJob) -> str:
    columns = [{"name": name, "bits": bits} for name, bits in job.columns()]
    head = {**job.header(), "columns": columns}
    if any(name == "flags" for name, _ in job.columns()):
        head["flags"] = NAMES
    return f'{{"header": {json.dumps(head)},\n"vectors": [\n'


def _head(job: Job | BlockJob, mark: str, kind: str) -> str:
    lines = [
        "golden vectors of torch-dtypes",
        *(f"{name}: {value}" for name, value in job.header().items()),
    ]
    columns = job.columns()
    lines.append("columns: " + " ".join(f"{name}:{bits}" for name, bits in columns))
    if kind == "readmemh":
        place, places = 4 * sum(digits(bits) for _, bits in columns), []
        for name, bits in columns:
            place -= 4 * digits(bits)
            places.append(f"{name}[{place + bits - 1}:{place}]")
        lines.append("word: " + " ".join(places))
    if any(name == "flags" for name, _ in columns):
        lines.append("flags: " + _flags_text())
    return "".join(f"{mark} {line}\n" for line in lines)
