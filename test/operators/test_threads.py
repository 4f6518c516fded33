"""The number of threads changes no bit: every policy, rounding mode and operator, forward and
backward."""

import pytest
import torch
import torch.nn.functional as F
from conftest import codes_of
from oracle import MODES
from oracle_stochastic import MODES as STOCHASTIC
from representatives import thin_out

import torch_dtypes
from torch_dtypes import accumulate, rounding

EVERY_MODE = [*MODES, *STOCHASTIC]
SOME_MODES = ["up", "toward_zero", "stochastic"]
POLICIES = [
    ("exact", {}),
    ("format", {}),
    ("format", {"fused": True}),
    ("format", {"kahan": True, "accumulator": "e8m4"}),
    ("format", {"rounding": "down"}),
    ("chunked(5)", {}),
]
# Several rows each, so that the work is split: steps go row by row, exact sums by about 4,096
# products.
PRODUCTS = {
    "mm": (torch.mm, (9, 30), (30, 40)),
    "mm of few columns": (torch.mm, (70, 65), (65, 3)),
    "bmm": (torch.bmm, (5, 6, 20), (5, 20, 30)),
    "addmm": (torch.addmm, (9, 40), (9, 30), (30, 40)),
    "mv": (torch.mv, (600, 20), (20,)),
    "dot": (torch.dot, (40,), (40,)),
    "linear": (F.linear, (9, 30), (40, 30), (40,)),
    "einsum": (lambda a, b: torch.einsum("bik,bjk->bij", a, b), (4, 6, 20), (4, 9, 20)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), (2, 3, 30), (8, 3, 3), (8,)),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, groups=2), (2, 4, 9, 8), (6, 2, 3, 2)),
    "conv3d": (F.conv3d, (1, 2, 5, 5, 4), (4, 2, 2, 2, 2)),
    "conv_transpose1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, output_padding=1),
        (2, 3, 20),
        (3, 8, 3),
    ),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, padding=1),
        (1, 3, 7, 8),
        (3, 6, 3, 2),
    ),
    "conv_transpose3d": (F.conv_transpose3d, (1, 2, 3, 4, 4), (2, 4, 2, 2, 2)),
    "attention": (F.scaled_dot_product_attention, (2, 2, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8)),
    "sum": (lambda x: x.sum(1), (9, 30, 100)),
    "mean": (lambda x: x.mean(1), (9, 30, 100)),
    "cumsum": (lambda x: x.cumsum(1), (9, 20, 50)),
}
# Above the grain size of casts and elementwise operators.
ELEMENTWISE = {
    "add": (torch.add, (260, 260), (260, 260)),
    "mul by a row": (torch.mul, (260, 260), (260,)),
    "div of columns": (lambda a, b: a.t() / b, (260, 260), (260, 260)),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=0.3), (260, 260), (260, 260)),
    "sqrt": (lambda x: (x * x).sqrt(), (260, 260)),
    "exp": (torch.exp, (260, 260)),
    "cast": (lambda x: (x.float() * 1.1).to(torch.q43), (260, 260)),
    "cast of doubles": (lambda x: (x.double() * 1.1).to(torch.q52), (260, 260)),
    "softmax": (lambda x: x.softmax(-1), (260, 260)),
}


def results(call, sizes, threads, dtype):
    """Return codes of the result and of all gradients, for the same drawn numbers each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(1)
        with rounding("nearest_even"):
            leaves = [torch.randn(size).to(dtype).requires_grad_() for size in sizes]
        y = call(*leaves)
        with rounding("nearest_even"):
            grad = torch.randn(y.shape).to(y.dtype)
        grads = torch.autograd.grad(y, leaves, grad)
        return [codes_of(t.detach().contiguous()) for t in (y, *grads)]
    finally:
        torch.set_num_threads(before)


def assert_threads_change_nothing(operators, dtype, note):
    for operator, (call, *sizes) in operators.items():
        one = results(call, sizes, 1, dtype)
        for threads in (2, 3):
            for i, (few, many) in enumerate(
                zip(one, results(call, sizes, threads, dtype), strict=True)
            ):
                assert torch.equal(few, many), (
                    f"{operator} {note}: {(few != many).sum()} of {few.numel()} differ on "
                    f"{threads} threads, tensor {i}"
                )


@pytest.mark.parametrize(
    ("policy", "mode"),
    thin_out(
        [
            (p, mode)
            for p in POLICIES
            for mode in (EVERY_MODE if p == ("format", {}) else SOME_MODES)
        ],
        3,
    ),
    ids=str,
)
def test_threads_change_no_sum_of_products(policy, mode):
    kind, options = policy
    with accumulate(kind, **options), rounding(mode):
        assert_threads_change_nothing(PRODUCTS, torch.q43, f"{policy} {mode}")


@pytest.mark.parametrize("mode", SOME_MODES)
@pytest.mark.parametrize("name", ["q43", "posit32es2"])
def test_threads_change_no_element(name, mode):
    with rounding(mode):
        assert_threads_change_nothing(ELEMENTWISE, getattr(torch, name), f"{name} {mode}")


@pytest.mark.parametrize("mode", ["up", "stochastic"])
def test_threads_change_no_chopped_number_nor_neighbour(mode):
    x = torch.randn(100_000)
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(2)
        with rounding(mode):
            y = x.to(torch.e5m5)
            found.append(
                (
                    torch_dtypes.chop(x, "q43_" + mode),
                    codes_of(torch.nextafter(y, -y)),
                    codes_of(F.dropout(y)),
                )
            )
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
