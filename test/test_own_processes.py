"""Files of tests in processes of their own: their formats would take the places that other tests' formats need (64 a process)."""

import pytest
from conftest import OWN_PROCESS, run_cases

CASES = "assert_close attention dtype inference_mode interop limits masked nextafter operands".split()


@pytest.mark.parametrize("name", [*(f"{name}_cases.py" for name in CASES), *OWN_PROCESS])
def test_cases(name):
    run_cases(name)
