"""Formats on a device of PrivateUse1 that has its own memory and no kernels of this package."""

import types
from pathlib import Path

import pytest
import torch
from lenet import train_lenet
from torch.utils import cpp_extension

import torch_dtypes

pytestmark = pytest.mark.slow  # runs a C++ compiler

SOURCE = Path(__file__).parents[1] / "support/own_device.cpp"


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    torch.utils.rename_privateuse1_backend("pages")
    cpp_extension.load(
        "own_device",
        [str(SOURCE)],
        build_directory=str(tmp_path_factory.mktemp("own_device")),
        is_python_module=False,
    )
    module = types.ModuleType("pages")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    torch._register_device_module("pages", module)
    return "pages:0"


@pytest.mark.parametrize("name", ["q43", "posit16es2", "q43_stochastic", "takum32_linear"])
def test_chop_and_casts(device, name):
    x = torch.randn(200, 3)
    dtype = torch_dtypes.dtype(name)
    assert torch_dtypes.backend(x.to(device)) == "stock"
    for call in (
        lambda t: torch_dtypes.chop(t, name),
        lambda t: t.to(dtype),
        lambda t: t.to(dtype).float(),
        lambda t: torch_dtypes.chop(t, name, flip_prob=0.5),
        lambda t: t.to(dtype).nextafter(-t.to(dtype)),
        lambda t: torch_dtypes.codes(t.to(dtype)).clone().view(dtype),
        lambda t: t.to(dtype) * t.to(dtype) + 1,
        lambda t: t.to(dtype).relu().sum(0),
    ):
        torch.manual_seed(3)
        expected = call(x)
        torch.manual_seed(3)
        found = call(x.to(device))
        assert found.device.type == "pages"
        assert torch.equal(found.cpu(), expected)


def test_a_step_of_lenet(device):
    expected, found = (
        train_lenet(torch.posit16es2, where, epochs=1, images=16) for where in ("cpu", device)
    )
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(torch_dtypes.codes(a), torch_dtypes.codes(b))


def test_counts_and_random_rounding_of_float_code(device):
    """Observed and perturbed code has the CPU's counts and bits."""
    results = []
    for where in ("cpu", device):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
        x = torch.randn(4, 9).to(where)
        model = model.to(where)
        with torch_dtypes.observe(model, formats=["q43", "posit16es2"]) as seen:
            model(x).sum().backward()
        with torch_dtypes.fuzzy(model, seed=3):
            y = (x * 3 + 1) / x
        results.append((str(seen), y.cpu()))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
