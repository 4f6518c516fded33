"""Ask a ``server`` to run a cell in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from ...formats.tables.making import written_name
from .cells import Cell
from .work import LOG, OUTCOME, Told, outcome

_LINES = 8
_SERVER = __name__.rpartition(".")[0] + ".server"


class Server:
    """A server process, which runs one cell after the other and is started again if it is lost.
    ``number`` counts parallel servers from 0."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._process: subprocess.Popen | None = None

    def run(
        self,
        cell: Cell,
        folder: Path,
        base: Path | None,
        limit: int | None,
        told: Told = lambda message: None,
    ) -> dict:
        """Run a cell in its own process.

        Args:
            folder: an existing folder for its files.
            base: the file of its training in float32. limit: seconds, or None. told: as in
                ``work``.

        Returns:
            The cell's outcome. If the process was killed, it has the reason and the last lines of
            the log.
        """
        (folder / OUTCOME).unlink(missing_ok=True)
        where = {"folder": str(folder), "base": None if base is None else str(base)}
        request = {
            "cell": cell.definition(),
            "format": written_name(cell.format),
            **where,
            "limit": limit,
            "number": self._number,
        }
        status = self._request(json.dumps(request) + "\n", told)
        if (folder / OUTCOME).exists():
            return json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        try:
            lines = (
                (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES:]
            )
        except OSError:
            lines = []
        return outcome(cell, "failed", _reason(status, limit), lines)

    def _request(self, request: str, told: Told) -> int | None:
        if self._process is None or self._process.poll() is not None:
            # With this path, the server finds a user's own networks as this process does.
            path = os.pathsep.join(p or os.getcwd() for p in sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-m", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except OSError:
            return None
        while (line := self._process.stdout.readline()).endswith("\n"):
            message = json.loads(line)
            if "status" in message:
                return message["status"]
            told(message)
        return None

    def close(self) -> None:
        """End the server and the running cell."""
        if self._process is not None:
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None


def _reason(status: int | None, limit: int | None) -> str:
    if status is None:
        return "its process was lost"
    if status == -signal.SIGALRM and limit:
        return f"not done within {limit} s (--time-limit)"
    if status < 0:
        name = signal.Signals(-status).name
        hint = {
            "SIGKILL": ", which ends what takes too much memory",
            "SIGSEGV": ", a crash in compiled code",
            "SIGABRT": ", an abort in compiled code",
        }
        return f"its process was ended by {name}{hint.get(name, '')}"
    return f"its process ended with status {status}"
