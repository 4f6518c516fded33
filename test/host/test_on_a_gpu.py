"""Features that only a GPU has, or that differ on it: `--device cuda`."""

import copy
import functools

import new_process
import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import chop, quantize, quantize_, target

pytestmark = pytest.mark.skipif(not torch.empty(0).is_cuda, reason="of a GPU: --device cuda")

Q43 = torch.q43

# ---- generators ----

DRAWING = {
    "chop": lambda x, g: chop(x, "q43", "stochastic", g),
    "dtype": lambda x, g: target("q43_stochastic").quantize(x, generator=g),
    "blocks": lambda x, g: target("mxfp4").quantize(x, rounding="stochastic", generator=g),
    "integers": lambda x, g: target("int8").quantize(
        x, scale=0.1, rounding="stochastic", generator=g
    ),
    "codes": lambda x, g: quantize(x, "mxfp4", rounding="stochastic", generator=g).dequantize(),
    "rand": lambda x, g: torch.rand(64, dtype=Q43, device="cuda", generator=g),
}


@pytest.mark.parametrize("name", DRAWING)
def test_a_generator_that_says_no_gpu_is_any_ones(name):
    """torch.Generator("cuda") has no index. It draws the numbers of the device's own generator with
    the same seed."""
    x, draw = torch.linspace(-3, 5, 64), DRAWING[name]
    own = draw(x, torch.Generator(x.device).manual_seed(5))
    assert torch.equal(draw(x, torch.Generator("cuda").manual_seed(5)), own)
    torch.cuda.manual_seed(5)
    assert torch.equal(draw(x, None), own)


def test_a_generator_of_no_use_is_named():
    with pytest.raises(
        TypeError,
        match=r"expected a torch.Generator of the CPU, or of x's device, but got one of cuda",
    ):
        chop(torch.ones(3, device="cpu"), "q43", "stochastic", torch.Generator("cuda"))
    with pytest.raises(
        TypeError,
        match=r"expected a torch.Generator of the CPU, or of x's device, but got one of cuda",
    ):
        chop(0.3, "q43", "stochastic", torch.Generator("cuda"))
    with pytest.raises(
        TypeError, match=r"expected a torch.Generator of the CPU, or of x's device, but got 3"
    ):
        chop(torch.ones(3), "q43", "stochastic", 3)


# ---- pinned memory ----

STOCK, OWN = torch.ones(3, device="cpu"), torch.ones(3, device="cpu").to(Q43)
PINNED = {
    "tensor": functools.partial(torch.tensor, [1.0, 2.0], dtype=Q43),
    "scalar_tensor": functools.partial(torch.scalar_tensor, 1.0, dtype=Q43),
    "new_tensor": functools.partial(OWN.new_tensor, [1.0, 2.0]),
    **{
        name: functools.partial(getattr(torch, name), 3, dtype=Q43)
        for name in "empty zeros ones rand randn arange eye hann_window".split()
    },
    "full": functools.partial(torch.full, (3,), 0.3, dtype=Q43),
    "randint": functools.partial(torch.randint, 3, (3,), dtype=Q43),
    "linspace": functools.partial(torch.linspace, 0, 1, 5, dtype=Q43),
    "logspace": functools.partial(torch.logspace, 0, 1, 5, dtype=Q43),
    **{
        f"{name}_like": functools.partial(getattr(torch, f"{name}_like"), STOCK, dtype=Q43)
        for name in "empty zeros ones rand randn".split()
    },
    **{
        f"{name}_like of a format tensor": functools.partial(getattr(torch, f"{name}_like"), OWN)
        for name in "empty zeros ones".split()
    },
    "full_like": functools.partial(torch.full_like, OWN, 0.3),
    **{
        f"new_{name}": functools.partial(getattr(OWN, f"new_{name}"), 3)
        for name in "empty zeros ones".split()
    },
    "new_empty_strided": functools.partial(OWN.new_empty_strided, (2, 3), (1, 2)),
}


@pytest.mark.parametrize("name", PINNED)
def test_factories_pin_memory(name):
    made = PINNED[name](device="cpu", pin_memory=True)
    assert made.dtype is Q43 and made.is_pinned() and not PINNED[name](device="cpu").is_pinned()
    there = made.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(torch_dtypes.codes(there.cpu()), torch_dtypes.codes(made))


# ---- autocast, whose list of operators that take the widest dtype is longer on a GPU ----

WIDEST = {
    "addcmul": lambda x, y: torch.addcmul(x, y, x),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x),
    "atan2": torch.atan2,
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "vdot": lambda x, y: torch.vdot(x[0], y[0]),
    "index_put": lambda x, y: torch.index_put(x, (torch.tensor([0]),), y[:1]),
    "scatter_add": lambda x, y: torch.scatter_add(x, 0, torch.zeros(4, 4, dtype=torch.int64), y),
    "cross": lambda x, y: torch.cross(x[:, :3], y[:, :3], dim=1),
    "tensordot": lambda x, y: torch.tensordot(x, y, 1),
    "bilinear": lambda x, y: nn.functional.bilinear(x, x, y[None].expand(4, 4, 4)),
    "grid_sample": lambda x, y: nn.functional.grid_sample(
        x[None, None], y[None, :, :2, None].expand(1, 4, 2, 2), align_corners=False
    ),
}


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", WIDEST)
def test_operators_that_take_the_widest_dtype_leave_format_tensors_alone(name, low):
    x, call = torch.randn(4, 4), WIDEST[name]
    want = call(x.to(Q43), x.to(Q43))
    with torch.autocast("cuda", dtype=low):
        got = call(x.to(Q43), x.to(Q43))
    assert got.dtype is want.dtype and torch.equal(got, want)
    with torch.autocast("cuda", dtype=low):  # PyTorch's own
        assert call(x, x).dtype is torch.float32 and call(x.to(low), x.to(low)).dtype is low
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            call(*[x.to(torch.float16 if low is torch.bfloat16 else torch.bfloat16)] * 2)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_gradients_of_integers_in_autocast_are_those_behind_it(low):
    rule = dict(
        weight="int8",
        activation=dict(format="int8", when="call"),
        arithmetic="integer",
        error="q52",
        grad="q52",
    )
    layer = quantize_(nn.Linear(6, 4), {nn.Linear: rule})
    found = []
    for within in (True, False):
        layer.zero_grad()
        x = torch.linspace(-1, 1, 18).reshape(3, 6).requires_grad_()
        with torch.autocast("cuda", dtype=low):
            loss = layer(x).square().sum()
            if within:
                loss.backward()
        if not within:
            loss.backward()
        found.append([x.grad, *(p.grad for p in layer.parameters())])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


# ---- features of the CPU alone ----


def test_fuzzy_has_the_cpu_s_bits_and_one_seed():
    """The backward pass too, which runs on the calling thread, where the words of the seed are
    drawn."""
    net = nn.Sequential(nn.Linear(20, 9), nn.Tanh(), nn.Linear(9, 3))
    x, results = torch.randn(5, 20), {}
    for device in ("cuda", "cpu", "cuda"):
        model, state = copy.deepcopy(net).to(device), torch.cuda.get_rng_state()
        with torch_dtypes.fuzzy(model, seed=1) as block:
            model(x.to(device)).square().sum().backward()
        assert {"addmm", "tanh", "mm", "tanh_backward"} <= set(
            block.operations
        ) and not block.unseen
        assert torch.equal(torch.cuda.get_rng_state(), state)
        found = [p.grad.cpu() for p in model.parameters()]
        assert all(map(torch.equal, found, results.setdefault("gradients", found)))


def test_fuzzy_beside_an_operand_of_the_cpu():
    x, here = torch.ones(3), torch.ones(3, device="cpu")
    with torch_dtypes.fuzzy(seed=1), pytest.raises(RuntimeError, match="one device"):
        x + here


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: chop(x, "q43", "stochastic", torch.Generator()),
        lambda x: torch_dtypes.fuzzy(seed=1)(torch.mul)(x, 0.1),
    ],
)
def test_a_graph_draws_no_words_of_the_cpu_s(draw):
    x = torch.ones(3)
    draw(x)
    with pytest.raises(
        NotImplementedError,
        match="expected a GPU generator while a CUDA graph is captured, but got a CPU generator",
    ):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            draw(x + 1)


ALONE = """
import torch, torch_dtypes
from torch import nn


def counts(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    torch_dtypes.quantize_(
        model, {nn.Linear: dict(weight="q43", activation="q43", error="q52", grad="posit8es1")}
    )
    cast = torch_dtypes.Cast("q43", backward="q52")
    model, x = model.to(device), torch.randn(8, 4).to(device)
    found = []
    for _ in range(2):
        with torch_dtypes.observe(model) as stats:
            cast(model(x)).square().mean().backward()
        found.append({k: (v.elements, v.inexact, v.exponents) for k, v in stats.items()})
    return found


a, b = counts("cuda"), counts("cpu")
assert a == b, (a, b)
assert ("(outside)", "backward", "q52") in b[0] and b[0]["2", "backward", "q52"][0] == 24
"""


def test_backward_of_float_tensors_is_observed_on_the_thread_of_the_block():
    """Without a format tensor in the process, autograd has a thread for each GPU. The last layer of
    the first step was then not counted, and counts of a second observation went to the first."""
    done = new_process.run("-c", ALONE)
    assert done.returncode == 0, done.stderr


def test_memory_that_is_spent_leaves_the_other_counts():
    """The error appears once, with no other in its place."""
    x = torch.randn(3, 4)
    x.to(Q43)
    try:
        with torch_dtypes.observe(nn.Linear(2, 2)) as stats:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(1e-6)
            with pytest.raises(torch.OutOfMemoryError):
                x.to(Q43)
            torch.cuda.set_per_process_memory_fraction(1.0)
            torch.ones(3, device="cpu").to(Q43)
        assert stats["(outside)", "forward", "q43"].elements == 3
        with pytest.raises(torch.OutOfMemoryError), torch_dtypes.observe(nn.Linear(2, 2)):
            torch.cuda.set_per_process_memory_fraction(1e-6)
            x.to(Q43)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_formats_that_a_gpu_does_not_compute_with_are_refused_at_once():
    with pytest.raises(
        NotImplementedError,
        match=r"observe: expected formats with which a GPU computes, .* but got posit56es2",
    ):
        with torch_dtypes.observe(nn.Linear(2, 2), formats=["q43", "posit56es2"]):
            raise AssertionError
    with torch_dtypes.observe(nn.Linear(2, 2), formats="q43"):  # a new observation can begin
        pass


def test_a_capture_around_an_observation_is_named():
    model, x = nn.Linear(4, 4).to(Q43), torch.ones(3)
    with pytest.raises(
        NotImplementedError,
        match="expected no CUDA graph to be captured in a block that is observed",
    ):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x + 1
            with torch_dtypes.observe(model):
                pass


def test_fuzzy_takes_recurrent_layers_apart():
    """A recurrent layer of cuDNN is one operator; a cell of PyTorch is one, too."""
    for layer in (nn.LSTM(4, 5), nn.GRU(4, 5), nn.RNN(4, 5)):
        with torch_dtypes.fuzzy(layer, seed=1) as block:
            layer(torch.randn(3, 2, 4))[0].sum().backward()
        assert not block.unseen and not any("cudnn" in name for name in block.operations)
