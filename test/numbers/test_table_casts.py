"""Casts to tables of values, against the generic codec and exact rationals (oracle_tables.py): the
searches in float32's bits and float64's numbers, and the random modes. Some inputs are chosen so
that part of a random word decides."""

import math
import os
import subprocess
import sys

import new_process
import numpy as np
import pytest
import torch
from conftest import from_codes, to_codes
from oracle import MODES as DETERMINISTIC
from oracle_stochastic import as_signed, random_words
from oracle_tables import STOCHASTIC, of_definition
from rationals import Fraction
from representatives import thin_out
from test_tables import NAMED, OWN, define
from vector_units import capabilities

from torch_dtypes import _C
from torch_dtypes.formats import naming
from torch_dtypes.formats.tables import custom

pytestmark = pytest.mark.usefixtures("one_thread")

rng = np.random.default_rng(5)
CROWDED = {  # more values than the buckets of a search can separate, or almost
    "random of 8 bits": custom.define(rng.standard_normal(256).tolist()),
    "neighbours": custom.define(
        [1.0, 1 + 2**-52, 1 + 2**-51, 1 + 2**-23, 1 + 2**-22, -1.0, -1 - 2**-23, 3e-308, 4e-308]
    ),
    "among subnormal numbers": custom.define(
        [
            0.0,
            *(k * 2.0**-149 for k in (1, 2, 3, 5, 70000, 70002)),
            2.0**-126,
            -(2.0**-140),
            -(2.0**-149),
        ]
    ),
    "as wide as float64": custom.define([-1.7e308, 1.7e308, 1.0]),
}
ALL = [*NAMED, *OWN, *CROWDED]
# One table of each kind: with 4 and 8 bits, by logarithms, by zeros, by overflow, and hard to
# search.
TABLES = {"nf4", "hif8", "takum8_log", "two zeros, infinities", "unsigned saturating", *CROWDED}
FEW = [(kind, n) for kind in "abc" for n in (1, 3, 8, 31, 32, 33, 60)]


def definition_of(name):
    return CROWDED[name] if name in CROWDED else define(name)


def dtype_of(fmt, name, mode, few=None):
    fmt.rounding = getattr(_C.Rounding, mode)
    if few:
        fmt.few_bits, fmt.random_bits = getattr(_C.FewBits, few[0]), few[1]
    if name in NAMED:  # a dtype with another name would remain for tests that make this one
        return _C.define(fmt, naming.name_of_format(fmt))
    letters = "".join(c for c in name if c.isalnum())
    return _C.define(fmt, f"{letters}_{mode}{''.join(map(str, few or ()))}")


def float32_around(numbers):
    """Return each number's five nearest in float32's order, each with both signs, and infinities,
    NaNs, subnormal and random bits."""
    with np.errstate(over="ignore"):
        near = np.concatenate(
            [
                np.asarray(numbers, dtype=np.float64).astype(np.float32),
                np.float32([0, 2.0**-126, 2.0**-133, math.inf]),
            ]
        )
    bits = (
        (near.view(np.uint32)[:, None] + np.arange(-2, 3, dtype=np.int64)).astype(np.uint32).ravel()
    )
    random = np.random.default_rng(3).integers(0, 2**32, 1500, dtype=np.uint32)
    bits = np.concatenate(
        [
            bits,
            bits ^ np.uint32(2**31),
            random,
            random & np.uint32(0x807FFFFF),
            random & np.uint32(0x8000FFFF),
        ]
    )
    return torch.from_numpy(bits.view(np.float32))


def in_places_of_change(definition):
    """Return the oracle's inputs, at most 4,000 of them."""
    x = of_definition(definition).inputs()
    return x if len(x) <= 4000 else np.random.default_rng(1).choice(x, 4000, replace=False).tolist()


def cast_and_words(x, dtype, seed=11):
    """Return the codes of a random cast, and the words that it drew."""
    torch.manual_seed(seed)
    drawn = int(_C.next_seed()) % 2**64
    torch.manual_seed(seed)
    return to_codes(x, dtype), random_words(drawn, 0, x.numel())


def assert_generic(fmt, x, found, words=None):
    expected = _C.encode_exact(
        fmt, x.double(), None if words is None else torch.from_numpy(as_signed(words))
    )
    wrong = (found != expected).nonzero().flatten()[:5].tolist()
    assert not wrong, [(x[i].item(), found[i].item(), expected[i].item()) for i in wrong]


@pytest.mark.parametrize(
    "name", thin_out([*ALL, "takum16_linear", "takum16_log", "lns7_7"], TABLES)
)
def test_every_bit_of_float32_around_what_changes(name):
    definition = definition_of(name)
    fmt, x = definition.format(name), float32_around(in_places_of_change(definition))
    for mode in DETERMINISTIC:
        assert_generic(fmt, x, to_codes(x, dtype_of(fmt, name, mode)))
    for mode in STOCHASTIC:
        assert_generic(fmt, x, *cast_and_words(x, dtype_of(fmt, name, mode)))


@pytest.mark.parametrize("name", thin_out([*ALL, "e8m0", "takum16_log", "lns7_7"], TABLES))
def test_every_code_as_float32(name):
    """Each value is rounded once where float32 lacks it. (e8m0's smallest value is a subnormal
    float32, which a processor may flush.)"""
    fmt = definition_of(name).format(name)
    dtype = dtype_of(fmt, name, "nearest_even")
    codes = torch.arange(2**fmt.bits)
    values = _C.decode_exact(fmt, codes).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = torch.from_numpy(values.astype(np.float32))
    x = from_codes(codes, dtype)
    torch.testing.assert_close(x.float(), expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(
        x.float().signbit() & ~expected.isnan(), expected.signbit() & ~expected.isnan()
    )
    if x.is_cpu and torch.set_flush_denormal(True):
        try:
            flushed = x.float()
        finally:
            torch.set_flush_denormal(False)
        assert torch.equal(
            flushed.nan_to_num(7.0).view(torch.int32), expected.nan_to_num(7.0).view(torch.int32)
        )


def test_numbers_from_all_of_float32():
    """Search numbers from all of float32 by 16 leading bits, and in two steps."""
    x = torch.arange(0, 2**32, 6151, dtype=torch.int64).to(torch.uint32).view(torch.float32)
    for name in ("hif8", "takum8_linear", "takum16_linear"):
        fmt = define(name).format(name)
        assert_generic(fmt, x, to_codes(x, dtype_of(fmt, name, "nearest_even")))


def test_a_table_with_more_values_than_buckets():
    """With 2^16 random numbers, some buckets hold several."""
    values = np.unique(np.random.default_rng(2).standard_normal(2**16 + 50))[: 2**16]
    definition = custom.define(values.tolist())
    fmt = definition.format("random")
    x = torch.cat(
        [
            torch.randn(20000, generator=torch.Generator().manual_seed(1)),
            float32_around(values[::20]),
        ]
    )
    assert_generic(fmt, x, to_codes(x, dtype_of(fmt, "random", "nearest_even")))
    assert_generic(fmt, x, *cast_and_words(x, dtype_of(fmt, "random", "stochastic")))


@pytest.mark.parametrize("name", thin_out(ALL, TABLES))
def test_modes_that_draw_against_exact_rationals(name):
    definition = definition_of(name)
    oracle, fmt = of_definition(definition), definition.format(name)
    x = torch.tensor(in_places_of_change(definition)[:1500], dtype=torch.float64)
    x = torch.cat([x, x * 1.03125, x * 1.7])
    for values in (x, x.float()):
        for mode in STOCHASTIC:
            found, words = cast_and_words(values, dtype_of(fmt, name, mode))
            expected = [
                oracle.encode(v, mode, int(w))
                for v, w in zip(values.double().tolist(), words, strict=True)
            ]
            assert found.tolist() == expected, mode


@pytest.mark.parametrize(
    "name",
    thin_out(["hif8", "nf4", "to codes", "two zeros, infinities", "neighbours", "takum8_log"], 3),
)
def test_few_random_bits(name):
    definition = definition_of(name)
    fmt = definition.format(name)
    x = torch.tensor(in_places_of_change(definition)[:1500], dtype=torch.float64)
    x = torch.cat([x, x * 1.03125, x * 1.5, x * 1.25, x * 1.125])
    for few in FEW:
        dtype = dtype_of(fmt, name, "stochastic", few)
        for values in (x, x.float()):
            assert_generic(fmt, values, *cast_and_words(values, dtype))


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, -2.0, 0.5], [0.0, 3.0], [0.1, 0.7]], ids=str)
@pytest.mark.parametrize("few", thin_out([(None,), *((few,) for few in FEW)], 4))
def test_numbers_at_the_edge_of_their_random_words(values, few):
    """For these float64 numbers the fraction of the gap plus the word is one, or just below one.
    The lower half of the word decides, or no bit at all."""
    definition = custom.define(values)
    oracle, fmt = of_definition(definition), definition.format("edge")
    dtype = dtype_of(
        fmt, f"edge{len(values)}{int(10 * values[0])}{int(10 * values[1])}", "stochastic", few
    )
    inner, outer = sorted((Fraction(v) for v in values[:2]), key=abs)
    n = 600
    _, words = cast_and_words(torch.zeros(n), dtype)
    taken = few[1] if few else 64
    half = Fraction(0) if not few or few[0] == "a" else Fraction(1, 2)
    parts = [1 - ((int(w) >> (64 - taken)) + half) / Fraction(2**taken) for w in words]
    edges = [float(inner + (outer - inner) * p) for p in parts]
    shifts = [0, 1, -1, 3, -3, 2**10, -(2**10), 2**21, -(2**21), 2**30, -(2**30), 2**31]
    x = torch.tensor(edges, dtype=torch.float64)
    x = (x.view(torch.int64) + torch.tensor([shifts[i % len(shifts)] for i in range(n)])).view(
        torch.float64
    )
    found, again = cast_and_words(x, dtype)
    assert (again == words).all()
    assert found.tolist() == [
        oracle.encode(v, "stochastic", int(w), few) for v, w in zip(x.tolist(), words, strict=True)
    ]
    assert len(set(found.tolist())) > 1


def test_strides_and_offsets():
    """Try any number of elements, from any place in memory, in any mode: the remainder of each
    loop."""
    x = torch.randn(700, generator=torch.Generator().manual_seed(1))
    for name in ("nf4", "takum16_linear"):
        fmt = define(name).format(name)
        for mode in ("nearest_even", "stochastic", "up_down"):
            dtype = dtype_of(fmt, name, mode)
            for start, n in (
                (0, 1),
                (1, 15),
                (3, 16),
                (5, 17),
                (7, 33),
                (2, 257),
                (1, 513),
                (9, 691),
            ):
                part = x[start : start + n]
                assert_generic(fmt, part, *cast_and_words(part, dtype))
        codes = torch.arange(2**fmt.bits).repeat(3)[5:-7]
        assert torch.equal(
            to_codes(from_codes(codes, dtype).double(), dtype_of(fmt, name, "up")), codes
        )


@pytest.mark.slow
@pytest.mark.parametrize("capability", capabilities())
def test_with_other_vector_units(capability):
    env = {**os.environ, "TORCH_DTYPES_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"}
    chosen = "every_bit_of_float32 or edge_of_their or strides or few_random_bits or more_values"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", __file__, "-k", chosen],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


FLUSHED = """
import torch, torch_dtypes as td

T, x = (
    td.table_format([0.0] + [2.0 ** (-149 + 2 * k) for k in range(31)]),
    torch.tensor([2.0**-126, 2.0**-140]),
)
y = torch.full((1 << 16,), 2.0**-129, dtype=torch.float64).to(torch.e8m4)
torch.set_flush_denormal(True)
x.to(T), y.relu()
torch.set_flush_denormal(False)
assert td.codes(x.to(T)).tolist() == [12, 5], td.codes(x.to(T))
assert y.relu()[0].item() == 2.0**-129, y.relu()[0]
"""


def test_tables_made_while_subnormal_numbers_are_flushed_are_those_of_ever():
    done = new_process.run("-c", FLUSHED)
    assert done.returncode == 0, done.stderr
