"""Rounding with random words, in exact rationals, and the source of the words. The module shares no
code with the implementation.

Sources: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011), section
3.3 (Philox4x32); Croci, Fasi, Higham, Mary, Mikaitis, "Stochastic rounding: implementation, error
analysis and applications" (2022), section 2 (the two stochastic modes); PRISM of the InterFLOP
tools (up_down)."""

from __future__ import annotations

import math

import numpy as np
from oracle import WORD, as_int64, flip_coin
from rationals import Fraction

MODES = ("stochastic", "stochastic_equal", "up_down")


def philox(counter, key, rounds=7):
    """Return four 32-bit words for each counter of Philox4x32. A counter has four numbers or
    arrays, and a key two."""
    c = [np.asarray(x, dtype=np.uint64) for x in counter]
    k = [int(x) for x in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(rounds):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            q >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]),
            q & low,
            p >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]),
            p & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(np.broadcast_arrays(*c))


def random_words(seed: int, first: int, n: int) -> np.ndarray:
    """Return the words of elements first to first + n - 1 of a cast with this seed, as uint64."""
    index = np.arange(first, first + n, dtype=np.uint64)
    c = index // np.uint64(64) * np.uint64(16) + index % np.uint64(16)
    number = (index % np.uint64(64) // np.uint64(16)).astype(int)
    counter = (c & np.uint64(0xFFFFFFFF), c >> np.uint64(32))
    halves = [
        philox((*counter, stream, 0), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))[
            number, np.arange(n)
        ]
        for stream in (0, 1)
    ]
    return halves[0] << np.uint64(32) | halves[1]


def goes_up(mode: str, m: Fraction, low: Fraction, high: Fraction, word: int) -> bool:
    """Tell whether the inexact magnitude m, between its neighbours or beyond both, goes to the
    higher one."""
    return m >= high or flip_coin(mode, (m - low) / (high - low), word)


def encode(spec, x: Fraction | float, mode: str, word: int) -> int:
    """Return the code of one value."""
    if isinstance(x, float) and (not math.isfinite(x) or x == 0):
        return spec.special(x)
    x = Fraction(x)
    return with_word(spec, *(spec.locate(abs(x)) if x else (0, None)), x, mode, word)


def with_word(spec, k: int, side: int | None, x: Fraction, mode: str, word: int) -> int:
    """Return the code of x at the place that spec.locate() returned."""
    negative = x < 0
    if mode == "up_down":
        return spec.signed(
            up_down(spec, k, spec.moves(k, side, False, "nearest_even"), word), negative
        )
    if side is None or (spec.posit and k == spec.largest):
        return spec.signed(k, negative)
    if spec.posit and k == 0 and spec.underflow == "minpos":
        return spec.signed(1, negative)
    # Beyond the largest, exponents go on.
    up = spec.successor(k) if k < spec.largest else k + 1
    if not goes_up(mode, abs(x), spec.magnitude(k), spec.magnitude(up), word):
        return spec.signed(k, negative)
    return spec.signed(up if k < spec.largest else spec.overflow_code, negative)


def up_down(spec, k: int, moves: bool, word: int) -> int:
    """Return the moved magnitude of the code k, or of the code above where x rounds there."""
    if moves and k == spec.largest:
        return spec.overflow_code
    k = spec.successor(k) if moves else k
    if k == 0:
        return 0
    if word >= WORD // 2:
        return k + 1 if k < spec.largest else spec.overflow_code
    k = k - 1 if spec.subnormals or k > 1 << spec.man_bits else 0
    return max(k, 1) if spec.posit and spec.underflow == "minpos" else k


def encode_array(table, x: np.ndarray, mode: str, words: np.ndarray) -> np.ndarray:
    """Return the codes of float64 numbers in a format of at most 20 bits, each with its word."""
    spec, m = table.spec, np.abs(x)
    codes = np.zeros(len(x), dtype=np.int64)
    finite = np.isfinite(x) & (m > 0)
    at = np.searchsorted(table.values, np.where(finite, m, 0.0), side="right") - 1
    side = (m > table.boundaries[at]) * 1 - (m < table.boundaries[at])
    known = zip(
        x.tolist(),
        table.codes[at].tolist(),
        side.tolist(),
        (table.values[at] == m).tolist(),
        words.tolist(),
        strict=True,
    )
    for i, (value, k, s, exact, word) in enumerate(known):
        if value == 0 or not math.isfinite(value):
            codes[i] = spec.special(value)
        else:
            codes[i] = with_word(spec, k, None if exact else s, Fraction(value), mode, word)
    return codes


def as_signed(words: np.ndarray) -> np.ndarray:
    """Return 64-bit words as the int64 of the same bits."""
    return as_int64(words.tolist())
