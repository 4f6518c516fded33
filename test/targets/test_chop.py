"""chop: the numbers of a cast to the dtype and back, in the input's kind of array; gradients;
flips."""

import importlib.util

import new_process
import numpy as np
import oracle
import pytest
import torch
from conftest import parametrize_dtypes
from oracle import binary, posit

import torch_dtypes
from torch_dtypes import _C, chop

NAMES = (
    "q43",
    "posit16es2",
    "posit8es0",
    "e5m5_toward_zero",
    "e4m3fn_up",
    "fixed4_4",
    "posit32es2",
    "fp64",
    "binary8p3se_to_odd",
    "ufixed3_5_down",
)


def values(dtype):
    torch.manual_seed(0)
    x = torch.randn(3000, dtype=torch.float64) * torch.exp2(
        torch.randint(-20, 20, (3000,)).double()
    )
    special = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-300, 3e38, 448.0, 465.0]
    )
    return torch.cat([x, special.double()]).to(dtype)


@pytest.mark.parametrize("name", NAMES)
@parametrize_dtypes("float32 float64")
def test_is_the_cast_and_back(name, dtype):
    x = values(dtype)
    torch.testing.assert_close(
        chop(x, name), x.to(torch_dtypes.dtype(name)).to(dtype), rtol=0, atol=0, equal_nan=True
    )
    assert torch.equal(chop(x, name).signbit(), x.to(torch_dtypes.dtype(name)).to(dtype).signbit())


@pytest.mark.parametrize(
    "name",
    [
        "fixed4_4",
        "fixed1_6_symmetric",
        "ufixed3_5",
        "fixed7_0",
        "fixed0_8",
        "fixed10_10",
        "fixed20_3",
        "fixed3_3_wrap",
    ],
)
@pytest.mark.parametrize("mode", ["stochastic", "stochastic_equal", "up_down"])
@parametrize_dtypes("float32 float64")
def test_fixed_point_takes_the_random_bits_that_its_cast_takes(name, mode, dtype):
    """chop rounds fixed point on another way, by its codes."""
    x, made = values(dtype), torch_dtypes.dtype(f"{name}_{mode}") if name == "fixed4_4" else None
    if made is None:
        codes = _C.encode_exact(
            torch_dtypes.format_of(f"{name}_{mode}"), x.double(), words(x.numel(), 7)
        )
        expected = _C.decode_exact(torch_dtypes.format_of(name), codes)
        actual = chop(x, name, mode, torch.Generator(x.device).manual_seed(7))
    else:
        torch.manual_seed(7)
        expected = x.to(made).to(dtype)
        torch.manual_seed(7)
        actual = chop(x, f"{name}_{mode}")
    assert torch.equal(actual, expected.to(dtype)) and not (actual.signbit() & (actual == 0)).any()


def words(n, seed):
    """Return the random words of a chop whose generator has this seed."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    made = _C.random_words(_C.next_seed(), 0, n)
    torch.set_rng_state(state)
    return made


def test_matches_the_oracle():
    for spec, name in ((binary(4, 3), "q43"), (posit(8, 2), "posit8es2")):
        table = oracle.table(spec)
        x = table.inputs()
        expected = np.array([float(spec.decode(int(code))) for code in table.encode(x, "down")])
        np.testing.assert_array_equal(chop(x, name, rounding="down"), expected)


def test_float64_is_not_rounded_twice():
    assert chop(1 + 2.0**-11 + 2.0**-40, "fp16") == 1 + 2.0**-10
    assert chop(np.array([1 + 2.0**-11 + 2.0**-40]), "fp16").dtype == np.float64


def test_mode_of_the_argument_the_block_and_the_dtype():
    with torch_dtypes.rounding("up"):
        assert chop(1.3, "q43_toward_zero") == 1.375
        assert chop(1.3, "q43_toward_zero", rounding="down") == 1.25
    assert chop(1.3, "q43_up") == 1.375
    assert chop(300.0, "q43", rounding=4) == 240.0
    fmt = torch_dtypes.format_of("q43")
    fmt.rounding = _C.Rounding.up
    assert chop(1.3, fmt) == 1.375
    assert fmt.rounding == _C.Rounding.up


def test_names_take_none_of_the_dtypes():
    before = _C.format_count()
    for bits in range(3, 30):
        chop(1.0, f"posit{bits}es3")
        torch_dtypes.format_of(f"posit{bits}es3")
    assert _C.format_count() == before


@parametrize_dtypes("float16 bfloat16")
def test_half_types(dtype):
    x = values(dtype)
    torch.testing.assert_close(
        chop(x, "q43"), chop(x.float(), "q43").to(dtype), rtol=0, atol=0, equal_nan=True
    )


def test_strides_sizes_and_views():
    x = torch.randn(4, 6, dtype=torch.float64)
    for view in (
        x.t(),
        x[:, ::2],
        x[1],
        x.expand(2, 4, 6),
        x[:0],
        torch.tensor(1.3, dtype=torch.float64),
    ):
        assert torch.equal(chop(view, "q43"), chop(view.contiguous(), "q43"))
    assert chop(x.to(memory_format=torch.contiguous_format), "q43").data_ptr() != x.data_ptr()


# ---- gradients ----


def test_straight_through():
    x = torch.tensor([1.3, 1e6, -1e-9, float("nan")], requires_grad=True)
    chop(x, "q43", rounding="stochastic").backward(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert x.grad.tolist() == [1, 2, 3, 4]
    y = torch.randn(3, dtype=torch.float16, requires_grad=True)
    (chop(y, "q52") * 2).sum().backward()
    assert y.grad.tolist() == [2, 2, 2]
    assert not chop(x.detach(), "q43").requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.func.jvp has its own
def test_function_transforms():
    x = torch.randn(4, 3)
    assert torch.equal(torch.func.vmap(lambda t: chop(t, "q43"))(x), chop(x, "q43"))
    assert torch.equal(
        torch.func.grad(lambda t: (chop(t, "q43") ** 2).sum())(x), 2 * chop(x, "q43")
    )
    out, tangent = torch.func.jvp(lambda t: chop(t, "q43"), (x,), (torch.ones_like(x),))
    assert torch.equal(out, chop(x, "q43")) and torch.equal(tangent, torch.ones_like(x))
    assert torch.autograd.gradcheck(
        lambda t: chop(t, "e11m51"), torch.randn(3, dtype=torch.float64, requires_grad=True)
    )


# ---- stochastic modes and flips ----


def test_generators_and_seeds():
    x = torch.randn(1000)
    generator = torch.Generator().manual_seed(7)
    a = chop(x, "q43", "stochastic", generator)
    state = torch.get_rng_state()
    b = chop(x, "q43", "stochastic", torch.Generator().manual_seed(7))
    assert torch.equal(a, b) and torch.equal(state, torch.get_rng_state())
    assert not torch.equal(a, chop(x, "q43", "stochastic", generator))
    torch.manual_seed(3)
    c = chop(x, "q43", 5)
    torch.manual_seed(3)
    assert torch.equal(c, chop(x, "q43", 5))


def test_threads_do_not_matter():
    x, results = torch.randn(100_000), []
    threads = torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            results.append(
                chop(x, "posit16es2", "stochastic", torch.Generator().manual_seed(1), flip_prob=0.1)
            )
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("x", "name", "flipped"),
    [
        (1.0, "q43", {1.125, 1.25, 1.5}),
        (-1.0, "q43", {-1.125, -1.25, -1.5}),
        (0.0, "q52", {2.0**-16, 2.0**-15}),
        (float("inf"), "q43", set()),
        (float("nan"), "binary8p3se", set()),
        (1.0, "posit8es0", {1 + 2.0**-k for k in range(1, 6)}),
        (64.0, "posit8es0", set()),  # maxpos has no fraction bits
        (-1.5, "posit8es0", {-1.0, *(-1.5 - 2.0**-k for k in range(2, 6))}),
        (1.0, "fixed2_2", {0.0, 1.25, 1.5, 3.0}),
    ],
)
def test_flips_one_significand_bit(x, name, flipped):
    n, probability = 40_000, 0.25
    y = chop(
        torch.full((n,), x), name, generator=torch.Generator().manual_seed(0), flip_prob=probability
    )
    moved = [v for v in y.tolist() if v != x and v == v]
    assert set(moved) == flipped
    if flipped:
        assert abs(len(moved) / n - probability) < 5 * (probability * (1 - probability) / n) ** 0.5
        counts = np.array([moved.count(v) for v in flipped])
        assert (
            abs(counts - len(moved) / len(flipped)) < 5 * (len(moved) / len(flipped)) ** 0.5
        ).all()


def test_flip_probabilities_at_the_ends():
    x = torch.ones(1000)
    assert torch.equal(chop(x, "q43", flip_prob=0), x)
    assert (chop(x, "q43", flip_prob=1) != x).all()


# ---- NumPy, JAX, numbers ----


def test_numpy():
    x = np.linspace(-3, 3, 24).reshape(2, 3, 4)
    expected = chop(torch.from_numpy(x), "q43").numpy()
    for array in (x, np.asfortranarray(x), x.astype(">f8")):
        result = chop(array, "q43")
        assert type(result) is np.ndarray and result.shape == x.shape
        np.testing.assert_array_equal(result, expected)
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(chop(frozen, "q43"), expected)
    np.testing.assert_array_equal(chop(x[::-1, :, ::2], "q43"), expected[::-1, :, ::2])
    assert chop(x.astype(np.float16), "q52").dtype == np.float16
    assert (
        isinstance(chop(np.float32(1.3), "q43"), np.float32)
        and chop(np.array(1.3), "q43").shape == ()
    )
    masked = chop(np.ma.masked_array([1.03, 2.0], mask=[False, True], fill_value=7), "q43")
    assert masked.filled().tolist() == [1, 7] and masked.mask.tolist() == [False, True]


def test_what_targets_take():
    x = torch.tensor([1.3, 3.14159, 1e-3])
    for stock in (torch.bfloat16, torch.float16):
        expected = x.to(stock).float()
        assert all(
            torch.equal(chop(x, D), expected)
            for D in (
                stock,
                str(stock),
                str(stock).removeprefix("torch."),
                torch_dtypes.target(stock),
            )
        )
    assert torch.equal(chop(x, "posit<12,1>"), chop(x, "posit12es1"))


def test_numbers():
    assert chop(1.3, "q43") == 1.25 and isinstance(chop(3, "q43"), float)


JAX = """
import _thread, contextlib, threading
import jax, numpy as np, torch, torch_dtypes
from torch_dtypes import chop

x = jax.numpy.linspace(-3, 3, 12).reshape(3, 4)
expected = chop(np.asarray(x), "q43")
result = chop(x, "q43")
assert isinstance(result, jax.Array) and result.dtype == x.dtype
np.testing.assert_array_equal(np.asarray(result), expected)
np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: chop(a, "q43"))(x)), expected)
np.testing.assert_array_equal(np.asarray(jax.vmap(lambda a: chop(a, "q43"))(x)), expected)
np.testing.assert_array_equal(
    np.asarray(jax.grad(lambda a: (chop(a, "q43") * 3).sum())(x)), np.full((3, 4), 3)
)

jitted, given, blocks = (
    jax.jit(f)
    for f in (
        lambda a: chop(a, "q43"),
        lambda a: chop(a, "q43", rounding="down"),
        lambda a: chop(a, "mxfp8_e4m3"),
    )
)
for mode in ("up", "toward_zero", None, "down"):  # traced in the first block
    with torch_dtypes.rounding(mode) if mode else contextlib.nullcontext():
        np.testing.assert_array_equal(
            np.asarray(jitted(x)), chop(np.asarray(x), "q43", rounding=mode)
        )
        np.testing.assert_array_equal(
            np.asarray(given(x)), chop(np.asarray(x), "q43", rounding="down")
        )
        np.testing.assert_array_equal(
            np.asarray(blocks(x)), chop(np.asarray(x), "mxfp8_e4m3", rounding=mode)
        )


def elsewhere(call, shape, values, vmap_method):
    done, raised = threading.Event(), []

    def run():
        try:
            call(np.ones(shape.shape, shape.dtype))
        except RuntimeError as error:
            raised.append(str(error))
        done.set()

    _thread.start_new_thread(run, ())
    done.wait()
    errors.append(raised)
    return values


errors, jax.pure_callback = [], elsewhere
with torch_dtypes.rounding("up"):
    jax.jit(lambda a: chop(a, "q43"))(x)
    jax.jit(lambda a: chop(a, "q43", rounding="up"))(x)
jax.jit(lambda a: chop(a, "q43"))(x)
assert ["rounding() block" in str(raised) for raised in errors] == [True, False, False], errors
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
def test_jax():
    """Run in another process, because JAX's threads would make later forks of this one
    dangerous."""
    new_process.run("-c", JAX, check=True)


def test_neither_numpy_nor_jax_is_imported_for_a_tensor():
    code = (
        "import torch, sys, torch_dtypes; torch_dtypes.chop(torch.ones(1), 'q43'); assert 'jax' "
        "not in sys.modules"
    )
    new_process.run("-c", code, check=True)


# ---- errors ----


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: chop("1", "q43"),
            TypeError,
            "a torch tensor, a NumPy or JAX array, a list, a pandas column or a number",
        ),
        (lambda: chop(True, "q43"), TypeError, "bool"),
        (lambda: chop(torch.ones(2, dtype=torch.bool), "q43"), TypeError, "torch.bool"),
        (
            lambda: chop(torch.tensor([0, 2**53 + 1]), "q43"),
            ValueError,
            "integers of at most 2.*53 .*, but got 9007199254740993",
        ),
        (
            lambda: chop(np.array([2**63], dtype=np.uint64), "q43"),
            ValueError,
            "but got 9223372036854775808",
        ),
        (lambda: chop([1, -(2**60)], "q43"), ValueError, "but got -1152921504606846976"),
        (lambda: chop([[1], [1, 2]], "q43"), TypeError, "expected a list of numbers"),
        (lambda: chop(["a"], "q43"), TypeError, "expected a list of numbers"),
        (lambda: chop([True], "q43"), TypeError, "torch.bool"),
        (lambda: chop(torch.ones(2, dtype=torch.q43), "q43"), TypeError, "torch.q43"),
        (lambda: chop(np.ones(2, dtype=bool), "q43"), TypeError, "bool"),
        (lambda: chop(1.0, torch.int8), TypeError, "or a stock floating one, but got torch.int8"),
        (lambda: chop(1.0, None), TypeError, "None"),
        (lambda: chop(1.0, "q99"), ValueError, "'q99'"),
        (lambda: chop(1.0, "q43", "nearest"), ValueError, "'nearest_even'.*but got 'nearest'"),
        (lambda: chop(1.0, "q43", 10), ValueError, "from 1 to 9"),
        (lambda: chop(1.0, "q43", flip_prob=1.5), ValueError, "from 0 to 1"),
        (lambda: chop(1.0, "q43", flip_prob=float("nan")), ValueError, "nan"),
        (lambda: chop(1.0, "q43", generator=3), TypeError, "torch.Generator"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("number", ["q43", "posit8es1", "mxfp4"])
def test_integers_lists_and_pandas_columns_are_taken_as_float64(number):
    pandas = pytest.importorskip("pandas")
    whole, broken = [1, 19, -300, 0, 7], [0.1, 19.0, -300.5, 3e-9, 7.7]
    expected = chop(torch.tensor(whole, dtype=torch.float64), number)
    for dtype in (torch.int64, torch.int32, torch.int16):
        made = chop(torch.tensor(whole, dtype=dtype), number)
        assert made.dtype is torch.float64 and torch.equal(made, expected)
    made = chop(np.array(whole, dtype=">i4"), number)
    assert made.dtype == np.float64 and made.tolist() == expected.tolist() == chop(whole, number)
    assert chop(broken, number) == chop(np.array(broken), number).tolist()
    for dtype, values in (
        ("int64", whole),
        ("Int64", whole),
        ("float32", whole),
        ("float64", broken),
    ):
        column = pandas.Series(values, index=list("abcde"), name="x", dtype=dtype)
        made = chop(column, number)
        assert made.dtype == np.float64 and made.name == "x" and made.index.equals(column.index)
        assert made.tolist() == chop(values, number)
    for column in (pandas.Series(["a"]), pandas.Series([True]), pandas.Series([2**53 + 1])):
        with pytest.raises((TypeError, ValueError), match="expected"):
            chop(column, number)
    assert np.isnan(chop(pandas.Series([None, 1], dtype="Int64"), "e4m3fn").iloc[0])
