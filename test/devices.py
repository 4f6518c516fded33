"""A pytest plugin: the device that the tests' tensors lie on, `--device`.

cpu: as they are written. cuda: what factories make without a device is moved to the GPU. gpu-on-host: CPU tensors go the GPU's way, where the GPU's
kernels were compiled for the host; everything but launches, streams and copies is tested so. On the last two, a test that comes to what has no way
on a GPU is skipped with the sentence that says so; all others must pass. On cuda, tests of the CPU's own switches are skipped, too.
"""

import os
import re

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from torch_dtypes import _C

VARIABLE = "TORCH_DTYPES_TEST_DEVICE"  # for the processes of own_process.py and of pytest-xdist
NO_WAY = re.compile(r"there is no kernel for it|on a GPU, but got|in a block that is observed, but got one on")

CPU_ONLY = {"test_products_keep_their_operands": "sets oneDNN's switches, which products on a GPU do not go by"}


class OnDevice(TorchFunctionMode):
    """Tensors are made on the CPU, by its generators, and moved; NumPy gets a copy."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.numpy and args[0].device == self.device:
            args = (args[0].cpu(), *args[1:])
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and kwargs.get("device") is None and func in _device_constructors():
            return result.detach().to(self.device).requires_grad_(result.requires_grad)
        return result


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cpu", "cuda", "gpu-on-host"), default=os.environ.get(VARIABLE, "cpu"), help="where the tests' tensors lie")


def pytest_configure(config):
    device = config.getoption("device")
    if device == "cpu":
        return
    os.environ[VARIABLE] = device
    if device == "gpu-on-host":
        if not _C.built_for_host():
            raise pytest.UsageError(
                "--device gpu-on-host: expected a build with TORCH_DTYPES_GPU_ON_HOST=ON, but got one without: see CONTRIBUTING.md"
            )
        _C.set_gpu_on_host(True)
        return
    if not (torch.cuda.is_available() and _C.has_gpu_kernels()):
        raise pytest.UsageError("--device cuda: expected a GPU and a build with kernels for it, but got none")
    # Else stock convolutions are in TF32: those of our wider formats go to float64 then, with a warning, which is an error here. By the old switch,
    # which old and new names both read: fp32_precision of convolutions and RNNs alone makes torch.backends.cudnn.flags raise.
    torch.backends.cudnn.allow_tf32 = False
    mode = OnDevice("cuda")
    mode.__enter__()
    config.add_cleanup(lambda: mode.__exit__(None, None, None))


def pytest_collection_modifyitems(config, items):
    if config.getoption("device") == "cuda":
        for item in items:
            if reason := CPU_ONLY.get(getattr(item, "originalname", None)):
                item.add_marker(pytest.mark.skip(reason=f"of the CPU alone: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if item.config.getoption("device") == "cpu" or call.excinfo is None:
        return
    words = str(call.excinfo.value)
    if isinstance(call.excinfo.value, NotImplementedError) and NO_WAY.search(words):
        report = outcome.get_result()
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {words.splitlines()[0]}")
