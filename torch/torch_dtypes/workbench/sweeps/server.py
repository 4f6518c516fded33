"""A process that has torch loaded and forks another for each cell: a cell that crashes takes
nothing with it, and none waits for imports.

Requests come as lines of JSON on standard input. Lines go back on standard output: how far the
child is, then its wait status. When the input ends, so does the process, and with it the cell that
runs, after its step: whoever asked is gone.
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

import torch._dynamo  # noqa: F401  which every optimizer imports when it is made: here once, and not in each cell

from ...formats.tables.making import learn
from .cells import Cell
from .work import LOG, work

_PATIENCE = 5  # seconds that a cell has for its step when it is stopped
_SECONDS = 0.2  # between two steps that are told of


def main() -> None:
    """Serves until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks: it ends the input
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # nothing but answers goes there
    with os.fdopen(requests, "rb", buffering=0) as lines:
        while line := lines.readline():
            request = json.loads(line)
            if request["cell"]["dataset"] == "digits":
                with contextlib.suppress(ImportError):  # the cell says so
                    import sklearn.datasets  # noqa: F401  for the next cells, too
            _answer(answers, {"status": _forked(request, lines, answers)})


def _answer(answers: int, message: dict) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever asked is gone, as the next line says
        os.write(answers, json.dumps(message).encode() + b"\n")


def _forked(request: dict, lines, answers: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _child(request, answers)
        finally:
            os._exit(code)  # no handlers, no buffers of the parent
    watched = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([watched, lines], [], [])
        if watched not in ready:  # only the end of the input can be read before an answer
            os.kill(pid, signal.SIGTERM)
            if not select.select([watched], [], [], _PATIENCE)[0]:
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _child(request: dict, answers: int) -> int:
    folder = Path(request["folder"])
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if request["limit"]:
        signal.alarm(request["limit"])  # also where Python does not get to run
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    last = time.monotonic()

    def told(message: dict) -> None:
        nonlocal last
        if "epoch" in message or time.monotonic() > last + _SECONDS:
            last = time.monotonic()
            _answer(answers, message)

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
    return 0 if done else 128 + signal.SIGTERM  # as a shell has it


if __name__ == "__main__":
    main()
    # Nothing is left to write, and whoever asked waits: Python takes seconds to take all of torch
    # apart.
    os._exit(0)
