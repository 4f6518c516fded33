"""Files of tests in processes of their own: their formats would take the places that other tests' formats need (64 a process)."""

import pytest
from conftest import OWN_PROCESS, run_cases


@pytest.mark.parametrize("name", OWN_PROCESS)
def test_cases(name):
    run_cases(name)
