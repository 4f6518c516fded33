"""Forward-mode derivatives of PyTorch's operator database in format dtypes: a sample of it here,
all of it with `-m slow`."""

import pytest
import torch
from judge import judge
from known import TANGENTS, expected_in
from representatives import thin_out
from tangent_cases import run_entry
from torch.testing._internal.common_methods_invocations import op_db

pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)

ENTRIES = {op.full_name: op for op in op_db if op.supports_forward_ad}
SLOW = ("posit16es2", "q43", "q52", "e5m5", "posit8es2", "posit32es2")


def check(dtype: str, name: str, most: int | None):
    judge(
        run_entry(ENTRIES[name], getattr(torch, dtype), most),
        expected_in(TANGENTS, name, "tangent", dtype),
    )


@pytest.mark.parametrize(
    ("dtype", "name"),
    thin_out(
        [("posit16es2", name) for name in ENTRIES] + [("q43", name) for name in list(ENTRIES)[::4]],
        3,
    ),
)
def test_tangents(dtype, name):
    check(dtype, name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("dtype", SLOW)
def test_tangents_of_all_samples(dtype, name):
    check(dtype, name, None)


def test_list_names_entries():
    assert {name for names in TANGENTS.values() for name in names} <= set(ENTRIES)
