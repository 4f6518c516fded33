"""Operators on the GPU's path have the CPU's bits: on CUDA, and on the host where the GPU's kernels
were compiled for it."""

from contextlib import contextmanager

import gpu_cases
import pytest
import torch

import torch_dtypes
from torch_dtypes import _C

needs_host_build = pytest.mark.skipif(
    not _C.built_for_host(), reason="needs a build with TORCH_DTYPES_GPU_ON_HOST=ON"
)
needs_cuda = pytest.mark.skipif(
    not (torch.cuda.is_available() and _C.has_gpu_kernels()),
    reason="needs a GPU and kernels for it",
)


LNS = torch_dtypes.dtype("lns4_3")


@contextmanager
def gpu_on_host(on=True):
    before = _C.gpu_on_host()
    _C.set_gpu_on_host(on)
    try:
        yield
    finally:
        _C.set_gpu_on_host(before)


def compare(name, run):
    with gpu_on_host(False):
        expected = gpu_cases.run(name, "cpu")
    found = run()
    assert len(found) == len(expected)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, i
        differ = gpu_cases.bits(a) != gpu_cases.bits(b)
        assert not differ.any(), (i, a[differ][:5], b[differ][:5])


@needs_host_build
@pytest.mark.parametrize("name", gpu_cases.CASES)
def test_the_gpus_way_on_the_host(name):
    def run():
        with gpu_on_host():
            return gpu_cases.run(name, "cpu")

    compare(name, run)


@needs_cuda
@pytest.mark.parametrize("name", gpu_cases.CASES)
def test_on_a_gpu(name):
    compare(name, lambda: gpu_cases.run(name, "cuda"))


def products(device):
    """Return products by tensor cores, with sums that are exact in any order."""
    g, results = torch.Generator().manual_seed(3), []
    for name in ("q43", "posit8es2", "e5m7"):
        dtype = torch_dtypes.dtype(name)
        a, b, c = (
            torch.randint(-2, 3, size, generator=g).to(dtype).to(device)
            for size in ((3, 17, 40), (3, 40, 9), (3, 17, 9))
        )
        out = torch.mm(a[0], b[0], out=torch.empty_like(c[0]))
        results += [
            torch.bmm(a, b),
            a[0] @ b[0],
            torch.nn.functional.linear(a, b[0].t(), b[0, 0]),
            torch.baddbmm(c, a, b),
            out,
        ]
        results += [
            torch.addmm(c[0], a[1], b[2], beta=0.5, alpha=2),
            torch.addmm(c[0, 0], a[0], b[0], beta=0),
        ]
    # These have more bits than bfloat16. There are enough products to split each number in two
    # parts. Each sum has one product, and so is exact.
    odd = [torch.randint(128, 256, size, generator=g) * 2 + 1 for size in ((1024, 1024), (1024,))]
    permuted = torch.zeros(1024, 1024)
    permuted[torch.arange(1024), torch.randperm(1024, generator=g)] = odd[1].float()
    for dtype in (torch.posit16es1, torch.posit16es2):
        results.append(odd[0].to(dtype).to(device) @ permuted.to(dtype).to(device))
    return [t.cpu() for t in results]


@needs_host_build
def test_tensor_cores_way_on_the_host():
    with gpu_on_host(False):
        expected = products("cpu")
    with gpu_on_host(), torch.profiler.profile(record_shapes=True) as seen:
        found = products("cpu")
    assert all(map(torch.equal, found, expected))
    posits = [
        event
        for event in seen.key_averages(group_by_input_shape=True)
        if event.key == "aten::mm" and event.input_shapes[0] == [1024, 1024]
    ]
    assert sum(event.count for event in posits) >= 8  # four for each product


@needs_cuda
def test_tensor_cores_on_a_gpu():
    assert all(map(torch.equal, products("cuda"), products("cpu")))


@pytest.mark.skipif(_C.built_for_host(), reason="tests a build without kernels for the host")
def test_an_ordinary_build_has_no_gpu_on_the_host():
    with pytest.raises(NotImplementedError, match="TORCH_DTYPES_GPU_ON_HOST=ON"):
        _C.set_gpu_on_host(True)
    assert not _C.gpu_on_host()


@needs_host_build
@pytest.mark.parametrize(
    ("what", "call"),
    [
        (
            "nextafter.*any format but a table",
            lambda: torch.ones(3, dtype=LNS).nextafter(torch.zeros(3, dtype=LNS)),
        ),
        (
            "at most 51 significant bits.*e11m52",
            lambda: torch.ones(3, dtype=torch_dtypes.dtype("e11m52")) + 1,
        ),
    ],
)
def test_what_has_no_way_on_a_gpu_says_so(what, call):
    """It does not fall back to the host's loops."""
    call()
    with gpu_on_host(), pytest.raises(NotImplementedError, match=what):
        call()
