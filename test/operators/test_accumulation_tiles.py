"""Sums of float formats that are rounded in tiles of registers (cpu/StepKernel.h), bit for bit:
against exact rationals, and against the general way, which runs under `observe`."""

import math

import pytest
import torch
from conftest import codes_of
from representatives import thin_out
from sums import assert_products, some
from vector_units import outputs_by_unit

import torch_dtypes
from torch_dtypes import accumulate

# Steps in float32 and in float64, of one format, of two, sums in float32, exact products.
OPTIONS = [
    ("e5m7", {}),
    ("e8m7", {}),
    ("q43", {"product": "e5m7", "accumulator": "e6m9"}),
    ("e5m7", {"accumulator": "fp32"}),
    ("e4m3fn", {"chunk": 100}),
    ("e8m23", {"chunk": 16}),
    ("e4m3fnuz", {}),
    ("e5m10", {}),
    ("e8m4", {"product": "e8m7", "accumulator": "e8m10"}),
    ("q43", {"product": "exact", "accumulator": "fp32"}),
]


@pytest.mark.parametrize(
    ("name", "options"),
    thin_out(
        [
            ("q43", {}),
            ("e8m4", {}),
            ("e5m2fn", {}),
            ("tf32", {}),
            ("q43", {"product": "e5m7", "accumulator": "tf32"}),
        ],
        keep=4,
    ),
)
@pytest.mark.parametrize("spread", [1.0, 2.0**-5])
def test_tiles_round_every_product_and_sum(name, options, spread):
    """More rows and columns than a tile has, and neither a multiple of its own."""
    a, b = some(name, 5, 12, spread=spread), some(name, 12, 37, seed=1, spread=spread)
    assert_products("format", a, b, name, **options)


def draw(seed, *sizes):
    """Return float64 numbers from far below a format's smallest to beyond its largest."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes, generator=g, dtype=torch.float64)
    return x * torch.exp2(torch.randint(-12, 4, sizes, generator=g))


def compute_sums(dtype, policy, options):
    """Return products and sums whose operands include infinities, NaN, large numbers and -0."""
    a, b, start = draw(1, 37, 300), draw(2, 300, 70), draw(3, 37, 70)
    a[3, 5], a[4, :9], b[7, 11], b[8, 12:14], start[:, 20] = math.inf, 1e5, math.nan, -1e9, -0.0
    a[5], b[:, 15], start[:, 15], start[9, 2] = 0.0, -1.0, -0.0, math.inf  # -0 at [5, 15]
    a, b, start = a.to(dtype), b.to(dtype), start.to(dtype)
    image, weight = draw(4, 2, 3, 5, 5).to(dtype), draw(5, 3, 5, 3, 3)
    weight[0, 1, 0, 0] = math.inf  # absent where the stride leaves gaps
    weight = weight.to(dtype)
    with accumulate(policy, **options):
        return [
            torch.addmm(start, a, b),
            a[:1] @ b,
            a[:, :260] @ b[:260, 30:35],
            torch.stack([a[:6], a[6:12]]) @ b,
            a.sum(0),
            a[0].mean(),
            torch.nn.functional.conv_transpose2d(image, weight, start[0, :5], stride=2),
        ]


@pytest.mark.filterwarnings("ignore:observe. no module")
@pytest.mark.parametrize(("name", "options"), thin_out(OPTIONS, keep=2))
def test_tiles_are_as_the_general_way(name, options):
    dtype = torch_dtypes.dtype(name)
    policy = "chunked" if "chunk" in options else "format"
    found = compute_sums(dtype, policy, options)
    with torch_dtypes.observe(torch.nn.Linear(1, 1)):  # counts each step, which tiles do not
        wanted = compute_sums(dtype, policy, options)
    for i, (x, y) in enumerate(zip(found, wanted, strict=True)):
        assert torch.equal(codes_of(x), codes_of(y)), i


HASH = """
import torch, torch_dtypes
draw = torch.Generator().manual_seed(1)
a, b = torch.randn(19, 300, generator=draw), torch.randn(300, 77, generator=draw)
for name in ("e5m7", "e8m7"):
    dtype = torch_dtypes.dtype(name)
    with torch_dtypes.accumulate("format"):
        product = a.to(dtype) @ b.to(dtype)
    print(torch.hash_tensor(product.float().view(torch.int32)).item())
"""


@pytest.mark.whole
def test_vector_units_change_no_bit():
    found = outputs_by_unit(HASH)
    assert len(found) == 1 and len(found.pop().splitlines()) == 2
