r"""A pytest plugin for PyTorch's own tree (docs/in-tree.md), where the dtypes are PyTorch's and
the overlay is absent.

    PYTHONPATH=SOURCE python -m pytest test/numbers test/operators ...

Such a build never frees the numbers of formats. So each file runs in a process that is forked from
one without formats, and a test that finds no free number starts another. (Without pytest-xdist's
-n.)

Tests of the overlay, of its effect on stock code, or of parts that such a build lacks are not
collected. All others are the tests that run beside a wheel. Some of them raise an error of PyTorch
2.6 itself here. DIFFERS names each of these by its test and a pattern of the error, and they are
reported as expected failures with the reason. A wrong result never matches such a pattern.
"""

import contextlib
import importlib.util
import os
import re
from multiprocessing import Pipe
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

TEST = Path(__file__).resolve().parent
FOLDERS = importlib.util.find_spec("torch_dtypes").submodule_search_locations
# Without importing PyTorch.
IN_TREE = not any(Path(folder, "host", "hooks").is_dir() for folder in FOLDERS)

# The module that raises an optimizer's eps.
RAISES_EPS = f"torch_dtypes.host.{'install' if IN_TREE else 'hooks.optimizers'}"

# Files, by their subject.
OVERLAY = (
    "autograd/test_foreign_gradients.py",
    "graphs/test_compile_runs_eagerly.py",
    "graphs/test_graph_capture.py",
    "graphs/test_script.py",
    "graphs/test_stock_compile.py",
    "host/test_hooks.py",
    "host/test_loading_again.py",
    "host/test_stock.py",
    "host/test_dormant.py",
    "host/test_default_device.py",  # by the overlay's table of releases
    "operators/test_other_kinds.py",  # of its hooks
    "operators/test_rounding_once.py",  # of functions that the overlay takes over
    "formats/test_typing.py",  # installed beside a wheel only
)
DISTRIBUTED = (
    *(
        f"host/distributed/test_{name}.py"
        for name in (
            "collectives",
            "collective_sums",
            "collectives_refused",
            "ddp",
            "ddp_scales",
            "distributed",
            "distributed_rpc",
            "distributed_scaling",
            "distributed_tensors",
            "functional_collectives",
            "sharded",
        )
    ),
    "workbench/test_train_ranks.py",
)
NEWER = (  # features that PyTorch 2.6 lacks: DebugMode, precisions of float32 by operator
    "graphs/test_listings.py",
    "operators/test_float32_precision.py",
)
LEFT_OUT = {str(TEST / name) for name in (*OVERLAY, *DISTRIBUTED, *NEWER, "tools")}


FULL = "expected at most 64 number formats made at run time in one process"


class Row(NamedTuple):
    """Patterns for a test's name and for its error (as `KeyError: ...`), and the reason why that
    error is right there."""

    test: str
    error: str
    reason: str


FILES = "PyTorch 2.6 has no such files of its newer types, nor of float8"
NUMPY = (
    "only the overlay has NumPy's types through ml_dtypes; here x.numpy() refuses a format, "
    "like bfloat16"
)
WORDS = "the error is PyTorch's own, which names the dtypes"
LAYOUT = "PyTorch's own error says that it has no such factory of another layout"
DEFAULT = "PyTorch's operators on integers know stock default dtypes only"
LACKS = "PyTorch 2.6 lacks it"
IMPORTED = "the package is not imported with torch there"
COMPILED = "torch.compile and torch.export do not know the types"
COMPILED_OLD = "torch.compile and torch.export of PyTorch 2.6, of float32 models too"
BY_HAND = "operators called by hand take the dtypes"
ONE_LERP = "PyTorch 2.6 has lerp of one dtype only"

FRACTIONS = "Python's fractions in a list count as numbers of the default dtype, as beside bfloat16"
DIFFERS = (
    Row(r"", r"type object 'torch.storage.UntypedStorage' has no attribute 'dtype'", FILES),
    Row(r"", r"'torch.storage.UntypedStorage' object has no attribute '_untyped_storage'", FILES),
    Row(
        r"test_a_future_version_of_the_layout",
        r"DID NOT RAISE",
        "files and their layout are PyTorch's own there",
    ),
    Row(
        r"test_serialization.py",
        r"Cannot save multiple tensors or storages that view the same data as different types",
        FILES,
    ),
    Row(
        r"test_serialization.py",
        r"a leaf Variable that requires grad is being used in an in-place operation",
        FILES,
    ),
    Row(
        r"test_typed_storages",
        r"KeyError: .*torch\.|Expected a Storage of type Float or an UntypedStorage",
        FILES,
    ),
    Row(r"", r"Got unsupported ScalarType|can't convert np.ndarray of type ml_dtypes", NUMPY),
    Row(
        r"test_numpy_has_no_type|test_gradients_and_numpy|test_types_of_ml_dtypes|"
        r"test_bfloat16_is_not_taken",
        r"Regex pattern did not match",
        NUMPY,
    ),
    Row(r"test_no_way_of_dlpack", r"no attribute '__dlpack_c_exchange_api__'", LACKS),
    Row(
        r"test_grad_dtype_names|test_a_leaf_takes_what_grad_dtype",
        r"no attribute 'grad_dtype'",
        LACKS,
    ),
    Row(
        r"test_a_gradient_is_of_the_dtype_that_grad_dtype",
        r"attempting to assign a gradient with dtype",
        WORDS,
    ),
    Row(
        r"test_dtensors_without_autograd",
        r"No module named 'torch._C._distributed_c10d'",
        "built without torch.distributed",
    ),
    Row(r"", r"module 'torch.nn.functional' has no attribute 'grouped_mm'", LACKS),
    Row(
        r"test_a_tensor_anywhere_in_a_list|test_elements_of_a_list_promote",
        r"assert torch.float32 is torch\.|assert .*torch.float32",
        FRACTIONS,
    ),
    Row(
        r"test_elements_of_a_list_keep_their_dtype",
        r"invalid default scalar type for complex",
        DEFAULT,
    ),
    Row(r"test_fractions_in_hooks_are_of_the_default", r'"div_cpu" not implemented', DEFAULT),
    Row(r"test_default_dtype_makes_no_sparse_or_nested", r"Regex pattern did not match", LAYOUT),
    Row(
        r"test_nested_tensors_of_a_transformer_encoder_in_autocast",
        r"Regex pattern did not match",
        WORDS,
    ),
    Row(
        r"test_functions_of_users_are_autocast_s_in_backward",
        r"cannot register a hook on a tensor that doesn't require gradient",
        "PyTorch 2.6 keeps the cast of a weight that a Function made without gradients, beside "
        "bfloat16, too",
    ),
    Row(r"", r"module 'torch.optim' has no attribute 'Muon'", LACKS),
    Row(r"", r"the derivative for 'nextafter' is not implemented", LACKS),
    Row(r"", r'"index_cpu" not implemented for .Float8', LACKS),
    Row(
        r"test_gradients_in_user_code|test_gradients_of_other_dtypes",
        r"hook '.*' has changed the type of value \(was .*torch\.",
        WORDS,
    ),
    Row(
        r"test_layouts_other_than_strided",
        r"Could not run 'aten::.*' with arguments from the 'SparseCPU' backend",
        LAYOUT,
    ),
    Row(
        r"test_layouts_other_than_strided",
        r"is not implemented for sparse layout|MKL-DNN build is disabled|DID NOT RAISE",
        LAYOUT,
    ),
    Row(r"test_memory_is_shared_or_copied", r"can't alias arbitrary sequence into a tensor", WORDS),
    Row(r"test_views_in_place", r"the base given to float_power_ has dtype", WORDS),
    Row(r"test_set_wants_one_dtype", r"Could not set tensor of type", WORDS),
    Row(
        r"test_operators_on_a_format_tensor_and_a_tensor|test_promotion_where",
        r"expected dtype \w+ for `weight`",
        ONE_LERP,
    ),
    Row(
        r"\[lerp_? by a number",
        r"expected dtype c10::BFloat16 for `weight`|assert <class 'RuntimeError'> is",
        ONE_LERP,
    ),
    Row(
        r"test_stock_dtypes_by_hand",
        r"should be convertible without narrowing",
        "the same rule as for float32 in stock PyTorch",
    ),
    Row(r"test_default_dtype_is_that_of_fractions", r'"\w+_cpu" not implemented for', DEFAULT),
    Row(
        r"test_functionalize_converts",
        r'"cumsum_out_cpu" not implemented for',
        "a stock tensor's cumsum(dtype=) of a format: cast first",
    ),
    Row(
        r"lowrank|lobpcg",
        r"aten::matmul: expected operands of one dtype",
        "PyTorch 2.6 draws a float32 matrix there; bfloat16 raises, too",
    ),
    Row(r"test_what_cannot_be_assigned", r"can't assign a \w+ to a torch\.", WORDS),
    Row(
        r"test_what_stock_does\[rms_norm",
        r"AssertionError",
        "PyTorch 2.6's rms_norm promotes by its weight; here it follows newer releases",
    ),
    Row(r"test_format_dtypes_by_hand|test_operators_written_in_python", r"DID NOT RAISE", BY_HAND),
    Row(r"test_found_by_random_calls.*Use torch.promote", r"DID NOT RAISE", BY_HAND),
    Row(
        r"test_found_by_random_calls",
        r"where expected condition to be a boolean|received an invalid combination of arguments",
        WORDS,
    ),
    Row(
        r"test_one_clear_error\[other",
        r"not supported in new_qtensor|Quantize only works on Float",
        WORDS,
    ),
    Row(
        r"test_one_clear_error\[nested",
        r"DID NOT RAISE",
        "a jagged tensor is PyTorch's wrapper around a format tensor, and works",
    ),
    Row(
        r"test_result_has_the_asked_dtype.*(FakeTensor|call202)",
        r"in the wrong class",
        "a fake tensor has the dtype, and no numbers",
    ),
    Row(
        r"float8_e4m3fn\]",
        r"Tensor-likes are not equal",
        "PyTorch 2.6 rounds numbers beyond float8_e4m3fn differently",
    ),
    Row(
        r"inplace-fft\.",
        r"out=: expected the tensor itself",
        "out is filled; what comes back beside it is another tensor",
    ),
    Row(
        r"softmax.with_dtype",
        r"expected out of the result's dtype",
        "softmax(dtype=, out=) of another dtype is refused there: cast first",
    ),
    Row(
        r"test_tangents\[posit16es2-ldexp",
        r"passes: remove it",
        "PyTorch 2.6's tangent has the result's dtype",
    ),
    Row(
        r"test_operands_of_two_dtypes.*fractional_max_pool2d",
        r"assert \[\]",
        "no sample in PyTorch 2.6's database",
    ),
    Row(r"test_in_compiled_graphs", r"Failed running call_function|KeyError: torch\.", COMPILED),
    Row(
        r"test_quantized_graphs.py",
        r"must be Tensor, not NoneType|DID NOT RAISE|unsafe constant",
        COMPILED_OLD,
    ),
    Row(
        r"test_a_tangent_has_its_tensor_s_dtype",
        r"assert torch\.\w+ is torch\.",
        "PyTorch leaves a tangent its own dtype, beside bfloat16 too",
    ),
    Row(
        r"test_every_way_keeps.*\[(cum)?sum-into",
        r"AssertionError",
        "a stock tensor's sum(dtype=) of a format is an error: cast first",
    ),
    Row(
        r"test_operator_table.py",
        r"AssertionError",
        "operators are registered differently, for instance as factories",
    ),
    Row(
        r"test_optimizer_steps.py",
        r"expected Tensor as element 1 in argument 2, but got NoneType",
        "PyTorch's fused SGD, for float32 too",
    ),
    Row(r"test_said_once_a_process", r"CalledProcessError", IMPORTED),
    Row(
        r"test_lstm_without_batches", r"Expected sequence length to be larger than 0 in RNN", WORDS
    ),
    Row(
        r"test_tensors_are_cast_by_the_standard",
        r"UserWarning: To copy construct from a tensor",
        "PyTorch's own warning of torch.tensor(a tensor)",
    ),
    Row(
        r"test_autocast_takes_our_dtypes_on_the_cpu",
        r"UserWarning: (User provided device_type of|In XPU autocast)",
        WORDS,
    ),
    Row(
        r"test_masks_of_infinities_in_autocast\[\w+-False",
        r"AssertionError",
        "autocast casts the mask of a function unchanged: fill the scores",
    ),
    Row(
        r"test_gradients_within_the_block|test_gradients_of_rules_within_autocast",
        r"AssertionError",
        "PyTorch's engine: call backward() after the block",
    ),
    Row(
        r"test_a_transformer_encoder_in_inference",
        r"expected operands of one dtype",
        "the fused operator runs unchanged: use train() or switch autocast off",
    ),
    Row(r"test_nested_tensors_of_a_transformer_encoder", r"RuntimeError", WORDS),
    Row(
        r"-lstm\]",
        r"mutating directly with `.data` inside functorch",
        "PyTorch's own, for bfloat16 too: a module is converted within torch.func",
    ),
    Row(r"test_interop.py", r"MKL-DNN build is disabled", "built without oneDNN"),
    Row(
        r"test_quantize_per_tensor_with_a_zero_point",
        r"assert tensor\(0, dtype=torch.int32\) == 1",
        "without FBGEMM stock PyTorch rounds like this package",
    ),
    Row(r"test_safetensors.py", r"KeyError: torch\.|one that torch_dtypes cannot hook", IMPORTED),
    Row(
        r"test_many_formats.py|test_more_formats_than_fit",
        r"AssertionError",
        "the numbers of formats are never freed",
    ),
    Row(
        r"",
        r"Weights only load failed",
        "a file with a format made at run time loads where torch_dtypes is imported",
    ),
    Row(
        r"test_tensor_body.py",
        r"AssertionError",
        "x.data = another dtype is PyTorch's own there, as for bfloat16",
    ),
    Row(
        r"test_observe_passes.py",
        r"assert 2 == 0",
        "the package itself has two hooks on the steps of optimizers",
    ),
    Row(
        r"test_a_model_names_its_formats|test_own_modules_keep_their_words",
        r"AssertionError",
        "only the overlay's modules print their dtype",
    ),
    Row(r"test_wrapper_subclasses_are_refused", r"Tensor must define __torch_dispatch__", LACKS),
    Row(r"test_models_that_cannot_be_quantised", r"DID NOT WARN", LACKS),
    Row(
        r"",
        r"^(Unsupported|InternalTorchDynamoError|TorchRuntimeError|UserError): |graph_break\(\) "
        r"got an|compiled_args nyi",
        COMPILED,
    ),
)


def pytest_ignore_collect(collection_path, config):
    return True if IN_TREE and str(collection_path) in LEFT_OUT else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if IN_TREE and report.when == "call" and report.failed and call.excinfo:
        words = f"{call.excinfo.typename}: {call.excinfo.value}"
        for row in DIFFERS:
            if re.search(row.test, item.nodeid) and re.search(row.error, words, re.DOTALL):
                report.outcome, report.wasxfail = "skipped", row.reason
                break
    return report


def run_in_child(items, first, last, pipe):
    """Run tests of one file in a forked process and send the report of each. Send None where a new
    process is needed first."""
    for i in range(first, last):
        item = items[i]
        reports = runtestprotocol(item, log=False, nextitem=items[i + 1] if i + 1 < last else None)
        if i > first and any(r.failed and FULL in r.longreprtext for r in reports):
            pipe.send(None)
            break
        pipe.send(
            [
                item.config.hook.pytest_report_to_serializable(config=item.config, report=r)
                for r in reports
            ]
        )
    os._exit(0)


def log_reports(item, data):
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in data:
        hook.pytest_runtest_logreport(
            report=item.config.hook.pytest_report_from_serializable(config=item.config, data=report)
        )
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    if not IN_TREE or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return None
    items, i = session.items, 0
    while i < len(items):
        last = next((k for k in range(i, len(items)) if items[k].path != items[i].path), len(items))
        pipe, theirs = Pipe()
        if (child := os.fork()) == 0:
            run_in_child(items, i, last, theirs)
        theirs.close()
        with contextlib.suppress(EOFError):
            while i < last and (data := pipe.recv()) is not None:
                log_reports(items[i], data)
                i += 1
        if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            words = f"expected the process to run this test, but it ended with status {status}"
            ended = pytest.TestReport(
                items[i].nodeid, items[i].location, {}, "failed", words, "call"
            )
            log_reports(
                items[i],
                [
                    session.config.hook.pytest_report_to_serializable(
                        config=session.config, report=ended
                    )
                ],
            )
            i += 1
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    return True
