"""Python programs in processes of their own, without the seconds in which each of them would import PyTorch: they are forked from one that has done
that and nothing else. Also that one, as a script.

A program begins where a new process is after `import torch`: no format is made, no thread runs, and `sys.argv`, the environment and the path are
its own. One that is about the import itself, or about what is read from the environment then, needs `subprocess`. Under a CUDA build of PyTorch,
processes are new in every sense: a forked one cannot use CUDA if its parent has asked for so much as the number of devices.
"""

import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
SESSION = "TORCH_DTYPES_TEST_SESSION"  # own_process.py's; its name ends with the process that removes it
SECONDS = 120  # that a program may take, or what it is forked from, to be ready


# ---- seen from a test ----


class Python:
    """A process that runs `python *words`; the words are as in the shell: -W action, then -c code, -m module or a file, then arguments."""

    def __init__(self, *words, input="", env=None, cwd=None, preload=""):
        import torch

        self.words = [str(word) for word in words]
        self.files = [tempfile.TemporaryFile("w+") for _ in range(3)]
        self.files[0].write(input)
        self.files[0].seek(0)
        self.forked = self.process = self.returncode = None
        where = {"env": dict(os.environ if env is None else env), "cwd": os.fspath(cwd or os.getcwd())}
        if torch.version.cuda:
            stdin, stdout, stderr = self.files
            self.process = subprocess.Popen([sys.executable, *self.words], stdin=stdin, stdout=stdout, stderr=stderr, **where)
        else:
            self.forked = _connected(preload)
            socket.send_fds(self.forked, [b"f"], [file.fileno() for file in self.files])
            self.forked.sendall(json.dumps({"words": self.words, **where}).encode() + b"\n")

    def wait(self, timeout=SECONDS):
        """The exit status, as subprocess has it."""
        if self.returncode is None:
            try:
                self.returncode = self.process.wait(timeout) if self.process else self._told(timeout)
            except (subprocess.TimeoutExpired, TimeoutError):
                raise subprocess.TimeoutExpired(self.words, timeout, *self.output()) from None
        return self.returncode

    def _told(self, timeout):
        self.forked.settimeout(timeout)
        answer = self.forked.makefile().readline()
        if not answer:
            raise RuntimeError("expected the exit status of a process, but what it was forked from is gone")
        return int(answer)

    def output(self):
        """What it has written so far to standard output and to standard error."""
        return [Path(f"/proc/self/fd/{file.fileno()}").read_text() for file in self.files[1:]]

    def close(self):
        """Ends it where it runs."""
        if self.process:
            self.process.kill()
            self.process.wait()
        else:
            self.forked.close()  # the end of which ends the process
        for file in self.files:
            file.close()


def run(*words, timeout=SECONDS, check=False, **where):
    """Like subprocess.run([sys.executable, *words], capture_output=True, text=True, ...)."""
    with contextlib.closing(Python(*words, **where)) as process:
        done = subprocess.CompletedProcess(process.words, process.wait(timeout), *process.output())
    if check and done.returncode:
        raise AssertionError(f"expected {words} to end well, but got status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def is_running(pid):
    """Whether a process, which need not be this one's child, goes on."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _connected(preload):
    """To the process that others are forked from, which is there once a session; preload: a module beside torch that it has imported."""
    folder = Path(os.environ[SESSION])
    path = folder / f"python {preload}"
    with contextlib.suppress(FileExistsError), open(f"{path} log", "x") as log:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        files = [(os.POSIX_SPAWN_DUP2, log.fileno(), descriptor) for descriptor in (1, 2)]
        os.posix_spawn(sys.executable, [sys.executable, __file__, path, preload], env, file_actions=files, setsid=True)
    until = time.monotonic() + SECONDS
    while not path.exists():
        if time.monotonic() > until:
            raise RuntimeError(f"expected a process to fork from within {SECONDS} s, but got:\n{Path(f'{path} log').read_text()}")
        time.sleep(0.02)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.fspath(path))
    return connection


def one_thread_environment(**more):
    """Of a process with one thread that finds what the tests share; and what more it has."""
    path = os.pathsep.join(filter(None, (str(TEST), str(TEST / "support"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


# ---- the process that others are forked from ----


class _Server:
    def __init__(self, path):
        self.path = Path(path)
        self.owner = int(self.path.parent.name.rpartition("-")[2])
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{path} new")
        self.listener.listen(64)
        os.rename(f"{path} new", path)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.children = {}  # pid and its descriptor, by the connection that asked for it

    def serve(self):
        """Returns in a process that has a program to run, with the request for it; ends with the session's owner."""
        while self.path.exists() and Path(f"/proc/{self.owner}").exists():
            for key, _ in self.selector.select(1):
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    if request := self.forked(connection):
                        return request
                elif key.data:  # a child has ended
                    self.ended(key.data)
                else:  # whoever asked is gone
                    os.kill(self.children[key.fileobj][0], signal.SIGKILL)
                    self.selector.unregister(key.fileobj)
        os._exit(0)

    def forked(self, connection):
        try:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
            request = json.loads(connection.makefile().readline())
        except ValueError:  # it went before it had asked
            return None
        pid = os.fork()
        if pid == 0:
            self.selector.close()
            self.listener.close()
            for other, (_, watched) in self.children.items():
                other.close()
                os.close(watched)
            connection.close()
            for target, source in enumerate(descriptors):
                os.dup2(source, target)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid == 0:
            return request
        watched = os.pidfd_open(pid)
        self.children[connection] = pid, watched
        self.selector.register(connection, selectors.EVENT_READ)
        self.selector.register(watched, selectors.EVENT_READ, connection)
        return None

    def ended(self, connection):
        pid, watched = self.children.pop(connection)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.selector.unregister(watched)
        os.close(watched)
        with contextlib.suppress(KeyError):
            self.selector.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(f"{status}\n".encode())
        connection.close()


def _begun(words, env, cwd, torch):
    """Makes this the process of a program, and returns what runs it."""
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
    first = os.path.dirname(os.path.abspath(program)) if option is None else "" if option == "-c" else cwd
    sys.path[:1] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if option == "-m":
        return lambda: runpy.run_module(program, run_name="__main__", alter_sys=True)
    if option is None:
        main.__file__ = program
    code = compile(program if option else Path(program).read_text(), "<string>" if option else program, "exec")
    return lambda: exec(code, vars(main))


if __name__ == "__main__":
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    if sys.argv[2]:
        importlib.import_module(sys.argv[2])
    request = _Server(sys.argv[1]).serve()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _begun(request["words"], request["env"], request["cwd"], torch)()
