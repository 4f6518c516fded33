"""Repeated runs of a script, each in a process of its own."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable

import numpy.random  # noqa: F401  its state is made once, so that each run draws the same numbers


def load_once() -> None:
    """Load the part of PyTorch that every optimizer imports when it is made, for all runs."""
    import torch._dynamo  # noqa: F401


def run_in_child(run: Callable[[], object], quiet: bool) -> tuple[int, str]:
    """Run a function in a forked process that ends after it, and return its exit status and the
    text on its standard output.

    The process begins with this one's state, that of unseeded random generators too. Its standard
    input is empty. With ``quiet``, its errors are printed only if it fails.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        sys.stderr.flush()
        state = random.getstate()  # Python seeds a forked process anew
        pid = os.fork()
        if pid == 0:
            random.setstate(state)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output.fileno(), 1)
            if quiet:
                os.dup2(errors.fileno(), 2)
            run()
            raise SystemExit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        errors.seek(0)
        if status:
            sys.stderr.write(errors.read().decode(errors="replace"))
        return (status if status >= 0 else 128 - status), output.read().decode(errors="replace")
