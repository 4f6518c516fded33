"""Launches of the GPU's kernels that a CUDA graph records, counts that kernels take of a tensor,
and a compilation by nvcc where it is installed."""

# ruff: noqa: F811 (a fixture that is imported)

import ctypes
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch
from host_kernels import (
    INCLUDES,
    KERNELS,
    fields,
    flags_of,
    format_of,
    library,  # noqa: F401 (a fixture)
    matrices,
    run,
    values_for,
)
from oracle import binary, posit
from oracle_counts import assert_counts, bounds, counts
from oracle_fixed import Fixed
from rationals import Fraction
from spec_formats import by_name, dtype_of

import torch_dtypes
from torch_dtypes.formats.arguments import rounding_mode

pytestmark = pytest.mark.whole  # compiling the kernels takes most of a minute


def test_launches_that_are_recorded(library):
    """Launches in a CUDA graph draw with the seed and the offset in device memory. Each run of the
    graph advances the offset."""
    fmt = format_of("posit16es2", "stochastic")
    dtype, generic = torch.posit16es2, "fixed3_4_wrap"
    a, b, _ = matrices(dtype)
    shape, flags = (ctypes.c_int64 * 4)(2, 3, 9, 17), flags_of({}, 0, True)
    register, numbers = (
        format_of("e5m6", "stochastic"),
        (ctypes.c_int64 * 8)(4, 2, int(rounding_mode("nearest_even")), 1, -1, 1, 0, 1),
    )
    x = torch.randn(500, generator=torch.Generator().manual_seed(2))

    def results(seed: int) -> list[torch.Tensor]:
        calls = [
            ("encode_float", fmt, torch.empty(500, dtype=dtype), lambda out: (x, out, 500)),
            (
                "encode_float",
                format_of(generic, "stochastic"),
                torch.empty(500, dtype=torch_dtypes.dtype(generic)),
                lambda out: (x, out, 500),
            ),
            ("chop_and_flip", fmt, torch.empty(500), lambda out: (x, out, 500, 0.5)),
            ("binary", fmt, torch.empty_like(a), lambda out: (0, a, a * 0.3, out, a.numel())),
            (
                "steps",
                fmt,
                torch.empty(2, 3, 17, dtype=dtype),
                lambda out: (fields(fmt), fields(fmt), flags, shape, a, b, None, None, None, out),
            ),
            (
                "exact",
                fmt,
                torch.empty(2, 3, 17, dtype=dtype),
                lambda out: (shape, a, b, None, None, None, 1, out),
            ),
            (
                "blocks",
                fmt,
                torch.empty(2, 3, 17, dtype=dtype),
                lambda out: (fields(register), numbers, shape, a, b, None, out),
            ),
            (
                "running_blocks",
                fmt,
                torch.empty_like(b),
                lambda out: (fields(register), numbers, (ctypes.c_int64 * 4)(2, 1, 9, 17), b, out),
            ),
        ]
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


FLAGS = (
    "nan_in infinite_in zero_in nan_made overflow saturated underflow to_zero subnormal zeros "
    "inexact"
).split()


@by_name(
    [
        posit(16, 2),
        posit(8, 1),
        binary(4, 3),
        binary(5, 2),
        binary(4, 3, specials="fn"),
        Fixed(4, 3),
    ]
)
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
        run(
            library,
            "count",
            torch_dtypes.format_of(dtype),
            limits,
            exact,
            wide,
            rounded,
            coded,
            len(x),
            table,
        )
        flags, (elements, squares, errors) = (
            table[: len(FLAGS)].tolist(),
            table[len(FLAGS) :].view(3, 2048).tolist(),
        )
        # Values that are not finite count too.
        units = [Fraction(4) ** (field - 1023) / 2**22 for field in range(2047)] + [0]
        of = {field - 1023: n for field, n in enumerate(elements[:2047]) if n}
        zeros = of.pop(-1023)
        assert zeros == flags[FLAGS.index("zero_in")] == int((x == 0).sum())
        found = SimpleNamespace(
            **dict(zip(FLAGS, flags, strict=True)),
            elements=sum(elements),
            exponents=of,
            signal=sum(n * u for n, u in zip(squares, units, strict=True)),
            noise=sum(n * u for n, u in zip(errors, units, strict=True)),
        )
        assert_counts(found, expected)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("source", sorted(p.name for p in KERNELS.glob("*.cu")))
def test_nvcc_compiles_them(source, tmp_path):
    """Compile for the oldest architecture, without a GPU and without PyTorch; warnings are
    errors."""
    options = [
        "-std=c++20",
        "--expt-relaxed-constexpr",
        "-fmad=false",
        "-Werror",
        "all-warnings",
        "-Xcompiler",
        "-Wall,-Wextra",
        "-arch=compute_75",
    ]
    command = [
        "nvcc",
        *options,
        *INCLUDES,
        "-ptx",
        str(KERNELS / source),
        "-o",
        str(tmp_path / "kernel.ptx"),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
