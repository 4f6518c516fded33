"""Separate Python processes, forked from the standard library's fork server, which has already
imported PyTorch.

A program begins as a new process is after `import torch`: there is no format and no thread, and it
has its own `sys.argv`, environment and path. Programs about the import itself, or about environment
variables read then, need `subprocess`. A CUDA build of PyTorch never forks here: a forked process
cannot use CUDA once its parent has counted the devices."""

import atexit
import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import types
import warnings
from functools import cache
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
SECONDS = 120  # limit for a program


@cache
def _context():
    import torch

    context = multiprocessing.get_context("spawn" if torch.version.cuda else "forkserver")
    context.set_forkserver_preload(["torch"])
    return context


class Python:
    """A process that runs `python *words`, with the words of a shell: -W action, then -c code, -m
    module or a file, then arguments."""

    def __init__(self, *words, input="", env=None, cwd=None):
        self.words = [str(word) for word in words]
        self.folder = tempfile.TemporaryDirectory()
        self.files = [Path(self.folder.name, name) for name in ("input", "output", "errors")]
        for file, text in zip(self.files, (input, "", ""), strict=True):
            file.write_text(text)
        where = dict(os.environ if env is None else env), os.fspath(cwd or os.getcwd())
        self.process = _context().Process(target=_run, args=(self.words, self.files, *where))
        self.process.start()

    def wait(self, timeout=SECONDS):
        """Return the exit status, as subprocess does."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.words, timeout, *self.output())
        return self.process.exitcode

    def output(self):
        """Return the text written so far to standard output and to standard error."""
        return [file.read_text() for file in self.files[1:]]

    def close(self):
        """End the process if it runs."""
        self.process.kill()
        self.process.join()
        self.folder.cleanup()


def run(*words, timeout=SECONDS, check=False, **where):
    """Run a program like subprocess.run([sys.executable, *words], capture_output=True, text=True,
    ...)."""
    with contextlib.closing(Python(*words, **where)) as process:
        done = subprocess.CompletedProcess(process.words, process.wait(timeout), *process.output())
    if check and done.returncode:
        raise AssertionError(
            f"expected {words} to end well, but got status {done.returncode}:\n"
            f"{done.stdout}{done.stderr}"
        )
    return done


def is_running(pid):
    """Tell whether a process is running; it need not be a child of this one."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def one_thread_environment(**more):
    """Return an environment with one thread and the tests' shared modules, extended by `more`."""
    path = os.pathsep.join(
        filter(None, (str(TEST), str(TEST / "support"), os.environ.get("PYTHONPATH")))
    )
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def _run(words, files, env, cwd):
    """Turn this process into that of a program, and run it."""
    import torch

    for target, file in enumerate(files):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND if target else os.O_RDONLY), target)
    sys.stdin = open(0, closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    torch.seed()  # any other number
    if "OMP_NUM_THREADS" in env:
        torch.set_num_threads(int(env["OMP_NUM_THREADS"]))
    while words[0] == "-W":
        warnings.simplefilter(words[1])
        words = words[2:]
    option = words[0] if words[0] in ("-c", "-m") else None
    program, *arguments = words[option is not None :]
    sys.argv = [option or program, *arguments]
    first = "" if option == "-c" else cwd
    if option is None:
        first = os.path.dirname(os.path.abspath(program))
    found = [path for path in sys.path if path and not Path(path).is_relative_to(TEST)]
    sys.path[:] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *found]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    try:
        if option == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            if option is None:
                main.__file__ = program
            exec(
                compile(
                    program if option else Path(program).read_text(),
                    "<string>" if option else program,
                    "exec",
                ),
                vars(main),
            )
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out
