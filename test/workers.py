"""A pytest plugin: the memory of a test process, the folder of a session, and how pytest-xdist
distributes the tests."""

import gc
import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

RUN = 32  # consecutive tests go to one worker, so that their module is seldom set up again
SESSION = "TORCH_DTYPES_TEST_SESSION"  # names the folder that all processes of a session share


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Keep the garbage collector from the 40,000 collected tests: each search of them took a
    second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_configure(config):
    if SESSION not in os.environ:
        os.environ[SESSION] = tempfile.mkdtemp("", "torch-dtypes-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(SESSION)))
    if getattr(config.option, "numprocesses", None):
        # The threads of several processes share the processors. A thread that spins while it waits
        # makes the tests take half as long again.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@cache
def stays_whole(path):
    """Tell whether one worker runs the whole file, because its fixtures are costly."""
    return re.search(r"^pytestmark = .*\bone_worker\b", Path(path).read_text(), re.M) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out runs of consecutive tests, and whole files where `one_worker` marks them."""
    from xdist.scheduler import LoadScopeScheduling

    if config.option.dist != "load":
        return None

    class Names(list):
        """A list of test names with a fast index()."""

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
            """Forget the test. Otherwise xdist counts all tests of the worker after each one."""
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
                whole = stays_whole(config.rootpath / path)
                self.runs[nodeid] = path if whole else f"{path} {count // RUN}"
            return self.runs[nodeid]

    return Scheduler(config, log)
