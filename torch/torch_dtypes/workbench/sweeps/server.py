"""A process that has torch loaded and forks a child for each cell. So a crash ends only the cell,
and no cell waits for imports.

Requests are lines of JSON on standard input. Answers are lines on standard output: the child's
progress, then its wait status. When the input ends, the client is gone. Then the running cell ends
after its step, and the process too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

# Every optimizer imports this when it is made: load it once here, and not in each cell.
import torch._dynamo  # noqa: F401

from ...formats.tables.making import learn
from .cells import Cell
from .work import LOG, work

_PATIENCE = 5  # seconds for a cell to finish its step when it is stopped
_SECONDS = 0.2  # between two reported steps


def main() -> None:
    """Serve until the input ends."""
    # Ctrl-C is for the client, which then ends the input
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # only answers go to the old standard output
    with os.fdopen(requests, "rb", buffering=0) as lines:
        while line := lines.readline():
            request = json.loads(line)
            if request["cell"]["dataset"] == "digits":
                with contextlib.suppress(ImportError):  # the cell reports it
                    import sklearn.datasets  # noqa: F401  for the next cells, too
            _answer(answers, {"status": _run_in_child(request, lines, answers)})


def _answer(answers: int, message: dict) -> None:
    with contextlib.suppress(BrokenPipeError):  # the client is gone; the next read shows it
        os.write(answers, json.dumps(message).encode() + b"\n")


def _run_in_child(request: dict, lines, answers: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _run_cell(request, answers)
        finally:
            os._exit(code)  # skips handlers and buffers of the parent
    watched = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([watched, lines], [], [])
        if watched not in ready:  # before an answer, only the end of the input is readable
            os.kill(pid, signal.SIGTERM)
            if not select.select([watched], [], [], _PATIENCE)[0]:
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_cell(request: dict, answers: int) -> int:
    folder = Path(request["folder"])
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if request["limit"]:
        signal.alarm(request["limit"])  # also ends code in which Python does not run
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    last = time.monotonic()

    def told(message: dict) -> None:
        nonlocal last
        if "epoch" in message or time.monotonic() > last + _SECONDS:
            last = time.monotonic()
            _answer(answers, message)

    if request["format"] != request["cell"]["format"]:  # a table, with its values
        learn(request["format"])
    base = None if request["base"] is None else Path(request["base"])
    done = work(
        Cell.of(request["cell"]),
        folder,
        base,
        request["number"],
        told=told,
        should_stop=lambda: bool(stopped),
    )
    sys.stdout.flush()
    sys.stderr.flush()
    return 0 if done else 128 + signal.SIGTERM  # as a shell reports it


if __name__ == "__main__":
    main()
    # All is written. Python would take seconds to unload torch, while the client waits.
    os._exit(0)
