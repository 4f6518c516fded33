"""Operands of sums in format dtypes, and the expected codes under an accumulation policy, from
exact rationals."""

import math

import numpy as np
import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes
from oracle import as_int64, binary
from oracle_fixed import Fixed
from oracle_sums import exact_sum, finite, over, round_value, step_sum, times, value_of

import torch_dtypes
from torch_dtypes import accumulate

FORMATS = {
    **{name: spec for name, spec in BUILTIN.items() if name not in ("e5m5", "e5m7")},
    "e5m2fn": binary(5, 2, specials="fn"),
    "fixed4_4": Fixed(4, 4),
    "e11m52": binary(11, 52),
}
every_format = pytest.mark.parametrize("name", FORMATS)


def dtype_of(name):
    return torch_dtypes.dtype(name)


def values_of(t, spec):
    return [
        value_of(spec, c % (1 << spec.bits)) for c in codes_of(t.contiguous()).flatten().tolist()
    ]


def tensor_of(codes, name, *sizes):
    codes = torch.from_numpy(as_int64([int(c) for c in np.asarray(codes, dtype=object).flatten()]))
    return from_codes(codes.reshape(sizes or (-1,)), dtype_of(name))


def random_codes(spec, n, rng, specials=False):
    """Return any codes: values from the smallest to the largest."""
    codes = rng.integers(
        0, (1 << spec.bits) - 1, 2 * n + 50, dtype=np.uint64, endpoint=True
    ).tolist()
    return [c for c in codes if specials or finite(value_of(spec, c))][:n]


def some(name, *sizes, seed=0, specials=False, spread=1.0):
    """Return operands: half are any codes, and half are near 1, where sums of a few terms share
    many digits."""
    rng, n = np.random.default_rng([seed, *sizes]), math.prod(sizes)
    near = torch.from_numpy(rng.standard_normal(n) * spread).to(dtype_of(name))
    far = tensor_of(random_codes(FORMATS[name], n, rng, specials), name)
    return torch.where(torch.from_numpy(rng.random(n) < 0.5), near, far).reshape(sizes)


def ends(name, *sizes, seed=0):
    """Return operands, mostly the largest and smallest values. Their products often cancel except
    for digits that a machine's sum has lost."""
    rng, spec, n = np.random.default_rng([seed, *sizes]), FORMATS[name], math.prod(sizes)
    least = spec.decode(1)
    values = [largest(spec), round_value(spec, -largest(spec)), least, round_value(spec, -least)]
    extreme = tensor_of(
        [spec.encode(values[i]) for i in rng.choice(4, n, p=(0.35, 0.35, 0.15, 0.15))], name
    )
    return torch.where(
        torch.from_numpy(rng.random(n) < 0.75), extreme, some(name, n, seed=seed)
    ).reshape(sizes)


def largest(spec):
    return spec.decode(spec.highest if isinstance(spec, Fixed) else spec.largest)


def is_nan(spec, code):
    return value_of(spec, code) != value_of(spec, code)


def assert_codes(found, expected, spec, note=""):
    """Check the codes of a tensor; all NaNs are equal."""
    found = [c % (1 << spec.bits) for c in codes_of(found.contiguous()).flatten().tolist()]
    assert len(found) == len(expected), note
    differ = [(i, f, e) for i, (f, e) in enumerate(zip(found, expected, strict=True)) if f != e]
    wrong = [(i, f, e) for i, f, e in differ if not (is_nan(spec, f) and is_nan(spec, e))]
    rows = [
        f"[{i}] {value_of(spec, f)} ({f:#x}), expected {value_of(spec, e)} ({e:#x})"
        for i, f, e in wrong[:4]
    ]
    assert not wrong, f"{note}: {len(wrong)} of {len(found)} wrong: " + "; ".join(rows)


def lines(a, b, spec):
    """Return the pairs of values that are multiplied for each element of a @ b."""
    (m, k), n = a.shape, b.shape[1]
    x, y = values_of(a, spec), values_of(b, spec)
    return [[(x[i * k + l], y[l * n + j]) for l in range(k)] for i in range(m) for j in range(n)]  # noqa: E741


def exact_codes(dots, spec, mode="nearest_even", starts=None, divisor=1):
    starts = starts or [None] * len(dots)
    return [
        spec.encode(over(exact_sum([times(x, y) for x, y in dot], s), divisor), mode)
        for dot, s in zip(dots, starts, strict=True)
    ]


def step_codes(dots, spec, mode="nearest_even", starts=None, product=None, total=None, **options):
    starts = starts or [None] * len(dots)
    return [
        spec.encode(step_sum(d, product or spec, total or spec, mode, s, **options))
        for d, s in zip(dots, starts, strict=True)
    ]


def assert_products(policy, a, b, name, note="", **options):
    """Check that a @ b under a policy equals the reference."""
    spec = FORMATS[name]
    with accumulate(policy, **options):
        found = a @ b
    renamed = {"rounding": "mode", "accumulator": "total"}
    options = {renamed.get(k, k): v for k, v in options.items()}
    options = {k: BUILTIN[v] if k in ("product", "total") else v for k, v in options.items()}
    codes = (
        exact_codes(lines(a, b, spec), spec)
        if policy == "exact"
        else step_codes(lines(a, b, spec), spec, **options)
    )
    assert_codes(found, codes, spec, f"{name} {policy} {tuple(a.shape)} {options} {note}")
