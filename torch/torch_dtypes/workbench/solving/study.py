"""Run the cells of a study: each a system, a format and a method. Outcomes are kept in files, so
that an interrupted study goes on where it was."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from ... import linalg
from ...formats.arguments import choice, integer
from ...targets.lookup import target
from ..cards.card import card
from ..report.folders import lock_folder, write_json
from ..report.progress import OnRun, Shown
from ..training.generators import forked_generators
from ..training.ranks import first_line
from .results import Outcome, Row, Settings, Solutions
from .systems import System, find_systems

METHODS = ("lu", "gmres", "cg")
MATRICES = tuple(f"randsvd(n=50, cond=1e{k})" for k in range(1, 10))
FORMATS = ("fp16", "bf16", "posit16es2")
MAX_STEPS = 30
# Refinement goes on as long as corrections shrink, to see how small the forward error gets.
_NEVER = 1e-300
_ROUNDOFFS = 4  # the forward error of a solved system, in unit roundoffs of the working format


def solve(
    matrices: Iterable[str] | Mapping[str, torch.Tensor] = MATRICES,
    formats: Iterable[str] = FORMATS,
    methods: Iterable[str] = ("lu", "gmres"),
    *,
    working: str = "float32",
    residual: str = "twice",
    scale: str | None = "squeeze",
    max_steps: int = MAX_STEPS,
    seed: int = 0,
    out: str | os.PathLike | None = None,
    progress: bool | None = None,
    on_run: OnRun | None = None,
) -> Solutions:
    """Refine the solution of each system by ``linalg.refine``, with factors in each format.

    The matrix and the right side are rounded to the working format first, so each system is exact
    there. The right side is a vector of normal numbers. A solution has converged when its forward
    error is at most four unit roundoffs of the working format; refinement ends when corrections do
    not shrink. A cell that raises an error has the error as its reason, and the others go on.

    Args:
        matrices: expressions of ``linalg``'s test matrices, such as ``"hilbert(8)"``; Matrix Market
            files (``.mtx``); or matrices [n, n] by name. By default ``randsvd(n=50, cond=1e1)`` to
            ``1e9``.
        formats: names of formats, in which matrices are factorised.
        methods: ``"lu"``, ``"gmres"`` and ``"cg"``, as in ``linalg.refine``.
        working, residual, scale, max_steps: as in ``linalg.refine``.
        seed: of random matrices, right sides and random rounding, from 0.
        out: a folder for the outcomes of cells. The same call goes on there.
        progress: whether a bar is shown. None: if a user sees it.
        on_run: called before each cell with the stage and the number of cells.

    Raises:
        ValueError, TypeError: a matrix, format, method or setting that is none.
        OSError: a file cannot be read or written.
        ModuleNotFoundError: a file of a matrix without SciPy.

    Example::

        >>> found = torch_dtypes.workbench.solve(
        ...     ["randsvd(n=20, cond=100)"], ["fp16"], ["lu"]
        ... )
        >>> found.rows[0].outcome.converged
        True
    """
    formats, methods = list(formats), list(methods)
    for method in methods:
        choice("methods", method, METHODS)
    for name in (*formats, working, *([] if residual == "twice" else [residual])):
        target(name)
    if scale is not None:
        choice("scale", scale, ("squeeze",))
    integer("max_steps", max_steps, 1, 10_000)
    settings = Settings(working, residual, scale, max_steps, integer("seed", seed, 0, 2**32 - 1))
    systems = find_systems(matrices, working, seed)
    shown = Shown(progress, on_run)
    with _open_cells(out) as folder, shown.show_bar():
        cells = [(s, f, m) for s in systems for f in formats for m in methods]
        rows = []
        for system, name, method in cells:
            shown("cells", len(cells))
            outcome = _find_outcome(system, name, method, settings, folder)
            size = len(system.matrix)
            rows.append(Row(system.name, size, system.condition, name, method, outcome))
    return Solutions(settings, rows)


@contextlib.contextmanager
def _open_cells(out: str | os.PathLike | None) -> Iterator[Path | None]:
    """Lock the folder of the outcomes, which is made if missing."""
    if out is None:
        yield None
        return
    folder = Path(out) / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        yield folder


def _find_outcome(
    system: System, name: str, method: str, settings: Settings, folder: Path | None
) -> Outcome:
    """Run a cell, or read its outcome from the folder."""
    if folder is None:
        return _run(system, name, method, settings)
    digest = hashlib.sha256(system.matrix.numpy().tobytes())
    digest.update(json.dumps([name, method, asdict(settings)]).encode())
    path = folder / f"{digest.hexdigest()[:16]}.json"
    if path.exists():
        return _read(path)
    outcome = _run(system, name, method, settings)
    # JSON has no NaN and no infinity.
    data = {k: str(v) if isinstance(v, float) else v for k, v in asdict(outcome).items()}
    write_json(path, {"cell": f"{system.name}, {name}, {method}", **data})
    return outcome


def _read(path: Path) -> Outcome:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        del data["cell"]
        errors = {k: float(data.pop(k)) for k in ("backward", "forward")}
        return Outcome(**data, **errors)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"expected the outcome of a cell, but could not read {path}: {error!r}; remove the "
            "file to run the cell again"
        ) from error


def _run(system: System, name: str, method: str, settings: Settings) -> Outcome:
    if system.solution is None:
        return Outcome(False, "the matrix is singular in float64, or nearly so")
    try:
        with forked_generators():
            torch.manual_seed(settings.seed)
            found = linalg.refine(
                system.matrix,
                system.right,
                factor=name,
                working=settings.working,
                residual=settings.residual,
                method=method,
                scale=settings.scale,
                tolerance=_NEVER,
                max_steps=settings.max_steps,
                x_true=system.solution,
            )
    except (RuntimeError, ValueError, TypeError) as error:
        return Outcome(False, first_line(error))
    errors = found.forward_errors
    if not errors:
        return Outcome(False, found.reason)
    bound = _ROUNDOFFS * card(settings.working).epsilon / 2
    small = [step for step, error in enumerate(errors) if error <= bound]
    step = small[0] if small else len(errors) - 1
    reason = f"converged: forward error {errors[step]:.1e}" if small else found.reason
    inner = sum(found.inner_steps[: step + 1]) if found.inner_steps else None
    return Outcome(bool(small), reason, step, inner, found.backward_errors[step], errors[step])
