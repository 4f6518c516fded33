"""The GPU's kernels, compiled for the host (their grid is a loop), and inputs for their tests."""

import ctypes
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import codes_of, from_codes
from filelock import FileLock
from workers import SESSION

import torch_dtypes
from torch_dtypes.formats.arguments import rounding_mode

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "aten/src/ATen/native/formats/cuda"
INCLUDES = [f"-I{ROOT}", f"-I{ROOT / 'aten/src'}"]

FORMATS = [
    "posit8es0",          "posit8es2",          "posit16es2",         "posit32es2",
    "q43",                "q52",                "tf32",               "e5m5",
    "e8m4",               "e4m3fn",             "e2m1finite",         "e4m3fnuz",
    "binary8p3se",        "fixed4_3",           "ufixed8_8",          "posit12es1",
    "e5m2_saturate",      "e8m23",              "fixed3_4_wrap",      "takum24_linear",
    "posit16es5_regime6", "takum16_linear",     "hif8",               "e8m0",
    "ue5m3",              "posit16es2_regime6",
]  # fmt: skip
NARROW = ["posit8es1", "posit16es2", "q52", "e5m7", "e4m3fn_saturate", "fixed4_3", "takum8_linear"]
# The 16-bit dtype, and the number of its values, by which a tensor core multiplies a format's
# values.
PARTS = {
    "q43": (torch.float16, 1),         "q52": (torch.float16, 1),
    "e5m5": (torch.float16, 1),        "e5m7": (torch.float16, 1),
    "e8m4": (torch.bfloat16, 1),       "posit8es0": (torch.float16, 1),
    "posit8es1": (torch.float16, 1),   "posit8es2": (torch.bfloat16, 1),
    "e4m3fnuz": (torch.float16, 1),    "posit16es1": (torch.bfloat16, 2),
    "posit16es2": (torch.bfloat16, 2), "fixed4_3": (torch.float16, 1),
    "takum16_linear": (None, 0),       "e5m10": (torch.float16, 1),
    "e6m9": (None, 0),                 "e6m9finite": (torch.bfloat16, 2),
    "posit32es2": (None, 0),           "lns4_3": (None, 0),
    "e8m0": (torch.bfloat16, 1),
}  # fmt: skip
SEED = 13


def compile_into(out: Path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    options = ["-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC"]

    def gpp(*arguments):
        built = subprocess.run(
            ["g++", *options, *INCLUDES, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stderr

    def compile_source(source):
        gpp("-c", "-x", "c++", source, "-o", made := out.with_name(f"{source.name}.o"))
        return made

    # Compile several at once: the other processes of the session wait for the library, or soon
    # will.
    sources = [ROOT / "test/operators/cuda/on_host.cpp", *KERNELS.glob("*.cu")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_source, sources))
    gpp("-shared", *objects, "-o", out)


def build_once(name: str, build) -> ctypes.CDLL:
    """Build a library once a session, in the first process that needs it."""
    out = Path(os.environ[SESSION], name)
    with FileLock(out.with_suffix(".lock")):
        if not out.exists():
            build(part := out.with_suffix(".part"))
            part.rename(out)
    return ctypes.CDLL(str(out))


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    return build_once("kernels.so", compile_into)


FIELDS_OF_KIND = {
    "posit": ("es",),
    "float": ("exp_bits", "man_bits", "bias"),
    "fixed": ("int_bits", "frac_bits"),
}


def fields(fmt) -> ctypes.Array:
    """Return a format as on_host.cpp reads it."""
    own = [getattr(fmt, name) for name in FIELDS_OF_KIND.get(fmt.kind.name, ())]
    values = [
        fmt.kind,
        fmt.bits,
        *own,
        *[0] * (3 - len(own)),
        fmt.subnormals,
        fmt.specials,
        fmt.overflow,
        fmt.underflow,
        fmt.infinity,
        fmt.is_signed,
        fmt.symmetric,
        fmt.rounding,
        fmt.table_address & 0xFFFFFFFF,
        fmt.table_address >> 32,
    ]
    return (ctypes.c_int32 * len(values))(*(ctypes.c_int32(int(x)).value for x in values))


def argument(x):
    if x is None:
        return ctypes.c_void_p(None)
    if isinstance(x, torch.Tensor):
        assert x.is_contiguous()
        return ctypes.c_void_p(x.data_ptr())
    if isinstance(x, float):
        return ctypes.c_double(x)
    return x if isinstance(x, ctypes.Array) else ctypes.c_int64(x)


def run(library, name, fmt, *arguments):
    assert getattr(library, name)(fields(fmt), *map(argument, arguments)) == 0


def numbers(*modes: str):
    """Parametrize over formats and modes: each mode with some of the formats, and each format with
    some of the modes."""
    modes = modes or torch_dtypes.ROUNDING_MODES
    pairs = [
        (name, mode)
        for i, name in enumerate(FORMATS)
        for j, mode in enumerate(modes)
        if mode == "nearest_even" or (i + j) % 3 == 0
    ]
    return pytest.mark.parametrize(("name", "mode"), pairs)


def format_of(name: str, mode: str | None = None):
    """Return the format of a name, in the mode of the name or in the given one."""
    fmt = torch_dtypes.format_of(torch_dtypes.dtype(name))
    fmt.rounding = rounding_mode(mode) if mode else fmt.rounding
    return fmt


def all_codes(dtype, seed=0, n=4096) -> torch.Tensor:
    """Return every code of at most 8 bits, or a sample of longer ones, in random order."""
    bits = torch_dtypes.format_of(dtype).bits
    g = torch.Generator().manual_seed(seed)
    codes = (
        torch.randint(0, 1 << bits, (n,), generator=g)
        if bits > 8
        else torch.arange(n) % (1 << bits)
    )
    return from_codes(codes[torch.randperm(n, generator=g)].contiguous(), dtype).contiguous()


def seeds() -> int:
    """Return the seed that the first call after torch.manual_seed(SEED) draws: 64 bits of
    MT19937."""
    engine = np.random.RandomState(SEED)._bit_generator
    return int(engine.random_raw()) << 32 | int(engine.random_raw())


def on_cpu(call, mode: str = "nearest_even"):
    """Return the results of the CPU's operators in a mode, by the words of SEED."""
    torch.manual_seed(SEED)
    with torch_dtypes.rounding(mode):
        return call()


def same(found: torch.Tensor, expected: torch.Tensor):
    """Check that codes are equal. NaN has the sign that a machine gives it."""
    a, b = codes_of(found), codes_of(expected)
    differ = (a != b) & ~(found.isnan() & expected.isnan())
    assert not differ.any(), (found[differ][:5], expected[differ][:5])


def values_for(dtype) -> torch.Tensor:
    """Return numbers of every size, ties and limits of the format, special values."""
    g = torch.Generator().manual_seed(1)
    spread = torch.randn(3000, generator=g, dtype=torch.float64) * torch.exp2(
        torch.randint(-140, 128, (3000,), generator=g).double()
    )
    own = all_codes(dtype, 2, 2048).double()
    own = own[own.isfinite()].sort().values
    ties = (own[1:] + own[:-1]) / 2
    special = torch.tensor(
        [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-300, 1e300], dtype=torch.float64
    )
    near = torch.randn(2000, generator=g, dtype=torch.float64)
    return torch.cat([spread, near, own, ties, special]).contiguous()


def order_of(options) -> tuple[int, int]:
    name, _, lanes = options.get("order", "sequential").partition("(")
    return ["sequential", "pairwise", "tree", "lanes"].index(name), int(
        lanes.removesuffix(")") or 1
    )


def flags_of(options, chunk: int, in_float: bool) -> ctypes.Array:
    fused, kahan, exact_product = (
        options.get("fused", False),
        options.get("kahan", False),
        options.get("product") == "exact",
    )
    return (ctypes.c_int64 * 8)(fused, kahan, chunk, in_float, 1, *order_of(options), exact_product)


def matrices(dtype, k=9, m=3, n=17, spread=(-6, 3)):
    g = torch.Generator().manual_seed(4)
    shapes = (2, m, k), (2, k, n), (2, m, n)
    return [
        (torch.randn(s, generator=g) * torch.exp2(torch.randint(*spread, s, generator=g))).to(dtype)
        for s in shapes
    ]
