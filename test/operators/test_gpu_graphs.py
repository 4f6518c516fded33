"""CUDA graphs of format tensors: each run computes and draws the results of the same calls.
(test_cuda_launches.py tests on the host that launches read their seeds in device memory.)"""

import pytest
import torch

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and _C.has_gpu_kernels()),
    reason="needs a GPU and kernels for it",
)


def capture(function):
    """Capture function() and return the graph and the place of its result. Tables and libraries get
    their memory before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


@pytest.mark.parametrize("name", ["posit16es2", "q43", "fixed8_8"])
@pytest.mark.parametrize("mode", ["nearest_even", "stochastic", "up_down"])
def test_runs_draw_as_calls_do(name, mode):
    dtype = torch_dtypes.dtype(name)
    x = torch.randn(700, device="cuda")

    def function():
        with torch_dtypes.rounding(mode), torch_dtypes.accumulate("exact"):
            y = x.to(dtype)
            return torch.stack([y * 0.3 + x.to(dtype), torch.sqrt(y.abs()), (y @ y).expand(700)])

    graph, result = capture(function)
    torch.cuda.manual_seed(5)
    expected = [function() for _ in range(3)]
    torch.cuda.manual_seed(5)
    for one in expected:
        graph.replay()
        assert torch.equal(torch_dtypes.codes(result), torch_dtypes.codes(one))
    assert mode == "nearest_even" or not torch.equal(
        torch_dtypes.codes(expected[0]), torch_dtypes.codes(expected[1])
    )


def test_training_steps():
    dtype = torch.posit16es2
    x, target = (
        torch.randn(32, 10, device="cuda").to(dtype),
        torch.randint(0, 4, (32,), device="cuda"),
    )

    def make_model():
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
        ).to("cuda", dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.zero_grad(set_to_none=False)
            torch.nn.functional.cross_entropy(model(x), target).backward()
            optimizer.step()

        return model, step

    (one, by_graph), (other, by_calls) = make_model(), make_model()
    graph, _ = capture(by_graph)  # two warm-up steps
    for _ in range(3):
        graph.replay()
    for _ in range(5):
        by_calls()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(torch_dtypes.codes(p), torch_dtypes.codes(q))
