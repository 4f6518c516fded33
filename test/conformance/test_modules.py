"""PyTorch's module database in format dtypes: a sample of its inputs here, all of them with `-m
slow`."""

import pytest
import torch
from judge import judge
from module_cases import KINDS, run_entry
from representatives import thin_out
from torch.testing._internal.common_modules import module_db

ENTRIES = {info.name: info for info in module_db}
SLOW = ("posit16es2", "q43", "q52", "e5m5", "posit8es2", "posit32es2")


def check(dtype: str, kind: str, name: str, most: int | None):
    judge(run_entry(ENTRIES[name], getattr(torch, dtype), kind, most), known=None)


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "most"), thin_out([("posit16es2", 2), ("q43", 1)], 2), ids=["posit16es2", "q43"]
)
def test_module(dtype, most, kind, name):
    check(dtype, kind, name, most)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", SLOW)
def test_module_with_all_inputs(dtype, kind, name):
    check(dtype, kind, name, None)
