"""torch.autocast("cuda", dtype=<a format dtype>), whose lists of operators differ from the CPU's:
`--device cuda`. test_autocast.py has the common part."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

KIND = "cuda"
pytestmark = pytest.mark.skipif(not torch.empty(0).is_cuda, reason="of a GPU: --device cuda")

LOW = ["q43", "posit8es1", "posit16es2", "e5m5"]
low_dtypes = pytest.mark.parametrize("low", [getattr(torch, name) for name in LOW], ids=LOW)
stock_dtypes = pytest.mark.parametrize("block", [torch.bfloat16, torch.float16])


def numbers(*shape):
    return torch.randn(shape)


# ---- the widest dtype among the operands ----

PROMOTED = {
    "addcmul": lambda x, y: torch.addcmul(x, y, x),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
    "atan2": torch.atan2,
    "bilinear": lambda x, y: nn.functional.bilinear(x, y, torch.ones(2, 3, 3).to(x.dtype)),
    "cross": lambda x, y: torch.cross(x, y, dim=1),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "vdot": lambda x, y: torch.vdot(x[0], y[0]),
    "index_put": lambda x, y: torch.index_put(x, (torch.tensor([1]),), y[0]),
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=([1], [1])),
    "scatter_add": lambda x, y: torch.scatter_add(x, 0, torch.zeros(1, 3, dtype=torch.int64), y),
}


@pytest.mark.parametrize("name", PROMOTED)
@low_dtypes
def test_operators_of_which_autocast_takes_the_widest_dtype(low, name):
    run, x, y = PROMOTED[name], numbers(3, 3), numbers(3, 3)
    ours = x.to(low), y.to(low)
    with torch.autocast(KIND, dtype=low):
        got = run(*ours)
        mixed = run(ours[0], y), run(x, ours[1])
    assert got.dtype is low and torch.equal(got, run(*ours))
    for found, want in zip(mixed, (run(ours[0].float(), y), run(x, ours[1].float())), strict=True):
        assert found.dtype is torch.float32 and torch.equal(found, want)


@pytest.mark.parametrize("name", PROMOTED)
def test_what_is_wider_than_float32_is_left_alone(name):
    wide = numbers(3, 3).to(torch.posit32es2), numbers(3, 3).to(torch.posit32es2)
    for block in (torch.q43, torch.bfloat16):
        with torch.autocast(KIND, dtype=block):
            got = PROMOTED[name](*wide)
        assert got.dtype is torch.posit32es2 and torch.equal(got, PROMOTED[name](*wide))


# ---- results in float32 ----

IN_FLOAT32 = {
    "sum": torch.sum,
    "sum of rows": lambda x: x.sum(1, keepdim=True),
    "prod": torch.prod,
    "prod of rows": lambda x: x.prod(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "vector_norm": torch.linalg.vector_norm,
    "matrix_norm": torch.linalg.matrix_norm,
    "norm": torch.norm,
    "norm of rows": lambda x: x.norm(dim=1),
    "norm with p": lambda x: torch.ops.aten.norm.Scalar(x, 1),
}


@pytest.mark.parametrize("name", IN_FLOAT32)
@low_dtypes
def test_results_in_float32(low, name):
    x = numbers(3, 3).to(low)
    with torch.autocast(KIND, dtype=low):
        got = IN_FLOAT32[name](x)
    assert got.dtype is torch.float32 and torch.allclose(
        got, IN_FLOAT32[name](x.float()), rtol=1e-6
    )


@pytest.mark.parametrize("name", IN_FLOAT32)
@stock_dtypes
def test_in_a_stock_block_format_tensors_keep_their_dtype(block, name):
    for own in (torch.q43, torch.posit16es2, torch.posit32es2):
        x = numbers(3, 3).to(own)
        with torch.autocast(KIND, dtype=block):
            got = IN_FLOAT32[name](x)
        assert got.dtype is own and torch.equal(got, IN_FLOAT32[name](x))


# ---- layers ----

RNNS = {
    "lstm": (2, lambda: nn.LSTM(4, 5, 2, bidirectional=True)),
    "lstm with projections": (2, lambda: nn.LSTM(4, 5, proj_size=3)),
    "gru without biases": (3, lambda: nn.GRU(4, 5, bias=False)),
    "tanh": (1, lambda: nn.RNN(4, 5)),
    "relu": (0, lambda: nn.RNN(4, 5, nonlinearity="relu")),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", RNNS)
@low_dtypes
def test_recurrent_layers_by_cudnn_are_those_of_the_dtype(low, name, packed):
    """Under autocast cuDNN's own kernel casts to float16, whatever the dtype of the block."""
    mode, make = RNNS[name]
    layer = make().to(KIND)
    weights = list(layer._flat_weights)
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    x, sizes = (
        (numbers(5, 4), torch.tensor([2, 2, 1], device="cpu"))
        if packed
        else (numbers(6, 2, 4), None)
    )
    h, c = torch.zeros(rows, 2, layer.proj_size or 5), torch.zeros(rows, 2, 5)
    with torch.autocast(KIND, dtype=low):
        got = torch._cudnn_rnn(
            x,
            weights,
            len(weights) // rows,
            None,
            h,
            c if mode == 2 else None,
            mode,
            5,
            layer.proj_size,
            layer.num_layers,
            False,
            0.0,
            True,
            layer.bidirectional,
            sizes.tolist() if packed else [],
            None,
        )
    want, last = copy.deepcopy(layer).to(low)(
        PackedSequence(x.to(low), sizes) if packed else x.to(low)
    )
    assert got[0].dtype is low and torch.equal(got[0], want.data if packed else want)
    for a, b in zip(got[1:3], last if mode == 2 else (last,), strict=False):
        assert torch.equal(a, b)
    got[0].float().sum().backward()
    assert all(w.grad.dtype is torch.float32 and w.grad.abs().sum() > 0 for w in weights[:2])


def test_a_transformer_encoder_is_in_the_dtypes_of_bfloat16_s():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2, enable_nested_tensor=False
    ).to(KIND)
    x, found = numbers(2, 3, 4), []
    for low in (torch.bfloat16, torch.posit16es2):
        for trains in (True, False):
            model.train(trains)
            with torch.no_grad(), torch.autocast(KIND, dtype=low):
                found.append(model(x))
    assert all(y.dtype is torch.float32 for y in found)
    torch.testing.assert_close(found[2], found[0], atol=0.05, rtol=0.05)
    assert torch.equal(found[2], found[3])


@low_dtypes
def test_a_training_loop_with_a_scaler(low):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    ).to(KIND)
    optimizer, scaler = (
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        torch.amp.GradScaler(KIND, init_scale=8.0),
    )
    x, t = numbers(16, 1, 6, 6), torch.arange(16) % 2
    x[t == 1] += 1
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast(KIND, dtype=low):
            y = model(x)
            loss = nn.functional.cross_entropy(y, t)
        assert y.dtype is low and loss.dtype is torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert all(p.dtype is p.grad.dtype is torch.float32 for p in model.parameters())
    assert losses[-1] < losses[0] / 2


def test_the_two_devices_have_a_dtype_each():
    x = numbers(2, 2)
    with torch.autocast("cpu", dtype=torch.q43), torch.autocast("cuda", dtype=torch.posit16es2):
        assert (x @ x).dtype is torch.posit16es2 is torch.get_autocast_dtype("cuda")
        assert (x.cpu() @ x.cpu()).dtype is torch.q43 is torch.get_autocast_dtype("cpu")
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype is torch.float32 and (x.cpu() @ x.cpu()).dtype is torch.q43
    assert torch.get_autocast_dtype("cuda") is torch.float16
