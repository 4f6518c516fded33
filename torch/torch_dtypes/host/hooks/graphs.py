"""Hooks of torch.compile, torch.export, make_fx and TorchScript's traces.

Their graphs number dtypes, and the numbers end before those of formats. So no graph holds a format
tensor. ``torch.compile`` runs code on format tensors uncompiled, and warns once. A request for a
graph (``fullgraph=True``, ``torch.export``, ``make_fx``, ``torch.jit.trace``) raises.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
import warnings
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

from ... import _C
from ...policies.autocast import AUTOCAST_DEVICES, find_autocast_dtype
from ...quantization import operators  # noqa: F401  registers operators
from ...targets.grid import parse_call
from ..releases import SKIP_RULES_KNOW_FRAMES, SKIPS_HAVE_REASONS
from ..table import Hook, Kind, wait_for
from . import optimizers

NOTICE = (
    "torch.compile runs code that works on format tensors (torch.{name} here) uncompiled. The "
    "results are those of the same code without torch.compile; code in stock dtypes is compiled "
    "as usual. This warning is given once."
)
_noticed = False


def _notice(name: str) -> None:
    global _noticed
    if not _noticed:
        _noticed = True
        warnings.warn(NOTICE.format(name=name), UserWarning, stacklevel=2)


def refusal(what: str, name: str) -> str:
    """Return the message of an error where the caller requires a graph."""
    return (
        f"expected stock dtypes in {what}, but got torch.{name}, which no graph can hold; run "
        "the eager code, or convert a float32 model by torch_dtypes.quantize_, whose layers are "
        "captured as stock ones"
    )


# ---- does a frame work on format tensors? ----

# torch/csrc/formats/hooks/FormatSearch.cpp says where this searches. It runs no code of users.
format_in = _C.format_in


@functools.lru_cache(maxsize=1024)
def _globals_read(code: types.CodeType) -> tuple[str, ...]:
    return tuple({i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"})


def _format_of_frame(frame: types.FrameType) -> str | None:
    """Return the format that a frame works on, or None, before the frame runs.

    The frame's arguments, cells and globals and the settings decide. A dtype among them does not
    count: it may be for chop, which graphs can hold. Where it makes a tensor, the graph ends.
    """
    for setting in (_C.get_default_format(), *map(find_autocast_dtype, AUTOCAST_DEVICES)):
        if setting is not None:
            return _C.name_of(setting)
    read = _globals_read(frame.f_code)
    return _C.format_in_tensors(
        (tuple(frame.f_locals.values()), tuple(dict.get(frame.f_globals, name) for name in read))
    )


# ---- torch.compile ----


def skip_format_frames(stock):
    """Run frames that work on format tensors uncompiled.

    Dynamo calls this function for each frame without valid compiled code.
    """
    from torch._dynamo import convert_frame, exc, trace_rules
    from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

    # Holds for this call and the calls in it, but no later ones: they may get stock tensors.
    strategy = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
    reason = {"skip_reason": "it works on format tensors"} if SKIPS_HAVE_REASONS else {}
    skip = ConvertFrameReturn(frame_exec_strategy=strategy, apply_to_code=False, **reason)

    @functools.wraps(stock)
    def call(self, frame, cache_entry, frame_state):
        name = _format_of_frame(frame)
        if name is None:
            return stock(self, frame, cache_entry, frame_state)
        # fullgraph=True, strict export
        whole = isinstance(self._torchdynamo_orig_backend, convert_frame.ConvertFrameAssert)
        # The rules take longer than all else here. Frames to which they do not apply are skipped
        # anyway.
        if whole or not _noticed:
            if trace_rules.check(
                frame.f_code, **({"frame": frame} if SKIP_RULES_KNOW_FRAMES else {})
            ):
                return stock(self, frame, cache_entry, frame_state)
            if whole:
                raise exc.Unsupported(refusal("a whole graph", name), "number format")
            _notice(name)
        self._met_formats = True  # choose_callback() reads it
        return skip

    return call


def choose_callback(stock):
    """Set no call-back for a compiled callable that has met format tensors and gets some again.

    Otherwise Dynamo would call ``skip_format_frames`` for each frame, which takes ten times as long
    as the rest of the wrapper around such a call.
    """

    @functools.wraps(stock)
    def choose(callback):
        chosen = stock(callback)  # torch.compiler.set_stance may choose another one, or none
        if chosen is callback and getattr(callback, "_met_formats", False):
            caller = sys._getframe(2).f_locals  # behind the exchanged code (exchange.call_instead)
            if (
                _C.format_in_tensors([caller.get(name) for name in ("args", "kwargs", "fn")])
                is not None
            ):
                return None
        return chosen

    return choose


def call_module_eagerly(stock):
    """Call the module itself where ``choose_callback`` would choose none and no hooks would run."""
    from torch._dynamo import eval_frame
    from torch.nn.modules.module import _has_any_global_hook

    @functools.wraps(stock)
    def call(self, *args, **kwargs):
        callback = self.dynamo_ctx.callback
        if getattr(callback, "_met_formats", False) and not (
            _has_any_global_hook() or any(map(self.__dict__.get, _HOOKS_OF_MODULES))
        ):
            fn = self._orig_mod  # choose_callback looks for this name
            if eval_frame._callback_from_stance(callback) is None:
                return fn(*args, **kwargs)
        return stock(self, *args, **kwargs)

    return call


_HOOKS_OF_MODULES = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)


def break_graph(find):
    """End the graph before an input or node that would have a format dtype."""

    def extend(stock):
        from torch._dynamo import exc

        @functools.wraps(stock)
        def make(*args, **kwargs):
            if (name := find(*args)) is not None:
                _notice(name)
                exc.unimplemented(
                    gb_type="Number format",
                    context=f"torch.{name}",
                    explanation=refusal("a graph", name),
                    hints=[],
                )
            return stock(*args, **kwargs)

        return make

    return extend


def exclude_package(add) -> None:
    """Exclude frames in the package's files from compilation by themselves, as PyTorch's are.

    Otherwise the function in front of a stock one would be compiled where the stock one is not. A
    hook registered there would be lost when the graph breaks.
    """
    add("torch_dtypes")


def extend_inlined_files(stock):
    """Add files of the package to those whose functions are traced through.

    They run in front of stock functions.
    """
    from torch._dynamo.trace_rules import _as_posix_path

    inside = ("composed", "conversion", "functions", "linear_cross_entropy", "printing", "testing")
    modules = (
        *(os.path.join("host", "hooks", name) for name in inside),
        os.path.join("host", "table"),
        os.path.join("host", "distributed", "functional_collectives"),
        os.path.join("policies", "autocast"),
        "targets",
        "quantization",
        os.path.join("workbench", "training"),
    )
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    own = {_as_posix_path(os.path.join(package, name)) for name in modules}

    @functools.cache  # stock clears it by clear_lru_cache()
    def list_files():
        return stock() | own

    return list_files


def _format_of_autocast(_, args, kwargs) -> str | None:
    """Return the format dtype that a traced torch.autocast(...) gets, or None."""
    return format_in(
        [
            v.as_python_constant()
            for v in (*args, *kwargs.values())
            if hasattr(v, "is_python_constant") and v.is_python_constant()
        ]
    )


def add_random_operators(operators_: list) -> None:
    """Add chop and products under a policy to the random operators whose calls are not joined.

    This list uses no tag.
    """
    own = torch.ops.torch_dtypes
    operators_ += [own.chop, own.chop_blocks, own.draw_seed, own.product, own.product_backward]


def _fuse_chop(x, format, rounding=None, flip_prob=0.0, *, generator=None):
    """Compute chop by stock operations, which inductor fuses, on devices without kernels."""
    # A call without a mode uses the mode of the block in which it runs. No graph knows it.
    known = rounding is not None and flip_prob == 0 and generator is None
    if not known or not x.is_contiguous() or _C.backend(x) != "stock":
        return NotImplemented
    fmt = parse_call(format, rounding)
    if not _C.fuses_in_graphs(fmt):
        return NotImplemented
    values = x.float() if x.dtype.itemsize == 2 else x
    seed = torch.ops.torch_dtypes.draw_seed(x) if fmt.rounding.draws else None
    return _C.round_in_graph(values, fmt, seed).to(x.dtype)


def add_decompositions(decompositions: dict) -> None:
    """Add chop to the operators that inductor decomposes."""
    decompositions[torch.ops.torch_dtypes.chop.default] = _fuse_chop


def add_fallback(make_fallback: Callable) -> None:
    """Let inductor call chop where it is not decomposed. For an operator with a decomposition it
    would not do so by itself."""
    make_fallback(torch.ops.torch_dtypes.chop.default, override_decomp=True)


def refuse_compiled_backward(stock):
    """Raise where compiled autograd would capture a backward pass with format tensors."""

    @functools.wraps(stock)
    def begin_capture(self, inputs, *args, **kwargs):
        if (dtype := optimizers.dtype_of(inputs)) is not None:
            raise NotImplementedError(
                f"expected stock dtypes in compiled autograd, but got {dtype}; leave "
                "torch._dynamo.config.compiled_autograd False"
            )
        return stock(self, inputs, *args, **kwargs)

    return begin_capture


# ---- capture by hand ----


def refuse_fake(stock):
    """Raise where a fake tensor would be made of a format tensor."""

    @functools.wraps(stock)
    def from_real_tensor(self, fake_mode, t, *args, **kwargs):
        if _C.is_format_tensor(t):
            raise UnsupportedFakeTensorException(
                refusal("a graph of fake tensors (torch.export, make_fx)", _C.name_of(t.dtype))
            )
        return stock(self, fake_mode, t, *args, **kwargs)

    return from_real_tensor


def refuse_tracking(stock):
    """Raise where make_fx would record a format tensor."""

    @functools.wraps(stock)
    def track_tensor(tensor, proxy, **kwargs):
        if _C.is_format_tensor(tensor):
            raise NotImplementedError(refusal("make_fx", _C.name_of(tensor.dtype)))
        return stock(tensor, proxy, **kwargs)

    return track_tensor


def refuse_export(mod, args=(), kwargs=None, *_, **__) -> None:
    """Raise for a model with format tensors, or for format tensors among the arguments."""
    if (name := _C.format_in_tensors((mod, args, kwargs))) is not None:
        raise NotImplementedError(refusal("torch.export", name))


def refuse_package(self, *args, **kwargs) -> None:
    """Raise where compiled code of AOTInductor would take codes for numbers."""
    if (name := format_in((args, kwargs))) is not None:
        raise TypeError(
            "expected tensors of stock dtypes for a package of AOTInductor, but got "
            f"torch.{name}; cast them"
        )


_DYNAMO = "torch._dynamo"
_fake_value = break_graph(lambda node, *_: format_in((*node.args, *node.kwargs.values())))

HOOKS = [
    Hook(
        "torch._subclasses.fake_tensor.FakeTensorConverter.from_real_tensor",
        Kind.REPLACED,
        refuse_fake,
    ),
    Hook("torch.fx.experimental.proxy_tensor.track_tensor", Kind.REPLACED, refuse_tracking),
    Hook("torch.export.export", Kind.ASKED, refuse_export),
    Hook("torch.export.draft_export", Kind.ASKED, refuse_export),
    *(
        wait_for(f"{_DYNAMO}.{module}", name, kind, replacement)
        for module, name, kind, replacement in (
            ("trace_rules", "add", Kind.TOLD, exclude_package),
            ("trace_rules", "get_mod_inlinelist", Kind.REPLACED, extend_inlined_files),
            ("convert_frame", "CatchErrorsWrapper.__call__", Kind.REPLACED, skip_format_frames),
            ("eval_frame", "_callback_from_stance", Kind.REPLACED, choose_callback),
            ("eval_frame", "OptimizedModule.__call__", Kind.REPLACED, call_module_eagerly),
            (
                "variables.builder",
                "VariableBuilder.wrap_tensor",
                Kind.REPLACED,
                break_graph(lambda builder, value: format_in(value)),
            ),
            ("utils", "_get_fake_value_impl", Kind.REPLACED, _fake_value),
            (
                "variables.ctx_manager",
                "AutocastModeVariable.create",
                Kind.REPLACED,
                break_graph(_format_of_autocast),
            ),
            (
                "compiled_autograd",
                "AutogradCompilerInstance.begin_capture",
                Kind.REPLACED,
                refuse_compiled_backward,
            ),
        )
    ),
    wait_for(
        "torch.export.pt2_archive._package",
        "AOTICompiledModel.__call__",
        Kind.ASKED,
        refuse_package,
    ),
    wait_for("torch._functorch.compile_utils", "rand_ops", Kind.TOLD, add_random_operators),
    wait_for("torch._inductor.decomposition", "decompositions", Kind.TOLD, add_decompositions),
    wait_for("torch._inductor.lowering", "make_fallback", Kind.TOLD, add_fallback),
]
