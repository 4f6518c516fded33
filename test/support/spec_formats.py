"""Build the format, its canonical name and its dtype from a definition (oracle.py, oracle_fixed.py)
and a rounding mode; lists to test over."""

import numpy as np
import pytest
import torch
from oracle import Spec, binary, posit, takum
from oracle_fixed import Fixed
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _C


def p3109(bits: int, precision: int, specials: str = "p3109", **options) -> Spec:
    """Return the float binary<bits>p<precision>se, or sf with specials="fnuz"."""
    return binary(bits - precision, precision - 1, specials=specials, **options)


POSITS_8 = [
    posit(2, 0),
    posit(3, 1),
    posit(5, 2),
    posit(6, 0),
    posit(8, 0),
    posit(8, 1),
    posit(8, 2),
    posit(8, 4),
    *(posit(n, es, underflow="zero") for n, es in ((3, 0), (5, 1), (8, 0), (8, 2), (8, 3))),
    posit(8, 1, infinity="saturate"),
    posit(8, 2, underflow="zero", infinity="saturate"),
]
FLOATS_8 = [
    binary(4, 3),
    binary(5, 2),
    binary(3, 2),
    binary(2, 1),
    binary(4, 3, subnormals=False),
    binary(5, 2, overflow="saturate"),
    binary(4, 3, specials="fn"),
    binary(4, 3, specials="fn", bias=8, overflow="saturate"),
    binary(3, 0, specials="fn"),
    binary(2, 1, specials="none"),
    binary(3, 2, specials="none"),
    binary(2, 3, specials="none", subnormals=False),
    binary(1, 2, specials="none"),
    binary(4, 3, specials="fnuz"),
    binary(5, 2, specials="fnuz"),
    binary(4, 3, specials="fnuz", bias=11),
    binary(4, 3, specials="fnuz", bias=7, overflow="saturate"),
    binary(3, 2, specials="fnuz", subnormals=False),
    binary(1, 2, specials="fnuz"),
    *(p3109(8, p) for p in range(1, 8)),
    p3109(8, 3, "fnuz"),
    p3109(6, 3),
    p3109(4, 2),
    p3109(3, 1),
    p3109(8, 4, overflow="saturate"),
    p3109(8, 5, subnormals=False),
    p3109(7, 1, "fnuz"),
]
FIXED_8 = [
    Fixed(4, 3),
    Fixed(0, 7),
    Fixed(7, 0),
    Fixed(1, 0),
    Fixed(0, 1),
    Fixed(2, 3, symmetric=True),
    Fixed(3, 4, overflow="wrap"),
    Fixed(0, 5, overflow="wrap"),
    Fixed(4, 4, False),
    Fixed(0, 8, False),
    Fixed(8, 0, False),
    Fixed(1, 0, False),
    Fixed(3, 2, False, "wrap"),
    Fixed(-3, 6),
    Fixed(8, -1),
    Fixed(-2, 8, False),
    Fixed(10, -4, overflow="wrap"),
    Fixed(-4, 9, overflow="wrap"),
]
SMALL = [*POSITS_8, *FLOATS_8]
MIDDLE = [
    posit(16, 2),
    posit(16, 1),
    posit(12, 1, underflow="zero"),
    posit(16, 2, underflow="zero"),
    posit(16, 2, infinity="saturate"),
    binary(5, 10),
    binary(8, 7),
    binary(5, 5),
    binary(8, 5, specials="fn", subnormals=False),
    p3109(16, 11),
    binary(6, 9, specials="fnuz", overflow="saturate"),
]
WIDE = [
    posit(32, 2),
    posit(32, 2, infinity="saturate"),
    posit(32, 2, underflow="zero"),
    posit(24, 1),
    posit(28, 3, underflow="zero"),
    posit(40, 2),
    posit(55, 2),
    posit(48, 4, underflow="zero"),
    binary(8, 23),
    binary(8, 22, specials="fn"),
    binary(11, 20, subnormals=False),
    binary(6, 30, specials="fnuz"),
    binary(10, 40, specials="p3109"),
    binary(9, 43, overflow="saturate"),
]
# In the last two bounded posits the longest regimes leave no fraction, or cut exponents.
TAPERED = [
    takum(24),
    takum(32),
    posit(16, 5, regime_max=6),
    posit(14, 3, regime_max=5),
    posit(16, 0, regime_max=3),
    posit(8, 2, regime_max=3),
    posit(15, 4, regime_max=2),
    posit(16, 2, regime_max=13),
    posit(16, 3, regime_max=14),
]
# All codes of these are tried.
SHORT = [
    takum(17),
    posit(16, 2, regime_max=6),
    posit(16, 5, regime_max=6),
    posit(16, 3, regime_max=14),
]
FIXED_WIDE = [
    Fixed(8, 7),
    Fixed(0, 16, False),
    Fixed(7, 8, overflow="wrap"),
    Fixed(11, 12),
    Fixed(15, 16),
    Fixed(0, 31, symmetric=True),
    Fixed(31, 0),
    Fixed(32, 0, False),
    Fixed(0, 32, False, "wrap"),
    Fixed(20, 11, overflow="wrap"),
    Fixed(16, 16, False),
    Fixed(-40, 60),
    Fixed(64, -49, symmetric=True),
    Fixed(-4, 32, overflow="wrap"),
    Fixed(20, -4, overflow="wrap"),
    Fixed(36, -4, False),
]


def name_of(spec: Spec | Fixed, mode: str = "nearest_even") -> str:
    """Return the canonical name of a format that is not built in."""
    if isinstance(spec, Fixed):
        name = f"{'' if spec.signed_codes else 'u'}fixed{spec.int_bits}_{spec.frac_bits}".replace(
            "-", "minus"
        )
        name += ("_symmetric" if spec.symmetric else "") + (
            "_wrap" if spec.overflow == "wrap" else ""
        )
    elif spec.kind == "takum":
        name = f"takum{spec.bits}_linear"
    elif spec.posit:
        name = f"posit{spec.bits}es{spec.exp_bits}" + (
            f"_regime{spec.regime_max}" if spec.regime_max else ""
        )
        name += "_underflow" if spec.underflow == "zero" else ""
        name += "_saturate" if spec.infinity == "saturate" else ""
    else:
        name = f"e{spec.exp_bits}m{spec.man_bits}" + {"ieee": "", "none": "finite"}.get(
            spec.specials, spec.specials
        )
        if spec.bias != 2 ** (spec.exp_bits - 1) - (not spec.one_zero):
            name += f"_bias{spec.bias}".replace("-", "minus")
        name += "" if spec.subnormals else "_flush"
        name += "_saturate" if spec.overflow == "saturate" and spec.specials != "none" else ""
    return name if mode == "nearest_even" else f"{name}_{mode}"


def format_of(spec: Spec | Fixed, mode: str = "nearest_even") -> _C.Format:
    """Return the format alone, for the generic codec. It takes none of the 64 places of a
    process."""
    if isinstance(spec, Fixed):
        fmt = _C.Format.fixed(spec.int_bits, spec.frac_bits, spec.signed_codes)
        fmt.overflow = getattr(_C.Overflow, spec.overflow)
        fmt.symmetric = spec.symmetric
    elif spec.kind == "takum":
        fmt = _C.Format.takum(spec.bits)
    elif spec.regime_max is not None:
        return torch_dtypes.format_of(name_of(spec, mode))
    elif spec.posit:
        fmt = _C.Format.posit(spec.bits, spec.exp_bits)
        fmt.underflow = getattr(_C.Underflow, spec.underflow)
        fmt.infinity = getattr(_C.Infinity, spec.infinity)
    else:
        fmt = _C.Format.float(spec.exp_bits, spec.man_bits)
        fmt.bias = spec.bias
        fmt.specials = getattr(_C.Specials, spec.specials)
        fmt.overflow = getattr(_C.Overflow, spec.overflow)
        fmt.subnormals = _C.Subnormals.gradual if spec.subnormals else _C.Subnormals.flush
    fmt.rounding = getattr(_C.Rounding, mode)
    return fmt


def dtype_of(spec: Spec | Fixed, mode: str = "nearest_even") -> torch.dtype:
    if isinstance(spec, Fixed):
        return torch_dtypes.fixed_format(
            spec.int_bits,
            spec.frac_bits,
            signed=spec.signed_codes,
            overflow=spec.overflow,
            symmetric=spec.symmetric,
            rounding=mode,
        )
    if spec.kind == "takum":
        return torch_dtypes.takum_format(spec.bits, rounding=mode)
    if spec.posit:
        options = {
            "regime_max": spec.regime_max,
            "underflow": spec.underflow,
            "infinity": spec.infinity,
        }
        return torch_dtypes.posit_format(spec.bits, spec.exp_bits, rounding=mode, **options)
    return torch_dtypes.float_format(
        spec.exp_bits,
        spec.man_bits,
        bias=spec.bias,
        subnormals=spec.subnormals,
        specials=spec.specials,
        overflow=spec.overflow,
        rounding=mode,
    )


def by_name(specs):
    return pytest.mark.parametrize("spec", thin_out(specs, name=name_of), ids=name_of)


def differences(found, expected, spec, x) -> str:
    """Describe the codes that differ; return an empty text where all are equal."""
    found, expected = np.asarray(found), np.asarray(expected)
    wrong = np.flatnonzero(found != expected)
    rows = [
        f"{float(x[i])!r} ({float(x[i]).hex()}): {found[i]:#x}, expected {expected[i]:#x}"
        for i in wrong[:5]
    ]
    return f"{name_of(spec)}: {len(wrong)} of {len(x)} wrong: " + "; ".join(rows) if rows else ""


def assert_codes(found, expected, spec, x, note=""):
    wrong = differences(found, expected, spec, x)
    assert not wrong, f"{note} {wrong}"


def take_few(x, count, seed=0):
    """Return at most `count` of some numbers."""
    return x if len(x) <= count else np.random.default_rng(seed).choice(x, count, replace=False)
