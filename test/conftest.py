"""What the tests share: the built-in formats by their definitions, and ways between tensors and codes. oracle.py and its like: support/."""

import re

import oracle
import pytest
import torch

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.host.hooks import optimizers

pytest_plugins = ["devices", "in_tree", "own_process"]

OTHER_NAMES = {"q43": "e4m3", "q52": "e5m2", "tf32": "e8m10"}  # of built-in formats whose own name does not say their parameters


def definition(name: str) -> oracle.Spec:
    """What a built-in format is by its name: posit<bits>es<exponent bits>, or e<exponent bits>m<fraction bits>."""
    if posit := re.fullmatch(r"posit(\d+)es(\d+)", name):
        return oracle.posit(int(posit[1]), int(posit[2]))
    if binary := re.fullmatch(r"e(\d+)m(\d+)", OTHER_NAMES.get(name, name)):
        return oracle.binary(int(binary[1]), int(binary[2]))
    raise LookupError(f"expected the name of a built-in format to say its parameters, but got {name}: give it in OTHER_NAMES")


BUILTIN = {name: definition(name) for name in map(_C.name_of, torch_dtypes.builtin_dtypes())}


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The stock integer type as wide as a code."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def codes_of(t: torch.Tensor) -> torch.Tensor:
    """A tensor's codes as int64, without a sign of their own."""
    bits = torch_dtypes.format_of(t.dtype).bits
    codes = t.view(bits_dtype(t.dtype)).long()
    return codes & ((1 << bits) - 1) if bits < 64 else codes


def from_codes(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes.to(bits_dtype(dtype)).view(dtype)


def to_codes(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes_of(values.to(dtype))


@pytest.fixture(params=list(BUILTIN))
def builtin(request):
    """Each built-in format: its dtype and its definition."""
    return getattr(torch, request.param), BUILTIN[request.param]


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def eps_as_given(monkeypatch):
    """Optimizers take an eps that is 0 in the parameters' dtype."""
    monkeypatch.setattr(optimizers, "with_eps", lambda dtype, settings, name: settings)
