"""PyTorch's optimizer database in format dtypes: for-loop, foreach and fused forms with dense
gradients, and continuing from a file."""

import pytest
import torch
from judge import judge
from optimizer_cases import KINDS, run_entry
from representatives import thin_out
from torch.testing._internal.common_optimizers import optim_db

ENTRIES = {info.name: info for info in optim_db if not info.only_supports_sparse_grads}
SLOW = ("q52", "e5m7", "e8m4", "posit8es0", "posit8es2", "posit16es1", "posit32es2", "tf32")


def cases():
    """Return every optimizer in posit16es2, and in one of two other dtypes by turns. The remaining
    dtype is slow."""
    for i, name in enumerate(ENTRIES):
        for j, kind in enumerate(KINDS):
            for k, dtype in enumerate(("posit16es2", "q43", "e5m5")):
                yield pytest.param(
                    dtype,
                    kind,
                    name,
                    id=f"{dtype}-{kind}-{name}",
                    marks=[pytest.mark.slow] * (k > 0 and (i + j + k) % 2),
                )


@pytest.mark.parametrize(("dtype", "kind", "name"), thin_out(cases(), 5))
def test_optimizer(dtype, kind, name):
    judge(run_entry(ENTRIES[name], getattr(torch, dtype), kind), None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", SLOW)
def test_optimizer_in_more_dtypes(dtype, kind, name):
    judge(run_entry(ENTRIES[name], getattr(torch, dtype), kind), None)
