"""A pytest plugin for files of tests that need a process of their own: `pytestmark = pytest.mark.own_process`, in the file, asks for one.

A process has room for 64 formats, too few for all tests together. Such a file is collected like any other, so that every test in it is
found, selected and reported by its own name; where it is to run, one more pytest, forked from one that is ready to collect, runs it, test
by test as it is told, and sends the reports back. Importing such a file must make no format.
"""

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from in_tree import FULL, IN_TREE

RUN = 32  # consecutive tests that go to a worker together, so that what their module sets up is set up seldom
PIPE = "TORCH_DTYPES_TEST_PIPE"  # the file descriptor that a process of a file is told by
SESSION = "TORCH_DTYPES_TEST_SESSION"  # of what all processes of a session share, pytest-xdist's workers among them, until the first of them ends


class Parent:
    """The process from which those of files are forked, seen from the one that wants tests run: it has imported what they all need."""

    def __init__(self, config, path):
        self.pipe, theirs = Pipe()
        option = config.option
        report = [f"--verbosity={option.verbose}", f"--tb={option.tbstyle}", f"--capture={option.capture}", *["--showlocals"] * option.showlocals]
        here = ["--rootdir", str(config.rootpath), "-c", str(config.inipath), "-p", "no:cacheprovider", "-m", ""]
        command = [sys.executable, "-m", "pytest", str(path), *here, *report]
        env = {**os.environ, PIPE: str(theirs.fileno()), "PYTEST_ADDOPTS": ""}
        self.output = tempfile.TemporaryFile("w+")
        shown = None if option.capture == "no" else self.output
        self.process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=shown, stderr=shown)
        theirs.close()

    def close(self):
        self.pipe.close()
        self.process.wait()
        self.output.close()


class OwnProcess:
    """The process of one file, seen from the one that wants its tests run. It shares its parent's pipe, by which that says how it ended."""

    def __init__(self, parent, config, path):
        self.parent, self.config, self.path, self.tests = parent, config, path, 0
        self.status = None  # while it runs
        self.printed = os.fstat(parent.output.fileno()).st_size
        self.send(str(path))

    def send(self, message):
        try:
            self.parent.pipe.send(message)
        except OSError:
            self.status = self.parent.process.wait()

    def receive(self):
        """What comes from the process, or None and a status, where it ended instead."""
        try:
            message = self.parent.pipe.recv()
        except (EOFError, OSError):
            message = self.parent.process.wait()
        if isinstance(message, int):
            self.status, message = message, None
        return message

    def run(self, item, nextitem):
        """The reports of one test; a failure, where the process ends instead."""
        self.tests += 1
        self.send((item.nodeid, nextitem.nodeid if nextitem else None))
        while self.status is None and (data := self.receive()) is not None:
            yield self.config.hook.pytest_report_from_serializable(config=self.config, data=data)
        if self.status is not None:
            self.parent.output.seek(self.printed)
            said = self.parent.output.read()[-5000:]
            words = f"expected the process of {self.path.name} to run this test, but it ended with status {self.status}:\n{said}"
            yield pytest.TestReport(item.nodeid, item.location, {name: 1 for name in item.keywords}, "failed", words, "call")

    def close(self):
        """Waits for the end, and says whether the parent can make another."""
        if self.status is None:
            self.send(None)
        while self.status is None:
            self.receive()
        return self.status >= 0 and self.parent.process.poll() is None  # one that was killed leaves what it had not read and printed


class Caller:
    """Hands the tests of marked files to their processes, one process at a time."""

    def __init__(self):
        self.parent = self.own = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if not (item.get_closest_marker("own_process") or (IN_TREE and nearly_full())) or item.config.getoption("usepdb"):
            return None
        if self.own and (self.own.path != item.path or self.own.status is not None):
            self.close()
        self.own = self.own or self.make(item)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        following = nextitem if nextitem and nextitem.path == item.path else None
        reports = list(self.own.run(item, following))
        if IN_TREE and self.own.tests > 1 and any(report.failed and FULL in report.longreprtext for report in reports):
            self.close()  # the tests before have used up the numbers of formats, which are not taken back there
            self.own = self.make(item)
            reports = list(self.own.run(item, following))
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # Nothing was set up here for this test, but fixtures of the one before it may stand for a folder that ends now.
        item.session._setupstate.teardown_exact(nextitem)
        if nextitem is None or nextitem.path != item.path:
            self.close()
        return True

    def pytest_sessionfinish(self):
        self.close()
        self.close_parent()

    def make(self, item):
        self.parent = self.parent or Parent(item.config, item.path)
        return OwnProcess(self.parent, item.config, item.path)

    def close(self):
        if self.own and not self.own.close():
            self.close_parent()
        self.own = None

    def close_parent(self):
        if self.parent:
            self.parent.close()
        self.parent = None


class Callee:
    """In the parent: forks a process for each file that it is told, one at a time. In such a process: runs the tests told, in the order told."""

    def __init__(self, config, pipe):
        self.config, self.pipe = config, pipe

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session):
        """Returns in a process that has a file to collect."""
        cuda = "torch" in sys.modules and sys.modules["torch"].version.cuda
        gc.freeze()  # what is forked copies what a search for garbage would touch
        while True:
            try:
                path = self.pipe.recv()
            except EOFError:
                os._exit(0)
            if path is None:  # for a process that has ended
                continue
            sys.stdout.flush()
            sys.stderr.flush()
            # A process that is forked cannot use CUDA if its parent asked for so much as the number of devices.
            child = 0 if cuda else os.fork()
            if child == 0:
                session.config.args[:] = [path]
                return
            self.pipe.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def pytest_runtestloop(self, session):
        items = {item.nodeid: item for item in session.items}
        while True:
            try:
                told = self.pipe.recv()
            except EOFError:
                return True
            if told is None:
                return True
            name, following = told
            session.config.hook.pytest_runtest_protocol(item=items[name], nextitem=items.get(following))
            self.pipe.send(None)

    def pytest_runtest_logreport(self, report):
        self.pipe.send(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def nearly_full() -> bool:
    """Whether this process has little room for formats left, whose numbers are not taken back inside PyTorch's own tree."""
    from torch_dtypes import _C

    return _C.max_formats - _C.format_count() < 16


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Garbage is looked for among what tests leave, not among 40,000 collected tests: each of those searches took more than a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_configure(config):
    if SESSION not in os.environ:
        os.environ[SESSION] = tempfile.mkdtemp(prefix="torch-dtypes-tests-", suffix=f"-{os.getpid()}")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(SESSION)))
    if getattr(config.option, "numprocesses", None):
        # The threads of several processes share the processors: one that waits must not spin, which takes half as long again.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    descriptor = os.environ.pop(PIPE, None)
    if descriptor:
        os.set_inheritable(int(descriptor), False)
    config.pluginmanager.register(Callee(config, Connection(int(descriptor))) if descriptor else Caller())


@cache
def stays_whole(path):
    return re.search(r"^pytestmark = .*\b(own_process|one_worker)\b", Path(path).read_text(), re.MULTILINE) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """`pytest -n` hands out runs of consecutive tests, and whole a file that is marked: own_process, or one_worker, whose fixtures cost much."""
    from xdist.scheduler import LoadScopeScheduling

    if config.option.dist != "load":
        return None

    class Names(list):
        """Of tests, whose places are not searched for."""

        def __init__(self, names):
            super().__init__(names)
            self.places = {name: place for place, name in enumerate(names)}

        def index(self, name):
            return self.places[name]

    class Scheduler(LoadScopeScheduling):
        def __init__(self, config, log):
            super().__init__(config, log)
            self.runs, self.counts = {}, {}

        def add_node_collection(self, node, collection):
            super().add_node_collection(node, collection)
            if node in self.registered_collections:
                self.registered_collections[node] = Names(collection)

        def mark_test_complete(self, node, item_index, duration=0):
            """Forgets it, or what is left to do would be counted among all that a worker was ever given, after each test."""
            work, name = self.assigned_work[node], self.registered_collections[node][item_index]
            run = self._split_scope(name)
            del work[run][name]
            if not work[run]:
                del work[run]
            self._reschedule(node)

        def _split_scope(self, nodeid):
            if nodeid not in self.runs:
                path = nodeid.split("::")[0]
                count = self.counts[path] = self.counts.get(path, -1) + 1
                self.runs[nodeid] = path if stays_whole(config.rootpath / path) else f"{path} {count // RUN}"
            return self.runs[nodeid]

    return Scheduler(config, log)
