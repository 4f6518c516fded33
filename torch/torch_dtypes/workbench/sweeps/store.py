"""The folder of a sweep: a file for each cell that has an outcome, written in one step."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from ..report.folders import whole_file, write_json
from .cells import Cell


class Store:
    """``cells/KEY.json``: outcomes. ``trained/KEY.pt``: trainings in float32 that others begin
    with. ``running/KEY``: what is under way."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def open(self) -> None:
        """Makes the folders.

        Raises:
            OSError: they cannot be written.
        """
        for name in ("cells", "trained", "running"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder / "cells"):
            pass

    def path(self, cell: Cell) -> Path:
        """Where a cell's outcome is, or will be."""
        return self.folder / "cells" / f"{cell.key}.json"

    def trained(self, cell: Cell) -> Path:
        """Where the training in float32 is, or will be, that a cell begins with."""
        return self.folder / "trained" / f"{cell.base.key}.pt"

    def running(self, cell: Cell) -> Path:
        """A folder for what a cell leaves while it runs: made, and kept until it has an outcome."""
        folder = self.folder / "running" / cell.key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def read(self, cell: Cell) -> dict | None:
        """A cell's outcome; None: it has none yet.

        Raises:
            ValueError: its file holds something else.
        """
        path = self.path(cell)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return found if Cell.of(found["cell"]).key == cell.key and found["state"] else None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"expected the outcome of a cell, but could not read {path}: {error!r}; remove "
                "the file to do the cell again"
            ) from error

    def why_untrained(self, cell: Cell) -> str | None:
        """Why a cell has no training in float32 to begin with; None: it has one, or needs none."""
        if not cell.is_after_training or self.trained(cell).exists():
            return None
        found = self.read(cell.base)
        if found is None or found["state"] != "failed":
            return "its training in float32 has left no weights"
        return f"its training in float32 has failed: {found['reason']}"

    def is_ready(self, cell: Cell) -> bool:
        """Whether a training in float32 that others begin with is there, with its weights, or has
        failed for good."""
        found = self.read(cell)
        return found is not None and (found["state"] != "done" or self.trained(cell).exists())

    def write(self, cell: Cell, result: dict, trained: bytes | Path | None = None) -> None:
        """Keeps an outcome, and before it the weights that a training left."""
        if isinstance(trained, bytes):
            with whole_file(self.trained(cell), "wb") as file:
                file.write(trained)
        elif trained is not None:
            os.replace(trained, self.trained(cell))
        write_json(self.path(cell), result)
        shutil.rmtree(self.folder / "running" / cell.key, ignore_errors=True)
