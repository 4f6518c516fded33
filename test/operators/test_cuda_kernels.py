"""The GPU's kernels on the host against the CPU's operators, bit for bit; and by nvcc, where it is."""

import ctypes
import shutil
import subprocess
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from conftest import codes_of, from_codes
from host_kernels import (
    FORMATS,
    INCLUDES,
    KERNELS,
    NARROW,
    all_codes,
    argument,
    compiled,
    fields,
    format_of,
    numbers,
    run,
    same,
    seeds,
    values_for,
)
from oracle import binary, posit
from oracle_counts import assert_counts, bounds, counts
from oracle_fixed import Fixed
from spec_formats import by_name, dtype_of

import torch_dtypes
from torch_dtypes._arguments import rounding_mode

pytestmark = pytest.mark.own_process


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("cuda"))


@pytest.mark.parametrize("name", FORMATS)
def test_codes_to_numbers(library, name):
    x = all_codes(torch_dtypes.dtype(name))
    fmt = format_of(name)
    wide = torch.empty(len(x), dtype=torch.float64)
    run(library, "decode_double", fmt, x, wide, len(x))
    torch.testing.assert_close(wide, x.double(), rtol=0, atol=0, equal_nan=True)
    if fmt.fits_float:
        y = torch.empty(len(x))
        run(library, "decode_float", fmt, x, y, len(x))
        torch.testing.assert_close(y, x.float(), rtol=0, atol=0, equal_nan=True)


# By which numbers of 16 bits, and how many of them, a tensor core multiplies a format's.
PARTS = {
    "q43": (torch.float16, 1), "q52": (torch.float16, 1), "e5m5": (torch.float16, 1), "e5m7": (torch.float16, 1), "e8m4": (torch.bfloat16, 1),
    "posit8es0": (torch.float16, 1), "posit8es1": (torch.float16, 1), "posit8es2": (torch.bfloat16, 1), "e4m3fnuz": (torch.float16, 1),
    "posit16es1": (torch.bfloat16, 2), "posit16es2": (torch.bfloat16, 2), "fixed4_3": (torch.float16, 1), "takum16_linear": (None, 0),
    "e5m10": (torch.float16, 1), "e6m9": (None, 0), "e6m9finite": (torch.bfloat16, 2), "posit32es2": (None, 0), "lns4_3": (None, 0),
    "e8m0": (torch.bfloat16, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_codes_to_parts(library, name):
    """Every code: its number is the sum of its parts, which are exact."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    codes = from_codes(torch.arange(1 << min(fmt.bits, 16)), dtype).contiguous()
    first, second = (torch.zeros(len(codes), dtype=torch.int16) for _ in range(2))
    kind = torch.zeros(1, dtype=torch.int64)
    library.decode_parts.restype = ctypes.c_int64
    count = library.decode_parts(fields(fmt), *map(argument, (codes, first, second, kind, len(codes))))
    expected, expected_count = PARTS[name]
    assert count == expected_count
    if count:
        view = (torch.float16, torch.bfloat16)[kind.item()]
        assert view is expected
        total = first.view(view).double() + (second.view(view).double() if count == 2 else 0)
        torch.testing.assert_close(total, codes.double(), rtol=0, atol=0, equal_nan=True)


@numbers()
def test_numbers_to_codes(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    for kernel, values in (("encode_double", values_for(dtype)), ("encode_float", values_for(dtype).float())):
        out = torch.empty(len(values), dtype=dtype)
        torch.manual_seed(7)
        with torch_dtypes.rounding(mode):
            expected = values.to(dtype)
        run(library, kernel, fmt, values, out, len(values), seeds(7))
        same(out, expected)
        chopped = torch.empty_like(values)
        run(library, kernel.replace("encode", "chop"), fmt, values, chopped, len(values), seeds(7))
        torch.testing.assert_close(chopped, expected.to(values.dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in FORMATS if format_of(name).fits_float])
def test_several_tensors_at_once(library, name):
    """Each begins where the one before ends, so that most lie at places that packs of four do not."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    codes, values = all_codes(dtype), values_for(dtype).float()
    for ends in ([1], [3, 4, 700], [512, 512, 900, 4000], [1024, 2048]):
        n, places = ends[-1], torch.tensor(ends)
        decoded, encoded = torch.empty(n), torch.empty(n, dtype=dtype)
        run(library, "cast_floats", fmt, 0, codes, decoded, places, len(ends))
        torch.testing.assert_close(decoded, codes[:n].float(), rtol=0, atol=0, equal_nan=True)
        run(library, "cast_floats", fmt, 1, values, encoded, places, len(ends))
        same(encoded, values[:n].to(dtype))


@numbers("nearest_even", "up", "stochastic")
def test_a_row_is_added_to_a_matrix(library, name, mode):
    """The sum is float32's, and one rounding follows."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    if not fmt.fits_float:
        return
    for columns in (1, 7, 12):
        values = values_for(dtype).float()[: 36 * columns].contiguous()
        row = all_codes(dtype, 3)[:columns].contiguous()
        sums = (values.view(-1, columns) + row.float()).flatten()
        sums = torch.where(sums.isnan(), torch.nan, sums)
        torch.manual_seed(7)
        with torch_dtypes.rounding(mode):
            expected = sums.to(dtype)
        found = torch.empty_like(expected)
        run(library, "encode_with_row", fmt, values, row, columns, found, len(values), seeds(7))
        same(found, expected)


@pytest.mark.parametrize("name", [n for n in FORMATS if torch.zeros(1, dtype=torch_dtypes.dtype(n)).view(torch.uint8)[0] == 0])
def test_gates(library, name):
    """Codes as they are: NaN lets pass, and so does nothing at the threshold."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    for threshold in (0.0, 0.75, -1.0):
        codes, x = all_codes(dtype, 1), all_codes(dtype, 2)
        out = torch.empty_like(codes)
        run(library, "gate", fmt, codes, x, threshold, out, len(x))
        expected = torch.where(x.double() <= threshold, 0, codes_of(codes).long())
        assert torch.equal(codes_of(out).long(), expected)


@numbers("nearest_even", "up", "stochastic")
def test_integers_to_codes(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    g = torch.Generator().manual_seed(3)
    x = torch.randint(-(2**63), 2**63 - 1, (2000,), generator=g) >> torch.randint(0, 63, (2000,), generator=g)
    out = torch.empty(len(x), dtype=dtype)
    torch.manual_seed(5)
    with torch_dtypes.rounding(mode):
        expected = x.to(dtype)
    run(library, "encode_int64", fmt, x, out, len(x), seeds(5))
    same(out, expected)
    positive = x.abs()
    run(library, "encode_uint64", fmt, positive, out, len(x), seeds(5))
    torch.manual_seed(5)
    with torch_dtypes.rounding(mode):
        same(out, positive.to(dtype))


ARITHMETIC = [name for name in FORMATS if name != "fixed3_4_wrap"]


@pytest.mark.parametrize("mode", ["nearest_even", "down", "to_odd", "stochastic", "up_down"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    a, b, c = (all_codes(dtype, seed) for seed in (1, 2, 3))
    out = torch.empty_like(a)

    def expect(call):
        torch.manual_seed(11)
        with torch_dtypes.rounding(mode):
            return call()

    for op, call in enumerate((torch.add, torch.sub, torch.mul, torch.div)):
        run(library, "binary", fmt, op, a, b, out, len(a), seeds(11))
        same(out, expect(lambda call=call: call(a, b)))
    run(library, "square_root", fmt, a, out, len(a), seeds(11))
    same(out, expect(lambda: torch.sqrt(a)))
    for s in (1.0, 0.3):
        run(library, "ternary", fmt, 2, a, b, c, s, out, len(a), seeds(11))
        same(out, expect(lambda s=s: torch.addcmul(c, a, b, value=s)))
        run(library, "ternary", fmt, 1, a, b, c, s, out, len(a), seeds(11))
        same(out, expect(lambda s=s: torch.addcdiv(c, a, b, value=s)))


# What each instruction computes, of the registers a, b, c and its number; in the order of Do (Instructions.h).
INSTRUCTIONS = (
    lambda a, b, c, x: -a,
    lambda a, b, c, x: a.clone(),
    lambda a, b, c, x: torch.maximum(a, b),
    lambda a, b, c, x: a + x,
    lambda a, b, c, x: a * x,
    lambda a, b, c, x: a / x,
    lambda a, b, c, x: torch.add(a, b, alpha=x),
    lambda a, b, c, x: torch.lerp(a, b, x),
    lambda a, b, c, x: torch.addcmul(a, b, c, value=x),
    lambda a, b, c, x: torch.addcdiv(a, b, c, value=x),
    lambda a, b, c, x: torch.sqrt(a),
)
# Steps of optimizers as their registers have it (what, to, a, b, c, number): a parameter, its gradient, two states; from 5 on, between two steps.
PROGRAMS = {
    "sgd": [(6, 5, 1, 0, 0, 0.01), (4, 2, 2, 0, 0, 0.9), (6, 2, 2, 5, 0, 1.0), (6, 0, 0, 2, 0, -0.1)],
    "adam": [
        (0, 5, 1, 0, 0, 0.0), (7, 2, 2, 5, 0, 0.1), (4, 3, 3, 0, 0, 0.999), (8, 3, 3, 5, 5, 0.001), (2, 4, 4, 3, 0, 0.0), (10, 6, 4, 0, 0, 0.0),
        (5, 6, 6, 0, 0, 0.3), (3, 6, 6, 0, 0, 1e-3), (9, 0, 0, 2, 6, -0.01),
    ],
    "first": [(1, 2, 1, 0, 0, 0.0), (6, 0, 0, 2, 0, 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest_even", "down", "to_odd"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_programs(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    for steps in PROGRAMS.values():
        registers = [all_codes(dtype, seed, 2000) for seed in range(5)]
        if not torch.tensor(torch.inf).to(dtype).isinf():  # no operator makes an infinity: what passes one on may keep it, or saturate
            registers = [r.where(~r.isinf(), r.new_ones(())) for r in registers]
        ends = torch.tensor([1, 1000, 1003, 2000])
        given = torch.tensor([step[:5] for step in steps])
        found = [r.clone() for r in registers]
        memory = (ctypes.c_void_p * 5)(*(r.data_ptr() for r in found))
        numbers = torch.tensor([step[5] for step in steps], dtype=torch.float64)
        run(library, "programs", fmt, memory, 5, ends, len(ends), given, numbers, len(steps))
        expected = [*registers, None, None, None]
        with torch_dtypes.rounding(mode):
            for what, to, a, b, c, number in steps:
                expected[to] = INSTRUCTIONS[what](expected[a], expected[b], expected[c], number)
        for one, other in zip(found, expected, strict=False):
            same(one, other)


@pytest.mark.parametrize("name", [name for name in FORMATS if not format_of(name).table_address])
def test_the_next_numbers(library, name):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    a = all_codes(dtype, 1)
    towards = torch.cat([all_codes(dtype, 2, 3000), a[3000:]])
    towards[:5] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan]).to(dtype)
    out = torch.empty_like(a)
    run(library, "next_codes", fmt, a, a.double(), towards.double(), out, len(a))
    same(out, torch.nextafter(a, towards))


POLICIES = [
    ("format", {}),
    ("format", {"fused": True}),
    ("format", {"kahan": True}),
    ("chunked(3)", {}),
    ("chunked(4)", {"kahan": True}),
    ("format", {"accumulator": "e5m10", "product": "e5m7"}),
    ("format", {"rounding": "down"}),
    ("format", {"rounding": "stochastic"}),
    ("format", {"fused": True, "rounding": "up_down"}),
    ("format", {"order": "pairwise"}),
    ("format", {"order": "tree", "rounding": "stochastic"}),
    ("format", {"order": "lanes(4)", "kahan": True}),
    ("format", {"order": "lanes(3)", "fused": True, "rounding": "stochastic"}),
]
BLOCKS = [
    {"terms": 4, "extra_bits": 1},
    {"terms": 4, "extra_bits": 2, "align": "nearest_even", "rounding": "stochastic"},
    {"terms": 8, "extra_bits": 1, "interleave": 2, "late": 3, "min_exponent": -20, "register": "e8m13"},
    {"terms": 3, "extra_bits": 0, "interleave": 3, "register": "e5m6", "rounding": "nearest_even", "product_limit": True},
]


def order_of(options) -> tuple[int, int]:
    name, _, lanes = options.get("order", "sequential").partition("(")
    return ["sequential", "pairwise", "tree", "lanes"].index(name), int(lanes.removesuffix(")") or 1)


def flags_of(options, chunk: int, in_float: bool) -> ctypes.Array:
    fused, kahan, exact_product = options.get("fused", False), options.get("kahan", False), options.get("product") == "exact"
    return (ctypes.c_int64 * 8)(fused, kahan, chunk, in_float, 1, *order_of(options), exact_product)


def matrices(dtype, k=9, m=3, n=17, spread=(-6, 3)):
    g = torch.Generator().manual_seed(4)
    shapes = (2, m, k), (2, k, n), (2, m, n)
    return [(torch.randn(s, generator=g) * torch.exp2(torch.randint(*spread, s, generator=g))).to(dtype) for s in shapes]


@pytest.mark.parametrize(("policy", "options"), POLICIES)
@pytest.mark.parametrize("name", NARROW)
def test_sums_rounded_at_every_step(library, name, policy, options):
    dtype = torch_dtypes.dtype(name)
    a, b, start = matrices(dtype)
    fmt, steps = torch_dtypes.format_of(dtype), {}
    for what in ("product", "accumulator"):
        steps[what] = torch_dtypes.format_of(torch_dtypes.dtype(options.get(what, name)))
        if "rounding" in options:
            steps[what].rounding = rounding_mode(options["rounding"])
    chunk = int(policy.removeprefix("chunked(").removesuffix(")")) if policy != "format" else 0
    flags = flags_of(options, chunk, fmt.fits_float)
    shape = (ctypes.c_int64 * 4)(2, 3, a.shape[2], 17)
    for first in (None, start):
        out = torch.empty(2, 3, 17, dtype=dtype)
        torch.manual_seed(13)
        with torch_dtypes.accumulate(policy, **options):
            expected = torch.bmm(a, b) if first is None else torch.baddbmm(first, a, b)
        arguments = (fields(steps["product"]), fields(steps["accumulator"]), flags, shape, a, b, first, None, None, out, seeds(13))
        run(library, "steps", fmt, *arguments)
        same(out, expected)


NARROW_POSITS = ["posit8es0", "posit8es1", "posit8es2", "posit10es1", "posit12es1"]
# Of the tiles that several results share: every way of rounding by magic numbers; operands that leave it (overflow, long regimes, NaN).
TILES = [
    ("q43", {}), ("q43", {"product": "e5m5"}), ("q43", {"product": "exact"}), ("q43", {"accumulator": "e3m2"}), ("e5m10", {}),
    ("e4m3fn_saturate", {}), ("e4m3fnuz", {"accumulator": "e5m9"}), ("e2m1finite", {"product": "exact", "accumulator": "e4m3"}),
    ("e5m14", {}), ("e2m12", {}),
    ("posit8es0", {}), ("posit8es2", {}), ("posit12es1", {}), ("posit16es1", {}), ("posit16es2", {}), ("posit8es1", {"accumulator": "posit12es1"}),
    ("posit16es2", {"product": "exact"}), ("posit10es2", {"product": "posit16es2", "accumulator": "posit10es2"}),
    ("q43", {"accumulator": "fp32"}), ("e5m10", {"accumulator": "fp32"}), ("e2m12", {"accumulator": "fp32"}), ("e4m3fnuz", {"accumulator": "fp32"}),
    ("q43", {"product": "exact", "accumulator": "fp32"}), ("posit16es2", {"product": "exact", "accumulator": "fp32"}),
    ("posit8es2", {"accumulator": "fp32"}), ("posit16es2", {"accumulator": "fp32"}), ("posit16es1", {"accumulator": "fp32"}),
    ("q43_toward_zero", {"product": "q43_toward_zero", "accumulator": "fp32"}),
    ("q43", {"chunk": 8}), ("e5m10", {"chunk": 16}), ("e4m3fn", {"chunk": 7}), ("q43", {"chunk": 2, "product": "exact", "accumulator": "e5m9"}),
    ("posit8es1", {"chunk": 13}), ("posit16es2", {"chunk": 40}), ("posit16es1", {"chunk": 1}), ("posit16es2", {"chunk": 10, "product": "exact"}),
    ("posit8es0", {"chunk": 64, "accumulator": "posit12es1"}), ("q43", {"chunk": 4, "accumulator": "fp32"}),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "spread"), [(3, 17, (-12, 9)), (3, 17, (-4, 1)), (8205, 131, (-6, 5))])
@pytest.mark.parametrize(("name", "options"), TILES)
def test_sums_in_tiles(library, name, options, m, n, spread):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    k = 40 if m == 3 else 5
    a, b, start = matrices(dtype, k, m, n, spread)
    start[:, :, 3], b[:, :, 3] = -0.0, -abs(b[:, :, 3]) * 0
    a[:, 0] = abs(a[:, 0])
    a[0, 1, 2] = float("nan")
    start[0, 1, 5] = float("inf")
    names = [options.get(what, name).replace("exact", name) for what in ("product", "accumulator")]
    product, accumulator = (fields(torch_dtypes.format_of(torch_dtypes.dtype(x))) for x in names)
    shape = (ctypes.c_int64 * 4)(2, m, k, n)
    for first in (None, start):
        out = torch.empty(2, m, n, dtype=dtype)
        with torch_dtypes.accumulate("chunked" if "chunk" in options else "format", **options):
            expected = torch.bmm(a, b) if first is None else torch.baddbmm(first, a, b)
        run(library, "steps", fmt, product, accumulator, flags_of(options, options.get("chunk", 0), True), shape, a, b, first, None, None, out, 0)
        same(out, expected)


@pytest.mark.parametrize("name", [*NARROW_POSITS, "posit16es2", "posit16es1", "posit16es0", "q43", "e5m6"])
def test_which_sums_float32_may_make(library, name):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    library.sums_in_float.restype = ctypes.c_bool
    if not library.sums_in_float(fields(fmt)):
        assert name == "posit16es1"
        return
    x = from_codes(torch.arange(1 << fmt.bits), dtype)
    some = x if fmt.bits <= 8 else x[torch.randperm(len(x), generator=torch.Generator().manual_seed(5))[:60]]
    for y in some:
        same((x.float() + y.float()).to(dtype), x + y)


MAGIC = [
    "q43", "q52", "e5m10", "e8m7", "e2m1finite", "e4m3fn", "e4m3fn_saturate", "e1m2finite", "e5m7", "e3m4", "posit8es0", "posit8es2", "posit10es1",
    "posit12es1", "posit16es0", "posit16es1", "posit16es2", "posit16es3", "posit6es1", "posit2es0", "posit16es2_saturate",
]  # fmt: skip


@pytest.mark.parametrize("name", MAGIC)
def test_codes_by_magic_numbers(library, name):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    values = from_codes(torch.arange(1 << fmt.bits), dtype).double()
    values = values[values.isfinite()].sort().values.unique()
    middles = (values[1:] + values[:-1]) / 2
    near = torch.cat([values, middles]).float()
    near = torch.cat([near, torch.nextafter(near, torch.tensor(torch.inf)), torch.nextafter(near, torch.tensor(-torch.inf)), near * 1.3])
    drawn = torch.randint(-(2**31), 2**31, (300_000,), generator=torch.Generator().manual_seed(6)).int().view(torch.float32)
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 1.1754943e-38, 3.4028235e38])
    x = torch.cat([near, drawn, ends])
    found = torch.empty(len(x), dtype=torch.int64)
    library.magic_codes(fields(fmt), argument(x), argument(found), argument(len(x)))
    known = found >= 0
    expected = codes_of(x.to(dtype)).long() & ((1 << 8 * dtype.itemsize) - 1)
    assert torch.equal(found[known], expected[known])
    within = (x.abs() <= values.max().float() / 4) & (x.abs() >= 4 / values.max().float()) | (x == 0)
    assert known[within].float().mean() > (0.9 if fmt.bits > 8 else 0.5 if fmt.bits > 2 else 0)


@pytest.mark.parametrize(
    "name",
    [*MAGIC, "e8m4", "e5m10fn", "e7m8", "e2m13", "e3m2", "posit9es4", "posit3es2", "e6m9finite", "fixed4_3", "e4m11fnuz"],
)
def test_numbers_of_16_bit_codes(library, name):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    expected = from_codes(torch.arange(1 << fmt.bits), dtype).float()
    library.quick_numbers.restype = ctypes.c_bool
    found = [torch.empty_like(expected) for _ in range(2)]
    if not library.quick_numbers(fields(fmt), *map(argument, found), argument(len(expected))):
        assert name in ("fixed4_3", "e4m11fnuz")
        return
    for x in found:
        torch.testing.assert_close(x, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(x.signbit()[x == 0], expected.signbit()[x == 0])


@pytest.mark.parametrize("op", [0, 1, 2], ids=["sum", "product", "fused"])
def test_odd_neighbours(library, op):
    g = torch.Generator().manual_seed(3)
    n = 200_000
    numbers = [torch.randn(n, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-60, 60, (n,), generator=g)) for _ in range(3)]
    numbers = [torch.cat([x.float().double()[: n // 2], x[n // 2 :]]) for x in numbers]
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 5e-324, torch.finfo(torch.float64).max], dtype=torch.float64)
    terms = ends[ends != 5e-324] if op == 2 else ends  # what is added to a product is 0 or far above one that underflows
    numbers = [torch.cat([x, e]) for x, e in zip(numbers, torch.cartesian_prod(ends, ends, terms).unbind(1), strict=True)]
    library.other_odd_neighbours.restype = ctypes.c_int64
    assert library.other_odd_neighbours(op, *map(argument, numbers), argument(len(numbers[0]))) == 0


@pytest.mark.parametrize("name", [*NARROW, "posit32es2", "e8m23", "posit32es5_regime6", "lns4_3"])
@pytest.mark.parametrize("mode", ["nearest_even", "up", "stochastic"])
def test_exact_sums(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    a, b, start = matrices(dtype, 40)
    a[0, 0, :2], b[0, :2, 0] = 1, torch.tensor([float("inf"), 1.0]).to(dtype)
    shape = (ctypes.c_int64 * 4)(2, 3, 40, 17)
    for first in (None, start):
        out = torch.empty(2, 3, 17, dtype=dtype)
        torch.manual_seed(17)
        with torch_dtypes.accumulate("exact"), torch_dtypes.rounding(mode):
            expected = torch.bmm(a, b) if first is None else torch.baddbmm(first, a, b)
        run(library, "exact", fmt, shape, a, b, first, None, None, 1, out, seeds(17))
        same(out, expected)


@pytest.mark.parametrize("options", BLOCKS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("name", ["q43", "posit16es2", "e5m7", "e5m2", "posit8es1"])
def test_sums_by_blocks(library, name, options):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, "stochastic" if "late" in options else "nearest_even")
    a, b, start = matrices(dtype, 21)
    register = format_of(options.get("register", "e8m23"), options.get("rounding", "toward_zero"))
    late, smallest = options.get("late", -1), options.get("min_exponent", 1)
    align, limit = int(rounding_mode(options.get("align", "toward_zero"))), options.get("product_limit", False)
    numbers = (options["terms"], options["extra_bits"], align, options.get("interleave", 1), late, smallest, limit)
    shape = (ctypes.c_int64 * 4)(2, 3, 21, 17)
    a[0, 0, :2], b[0, :2, 0] = 1, torch.tensor([float("inf"), 1.0]).to(dtype)
    with torch_dtypes.accumulate("block", **options), torch_dtypes.rounding("stochastic" if "late" in options else "nearest_even"):
        for first in (None, start):
            out = torch.empty(2, 3, 17, dtype=dtype)
            torch.manual_seed(19)
            expected = torch.bmm(a, b) if first is None else torch.baddbmm(first, a, b)
            run(library, "blocks", fmt, fields(register), (ctypes.c_int64 * 8)(*numbers, 1), shape, a, b, first, out, seeds(19))
            same(out, expected)
        out = torch.empty_like(b)
        torch.manual_seed(19)
        expected = b.cumsum(1)
        one = (ctypes.c_int64 * 4)(2, 1, 21, 17)
        run(library, "running_blocks", fmt, fields(register), (ctypes.c_int64 * 8)(*numbers, 1), one, b, out, seeds(19))
        same(out, expected)
        mean = torch.empty(2, 17, dtype=dtype)
        torch.manual_seed(19)
        expected = b.mean(1)
        run(library, "blocks", fmt, fields(register), (ctypes.c_int64 * 8)(*numbers, 21), one, None, b, None, mean, seeds(19))
        same(mean, expected)


def test_terms_that_are_not_there(library):
    """The holes of a strided transposed convolution: no zeros, which a sum of -0 would notice."""
    dtype = torch.q52
    fmt = format_of("q52")
    a, b, _ = matrices(dtype)
    start = torch.full((2, 3, 17), -0.0, dtype=dtype)
    present = torch.zeros(2, 9, 17, dtype=torch.uint8)
    present[:, 3:, 5:] = 1
    rows = torch.ones(2, 3, 9, dtype=torch.uint8)
    rows[:, :, 4] = 0
    shape = (ctypes.c_int64 * 4)(2, 3, 9, 17)
    out = torch.empty(2, 3, 17, dtype=dtype)
    keep = [3, 5, 6, 7, 8]
    with torch_dtypes.accumulate("format"):
        expected = torch.baddbmm(start, a[:, :, keep], b[:, keep])
    flags = flags_of({}, 0, True)
    run(library, "steps", fmt, fields(fmt), fields(fmt), flags, shape, a, b, start, present, rows, out, 0)
    same(out[:, :, 5:].contiguous(), expected[:, :, 5:].contiguous())
    assert (out[:, :, :5] == 0).all() and out[:, :, :5].signbit().all()
    run(library, "exact", fmt, shape, a, b, None, present, rows, 1, out, 0)
    with torch_dtypes.accumulate("exact"):
        same(out[:, :, 5:].contiguous(), torch.bmm(a[:, :, keep], b[:, keep])[:, :, 5:].contiguous())


@pytest.mark.parametrize("options", [(0, 0), (1, 0), (0, 1)], ids=["plain", "fused", "kahan"])
def test_a_missing_term_takes_its_words(library, options):
    """What is drawn for later terms does not depend on holes: a hole at the beginning is as good as a product of 0."""
    fmt = format_of("posit16es2", "stochastic")
    a, b, _ = matrices(torch.posit16es2)
    shape, flags = (ctypes.c_int64 * 4)(2, 3, 9, 17), (ctypes.c_int64 * 8)(*options, 0, 1, 1, 0, 1, 0)
    present = torch.ones(2, 9, 17, dtype=torch.uint8)
    present[:, 0] = 0
    zero = b.clone()
    zero[:, 0] = 0
    found, expected = torch.empty(2, 3, 17, dtype=torch.posit16es2), torch.empty(2, 3, 17, dtype=torch.posit16es2)
    run(library, "steps", fmt, fields(fmt), fields(fmt), flags, shape, a, b, None, present, None, found, 5)
    run(library, "steps", fmt, fields(fmt), fields(fmt), flags, shape, a, zero, None, None, None, expected, 5)
    same(found, expected)


def test_a_chunk_without_terms_is_none(library):
    fmt = format_of("q52")
    a, b, _ = matrices(torch.q52)
    start, none = torch.full((2, 3, 17), -0.0, dtype=torch.q52), torch.zeros(2, 9, 17, dtype=torch.uint8)
    shape, flags = (ctypes.c_int64 * 4)(2, 3, 9, 17), flags_of({}, 3, True)
    out = torch.empty(2, 3, 17, dtype=torch.q52)
    run(library, "steps", fmt, fields(fmt), fields(fmt), flags, shape, a, b, start, none, None, out, 0)
    same(out, start)


def test_sums_without_products(library):
    fmt = format_of("posit16es2")
    x = torch.randn(2, 9, 17).to(torch.posit16es2)
    shape, flags = (ctypes.c_int64 * 4)(2, 1, 9, 17), (ctypes.c_int64 * 8)(0, 0, 0, 1, 9, 0, 1, 0)
    out = torch.empty(2, 17, dtype=torch.posit16es2)
    run(library, "steps", fmt, fields(fmt), fields(fmt), flags, shape, None, x, None, None, None, out, 0)
    with torch_dtypes.accumulate("format"):
        same(out, x.mean(1))
    run(library, "exact", fmt, shape, None, x, None, None, None, 9, out, 0)
    with torch_dtypes.accumulate("exact"):
        same(out, x.mean(1))


def test_launches_that_are_recorded(library):
    """A CUDA graph's launches draw by the seed and the offset in device memory, which each run of the graph moves on."""
    fmt = format_of("posit16es2", "stochastic")
    dtype, generic = torch.posit16es2, "fixed3_4_wrap"
    a, b, _ = matrices(dtype)
    shape, flags = (ctypes.c_int64 * 4)(2, 3, 9, 17), flags_of({}, 0, True)
    register, numbers = format_of("e5m6", "stochastic"), (ctypes.c_int64 * 8)(4, 2, int(rounding_mode("nearest_even")), 1, -1, 1, 0, 1)
    x = torch.randn(500, generator=torch.Generator().manual_seed(2))

    def results(seed: int) -> list[torch.Tensor]:
        calls = [
            ("encode_float", fmt, torch.empty(500, dtype=dtype), lambda out: (x, out, 500)),
            ("encode_float", format_of(generic, "stochastic"), torch.empty(500, dtype=torch_dtypes.dtype(generic)), lambda out: (x, out, 500)),
            ("chop_and_flip", fmt, torch.empty(500), lambda out: (x, out, 500, 0.5)),
            ("binary", fmt, torch.empty_like(a), lambda out: (0, a, a * 0.3, out, a.numel())),
            ("steps", fmt, torch.empty(2, 3, 17, dtype=dtype), lambda out: (fields(fmt), fields(fmt), flags, shape, a, b, None, None, None, out)),
            ("exact", fmt, torch.empty(2, 3, 17, dtype=dtype), lambda out: (shape, a, b, None, None, None, 1, out)),
            ("blocks", fmt, torch.empty(2, 3, 17, dtype=dtype), lambda out: (fields(register), numbers, shape, a, b, None, out)),
            ("running_blocks", fmt, torch.empty_like(b), lambda out: (fields(register), numbers, (ctypes.c_int64 * 4)(2, 1, 9, 17), b, out)),
        ]  # fmt: skip
        for name, form, out, rest in calls:
            run(library, name, form, *rest(out), seed)
        return [out for _, _, out, _ in calls]

    library.record.restype = ctypes.c_uint64
    runs = []
    try:
        for offset in (0, 40):
            number = library.record(ctypes.c_int64(77), ctypes.c_int64(offset))
            runs.append(results(seed=0))
            library.stop()
            for found, expected in zip(runs[-1], results(number), strict=True):
                assert torch.equal(found, expected)
    finally:
        library.stop()
    assert not any(torch.equal(first, second) for first, second in zip(*runs, strict=True))


# ---- what is observed ----

FLAGS = "nan_in infinite_in zero_in nan_made overflow saturated underflow to_zero subnormal zeros inexact".split()


@by_name([posit(16, 2), posit(8, 1), binary(4, 3), binary(5, 2), binary(4, 3, specials="fn"), Fixed(4, 3)])
@pytest.mark.parametrize("type_", [torch.float32, torch.float64])
def test_counts(library, spec, type_):
    dtype = dtype_of(spec)
    exact = values_for(dtype).to(type_)
    x = exact.double().numpy()
    expected = counts(spec, x)
    limits = torch.tensor([float(b) for b in bounds(spec)], dtype=torch.float64)
    table = torch.zeros(len(FLAGS) + 3 * 2048, dtype=torch.int64)
    wide = int(type_ is torch.float64)
    for rounded, coded in ((exact.to(dtype), 1), (exact.to(dtype).to(type_), 0)):
        run(library, "count", torch_dtypes.format_of(dtype), limits, exact, wide, rounded, coded, len(x), table)
        flags, (elements, squares, errors) = table[: len(FLAGS)].tolist(), table[len(FLAGS) :].view(3, 2048).tolist()
        units = [Fraction(4) ** (field - 1023) / 2**22 for field in range(2047)] + [0]  # and what is not finite
        of = {field - 1023: n for field, n in enumerate(elements[:2047]) if n}
        zeros = of.pop(-1023)
        assert zeros == flags[FLAGS.index("zero_in")] == int((x == 0).sum())
        found = SimpleNamespace(
            **dict(zip(FLAGS, flags, strict=True)), elements=sum(elements), exponents=of,
            signal=sum(n * u for n, u in zip(squares, units, strict=True)), noise=sum(n * u for n, u in zip(errors, units, strict=True)),
        )  # fmt: skip
        assert_counts(found, expected)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("source", sorted(p.name for p in KERNELS.glob("*.cu")))
def test_nvcc_compiles_them(source, tmp_path):
    """For the oldest architecture, without a GPU and without PyTorch; warnings are errors."""
    options = ["-std=c++20", "--expt-relaxed-constexpr", "-fmad=false", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra", "-arch=compute_75"]
    command = ["nvcc", *options, *INCLUDES, "-ptx", str(KERNELS / source), "-o", str(tmp_path / "kernel.ptx")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
