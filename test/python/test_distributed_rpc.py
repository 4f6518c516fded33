"""torch.distributed.rpc: tensors of ours go to other workers and come back by their codes."""

import copy
import os

import pytest
import torch
import torch.distributed as dist
from ranks import together
from torch import nn

import torch_dtypes

rpc = pytest.importorskip("torch.distributed.rpc")
pytestmark = [
    pytest.mark.skipif(not (dist.is_available() and rpc.is_available()), reason="torch is built without torch.distributed.rpc"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own, of what it calls deprecated
]


def described(x):
    return str(x.dtype), x.tolist(), x.requires_grad


def doubled(tensors, *, bias):
    return {"sums": [x + x for x in tensors["x"]], "bias": bias}


def made(values, name):
    return torch.tensor(values).to(torch_dtypes.dtype(name))


def multiplied(x):
    return x * 2


@torch.jit.script
def scripted(x):
    return x + x


def calls(rank):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{os.environ['TORCH_DTYPES_TEST_FOLDER']}/rpc", rpc_timeout=60)
    if torch.tensor(0).is_cuda:
        options.set_device_map(f"w{1 - rank}", {0: 0})
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        asked()
    rpc.shutdown()


def asked():
    values = [1.5, -2.0, 0.25]
    at_run_time = torch_dtypes.float_format(exp_bits=3, man_bits=6), torch_dtypes.table_format([-2.0, 0.0, 0.25, 1.5])
    for dtype in (torch.posit16es2, torch.q43, torch.posit32es2, *at_run_time, torch.bfloat16):
        x = torch.tensor(values).to(dtype)
        assert rpc.rpc_sync("w1", described, args=(x,)) == described(x)
        p = nn.Parameter(x)
        assert rpc.rpc_sync("w1", described, args=(p,)) == described(p)
        got = rpc.rpc_async("w1", doubled, args=({"x": [x[1:], torch.ones(2)]},), kwargs={"bias": x.reshape(3, 1)}).wait()
        assert got["bias"].dtype is got["sums"][0].dtype is dtype and got["sums"][1].dtype is torch.float32
        assert torch.equal(got["bias"], x.reshape(3, 1)) and torch.equal(got["sums"][0], x[1:] + x[1:])
        rref = rpc.remote("w1", multiplied, args=(x,))
        assert rref.to_here().dtype is dtype and torch.equal(rref.to_here(), x * 2)
        assert torch.equal(rref.rpc_sync().neg(), -(x * 2))
        assert described(rpc.RRef(x).to_here()) == described(x)
    assert described(rpc.rpc_sync("w1", made, args=(values, "e4m9"))) == described(made(values, "e4m9"))  # a dtype that this process has not made yet
    layer = nn.Linear(2, 2).to(torch.q43)
    assert torch.equal(rpc.rpc_sync("w1", copy.copy, args=(layer,)).weight, layer.weight)

    x, wrap = torch.ones(2, dtype=torch.posit16es2), r"but got torch.posit16es2. Wrap the call in a Python function"
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        for arguments in ({"args": (torch.ones(2), x)}, {"args": (torch.ones(2),), "kwargs": {"other": x}}):
            with pytest.raises(TypeError, match="expected arguments of stock dtypes for a builtin operator, " + wrap):
                call("w1", torch.add, **arguments)
        with pytest.raises(TypeError, match="a builtin operator, " + wrap):
            call("w1", torch.ones, args=((2,),), kwargs={"dtype": x.dtype})
        with pytest.raises(TypeError, match="expected arguments of stock dtypes for a TorchScript function, " + wrap):
            call("w1", scripted, args=(x,))
    assert torch.equal(rpc.rpc_sync("w1", torch.add, args=(torch.ones(2), torch.ones(2))), torch.full((2,), 2.0))

    with torch.distributed.autograd.context():
        assert described(rpc.rpc_sync("w1", multiplied, args=(x,))) == described(x * 2)
        with pytest.raises(NotImplementedError, match=r"torch\.posit16es2 that requires a gradient\. Send"):
            rpc.rpc_sync("w1", multiplied, args=(x.clone().requires_grad_(),))


def test_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_DTYPES_TEST_FOLDER", str(tmp_path))
    together(calls, tmp_path)
