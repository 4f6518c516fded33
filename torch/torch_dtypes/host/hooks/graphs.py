"""torch.compile, torch.export, make_fx and TorchScript's traces beside number formats.

Their graphs name dtypes by numbers that end before those of formats, so no format tensor enters
one. ``torch.compile`` runs code that works on format tensors as it is written, and says so once.
Whoever asks for a graph (``fullgraph=True``, ``torch.export``, ``make_fx``, ``torch.jit.trace``)
gets an error.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
import warnings

import torch
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

from ... import _C
from ...policies.autocast import AUTOCAST_DEVICES, find_autocast_dtype
from ...quantization import operators  # noqa: F401  which it registers
from ..releases import SKIP_RULES_KNOW_FRAMES, SKIPS_HAVE_REASONS
from ..table import Hook, Kind, wait_for
from . import optimizers

NOTICE = (
    "torch.compile runs what works on format tensors (torch.{name} here) as it is written, "
    "uncompiled. The results are those of the same code without torch.compile; code in stock "
    "dtypes is compiled as ever. This is said once."
)
_noticed = False


def _notice(name: str) -> None:
    global _noticed
    if not _noticed:
        _noticed = True
        warnings.warn(NOTICE.format(name=name), UserWarning, stacklevel=2)


def refusal(what: str, name: str) -> str:
    """The message of an error where somebody asks for a graph."""
    return (
        f"expected stock dtypes in {what}, but got torch.{name}: no graph can hold format "
        "tensors. Run the eager code, or convert a float32 model by torch_dtypes.quantize_, "
        "whose layers are captured as stock ones."
    )


# ---- does a frame work on format tensors? ----

# What it looks into, and that it runs no code of users': torch/csrc/formats/hooks/FormatSearch.cpp.
format_in = _C.format_in


@functools.lru_cache(maxsize=1024)
def _globals_read(code: types.CodeType) -> tuple[str, ...]:
    return tuple({i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"})


def _format_of_frame(frame: types.FrameType) -> str | None:
    """Returns the format that a frame works on, as far as its arguments, cells, globals and the
    settings tell before it runs.

    A dtype among them does not count: it may be there for chop, which graphs can hold. Where it
    makes a tensor, the graph ends.
    """
    for setting in (_C.get_default_format(), *map(find_autocast_dtype, AUTOCAST_DEVICES)):
        if setting is not None:
            return _C.name_of(setting)
    read = _globals_read(frame.f_code)
    return _C.format_in_tensors(
        (tuple(frame.f_locals.values()), tuple(dict.get(frame.f_globals, name) for name in read))
    )


# ---- torch.compile ----


def skipping(stock):
    """What dynamo calls for each frame without valid compiled code: frames that work on format
    tensors run as they are written."""
    from torch._dynamo import convert_frame, exc, trace_rules
    from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

    # This call and those from it, but no later ones: the same code may get stock tensors next.
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
        # The rules take longer than all else here, and frames that they leave alone are skipped in
        # any case.
        if whole or not _noticed:
            if trace_rules.check(
                frame.f_code, **({"frame": frame} if SKIP_RULES_KNOW_FRAMES else {})
            ):
                return stock(self, frame, cache_entry, frame_state)
            if whole:
                raise exc.Unsupported(refusal("a whole graph", name), "number format")
            _notice(name)
        self._met_formats = True  # passing() asks
        return skip

    return call


def passing(stock):
    """The call-back that a compiled callable sets for its call: none, where it has met format
    tensors before and is given some now.

    Dynamo would ask ``skipping`` for frame after frame, which takes ten times as long as the rest
    of the wrapper around such a call.
    """

    @functools.wraps(stock)
    def choose(callback):
        chosen = stock(callback)  # another one, or none, where torch.compiler.set_stance says so
        if chosen is callback and getattr(callback, "_met_formats", False):
            caller = sys._getframe(2).f_locals  # behind the exchanged code (_exchange.call_instead)
            if (
                _C.format_in_tensors([caller.get(name) for name in ("args", "kwargs", "fn")])
                is not None
            ):
                return None
        return chosen

    return choose


def passing_module(stock):
    """A compiled module's call: the module's own, where ``passing`` would choose no call-back, and
    the compiled one has no hooks that run."""
    from torch._dynamo import eval_frame
    from torch.nn.modules.module import _has_any_global_hook

    @functools.wraps(stock)
    def call(self, *args, **kwargs):
        callback = self.dynamo_ctx.callback
        if getattr(callback, "_met_formats", False) and not (
            _has_any_global_hook() or any(map(self.__dict__.get, _HOOKS_OF_MODULES))
        ):
            fn = self._orig_mod  # where ``choose`` looks for it
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


def breaking(find):
    """Functions of dynamo's that make graph inputs or nodes: where one would have a format dtype,
    the graph ends before it."""

    def made(stock):
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

    return made


def never_compiled(add) -> None:
    """Frames in the package's files are never compiled by themselves, as those in PyTorch's files
    are not: what stands in front of a stock function would be compiled where the stock one is left
    alone, and a hook registered there be lost with the graph's break."""
    add("torch_dtypes")


def traced_through(stock):
    """The list of files whose functions are traced through where a traced one calls them, with the
    package's that stand in front of stock ones."""
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
    ours = {_as_posix_path(os.path.join(package, name)) for name in modules}

    @functools.cache  # stock clears it by clear_lru_cache()
    def listed():
        return stock() | ours

    return listed


def _format_of_autocast(_, args, kwargs) -> str | None:
    """The format dtype that a traced torch.autocast(...) is given."""
    return format_in(
        [
            v.as_python_constant()
            for v in (*args, *kwargs.values())
            if hasattr(v, "is_python_constant") and v.is_python_constant()
        ]
    )


def draws(listed: list) -> None:
    """The list of random operators whose calls are not joined, which goes by no tag: chop's, and
    products under a policy."""
    own = torch.ops.torch_dtypes
    listed += [own.chop, own.chop_blocks, own.product, own.product_backward]


def refuse_compiled_backward(stock):
    """An error where compiled autograd would capture a backward pass with format tensors."""

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
    """An error where a fake tensor would be made of a format tensor."""

    @functools.wraps(stock)
    def from_real_tensor(self, fake_mode, t, *args, **kwargs):
        if _C.is_format_tensor(t):
            raise UnsupportedFakeTensorException(
                refusal("a graph of fake tensors (torch.export, make_fx)", _C.name_of(t.dtype))
            )
        return stock(self, fake_mode, t, *args, **kwargs)

    return from_real_tensor


def refuse_tracking(stock):
    """An error where make_fx would record a format tensor."""

    @functools.wraps(stock)
    def track_tensor(tensor, proxy, **kwargs):
        if _C.is_format_tensor(tensor):
            raise NotImplementedError(refusal("make_fx", _C.name_of(tensor.dtype)))
        return stock(tensor, proxy, **kwargs)

    return track_tensor


def refuse_export(mod, args=(), kwargs=None, *_, **__) -> None:
    """An error for a model with format tensors, or for arguments that are some."""
    if (name := _C.format_in_tensors((mod, args, kwargs))) is not None:
        raise NotImplementedError(refusal("torch.export", name))


def refuse_package(self, *args, **kwargs) -> None:
    """An error where compiled code of AOTInductor would take codes for numbers of the storage
    dtype."""
    if (name := format_in((args, kwargs))) is not None:
        raise TypeError(
            "expected tensors of stock dtypes for a package of AOTInductor, but got "
            f"torch.{name}; cast them"
        )


_DYNAMO = "torch._dynamo"
_fake_value = breaking(lambda node, *_: format_in((*node.args, *node.kwargs.values())))

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
            ("trace_rules", "add", Kind.TOLD, never_compiled),
            ("trace_rules", "get_mod_inlinelist", Kind.REPLACED, traced_through),
            ("convert_frame", "CatchErrorsWrapper.__call__", Kind.REPLACED, skipping),
            ("eval_frame", "_callback_from_stance", Kind.REPLACED, passing),
            ("eval_frame", "OptimizedModule.__call__", Kind.REPLACED, passing_module),
            (
                "variables.builder",
                "VariableBuilder.wrap_tensor",
                Kind.REPLACED,
                breaking(lambda builder, value: format_in(value)),
            ),
            ("utils", "_get_fake_value_impl", Kind.REPLACED, _fake_value),
            (
                "variables.ctx_manager",
                "AutocastModeVariable.create",
                Kind.REPLACED,
                breaking(_format_of_autocast),
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
    wait_for("torch._functorch.compile_utils", "rand_ops", Kind.TOLD, draws),
]
