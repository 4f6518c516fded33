"""The calls of tools/fuzz.py: drawn from operator schemas, from PyTorch's own samples and from
torch_dtypes' functions; made, and checked."""

import copy
import functools
import io
import itertools
import pickle
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from fuzz_arguments import CONTAINER, STOCK_FLOATS, Arguments
from torch.utils._pytree import tree_leaves, tree_map

import torch_dtypes
from torch_dtypes import _C

# No call of these is of use: they write files, wait, or make the wrappers of torch.func without
# their levels.
LEFT_OUT = frozenset(
    (
        "aten::from_file aten::wait aten::save aten::record_stream aten::set_grad_enabled "
        "aten::requires_grad_ aten::_add_batch_dim aten::_remove_batch_dim"
    ).split()
)
# docs/limits.md.
KNOWN = {
    (
        "message",
        "batch_norm",
    ): "stock code looks up the accumulation type of the container for batches of no elements",
    ("message", "slow_conv_transpose2d"): "-2^63 as a size is PyTorch's mark of a symbolic one",
    (
        "message",
        "where",
    ): (
        "the gradient of where beside a complex tensor without dimensions, which stock PyTorch "
        "refuses too"
    ),
    ("container", "_fused_rms_norm"): "called by hand: stock's statistics are float32 or float64",
}
# What an exception must not say unless stock PyTorch says it too: our own checks come first.
BLAME = (
    "INTERNAL ASSERT",
    "Unsupported TypeMeta",
    "UNKNOWN_SCALAR",
    "please report",
    "nullptr",
    "without setting an exception",
    "std::bad_alloc",
)
# Operators that are named for the container float32 or float64 of a wide format, or ask for it:
# there the name means the format.
ASKS_BY_NAME = ("autocast", "bfloat16")
MODES = torch_dtypes.ROUNDING_MODES
POLICIES = (
    "machine",
    "float32",
    "float64",
    "exact",
    "format",
    "chunked(2)",
    "chunked(1)",
    "chunked(0)",
    "kulisch",
)


@dataclass
class Call:
    name: str
    run: Callable
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    written: tuple = ()  # operands that the schema says are written to

    def __str__(self) -> str:
        given = [
            *map(shown, self.args),
            *(f"{name}={shown(value)}" for name, value in self.kwargs.items()),
        ]
        return f"{self.name}({', '.join(given)})"


def shown(value: object) -> str:
    if isinstance(value, torch.Tensor):
        text = f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
        if value.layout is torch.strided and not value.is_contiguous():
            text += f" strides {list(value.stride())}"
        if value.device.type != "cpu":
            text += f" {value.device}"
        elif value.layout is not torch.strided:
            text += f" {value.layout}"
        return text + (" requires_grad" if value.requires_grad else "")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, torch.UntypedStorage):
        return "storage"
    return f"{value}" if isinstance(value, torch.dtype) else repr(value)[:80]


# ---- calls from schemas ----


@functools.cache
def schemas(operator: str | None = None) -> list:
    """Operators that take a tensor or a dtype; of one base name where one is asked for."""

    def of_use(schema) -> bool:
        kinds = " ".join(str(a.real_type) for a in schema.arguments)
        return (
            schema.name.startswith("aten::")
            and schema.name not in LEFT_OUT
            and ("Tensor" in kinds or "ScalarType" in kinds)
        )

    known = [
        s
        for s in torch._C._jit_get_all_schemas()
        if of_use(s) and (operator is None or s.name == f"aten::{operator}")
    ]
    return sorted(known, key=str)


def python_function(name: str, arguments: Arguments):
    """The function or method that users write for an operator, where there is one."""
    owners = [
        o
        for o in (
            torch,
            torch.Tensor,
            torch._C._nn,
            torch._C._linalg,
            torch._C._fft,
            torch._C._special,
        )
        if callable(getattr(o, name, None))
    ]
    return getattr(arguments.rng.choice(owners), name) if owners else None


def from_schema(arguments: Arguments, operator: str | None) -> Call:
    schema = arguments.rng.choice(schemas(operator))
    args, kwargs, written = [], {}, []
    positional = True
    for a in schema.arguments:
        writes = a.alias_info is not None and a.alias_info.is_write
        if a.has_default_value() and arguments.chance(0.5):
            positional = False
            continue
        value = arguments.of_type(str(a.real_type), a.name, writes and a.kwarg_only)
        if (
            isinstance(value, list)
            and str(a.real_type).startswith("List[int")
            and a.N
            and arguments.chance(0.7)
        ):
            value = [arguments.rng.randint(0, 2) for _ in range(a.N)]
        if writes:
            written += [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]
        if a.kwarg_only or not positional:
            kwargs[a.name] = value
        else:
            args.append(value)
    base = schema.name.removeprefix("aten::")
    function = python_function(base, arguments) if arguments.chance(0.45) else None
    if function is not None:
        return Call(f"torch {base}", function, tuple(args), kwargs, tuple(written))
    run = getattr(getattr(torch.ops.aten, base), schema.overload_name or "default")
    return Call(
        f"aten.{base}.{schema.overload_name or 'default'}", run, tuple(args), kwargs, tuple(written)
    )


# ---- calls from PyTorch's operator database, with something changed ----


@functools.cache
def database() -> list:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if op.supports_dtype(torch.float32, "cpu")]


def changed(value: object, arguments: Arguments) -> object:
    """Another argument of the same type, or of a wrong one."""
    if arguments.chance(0.08):
        return arguments.rng.choice((None, "a", -1, 2.5, [], arguments.tensor()))
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        kind = arguments.rng.random()
        if value.dtype in (torch.int64, torch.bool) and kind < 0.7:
            return arguments.laid_out(list(value.shape), value.dtype)
        if kind < 0.6:
            return arguments.laid_out(list(value.shape), arguments.primary)
        if kind < 0.75 and value.dim():
            return value.transpose(0, -1)
        return arguments.tensor()
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return arguments.integer()
    if isinstance(value, float):
        return arguments.real()
    if isinstance(value, torch.dtype):
        return arguments.dtype()
    return value


def from_database(arguments: Arguments, operator: str | None) -> Call:
    op = arguments.rng.choice([op for op in database() if operator in (None, op.name)])
    torch.default_generator.manual_seed(arguments.rng.getrandbits(31))
    random.seed(arguments.rng.getrandbits(31))
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), 8))
    sample = arguments.rng.choice(samples)
    dtype = arguments.world(arguments.primary)

    def ours(value):
        if (
            not isinstance(value, torch.Tensor)
            or value.dtype is not torch.float32
            or value.layout is not torch.strided
        ):
            return value
        t = value.detach().to(arguments.primary).to(dtype)
        return t.requires_grad_() if grad else t

    grad = arguments.chance(0.4)
    args, kwargs = tree_map(ours, ((sample.input, *sample.args), sample.kwargs))
    changes = arguments.rng.choice((0, 1, 1, 2))
    places = [*range(len(args)), *kwargs]
    for place in arguments.rng.sample(places, min(changes, len(places))):
        if isinstance(place, str):
            kwargs[place] = changed(kwargs[place], arguments)
        else:
            args = (*args[:place], changed(args[place], arguments), *args[place + 1 :])
    # an asked dtype of the sample itself
    arguments.asked += [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.dtype)]
    variant = arguments.rng.random()
    run = op.op
    if variant < 0.15:
        run = op.get_inplace() or op.op
    elif variant < 0.25 and op.supports_out:
        kwargs = {
            **kwargs,
            "out": arguments.laid_out([0], arguments.primary)
            if arguments.chance(0.5)
            else arguments.tensor(),
        }
    return Call(
        f"op_db {op.full_name}",
        run,
        args,
        kwargs,
        tuple(tensors(args[:1])) if run is op.get_inplace() else (),
    )


# ---- calls of torch_dtypes' functions, and of what the Python layer adds ----


def in_block(block, run):
    with block:
        return run()


def index_of(arguments: Arguments) -> object:
    def one():
        return arguments.rng.choice(
            (
                arguments.integer(),
                slice(None),
                slice(
                    arguments.integer(),
                    arguments.integer(),
                    arguments.rng.choice((None, 1, 2, -1, 0)),
                ),
                None,
                arguments.chance(0.5),
                arguments.index_like("index"),
                arguments.index_like("mask"),
                [0, 0],
                [True],
                1.5,
                "a",
                ...,
            )
        )

    return (
        one() if arguments.chance(0.5) else tuple(one() for _ in range(arguments.rng.randrange(4)))
    )


def data_of(arguments: Arguments, depth: int = 0) -> object:
    if depth < 3 and arguments.chance(0.6):
        return [data_of(arguments, depth + 1) for _ in range(arguments.rng.randrange(4))]
    return arguments.rng.choice(
        (
            arguments.real(),
            arguments.integer(),
            arguments.number(),
            "a",
            None,
            2**64,
            -(2**100),
            arguments.tensor(),
        )
    )


def saved(t):
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def scrambled(text: str, arguments: Arguments) -> str:
    letters = list(text)
    for _ in range(arguments.rng.randrange(3)):
        at = arguments.rng.randrange(len(letters) + 1)
        letters[at : at + arguments.rng.randrange(2)] = arguments.rng.choice(
            ("", "9", "_", "e", "m", "\0", "é", "-", "99999999999999999999")
        )
    return "".join(letters)


def set_item(t, index, value):
    t[index] = value
    return t


def set_attribute(t, name, value):
    setattr(t, name, value)
    return t


def from_functions(arguments: Arguments, operator: str | None) -> Call:
    rng, tensor = arguments.rng, arguments.tensor
    number = lambda low, high: rng.choice(  # noqa: E731
        (rng.randint(low, high), rng.randint(low, high), arguments.number(), None, "a")
    )
    mode = lambda: rng.choice((*MODES, *range(11), None, "odd", 1.5))  # noqa: E731
    flag = lambda: rng.choice((True, False, None, 1))  # noqa: E731
    dtype = lambda: arguments.world(rng.choice(arguments.dtypes))  # noqa: E731
    linear, conv2d = torch.nn.functional.linear, torch.nn.functional.conv2d
    products = (
        torch.mm,
        torch.matmul,
        torch.mv,
        torch.dot,
        torch.sum,
        torch.cumsum,
        linear,
        conv2d,
        torch.mean,
    )

    def policy_block():
        options = {
            "chunk": rng.choice((None, 0, 2, -1)),
            "product": rng.choice((None, dtype())),
            "accumulator": rng.choice((None, dtype())),
        }
        options |= {
            "rounding": mode() if arguments.chance(0.3) else None,
            "fused": flag(),
            "kahan": flag(),
        }
        return torch_dtypes.accumulate(rng.choice(POLICIES), **options)

    def product():
        operands = [tensor() for _ in range(rng.choice((1, 2, 2, 2)))]
        if arguments.chance(0.6) and len(operands) == 2:
            t = operands[0]
            shapes = {
                "mm": [t.shape[-1:].numel() or 1, 3],
                "linear": [3, *t.shape[-1:]],
                "conv2d": [4, t.shape[1] if t.dim() > 2 else 1, 2, 2],
            }
            run = rng.choice((torch.mm, torch.matmul, linear, conv2d))
            operands[1] = arguments.laid_out(shapes.get(run.__name__, list(t.shape)[::-1]), t.dtype)
        else:
            run = rng.choice(products)
        return Call("", run, tuple(operands))

    def blocked(block, made):
        return lambda: in_block(block(), lambda: made.run(*made.args))

    def chopped():
        return rng.choice(
            (
                tensor(),
                tensor().detach().cpu().double().numpy(),
                arguments.number(),
                numpy_like(tensor()),
            )
        )

    def numpy_like(t):
        return (
            t.detach().cpu().float().numpy()[..., ::-1]
            if t.dim()
            else t.detach().cpu().float().numpy()
        )

    specials, overflow = (
        rng.choice(("ieee", "fn", "none", "fnuz", "p3109", "x")),
        rng.choice(("ieee", "saturate", "wrap")),
    )
    floats = {
        "bias": rng.choice((None, None, number(-1100, 1100))),
        "subnormals": flag(),
        "specials": specials,
        "overflow": overflow,
    }
    fixed = {"signed": flag(), "overflow": overflow, "rounding": mode()}
    readers = ("numpy", "tolist", "item", "__bool__", "__len__", "__int__", "__repr__")
    copies = (saved, copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t)))
    choices = {
        "posit_format": lambda: Call(
            "posit_format",
            torch_dtypes.posit_format,
            (number(-1, 40), number(-1, 6)),
            {"rounding": mode()},
        ),
        "float_format": lambda: Call(
            "float_format", torch_dtypes.float_format, (number(-1, 13), number(-1, 54)), floats
        ),
        "fixed_format": lambda: Call(
            "fixed_format", torch_dtypes.fixed_format, (number(-2, 40), number(-2, 40)), fixed
        ),
        "dtype": lambda: Call(
            "dtype",
            torch_dtypes.dtype,
            (scrambled(str(rng.choice(arguments.dtypes))[6:], arguments),),
        ),
        "with_rounding": lambda: Call(
            "with_rounding",
            torch_dtypes.with_rounding,
            (rng.choice((dtype(), torch.float32, "q43", 3)), mode()),
        ),
        "chop": lambda: Call(
            "chop",
            torch_dtypes.chop,
            (chopped(), rng.choice((dtype(), torch.float32, "e5m2", "posit9es1", "fixed3_3"))),
            {"rounding": mode(), "flip_prob": rng.choice((0.0, 0.5, 1, 2, float("nan")))},
        ),
        "accumulate": lambda: (lambda p: Call("accumulate", blocked(policy_block, p), (), {}, ()))(
            product()
        ),
        "rounding": lambda: (
            lambda p: Call("rounding", blocked(lambda: torch_dtypes.rounding(mode()), p))
        )(product()),
        "getitem": lambda: Call("getitem", lambda t, i: t[i], (tensor(), index_of(arguments))),
        "setitem": lambda: Call(
            "setitem",
            set_item,
            (
                tensor(),
                index_of(arguments),
                rng.choice((tensor(), arguments.number(), "a", None, [1, 2])),
            ),
        ),
        "tensor": lambda: Call(
            "tensor", torch.tensor, (data_of(arguments),), {"dtype": arguments.dtype()}
        ),
        "new_tensor": lambda: Call(
            "new_tensor", torch.Tensor.new_tensor, (tensor(), data_of(arguments))
        ),
        "view": lambda: Call("view", torch.Tensor.view, (tensor(), arguments.dtype())),
        "to": lambda: Call(
            "to",
            torch.Tensor.to,
            (tensor(), rng.choice((arguments.dtype(), tensor(), "cpu", "meta"))),
        ),
        "data": lambda: Call(
            "data", set_attribute, (tensor(), rng.choice(("data", "grad")), tensor())
        ),
        "numpy": lambda: Call(
            "numpy", lambda t, f: getattr(t, f)(), (tensor(), rng.choice(readers))
        ),
        "copies": lambda: Call("copies", lambda t, f: f(t), (tensor(), rng.choice(copies))),
        "finfo": lambda: Call("finfo", lambda d: repr(torch.finfo(d)), (arguments.dtype(),)),
        "storage": lambda: Call(
            "storage",
            torch.Tensor.set_,
            (tensor(), tensor().untyped_storage(), arguments.integer(), arguments.near()),
        ),
        "set_default": lambda: Call("set_default", default_dtype, (dtype(), arguments.near())),
    }
    return choices[operator if operator in choices else rng.choice(sorted(choices))]()


def default_dtype(dtype, shape):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        return (
            torch.ones(shape),
            torch.arange(3) / 2,
            torch.nn.Linear(2, 2).weight,
            torch.tensor(1.5),
        )
    finally:
        torch.set_default_dtype(before)


KINDS = {
    "schema": (from_schema, 5),
    "samples": (from_database, 3),
    "functions": (from_functions, 2),
}


def draw(
    seed: int, number: int, dtypes, world=(), kind=None, operator=None
) -> tuple[Call, Arguments]:
    """Call `number` of a seed: the same one in every process, and in every world (instead, uniform)
    but for the dtypes that it replaces."""
    rng = random.Random(f"{seed}/{number}")
    chosen = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    arguments = Arguments(rng, dtypes, *world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind or chosen][0](arguments, operator), arguments


# ---- making and checking them ----


def tensors(value: object) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def gradients(results: list[torch.Tensor], again: bool) -> None:
    """Runs backward from the results; what comes back must have the dtype and sizes of what it is a
    gradient of."""
    outputs = [t for t in results if t.requires_grad and t.grad_fn is not None]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs], create_graph=again)


def blamed(call: Call, text: str) -> list[str]:
    """An error that blames PyTorch. Internal functions and operators called by hand may come upon
    PyTorch's own assertions: docs/limits.md; upon ours nothing may."""
    by_hand = call.name.startswith(("aten.", "torch _"))
    words = ('ASSERT FAILED at "../../aten/src/ATen/',) if by_hand else BLAME
    return [f"message: {text[:200]}"] if any(word in text for word in words) else []


def whole(t: torch.Tensor) -> bool:
    """False for what stock factories called by hand make of a number of ours: a tensor without a
    dtype."""
    try:
        return t.dtype is not None
    except RuntimeError:
        return False


def run(call: Call, arguments: Arguments, seed: int) -> tuple[str, list[str], list | None]:
    """What came of it ("returned", or "raised" and the text), what is wrong, and for each result
    whether it is ours."""
    torch.default_generator.manual_seed(seed)
    torch.set_grad_enabled(True)
    before = [t.dtype for t in call.written]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call.run(*call.args, **call.kwargs)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return f"raised {text[:300]}", blamed(call, text), None
    wrong = []
    results = [t for t in tensors(result) if whole(t)]
    if len(results) < len(tensors(result)) and not call.name.startswith(("aten.", "torch _")):
        wrong.append("object: a tensor without a dtype")
    for t, dtype in zip(call.written, before, strict=True):
        if t.dtype is not dtype and "set_data" not in call.name:
            wrong.append(f"dtype of a written operand: expected {dtype}, but got {t.dtype}")
    given = (
        {t.dtype for t in tensors((call.args, call.kwargs))}
        | {t.dtype for t in arguments.operands}
        | set(arguments.asked)
    )
    ours = {d for d in given if isinstance(d, torch.dtype) and torch_dtypes.is_format_dtype(d)}
    numbers = any(isinstance(d, int) for d in given) or any(
        word in call.name for word in ASKS_BY_NAME
    )
    for t in results:
        if (
            not numbers
            and t.dtype not in given
            and t.dtype in {CONTAINER[d.itemsize] for d in ours if d.itemsize < 4}
        ):
            wrong.append(f"container: a result has dtype {t.dtype}")
        wrong += unsound(t)
    if not wrong:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gradients(results, seed % 8 == 0)
        except Exception as error:
            wrong += blamed(call, f"backward: {type(error).__name__}: {error}")
        for t in tensors((call.args, call.kwargs)):
            if (
                t.is_leaf
                and t.grad is not None
                and (t.grad.dtype is not t.dtype or t.grad.shape != t.shape)
            ):
                wrong.append(f"gradient: expected {shown(t)}, but got {shown(t.grad)}")
    return (
        "returned",
        wrong,
        [
            (torch_dtypes.is_format_dtype(t.dtype), t.dtype in STOCK_FLOATS, tuple(t.shape))
            for t in results
        ],
    )


def unsound(t: torch.Tensor) -> list[str]:
    """What is wrong with a result as an object, whatever its values are."""
    ours = torch_dtypes.is_format_dtype(t.dtype)
    if ours != _C.is_format_tensor(t):
        return [f"class: {t.dtype} in a tensor of the other class"]
    plain = (
        t.layout is torch.strided
        and not t.is_nested
        and not torch._C._functorch.is_functorch_wrapped_tensor(t)
    )
    if plain and t.device.type == "cpu" and t.numel():
        last = t.storage_offset() + sum(
            (size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)
        )
        if t.storage_offset() < 0 or (last + 1) * t.dtype.itemsize > t.untyped_storage().nbytes():
            return [
                f"memory: {list(t.shape)} {list(t.stride())} {t.storage_offset()} does not fit "
                f"into {t.untyped_storage().nbytes()} bytes"
            ]
    if not ours:
        return []
    try:
        text, values = repr(t), t.detach().to(torch.float64)
    except Exception as error:
        if "allocate memory" in str(error):  # sizes beyond all memory, with strides of nothing
            return []
        return [f"object: {type(error).__name__}: {str(error)[:150]}"]
    if str(t.dtype) not in text and t.device.type == "cpu":
        return [f"repr: expected {t.dtype} in {text[:100]!r}"]
    same = values.shape == t.shape and values.dtype is torch.float64
    return [] if same else [f"values: expected float64 of {list(t.shape)}, but got {shown(values)}"]
