"""torch.nextafter, in a process of its own: its formats would take the places that other tests' formats need (64 a process)."""

from conftest import run_cases


def test_nextafter():
    run_cases("nextafter_cases.py")
