"""torch.compile, torch.export and make_fx beside number formats.

Graphs of theirs are captured with fake tensors and name dtypes by numbers that end before ours, so nothing in our dtypes enters one.
torch.compile runs such a function as it is written and says so once; with fullgraph=True, and in capture by hand, that is an error.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import os
import types
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorConverter, UnsupportedFakeTensorException
from torch.fx.experimental import proxy_tensor

from .. import _C

NOTICE = (
    "torch.compile runs what uses number formats (torch.{name} here) uncompiled: they have no compiled kernels. Results are those of the "
    "same code without torch.compile; code in stock dtypes is compiled as ever. This is said once."
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
        f"expected stock dtypes in {what}, but got torch.{name}: graphs with number formats cannot be captured. Run the function "
        "uncaptured, or capture it in a stock dtype."
    )


# ---- does a frame work on our dtypes? ----

format_in = _C.format_in  # what it looks into, and that it runs no code of users': torch/csrc/formats/FormatSearch.cpp


@functools.lru_cache(maxsize=1024)
def _globals_read(code: types.CodeType) -> tuple[str, ...]:
    return tuple({i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"})


def _format_of_frame(frame) -> str | None:
    """The format of tensors that a frame works on, as far as its arguments, cells and globals tell before it has run. A dtype may be there
    for chop, which is in graphs; where it makes a tensor, the graph ends."""
    for setting in (_C.get_default_format(), _C.autocast_dtype()):
        if setting is not None:
            return _C.name_of(setting)
    names = _globals_read(frame.f_code)
    return _C.format_in_tensors((tuple(frame.f_locals.values()), tuple(dict.get(frame.f_globals, n) for n in names)))


# ---- torch.compile ----


def _skipping(stock, convert_frame):
    """CatchErrorsWrapper.__call__, which dynamo calls for each frame without valid compiled code."""
    from torch._dynamo import exc, trace_rules
    from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

    @functools.wraps(stock)
    def call(self, frame, cache_entry, frame_state):
        name = _format_of_frame(frame)
        if name is None or trace_rules.check(frame.f_code, frame=frame):
            return stock(self, frame, cache_entry, frame_state)
        if isinstance(self._torchdynamo_orig_backend, convert_frame.ConvertFrameAssert):  # fullgraph=True, strict export
            raise exc.Unsupported(refusal("a whole graph", name), "number format")
        _notice(name)
        # This call and those from it, but no later ones: the same code may get stock tensors next.
        strategy = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
        known = {f.name for f in dataclasses.fields(ConvertFrameReturn)}  # torch 2.12 asks for no reason
        reason = {"skip_reason": f"torch.{name}"} if "skip_reason" in known else {}
        return ConvertFrameReturn(frame_exec_strategy=strategy, apply_to_code=False, **reason)

    return call


def _breaking(stock, find):
    """A function of dynamo's that makes graph inputs or nodes: where one would be of ours, the graph ends before it."""
    from torch._dynamo import exc

    @functools.wraps(stock)
    def make(*args, **kwargs):
        if (name := find(*args)) is not None:
            _notice(name)
            exc.unimplemented(gb_type="Number format", context=f"torch.{name}", explanation=refusal("a graph", name), hints=[])
        return stock(*args, **kwargs)

    return make


def _with_ours(stock, path_of):
    """The list of files that are traced through, with those of ours that stand in front of stock functions."""
    inside = ("conversion", "functions", "hooks", "linear_cross_entropy", "printing", "testing")
    modules = (*(os.path.join("_overlay", name) for name in inside), "chopping", "quantization", "training")
    package = os.path.dirname(os.path.dirname(__file__))
    ours = {path_of(os.path.join(package, name)) for name in modules}

    @functools.cache  # stock clears it by clear_lru_cache()
    def listed():
        return stock() | ours

    return listed


def _format_of_autocast(_, args, kwargs) -> str | None:
    """The dtype of ours that a traced torch.autocast(...) is given."""
    return format_in([v.as_python_constant() for v in (*args, *kwargs.values()) if hasattr(v, "is_python_constant") and v.is_python_constant()])


def begin_dynamo(stock, callback):
    """In front of the first call of set_eval_frame, with which everything of dynamo's begins; torch._dynamo is imported by then."""
    from torch._dynamo import convert_frame, trace_rules, utils
    from torch._dynamo.variables import builder, ctx_manager

    wrapper = convert_frame.CatchErrorsWrapper
    wrapper.__call__ = _skipping(wrapper.__call__, convert_frame)
    builder.VariableBuilder.wrap_tensor = _breaking(builder.VariableBuilder.wrap_tensor, lambda builder, value: format_in(value))
    utils._get_fake_value_impl = _breaking(
        utils._get_fake_value_impl, lambda node, *_: format_in((*node.args, *node.kwargs.values()))
    )
    ctx_manager.AutocastModeVariable.create = staticmethod(_breaking(ctx_manager.AutocastModeVariable.create, _format_of_autocast))
    # Frames in our files are never compiled by themselves, as those in PyTorch's files are not: what stands in front of a stock function
    # would be compiled where the stock one is left alone, and a hook registered there be lost with the graph's break.
    trace_rules.add("torch_dtypes")
    # These are traced through where a traced function calls them.
    trace_rules.get_mod_inlinelist = _with_ours(trace_rules.get_mod_inlinelist, trace_rules._as_posix_path)
    # The list of random operators whose calls are not joined, which goes by no tag.
    from torch._functorch import compile_utils

    compile_utils.rand_ops += [torch.ops.torch_dtypes.chop, torch.ops.torch_dtypes.chop_blocks]
    return stock(callback)


# ---- capture by hand ----


def _fake(stock):
    @functools.wraps(stock)
    def from_real_tensor(self, fake_mode, t, *args, **kwargs):
        if _C.is_format_tensor(t):
            raise UnsupportedFakeTensorException(refusal("a graph of fake tensors (torch.export, make_fx)", _C.name_of(t.dtype)))
        return stock(self, fake_mode, t, *args, **kwargs)

    return from_real_tensor


def _track(stock):
    @functools.wraps(stock)
    def track_tensor(tensor, proxy, **kwargs):
        if _C.is_format_tensor(tensor):
            raise NotImplementedError(refusal("make_fx", _C.name_of(tensor.dtype)))
        return stock(tensor, proxy, **kwargs)

    return track_tensor


def install() -> None:
    """Patches what `import torch` has loaded; the rest waits for begin_dynamo."""
    _C.set_searched_classes(torch.nn.Module, torch.optim.Optimizer, functools.partial)
    FakeTensorConverter.from_real_tensor = _fake(FakeTensorConverter.from_real_tensor)
    proxy_tensor.track_tensor = _track(proxy_tensor.track_tensor)
