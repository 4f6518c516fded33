"""A pytest plugin: the device that the tests' tensors lie on, `--device`.

cpu: as they are written. cuda: what factories make without a device is moved to the GPU. gpu-on-host: CPU tensors go the GPU's way, where the GPU's
kernels were compiled for the host; everything but launches, streams and copies is tested so. On the last two, a test that comes to what has no way
on a GPU is skipped with the sentence that says so; all others must pass. On cuda, tests of the CPU's own switches, texts and generators are skipped,
too.
"""

import os
import re

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from torch_dtypes import _C

VARIABLE = "TORCH_DTYPES_TEST_DEVICE"  # for the processes of own_process.py and of pytest-xdist
NO_WAY = re.compile(r"there is no kernel for it|on a GPU, but got|in a block that is observed, but got one on|simulated GPU: ")

A_GENERATOR = re.compile(r"[Ee]xpected a '?\w+'? device type for generator|expected a generator of")

_TEXT = "its text has no device, and types no `cuda`"
CPU_ONLY = {
    "test_products_keep_their_operands": "sets oneDNN's switches, which products on a GPU do not go by",
    "test_to_the_own_dtype_is_the_same_tensor": "asks for the CPU's tensor itself",
    "test_numpy_has_types_of_some_formats_by_ml_dtypes": "NumPy shares the CPU's memory",
    "test_type_names_the_dtype": _TEXT,
    "test_a_type_s_name_is_taken_back": _TEXT,
    "test_printing_shows_the_values_and_the_dtype": _TEXT,
    "test_printing_of_infinities_and_large_numbers": _TEXT,
    "test_printing_a_default_dtype_leaves_its_name_out": _TEXT,
}


class OnDevice(TorchFunctionMode):
    """Tensors are made on the CPU, by its generators, and moved; NumPy gets a copy, and what is compared may lie on both."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device)

    def moved(self, tensor):
        return tensor if tensor.device == self.device else tensor.detach().to(self.device).requires_grad_(tensor.requires_grad)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            args = (args[0].cpu(), *args[1:])
        elif func in (torch.equal, torch.allclose):
            args = tuple(x.to(self.device) if isinstance(x, torch.Tensor) else x for x in args)
        result = func(*args, **kwargs)
        own = kwargs.get("device") is None and kwargs.get("out") is None
        return self.moved(result) if own and isinstance(result, torch.Tensor) and func in _device_constructors() else result


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
    mode = OnDevice(torch.device("cuda", torch.cuda.current_device()))
    mode.__enter__()
    stock = torch.from_numpy  # no mode sees it
    torch.from_numpy = lambda array: mode.moved(stock(array))

    def leave():
        torch.from_numpy = stock
        mode.__exit__(None, None, None)

    config.add_cleanup(leave)


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
    no_way = isinstance(call.excinfo.value, NotImplementedError) and NO_WAY.search(words)
    if no_way or (item.config.getoption("device") == "cuda" and A_GENERATOR.search(words)):
        report = outcome.get_result()
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {words.splitlines()[0]}")
