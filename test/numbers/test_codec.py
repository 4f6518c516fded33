"""Codes to values and values to codes, bit for bit, against exact rationals (oracle.py): the
generic codec, the headers alone, and the fast casts.

The fast casts run in a separate process for each vector unit; this file is also their script."""

import contextlib
import pickle
import sys
from functools import cache

import numpy as np
import oracle
import pytest
import torch
from conftest import from_codes, to_codes
from exact_codecs import codec, float32_inputs, same_values, tensor  # noqa: F401 (a fixture)
from oracle import MODES, as_int64, binary, posit, wide_codes, wide_vectors
from representatives import FORMATS, thin_out
from spec_formats import (
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
from vector_units import capabilities, run_for_capability

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.one_worker

POSITS = [
    *(posit(n, es) for es in range(5) for n in range(2, 17)),
    posit(8, 5),
    posit(13, 5),
    posit(16, 5),
]
FLOATS = [
    binary(2, 1, specials="none"),
    binary(2, 3, specials="none"),
    binary(3, 2, specials="none"),
    binary(2, 0, specials="none"),
    binary(4, 0, specials="none", subnormals=False),
    binary(3, 0, specials="fn"),
    binary(8, 0, specials="fn"),
    binary(5, 0, specials="none"),
    binary(2, 1),
    binary(2, 2),
    binary(3, 1),
    binary(3, 2),
    binary(3, 4),
    binary(2, 5, specials="fn"),
    binary(8, 1),
    binary(6, 1),
    binary(4, 3),
    binary(4, 3, specials="fn"),
    binary(4, 3, specials="fn", bias=8, overflow="saturate"),
    binary(4, 3, subnormals=False),
    binary(4, 3, bias=20),
    binary(5, 2),
    binary(5, 2, subnormals=False, overflow="saturate"),
    binary(5, 2, bias=-3),
    binary(5, 2, bias=100),
    binary(4, 3, overflow="saturate"),
    binary(2, 10),
    binary(3, 10),
    binary(6, 4, specials="fn"),
    binary(7, 3, specials="none", subnormals=False),
    binary(5, 10),
    binary(8, 7),
    binary(6, 9),
    binary(7, 8, overflow="saturate"),
    binary(8, 5, specials="fn", subnormals=False),
    binary(8, 3, bias=130),
    binary(8, 4, bias=126),
    binary(9, 4),
    binary(11, 4),
    binary(11, 4, subnormals=False),
    binary(10, 2, bias=100),
    binary(5, 13),
    binary(5, 5),
    binary(5, 7),
    binary(8, 4),
]
TABLED = list(dict.fromkeys([*POSITS, *FLOATS, binary(8, 10), *SMALL, *MIDDLE, *SHORT]))
NEAREST_WIDE = [
    posit(32, 2),
    *(posit(32, es) for es in (0, 1, 3, 4)),
    posit(20, 1),
    posit(24, 2),
    posit(25, 0),
    posit(26, 0),
    posit(27, 1),
    posit(28, 2),
    posit(29, 2),
    posit(32, 5),
    posit(33, 0),
    posit(40, 2),
    posit(53, 0),
    posit(55, 2),
    posit(57, 3),
    binary(8, 23),
    binary(8, 15),
    binary(5, 20),
    binary(8, 22, specials="fn"),
    binary(11, 20),
    binary(11, 20, subnormals=False),
    binary(6, 30),
    binary(10, 40, specials="fn"),
    binary(11, 51),
    binary(9, 50, overflow="saturate"),
]
WIDE = list(dict.fromkeys([*NEAREST_WIDE, *WIDE, *TAPERED]))
IN_EVERY_MODE = {
    *SMALL,
    *MIDDLE,
    *(s for s in TABLED if s.bits <= 8),
    *(s for s in WIDE if s not in NEAREST_WIDE),
    posit(32, 2),
    binary(8, 23),
    *SHORT[:2],
}


def modes_of(spec):
    return MODES if spec in IN_EVERY_MODE else MODES[:1]


@cache
def all_values(spec):
    """Return the values of all codes as float64. Of long formats, take the table's codes, their
    negatives, and the remaining codes one by one."""
    t = oracle.table(spec)
    if spec.bits <= 12:
        return t.decode()
    out, seen = np.empty(1 << spec.bits), np.zeros(1 << spec.bits, dtype=bool)
    negatives = t.signed(t.codes, np.ones(len(t.codes), dtype=bool))
    out[negatives], out[t.codes] = -t.values, t.values
    seen[negatives] = seen[t.codes] = True
    for code in np.flatnonzero(~seen).tolist():
        out[code] = float(spec.decode(code))
    return out


@cache
def some_values(spec):
    """Return codes of a wide format and their values."""
    codes = [
        spec.signed(k, s)
        for k in wide_codes(spec, 20000 if spec.bits == 32 else 2000)
        for s in (False, True)
    ]
    return as_int64(codes), np.array([float(spec.decode(c)) for c in codes])


@cache
def vectors_of(spec, mode):
    """Return float64 inputs and their codes."""
    if spec in WIDE:
        count = 10000 if spec.bits == 32 else 1000
        return wide_vectors(spec, 200 if spec in IN_EVERY_MODE else count, mode)
    t = oracle.table(spec)
    x = take_few(t.all_inputs(), 300_000 if mode == MODES[0] else 100_000)
    return x, t.encode(x, mode)


# ---- the generic codec ----


@by_name([*TABLED, *WIDE])
def test_decode(codec, spec):  # noqa: F811
    codes, expected = (
        some_values(spec) if spec in WIDE else (np.arange(1 << spec.bits), all_values(spec))
    )
    found = codec.decode(format_of(spec), tensor(codes)).numpy()
    wrong = ~same_values(found, expected)
    assert not wrong.any(), [
        (hex(codes[i]), found[i], expected[i]) for i in np.flatnonzero(wrong)[:5]
    ]


@by_name([*TABLED, *WIDE])
def test_encode(codec, spec):  # noqa: F811
    for mode in modes_of(spec):
        x, codes = vectors_of(spec, mode)
        assert_codes(codec.encode(format_of(spec, mode), tensor(x)), codes, spec, x, mode)


# ---- the fast casts ----

PARTS = {
    "representatives": [s for s in (*TABLED, *WIDE) if name_of(s) in FORMATS],
    "others": [s for s in (*TABLED, *WIDE) if name_of(s) not in FORMATS],
}
# These formats also have each mode as the mode of a dtype. All others are rounded in a block that
# overrides the mode.
OWN_MODES = (posit(8, 2), binary(4, 3, specials="fnuz"), posit(16, 2), binary(5, 10))


@pytest.fixture(scope="module", params=thin_out(PARTS))
def vectors(request, tmp_path_factory):
    """Return a folder of pickled (spec, mode, float64 inputs, codes, float32 inputs, codes, some or
    all codes, their values)."""
    folder = tmp_path_factory.mktemp("vectors")
    for i, spec in enumerate(PARTS[request.param]):
        for mode in modes_of(spec):
            x64, codes64 = vectors_of(spec, mode)
            if mode != MODES[0]:
                some = take_few(np.arange(len(x64)), 30_000)
                x64, codes64 = x64[some], codes64[some]
            if spec in TABLED:
                x32 = float32_inputs(x64)
                codes32 = oracle.table(spec).encode(x32.astype(np.float64), mode)
                decoded = np.arange(1 << spec.bits), all_values(spec)
            else:
                x32 = float32_inputs(np.random.default_rng(2).choice(x64, 60))[::16]
                codes32 = as_int64([spec.encode(float(v), mode) for v in x32])
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    held = x64.astype(np.float32).astype(np.float64) == x64  # float32 holds them
                x32, codes32 = (
                    np.append(x32, x64[held].astype(np.float32)),
                    np.append(codes32, codes64[held]),
                )
                decoded = some_values(spec)
            (folder / f"{i:03d} {mode}.pickle").write_bytes(
                pickle.dumps((spec, mode, x64, codes64, x32, codes32, *decoded))
            )
    return sorted(folder.iterdir())


def same_bits(a, b):
    return (
        torch.equal(a.nan_to_num(), b.nan_to_num())
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a.signbit(), b.signbit())
    )


def wrong_casts(path):
    """List the casts that differ from one file of vectors. Rounding to nearest even is also tried
    in pieces of every length that a loop may leave."""
    with open(path, "rb") as file:
        spec, mode, x64, codes64, x32, codes32, codes, values = pickle.load(file)
    for own in (False, True) if spec in OWN_MODES else (False,):
        dtype = dtype_of(spec, mode) if own else dtype_of(spec)
        for x, expected in ((x64, codes64), (x32, codes32)):
            with contextlib.nullcontext() if own else torch_dtypes.rounding(mode):
                found = to_codes(tensor(x), dtype).numpy()
                chopped = torch_dtypes.chop(tensor(x), dtype)
                pieces = [
                    n
                    for n in range(1, 40)
                    if (to_codes(tensor(x[n : 2 * n]), dtype).numpy() != expected[n : 2 * n]).any()
                ]
            if wrong := differences(found, expected, spec, x):
                yield f"{x.dtype} {mode}{' of its own' if own else ''} {wrong}"
            if pieces:
                yield f"{x.dtype} {mode} {name_of(spec)}: wrong in pieces of {pieces} elements"
            if not same_bits(
                chopped, from_codes(torch.from_numpy(as_int64(expected)), dtype).to(chopped.dtype)
            ):
                yield f"{x.dtype} {mode}: chop of {name_of(spec)} gives other values than the codes"
    if not same_values(from_codes(tensor(codes), dtype).double().numpy(), values).all():
        yield f"{name_of(spec)}: wrong values"


@pytest.mark.parametrize("capability", thin_out(["avx2", "avx512", "default"], 3))
def test_fast_casts(vectors, capability):
    run_for_capability(
        __file__, capability, [vectors if capability == capabilities()[-1] else vectors[::4]]
    )


if __name__ == "__main__":
    if _C.cpu_capability() != sys.argv[1]:
        sys.exit(f"expected the kernels of {sys.argv[1]}, but got those of {_C.cpu_capability()}")
    found = [line for path in sys.argv[2:] for line in wrong_casts(path)]
    sys.exit("\n".join(found) or None)
