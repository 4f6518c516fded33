"""Casts by the GPU's kernels, run on the host and compared with the CPU's operators bit for bit."""

# ruff: noqa: F811 (a fixture that is imported)

import ctypes

import pytest
import torch
from conftest import codes_of, from_codes
from host_kernels import (
    FORMATS,
    PARTS,
    all_codes,
    argument,
    fields,
    format_of,
    library,  # noqa: F401 (a fixture)
    numbers,
    on_cpu,
    run,
    same,
    seeds,
    values_for,
)

import torch_dtypes

pytestmark = pytest.mark.whole  # compiling the kernels takes most of a minute


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


@pytest.mark.parametrize("name", PARTS)
def test_codes_to_parts(library, name):
    """For every code, the value is the sum of its parts, which are exact. Two tensors at a time;
    packs of four may begin and end in them."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    codes = from_codes(torch.arange(1 << min(fmt.bits, 16)), dtype).contiguous()
    library.decode_parts.restype = ctypes.c_int64
    for apart, n in ((84, len(codes)), (84, len(codes) - 1), (85, len(codes))):
        first, second = (torch.zeros(len(codes), dtype=torch.int16) for _ in range(2))
        kind = torch.zeros(1, dtype=torch.int64)
        count = library.decode_parts(
            fields(fmt), *map(argument, (codes, first, second, kind, min(apart, n), n))
        )
        expected, expected_count = PARTS[name]
        assert count == expected_count
        if count:
            view = (torch.float16, torch.bfloat16)[kind.item()]
            assert view is expected
            total = first.view(view).double() + (second.view(view).double() if count == 2 else 0)
            torch.testing.assert_close(
                total[:n], codes[:n].double(), rtol=0, atol=0, equal_nan=True
            )
            assert not first[n:].any()


@numbers()
def test_numbers_to_codes(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    for kernel, values in (
        ("encode_double", values_for(dtype)),
        ("encode_float", values_for(dtype).float()),
    ):
        out = torch.empty(len(values), dtype=dtype)
        expected = on_cpu(lambda: values.to(dtype), mode)  # noqa: B023
        run(library, kernel, fmt, values, out, len(values), seeds())
        same(out, expected)
        chopped = torch.empty_like(values)
        run(library, kernel.replace("encode", "chop"), fmt, values, chopped, len(values), seeds())
        torch.testing.assert_close(
            chopped, expected.to(values.dtype), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("name", [name for name in FORMATS if format_of(name).fits_float])
def test_several_tensors_at_once(library, name):
    """Each tensor begins where the one before ends, so that most are not aligned to packs of
    four."""
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
    """The sum is computed in float32 and rounded once."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    if not fmt.fits_float:
        return
    for columns in (1, 7, 12):
        values = values_for(dtype).float()[: 36 * columns].contiguous()
        row = all_codes(dtype, 3)[:columns].contiguous()
        sums = (values.view(-1, columns) + row.float()).flatten()
        sums = torch.where(sums.isnan(), torch.nan, sums)
        expected = on_cpu(lambda: sums.to(dtype), mode)  # noqa: B023
        found = torch.empty_like(expected)
        run(library, "encode_with_row", fmt, values, row, columns, found, len(values), seeds())
        same(found, expected)


@pytest.mark.parametrize(
    "name",
    [n for n in FORMATS if torch.zeros(1, dtype=torch_dtypes.dtype(n)).view(torch.uint8)[0] == 0],
)
def test_gates(library, name):
    """Codes pass unchanged. NaN opens a gate; a number at the threshold closes it."""
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
    x = torch.randint(-(2**63), 2**63 - 1, (2000,), generator=g) >> torch.randint(
        0, 63, (2000,), generator=g
    )
    out = torch.empty(len(x), dtype=dtype)
    for kernel, given in (("encode_int64", x), ("encode_uint64", x.abs())):
        run(library, kernel, fmt, given, out, len(x), seeds())
        same(out, on_cpu(lambda: given.to(dtype), mode))  # noqa: B023


MAGIC = [
    "q43",                 "q52",                 "e5m10",               "e8m7",
    "e2m1finite",          "e4m3fn",              "e4m3fn_saturate",     "e1m2finite",
    "e5m7",                "e3m4",                "posit8es0",           "posit8es2",
    "posit10es1",          "posit12es1",          "posit16es0",          "posit16es1",
    "posit16es2",          "posit16es3",          "posit6es1",           "posit2es0",
    "posit16es2_saturate",
]  # fmt: skip


@pytest.mark.parametrize("name", MAGIC)
def test_codes_by_magic_numbers(library, name):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    values = from_codes(torch.arange(1 << fmt.bits), dtype).double()
    values = values[values.isfinite()].sort().values.unique()
    middles = (values[1:] + values[:-1]) / 2
    near = torch.cat([values, middles]).float()
    near = torch.cat(
        [
            near,
            torch.nextafter(near, torch.tensor(torch.inf)),
            torch.nextafter(near, torch.tensor(-torch.inf)),
            near * 1.3,
        ]
    )
    drawn = (
        torch.randint(-(2**31), 2**31, (300_000,), generator=torch.Generator().manual_seed(6))
        .int()
        .view(torch.float32)
    )
    ends = torch.tensor(
        [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 1.1754943e-38, 3.4028235e38]
    )
    x = torch.cat([near, drawn, ends])
    found = torch.empty(len(x), dtype=torch.int64)
    library.codes_by_addition(fields(fmt), argument(x), argument(found), argument(len(x)))
    known = found >= 0
    expected = codes_of(x.to(dtype)).long() & ((1 << 8 * dtype.itemsize) - 1)
    assert torch.equal(found[known], expected[known])
    within = (x.abs() <= values.max().float() / 4) & (x.abs() >= 4 / values.max().float()) | (
        x == 0
    )
    least = 0.5 if fmt.bits > 2 else 0
    assert known[within].float().mean() > (0.9 if fmt.bits > 8 else least)


@pytest.mark.parametrize(
    "name",
    [
        *MAGIC,
        "e8m4",
        "e5m10fn",
        "e7m8",
        "e2m13",
        "e3m2",
        "posit9es4",
        "posit3es2",
        "e6m9finite",
        "fixed4_3",
        "e4m11fnuz",
    ],
)
def test_numbers_of_16_bit_codes(library, name):
    dtype = torch_dtypes.dtype(name)
    fmt = torch_dtypes.format_of(dtype)
    expected = from_codes(torch.arange(1 << fmt.bits), dtype).float()
    library.packed_numbers.restype = ctypes.c_bool
    found = [torch.empty_like(expected) for _ in range(2)]
    if not library.packed_numbers(fields(fmt), *map(argument, found), argument(len(expected))):
        assert name in ("fixed4_3", "e4m11fnuz")
        return
    for x in found:
        torch.testing.assert_close(x, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(x.signbit()[x == 0], expected.signbit()[x == 0])
