"""Blocks with scales by their definitions, number by number in exact rationals. The module shares
no code with the implementation.

Sources: OCP Microscaling Formats 1.0, section 6.3; NVIDIA, "Pretraining large language models with
NVFP4", appendix C; Cook et al., "Four over six", section 3; Luo et al., "HiFloat4 format for
language model inference", equation 2 and algorithm 1."""

from __future__ import annotations

import math

import numpy as np
from oracle import binary, posit_value
from oracle_fixed import Fixed
from rationals import Fraction

# The elements of the MX formats.
SPECS = {
    "mxfp8_e4m3": binary(4, 3, specials="fn", overflow="saturate"),
    "mxfp8_e5m2": binary(5, 2, overflow="saturate"),
    "mxfp6_e3m2": binary(3, 2, specials="none"),
    "mxfp6_e2m3": binary(2, 3, specials="none"),
    "mxfp4": binary(2, 1, specials="none"),
    "mxint8": Fixed(1, 6, symmetric=True),
}


def floor_log2(a: Fraction) -> int:
    e = a.numerator.bit_length() - a.denominator.bit_length()
    return e if a >= Fraction(2) ** e else e - 1


def ceil_log2(a: Fraction) -> int:
    e = floor_log2(a)
    return e if a == Fraction(2) ** e else e + 1


def largest(spec) -> Fraction:
    """Return the value to which scales bring a block: the largest, or for posits the last below
    useed."""
    if getattr(spec, "posit", False):
        return max(
            v
            for code in range(spec.sign_code)
            if (v := posit_value(spec.bits, spec.exp_bits, code)) < 2**2**spec.exp_bits
        )
    return spec.highest * spec.unit if hasattr(spec, "highest") else spec.magnitude(spec.largest)


def scale_exponent(a: Fraction, spec, rule: str, emax: int | None = None, bits: int = 8) -> int:
    """Return the exponent of a block's power-of-two scale."""
    lowest = -(2 ** (bits - 1) - 1)
    if a == 0:
        return lowest
    top = largest(spec)
    e = floor_log2(top) if emax is None else emax
    if rule == "floor":
        power = floor_log2(a) - e
    elif rule == "ceil":
        power = ceil_log2(a) - e
    elif rule == "rceil":
        power = ceil_log2(a / top)
    else:
        step = Fraction(2) ** (
            floor_log2(a)
            - (spec.int_bits + spec.frac_bits - 1 if hasattr(spec, "highest") else spec.man_bits)
        )
        power = floor_log2(math.floor(a / step + Fraction(1, 2)) * step) - e
    return min(max(power, lowest), -lowest)


def block(x, spec, mode: str, exponent: int) -> list[float]:
    """Round each number of a finite block to an element times 2^exponent, as a float64. A negative
    number that rounds to 0 gives -0.0."""
    scale = Fraction(2) ** exponent
    out = []
    for v in x:
        exact = Fraction(v) / scale
        code = spec.encode(exact if exact else v, mode)
        value = spec.decode(code)
        value = (
            math.copysign(0.0, v) if value == 0 and not hasattr(spec, "highest") else float(value)
        )
        out.append(math.ldexp(value, exponent))
    return out


def runs(x: np.ndarray, size: int):
    """Return the blocks of a row."""
    return [x[i : i + size] for i in range(0, len(x), size)]


def quantize_row(
    x: np.ndarray, spec, mode: str, size: int, rule: str = "floor", emax: int | None = None
) -> np.ndarray:
    """Round a row of finite numbers in blocks of ``size`` with E8M0 scales, as float64."""
    out: list[float] = []
    for part in runs(x.astype(np.float64), size):
        a = max(Fraction(abs(float(v))) for v in part)
        out += block([float(v) for v in part], spec, mode, scale_exponent(a, spec, rule, emax))
    return np.array(out)


def nvfp4(x: np.ndarray, element, scale_spec, size: int = 16) -> np.ndarray:
    """Round a float32 row with a float32 tensor scale above e4m3 scales of its blocks. Each step is
    in float32, as in the paper."""
    one, six, top = np.float32(1), np.float32(6), np.float32(6 * 448)
    encode = top / np.max(np.abs(x))
    decode = one / encode
    out = []
    for part in runs(x, size):
        ratio = np.max(np.abs(part)) / six * encode
        own = np.float32(float(scale_spec.decode(scale_spec.encode(float(ratio), "nearest_even"))))
        own = max(own, np.float32(2.0**-9))
        factor = own * decode
        inverse = one / factor
        for v in part:
            code = element.encode(float(v * inverse), "nearest_even")
            out.append(np.float32(float(element.decode(code))) * factor)
    return np.array(out, dtype=np.float32)


def four_over_six(
    x: np.ndarray, element, scale_spec, by_largest: bool = False, size: int = 16
) -> tuple[np.ndarray, list[bool]]:
    """Round a float32 row of finite numbers by Cook et al.'s rule, and tell which blocks are scaled
    to 4. Steps in float32 are rounded explicitly, the errors are exact."""
    exact = [Fraction(float(v)) for v in x]
    encode = to_digits(6 * 256 / max(map(abs, exact)), 24)
    decode = to_digits(1 / encode, 24)
    out: list[float] = []
    fours = []
    for part in runs(exact, size):
        ratio = to_digits(to_digits(max(map(abs, part)) / 6, 24) * encode, 24)
        tries = []
        for wanted in (ratio, to_digits(ratio * Fraction(3, 2), 24)):
            own = Fraction(float(scale_spec.decode(scale_spec.encode(wanted, "nearest_even"))))
            factor = to_digits(max(own, Fraction(1, 2**9)) * decode, 24)
            inverse = to_digits(1 / factor, 24)
            values = []
            for v in part:
                code = element.encode(to_digits(v * inverse, 24), "nearest_even")
                values.append(to_digits(Fraction(float(element.decode(code))) * factor, 24))
            errors = [abs(value - v) for value, v in zip(values, part, strict=True)]
            tries.append((max(errors) if by_largest else sum(e * e for e in errors), values))
        fours.append(tries[1][0] < tries[0][0])
        out += [float(v) for v in tries[fours[-1]][1]]
    return np.array(out, dtype=np.float32), fours


def rows(seed: int, count: int, length: int, spread: int = 12) -> np.ndarray:
    """Return rows of float32 numbers of different magnitudes, with zeros and powers of two among
    them."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((count, length)) * 2.0 ** generator.integers(
        -spread, spread, (count, 1)
    )
    x[:, 1] = 0.0
    x[:, 2] = -0.0
    # Powers of two, where floor and ceil agree.
    x[0, : length // 2] = 2.0**-3 * np.sign(x[0, : length // 2])
    return x.astype(np.float32)


def to_digits(x: Fraction, digits: int) -> Fraction:
    """Round to nearest even with `digits` significant bits."""
    if x == 0:
        return x
    unit = Fraction(2) ** (floor_log2(abs(x)) - digits + 1)
    return round(x / unit) * unit


S1P2 = binary(1, 2, bias=1, specials="none")


def hif4(
    x: np.ndarray, mode: str = "nearest_even"
) -> tuple[np.ndarray, list[tuple[int, list[int], list[int], list[int]]]]:
    """Round a float32 row of finite numbers to HiF4, and return each block's parts: E6M2, E1_8,
    E1_16 and the elements as codes. Products in float32 are rounded explicitly, and other values
    only where the algorithm says so."""
    out: list[float] = []
    parts = []
    for values in runs(x, 64):
        v = [Fraction(float(n)) for n in values]
        scale = to_digits(max(map(abs, v)) * to_digits(Fraction(1, 7), 8), 24)
        scale = to_digits(to_digits(min(max(scale, Fraction(1, 2**48)), Fraction(49152)), 8), 3)
        inverse = to_digits(1 / scale, 8)
        eights, fours, elements = [], [], []
        for i in range(0, len(v), 8):
            eights.append(int(any(to_digits(abs(n) * inverse, 24) >= 4 for n in v[i : i + 8])))
            for j in range(i, min(i + 8, len(v)), 4):
                fours.append(
                    int(
                        any(
                            to_digits(abs(n) * inverse, 24) / 2 ** eights[-1] >= 2
                            for n in v[j : j + 4]
                        )
                    )
                )
                step = Fraction(2) ** (eights[-1] + fours[-1])
                for n, given in zip(v[j : j + 4], values[j : j + 4], strict=True):
                    y = to_digits(n * inverse / step, 24)
                    code = S1P2.encode(y if y else math.copysign(0.0, given), mode)
                    elements.append(code)
                    out.append(
                        math.copysign(float(abs(Fraction(S1P2.decode(code))) * step * scale), given)
                    )
        exponent = floor_log2(scale)
        parts.append(
            (
                exponent + 48 << 2 | int(scale / Fraction(2) ** exponent * 4) - 4,
                eights,
                fours,
                elements,
            )
        )
    return np.array(out, dtype=np.float32), parts
