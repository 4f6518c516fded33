"""Sums by the GPU's kernels, run on the host under every policy and compared with the CPU's
operators bit for bit."""

# ruff: noqa: F811 (a fixture that is imported)

import contextlib
import ctypes

import pytest
import torch
from conftest import from_codes
from host_kernels import (
    NARROW,
    SEED,
    argument,
    fields,
    flags_of,
    format_of,
    library,  # noqa: F401 (a fixture)
    matrices,
    on_cpu,
    run,
    same,
    seeds,
)
from representatives import thin_out

import torch_dtypes
from torch_dtypes.formats.arguments import rounding_mode

pytestmark = pytest.mark.whole  # compiling the kernels takes most of a minute

STEPS = [
    {},
    {"fused": True},
    {"kahan": True},
    {"chunk": 3},
    {"chunk": 4, "kahan": True},
    {"accumulator": "e5m10", "product": "e5m7"},
    {"rounding": "down"},
    {"rounding": "stochastic"},
    {"fused": True, "rounding": "up_down"},
    {"order": "pairwise"},
    {"order": "tree", "rounding": "stochastic"},
    {"order": "lanes(4)", "kahan": True},
    {"order": "lanes(3)", "fused": True, "rounding": "stochastic"},
]
BLOCKS = [
    {"terms": 4, "extra_bits": 1},
    {"terms": 4, "extra_bits": 2, "align": "nearest_even", "rounding": "stochastic"},
    {
        "terms": 8,
        "extra_bits": 1,
        "interleave": 2,
        "late": 3,
        "min_exponent": -20,
        "register": "e8m13",
    },
    {
        "terms": 3,
        "extra_bits": 0,
        "interleave": 3,
        "register": "e5m6",
        "rounding": "nearest_even",
        "product_limit": True,
    },
]


def sizes(*numbers):
    return (ctypes.c_int64 * 4)(*numbers)


def check_products(library, kernel, fmt, settings, operands, policy, options, rest=(), mode=None):
    """Compare products of matrices, and those added to a third, with the CPU's under the same
    policy, or in the same mode."""
    a, b, start = operands
    of_sizes = sizes(*a.shape, b.shape[2])
    for first in (None, start):
        out = torch.empty(start.shape, dtype=a.dtype)
        torch.manual_seed(SEED)
        with (
            torch_dtypes.accumulate(policy, **options),
            torch_dtypes.rounding(mode) if mode else contextlib.nullcontext(),
        ):
            expected = torch.bmm(a, b) if first is None else torch.baddbmm(first, a, b)
        given = (*settings, of_sizes) if kernel != "exact" else (of_sizes,)
        run(library, kernel, fmt, *given, a, b, first, *rest, out, seeds())
        same(out, expected)


def check_steps(library, name, options, operands, in_float=True):
    """Compare sums that are rounded at every step."""
    steps = [
        format_of(options.get(what, name).replace("exact", name), options.get("rounding"))
        for what in ("product", "accumulator")
    ]
    settings = (*map(fields, steps), flags_of(options, options.get("chunk", 0), in_float))
    policy = "chunked" if "chunk" in options else "format"
    check_products(
        library, "steps", format_of(name), settings, operands, policy, options, (None, None)
    )


@pytest.mark.parametrize("options", STEPS, ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_sums_rounded_at_every_step(library, name, options):
    check_steps(
        library, name, options, matrices(torch_dtypes.dtype(name)), format_of(name).fits_float
    )


NARROW_POSITS = ["posit8es0", "posit8es1", "posit8es2", "posit10es1", "posit12es1"]
# Tiles share the work for several results. These cover every way of rounding by magic numbers, and
# operands outside it (overflow, long regimes, NaN).
TILES = [
    ("q43", {}),
    ("q43", {"product": "e5m5"}),
    ("q43", {"product": "exact"}),
    ("q43", {"accumulator": "e3m2"}),
    ("e5m10", {}),
    ("e4m3fn_saturate", {}),
    ("e4m3fnuz", {"accumulator": "e5m9"}),
    ("e2m1finite", {"product": "exact", "accumulator": "e4m3"}),
    ("e5m14", {}),
    ("e2m12", {}),
    ("posit8es0", {}),
    ("posit8es2", {}),
    ("posit12es1", {}),
    ("posit16es1", {}),
    ("posit16es2", {}),
    ("posit8es1", {"accumulator": "posit12es1"}),
    ("posit16es2", {"product": "exact"}),
    ("posit10es2", {"product": "posit16es2", "accumulator": "posit10es2"}),
    ("q43", {"accumulator": "fp32"}),
    ("e5m10", {"accumulator": "fp32"}),
    ("e2m12", {"accumulator": "fp32"}),
    ("e4m3fnuz", {"accumulator": "fp32"}),
    ("q43", {"product": "exact", "accumulator": "fp32"}),
    ("posit16es2", {"product": "exact", "accumulator": "fp32"}),
    ("posit8es2", {"accumulator": "fp32"}),
    ("posit16es2", {"accumulator": "fp32"}),
    ("posit16es1", {"accumulator": "fp32"}),
    ("q43_toward_zero", {"product": "q43_toward_zero", "accumulator": "fp32"}),
    ("posit16es2", {"product": "posit8es1"}),
    ("posit16es2", {"product": "posit8es1", "accumulator": "fp32"}),
    ("posit16es2", {"product": "posit8es1", "accumulator": "posit8es1"}),
    ("posit16es2", {"product": "exact", "accumulator": "posit8es1"}),
    ("e6m9", {"product": "posit8es2", "accumulator": "posit8es0"}),
    ("q43", {"chunk": 8}),
    ("e5m10", {"chunk": 16}),
    ("e4m3fn", {"chunk": 7}),
    ("q43", {"chunk": 2, "product": "exact", "accumulator": "e5m9"}),
    ("posit8es1", {"chunk": 13}),
    ("posit16es2", {"chunk": 40}),
    ("posit16es1", {"chunk": 1}),
    ("posit16es2", {"chunk": 10, "product": "exact"}),
    ("posit8es0", {"chunk": 64, "accumulator": "posit12es1"}),
    ("q43", {"chunk": 4, "accumulator": "fp32"}),
]


# A grid of many tiles: a few cases here, the others in the slow tests.
SHAPES = [(3, 17, (-12, 9)), (3, 17, (-4, 1)), (8205, 131, (-6, 5))]
IN_TILES = [
    pytest.param(
        name,
        options,
        *shape,
        id=f"{name}-options{i}-{'-'.join(map(str, shape[:2]))}-spread{j}",
        marks=[pytest.mark.slow] * (j == 2 and i % 4 > 0),
    )
    for i, (name, options) in enumerate(TILES)
    for j, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize(("name", "options", "m", "n", "spread"), thin_out(IN_TILES, 5))
def test_sums_in_tiles(library, name, options, m, n, spread):
    a, b, start = matrices(torch_dtypes.dtype(name), 40 if m == 3 else 5, m, n, spread)
    start[:, :, 3], b[:, :, 3] = -0.0, -abs(b[:, :, 3]) * 0
    a[:, 0] = abs(a[:, 0])
    a[0, 1, 2] = float("nan")
    start[0, 1, 5] = float("inf")
    check_steps(library, name, options, (a, b, start))


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulator": "posit12es1"}, {"product": "exact", "accumulator": "posit8es0"}],
    ids=str,
)
def test_operands_beyond_the_range_of_a_step(library, options):
    """Products of posit16es2's numbers have exponents up to 112."""
    g, shapes = torch.Generator().manual_seed(9), ((2, 40, 3), (2, 3, 50), (2, 40, 50))
    a, b, start = (
        torch.exp2(torch.randint(-56, 57, shape, generator=g).double()).to(torch.posit16es2)
        for shape in shapes
    )
    a[:, ::3] *= -1
    check_steps(
        library,
        "posit16es2",
        {"product": "posit8es1", "accumulator": "posit8es1", **options},
        (a, b, start),
    )


@pytest.mark.parametrize(
    "options",
    [{"accumulator": "fp32"}, {"product": "exact", "accumulator": "fp32"}, {}],
    ids="-".join,
)
def test_sums_in_the_widest_tiles(library, options):
    """The columns end within a tile. Its columns are the last ones, so that the tile before shares
    some."""
    check_steps(library, "q43", options, matrices(torch.q43, 3, 2056, 261, (-6, 5)))


@pytest.mark.parametrize(
    "name",
    [*NARROW_POSITS, "posit16es1", "posit16es0", "posit5es1", "posit4es0", "posit12es1_underflow"],
)
def test_posits_to_the_ends_of_their_range(library, name):
    """No product or sum of two numbers is left undetermined. It would be computed step by step,
    while the neighbouring threads wait."""
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    x = from_codes(torch.arange(1 << fmt.bits), dtype)
    x = x[~x.isnan()]
    if len(x) > 256:
        g = torch.Generator().manual_seed(8)
        a, b = (x[torch.randint(len(x), (400_000,), generator=g)] for _ in range(2))
    else:
        a, b = (t.contiguous() for t in torch.broadcast_tensors(x[:, None], x[None]))
    found = [torch.full(a.shape, torch.nan) for _ in range(2)]
    library.to_the_ends.restype = ctypes.c_bool
    assert library.to_the_ends(
        fields(fmt), *map(argument, (a.float(), b.float(), *found, a.numel()))
    )
    for got, expected in zip(found, (a * b, a + b), strict=True):
        assert torch.equal(got, expected.float())


@pytest.mark.parametrize(
    "name", [*NARROW_POSITS, "posit16es2", "posit16es1", "posit16es0", "q43", "e5m6"]
)
def test_which_sums_float32_may_make(library, name):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    library.sums_in_float.restype = ctypes.c_bool
    if not library.sums_in_float(fields(fmt)):
        assert name == "posit16es1"
        return
    x = from_codes(torch.arange(1 << fmt.bits), dtype)
    some = (
        x
        if fmt.bits <= 8
        else x[torch.randperm(len(x), generator=torch.Generator().manual_seed(5))[:60]]
    )
    for y in some:
        same((x.float() + y.float()).to(dtype), x + y)


@pytest.mark.parametrize("name", [*NARROW, "posit32es2", "e8m23", "takum32_linear", "lns4_3"])
@pytest.mark.parametrize("mode", ["nearest_even", "up", "stochastic"])
def test_exact_sums(library, name, mode):
    a, b, start = with_infinity(matrices(torch_dtypes.dtype(name), 40))
    check_products(
        library,
        "exact",
        format_of(name, mode),
        (),
        (a, b, start),
        "exact",
        {},
        (None, None, 1),
        mode,
    )


def with_infinity(operands):
    a, b, _ = operands
    a[0, 0, :2], b[0, :2, 0] = 1, torch.tensor([float("inf"), 1.0]).to(a.dtype)
    return operands


@pytest.mark.parametrize("options", BLOCKS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("name", ["q43", "posit16es2", "e5m7", "e5m2", "posit8es1"])
def test_sums_by_blocks(library, name, options):
    mode = "stochastic" if "late" in options else "nearest_even"
    fmt = format_of(name, mode)
    a, b, start = with_infinity(matrices(torch_dtypes.dtype(name), 21))
    register = format_of(options.get("register", "e8m23"), options.get("rounding", "toward_zero"))
    late, smallest = options.get("late", -1), options.get("min_exponent", 1)
    align, limit = (
        int(rounding_mode(options.get("align", "toward_zero"))),
        options.get("product_limit", False),
    )
    numbers = (
        options["terms"],
        options["extra_bits"],
        align,
        options.get("interleave", 1),
        late,
        smallest,
        limit,
    )
    by_one, by_21 = (
        (fields(register), (ctypes.c_int64 * 8)(*numbers, divisor)) for divisor in (1, 21)
    )
    check_products(library, "blocks", fmt, by_one, (a, b, start), "block", options, mode=mode)
    one = sizes(2, 1, 21, 17)
    for call, kernel, given in (
        (lambda: b.cumsum(1), "running_blocks", (*by_one, one, b)),
        (lambda: b.mean(1), "blocks", (*by_21, one, None, b, None)),
    ):
        with torch_dtypes.accumulate("block", **options):
            expected = on_cpu(call, mode)
        run(
            library, kernel, fmt, *given, out := torch.empty(expected.shape, dtype=b.dtype), seeds()
        )
        same(out, expected)


def test_terms_that_are_not_there(library):
    """The holes of a strided transposed convolution are no zeros, which a sum of -0 would
    notice."""
    dtype = torch.q52
    fmt = format_of("q52")
    a, b, _ = matrices(dtype)
    start = torch.full((2, 3, 17), -0.0, dtype=dtype)
    present = torch.zeros(2, 9, 17, dtype=torch.uint8)
    present[:, 3:, 5:] = 1
    rows = torch.ones(2, 3, 9, dtype=torch.uint8)
    rows[:, :, 4] = 0
    shape = sizes(2, 3, 9, 17)
    out = torch.empty(2, 3, 17, dtype=dtype)
    keep = [3, 5, 6, 7, 8]
    with torch_dtypes.accumulate("format"):
        expected = torch.baddbmm(start, a[:, :, keep], b[:, keep])
    flags = flags_of({}, 0, True)
    run(
        library,
        "steps",
        fmt,
        fields(fmt),
        fields(fmt),
        flags,
        shape,
        a,
        b,
        start,
        present,
        rows,
        out,
        0,
    )
    same(out[:, :, 5:].contiguous(), expected[:, :, 5:].contiguous())
    assert (out[:, :, :5] == 0).all() and out[:, :, :5].signbit().all()
    run(library, "exact", fmt, shape, a, b, None, present, rows, 1, out, 0)
    with torch_dtypes.accumulate("exact"):
        same(
            out[:, :, 5:].contiguous(), torch.bmm(a[:, :, keep], b[:, keep])[:, :, 5:].contiguous()
        )


@pytest.mark.parametrize("options", [(0, 0), (1, 0), (0, 1)], ids=["plain", "fused", "kahan"])
def test_a_missing_term_takes_its_words(library, options):
    """Holes do not change the words drawn for later terms: a hole at the beginning acts like a
    product of 0."""
    fmt = format_of("posit16es2", "stochastic")
    a, b, _ = matrices(torch.posit16es2)
    shape, flags = sizes(2, 3, 9, 17), (ctypes.c_int64 * 8)(*options, 0, 1, 1, 0, 1, 0)
    present = torch.ones(2, 9, 17, dtype=torch.uint8)
    present[:, 0] = 0
    zero = b.clone()
    zero[:, 0] = 0
    found, expected = (
        torch.empty(2, 3, 17, dtype=torch.posit16es2),
        torch.empty(2, 3, 17, dtype=torch.posit16es2),
    )
    run(
        library,
        "steps",
        fmt,
        fields(fmt),
        fields(fmt),
        flags,
        shape,
        a,
        b,
        None,
        present,
        None,
        found,
        5,
    )
    run(
        library,
        "steps",
        fmt,
        fields(fmt),
        fields(fmt),
        flags,
        shape,
        a,
        zero,
        None,
        None,
        None,
        expected,
        5,
    )
    same(found, expected)


def test_a_chunk_without_terms_is_none(library):
    fmt = format_of("q52")
    a, b, _ = matrices(torch.q52)
    start, none = (
        torch.full((2, 3, 17), -0.0, dtype=torch.q52),
        torch.zeros(2, 9, 17, dtype=torch.uint8),
    )
    shape, flags = sizes(2, 3, 9, 17), flags_of({}, 3, True)
    out = torch.empty(2, 3, 17, dtype=torch.q52)
    run(
        library,
        "steps",
        fmt,
        fields(fmt),
        fields(fmt),
        flags,
        shape,
        a,
        b,
        start,
        none,
        None,
        out,
        0,
    )
    same(out, start)


def test_sums_without_products(library):
    fmt = format_of("posit16es2")
    x = torch.randn(2, 9, 17).to(torch.posit16es2)
    shape, flags = sizes(2, 1, 9, 17), (ctypes.c_int64 * 8)(0, 0, 0, 1, 9, 0, 1, 0)
    out = torch.empty(2, 17, dtype=torch.posit16es2)
    run(
        library,
        "steps",
        fmt,
        fields(fmt),
        fields(fmt),
        flags,
        shape,
        None,
        x,
        None,
        None,
        None,
        out,
        0,
    )
    with torch_dtypes.accumulate("format"):
        same(out, x.mean(1))
    run(library, "exact", fmt, shape, None, x, None, None, None, 9, out, 0)
    with torch_dtypes.accumulate("exact"):
        same(out, x.mean(1))
