"""Run a file as ``python script.py ARGS`` does, in this process."""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run a script as ``__main__``, with its own ``sys.argv`` and folder on ``sys.path``.

    Raises:
        SystemExit: the script's own, or status 1 after an error and 130 after Ctrl-C. The traceback
            is printed before, and begins in the script.
        OSError: the file cannot be read.
    """
    whole = os.path.abspath(path)
    with io.open_code(whole) as file:
        source = file.read()
    sys.argv[:] = [path, *arguments]
    sys.path[0] = str(Path(whole).resolve().parent)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = whole, builtins
    main.__loader__ = SourceFileLoader("__main__", whole)
    code = None
    try:
        code = compile(source, whole, "exec", dont_inherit=True)
        exec(code, vars(main))
    except SystemExit:
        raise
    except BaseException as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code is not code:
            frames = frames.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        interrupted = isinstance(error, KeyboardInterrupt)
        raise SystemExit(128 + signal.SIGINT if interrupted else 1) from None
