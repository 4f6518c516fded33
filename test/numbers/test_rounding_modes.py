"""Rounding modes in use: literal tables at the limits, ``with_rounding``, the ``rounding`` block,
and bugs of other tools.

The bugs were seen in pychop 0.6.2, qtorch 0.3.0, mptorch, CPFloat (without PCG) and torch 2.13;
each test is named after one."""

import re
import threading
from pathlib import Path

import numpy as np
import oracle_stochastic
import pytest
import torch
from conftest import codes_of, to_codes
from oracle import MODES, binary, posit
from spec_formats import format_of

import torch_dtypes
from torch_dtypes import _C

ROOT = Path(__file__).resolve().parents[2]
every_mode = pytest.mark.parametrize("mode", MODES)
NUMBERED = {
    1: "nearest_even",
    2: "up",
    3: "down",
    4: "toward_zero",
    5: "stochastic",
    6: "stochastic_equal",
    7: "nearest_zero",
    8: "nearest_away",
    9: "to_odd",
}
MINSUB, MINPOS = 2.0**-9, 2.0**-24
INF, NAN = float("inf"), float("nan")


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def cast(dtype, mode, *values):
    with torch_dtypes.rounding(mode):
        return f64(*values).to(dtype).tolist()


# ---- literal tables: one column for each mode, in the order of MODES ----

#                 nearest_even nearest_zero nearest_away up down toward_zero to_odd nearest_up
Q43 = [
    (0.0, "00 00 00 00 00 00 00 00"),
    (-0.0, "80 80 80 80 80 80 80 80"),
    (MINSUB, "01 01 01 01 01 01 01 01"),
    (MINSUB / 2, "00 00 01 01 00 00 01 01"),
    (-MINSUB / 2, "80 80 81 80 81 80 81 80"),
    (MINSUB * 0.51, "01 01 01 01 00 00 01 01"),
    (2.0**-200, "00 00 00 01 00 00 01 00"),
    (-(2.0**-200), "80 80 80 80 81 80 81 80"),
    (5e-324, "00 00 00 01 00 00 01 00"),
    (MINSUB * 1.5, "02 01 02 02 01 01 01 02"),
    (-MINSUB * 1.5, "82 81 82 81 82 81 81 81"),
    (MINSUB * 2.5, "02 02 03 03 02 02 03 03"),
    (MINSUB * 7.5, "08 07 08 08 07 07 07 08"),
    (MINSUB * 8, "08 08 08 08 08 08 08 08"),
    (1.0625, "38 38 39 39 38 38 39 39"),
    (-1.0625, "b8 b8 b9 b8 b9 b8 b9 b8"),
    (1.1875, "3a 39 3a 3a 39 39 39 3a"),
    (1.9375, "40 3f 40 40 3f 3f 3f 40"),
    (240.0, "77 77 77 77 77 77 77 77"),
    (240.5, "77 77 77 78 77 77 77 77"),
    (247.99, "77 77 77 78 77 77 77 77"),
    (248.0, "78 77 78 78 77 77 77 78"),
    (-248.0, "f8 f7 f8 f7 f8 f7 f7 f7"),
    (248.01, "78 78 78 78 77 77 77 78"),
    (256.0, "78 78 78 78 77 77 77 78"),
    (1e300, "78 78 78 78 77 77 77 78"),
    (-1e300, "f8 f8 f8 f7 f8 f7 f7 f8"),
    (INF, "78 78 78 78 78 78 78 78"),
    (-INF, "f8 f8 f8 f8 f8 f8 f8 f8"),
    (NAN, "7c 7c 7c 7c 7c 7c 7c 7c"),
]
POSIT8ES2 = [
    (0.0, "00 00 00 00 00 00 00 00"),
    (-0.0, "00 00 00 00 00 00 00 00"),
    (MINPOS / 2, "01 01 01 01 01 01 01 01"),
    (-(2.0**-1000), "ff ff ff ff ff ff ff ff"),
    (MINPOS, "01 01 01 01 01 01 01 01"),
    (2.0**-23, "01 01 01 02 01 01 01 01"),
    (2.0**-22, "02 01 02 02 01 01 01 02"),
    (-(2.0**-22), "fe ff fe ff fe ff ff ff"),
    (2.0**-21, "02 02 02 02 01 01 01 02"),
    (2.0**-20, "02 02 02 02 02 02 02 02"),
    (1.0625, "40 40 41 41 40 40 41 41"),
    (-1.0625, "c0 c0 bf c0 bf c0 bf c0"),
    (2.0**20 * 1.5, "7e 7e 7e 7f 7e 7e 7f 7e"),
    (2.0**22, "7e 7e 7f 7f 7e 7e 7f 7f"),
    (-(2.0**22), "82 82 81 82 81 82 81 82"),
    (2.0**23, "7f 7f 7f 7f 7e 7e 7f 7f"),
    (2.0**24, "7f 7f 7f 7f 7f 7f 7f 7f"),
    (1e300, "7f 7f 7f 7f 7f 7f 7f 7f"),
    (-1e300, "81 81 81 81 81 81 81 81"),
    (INF, "80 80 80 80 80 80 80 80"),
    (-INF, "80 80 80 80 80 80 80 80"),
    (NAN, "80 80 80 80 80 80 80 80"),
]
POSIT8ES2_UNDERFLOW = [
    (MINPOS / 2, "00 00 01 01 00 00 01 01"),
    (-MINPOS / 2, "00 00 ff 00 ff 00 ff 00"),
    (MINPOS * 0.75, "01 01 01 01 00 00 01 01"),
    (-MINPOS * 0.25, "00 00 00 00 ff 00 ff 00"),
    (2.0**-1000, "00 00 00 01 00 00 01 00"),
    (MINPOS, "01 01 01 01 01 01 01 01"),
    (2.0**-22, "02 01 02 02 01 01 01 02"),
    (1e300, "7f 7f 7f 7f 7f 7f 7f 7f"),
    (NAN, "80 80 80 80 80 80 80 80"),
]
TABLES = {
    "q43": (binary(4, 3), Q43),
    "posit8es2": (posit(8, 2), POSIT8ES2),
    "posit8es2_underflow": (posit(8, 2, underflow="zero"), POSIT8ES2_UNDERFLOW),
}


@every_mode
@pytest.mark.parametrize("name", TABLES)
def test_edges_are_as_written(name, mode):
    spec, rows = TABLES[name]
    x = f64(*(v for v, _ in rows))
    expected = [text.split()[MODES.index(mode)] for _, text in rows]
    assert [f"{spec.encode(v, mode):02x}" for v in x.tolist()] == expected  # the oracle agrees
    assert [f"{c:02x}" for c in _C.encode_exact(format_of(spec, mode), x).tolist()] == expected
    with torch_dtypes.rounding(mode):
        assert [f"{c:02x}" for c in to_codes(x, torch_dtypes.dtype(name)).tolist()] == expected


# ---- modes by name and number ----


def test_the_modes_are_listed():
    """The oracle with its random modes, the bindings and the docs list the same modes."""
    assert (
        torch_dtypes.ROUNDING_MODES
        == (*MODES, *oracle_stochastic.MODES)
        == tuple(_C.Rounding.__members__)
    )
    assert tuple(name for name, _, draws in _C.ROUNDING_MODES if draws) == oracle_stochastic.MODES
    assert {number: name for name, number, _ in _C.ROUNDING_MODES if number} == NUMBERED
    table = re.findall(
        r"^\| `(\w+)` \| (\d?) ?\| ", (ROOT / "docs" / "numerics.md").read_text(), re.MULTILINE
    )
    assert dict(table) == {name: str(number or "") for name, number, _ in _C.ROUNDING_MODES}


def test_what_kind_of_mode_it_is():
    modes = _C.Rounding.__members__.items()
    lifting = {"up", "down", "to_odd", "stochastic_equal"}
    assert {name for name, mode in modes if mode.lifts_traces} == lifting
    assert {name for name, mode in modes if mode.sees_inexact} == {*lifting, "toward_zero"}
    assert {name for name, mode in modes if mode.draws} == set(oracle_stochastic.MODES)


def test_with_rounding_changes_the_mode_alone():
    up = torch_dtypes.with_rounding(torch.posit16es2, "up")
    assert str(up) == "torch.posit16es2_up" and up is torch.posit16es2_up is torch_dtypes.dtype(
        "posit16es2_up"
    )
    assert (
        up
        is torch_dtypes.posit_format(16, 2, rounding="up")
        is torch_dtypes.with_rounding("posit16es2", 2)
    )
    assert (
        torch_dtypes.with_rounding(up, "nearest_even")
        is torch.posit16es2
        is torch_dtypes.with_rounding("posit16es2_up", 1)
    )
    assert torch_dtypes.with_rounding(torch.posit16es2, "nearest_even") is torch.posit16es2
    assert torch_dtypes.format_of(up).rounding == _C.Rounding.up
    assert torch_dtypes.format_of(torch.posit16es2).rounding == _C.Rounding.nearest_even
    assert codes_of(f64(1 + 2.0**-30, -1 - 2.0**-30).to(up)).tolist() == [0x4001, 0xC000]
    assert (
        torch.finfo(up).eps == torch.finfo(torch.posit16es2).eps
        and torch.finfo(up).max == torch.finfo(torch.posit16es2).max
    )


@pytest.mark.parametrize("mode", ["sideways", "", "Nearest_even", 0, 10, -1])
def test_unknown_modes_are_refused_and_the_known_ones_named(mode):
    calls = (
        lambda: torch_dtypes.with_rounding(torch.q43, mode),
        lambda: torch_dtypes.rounding(mode).__enter__(),
    )
    for call in calls:
        with pytest.raises(
            ValueError, match=r"nearest_even.*toward_zero.*to_odd.*stochastic.*up_down"
        ):
            call()
    if isinstance(mode, str):
        with pytest.raises(
            ValueError, match=r"nearest_even.*toward_zero.*to_odd.*stochastic.*up_down"
        ):
            torch_dtypes.float_format(4, 3, rounding=mode)
    assert torch.tensor(1.0625).to(torch.q43).item() == 1.0  # no block is left open


def test_with_rounding_takes_formats_alone():
    with pytest.raises(TypeError, match="expected a dtype of a number format"):
        torch_dtypes.with_rounding(torch.float32, "up")


# ---- the block ----


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 8, 9])
def test_numbers_are_pychop_s(number):
    x = f64(1.0625, -1.0625, 1.07, -1.05, 1.1875)
    with torch_dtypes.rounding(number):
        by_number = to_codes(x, torch.q43)
    with torch_dtypes.rounding(NUMBERED[number]):
        assert torch.equal(to_codes(x, torch.q43), by_number)


def test_blocks_nest_and_end():
    x = f64(1.01, -1.01)
    nearest, up, down = [1.0, -1.0], [1.125, -1.0], [1.0, -1.125]
    assert x.to(torch.q43).tolist() == nearest
    with torch_dtypes.rounding("up"):
        assert x.to(torch.q43).tolist() == up
        with torch_dtypes.rounding("down"):
            assert x.to(torch.q43).tolist() == down
            with torch_dtypes.rounding("nearest_even"):
                assert x.to(torch.q43).tolist() == nearest
            assert x.to(torch.q43).tolist() == down
        assert x.to(torch.q43).tolist() == up
        with pytest.raises(KeyError), torch_dtypes.rounding("toward_zero"):
            raise KeyError
        assert x.to(torch.q43).tolist() == up
        with pytest.raises(ValueError, match="sideways"), torch_dtypes.rounding("sideways"):
            pass
        assert x.to(torch.q43).tolist() == up
    assert x.to(torch.q43).tolist() == nearest


def test_block_goes_before_the_dtype_s_own_mode():
    up = torch_dtypes.with_rounding(torch.posit16es2, "up")
    x = f64(1 + 2.0**-30)
    assert x.to(up).item() > 1
    for mode in ("nearest_even", "down"):
        with torch_dtypes.rounding(mode):
            assert x.to(up).item() == 1


@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_block_is_this_thread_s_alone():
    x, seen = f64(1.01), []
    inside, done = threading.Event(), threading.Event()

    def other():
        seen.append(x.to(torch.q43).item())
        with torch_dtypes.rounding("up"):
            inside.set()
            done.wait()
            seen.append(x.to(torch.q43).item())
        seen.append(x.to(torch.q43).item())

    with torch_dtypes.rounding("up"):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
    assert x.to(torch.q43).item() == 1.0  # this thread's block ended, the other thread's did not
    done.set()
    thread.join()
    assert seen == [1.0, 1.125, 1.0]


@pytest.mark.parametrize("threads", [1, 2])
def test_block_holds_in_the_threads_of_a_kernel(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.full((1 << 20,), 1.01)
        y = torch.ones(1 << 20).to(torch.q43)
        with torch_dtypes.rounding("up"):
            assert x.to(torch.q43).float().unique().tolist() == [1.125]
            assert (y + y * 0.01).float().unique().tolist() == [1.125]
            assert (y / 7).float().unique().tolist() == [0.15625]
    finally:
        torch.set_num_threads(before)


def test_block_holds_for_everything_that_rounds():
    one = torch.ones(3).to(torch.q43)
    with torch_dtypes.rounding("up"):
        made = [
            torch.tensor([1.01], dtype=torch.q43),
            torch.full((2,), 1.01, dtype=torch.q43),
            one + 0.01,
            one.clone().add_(0.01),
            one.clone().fill_(1.01),
            one.clone().mul_(1.01),
            one.clone().copy_(torch.full((3,), 1.01)),
            torch.lerp(one, one * 2, 0.01),
            torch.full((3,), 1.01).to(torch.posit8es2).to(torch.q43),
        ]
    assert all(v == 1.125 for t in made for v in t.tolist()), made
    assert (one + 0.01).tolist() == [1.0] * 3


@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_block_leaves_stock_dtypes_alone():
    x = torch.tensor([1.0, 3.0], dtype=torch.float64).to(torch.posit32es2) / 3
    wide = torch.tensor([1 + 2.0**-30], dtype=torch.float64)
    expected = x.float(), x.to(torch.float16), wide.float(), wide.half(), torch.ones(1) / 3
    with torch_dtypes.rounding("up"):
        found = x.float(), x.to(torch.float16), wide.float(), wide.half(), torch.ones(1) / 3
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_block_decorates_a_function():
    @torch_dtypes.rounding("up")
    def cast_up(x):
        return x.to(torch.q43).item()

    assert [cast_up(f64(1.01)), cast_up(f64(-1.01)), f64(1.01).to(torch.q43).item()] == [
        1.125,
        -1.0,
        1.0,
    ]


@pytest.mark.parametrize(
    ("divisor", "mode", "expected", "nearest"),
    [(7, "up", 0.15625, 0.140625), (3, "down", 0.3125, 0.34375)],
)
def test_backward_rounds_by_the_block_it_runs_in(divisor, mode, expected, nearest):
    x = torch.tensor([1.0], dtype=torch.q43, requires_grad=True)
    y = x / divisor
    with torch_dtypes.rounding(mode):
        y.backward()
        assert x.grad.item() == expected
        x.grad = None
        y = x / divisor
    y.backward()
    assert x.grad.item() == nearest


# ---- bugs of other tools ----


@pytest.mark.parametrize(
    "kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_overflow_is_not_zero_as_in_pychop(kind):
    """Chop(5, 10) returns 0 for 65536 and 70000, and 65536 for 65520. Chop(4, 3, rmode=4) returns 0
    for 300 and inf for 1000."""
    e5m10 = torch_dtypes.dtype("e5m10")
    if kind in (torch.float64, torch.float32):
        x = torch.tensor(
            [65504.0, 65519.0, 65520.0, 65536.0, 70000.0, 131071.0, 131072.0], dtype=kind
        )
        assert x.to(e5m10).tolist() == [65504, 65504, *[INF] * 5]
        with torch_dtypes.rounding("toward_zero"):
            assert x.to(e5m10).tolist() == [65504] * 7
    x = torch.tensor([240.0, 247.0, 248.0, 255.0, 256.0, 300.0, 511.0, 512.0, 1000.0], dtype=kind)
    nearest = [240.0 if v < 248 else INF for v in x.tolist()]
    assert x.to(torch.q43).tolist() == nearest
    for mode in ("toward_zero", "down"):
        with torch_dtypes.rounding(mode):
            assert x.to(torch.q43).tolist() == [240.0] * 9
    with torch_dtypes.rounding("up"):
        assert (-x).to(torch.q43).tolist() == [-240.0] * 9


@pytest.mark.parametrize(
    "dtype", [torch.q43, torch.posit16es2, torch.tf32, torch.posit32es2], ids=str
)
@every_mode
def test_exact_values_do_not_move_as_in_pychop(dtype, mode):
    """rmode 9 turns 1 into 1.0009765625."""
    assert cast(dtype, mode, 1.0, 2.0, -1.0, 0.75, -0.0, 64.0) == [1.0, 2.0, -1.0, 0.75, 0.0, 64.0]


def test_ties_do_not_depend_on_the_sign_as_in_pychop():
    """rmode 7 in e5m2 turns 1.125 into 1 and -1.125 into -1.25. Near ties count as ties."""
    assert cast(torch.q52, "nearest_zero", 1.125, -1.125, 1.375, -1.375) == [1.0, -1.0, 1.25, -1.25]
    assert cast(torch.q52, "nearest_away", 1.125, -1.125, 1.375, -1.375) == [1.25, -1.25, 1.5, -1.5]
    near = 1.125 + 2.0**-40
    assert cast(torch.q52, "nearest_zero", near, -near) == [1.25, -1.25] and cast(
        torch.q52, "nearest_away", 2.25 - near
    ) == [1.0]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
def test_exponents_below_powers_of_two_are_right_not_as_in_pychop(kind):
    """Its log2 assigns numbers just below 4096 to the next binade: 4092 towards zero, where e5m10
    has 4094."""
    e5m10 = torch_dtypes.dtype("e5m10")
    powers = torch.tensor([2.0**e for e in range(-13, 16)], dtype=kind)
    before = torch.nextafter(powers, torch.zeros_like(powers))
    with torch_dtypes.rounding("toward_zero"):
        assert before.to(e5m10).tolist() == (powers * (1 - 2.0**-11)).tolist()
    with torch_dtypes.rounding("stochastic"):
        seen = {
            v
            for _ in range(20)
            for v in (powers * (1 - 2.0**-12)).to(e5m10).div(powers.to(e5m10)).tolist()
        }
    assert seen == {1.0, 1 - 2.0**-11}


def test_random_numbers_are_left_alone_not_as_in_pychop():
    """FaultChop seeds the generator in every call: its results repeat, and so do the program's own
    random numbers."""
    x = torch.full((1000,), 1.01)
    torch.manual_seed(3)
    expected = torch.get_rng_state()
    x.to(torch.q43), x.to(torch.posit16es2) + 0.1
    with torch_dtypes.rounding("down"):
        x.to(torch.q43)
    assert torch.equal(torch.get_rng_state(), expected)  # deterministic modes draw nothing
    with torch_dtypes.rounding("stochastic"):
        assert not torch.equal(codes_of(x.to(torch.q43)), codes_of(x.to(torch.q43)))
        torch.manual_seed(3)
        first = codes_of(x.to(torch.q43))
        assert not torch.equal(torch.get_rng_state(), expected)
        torch.manual_seed(3)
        assert torch.equal(codes_of(x.to(torch.q43)), first)  # qtorch's modes take no seed at all


def test_exponent_bits_count_as_ieee_s_not_as_in_pychop():
    """Customs(exp_bits=5) reaches 2^31."""
    assert torch.finfo(torch_dtypes.float_format(5, 10)).max == 65504


def test_below_the_subnormal_numbers_as_ieee_not_as_in_chop():
    """FaultChop("q43") turns 0.00098, above half the smallest number, into 0. Without subnormal
    numbers 0.0077, below half, becomes 2^-6."""
    assert cast(torch.q43, "nearest_even", 0.00098, 0.00097) == [2.0**-9, 0.0]
    flush = torch_dtypes.dtype("e4m3_flush")
    assert cast(flush, "nearest_even", 0.0077, 2.0**-7, 0.0079) == [0.0, 0.0, 2.0**-6]
    assert cast(flush, "up", 1e-9, -1e-9) == [2.0**-6, 0.0]


def test_specials_and_ties_not_as_in_qtorch():
    """float_quantize(5, 10) turns 65520 into 65536, and inf and NaN into 131008; it loses -0 and
    rounds ties away. e8m23 turns 3 into -3."""
    x = f64(65520, 1e6, INF, NAN, -0.0, 1.00048828125).to(torch_dtypes.dtype("e5m10")).tolist()
    assert x[:3] == [INF] * 3 and x[3] != x[3] and str(x[4]) == "-0.0" and x[5] == 1.0
    assert f64(3.0, -3.0, 1e-45).to(torch_dtypes.dtype("e8m23")).tolist() == [3.0, -3.0, 2.0**-149]


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.9])
def test_probabilities_below_the_subnormal_numbers_not_as_in_cpfloat(part):
    """Below the subnormal numbers, its stochastic rounding takes four times the right
    probability."""
    n = 200_000
    torch.manual_seed(1)
    x = torch.full((n,), part * MINSUB, dtype=torch.float64)
    with torch_dtypes.rounding("stochastic"):
        up = codes_of(x.to(torch.q43)).double().mean().item()
    assert abs(up - part) < 5 * np.sqrt(part * (1 - part) / n)


@every_mode
def test_float64_is_rounded_once_not_as_in_torch(mode):
    """Stock PyTorch rounds to float32 first: 1 + 2^-11 + 2^-40 becomes 1.0 in half."""
    x = (1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40, 1 + 2.0**-40)
    higher = {
        "nearest_even": (1, 0, 0, 0),
        "nearest_zero": (1, 0, 0, 0),
        "nearest_away": (1, 1, 0, 0),
        "up": (1, 1, 1, 1),
        "down": (0, 0, 0, 0),
        "toward_zero": (0, 0, 0, 0),
        "to_odd": (1, 1, 1, 1),
        "nearest_up": (1, 1, 0, 0),
    }[mode]
    for name in ("e5m10", "tf32"):
        assert cast(torch_dtypes.dtype(name), mode, *x) == [1 + h * 2.0**-10 for h in higher]
