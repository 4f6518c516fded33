"""PyTorch's operator database by stock operators: results and gradients have the kernels' bits."""

import gpu_cases
import pytest
import torch
from op_cases import has_free_values, lacks, run_differentiable
from runs import cotangent_like, tensors
from samples import (
    SEED,
    NotApplicable,
    World,
    base_dtype,
    is_complex,
    quiet,
    sample_in_world,
    samples_of,
    seed,
)
from test_operators import ENTRIES, applies

import torch_dtypes

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("one_thread")]
FORMATS = ("posit16es2", "q43_stochastic", "e5m10")
CASES = [
    entry
    for entry, op in ENTRIES.items()
    if applies(entry, "forward") and not has_free_values(op) and not op.name.startswith("jiterator")
]


def compute(op, sample, base, dtype):
    """Return the results of one call and the gradients of its operands."""
    seed(SEED)
    x, args, kwargs, leaves = sample_in_world(sample, base, World(dtype, None))
    if lacks(op, "backward") or not leaves:
        return [t.detach() for t in tensors(op(x, *args, **kwargs))]
    results = run_differentiable(op, sample, op.get_op(), x, args, kwargs, leaves)
    gradients = torch.autograd.grad(
        results, leaves, [cotangent_like(r) for r in results], allow_unused=True
    )
    return [t.detach() for t in (*results, *gradients) if t is not None]


def run(way, *call):
    torch_dtypes.set_backend(way)
    try:
        return compute(*call)
    except NotApplicable:
        raise
    except Exception as error:
        return error
    finally:
        torch_dtypes.set_backend(None)


def bits(t):
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    return gpu_cases.bits(t)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("entry", CASES)
def test_entry(entry, name):
    op, dtype = ENTRIES[entry], torch_dtypes.dtype(name)
    base = base_dtype(op)
    with quiet():
        sample = next(samples_of(op, base, not lacks(op, "backward"), 1), None)
        if sample is None or is_complex(sample):
            pytest.skip("no sample of real numbers")
        try:
            expected, found = (run(way, op, sample, base, dtype) for way in ("kernels", "stock"))
        except NotApplicable as reason:
            pytest.skip(str(reason))
    if isinstance(expected, Exception):
        assert (type(found), str(found)) == (type(expected), str(expected))
        pytest.skip(str(expected).splitlines()[0])
    if isinstance(found, Exception):
        raise found
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), i
        assert torch.equal(bits(a), bits(b)), (i, a, b)
