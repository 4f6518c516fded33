"""PyTorch's operators as operators on codes: ``torch.ops.torch_dtypes_codes.addmm(bias, x, w, formats="q43,q43,q43")``.

Each is made from the schema of the ``aten`` operator when a graph first needs it, and runs that operator as eager code does, on tensors of our
dtypes over the same memory (CodesOperators.cpp): what a graph has by it are eager's bits, under whatever accumulation policy holds then.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.overrides import enable_reentrant_dispatch
from torch.types import py_sym_types
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .. import _C
from .._names import DRAWING_MODES
from ..formats import dtype as dtype_of
from . import cells

NAMESPACE = "torch_dtypes_codes"
STOCK = "-"  # in the place of a format's name
EXACT = ",exact"  # behind the names: a dtype among the arguments means itself

library = torch.library.Library(NAMESPACE, "FRAGMENT")
_made: dict[tuple, torch._ops.OpOverload] = {}
_stock: dict[torch._ops.OpOverload, torch._ops.OpOverload] = {}
_drawing: list[torch._ops.OpOverloadPacket] = []


def state() -> tuple:
    """What on this thread decides which operators eager code runs, and how."""
    rounding = _C.rounding_override(), _C.few_bits_override()
    return *rounding, _C.accumulation_override(), _C.mixed_operands_override(), _C.fill_infinity(), _C.gpu_on_host(), _C.observing()


def takes_random_words(dtype: torch.dtype) -> bool:
    """Whether what is rounded to a dtype of ours on this thread takes random words."""
    return (_C.rounding_override() or _C.format_of(dtype).rounding).name in DRAWING_MODES


def in_a_random_block() -> bool:
    """Whether what is rounded to any dtype of ours does, by ``with rounding("stochastic")``."""
    mode = _C.rounding_override()
    return mode is not None and mode.name in DRAWING_MODES


def format_name(dtype: torch.dtype) -> str:
    return STOCK if _C.format_of(dtype) is None else _C.name_of(dtype)


def tensors_in(values: list) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]


def is_written(annotated) -> bool:
    """Whether an argument is, or a result is one that was."""
    return annotated.alias_info is not None and annotated.alias_info.is_write


def written(func) -> list[int]:
    """The places of the arguments that an operator writes to. (Normalisation updates its running statistics without declaring it.)"""
    statistics = () if "backward" in func._schema.name else ("running_mean", "running_var")
    return [i for i, a in enumerate(func._schema.arguments) if is_written(a) or a.name in statistics]


def bound(func, args: tuple, kwargs: dict) -> list:
    """All arguments in the order of the schema, with defaults."""
    return [*args, *(kwargs.get(a.name, a.default_value) for a in func._schema.arguments[len(args) :])]


def listed(values: object) -> list:
    return pytree.tree_leaves(values, is_leaf=lambda v: v is None)


def made(func, result: object) -> list:
    """An operator's results one by one, less what it has written and returns."""
    each = [result] if len(func._schema.returns) == 1 else [] if result is None else result
    return listed([v for v, r in zip(each, func._schema.returns, strict=True) if not is_written(r)])


def names_in(formats: str) -> list[str]:
    """The format of each tensor among the arguments."""
    named = formats.removesuffix(EXACT)
    return named.split(",") if named else []


def device_named(func, values: list) -> Any:
    """The device that an operator is to make its result on; None where its tensors say it."""
    return next((v for a, v in zip(func._schema.arguments, values, strict=True) if a.name == "device"), None)


def device_of(tensors: list[torch.Tensor]) -> torch.device:
    """Where an operator's results lie: a tensor without dimensions on the CPU goes along with others."""
    found = (t.device for t in tensors if t.dim() or t.device.type != "cpu")
    return next(found, torch.device("cpu"))


def call(func, values: list, formats: str) -> Any:
    arguments = func._schema.arguments
    kwargs = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only}
    run = func if formats.endswith(EXACT) else func._op  # of which the first takes a dtype for the user's
    return run(*[v for a, v in zip(arguments, values, strict=True) if not a.kwarg_only], **kwargs)


# ---- what fake tensors need ----

_READING = {torch.ops.aten.fill.Tensor, torch.ops.aten.fill_.Tensor}  # a number, which a tensor without values has not


def constant(number: Any) -> Any:
    """A number that may vary, as a constant of the graph from here on, which Dynamo's guards say."""
    return number.node.pytype(number) if isinstance(number, py_sym_types) else number


def at_hint(number: Any) -> Any:
    """A number that may vary, as the graph's examples have it; one that values decide, as it might be."""
    if not isinstance(number, py_sym_types):
        return number
    node = number.node
    if node.has_hint():
        return node.hint
    env = node.shape_env
    known = sizes_at_hand(env)
    expression = env.simplify(node.expr)
    found = expression.xreplace({s: known[s] if s in known else _might_be(env.var_to_range[s]) for s in expression.free_symbols})
    return node.pytype(found)


def is_unknown(value: object) -> bool:
    """Whether values decide a number, or a size of a tensor."""
    return isinstance(value, (torch.Tensor, *py_sym_types)) and bool(free_unbacked_symbols(value))


def sizes_at_hand(env: ShapeEnv) -> dict[sympy.Symbol, sympy.Expr]:
    """What the symbols of sizes are of the examples."""
    return env.var_to_val if (found := getattr(env, "backed_var_to_val", None)) is None else found  # the former before 2.13


def _might_be(bounds) -> sympy.Expr:
    """An unlikely size between the bounds of what values decide, so that no rule meets it by chance."""
    return sympy.Min(sympy.Max(sympy.Integer(37), bounds.lower), bounds.upper)


_ON_META = "DeferredInit"  # the key of our tensors on the meta device: kOnMetaKey in C++


@contextlib.contextmanager
def _as_eager_code() -> Iterator[None]:
    """Operators run as eager code does, whatever traces around them. Beneath a tracer's tensors the key of ours on the meta device is left out, and
    stock's rules would take the container for a dtype.
    """
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(_ON_META)
    torch._C._dispatch_tls_set_dispatch_key_excluded(_ON_META, False)
    try:
        with torch._C._DisablePythonDispatcher(), _disable_current_modes(), torch.no_grad():
            yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_ON_META, excluded)


def _empty(tensor: torch.Tensor, name: str, device: str, settled: Callable) -> torch.Tensor:
    sizes, strides = ([settled(n) for n in numbers] for numbers in (tensor.shape, tensor.stride()))
    dtype = tensor.dtype if name == STOCK else dtype_of(name)
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    return made.zero_() if device == "cpu" else made  # of indices 0 is one


def outcome(func, values: list, formats: str, below_autograd: bool = True, settled: Callable = constant) -> list[torch.Tensor | None]:
    """The results of an operator, then what it has written, as tensors without their values: shapes, strides and dtypes are those of eager code,
    for the numbers that ``settled`` makes of those that may vary.
    """
    level = torch._C._AutoDispatchBelowAutograd if below_autograd else enable_reentrant_dispatch
    leaves, spec = pytree.tree_flatten(pytree.tree_map_only(py_sym_types, settled, values))
    names = names_in(formats)
    # Beside a stock floating tensor of the meta device, which outranks ours, a tensor of ours is not asked.
    mixed = func in _READING or any(t.dtype.is_floating_point and n == STOCK for t, n in zip(tensors_in(leaves), names, strict=True))
    each = iter(names)
    with level(), _as_eager_code():
        device = "cpu" if mixed else "meta"
        leaves = [torch.device(device) if isinstance(v, torch.device) else v for v in leaves]
        given = pytree.tree_unflatten([_empty(v, next(each), device, settled) if isinstance(v, torch.Tensor) else v for v in leaves], spec)
        rule = cells.OUTCOMES.get(func)
        result = call(func, given, formats) if rule is None else rule(*given)
    return made(func, result) + listed([given[i] for i in written(func)])


def varies(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt)


def agree(result: torch.Tensor, known: torch.Tensor) -> bool:
    """Whether what is known of sizes and strides holds for those at hand."""
    at_hand = ([at_hint(n) for n in numbers] for numbers in (known.shape, known.stride()))
    return [list(result.shape), list(result.stride())] == list(at_hand)


def sized(func, values: list, formats: str, below_autograd: bool = True) -> list[tuple[torch.Tensor | None, torch.Tensor | None]]:
    """Results of an operator, then what it has written, each as ``outcome`` has it, and what has its sizes where these vary.

    Dtypes, sizes and strides are eager code's. Where sizes vary, it is asked about those at hand alone, and stock's rules for a floating dtype say
    what becomes of others; where these say something else of those at hand, the sizes are made constants.
    """
    found = outcome(func, values, formats, below_autograd, settled=at_hint)
    if not any(map(varies, pytree.tree_leaves(values))):
        return [(t, None) for t in found]
    values = pytree.tree_map_only(torch.SymFloat, at_hint, values)  # by which no size goes
    names = iter(names_in(formats))
    stand_ins = pytree.tree_map_only(torch.Tensor, lambda t: t if next(names) == STOCK else in_stock(t), values)
    try:
        result = call(func, stand_ins, EXACT)
    except (TypeError, ValueError, RuntimeError):  # for which stock has no rule
        known = [None] * len(found)
    else:
        known = made(func, result) + listed([stand_ins[i] for i in written(func)])
    if len(known) == len(found) and all(a is None or (b is not None and agree(a, b)) for a, b in zip(found, known, strict=True)):
        return list(zip(found, known, strict=True))
    return [(t, None) for t in outcome(func, values, formats, below_autograd)]


def in_stock(tensor: torch.Tensor) -> torch.Tensor:
    # Of float32 a convolution asks for the batch's size, by which it chooses a library.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=torch.float64, device=tensor.device)


def _codes_dtype(tensor: torch.Tensor) -> torch.dtype:
    return _C.alias_codes(tensor).dtype if _C.is_format_tensor(tensor) else tensor.dtype


def _fake(func, values: list, formats: str):
    device = device_named(func, values) or device_of(tensors_in(values))
    results, found = sized(func, values, formats), []
    first_written = len(results) - len(listed([values[i] for i in written(func)]))
    for i, (t, like) in enumerate(results):
        if t is None:
            found.append(torch.empty(0, dtype=torch.uint8, device="cpu"))  # as the kernel has it
            continue
        like = t if like is None else like
        result = torch.empty_strided(like.shape, like.stride(), dtype=_codes_dtype(t), device=device)
        found.append(result if i < first_written else dense_like(result))  # the kernel writes into a copy
    return found[0] if len(found) == 1 else tuple(found)


def dense_like(input: torch.Tensor) -> torch.Tensor:
    """As kernels in C++ make their results of an operand: dense strides kept, others' order of dimensions."""
    return torch.empty_like(input)


def on_meta(f, tensor: torch.Tensor, name: str | None = None, settled: Callable = constant) -> torch.Tensor:
    """What eager code makes of a tensor without values, of its own dtype or the one named."""
    with _as_eager_code():
        return f(_empty(tensor, name or format_name(tensor.dtype), "meta", settled))


def run_without_values(function: Callable, leaves: list, spec: pytree.TreeSpec, settled: Callable = at_hint) -> Any:
    """Eager code's result for arguments and keyword arguments of these leaves; None where it is one of them, or shares memory with them."""
    mixed = any(t.dtype.is_floating_point and format_name(t.dtype) == STOCK for t in tensors_in(leaves))
    device = "cpu" if mixed else "meta"
    with _as_eager_code():
        values = [_empty(v, format_name(v.dtype), device, settled) if isinstance(v, torch.Tensor) else settled(v) for v in leaves]
        values = [torch.device(device) if isinstance(v, torch.device) else v for v in values]
        given = tensors_in(values)
        versions = [t._version for t in given]
        args, kwargs = pytree.tree_unflatten(values, spec)
        result = function(*args, **kwargs)
    memory = [t.untyped_storage()._cdata for t in tensors_in([result])]
    is_new = versions == [t._version for t in given] and not any(t.untyped_storage()._cdata in memory for t in given)
    return result if is_new else None


def _fake_cast(input, formats: str):
    source, target = formats.split(",")
    made = on_meta(lambda t: t.to(dtype_of(target)), input, source, at_hint)
    sized = torch.empty_like(input) if varies(input) else made
    if not agree(made, sized):
        made = sized = on_meta(lambda t: t.to(dtype_of(target)), input, source)
    return torch.empty_strided(sized.shape, sized.stride(), dtype=_codes_dtype(made), device=input.device)


for _label in ("cast", "cast.random"):
    torch.library.register_fake(f"{NAMESPACE}::{_label}", _fake_cast, lib=library)
cast, random_cast = torch.ops.torch_dtypes_codes.cast.default, torch.ops.torch_dtypes_codes.cast.random
_drawing.append(torch.ops.torch_dtypes_codes.cast)

# ---- making one ----

_KINDS = {"Optional[Tensor]": "Tensor?", "List[Tensor]": "Tensor[]", "List[Optional[Tensor]]": "Tensor?[]"}


def _declared(func, argument) -> str:
    """An argument's type as the schema's text has it."""
    kind = str(argument.type)
    if "Tensor" in kind:
        return _KINDS.get(kind, kind)
    return re.search(rf"[(,] ?(?:\*, )?([^\s,(]+) {argument.name}(?=[,=)])", str(func._schema)).group(1)


def operator(func, values: list, result_count: int, rounds_at_random: bool = False) -> torch._ops.OpOverload:
    """The operator on codes of these arguments' kinds: a number in a tensor's place is a number there too. One that draws says so: no call of it is
    joined with another or left out.
    """
    arguments = func._schema.arguments
    numbers = [a.name for a, v in zip(arguments, values, strict=True) if str(a.type) == "Tensor" and not isinstance(v, torch.Tensor)]
    rounds_at_random = rounds_at_random and torch.Tag.nondeterministic_seeded not in func.tags
    key = (func, *numbers, result_count, rounds_at_random)
    if (known := _made.get(key)) is None:
        parts = [f"{'Scalar' if a.name in numbers else _declared(func, a)} {a.name}" for a in arguments]
        base, overload = func._schema.name.partition("::")[2], _overload(func, numbers, result_count, rounds_at_random)
        label = f"{base}.{overload}" if overload else base
        schema = f"{label}({', '.join(parts)}, *, str formats) -> ({', '.join(['Tensor'] * result_count)})"
        draws = rounds_at_random or torch.Tag.nondeterministic_seeded in func.tags
        _C.register_codes_operator(label, schema, draws, func._schema.name, func._schema.overload_name, written(func))
        torch.library.register_fake(f"{NAMESPACE}::{label}", lambda *args, formats: _fake(func, list(args), formats), lib=library)
        packet = getattr(torch.ops.torch_dtypes_codes, base)
        known = _made[key] = getattr(packet, overload or "default")
        _stock[known] = func
        if draws and packet not in _drawing:
            _drawing.append(packet)
    return known


def list_drawing_in(listed: list) -> None:
    """Has the operators that draw, by their packets, in a list of PyTorch's: those there are, and those to come."""
    global _drawing
    listed += _drawing
    _drawing = listed


_RANDOM = "random"


def _overload(func, numbers: Sequence[str], result_count: int, rounds_at_random: bool) -> str:
    name = "_".join(filter(None, [func._schema.overload_name, *numbers, _RANDOM if rounds_at_random else ""]))
    return f"{name}_{result_count}" if any("List" in str(r.type) for r in func._schema.returns) else name


def named(base: str, overload: str) -> None:
    """Makes the operator of that name, which another process has made of its arguments; of a name that none has, nothing."""
    packet = getattr(torch.ops.aten, base, None)
    count = re.search(r"_(\d+)$", overload)
    for func in (getattr(packet, name) for name in packet.overloads()) if packet else ():
        arguments = func._schema.arguments
        tensors = [a.name for a in arguments if str(a.type) == "Tensor"]
        in_lists = any("List" in str(r.type) for r in func._schema.returns)
        if in_lists and count is None:
            continue
        results = int(count[1]) if in_lists else len(written(func)) + sum(not is_written(r) for r in func._schema.returns)
        for numbers in chain.from_iterable(combinations(tensors, n) for n in range(len(tensors) + 1)):
            for at_random in (False, True):
                if (_overload(func, numbers, results, at_random) or "default") == overload:
                    operator(func, [None if a.name in numbers else torch.empty(0) for a in arguments], results, at_random)
                    return


def stock(op: object) -> torch._ops.OpOverload | None:
    """The stock operator that one on codes runs; None for any other."""
    return _stock.get(op)
