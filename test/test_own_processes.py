"""Files of tests in processes of their own: their formats would take the places that other tests' formats need (64 a process)."""

import pytest
from conftest import run_cases


@pytest.mark.parametrize("name", ["assert_close", "attention", "dtype", "inference_mode", "interop", "limits", "masked", "nextafter", "operands"])
def test_cases(name):
    run_cases(f"{name}_cases.py")
