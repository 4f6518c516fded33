"""Chooses the cases that `make test` runs, where a test has many: a representative of each
behaviour. The others are marked `whole`, and `make test-rest` runs them."""

import pytest

# Formats, by name. Posits: the usual one, one with a table of all pairs, bounded regimes, and more
# digits than float32. Floats: IEEE's with codes of 8, 10 and 19 bits, each kind of special values,
# without subnormals, and with more digits than float32 and than float64's fast paths have. Then
# fixed point, signed and unsigned.
FORMATS = frozenset(
    "posit16es2 posit8es1 posit32es2 posit16es2_saturate posit8es2_underflow posit16es2_regime13 "
    "takum24_linear q43 e4m3 e5m5 tf32 e8m10 e4m3fn e4m3fnuz e5m2p3109 e2m1finite e4m3_flush "
    "e8m23 e11m30 fixed4_3 ufixed4_4 fixed8_7 fixed3_4_wrap".split()
)
# Dtypes of 1, 2, 4 and 8 bytes, a code that leaves bits of its bytes free, and stock dtypes.
DTYPES = frozenset("q43 posit16es2 e5m5 posit32es2 e11m30 float32 bfloat16".split())


def thin_out(values, keep=FORMATS, name=None):
    """Make parameters of `values`, of which `make test` runs the first and those in `keep`. A
    number as `keep` runs one in so many; no length of a stacked list may be a multiple of it, so
    that each value comes up. `name` turns a value into an entry of `keep`. Tuples are values of
    several arguments."""
    chosen = []
    for place, value in enumerate(values):
        if not hasattr(value, "marks"):
            value = pytest.param(*value) if isinstance(value, tuple) else pytest.param(value)
        label = name(*value.values) if name else value.values[0]
        kept = place % keep == 0 if isinstance(keep, int) else place == 0 or label in keep
        marks = value.marks if kept else [*value.marks, pytest.mark.whole]
        chosen.append(pytest.param(*value.values, id=value.id, marks=marks))
    return chosen
