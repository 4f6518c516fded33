"""Which stock builtins run through us, when, and what then happens.

Each hooked builtin stays the object that it was; a C function in front of it (torch/csrc/formats/Trampolines.cpp) tests for one of the
reasons below and runs the implementation named here, or else the stock function at once.
"""

from __future__ import annotations

import functools
import types

import torch
import torch._linalg_utils
import torch._lobpcg
import torch._tensor_str
import torch.nn.modules.transformer
import torch.nn.utils
import torch.utils._foreach_utils

from .. import _C, _serialization, chopping
from . import (
    autocast,
    checkpoints,
    conversion,
    distributed,
    factories,
    functions,
    gradients,
    graphs,
    interop,
    linear_cross_entropy,
    operators,
    optimizers,
    printing,
    promotion,
    scripts,
    testing,
)

# Reasons and guards: see torch/csrc/formats/Trampolines.h.
DTYPE_KEYWORD, DTYPE_ANYWHERE, DEFAULT_DTYPE, OWN_SELF, OWN_ARGUMENT = 1, 2, 4, 8, 16
GUARD_KEYWORD, GUARD_ANYWHERE, GUARD_ALWAYS, OWN_NESTED, OWN_OUT, OWN_SELF_DTYPE, OWN_DATA = 32, 64, 128, 256, 512, 1024, 2048
FIRST_CALL, OWN_SCRIPT, OWN_GIVEN, RUNS_BACKWARD, OWN_RESULT, OWN_AUTOCAST = 4096, 8192, 16384, 32768, 65536, 131072

_FLOAT_FACTORIES = (
    "eye bartlett_window blackman_window hamming_window hann_window kaiser_window empty_permuted"
).split()
_LIKE = "zeros_like ones_like empty_like full_like rand_like randn_like randint_like".split()
_NEW = "new_zeros new_ones new_empty new_full new_empty_strided".split()
_SPARSE = "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor".split()
# Functions that make no sense, or nothing of their own, in a number format.
_STOCK_ONLY = (
    "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic empty_quantized _empty_affine_quantized "
    "_empty_per_channel_affine_quantized tril_indices triu_indices"
).split()
# Operators with a dtype= argument.
_WITH_DTYPE = "sum nansum mean nanmean prod cumsum cumprod logcumsumexp softmax log_softmax norm".split()
_MODULES_WITH_DTYPE = {
    "_linalg": "linalg_norm linalg_vector_norm linalg_matrix_norm",
    "_special": "special_softmax special_log_softmax",
}


def _hook(owner: object, name: str, implementation, when: int) -> None:
    builtin = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
    builtin = getattr(builtin, "__func__", builtin)  # pybind11's methods
    if builtin is not None:  # not every supported version of torch has every function
        _C.hook(builtin, implementation, when)


def _wrapped(wrapper, name: str):
    """The cell of the Python function that torch has wrapped by a decorator; the wrapper stays the same object."""
    for cell in wrapper.__closure__ or ():
        if getattr(cell.cell_contents, "__name__", None) == name:
            return cell
    raise ImportError(f"expected {name} to be a wrapped function, as in torch 2.13, but got {wrapper!r}")


def _extended(stock, implementation):
    @functools.wraps(stock)
    def extended(*args, **kwargs):
        # Nothing of ours is in a graph of Dynamo's, which could not trace the implementation; it knows this test.
        own = None if torch.compiler.is_dynamo_compiling() else implementation(*args, **kwargs)
        return stock(*args, **kwargs) if own is None else own

    extended.__prepare_scriptable__ = lambda: stock  # what torch.jit.script compiles: it takes no *args
    return extended


def _extend(module, name: str, implementation) -> None:
    """Lets a private Python function of torch, or method of a class, ask the implementation first, which raises, or answers None for what
    is not ours."""
    stock = getattr(module, name)
    if getattr(stock, "__module__", None) != getattr(module, "__module__", module.__name__):
        raise ImportError(f"expected {module.__name__}.{name} to be torch's own function, but got {stock!r}")
    setattr(module, name, _extended(stock, implementation))


def _extend_wrapped(wrapper, implementation) -> None:
    """The same for a function that torch has wrapped and other modules have imported by name."""
    cell = _wrapped(wrapper, wrapper.__name__)
    cell.cell_contents = _extended(cell.cell_contents, implementation)


def _exchange_code(function, replacement, name: str, implementation) -> None:
    """Lets a public Python function of torch run the replacement's code, which calls the implementation by that name, given the stock
    function first. The function stays the same object."""
    if function.__code__.co_varnames[: function.__code__.co_argcount] != replacement.__code__.co_varnames:
        raise ImportError(f"expected {function!r} to take {replacement.__code__.co_varnames}, as in torch 2.13")
    stock = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    function.__globals__[name] = functools.partial(implementation, stock)
    function.__code__ = replacement.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)


def _when_with_dtype(name: str) -> int:
    positional = DTYPE_ANYWHERE | GUARD_ANYWHERE if "softmax" in name else 0
    return DTYPE_KEYWORD | OWN_SELF_DTYPE | positional


def install() -> None:
    """Patches dtype, finfo and Tensor.dtype, registers the operators and hooks the builtins. Called once, at import."""
    _C.patch(_serialization.reduce_dtype, conversion.set_data, factories.legacy_tensor)
    base = torch._C.TensorBase
    variable_functions, nn_functions = torch._C._VariableFunctions, torch._C._nn

    # Factories
    from_nothing = DTYPE_KEYWORD | DEFAULT_DTYPE | OWN_OUT
    from_data = DTYPE_KEYWORD | DEFAULT_DTYPE | OWN_NESTED | GUARD_KEYWORD | OWN_DATA
    for name in ("zeros", "empty", "empty_strided", "from_file"):
        _hook(torch, name, factories.bits(name), from_nothing)
    for name in ("ones", "full", "normal"):
        _hook(torch, name, getattr(factories, name), from_nothing)
    for name in ("rand", "randn"):
        _hook(torch, name, factories.drawn(name), from_nothing)
    for name in ("arange", "range"):
        _hook(torch, name, factories.arange, from_nothing)
    for name, factory in (("linspace", factories.linspace), ("logspace", factories.through_float64("logspace"))):
        _hook(torch, name, factories.between(factory), from_nothing | OWN_SELF | OWN_ARGUMENT)
    for name in _FLOAT_FACTORIES:
        _hook(torch, name, factories.through_float64(name), from_nothing)
    _hook(torch, "randint", factories.drawn("randint"), DTYPE_KEYWORD)
    _hook(torch, "randperm", factories.through_float64("randperm"), DTYPE_KEYWORD)  # integers that float32 may not have
    for name in ("fft_fftfreq", "fft_rfftfreq"):
        _hook(torch._C._fft, name, factories.through_float64(name), from_nothing)
    for name in ("tensor", "scalar_tensor"):
        _hook(torch, name, getattr(factories, name), from_data)
    _hook(torch, "asarray", factories.asarray, from_data | OWN_SELF)
    _hook(torch, "as_tensor", factories.as_tensor, from_data | DTYPE_ANYWHERE | GUARD_ANYWHERE)
    for name in _LIKE:
        _hook(torch, name, factories.like(name), DTYPE_KEYWORD | GUARD_KEYWORD)
    for name in _NEW:
        _hook(base, name, factories.new(name), DTYPE_KEYWORD | GUARD_KEYWORD)
    _hook(base, "new_tensor", factories.new_tensor, DTYPE_KEYWORD | OWN_SELF | OWN_ARGUMENT)
    _hook(base, "new", factories.legacy_new, OWN_SELF)
    for name in _SPARSE:
        _hook(torch, name, conversion.refuse_sparse, DTYPE_ANYWHERE | OWN_ARGUMENT)
    _hook(base, "set_", conversion.set_, OWN_SELF | OWN_ARGUMENT)

    # Conversions
    _hook(base, "to", conversion.to, OWN_ARGUMENT | GUARD_ANYWHERE)
    _hook(base, "type", conversion.type_, OWN_SELF)
    for name in ("float", "double", "half", "bfloat16"):
        _hook(base, name, None, GUARD_ALWAYS)
    _hook(base, "view", None, GUARD_ANYWHERE)
    _hook(variable_functions, "view_copy", None, GUARD_ANYWHERE)
    _hook(base, "to_dense", None, GUARD_KEYWORD)
    _hook(nn_functions, "_parse_to", conversion.parse_to, DTYPE_ANYWHERE | OWN_ARGUMENT)
    for name in _WITH_DTYPE:
        _hook(variable_functions, name, conversion.function_with_dtype, _when_with_dtype(name))
        _hook(base, name, conversion.method_with_dtype(name), _when_with_dtype(name))
    for module, names in _MODULES_WITH_DTYPE.items():
        for name in names.split():
            _hook(getattr(torch._C, module), name, conversion.function_with_dtype, _when_with_dtype(name))

    _wrapped(torch.Tensor.__rdiv__, "__rdiv__").cell_contents = conversion.rdiv
    _extend(torch._linalg_utils, "get_floating_dtype", conversion.floating_dtype)
    _extend(torch._lobpcg, "_lobpcg", conversion.refuse_lobpcg)
    _extend(torch.masked._ops, "_reduction_identity", functions.masked_identity)
    _extend(torch.nn.functional, "_canonical_mask", functions.canonical_mask)
    _extend(torch.nn.modules.transformer, "_generate_square_subsequent_mask", functions.subsequent_mask)
    optimizers.install(_extend)
    if options := getattr(torch.nn, "LinearCrossEntropyOptions", None):  # not in every supported version of torch
        _extend(options, "_adjust", linear_cross_entropy.adjust)
    _extend_wrapped(torch.utils._foreach_utils._group_tensors_by_device_and_dtype, functions.group_tensors)
    _extend_wrapped(torch.nn.utils.get_total_norm, functions.total_norm)

    for name in ("linalg_matrix_rank", "linalg_pinv"):
        _hook(torch._C._linalg, name, functions.rank_tolerance, OWN_SELF)
    _hook(torch._C._linalg, "linalg_lstsq", functions.lstsq, OWN_SELF)
    _hook(variable_functions, "pinverse", functions.pinverse, OWN_SELF)
    _hook(base, "pinverse", functions.pinverse_method, OWN_SELF)

    for name in ("_foreach_norm", "_foreach_powsum"):
        _hook(torch, name, conversion.foreach_norm, DTYPE_ANYWHERE | OWN_NESTED)
    for name in _STOCK_ONLY:
        _hook(torch, name, conversion.refuse_dtype, DTYPE_ANYWHERE)
    _hook(torch, "_sparse_sum", conversion.refuse_dtype, DTYPE_ANYWHERE)
    for name in ("_sparse_softmax", "_sparse_log_softmax"):
        _hook(torch._C._sparse, name, conversion.refuse_dtype, DTYPE_ANYWHERE)
    _hook(torch._C._nested, "nested_tensor", interop.refuse_nested, DTYPE_ANYWHERE | OWN_NESTED)
    for name in ("_nested_tensor_from_tensor_list", "_nested_view_from_buffer"):
        _hook(torch, name, interop.refuse_nested, DTYPE_ANYWHERE | OWN_NESTED | OWN_SELF)
    _C.hook(base._make_wrapper_subclass, interop.refuse_wrapper, DTYPE_ANYWHERE)
    if made := getattr(base, "_dtensor__new__", None):  # not in every supported version of torch
        _C.hook(made, distributed.refuse_dtensor, OWN_SELF | OWN_ARGUMENT)
    _extend(torch.nn.parallel.DistributedDataParallel, "_build_params_for_reducer", distributed.refuse_ddp)
    distributed.install()

    _hook(torch._C._ImperativeEngine, "run_backward", gradients.run_backward, OWN_NESTED | OWN_GIVEN | RUNS_BACKWARD)
    _C.hook(torch._C._FunctionBase.apply, gradients.note_dtypes, OWN_RESULT)
    _hook(variable_functions, "_make_dual", gradients.make_dual, OWN_SELF | OWN_ARGUMENT)
    gradients.install()

    # Type promotion and the default dtype
    for name in ("promote_types", "can_cast"):
        _hook(torch, name, getattr(promotion, name), DTYPE_ANYWHERE)
    _hook(torch, "result_type", promotion.result_type, OWN_SELF | OWN_ARGUMENT)
    _hook(torch._C, "_set_default_dtype", promotion.set_default_dtype, DTYPE_ANYWHERE | DEFAULT_DTYPE)
    _hook(torch, "get_default_dtype", promotion.get_default_dtype, DEFAULT_DTYPE)

    # autocast
    _hook(torch, "get_autocast_dtype", autocast.get_dtype, OWN_AUTOCAST)
    _hook(torch, "get_autocast_cpu_dtype", autocast.get_cpu_dtype, OWN_AUTOCAST)
    autocast.install()

    # Raw memory: what reads it, what hands it in
    _hook(base, "tolist", conversion.tolist, OWN_SELF)
    _hook(base, "numpy", interop.numpy, OWN_SELF)
    _extend(torch._tensor_str, "_tensor_str", printing.tensor_str)
    for name in ("apply_", "map_", "map2_"):
        _hook(base, name, getattr(interop, name), OWN_SELF | OWN_ARGUMENT)
    for name in ("_to_dlpack", "_to_dlpack_versioned"):
        _hook(torch._C, name, interop.to_dlpack, OWN_SELF)
    if exchange := getattr(torch.Tensor, "__dlpack_c_exchange_api__", None):  # not in every supported version of torch
        _C.patch_dlpack_exchange(exchange)
    _hook(torch, "from_numpy", interop.from_numpy, OWN_DATA)
    _hook(torch, "frombuffer", interop.frombuffer, DTYPE_KEYWORD)
    _C.hook(torch.UntypedStorage.from_buffer, interop.from_buffer_of_storage, DTYPE_ANYWHERE)

    # Graphs
    _hook(torch._C._dynamo.eval_frame, "set_eval_frame", graphs.begin_dynamo, FIRST_CALL)
    graphs.install()
    checkpoints.install()
    operators.install()
    testing.install()
    for script in (torch._C.ScriptMethod, torch._C.ScriptFunction):
        _hook(script, "__call__", _C.run_script, OWN_SCRIPT)
    for name in ("save", "save_to_buffer", "_save_for_mobile", "_save_to_buffer_for_mobile"):
        for script in (torch._C.ScriptModule, torch._C.ScriptFunction):
            _hook(script, name, scripts.refuse_save, OWN_SCRIPT)
    _hook(torch._C, "_jit_pass_optimize_frozen_graph", scripts.optimise_frozen_exactly, OWN_SCRIPT)
    _hook(torch._C, "_jit_pass_optimize_for_inference", scripts.keep_frozen, OWN_SCRIPT)
    for name in ("_create_graph_by_tracing", "_propagate_and_assign_input_shapes"):  # where torch.onnx gets the graph of a module, of a script
        _hook(torch._C, name, scripts.refuse_onnx, OWN_SCRIPT)
    scripts.install()
    chopping.install()

    _extend(torch.storage.TypedStorage, "_pickle_storage_type", _serialization.refuse_storage)
    _serialization.install()
