"""Calls for tools/fuzz.py of torch_dtypes' functions, and of additions of the Python layer."""

import copy
import io
import pickle

import torch
from fuzz_arguments import Arguments
from fuzz_checks import Call

import torch_dtypes

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


def save_and_load(t):
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def scramble(text: str, arguments: Arguments) -> str:
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
            operands[1] = arguments.lay_out(shapes.get(run.__name__, list(t.shape)[::-1]), t.dtype)
        else:
            run = rng.choice(products)
        return Call("", run, tuple(operands))

    def wrap_in(block, call):
        return lambda: in_block(block(), lambda: call.run(*call.args))

    def chop_operand():
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
    copies = (save_and_load, copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t)))
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
            (scramble(str(rng.choice(arguments.dtypes))[6:], arguments),),
        ),
        "with_rounding": lambda: Call(
            "with_rounding",
            torch_dtypes.with_rounding,
            (rng.choice((dtype(), torch.float32, "q43", 3)), mode()),
        ),
        "chop": lambda: Call(
            "chop",
            torch_dtypes.chop,
            (chop_operand(), rng.choice((dtype(), torch.float32, "e5m2", "posit9es1", "fixed3_3"))),
            {"rounding": mode(), "flip_prob": rng.choice((0.0, 0.5, 1, 2, float("nan")))},
        ),
        "accumulate": lambda: (lambda p: Call("accumulate", wrap_in(policy_block, p), (), {}, ()))(
            product()
        ),
        "rounding": lambda: (
            lambda p: Call("rounding", wrap_in(lambda: torch_dtypes.rounding(mode()), p))
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
