"""torch.distributed.rpc refuses format tensors, and pipelines refuse models with format tensors:
one error, and the workers go on."""

import os

import pytest
import torch
import torch.distributed as dist
from ranks import together
from torch import nn

import torch_dtypes

rpc = pytest.importorskip("torch.distributed.rpc")
pytestmark = [
    pytest.mark.skipif(
        not (dist.is_available() and rpc.is_available()),
        reason="torch is built without torch.distributed.rpc",
    ),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own, for parts that it deprecates
]


def make_tensor(name):
    return torch.ones(2).to(torch_dtypes.dtype(name))


def double_codes(codes, name):
    return torch_dtypes.codes(torch_dtypes.from_codes(codes, name) * 2)


@torch.jit.script
def double(x):
    return x + x


def calls(rank):
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{os.environ['TORCH_DTYPES_TEST_FOLDER']}/rpc", rpc_timeout=60
    )
    if torch.tensor(0).is_cuda:
        options.set_device_map(f"w{1 - rank}", {0: 0})
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        expect_refusals()
    rpc.shutdown()


def expect_refusals():
    one = torch.ones(2)
    for dtype in (torch.posit16es2, torch.q43, torch_dtypes.float_format(exp_bits=3, man_bits=6)):
        x = one.to(dtype)
        match = (
            f"torch.distributed.rpc: expected stock tensors and dtypes, but got {dtype}; send "
            "x.float\\(\\), or torch_dtypes.codes"
        )
        layer = nn.Linear(2, 2).to(dtype)
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            for function, arguments in (
                (torch.add, {"args": (one, x)}),
                (torch.add, {"args": (one,), "kwargs": {"other": x}}),
                (torch.ones, {"args": ((2,),), "kwargs": {"dtype": dtype}}),
                (double, {"args": (x,)}),
                (id, {"args": ({"x": [x]},)}),
                (id, {"args": (nn.Parameter(x),)}),
                (id, {"args": (layer,)}),
            ):
                with pytest.raises(NotImplementedError, match=match):
                    call("w1", function, **arguments)
        with pytest.raises(RuntimeError, match=match):
            rpc.rpc_sync("w1", make_tensor, args=(str(dtype)[6:],))
        sent = rpc.rpc_sync("w1", double_codes, args=(torch_dtypes.codes(x), str(dtype)))
        assert torch.equal(torch_dtypes.from_codes(sent, dtype), x * 2)
    assert torch.equal(rpc.rpc_sync("w1", torch.add, args=(one, one)), one * 2)


def test_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_DTYPES_TEST_FOLDER", str(tmp_path))
    together(calls, tmp_path)


def stages(rank):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    for dtype in (torch.posit16es2, torch.q43):
        with pytest.raises(
            NotImplementedError,
            match=f"pipelining: expected .* of stock dtypes, but got {dtype} in weight; use "
            "fully_shard, or .* quantize_",
        ):
            PipelineStage(nn.Linear(2, 2).to(dtype), rank, 2, torch.device("cpu"))
    layer = torch_dtypes.quantize_(
        nn.Sequential(nn.Linear(2, 2)), {nn.Linear: dict(weight="q43", activation="q43")}
    )
    schedule = ScheduleGPipe(PipelineStage(layer, rank, 2, torch.device("cpu")), 2)
    assert schedule.step(*([torch.ones(4, 2)] if rank == 0 else [])) is None or rank == 1


@pytest.mark.whole
def test_stages(tmp_path):
    together(stages, tmp_path)
