"""A pytest plugin: the device of the tests' tensors, `--device`.

cpu: tests run as written. stock: the same, with stock operators instead of kernels. cuda: tensors
that factories make without a device are moved to the GPU. gpu-on-host: CPU tensors take the GPU's
path, with the GPU's kernels compiled for the host; it covers all but launches, streams and copies.
Except on cpu, a test that meets an unsupported feature is skipped with the text of its error; all
others must pass. On cuda, tests of the CPU's own switches, texts and generators are skipped, too.
"""

import functools
import os
import re
import sys

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from torch_dtypes import _C

# Read by the processes of pytest-xdist and those that tests begin.
VARIABLE = "TORCH_DTYPES_TEST_DEVICE"
NO_WAY = re.compile(
    r"there is no kernel for it|on a GPU, but got|in a block that is observed, but got one "
    r"on|simulated GPU: |stock operators"
)

# PyTorch's modules whose own tensors belong on the CPU: lengths, and stand-ins for operands when a
# checkpoint recomputes (on the engine's thread, without a mode).
OF_THE_CPU = {"torch.nn.utils.rnn", "torch.utils.checkpoint"}

# These make tensors on the CPU, and no mode sees them.
OF_NO_MODE = (
    (torch, "from_numpy"),
    (_C, "decode_exact"),
    (_C, "encode_exact"),
    (_C, "random_words"),
)

A_GENERATOR = re.compile(r"[Ee]xpected a '?\w+'? device type for generator|expected a generator of")

# Errors of features that only the CPU has by design, whatever their type. A test that expects
# another error may meet one of these first.
REFUSED = re.compile(r"expected a model on the CPU, but \S+ is on cuda")
# Inductor's kernels for a GPU are Triton's, and TorchScript's fuser has its own: neither can run on
# a simulated one.
NOT_SIMULATED = re.compile(
    r"libcuda\.so cannot found|CUDA driver error: not supported by a simulated GPU"
)
CAME_BEFORE = re.compile(r"Actual message: ['\"](.*)")

KERNELS_ONLY = {
    "test_poles_of_operators": "stock operators do not report infinities that they make",
    "test_layers_that_quantize_rounds": "a rule of sums by blocks is refused, as sums are",
    "test_writing_through_a_view_reaches_the_base": "unfold writes an element twice, and stock "
    "operators read all elements before they write",
    "test_one_choice": "chooses the back end itself",
    "test_one_object_serves_two_threads_at_once[accumulate]": "its error leaves a thread waiting",
}

_TEXT = "its text has no device, and types no `cuda`"
_MEMORY = "shares memory with NumPy, which is the CPU's"
_COMMAND = (
    "the command trains on the CPU, in a process of its own or with what it makes itself there"
)
_ON_HOST = "calls kernels that were compiled for the host on pointers to its memory"
_ENCODER = (
    "on a GPU, autocast has no operator for a whole layer of an encoder: its parts are "
    "test_gpu_autocast.py's"
)
CPU_ONLY = {
    "test_operators_that_take_the_widest_dtype": "they are others on a GPU: test_gpu_autocast.py",
    "test_a_transformer_encoder_in_inference": _ENCODER,
    "test_a_transformer_encoder_in_inference_is_as_bfloat16_s": _ENCODER,
    "test_nested_tensors_of_a_transformer_encoder_in_autocast": _ENCODER,
    "test_products_keep_their_operands": (
        "sets oneDNN's switches, which products on a GPU do not go by"
    ),
    "test_to_the_own_dtype_is_the_same_tensor": "asks for the CPU's tensor itself",
    "test_numbers_are_written_as_those_of_the_exact_values": _TEXT,
    "test_the_largest_number_below_an_integer_is_printed_with_its_fraction": _TEXT,
    "test_stock_tensors_are_written_as_ever": (
        "a process without this package, and so without the CPU in a simulated GPU's place, "
        "reads the file"
    ),
    "test_a_fresh_process_knows_the_formats_of_a_file": (
        "that process computes in formats, some without a way on a GPU"
    ),
    "test_queues_share_the_memory_of_tensors": (
        "of the host's memory, with forked processes, which have no CUDA"
    ),
    "test_parameters_are_shared_with_spawned_processes": "of the host's memory",
    "test_torchscript_of_stock_code": "a script makes its tensors on the CPU",
    "test_command_repeats_a_training": _COMMAND,
    "test_command_trains_where_there_are_no_weights": _COMMAND,
    "test_ctrl_c_keeps_what_was_reached_and_the_same_command_goes_on": _COMMAND,
    "test_arrays_of_ml_dtypes_become_tensors_on_their_memory": _MEMORY,
    "test_arrays_of_ml_dtypes_become_what_is_asked": _MEMORY,
    "test_bfloat16_is_not_taken_for_a_number_format_in_silence": _MEMORY,
    "test_the_layout_of_an_array_is_kept": _MEMORY,
    "test_children_forked_while_a_thread_works": "CUDA cannot be used in a forked child",
    "test_vectors_go_into_what_is_no_regular_file_and_where_a_link_leads": (
        "the command works on the CPU, where moved tensors are not"
    ),
    "test_standard_output_that_is_full_or_has_no_reader": (
        "the command works on the CPU, where moved tensors are not"
    ),
    **dict.fromkeys(
        (f"test_cuda_{part}.py" for part in ("arithmetic", "kernels", "launches", "sums")), _ON_HOST
    ),
    "test_a_few_elements_cost_little": (
        "compares times of the CPU's loops, which run while they are called"
    ),
    "test_statistics_in_memory_that_cannot_be_written": "maps a file into the host's memory",
    "test_examples_are_right": _TEXT,
    "test_what_the_checks_ask_holds_beside_a_stock_pytorch": _TEXT,
    "test_data_loader": "CUDA cannot be used in a forked child",
    "test_type_names_the_dtype": _TEXT,
    "test_a_type_s_name_is_taken_back": _TEXT,
    "test_printing_shows_the_values_and_the_dtype": _TEXT,
    "test_printing_of_infinities_and_large_numbers": _TEXT,
    "test_printing_a_default_dtype_leaves_its_name_out": _TEXT,
}

_TRACE = (
    "a simulated GPU has the CPU's convolutions in place of the operators that a tracer would see"
)
REAL_ONLY = {
    "test_script_of_a_stock_model_then_converted": _TRACE,
    "test_a_trace_records_convolutions_as_stock_does": _TRACE,
    "test_profiles_count_operators_once": (
        "a simulated GPU has the CPU's operators run beneath the GPU's"
    ),
    "test_wrappers_run_what_is_inside": (
        "a simulated GPU has no NCCL for several devices of one process"
    ),
}


class OnDevice(TorchFunctionMode):
    """Makes tensors on the CPU with its generators and moves them to the device. NumPy gets a copy,
    and compared tensors may be on either device."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device)

    def move(self, tensor):
        if tensor.device == self.device:
            return tensor
        there = tensor.detach().to(self.device)
        # never ask unless needed: within torch.func, asking is an error
        return there.requires_grad_() if tensor.requires_grad else there

    def with_generator(self, args, kwargs):
        """Replace a CPU generator where tensors on the device are to be drawn. The GPU's generator
        is seeded with a number drawn from it."""
        generator = kwargs.get("generator")
        drawn = any(
            isinstance(x, torch.Tensor) and x.device == self.device
            for x in (*args, *kwargs.values())
        )
        if generator is None or generator.device.type != "cpu" or not drawn:
            return kwargs
        seed = torch.randint(2**62, (), generator=generator, device="cpu").item()
        return {**kwargs, "generator": torch.Generator(self.device).manual_seed(seed)}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = self.with_generator(args, kwargs or {})
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            args = (args[0].cpu(), *args[1:])
        elif func in (torch.equal, torch.allclose):
            args = tuple(x.to(self.device) if isinstance(x, torch.Tensor) else x for x in args)
        result = func(*args, **kwargs)
        own = kwargs.get("device") is None and kwargs.get("out") is None
        if not own or not isinstance(result, torch.Tensor) or func not in _device_constructors():
            return result
        return (
            result
            if sys._getframe(1).f_globals.get("__name__") in OF_THE_CPU
            else self.move(result)
        )


def hidden_from_dynamo(patch):
    """Hide the mode from Dynamo, which would trace it with every call. Graphs would then contain
    its moves and methods instead of operators, and would end within it. A traced function's tensors
    stay on the device it names; eager code still runs with the mode."""
    from torch._dynamo import trace_rules
    from torch._dynamo.variables.torch_function import SymbolicTorchFunctionState

    begin = SymbolicTorchFunctionState.__init__

    def begin_trace(self, modes, *args, **named):
        modes = list(modes)
        begin(self, modes, *args, **named)
        for i in reversed(range(len(modes))):
            if isinstance(modes[i], OnDevice):
                del self.mode_stack[i]

    patch.setattr(SymbolicTorchFunctionState, "__init__", begin_trace)
    trace_rules.add(__name__)  # otherwise a frame of this file is compiled where a graph has ended


# A test draws from two generators: the CPU's, which fills tensors, and the GPU's, by which
# operators round. The package and PyTorch only know the CPU's.


def _of_a_test():
    return not sys._getframe(2).f_globals["__name__"].startswith(("torch.", "torch_dtypes."))


def both_states(get, _set):
    return torch.cat([get(), torch.cuda.get_rng_state()]) if _of_a_test() else get()


def set_both_states(_get, set_, state):
    if not _of_a_test():
        return set_(state)
    size = len(torch.cuda.get_rng_state())
    torch.cuda.set_rng_state(state[-size:])
    set_(state[:-size])


def next_seed():
    """Return the seed of the GPU's next call. The call takes four words of its generator, beginning
    with word `offset`."""
    state = torch.cuda.get_rng_state()
    seed, offset = state.view(torch.int64).tolist()
    torch.cuda.set_rng_state(torch.tensor([seed, offset + 4], device="cpu").view(torch.uint8))
    return _C.random_words(seed % 2**64, offset, 1).item() % 2**64


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=("cpu", "cuda", "gpu-on-host", "stock"),
        default=os.environ.get(VARIABLE, "cpu"),
        help="where the tests' tensors lie",
    )


def pytest_configure(config):
    device = config.getoption("device")
    if device == "cpu":
        return
    os.environ[VARIABLE] = device
    if device == "stock":
        _C.set_backend(True)
        return
    if device == "gpu-on-host":
        if not _C.built_for_host():
            raise pytest.UsageError(
                "--device gpu-on-host: expected a build with TORCH_DTYPES_GPU_ON_HOST=ON, but "
                "got one without: see CONTRIBUTING.md"
            )
        _C.set_gpu_on_host(True)
        return
    if not (torch.cuda.is_available() and _C.has_gpu_kernels()):
        raise pytest.UsageError(
            "--device cuda: expected a GPU and a build with kernels for it, but got none"
        )
    # Otherwise stock convolutions run in TF32, and those of wider formats go to float64 with a
    # warning, which is an error here. The old switch is set because old and new names both read it.
    # Setting fp32_precision of convolutions and RNNs alone makes torch.backends.cudnn.flags raise.
    torch.backends.cudnn.allow_tf32 = False
    mode = OnDevice(torch.device("cuda", torch.cuda.current_device()))
    mode.__enter__()
    config.add_cleanup(lambda: mode.__exit__(None, None, None))
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    for module, name in OF_NO_MODE:
        patch.setattr(
            module,
            name,
            functools.partial(
                lambda stock, *args, **kwargs: mode.move(stock(*args, **kwargs)),
                getattr(module, name),
            ),
        )
    patch.setattr(_C, "next_seed", next_seed)
    states = torch.get_rng_state, torch.set_rng_state
    for name, get_or_set in (("get_rng_state", both_states), ("set_rng_state", set_both_states)):
        patch.setattr(torch, name, functools.partial(get_or_set, *states))
    hidden_from_dynamo(patch)


def pytest_collection_modifyitems(config, items):
    device = config.getoption("device")
    for item in items if device == "stock" else ():
        if reason := KERNELS_ONLY.get(
            getattr(item, "originalname", None), KERNELS_ONLY.get(item.name)
        ):
            item.add_marker(pytest.mark.skip(reason=f"of kernels alone: {reason}"))
    if device != "cuda":
        return
    is_simulated = torch.cuda.get_device_name() == "Simulated GPU"
    for item in items:
        name = getattr(item, "originalname", None)
        if reason := CPU_ONLY.get(name) or CPU_ONLY.get(item.path.name):
            item.add_marker(pytest.mark.skip(reason=f"of the CPU alone: {reason}"))
        elif is_simulated and (reason := REAL_ONLY.get(name)):
            item.add_marker(pytest.mark.skip(reason=f"of a real GPU: {reason}"))


def pytest_runtest_setup(item):
    if item.config.getoption("device") == "stock":
        _C.set_backend(True)  # a test may have ended its own choice


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if item.config.getoption("device") == "cpu" or call.excinfo is None:
        return
    words = str(call.excinfo.value)
    before = CAME_BEFORE.search(words)
    no_way = (
        NO_WAY.search(words)
        if isinstance(call.excinfo.value, NotImplementedError)
        else before and NO_WAY.search(before[1])
    )
    if no_way or (
        item.config.getoption("device") == "cuda"
        and any(r.search(words) for r in (A_GENERATOR, REFUSED, NOT_SIMULATED))
    ):
        report = outcome.get_result()
        report.outcome = "skipped"
        report.longrepr = (
            str(item.path),
            item.location[1] or 0,
            f"Skipped: {words.splitlines()[0]}",
        )
