"""NaN in one place of an operand of a fused operator makes those results NaN that float64's formula
makes NaN."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, WIDTH = 2, 8
# The vectors of PyTorch's kernels have 4 to 16 places. One kernel lost the rows of 8 and 15 keys,
# but none of 16.
LENGTHS = [1, 4, 5, 8, 15, 16, 33]


def attend_masked(q, k, v):
    return F.scaled_dot_product_attention(
        q, k, v, torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    )


def encoder_layer(x, *weights):
    return torch._transformer_encoder_layer_fwd(
        x, WIDTH, HEADS, *weights[:4], False, False, 1e-5, *weights[4:]
    )


def attention_layer(x, *weights):
    return torch._native_multi_head_attention(x, x, x, WIDTH, HEADS, *weights, None, False)[0]


def projections():
    return [(3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,)]


def heads(n):
    return [(2, HEADS, n, WIDTH)] * 3


# The function, and the sizes of its operands for a length.
FUSED = {
    "attention": (F.scaled_dot_product_attention, heads),
    "attention of 3 dimensions": (F.scaled_dot_product_attention, lambda n: [(2, n, WIDTH)] * 3),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        heads,
    ),
    "attention with a mask": (attend_masked, heads),
    "attention with numbers": (F.scaled_dot_product_attention, lambda n: [*heads(n), (n, n)]),
    "grouped attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda n: [(2, 4, n, WIDTH), (2, 2, n, WIDTH), (2, 2, n, WIDTH)],
    ),
    "flash attention": (
        lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0],
        heads,
    ),
    "attention layer": (attention_layer, lambda n: [(2, n, WIDTH), *projections()]),
    "encoder layer": (
        encoder_layer,
        lambda n: [
            (2, n, WIDTH),
            *projections(),
            *[(WIDTH,)] * 4,
            (16, WIDTH),
            (16,),
            (WIDTH, 16),
            (WIDTH,),
        ],
    ),
    "softmax": (lambda x: x.softmax(-1), lambda n: [(3, n)]),
    "log_softmax": (lambda x: x.log_softmax(0), lambda n: [(n, 3)]),
    "masked softmax": (
        lambda x: torch._masked_softmax(x, torch.eye(3, x.size(1), dtype=torch.bool), -1),
        lambda n: [(3, n + 1)],
    ),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda n: [(3, n)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), lambda n: [(3, n), (n,), (n,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, w.shape, w), lambda n: [(3, n), (n,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), lambda n: [(2, 4, n), (4,), (4,)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda n: [(2, 3, n), (3,), (3,)],
    ),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), lambda n: [(2, 3, n + 1)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda n: [(2, n, 5, 5)]),
    "max_pool2d, channels last": (
        lambda x: F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2),
        lambda n: [(2, n, 4, 4)],
    ),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), lambda n: [(2, 3, n + 1, 3)]),
    "embedding_bag": (
        lambda w: F.embedding_bag(torch.tensor([0, 1, 2, 1]), w, torch.tensor([0, 2]), mode="max"),
        lambda n: [(3, n)],
    ),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, torch.zeros(3, dtype=torch.int64), reduction="none"),
        lambda n: [(3, n)],
    ),
    "amax": (lambda x: x.amax(-1), lambda n: [(3, n)]),
    "aminmax": (lambda x: torch.stack(torch.aminmax(x, dim=-1)), lambda n: [(3, n)]),
    "segment_reduce": (
        lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([2, 1])),
        lambda n: [(3, n)],
    ),
}


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43])
@pytest.mark.parametrize("name", FUSED)
def test_nan_stays(name, dtype):
    function, sizes = FUSED[name]
    formula = F.scaled_dot_product_attention if name == "flash attention" else function
    for n in LENGTHS:
        torch.manual_seed(n)
        operands = [torch.randn(size).to(dtype) for size in sizes(n)]
        for i, operand in enumerate(operands):
            for place in {0, operand.numel() // 2, operand.numel() - 1}:
                given = [x.clone() for x in operands]
                given[i].view(-1)[place] = float("nan")
                with torch.no_grad():
                    got = function(*given).isnan()
                    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel loses rows in float64 too
                        want = formula(*[x.double() for x in given]).isnan()
                assert torch.equal(got, want), (n, i, place)


@pytest.mark.parametrize("n", [8, 15])
def test_gradients_of_attention_with_nan(n):
    """The row is NaN in training, too, and gradients of other heads stay numbers."""
    operands = [torch.randn(size).to(torch.posit16es2) for size in heads(n)]
    operands[0][0, 0, n - 1, 3] = float("nan")
    given, doubles = (
        [x.clone().requires_grad_() for x in operands],
        [x.double().requires_grad_() for x in operands],
    )
    out = F.scaled_dot_product_attention(*given)
    with sdpa_kernel(SDPBackend.MATH):
        want = F.scaled_dot_product_attention(*doubles)
    assert torch.equal(out.isnan(), want.isnan()) and out.isnan().sum() == WIDTH
    out[1].sum().backward()
    assert all(x.grad[1].isfinite().all() for x in given)


@pytest.mark.parametrize("mask", ["bool", "numbers"])
def test_rows_that_are_masked_altogether_stay(mask):
    """They are zeros in PyTorch's fused kernel, which keeps the bits of other rows beside a NaN."""
    q, k, v = (torch.randn(1, 1, 8, WIDTH).to(torch.q43) for _ in range(3))
    keep = torch.ones(8, 8, dtype=torch.bool)
    keep[2] = False
    given = keep if mask == "bool" else torch.zeros(8, 8).masked_fill(~keep, float("-inf"))
    clean = F.scaled_dot_product_attention(q, k, v, given)
    assert (clean[0, 0, 2] == 0).all() and not clean.isnan().any()
    q[0, 0, 5, 0] = float("nan")
    got = F.scaled_dot_product_attention(q, k, v, given)
    assert got[0, 0, 5].isnan().all()
    others = torch.arange(8) != 5
    assert torch.equal(got[0, 0, others], clean[0, 0, others])


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]
)
@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_a_gradient_that_is_nan(kind, way):
    gradient = torch.ones(37)
    gradient[[0, 19, 36]] = float("nan")

    def step(dtype, **options):
        p = nn.Parameter(torch.ones(37, dtype=torch.float64).to(dtype))
        p.grad = gradient.to(dtype)
        kind([p], lr=0.1, **options).step()
        return p.isnan()

    assert torch.equal(step(torch.posit16es2, **{way: True}), step(torch.float64, foreach=False))
