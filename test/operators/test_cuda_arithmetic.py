"""Arithmetic, programs of an optimizer's step and neighbours by the GPU's kernels, on the host, against the CPU's operators, bit for bit."""

# ruff: noqa: F811 (a fixture that is imported)

import ctypes

import pytest
import torch
from host_kernels import FORMATS, all_codes, argument, format_of, library, run, same, seeds  # noqa: F401 (a fixture)

import torch_dtypes

pytestmark = pytest.mark.own_process

ARITHMETIC = [name for name in FORMATS if name != "fixed3_4_wrap"]


@pytest.mark.parametrize("mode", ["nearest_even", "down", "to_odd", "stochastic", "up_down"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    a, b, c = (all_codes(dtype, seed) for seed in (1, 2, 3))
    out = torch.empty_like(a)

    def expect(call):
        torch.manual_seed(11)
        with torch_dtypes.rounding(mode):
            return call()

    for op, call in enumerate((torch.add, torch.sub, torch.mul, torch.div)):
        run(library, "binary", fmt, op, a, b, out, len(a), seeds(11))
        same(out, expect(lambda call=call: call(a, b)))
    run(library, "square_root", fmt, a, out, len(a), seeds(11))
    same(out, expect(lambda: torch.sqrt(a)))
    for s in (1.0, 0.3):
        run(library, "ternary", fmt, 2, a, b, c, s, out, len(a), seeds(11))
        same(out, expect(lambda s=s: torch.addcmul(c, a, b, value=s)))
        run(library, "ternary", fmt, 1, a, b, c, s, out, len(a), seeds(11))
        same(out, expect(lambda s=s: torch.addcdiv(c, a, b, value=s)))


# What each instruction computes, of the registers a, b, c and its number; in the order of Do (Instructions.h).
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
# Steps of optimizers as their registers have it (what, to, a, b, c, number): a parameter, its gradient, two states; from 5 on, between two steps.
PROGRAMS = {
    "sgd": [(6, 5, 1, 0, 0, 0.01), (4, 2, 2, 0, 0, 0.9), (6, 2, 2, 5, 0, 1.0), (6, 0, 0, 2, 0, -0.1)],
    "adam": [
        (0, 5, 1, 0, 0, 0.0), (7, 2, 2, 5, 0, 0.1), (4, 3, 3, 0, 0, 0.999), (8, 3, 3, 5, 5, 0.001), (2, 4, 4, 3, 0, 0.0), (10, 6, 4, 0, 0, 0.0),
        (5, 6, 6, 0, 0, 0.3), (3, 6, 6, 0, 0, 1e-3), (9, 0, 0, 2, 6, -0.01),
    ],
    "first": [(1, 2, 1, 0, 0, 0.0), (6, 0, 0, 2, 0, 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest_even", "down", "to_odd"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_programs(library, name, mode):
    dtype, fmt = torch_dtypes.dtype(name), format_of(name, mode)
    for steps in PROGRAMS.values():
        registers = [all_codes(dtype, seed, 2000) for seed in range(5)]
        if not torch.tensor(torch.inf).to(dtype).isinf():  # no operator makes an infinity: what passes one on may keep it, or saturate
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
    numbers = [torch.randn(n, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-60, 60, (n,), generator=g)) for _ in range(3)]
    numbers = [torch.cat([x.float().double()[: n // 2], x[n // 2 :]]) for x in numbers]
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 5e-324, torch.finfo(torch.float64).max], dtype=torch.float64)
    terms = ends[ends != 5e-324] if op == 2 else ends  # what is added to a product is 0 or far above one that underflows
    numbers = [torch.cat([x, e]) for x, e in zip(numbers, torch.cartesian_prod(ends, ends, terms).unbind(1), strict=True)]
    library.other_odd_neighbours.restype = ctypes.c_int64
    assert library.other_odd_neighbours(op, *map(argument, numbers), argument(len(numbers[0]))) == 0
