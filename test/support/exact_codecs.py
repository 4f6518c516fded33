"""The exact codec for tests: the package's, and the one in the headers alone."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from host_kernels import INCLUDES, argument, build_once, fields

from torch_dtypes import _C


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def same_values(found, expected):
    """Compare bits of float64, with all NaNs equal."""
    return np.where(
        np.isnan(expected), np.isnan(found), found.view(np.int64) == expected.view(np.int64)
    )


def float32_inputs(x64):
    """Return the inputs that float32 has, the float32 neighbours of all, and float32's own
    subnormal numbers."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = x64.astype(np.float32)
        near = [x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))]
    own = np.random.default_rng(1).integers(0, 2**24, 2000).astype(np.uint32).view(np.float32)
    return np.unique(np.concatenate([*near, own, -own]).view(np.uint32)).view(np.float32)


class Package:
    encode = staticmethod(_C.encode_exact)
    decode = staticmethod(_C.decode_exact)


class Headers:
    """The codecs compiled from the headers alone. The fast ones among them must agree with the
    generic one."""

    def __init__(self):
        self.library = build_once("codec.so", self.compile_into)

    @staticmethod
    def compile_into(out: Path):
        options = [
            "-std=c++20",
            "-O1",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-shared",
            *INCLUDES,
        ]
        source = Path(__file__).parents[1] / "numbers/cpp/codec/codec.cpp"
        command = ["g++", *options, source, "-o", out]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr

    def call(self, name, fmt, *tensors):
        assert (
            getattr(self.library, name)(
                fields(fmt), *map(argument, tensors), argument(len(tensors[0]))
            )
            == 0
        ), "a fast path differs"
        return tensors[-1]

    def encode(self, fmt, x, words=None):
        return self.call("encode_all", fmt, x, words, torch.empty(len(x), dtype=torch.int64))

    def decode(self, fmt, codes):
        return self.call("decode_all", fmt, codes, torch.empty(len(codes), dtype=torch.float64))


@cache
def compile_headers():
    return Headers()


@pytest.fixture(params=["package", "headers"])
def codec(request):
    if request.param == "package":
        return Package
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    return compile_headers()
