"""The GPU's kernels for arithmetic, optimizer steps and neighbours, run on the host and compared
with the CPU's operators, bit for bit."""

# ruff: noqa: F811 (a fixture that is imported)

import ctypes
import itertools

import pytest
import torch
from host_kernels import (
    FORMATS,
    all_codes,
    argument,
    fields,
    format_of,
    library,  # noqa: F401 (a fixture)
    on_cpu,
    run,
    same,
    seeds,
    values_for,
)
from representatives import thin_out

import torch_dtypes

pytestmark = pytest.mark.whole  # compiling the kernels takes most of a minute

ARITHMETIC = [name for name in FORMATS if name != "fixed3_4_wrap"]


MODES = ("down", "to_odd", "stochastic", "up_down")


def cases():
    """Yield every format to nearest and in two of the four other modes. The next format has the
    remaining two, since a mode takes minutes."""
    for i, name in enumerate(ARITHMETIC):
        yield pytest.param(name, "nearest_even", id=f"{name}-nearest_even")
        for j, mode in enumerate(MODES):
            yield pytest.param(
                name, mode, id=f"{name}-{mode}", marks=[pytest.mark.slow] * ((i + j) % 2)
            )


@pytest.mark.parametrize(("name", "mode"), thin_out(cases(), 4))
def test_arithmetic(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    a, b, c = (all_codes(dtype, seed) for seed in (1, 2, 3))
    out = torch.empty_like(a)

    for op, call in enumerate((torch.add, torch.sub, torch.mul, torch.div)):
        run(library, "binary", fmt, op, a, b, out, len(a), seeds())
        same(out, on_cpu(lambda call=call: call(a, b), mode))
    run(library, "unary", fmt, 0, a, out, len(a), seeds())
    same(out, on_cpu(a.sqrt, mode))
    for s, (op, call) in itertools.product((1.0, 0.3), ((2, torch.addcmul), (1, torch.addcdiv))):
        run(library, "ternary", fmt, op, a, b, c, s, out, len(a), seeds())
        same(out, on_cpu(lambda s=s, call=call: call(c, a, b, value=s), mode))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 50, 63, 64, 65, 129])
@pytest.mark.parametrize("name", ["q43", "posit16es2", "posit8es2", "e8m4"])
def test_blocks_of_random_words(library, name, n):
    """A thread computes all elements that share a block of random bits. The last block is
    incomplete."""
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, "stochastic")
    a, b, values = (
        all_codes(dtype, 1)[:n],
        all_codes(dtype, 2)[:n],
        values_for(dtype).float()[-n:].contiguous(),
    )
    behind = all_codes(dtype, 3)[:80]  # another tensor's memory, which must stay
    for call, kernel, operands in (
        (lambda: a * b, "binary", (2, a, b)),
        (lambda: values.to(dtype), "encode_float", (values,)),
    ):
        found = torch.cat([torch.zeros_like(a), behind])
        run(library, kernel, fmt, *operands, found, n, seeds())
        same(found[:n], on_cpu(call, "stochastic"))
        same(found[n:], behind)


def elementwise(library, fmt, op, tensors, number, mixed, out, seed=0):
    """Run an operator on `tensors`, where None stands for the number. The layout is that of a
    TensorIterator: the fastest dimension first, strides in bytes, no dimensions where all are
    contiguous."""
    given = [x for x in tensors if x is not None]
    contiguous = all(x.is_contiguous() and x.shape == out.shape for x in given)
    rows = [
        out.shape,
        *(
            [stride * out.itemsize for stride in x.expand(out.shape).stride()]
            for x in (out, *given)
        ),
    ]
    layout = torch.tensor([x for row in rows for x in reversed(row)])
    pointers = [
        None if x is None else ctypes.c_void_p(x.data_ptr()) for x in (*tensors, None, None)[:3]
    ]
    last = map(
        argument,
        (float(number), int(mixed), layout, 0 if contiguous else out.dim(), out, out.numel(), seed),
    )
    assert (
        library.elementwise(fields(fmt), argument(len(tensors)), argument(op), *pointers, *last)
        == 0
    )


# Operands of one size. A pack of four is contiguous in memory, or one element, or neither.
LAYOUTS = {
    "a row": lambda x: (x.view(16, 16, 16), x[:16]),
    "a column": lambda x: (x.view(16, 16, 16), x[:16].view(16, 1)),
    "one of each matrix": lambda x: (x.view(16, 16, 16), x[:16].view(16, 1, 1)),
    "every other": lambda x: (x.view(16, 16, 16)[..., ::2], x[2048:].view(16, 16, 8)),
    "every other row": lambda x: (x.view(16, 16, 16)[:, ::2], x[2048:].view(16, 8, 16)),
    "transposed": lambda x: (x.view(64, 64).mT, x.view(64, 64)),
    "odd rows": lambda x: (x[:3840].view(64, 60)[:, :7], x[:7]),
    "from the second on": lambda x: (x[1:1025].view(64, 16), x[:16]),
    "rows of odd strides": lambda x: (x[:3843].view(61, 63)[:, :8], x[:8]),
}


@pytest.mark.parametrize("mode", ["nearest_even", "stochastic"])
@pytest.mark.parametrize(
    "name", ["q43", "posit16es2", "posit8es0", "e8m7", "tf32", "posit32es2", "fixed4_3"]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(library, layout, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    a, b = LAYOUTS[layout](all_codes(dtype, 1))
    c = all_codes(dtype, 2)[: a.numel()].view(a.shape).flip(0).contiguous()
    expressions = (
        (0, (a,), torch.sqrt),
        (1, (a, b), torch.sub),
        (1, (b, a), torch.sub),
        (3, (c, b), torch.div),
    )
    for op, tensors, call in (*expressions, (2, (a, c, b), lambda x, y, z: torch.addcmul(z, x, y))):
        elementwise(library, fmt, op, tensors, 1.0, False, found := torch.empty_like(c), seeds())
        made = [x.contiguous() for x in tensors]  # random words follow the places in the result
        same(found, on_cpu(lambda call=call, made=made: call(*made), mode))


@pytest.mark.parametrize("number", [0.3, -1 / 3, 1e-3, 12345.678])
@pytest.mark.parametrize(
    "name",
    thin_out("q43 posit16es2 posit8es0 e5m5 e8m7 tf32 e4m3fnuz fixed4_3".split(), 3),
)
def test_a_number_that_float32_lacks(library, name, number):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    for n in (4096, 63):
        a, b = all_codes(dtype, 1)[:n], all_codes(dtype, 2)[:n]
        calls = [
            (op, pair, call)
            for op, call in enumerate((torch.add, torch.sub, torch.mul, torch.div))
            for pair in ((a, None), (None, a))
        ]
        calls += [
            (0, (None, a, b), lambda x, y, z: torch.add(z, y, alpha=x)),
            (1, (a, b, a), lambda x, y, z: torch.addcdiv(z, x, y, value=number)),
            (2, (a, b, a), lambda x, y, z: torch.addcmul(z, x, y, value=number)),
            (3, (a, b, None), torch.lerp),
        ]
        for op, tensors, call in calls:
            elementwise(library, fmt, op, tensors, number, True, found := torch.empty_like(a))
            same(found, call(*(number if x is None else x for x in tensors)))


# The operation of each instruction, of the registers a, b, c and its number, in the order of Do
# (Instructions.h).
INSTRUCTIONS = (
    lambda a, b, c, x: -a,
    lambda a, b, c, x: a.clone(),
    lambda a, b, c, x: torch.maximum(a, b),
    lambda a, b, c, x: a + x,
    lambda a, b, c, x: a * x,
    lambda a, b, c, x: a / x,
    lambda a, b, c, x: torch.add(a, b, alpha=x),
    lambda a, b, c, x: torch.lerp(a, b, x),
    lambda a, b, c, x: torch.addcmul(a, b, c, value=x),
    lambda a, b, c, x: torch.addcdiv(a, b, c, value=x),
    lambda a, b, c, x: torch.sqrt(a),
)
# Steps of optimizers as programs of registers (operation, to, a, b, c, number): a parameter, its
# gradient, two states; from 5 on, temporaries.
PROGRAMS = {
    "sgd": [
        (6, 5, 1, 0, 0, 0.01),
        (4, 2, 2, 0, 0, 0.9),
        (6, 2, 2, 5, 0, 1.0),
        (6, 0, 0, 2, 0, -0.1),
    ],
    "adam": [
        (0, 5, 1, 0, 0, 0.0),
        (7, 2, 2, 5, 0, 0.1),
        (4, 3, 3, 0, 0, 0.999),
        (8, 3, 3, 5, 5, 0.001),
        (2, 4, 4, 3, 0, 0.0),
        (10, 6, 4, 0, 0, 0.0),
        (5, 6, 6, 0, 0, 0.3),
        (3, 6, 6, 0, 0, 1e-3),
        (9, 0, 0, 2, 6, -0.01),
    ],
    "first": [(1, 2, 1, 0, 0, 0.0), (6, 0, 0, 2, 0, 1.0)],
}


@pytest.mark.parametrize("mode", ["nearest_even", "down", "to_odd"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_programs(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    for steps in PROGRAMS.values():
        registers = [all_codes(dtype, seed, 2000) for seed in range(5)]
        # No operator makes an infinity. An operator that passes one on may keep it, or saturate.
        if not torch.tensor(torch.inf).to(dtype).isinf():
            registers = [r.where(~r.isinf(), r.new_ones(())) for r in registers]
        ends = torch.tensor([1, 1000, 1003, 2000])
        given = torch.tensor([step[:5] for step in steps])
        found = [r.clone() for r in registers]
        memory = (ctypes.c_void_p * 5)(*(r.data_ptr() for r in found))
        numbers = torch.tensor([step[5] for step in steps], dtype=torch.float64)
        run(library, "programs", fmt, memory, 5, ends, len(ends), given, numbers, len(steps))
        expected = [*registers, None, None, None]
        with torch_dtypes.rounding(mode):
            for what, to, a, b, c, number in steps:
                expected[to] = INSTRUCTIONS[what](expected[a], expected[b], expected[c], number)
        for one, other in zip(found, expected, strict=False):
            same(one, other)


@pytest.mark.parametrize("name", [name for name in FORMATS if not format_of(name).table_address])
def test_the_next_numbers(library, name):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name)
    a = all_codes(dtype, 1)
    towards = torch.cat([all_codes(dtype, 2, 3000), a[3000:]])
    towards[:5] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan]).to(dtype)
    out = torch.empty_like(a)
    run(library, "next_codes", fmt, a, a.double(), towards.double(), out, len(a))
    same(out, torch.nextafter(a, towards))


@pytest.mark.parametrize("op", [0, 1, 2], ids=["sum", "product", "fused"])
def test_odd_neighbours(library, op):
    g = torch.Generator().manual_seed(3)
    n = 200_000
    numbers = [
        torch.randn(n, generator=g, dtype=torch.float64)
        * torch.exp2(torch.randint(-60, 60, (n,), generator=g))
        for _ in range(3)
    ]
    numbers = [torch.cat([x.float().double()[: n // 2], x[n // 2 :]]) for x in numbers]
    ends = torch.tensor(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            torch.inf,
            -torch.inf,
            torch.nan,
            5e-324,
            torch.finfo(torch.float64).max,
        ],
        dtype=torch.float64,
    )
    # The term added to a product is 0, or far above a product that underflows.
    terms = ends[ends != 5e-324] if op == 2 else ends
    numbers = [
        torch.cat([x, e])
        for x, e in zip(numbers, torch.cartesian_prod(ends, ends, terms).unbind(1), strict=True)
    ]
    library.other_odd_neighbours.restype = ctypes.c_int64
    assert library.other_odd_neighbours(op, *map(argument, numbers), argument(len(numbers[0]))) == 0
