"""Values as one 16-bit number, or as the sum of two: the numbers that tensor cores multiply."""

import ctypes
import shutil

import pytest
import torch
from conftest import from_codes
from exact_codecs import compile_headers
from host_kernels import PARTS, argument, fields, format_of

import torch_dtypes


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", PARTS)
def test_values_are_sums_of_parts(name):
    fmt = format_of(name)
    codes = torch.arange(1 << min(fmt.bits, 16))
    first, second = (torch.zeros(len(codes), dtype=torch.int16) for _ in range(2))
    kind = torch.zeros(1, dtype=torch.int64)
    parts_of_all = compile_headers().library.parts_of_all
    parts_of_all.restype = ctypes.c_int64
    count = parts_of_all(fields(fmt), *map(argument, (codes, first, second, kind, len(codes))))
    expected, expected_count = PARTS[name]
    assert count == expected_count
    if count:
        view = (torch.float16, torch.bfloat16)[kind.item()]
        assert view is expected
        total = first.view(view).double() + second.view(view).double()
        values = from_codes(codes, torch_dtypes.dtype(name)).double()
        torch.testing.assert_close(total, values, rtol=0, atol=0, equal_nan=True)
