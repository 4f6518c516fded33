"""Lookup tables of functions of narrow formats: bounded in memory, and safe where one is dropped
while threads use it."""

import ctypes
import threading

import pytest
import torch
from conftest import codes_of, from_codes


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def count_allocated() -> int:
    """Return the bytes that this thread's heap has given out. (The process's resident memory
    changes by itself, as the system takes pages away.) On a GPU, tables have copies there, so count
    the device's memory."""
    if ALL.is_cuda:
        return torch.cuda.memory_allocated()
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("needs glibc's mallinfo2")
    libc.mallinfo2.restype = Mallinfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


ALL = from_codes(torch.arange(1 << 16), torch.posit16es2)


def test_ever_new_arguments_do_not_grow_the_heap(one_thread):
    def clamp(first, count):
        for i in range(first, first + count):
            ALL.clamp(max=i / 64)

    clamp(0, 300)
    before = count_allocated()
    kept = ALL.clone()
    assert count_allocated() - before >= kept.nbytes, "it is seen"
    clamp(300, 500)
    assert count_allocated() - before < 4 << 20, "500 tables would have 64 MB"


def test_threads_may_use_a_table_that_is_dropped(one_thread):
    """Each thread uses more functions than there are tables kept, in a different order."""
    wide, wrong = ALL.double(), []

    def work(step):
        for i in range(350):
            bound = (i * step) % 350 / 32
            if not torch.equal(
                codes_of(ALL.clamp(max=bound)),
                codes_of(wide.clamp(max=torch.tensor(bound).double()).to(ALL.dtype)),
            ):
                wrong.append(bound)

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, 17)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
