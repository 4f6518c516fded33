"""PyTorch's operator database with operands of two dtypes: an error where bfloat16 beside float32 is one, else results of the same dtypes."""

import pytest
import torch
from samples import here
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

DTYPE = torch.posit16es2
ENTRIES = {op.full_name: op for op in op_db if not op.name.startswith("jiterator")}  # those run on GPUs alone
QUICK = (
    "heaviside cholesky_solve ormqr triangular_solve _chunk_cat linalg.householder_product linalg.lstsq complex polar cdist linalg.lu_solve "
    "linalg.ldl_solve nn.functional.fractional_max_pool2d histogram histogramdd quantile nanquantile normal "
    "isclose lerp index_put index_add index_copy scatter_add masked_scatter put matmul add where nn.functional.huber_loss"
).split()
# What differs, and why.
DIFFERS = {
    "nn.functional.binary_cross_entropy_with_logits": "stock computes in place of 1 - target, whose dtype the result has by accident",
    "nn.functional.linear_cross_entropy.chunked": "ours asks for one dtype, as layers do",
    "nn.functional.linear_cross_entropy.chunked_none": "ours asks for one dtype, as layers do",
    "_softmax_backward_data": "a stock formula calls it, beside what it has made itself",
}
NOT_THERE = ("implemented for 'BFloat16'", "Low precision", "quantile() input tensor must be")  # in bfloat16 alone, too

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


def is_floating(t):
    return isinstance(t, torch.Tensor) and t.layout == torch.strided and not t.is_nested and t.is_floating_point()


def sample_of(op):
    """One with two floating operands that have dimensions, or None."""
    try:
        for sample in op.sample_inputs(here(), torch.float32, requires_grad=False):
            leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
            odd = any(isinstance(t, torch.Tensor) and (t.layout != torch.strided or t.is_nested) for t in leaves)
            if not odd and sum(is_floating(t) and t.dim() > 0 for t in leaves) > 1:
                return sample
    except (RuntimeError, NotImplementedError):  # of complex numbers or integers only
        return None
    return None


def dtypes_or_error(op, sample, first, rest):
    def cast(value, dtype):
        return tree_map(lambda t: t.detach().clone().to(dtype) if is_floating(t) else t, value)

    beginning, args, kwargs = cast(sample.input, first), cast(sample.args, rest), cast(sample.kwargs, rest)
    if isinstance(beginning, (list, tuple)):
        beginning = type(beginning)(t if i == 0 else cast(t, rest) for i, t in enumerate(beginning))
    try:
        return [t.dtype for t in tree_leaves(op(beginning, *args, **kwargs)) if isinstance(t, torch.Tensor)]
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return error


def check(name):
    op = ENTRIES[name]
    sample = sample_of(op)
    if sample is None or name in DIFFERS:
        return
    for ours_first in (True, False):
        want, found = (dtypes_or_error(op, sample, *((d, torch.float32) if ours_first else (torch.float32, d))) for d in (torch.bfloat16, DTYPE))
        if isinstance(want, Exception):
            if not any(text in str(want) for text in NOT_THERE):
                assert isinstance(found, Exception), (want, found)
                assert "BFloat16" not in str(found), found
        else:
            assert found == [DTYPE if d is torch.bfloat16 else d for d in want], (want, found)


@pytest.mark.parametrize("name", QUICK)
def test_operands_of_two_dtypes(name):
    assert sample_of(ENTRIES[name]) is not None
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ENTRIES if n not in QUICK])
def test_the_other_operators(name):
    check(name)
