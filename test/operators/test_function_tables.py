"""The tables in which narrow formats look functions up: bounded in memory, and safe where one is dropped while threads use it."""

import threading

import pytest
import torch
from conftest import codes_of, from_codes

pytestmark = pytest.mark.own_process  # elsewhere the heap has holes of all sizes, left by earlier tests, that tables lie between


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


ALL = from_codes(torch.arange(1 << 16), torch.posit16es2)


def test_ever_new_arguments_do_not_grow_the_heap(one_thread):
    def clamp(first, count):
        for i in range(first, first + count):
            ALL.clamp(max=i / 64)

    clamp(0, 300)
    before = resident()
    clamp(300, 500)
    assert resident() - before < 24 << 20


def test_threads_may_use_a_table_that_is_dropped(one_thread):
    """Each goes through more functions than there are tables kept, in its own order."""
    wide, wrong = ALL.double(), []

    def work(step):
        for i in range(350):
            bound = (i * step) % 350 / 32
            if not torch.equal(codes_of(ALL.clamp(max=bound)), codes_of(wide.clamp(max=torch.tensor(bound).double()).to(ALL.dtype))):
                wrong.append(bound)

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, 17)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
