"""Calls for tools/fuzz.py, from operator schemas, PyTorch's samples and torch_dtypes' functions."""

import functools
import itertools
import random
import warnings

import torch
from fuzz_arguments import Arguments
from fuzz_checks import Call, tensors
from fuzz_functions import from_functions
from torch.utils._pytree import tree_leaves, tree_map

# Useless operators: they write files, wait, or make the wrappers of torch.func without their
# levels.
LEFT_OUT = frozenset(
    (
        "aten::from_file aten::wait aten::save aten::record_stream aten::set_grad_enabled "
        "aten::requires_grad_ aten::_add_batch_dim aten::_remove_batch_dim"
    ).split()
)
# ---- calls from schemas ----


@functools.cache
def schemas(operator: str | None = None) -> list:
    """Return operators that take a tensor or a dtype, or those of one base name."""

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
    """Return a function or method that users call for an operator, if there is one."""
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


def change_argument(value: object, arguments: Arguments) -> object:
    """Return another argument of the same type, or of a wrong one."""
    if arguments.chance(0.08):
        return arguments.rng.choice((None, "a", -1, 2.5, [], arguments.tensor()))
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        kind = arguments.rng.random()
        if value.dtype in (torch.int64, torch.bool) and kind < 0.7:
            return arguments.lay_out(list(value.shape), value.dtype)
        if kind < 0.6:
            return arguments.lay_out(list(value.shape), arguments.primary)
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

    def cast(value):
        if (
            not isinstance(value, torch.Tensor)
            or value.dtype is not torch.float32
            or value.layout is not torch.strided
        ):
            return value
        t = value.detach().to(arguments.primary).to(dtype)
        return t.requires_grad_() if grad else t

    grad = arguments.chance(0.4)
    args, kwargs = tree_map(cast, ((sample.input, *sample.args), sample.kwargs))
    changes = arguments.rng.choice((0, 1, 1, 2))
    places = [*range(len(args)), *kwargs]
    for place in arguments.rng.sample(places, min(changes, len(places))):
        if isinstance(place, str):
            kwargs[place] = change_argument(kwargs[place], arguments)
        else:
            args = (*args[:place], change_argument(args[place], arguments), *args[place + 1 :])
    # The sample itself may name dtypes.
    dtypes = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.dtype)]
    arguments.dtypes_named += dtypes
    variant = arguments.rng.random()
    run = op.op
    if variant < 0.15:
        run = op.get_inplace() or op.op
    elif variant < 0.25 and op.supports_out:
        kwargs = {
            **kwargs,
            "out": arguments.lay_out([0], arguments.primary)
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


KINDS = {
    "schema": (from_schema, 5),
    "samples": (from_database, 3),
    "functions": (from_functions, 2),
}


def draw(
    seed: int, number: int, dtypes, world=(), kind=None, operator=None
) -> tuple[Call, Arguments]:
    """Draw call `number` of a seed.

    It is the same in every process. In another world (instead, uniform) only the replaced dtypes
    differ.
    """
    rng = random.Random(f"{seed}/{number}")
    chosen = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    arguments = Arguments(rng, dtypes, *world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind or chosen][0](arguments, operator), arguments
