"""PyTorch's operator database with operands of two dtypes: an error where bfloat16 in the same
place raises one, otherwise results of the same dtypes."""

import itertools

import pytest
import torch
from representatives import thin_out
from samples import here
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

DTYPE = torch.posit16es2
# jiterator operators run on GPUs alone.
ENTRIES = {op.full_name: op for op in op_db if not op.name.startswith("jiterator")}
# Operators that write elements, and losses: tried beside integers too, and in vmap.
WRITES = (
    "index_put index_add index_copy index_reduce.mean _unsafe_masked_index_put_accumulate "
    "scatter scatter_add scatter_reduce.amax masked_scatter put lerp select_scatter "
    "diagonal_scatter as_strided_scatter isclose allclose sub rsub addcmul "
    "nn.functional.cross_entropy nn.functional.nll_loss nn.functional.huber_loss "
    "nn.functional.soft_margin_loss nn.functional.mse_loss nn.functional.smooth_l1_loss "
    "nn.functional.l1_loss nn.functional.kl_div nn.functional.binary_cross_entropy"
).split()
QUICK = (
    "heaviside cholesky_solve ormqr triangular_solve _chunk_cat linalg.householder_product "
    "linalg.lstsq complex polar cdist linalg.lu_solve linalg.ldl_solve "
    "nn.functional.fractional_max_pool2d histogram histogramdd quantile nanquantile add where "
    "slice_scatter bincount mm bmm mv dot vdot inner kron linalg.cross linalg.vecdot matmul "
    "addmm addmv baddbmm addbmm tensordot einsum linalg.multi_dot nn.functional.bilinear "
    "nn.functional.linear nn.functional.cosine_similarity nn.functional.pairwise_distance "
    "nn.functional.conv2d nn.functional.conv_transpose3d "
    "nn.functional.batch_norm nn.functional.group_norm nn.functional.layer_norm "
    "nn.functional.rms_norm nn.functional.embedding_bag nn.functional.prelu "
    "nn.functional.grid_sample nn.functional.scaled_dot_product_attention "
    "nn.functional.multi_head_attention_forward"
).split()
# Entries that differ, with the reason.
DIFFERS = {
    "nn.functional.binary_cross_entropy_with_logits": (
        "PyTorch computes in place of 1 - target, so that the result has its dtype by accident"
    ),
    "nn.functional.linear_cross_entropy.chunked": "format operands need one dtype",
    "nn.functional.linear_cross_entropy.chunked_none": "format operands need one dtype",
    "addr": "a float32 number decides the dtype in stock PyTorch",
    "_softmax_backward_data": "a stock formula calls it with an operand that it computed itself",
    **dict.fromkeys(
        (
            "nn.functional.conv1d",  # on processors without AVX-512
            "nn.functional.conv3d",
            "nn.functional.conv_transpose1d",
            "nn.functional.conv_transpose2d",
            "nn.functional.instance_norm",
        ),
        "some stock kernels do not check every operand; this package's refuse",
    ),
}
# Errors of operands that are all bfloat16, too.
NOT_THERE = ("implemented for 'BFloat16'", "Low precision", "quantile() input tensor must be")
# Errors of PyTorch's gradient formulas, where the operator itself accepts the operands
OF_GRADIENTS = ("Found dtype", "addmv input tensors must have the same dtype")

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


def is_floating(t):
    return (
        isinstance(t, torch.Tensor)
        and t.layout == torch.strided
        and not t.is_nested
        and t.is_floating_point()
    )


def samples_of(op, most):
    """Return samples with two floating operands that have dimensions, spread over the
    database's."""
    found = []
    try:
        for sample in itertools.islice(
            op.sample_inputs(here(), torch.float32, requires_grad=False), None if most > 1 else 40
        ):
            leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
            odd = any(
                isinstance(t, torch.Tensor) and (t.layout != torch.strided or t.is_nested)
                for t in leaves
            )
            if not odd and sum(is_floating(t) and t.dim() > 0 for t in leaves) > 1:
                found.append(sample)
    # the operator takes complex numbers or integers only
    except (RuntimeError, NotImplementedError):
        return []
    return found[:: max(1, len(found) // most)][:most]


def run(call, sample, narrow, other, places, gradients=False, vmap=False):
    """Return the dtypes of results (with `gradients`, of gradients too) and the results, or the
    error. `places`: indices of the narrow operands."""
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    where = [i for i, t in enumerate(flat) if is_floating(t)]
    given = [
        flat[i].detach().clone().to(narrow if n in places else other) for n, i in enumerate(where)
    ]
    leaves = [t.requires_grad_() for t in given if gradients and t.is_floating_point()]

    def call_with(*operands):
        for i, t in zip(where, operands, strict=True):
            flat[i] = t.clone()
        x, args, kwargs = tree_unflatten(flat, spec)
        return tree_leaves(call(x, *args, **kwargs))

    try:
        made = (
            torch.vmap(call_with, randomness="same")(*(torch.stack([t, t]) for t in given))
            if vmap
            else call_with(*given)
        )
        made = [t for t in made if isinstance(t, torch.Tensor)]
        if any(t.requires_grad for t in made):
            sum(t.abs().double().sum() for t in made if t.requires_grad).backward()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return error
    return (
        [t.dtype for t in made],
        [t.grad if t.grad is None else t.grad.dtype for t in leaves],
        [t.detach() for t in made],
    )


def variants(op):
    in_place = op.get_inplace() or op.get_inplace_operator()
    return [op] if in_place is None else [op, in_place]


def expect_alike(want, found, what):
    if isinstance(want, Exception):
        if not any(text in str(want) for text in (*NOT_THERE, *OF_GRADIENTS)):
            assert isinstance(found, Exception), (what, want, found)
            assert "BFloat16" not in str(found), (what, found)
            assert "of one dtype" not in str(found) or str(DTYPE) in str(found), (what, found)
        return
    assert not isinstance(found, Exception), (what, want, found)
    dtypes, gradients = ([DTYPE if d is torch.bfloat16 else d for d in part] for part in want[:2])
    assert found[0] == dtypes and found[1] == gradients, (what, want[:2], found[:2])


def check(name, most=1, other=torch.float32, **how):
    """Check each operand as the only format tensor, and as the only other one."""
    op = ENTRIES[name]
    for k, sample in enumerate(samples_of(op, most) if name not in DIFFERS else ()):
        n = sum(is_floating(t) for t in tree_leaves((sample.input, sample.args, sample.kwargs)))
        places = [{i} for i in range(n)] + [{*range(n)} - {i} for i in range(n)] * (n > 2)
        for (v, call), of_ours in itertools.product(enumerate(variants(op)), places):
            want, found = (
                run(call, sample, d, other, of_ours, **how) for d in (torch.bfloat16, DTYPE)
            )
            expect_alike(want, found, (k, "in place" * v, of_ours))
            if (
                most > 1
                and other is torch.float32
                and not how
                and not isinstance(want, Exception)
                and not isinstance(found, Exception)
            ):
                for a, b in zip(want[2], found[2], strict=True):
                    torch.testing.assert_close(
                        b.to(a.dtype), a, rtol=0.1, atol=0.1, equal_nan=True, check_layout=False
                    )


@pytest.mark.parametrize("name", thin_out([*WRITES, *QUICK], 7))
def test_operands_of_two_dtypes(name):
    assert samples_of(ENTRIES[name], 1)
    check(name, 4)
    check(name, gradients=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ENTRIES if n not in (*WRITES, *QUICK)])
def test_the_other_operators(name):
    check(name)
    check(name, gradients=True)


@pytest.mark.parametrize("name", thin_out(WRITES, 3))
def test_beside_integers_and_in_vmap(name):
    for other in (torch.int64, torch.bool):
        check(name, 2, other)
    check(name, vmap=True)


# Operators of one step. Other operators with a stock out= are refused by PyTorch, or return more
# digits.
WITH_OUT = (
    "acos acosh angle asin asinh atan cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 "
    "lgamma log log10 log1p log2 logit rad2deg rsqrt sigmoid sin sinc sinh tan tanh sqrt "
    "reciprocal square i0 abs ceil frac floor neg round sgn sign trunc nan_to_num sort cummax "
    "cummin logcumsumexp aminmax tril triu frexp atan2 hypot logaddexp xlogy pow lerp add "
    "max.reduction_with_dim amax gather take index_select masked_select topk mode kthvalue clamp "
    "clamp_min where softmax heaviside linalg.vector_norm histc cat stack"
).split()


def into(op, sample, narrow, other):
    """Return the dtypes of a call with out= and whether it has the results' numbers, or the
    error."""

    def make_narrow(t):
        if is_floating(t):
            return t.detach().to(narrow)
        return narrow if t is torch.float32 else t

    x, args, kwargs = tree_map(make_narrow, (sample.input, sample.args, sample.kwargs))
    try:
        torch.manual_seed(0)
        results = op(x, *args, **kwargs)
        out = tree_map(
            lambda t: torch.empty(0, dtype=other if t.dtype is narrow else t.dtype), results
        )
        torch.manual_seed(0)
        op(x, *args, **kwargs, out=out)
    except (RuntimeError, TypeError, ValueError) as error:
        return error
    pairs = list(zip(tree_leaves(out), tree_leaves(results), strict=True))
    return [t.dtype for t, _ in pairs], [
        torch.equal(t.nan_to_num(), r.to(t.dtype).nan_to_num()) for t, r in pairs
    ]


@pytest.mark.parametrize("name", thin_out(WITH_OUT, 7))
def test_out_of_another_dtype(name):
    op = ENTRIES[name]
    sample = next(
        s
        for s in op.sample_inputs(here(), torch.float32, requires_grad=False)
        if any(map(is_floating, tree_leaves((s.input, s.args))))
    )
    for other in (torch.float32, torch.float64):
        want, found = (into(op, sample, d, other) for d in (torch.bfloat16, DTYPE))
        if isinstance(want, Exception):
            assert isinstance(found, Exception) or any(text in str(want) for text in NOT_THERE), (
                want,
                found,
            )
        else:
            assert not isinstance(found, Exception) and found[0] == want[0] and all(found[1]), found
