"""The folder of a sweep: a file for each cell with an outcome, written in one step."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from ..report.folders import whole_file, write_json
from .cells import Cell


class Store:
    """The files of a sweep. ``cells/KEY.json`` has outcomes, ``trained/KEY.pt`` the trainings in
    float32 from which others start, ``running/KEY`` the files of running cells."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def open(self) -> None:
        """Make the folders.

        Raises:
            OSError: the folders cannot be written.
        """
        for name in ("cells", "trained", "running"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder / "cells"):
            pass

    def outcome_path(self, cell: Cell) -> Path:
        """Return the path of a cell's outcome, which may not exist yet."""
        return self.folder / "cells" / f"{cell.key}.json"

    def trained_path(self, cell: Cell) -> Path:
        """Return the path of the training in float32 from which a cell starts. It may not exist
        yet."""
        return self.folder / "trained" / f"{cell.base.key}.pt"

    def make_running_folder(self, cell: Cell) -> Path:
        """Make a folder for the files of a running cell. It stays until there is an outcome."""
        folder = self.folder / "running" / cell.key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def read(self, cell: Cell) -> dict | None:
        """Return a cell's outcome; None if it has none yet.

        Raises:
            ValueError: the file holds no outcome of the cell.
        """
        path = self.outcome_path(cell)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return data if Cell.of(data["cell"]).key == cell.key and data["state"] else None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"expected the outcome of a cell, but could not read {path}: {error!r}; remove "
                "the file to do the cell again"
            ) from error

    def why_untrained(self, cell: Cell) -> str | None:
        """Return why a cell has no training in float32 to start from; None if it has one, or needs
        none."""
        if not cell.is_after_training or self.trained_path(cell).exists():
            return None
        base = self.read(cell.base)
        if base is None or base["state"] != "failed":
            return "its training in float32 has left no weights"
        return f"its training in float32 has failed: {base['reason']}"

    def is_ready(self, cell: Cell) -> bool:
        """Whether a training in float32 is done, with its weights in place, or has failed for
        good."""
        data = self.read(cell)
        return data is not None and (data["state"] != "done" or self.trained_path(cell).exists())

    def write(self, cell: Cell, result: dict, trained: bytes | Path | None = None) -> None:
        """Store the weights of a training, if any, and then an outcome."""
        if isinstance(trained, bytes):
            with whole_file(self.trained_path(cell), "wb") as file:
                file.write(trained)
        elif trained is not None:
            os.replace(trained, self.trained_path(cell))
        write_json(self.outcome_path(cell), result)
        shutil.rmtree(self.folder / "running" / cell.key, ignore_errors=True)
