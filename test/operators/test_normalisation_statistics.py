"""Running statistics of batch and instance normalisation are written in training alone."""

import pytest
import torch
import torch.nn.functional as F
from conftest import bits_dtype, parametrize_dtypes

import torch_dtypes

CALLS = {
    "batch_norm": lambda x, mean, var: F.batch_norm(x, mean, var),
    "instance_norm": lambda x, mean, var: F.instance_norm(x, mean, var, use_input_stats=False),
    "native_batch_norm": lambda x, mean, var: torch.native_batch_norm(
        x, None, None, mean, var, False, 0.1, 1e-5
    ),
    "declared": lambda x, mean, var: torch.ops.aten._native_batch_norm_legit(
        x, None, None, mean, var, False, 0.1, 1e-5
    ),
    "no_training": lambda x, mean, var: torch.ops.aten._native_batch_norm_legit_no_training(
        x, None, None, mean, var, 0.1, 1e-5
    ),
    "no_update": lambda x, mean, var: torch.ops.aten._batch_norm_no_update(
        x, None, None, mean, var, 0.1, 1e-5
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@parametrize_dtypes("q43 posit16es2")
def test_inference_leaves_them(dtype, call):
    mean, var = (torch.tensor([1.0, 2.0, 3.0, 4.0]).to(dtype) for _ in range(2))
    before, versions = mean.view(bits_dtype(dtype)).tolist(), (mean._version, var._version)
    x = torch.randn(5, 4, 3).to(dtype)
    if call is CALLS["no_update"] and x.is_cuda:
        pytest.skip("stock PyTorch calls the CPU's kernel on any device")
    with torch_dtypes.rounding("up_down"):  # this mode moves rounded values
        for _ in range(3):
            call(x, mean, var)
    assert mean.view(bits_dtype(dtype)).tolist() == var.view(bits_dtype(dtype)).tolist() == before
    assert (mean._version, var._version) == versions


def test_statistics_in_memory_that_cannot_be_written(tmp_path):
    """It once ended the process."""
    file = tmp_path / "statistics"
    file.write_bytes(bytes([0x38] * 4))
    mean = torch.from_file(str(file), shared=True, size=4, dtype=torch.uint8)
    file.chmod(0o444)
    read_only = torch_dtypes.from_codes(mean, torch.q43)
    F.batch_norm(torch.randn(5, 4).to(torch.q43), read_only, torch.ones(4, dtype=torch.q43))
    assert mean.tolist() == [0x38] * 4


def test_training_writes_them():
    mean, var = torch.zeros(4, dtype=torch.q43), torch.ones(4, dtype=torch.q43)
    F.batch_norm(torch.full((5, 4), 2.0).to(torch.q43), mean, var, training=True, momentum=0.5)
    assert mean.tolist() == [1.0] * 4
