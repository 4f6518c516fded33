"""Counts that observe takes of a GPU's tensors equal the CPU's: on CUDA, and on the host where the
GPU's kernels were compiled for it."""

import math

import gpu_cases
import pytest
import torch
from test_gpu_route import gpu_on_host, needs_cuda, needs_host_build

import torch_dtypes

pytestmark = pytest.mark.filterwarnings("ignore:observe. no module of the Linear ran")

# Equal to the last number.
NAMES = (
    "elements overflow saturated underflow to_zero subnormal zeros nan_in infinite_in nan_made "
    "inexact exponents"
).split()


def count(name, device):
    with torch_dtypes.observe(torch.nn.Linear(2, 2)) as stats:
        gpu_cases.run(name, device)
    return dict(stats.items())


def compare(found, expected):
    assert found.keys() == expected.keys()
    for place, e in expected.items():
        f = found[place]
        assert {n: getattr(f, n) for n in NAMES} == {n: getattr(e, n) for n in NAMES}, place
        for sums in (f.signal, e.signal), (f.noise, e.noise):
            assert math.isclose(*sums, rel_tol=1e-5), place


@needs_host_build
@pytest.mark.parametrize("name", gpu_cases.CASES)
def test_counts_of_the_gpus_way_on_the_host(name):
    with gpu_on_host(False):
        expected = count(name, "cpu")
    with gpu_on_host():
        found = count(name, "cpu")
    compare(found, expected)


@needs_cuda
@pytest.mark.parametrize("name", gpu_cases.CASES)
def test_counts_on_a_gpu(name):
    compare(count(name, "cuda"), count(name, "cpu"))


# ---- more counts at once than the device's memory has tables ----


def many_formats(device):
    """Count one tensor against 100 formats, and casts to three dtypes by turns. Each time the
    tables are full, they are read and started anew."""
    model = torch.nn.Linear(2, 2).to(device)
    model.register_forward_hook(
        lambda module, args, output: (
            [output.to(dtype) for dtype in (torch.q43, torch.q52, torch.e5m5)] and None
        )
    )
    with torch_dtypes.observe(
        model, formats=[f"fixed{i}_{j}" for i in range(1, 11) for j in range(1, 11)]
    ) as stats:
        for _ in range(3):
            model(torch.arange(8.0, device=device).view(4, 2))
    return dict(stats.items())


@needs_host_build
def test_many_formats_on_the_host():
    torch.manual_seed(0)
    with gpu_on_host(False):
        expected = many_formats("cpu")
    torch.manual_seed(0)
    with gpu_on_host():
        compare(many_formats("cpu"), expected)
    assert len(expected) > 200


@needs_cuda
def test_many_formats_on_a_gpu():
    torch.manual_seed(0)
    expected = many_formats("cpu")
    torch.manual_seed(0)
    compare(many_formats("cuda"), expected)


@needs_cuda
def test_memory_is_given_back():
    before = torch.cuda.memory_allocated()
    count("casts-q43-nearest_even", "cuda")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


@needs_cuda
def test_what_is_captured_is_not_observed_in_silence():
    """Runs of the graph would count into tables that belong to others by then."""
    x = torch.ones(3, device="cuda")
    x.to(torch.q43)
    with torch_dtypes.observe(torch.nn.Linear(2, 2)):
        with pytest.raises(
            NotImplementedError,
            match="encode: expected no CUDA graph to be captured in a block that is observed",
        ):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                (x + 1).to(torch.q43)
        assert x.to(torch.q43).dtype is torch.q43
