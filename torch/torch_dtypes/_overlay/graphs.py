"""torch.compile, torch.export and make_fx beside number formats.

Graphs of theirs are captured with fake tensors and name dtypes by numbers that end before ours. What torch.compile is to compile in our dtypes
becomes a graph of codes (``torch_dtypes/compiling/``). What cannot be in one runs as it is written, said once; with fullgraph=True, and in
capture by hand, that is an error.
"""

from __future__ import annotations

import functools
import os
import threading
import types
import warnings

import torch
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import _C
from .._autocast import AUTOCAST_DEVICES, own_autocast_dtype
from . import optimizers, table
from .graph_variables import (
    SEVERAL_OF_ONE,
    functions_kept_whole,
    guarding_dtypes,
    kept_whole,
    known,
    methods_kept_whole,
    naming_types,
    of_stock_classes,
    traced_anew,
)
from .releases import NO_REUSE_OF_REGIONS, NO_TABLE_OF_METHODS, SKIP_RULES_KNOW_FRAMES, SKIPS_HAVE_REASONS
from .table import Builtin, Registered, Replaced, When

NOTICE = (
    "torch.compile runs uncompiled what a graph cannot have of number formats (torch.{name} here). Results are those of the same code without "
    "torch.compile; the rest is compiled as ever. This is said once."
)
_noticed = False


def _notice(name: str) -> None:
    global _noticed
    if not _noticed:
        _noticed = True
        warnings.warn(NOTICE.format(name=name), UserWarning, stacklevel=2)


def refusal(what: str, name: str) -> str:
    """The message of an error where a graph is asked for by hand."""
    return (
        f"expected stock dtypes in {what}, but got torch.{name}: what makes or takes it here is no part of a graph. Hand such "
        "tensors over as arguments, run the function uncaptured, or capture it in a stock dtype."
    )


# ---- does a frame work under a setting of ours? ----

format_in = _C.format_in  # what it looks into, and that it runs no code of users': torch/csrc/formats/FormatSearch.cpp


def _format_of_setting() -> str | None:
    """The default dtype or autocast's where it is ours: stock code makes tensors of it unseen."""
    for setting in (_C.get_default_format(), *map(own_autocast_dtype, AUTOCAST_DEVICES)):
        if setting is not None:
            return _C.name_of(setting)
    return None


# ---- torch.compile ----


def skipping(stock):
    """What dynamo calls for each frame without valid compiled code: under a default dtype or autocast of ours it runs as it is written, and so does
    an optimizer's step of parameters of ours."""
    from torch._dynamo import convert_frame, exc, trace_rules
    from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

    def skipped(name: str):
        _notice(name)
        # This call and those from it, but no later ones: the same code may get stock tensors next.
        strategy = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
        reason = {"skip_reason": f"torch.{name}"} if SKIPS_HAVE_REASONS else {}
        return ConvertFrameReturn(frame_exec_strategy=strategy, apply_to_code=False, **reason)

    @functools.wraps(stock)
    def call(self, frame, cache_entry, frame_state):
        name = _format_of_setting() or _format_of_step(frame)
        if name is None or trace_rules.check(frame.f_code, **({"frame": frame} if SKIP_RULES_KNOW_FRAMES else {})):
            try:
                return stock(self, frame, cache_entry, frame_state)
            except exc.ResumePrologueTracingError:  # what goes on within an autocast of ours begins with that
                if (name := format_in(tuple(frame.f_locals.values()))) is None:
                    raise
                return skipped(name)
        if isinstance(self._torchdynamo_orig_backend, convert_frame.ConvertFrameAssert):  # fullgraph=True, strict export
            raise exc.Unsupported(refusal("a whole graph", name), "number format")
        return skipped(name)

    return call


@functools.cache
def _code_of_steps() -> types.CodeType:
    """The code around each optimizer's step."""
    return torch.optim.Optimizer.profile_hook_step(len).__code__


def _format_of_step(frame) -> str | None:
    """The format of an optimizer's parameters whose step a frame is, or of one of torch.optim's functions."""
    if frame.f_code is _code_of_steps():
        return _format_of_optimizer(*frame.f_locals["args"][:1])
    if frame.f_code is not optimizers.step.__code__:
        return None
    dtype = optimizers.dtype_of(frame.f_locals["params"])
    return None if dtype is None else _C.name_of(dtype)


def _format_of_optimizer(optimizer: object = None) -> str | None:
    groups = optimizer.param_groups if isinstance(optimizer, torch.optim.Optimizer) else ()
    dtype = optimizers.dtype_of([p for group in groups for p in group["params"]])
    return None if dtype is None else _C.name_of(dtype)


def _end_graph(name: str, why: str = "") -> None:
    from torch._dynamo import exc

    _notice(name)
    exc.unimplemented(gb_type="Number format", context=f"torch.{name}", explanation=refusal("a graph", name) + why, hints=[])


def breaking(find):
    """Functions of dynamo's where one of our dtypes may be named, of which a graph could not know: it ends before that."""

    def made(stock):
        @functools.wraps(stock)
        def make(*args, **kwargs):
            if (name := find(*args)) is not None:
                _end_graph(name)
            return stock(*args, **kwargs)

        return make

    return made


def breaking_nodes(stock):
    """What makes a node's fake value: the graph ends before a node that names a dtype of ours, but for casts and what makes a tensor in a graph that
    has some, or that ``Codes`` cannot have."""
    from torch._dynamo import exc

    from ..compiling import codes, frames

    @functools.wraps(stock)
    def make(node, tx, *args, **kwargs):
        if (name := format_in((*node.args, *node.kwargs.values()))) is not None:
            if (made := codes.fake_named(node, tx)) is not None:
                return made
            _end_graph(name)
        if codes.resizes_out(node, tx):
            _end_graph(frames.format_of_node(node), " (tensors to write to of other sizes than the results')")
        for find in (codes.fake_cast_to_another, codes.fake_attention):
            if (made := find(node, tx)) is not None:
                return made
        try:
            with codes.in_a_whole_graph(codes.is_to_be_whole(tx)):
                return stock(node, tx, *args, **kwargs)
        except (exc.TorchRuntimeError, exc.Unsupported) as error:
            if (name := frames.format_of_node(node)) is None:
                raise
            if isinstance(error, exc.Unsupported):
                cannot = isinstance(error.__cause__, (NotImplementedError, UnsupportedFakeTensorException))
                if cannot and (made := codes.fake_function(node, tx)) is not None:
                    return made
                raise
            _end_graph(name, f" ({error})")  # eager code has the result, or the error

    return make


class _AsNode:
    """In the place of what traces a call: the call is one node of the graph."""

    def __init__(self, tx, function, args, kwargs) -> None:
        self._node = function, tx, args, kwargs

    def inline_call_(self):
        from torch._dynamo.variables import TorchInGraphFunctionVariable

        function, *call = self._node
        return TorchInGraphFunctionVariable(function).call_function(*call)


def ending_before_calls(stock):
    """What traces a call of a Python function: the graph ends before an optimizer's step of parameters of ours, and before what an extended function
    (``table.Extended``) says, unless that is a node of it."""

    @functools.wraps(stock)
    def build(parent, func, args, kwargs, **others):
        if func.get_code() is _code_of_steps():
            if args and (name := _format_of_optimizer(getattr(args[0].realize(), "value", None))) is not None:
                _end_graph(name)
        elif (ends := getattr(getattr(func, "fn", None), "ends_graph", None)) is not None:
            if (dtype := ends(*map(known, args), **{k: known(v) for k, v in kwargs.items()})) is not None:
                if func.fn.node is not None:
                    return _AsNode(parent, func.fn.node, args, kwargs)
                _end_graph(_C.name_of(dtype))
        return stock(parent, func, args, kwargs, **others)

    return build


def never_compiled(add) -> None:
    """Frames in our files are never compiled by themselves, as those in PyTorch's files are not: what stands in front of a stock function would
    be compiled where the stock one is left alone, and a hook registered there be lost with the graph's break."""
    add("torch_dtypes")


def traced_through(stock):
    """The list of files whose functions are traced through where a traced one calls them, with those of ours that stand in front of stock's."""
    from torch._dynamo.trace_rules import _as_posix_path

    inside = ("conversion", "functions", "linear_cross_entropy", "printing", "table", "testing")
    collectives = os.path.join("integrations", "functional_collectives")
    modules = (*(os.path.join("_overlay", name) for name in inside), collectives, "_autocast", "chopping", "quantization", "training")
    package = os.path.dirname(os.path.dirname(__file__))
    ours = {_as_posix_path(os.path.join(package, name)) for name in modules}

    @functools.cache  # stock clears it by clear_lru_cache()
    def listed():
        return stock() | ours

    return listed


def _format_of_autocast(_, args, kwargs) -> str | None:
    """The dtype of ours that a traced torch.autocast(...) is given."""
    return format_in([v.as_python_constant() for v in (*args, *kwargs.values()) if hasattr(v, "is_python_constant") and v.is_python_constant()])


def draws(operators: list) -> None:
    """The list of random operators whose calls are not joined, which goes by no tag: chop's, products under a policy, and those on codes."""
    from ..compiling.operators import list_drawing_in

    own = torch.ops.torch_dtypes
    operators += [own.chop, own.chop_blocks, own.product, own.product_backward]
    list_drawing_in(operators)


def begin_dynamo(stock, callback):
    """The first call, with which everything of dynamo's begins: what torch.compile needs is installed then, but for the rules."""
    table.install(row for row in LATER_HOOKS if row not in RULES)
    return stock(callback)


# ---- capture by hand ----


def refuse_fake(stock):
    """An error where a fake tensor would be made of one of ours, but where Dynamo is to know its codes."""

    @functools.wraps(stock)
    def from_real_tensor(self, fake_mode, t, *args, **kwargs):
        if _C.is_format_tensor(t):
            if fake_mode is _wrapping.mode:
                if not t.dim():  # whose value Dynamo would take for an integer that varies
                    kwargs.update(source=None, symbolic_context=None)
                return stock(self, fake_mode, _C.alias_codes(t), *args, **kwargs)
            raise UnsupportedFakeTensorException(refusal("a graph of fake tensors (torch.export, make_fx)", _C.name_of(t.dtype)))
        return stock(self, fake_mode, t, *args, **kwargs)

    return from_real_tensor


def refuse_tracking(stock):
    """An error where make_fx would record a tensor of ours."""

    @functools.wraps(stock)
    def track_tensor(tensor, proxy, **kwargs):
        if _C.is_format_tensor(tensor):
            raise NotImplementedError(refusal("make_fx", _C.name_of(tensor.dtype)))
        return stock(tensor, proxy, **kwargs)

    return track_tensor


# ---- graphs of codes ----


class _Wrapping(threading.local):
    mode = None  # of fake tensors, while stock code makes one of codes


_wrapping = _Wrapping()


def as_codes(stock):
    """What Dynamo knows of a tensor that enters a graph: of ours, fake codes, with sizes that vary where stock ones would, and a guard on the
    dtype.
    """
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource

    from ..compiling.codes import Codes

    @functools.wraps(stock)
    def wrap(e, tx, *, source, **kwargs):
        if not (isinstance(e, torch.Tensor) and _C.is_format_tensor(e)):
            return stock(e, tx, source=source, **kwargs)
        if is_traceable_wrapper_subclass(e):
            _end_graph(_C.name_of(e.dtype), " (a DTensor's codes are its parts')")
        _wrapping.mode = tx.fake_mode
        try:
            made = Codes(stock(e, tx, source=source, **kwargs), e.dtype, e.requires_grad)
            # By which torch.nn.Parameter and Buffer know instances of theirs that are of other classes.
            made._is_param, made._is_buffer = isinstance(e, torch.nn.Parameter), isinstance(e, torch.nn.Buffer)
        finally:
            _wrapping.mode = None
        install_guard(AttrSource(source, "dtype").make_guard(GuardBuilder.EQUALS_MATCH))
        return made

    return wrap


def _beneath_buckets(backend):
    """A backend without what takes a graph apart where DistributedDataParallel's buckets end, which knows Dynamo's graphs alone."""
    from torch._dynamo.backends.distributed import DDPOptimizer

    owner = getattr(backend, "__self__", None)
    return owner.backend_compile_fn if isinstance(owner, DDPOptimizer) else backend


def _has_nothing_to_gain(backend, inputs: list) -> bool:
    """Whether a backend is Inductor without options and the graph on the CPU: it generates loops for stock operators alone, of which a graph over
    codes has copies at most, and calls the others as they stand."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    plain = isinstance(backend, torch._TorchCompileInductorWrapper) and not backend.config
    return plain and all(v.device.type == "cpu" for v in inputs if isinstance(v, torch.Tensor))


def compiling(stock):
    """What hands a graph to the backend: one with tensors of ours is made one of codes before."""
    from torch._dynamo import exc

    from ..compiling import frames

    @functools.wraps(stock)
    def call(self, gm, example_inputs):
        if not frames.has_codes(gm):
            return stock(self, gm, example_inputs)
        if self.export:  # which hands out Dynamo's own graph, of one run on symbols
            what = f"expected stock dtypes in torch._dynamo.export, but got torch.{frames.format_within(gm)}: torch.export.export takes such tensors."
            raise exc.Unsupported(what, "number format")
        backend, compiler = self.compiler_fn, _beneath_buckets(self.compiler_fn)

        def compile_codes(graph, inputs):
            try:
                return frames.compile_graph(graph, inputs, frames.as_it_is if _has_nothing_to_gain(compiler, inputs) else compiler)
            except (frames.NotRecordable, frames.Mistaken) as error:
                name = format_in(inputs) or frames.format_within(gm)
                if self.root_tx.one_graph:
                    raise exc.Unsupported(f"{refusal('a whole graph', name)} ({error})", "number format") from error
                _notice(name)
                if isinstance(error, frames.Mistaken):
                    raise exc.SkipFrame(str(error)) from error
                return frames.as_eager_code(graph)

        self.compiler_fn = compile_codes
        try:
            return stock(self, gm, example_inputs)
        finally:
            self.compiler_fn = backend

    return call


def refuse_compiled_backward(stock):
    """An error where compiled autograd would capture a backward pass with tensors of ours."""

    @functools.wraps(stock)
    def begin_capture(self, inputs, *args, **kwargs):
        if (dtype := optimizers.dtype_of(inputs)) is not None:
            raise NotImplementedError(
                f"expected stock dtypes in compiled autograd, but got {dtype}: leave torch._dynamo.config.compiled_autograd False. A compiled "
                "function has its backward pass compiled without it."
            )
        return stock(self, inputs, *args, **kwargs)

    return begin_capture


HOOKS = [
    Builtin("torch._C._dynamo.eval_frame", "set_eval_frame", begin_dynamo, When.FIRST_CALL),
    Replaced("torch._subclasses.fake_tensor.FakeTensorConverter", "from_real_tensor", refuse_fake),
    Replaced("torch.fx.experimental.proxy_tensor", "track_tensor", refuse_tracking),
]

_DYNAMO = "torch._dynamo"

# When dynamo is imported (integrations/dynamo.py): torch.compile(module) asks what is compiled by itself before any code runs.
RULES = [
    Registered(f"{_DYNAMO}.trace_rules", "add", never_compiled),
    Replaced(f"{_DYNAMO}.trace_rules", "get_mod_inlinelist", traced_through),
]
# When dynamo is first used, which `import torch` does not import.
LATER_HOOKS = [
    *RULES,
    Replaced(f"{_DYNAMO}.convert_frame.CatchErrorsWrapper", "__call__", skipping),
    Replaced(f"{_DYNAMO}.variables.builder", "wrap_to_fake_tensor_and_record", as_codes),
    Replaced(f"{_DYNAMO}.guards.GuardBuilder", "EQUALS_MATCH", guarding_dtypes),
    Replaced(f"{_DYNAMO}.output_graph.OutputGraph", "call_user_compiler", compiling),
    Replaced(f"{_DYNAMO}.utils", "_get_fake_value_impl", breaking_nodes),
    Replaced(f"{_DYNAMO}.variables.ctx_manager.AutocastModeVariable", "create", breaking(_format_of_autocast)),
    Replaced(f"{_DYNAMO}.variables.builder", "get_specialized_props", of_stock_classes),
    *(Replaced(f"{_DYNAMO}.variables.tensor.TensorVariable", f"method_{name}", kept_whole) for name in SEVERAL_OF_ONE),
    Replaced(f"{_DYNAMO}.variables.tensor.TensorVariable", "method_type", naming_types),
    Registered(f"{_DYNAMO}.variables.tensor.TensorVariable", "tp_methods", methods_kept_whole, optional=NO_TABLE_OF_METHODS),
    Replaced(f"{_DYNAMO}.variables.torch.TorchInGraphFunctionVariable", "_get_handlers", functions_kept_whole),
    Replaced(f"{_DYNAMO}.symbolic_convert.InliningInstructionTranslator", "build_inline_tracer", ending_before_calls),
    Replaced(f"{_DYNAMO}.variables.invoke_subgraph", "save_reuse_entry", traced_anew, optional=NO_REUSE_OF_REGIONS),
    Replaced(f"{_DYNAMO}.compiled_autograd.AutogradCompilerInstance", "begin_capture", refuse_compiled_backward),
    Registered("torch._functorch.compile_utils", "rand_ops", draws),
]
