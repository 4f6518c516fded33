"""Shared helpers of the tests: definitions of the built-in formats, and conversions between tensors
and codes. Oracles are in support/."""

import re

import oracle
import pytest
import torch
from representatives import DTYPES, thin_out

import torch_dtypes
from torch_dtypes import _C

pytest_plugins = ["crossed_lists", "devices", "in_tree", "workers"]

# Built-in formats whose own name does not give their parameters.
OTHER_NAMES = {"q43": "e4m3", "q52": "e5m2", "tf32": "e8m10"}


def definition(name: str) -> oracle.Spec:
    """Return the definition of a built-in format from its name: posit<bits>es<exponent bits>, or
    e<exponent bits>m<fraction bits>."""
    if posit := re.fullmatch(r"posit(\d+)es(\d+)", name):
        return oracle.posit(int(posit[1]), int(posit[2]))
    if binary := re.fullmatch(r"e(\d+)m(\d+)", OTHER_NAMES.get(name, name)):
        return oracle.binary(int(binary[1]), int(binary[2]))
    raise LookupError(
        f"expected the name of a built-in format to say its parameters, but got {name}: give it "
        "in OTHER_NAMES"
    )


BUILTIN = {name: definition(name) for name in map(_C.name_of, torch_dtypes.builtin_dtypes())}


TEN = "posit16es2 q43 e5m5 posit32es2 tf32 posit8es1 posit12es1 e4m3fn e11m20 e11m30"
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def parametrize_dtypes(names: str | list[str]):
    """Run a test with the dtype of each name."""
    return pytest.mark.parametrize(
        "dtype",
        thin_out(names.split() if isinstance(names, str) else names, DTYPES),
        indirect=True,
    )


@pytest.fixture
def dtype(request):
    """Return the dtype of a name. A list of dtypes would keep their numbers from all other tests of
    the process."""
    return getattr(torch, request.param, None) or torch_dtypes.dtype(request.param)


def expect_tensor(t: torch.Tensor, dtype: torch.dtype, shape=None):
    """Check that `t` has the dtype, the matching class and the shape."""
    assert t.dtype is dtype and _C.is_format_tensor(t) == torch_dtypes.is_format_dtype(dtype)
    assert shape is None or t.shape == torch.Size(shape)


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the stock integer type as wide as a code."""
    return BITS[dtype.itemsize]


def codes_of(t: torch.Tensor) -> torch.Tensor:
    """Return a tensor's codes as int64, without sign extension."""
    bits = torch_dtypes.format_of(t.dtype).bits
    codes = t.view(bits_dtype(t.dtype)).long()
    return codes & ((1 << bits) - 1) if bits < 64 else codes


def from_codes(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes.to(bits_dtype(dtype)).view(dtype)


def to_codes(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes_of(values.to(dtype))


@pytest.fixture(params=thin_out(BUILTIN))
def builtin(request):
    """Return each built-in format: its dtype and its definition."""
    return getattr(torch, request.param), BUILTIN[request.param]


@pytest.fixture(scope="session")
def few_digits():
    from train_command import load_few_digits

    return load_few_digits()


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def eps_as_given(monkeypatch):
    """Let optimizers take an eps that is 0 in the parameters' dtype."""
    from in_tree import RAISES_EPS  # a plugin, which is loaded after this file

    monkeypatch.setattr(f"{RAISES_EPS}.with_eps", lambda dtype, settings, name: settings)
