"""``torch-dtypes bench``: what a dtype costs, as ratios to stock PyTorch in the same run.

Cases are timed in turn, round after round (a step in float32, a step in each dtype, and again), so that whatever else the machine does
falls on all of them alike; medians over the rounds are compared.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from . import _C
from .training.loop import Config, build_optimizer, dtype_name, resolve_dtype
from .training.models import build_model

_ELEMENTS = 1_000_000


def _time_in_turn(cases: dict[str, Callable[[], object]], rounds: int, on_round: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Median seconds of each case over the rounds, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for round_ in range(rounds + 1):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            if round_:
                seconds[name].append(time.perf_counter() - start)
        on_round()
    return {name: statistics.median(times) for name, times in seconds.items()}


def _training_step(dtype: torch.dtype, batch_size: int) -> Callable[[], object]:
    torch.manual_seed(0)
    model = build_model("lenet5", 1).to(dtype)
    optimizer = build_optimizer(Config(), model.parameters())
    images, labels = torch.rand(batch_size, 1, 32, 32).to(dtype), torch.randint(10, (batch_size,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def _casts(dtype: torch.dtype) -> dict[str, dict[str, Callable[[], object]]]:
    values = torch.randn(_ELEMENTS)
    stock, ours = values.bfloat16(), values.to(dtype)
    wide = torch.float32 if _C.format_of(dtype).fits_float else torch.float64
    return {
        "encode": {"stock": lambda: values.bfloat16(), "ours": lambda: values.to(dtype)},
        "decode": {"stock": lambda: stock.float(), "ours": lambda: ours.to(wide)},
    }


def measure(dtypes: Iterable[torch.dtype], steps: int, batch_sizes: Iterable[int], on_round: Callable[[], None] = lambda: None) -> list[dict]:
    """One row a case: ``{"work", "dtype", "stock", "seconds", "stock_seconds", "ratio"}``; seconds are medians over ``steps`` rounds."""
    rows = []

    def add(work: str, dtype: torch.dtype, stock: str, ours_seconds: float, stock_seconds: float) -> None:
        ratio = ours_seconds / stock_seconds
        times = {"seconds": ours_seconds, "stock_seconds": stock_seconds, "ratio": ratio}
        rows.append({"work": work, "dtype": dtype_name(dtype), "stock": stock, **times})

    for batch_size in batch_sizes:
        cases = {dtype_name(d): _training_step(d, batch_size) for d in (torch.float32, *dtypes)}
        seconds = _time_in_turn(cases, steps, on_round)
        for dtype in dtypes:
            add(f"LeNet-5 training step, Adam, batch {batch_size}", dtype, "float32", seconds[dtype_name(dtype)], seconds["float32"])
    for dtype in dtypes:
        for work, cases in _casts(dtype).items():
            seconds = _time_in_turn(cases, steps, on_round)
            add(f"{work} {_ELEMENTS:,} elements", dtype, "bfloat16", seconds["ours"], seconds["stock"])
    return rows


def run(
    steps: int = 100,
    batch_sizes: Iterable[int] = (32, 256),
    dtypes: Iterable[str] = ("posit16es2", "q52"),
    threads: int | None = None,
    out: str | None = None,
) -> list[dict]:
    """Measures, prints a table, and writes ``bench.json`` into ``out`` if given.

    Args:
        steps: rounds per case, at least 1.
        batch_sizes: of the training steps.
        dtypes: names of dtypes, compared with float32 (training) and bfloat16 (casts).
        threads: of PyTorch, for the time of the run; default: as they are.
        out: a folder, made if missing.

    Returns the rows of :func:`measure`. Raises ValueError for unknown names, OSError for a folder that cannot be written.
    """
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    resolved = [resolve_dtype(name) for name in dtypes]
    batch_sizes = list(batch_sizes)
    folder = Path(out) if out else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    console, before = Console(), torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    machine = {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "vector_unit": _C.cpu_capability()}
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("measuring", total=(len(batch_sizes) + 2 * len(resolved)) * (steps + 1))
            rows = measure(resolved, steps, batch_sizes, lambda: progress.advance(task))
    finally:
        torch.set_num_threads(before)
    table = Table(title=f"time over stock PyTorch's, median of {steps} rounds ({machine['threads']} threads, {machine['vector_unit']})")
    for column in ("work", "dtype", "against", "ratio"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in rows:
        table.add_row(row["work"], row["dtype"], row["stock"], f"{row['ratio']:.2f}")
    console.print(table)
    if folder:
        (folder / "bench.json").write_text(json.dumps({"machine": machine, "steps": steps, "rows": rows}, indent=2) + "\n")
    return rows
