"""Arrays of ml_dtypes, codes, buffers and DLPack, in a process of its own: its formats would take the places that other tests' formats need."""

from conftest import run_cases


def test_interop():
    run_cases("interop_cases.py")
