"""Stochastic rounding: the random words, bits for given words against exact rationals, seeds and
threads, and statistics."""

import math
import pickle
import sys

import numpy as np
import oracle
import oracle_fixed
import pytest
import torch
from conftest import codes_of, from_codes, to_codes
from exact_codecs import codec, float32_inputs, tensor  # noqa: F401 (a fixture)
from oracle import binary, posit
from oracle_stochastic import MODES, as_signed, encode, encode_array, philox, random_words
from representatives import thin_out
from spec_formats import (
    FIXED_8,
    FIXED_WIDE,
    MIDDLE,
    SHORT,
    SMALL,
    TAPERED,
    WIDE,
    assert_codes,
    by_name,
    differences,
    dtype_of,
    format_of,
    name_of,
    take_few,
)
from vector_units import run_for_capability

import torch_dtypes
from torch_dtypes import _C

pytestmark = [pytest.mark.one_worker, pytest.mark.usefixtures("one_thread")]
every_mode = pytest.mark.parametrize("mode", MODES)
ENDS = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2, 2**32, 2**62], dtype=np.uint64)


def words_for(n, seed=7):
    """Return seeded words, with the extremes among them."""
    words = np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)
    words[:: 5 * len(ENDS) + 1] = ENDS[np.arange(len(words[:: 5 * len(ENDS) + 1])) % len(ENDS)]
    return words


def run_seeded(seed, call):
    """Return the result of a call after torch.manual_seed, and the seed that its first cast
    draws."""
    torch.manual_seed(seed)
    drawn = _C.next_seed()
    torch.manual_seed(seed)
    return call(), int(drawn) % 2**64


def in_mode(mode, call):
    with torch_dtypes.rounding(mode):
        return call()


# ---- the words ----


def test_philox_gives_the_published_answer():
    """Compare with Random123's known answers for ten rounds: all zeros, and all ones."""
    assert [f"{int(x):08x}" for x in philox((0, 0, 0, 0), (0, 0), 10)] == [
        "6627e8d5",
        "e169c58d",
        "bc57ac4c",
        "9b00dbd8",
    ]
    ones = 0xFFFFFFFF
    assert [f"{int(x):08x}" for x in philox((ones,) * 4, (ones, ones), 10)] == [
        "408f276d",
        "41c83b0e",
        "a20bc7c6",
        "6d5451fd",
    ]


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF])
def test_words_are_philox_s(seed):
    for first, n in ((0, 1000), (63, 130), (2**38 - 64, 128), (2**40 + 5, 3), (17, 0)):
        found = _C.random_words(seed, first, n)
        assert (
            found.dtype == torch.int64
            and found.tolist() == as_signed(random_words(seed, first, n)).tolist()
        )


def test_words_are_uniform():
    """Each bit is a fair coin, and neighbours are independent."""
    n = 1 << 16
    words = _C.random_words(99, 0, n).numpy().view(np.uint64)
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).astype(float)
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / math.sqrt(n)
    for lag in (1, 16, 64):
        assert np.abs(
            ((bits[lag:] - 0.5) * (bits[:-lag] - 0.5)).mean(0)
        ).max() < 5 * 0.25 / math.sqrt(n)
    assert len(np.unique(words)) == n


# ---- bits for given words: the generic codec ----


@every_mode
@by_name(SMALL)
def test_encode_with_given_words(spec, mode):
    t = oracle.table(spec)
    x = np.concatenate([take_few(t.all_inputs(), 700), random_inputs(t, 300)])
    words = words_for(len(x))
    found = _C.encode_exact(format_of(spec, mode), tensor(x), random=tensor(as_signed(words)))
    assert_codes(found, encode_array(t, x, mode, words), spec, x)


@every_mode
@by_name([*MIDDLE, *WIDE, *TAPERED, *SHORT[:2]])
def test_encode_with_given_words_wide(codec, spec, mode):  # noqa: F811
    x = wide_inputs(spec, 150)
    words = words_for(len(x))
    found = codec.encode(format_of(spec, mode), tensor(x), tensor(as_signed(words)))
    assert_codes(
        found,
        [encode(spec, float(v), mode, int(w)) for v, w in zip(x, words, strict=True)],
        spec,
        x,
    )


@every_mode
@by_name([*FIXED_8, *FIXED_WIDE])
def test_encode_fixed_with_given_words(spec, mode):
    x = fixed_inputs(spec)
    words = words_for(len(x))
    found = _C.encode_exact(format_of(spec, mode), tensor(x), random=tensor(as_signed(words)))
    assert_codes(
        found, [spec.encode(float(v), mode, int(w)) for v, w in zip(x, words, strict=True)], spec, x
    )


def fixed_inputs(spec):
    x = oracle_fixed.inputs(spec, 100)
    near = (
        np.random.default_rng(3).uniform(-1.2, 1.2, 200) * (spec.highest + 1) / 2.0**spec.frac_bits
    )
    return np.concatenate(
        [np.random.default_rng(4).choice(x, min(len(x), 800), replace=False), near]
    )


@pytest.mark.parametrize(
    "spec",
    [posit(8, 2), posit(8, 2, underflow="zero"), binary(4, 3), binary(4, 3, overflow="saturate")],
    ids=name_of,
)
def test_the_word_at_which_a_value_goes_up_is_exact(spec):
    """The word 2^64 - floor(p 2^64) rounds up, and one less does not. The p here (1/3, 1/15 and
    others) are no binary fractions."""
    t = oracle.table(spec)
    at = np.arange(1, len(t.values) - 1)
    x = np.concatenate(
        [
            t.values[at] + (t.values[at + 1] - t.values[at]) * part
            for part in (1 / 3, 0.1, 2.0**-20, 1 - 2.0**-20)
        ]
    )
    up = np.tile(t.codes[at + 1], 4)
    low = np.tile(t.codes[at], 4)
    edge = []
    for v, k in zip(x.tolist(), low.tolist(), strict=True):
        lower, upper = spec.magnitude(k), spec.magnitude(spec.successor(k))
        edge.append(2**64 - (oracle.Fraction(v) - lower) * 2**64 // (upper - lower))
    words = np.array([w % 2**64 for w in edge], dtype=np.uint64)
    fmt = format_of(spec, "stochastic")
    inside = np.array(edge) < 2**64
    assert_codes(
        _C.encode_exact(fmt, tensor(x[inside]), random=tensor(as_signed(words[inside]))),
        up[inside],
        spec,
        x[inside],
    )
    before = words - np.uint64(1)
    assert_codes(_C.encode_exact(fmt, tensor(x), random=tensor(as_signed(before))), low, spec, x)


def random_inputs(t, count, seed=3):
    """Return numbers between the values, log-uniform between neighbours that are far apart, and
    between the largest value and its successor."""
    rng = np.random.default_rng(seed)
    at = rng.integers(0, len(t.values) - 1, count)
    low, high = t.values[at], t.values[at + 1]
    x = low + (high - low) * rng.random(count) ** 3
    beyond = t.values[-1] + (t.values[-1] - t.values[-2]) * rng.uniform(0, 1.5, count // 10)
    x = np.concatenate([x, beyond])
    return x * rng.choice([-1, 1], len(x))


def wide_inputs(spec, count, seed=5):
    """Return values of codes, each moved a part of the way to the next."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(oracle.wide_codes(spec, count), count)
    x = []
    for k in [*codes.tolist(), 0, spec.largest, spec.largest - 1]:
        low = float(spec.magnitude(k))
        high = float(spec.magnitude(spec.successor(k))) if k < spec.largest else low * 1.5
        x += [
            low,
            low + (high - low) * rng.random(),
            low + (high - low) * 2.0 ** -rng.integers(1, 40),
            np.nextafter(high, 0),
        ]
    x = np.array([*x, np.inf, np.nan, 5e-324, 1e300])
    return x * rng.choice([-1, 1], len(x))


# ---- tensors ----

CASTS = {
    "q43": binary(4, 3),
    "q52": binary(5, 2),
    "posit8es0": posit(8, 0),
    "posit8es2": posit(8, 2),
    "posit16es2": posit(16, 2),
    "e5m7": binary(5, 7),
    "tf32": binary(8, 10),
    "e8m4": binary(8, 4),
    "posit32es2": posit(32, 2),
}


def cast_inputs(spec):
    """Return at most 600 numbers, of which some overflow."""
    x = wide_inputs(spec, 120) if spec.bits > 20 else oracle.table(spec).inputs()
    x = np.random.default_rng(2).choice(x, min(len(x), 200))
    between = [] if spec.bits > 20 else random_inputs(oracle.table(spec), 300)
    top = float(spec.magnitude(spec.largest))
    beyond = np.array(
        [top * part for part in (1.2, 1.5, 2, 3, 10, 1000) if top * part < 1e308] + [np.inf] * 4
    )
    return np.concatenate([x, between, beyond, -beyond, beyond])


def expected_codes(spec, x, mode, words):
    if spec.bits <= 20:
        return encode_array(oracle.table(spec), x, mode, words)
    return np.array([encode(spec, float(v), mode, int(w)) for v, w in zip(x, words, strict=True)])


@every_mode
@pytest.mark.parametrize("name", CASTS)
def test_casts_take_the_words_of_the_seed(name, mode):
    """Element i takes word i of the one seed that a cast draws, also from float32."""
    spec, dtype = CASTS[name], getattr(torch, name)
    x64 = cast_inputs(spec)
    with np.errstate(all="ignore"):
        x32 = np.append(
            np.random.default_rng(1).choice(float32_inputs(x64), 300), x64.astype(np.float32)
        )
    for x in (x64, x32):
        found, seed = run_seeded(11, lambda x=x: in_mode(mode, lambda: to_codes(tensor(x), dtype)))
        assert_codes(
            found,
            expected_codes(spec, x.astype(np.float64), mode, random_words(seed, 0, len(x))),
            spec,
            x,
        )


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Pickled (spec, float64 inputs, float32 inputs, seed, {mode: (codes, codes)})."""
    folder = tmp_path_factory.mktemp("vectors")
    for i, spec in enumerate([*SMALL[::2], *MIDDLE, *WIDE[:4]]):
        x64 = cast_inputs(spec)
        with np.errstate(all="ignore"):
            x32 = np.append(
                np.random.default_rng(i).choice(float32_inputs(x64), 300), x64.astype(np.float32)
            )
        _, seed = run_seeded(i, lambda: None)
        words = random_words(seed, 0, len(x32))
        codes = {
            m: [expected_codes(spec, x.astype(np.float64), m, words[: len(x)]) for x in (x64, x32)]
            for m in MODES
        }
        (folder / f"{i:03d}.pickle").write_bytes(pickle.dumps((spec, x64, x32, i, codes)))
    return sorted(folder.iterdir())


def wrong_casts(path):
    """List the casts that differ from one file of vectors."""
    with open(path, "rb") as file:
        spec, x64, x32, seed, codes = pickle.load(file)
    dtype = dtype_of(spec)
    for mode in MODES:
        for x, expected in zip((x64, x32), codes[mode], strict=True):
            torch.manual_seed(seed)
            found = in_mode(mode, lambda x=x: to_codes(tensor(x), dtype)).numpy()
            if wrong := differences(found, expected, spec, x):
                yield f"{x.dtype} {mode} {wrong}"


@pytest.mark.whole
@pytest.mark.parametrize("capability", thin_out(["default", "avx2", "avx512"]))
def test_vectorised_casts_agree(vectors, capability):
    run_for_capability(__file__, capability, [vectors])


@pytest.mark.parametrize("name", ["q43", "posit16es2"])
def test_dtypes_with_a_stochastic_mode_of_their_own(name):
    x = torch.linspace(-3, 3, 1000)
    own, _ = run_seeded(5, lambda: codes_of(x.to(torch_dtypes.dtype(f"{name}_stochastic"))))
    block, _ = run_seeded(
        5, lambda: in_mode("stochastic", lambda: to_codes(x, getattr(torch, name)))
    )
    assert torch.equal(own, block)


@every_mode
def test_any_number_of_threads_gives_the_same(mode):
    x = torch.linspace(-300, 300, (1 << 18) + 77)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for source in (x, x.double(), x.to(torch.posit32es2)):
                results.append(
                    run_seeded(21, lambda s=source: in_mode(mode, lambda: to_codes(s, torch.q43)))[
                        0
                    ]
                )
            results.append(
                run_seeded(21, lambda: in_mode(mode, lambda: codes_of(x.to(torch.tf32) * 0.01)))[0]
            )
    finally:
        torch.set_num_threads(before)
    for i in (4, 8):
        assert all(torch.equal(a, b) for a, b in zip(results[:4], results[i : i + 4], strict=True))


def test_a_seed_repeats_and_calls_differ():
    x = torch.full((1000,), 1.05)
    with torch_dtypes.rounding("stochastic"):
        torch.manual_seed(1)
        first, second = to_codes(x, torch.q43), to_codes(x, torch.q43)
        torch.manual_seed(1)
        again = to_codes(x, torch.q43)
        torch.manual_seed(2)
        other = to_codes(x, torch.q43)
        state = torch.get_rng_state()
        third = to_codes(x, torch.q43)
        torch.set_rng_state(state)
        assert torch.equal(third, to_codes(x, torch.q43))
        with torch.random.fork_rng():
            to_codes(x, torch.q43)
    assert torch.equal(first, again)
    assert not torch.equal(first, second) and not torch.equal(first, other)


@every_mode
def test_memory_order_counts_in_tensors_that_are_not_contiguous(mode):
    x = torch.linspace(-3, 3, 35 * 22).reshape(35, 22)
    flat, seed = run_seeded(8, lambda: in_mode(mode, lambda: to_codes(x, torch.q43)))
    expected = encode_array(
        oracle.table(binary(4, 3)),
        x.double().flatten().numpy(),
        mode,
        random_words(seed, 0, x.numel()),
    )
    assert flat.flatten().tolist() == expected.tolist()
    transposed, _ = run_seeded(8, lambda: in_mode(mode, lambda: to_codes(x.t(), torch.q43)))
    assert torch.equal(transposed, flat.t())
    sliced, _ = run_seeded(8, lambda: in_mode(mode, lambda: to_codes(x[::2, 1::3], torch.q43)))
    dense, _ = run_seeded(
        8, lambda: in_mode(mode, lambda: to_codes(x[::2, 1::3].contiguous(), torch.q43))
    )
    assert torch.equal(sliced, dense)
    into = torch.zeros(22, 35, dtype=torch.q43).t()  # a copy into a view
    torch.manual_seed(8)
    in_mode(mode, lambda: into.copy_(x))
    assert ((into.double() - x).abs() <= 2.0**-3 * x.abs() + 2.0**-9).all() or mode == "up_down"


@every_mode
@pytest.mark.parametrize("operator", ["add", "sub", "mul", "div", "addcmul"])
def test_results_that_have_others_between_them_draw_as_new_ones(operator, mode):
    x, out = (
        torch.linspace(-3, 3, 35 * 44).to(torch.q43).view(35, 44),
        torch.zeros(35, 44, dtype=torch.q43),
    )
    view = x[:, 1::2]
    operands = (view, view) if operator == "addcmul" else (0.3,)
    new, _ = run_seeded(8, lambda: in_mode(mode, lambda: getattr(view, operator)(*operands)))
    written, _ = run_seeded(
        8,
        lambda: in_mode(mode, lambda: getattr(out[:, 1::2].copy_(view), operator + "_")(*operands)),
    )
    assert torch.equal(written, new) and torch.equal(out[:, 1::2], new) and not out[:, ::2].any()


MOVES = {
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "cat": lambda x: torch.cat([x, x]),
    "tril": torch.tril,
    "stack": lambda x: torch.stack([x, x]),
    "index": lambda x: x[torch.tensor([2, 0])],
    "gather": lambda x: x.gather(1, torch.tensor([[2], [1]])),
    "sort": lambda x: x.sort().values,
    "where": lambda x: torch.where(x > 1, x, x.flip(0)),
    "max": lambda x: x.max(1).values,
    "abs": torch.abs,
    "topk": lambda x: x.topk(2).values,
    "roll": lambda x: x.roll(3),
    "repeat": lambda x: x.repeat(2, 1),
    "relu": torch.relu,
    "neg": torch.neg,
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1)),
    "amin": lambda x: x.amin(),
    "masked_fill": lambda x: x.masked_fill(x < 1, 0.0),
    "take": lambda x: x.take(torch.tensor([5, 3])),
    "maximum": lambda x: torch.maximum(x, x),
    "clamp": lambda x: x.clamp(x.amin(), x.amax()),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([3, 1]), x),
    "copy": lambda x: torch.empty_like(x).copy_(x),
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x, 2),
    "same": lambda x: x.to(x.dtype),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_what_only_moves_or_selects_values_rounds_nothing(name):
    """Checked in up_down, the only mode that moves values of the format."""
    x = from_codes(torch.arange(64) * 200 + 9000, torch.posit16es2).reshape(8, 8)[:, :4]
    expected = codes_of(MOVES[name](x))
    found = in_mode("up_down", lambda: codes_of(MOVES[name](x)))
    assert torch.equal(found, expected)


def test_empty_tensors_and_numbers():
    with torch_dtypes.rounding("stochastic"):
        assert torch.empty(0).to(torch.q43).shape == (0,)
        assert torch.tensor(1.05).to(torch.q43).item() in (1.0, 1.125)


if __name__ == "__main__":
    if _C.cpu_capability() != sys.argv[1]:
        sys.exit(f"expected the kernels of {sys.argv[1]}, but got those of {_C.cpu_capability()}")
    found = [line for path in sys.argv[2:] for line in wrong_casts(path)]
    sys.exit("\n".join(found) or None)
