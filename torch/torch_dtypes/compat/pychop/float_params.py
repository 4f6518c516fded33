"""Pychop's numbers of formats.

Source: Higham's float_params.m (github.com/higham/chop).
"""

from __future__ import annotations

import math

from ...targets.lookup import target
from .bfp_formats import BFP_FORMATS, BFPSpec
from .mx_formats import MX_FORMATS, MXSpec

__all__ = ["binary_mark", "float_params"]

# The formats' names, significant bits and largest exponents.
_FLOATS = {
    ("q43", "fp8-e4m3"): (4, 7),
    ("q52", "fp8-e5m2"): (3, 15),
    ("bfloat16", "b", "bf16"): (8, 127),
    ("fp16", "h", "half"): (11, 15),
    ("tf32", "t"): (11, 127),
    ("fp32", "s", "single"): (24, 127),
    ("fp64", "d", "double"): (53, 1023),
    ("fp128", "q", "quadruple"): (113, 16383),
}
_NUMBERS = ("u", "xmins", "xmin", "xmax", "p", "emins", "emin", "emax")


def binary_mark(value: object) -> str:
    """Return the power of two nearest to a positive number by its logarithm, as ``"2^-11"``; other
    values as they print."""
    try:
        return f"2^{round(math.log2(float(value)))}"  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return str(value)


def _describe(u_bits: int, emins: int, emin: int, xmax: float, emax: int) -> dict:
    numbers = (2.0**-u_bits, math.ldexp(1.0, emins), math.ldexp(1.0, emin), xmax)
    return dict(zip(_NUMBERS, (*numbers, u_bits, emins, emin, emax), strict=True))


def _describe_float(p: int, emax: int) -> dict:
    xmax = math.ldexp(2 - 2.0 ** (1 - p), emax) if emax < 1024 else math.inf
    return _describe(p, 2 - emax - p, 1 - emax, xmax, emax)


def _describe_blocks(spec: BFPSpec | MXSpec) -> dict:
    """Return the numbers of all blocks: with the smallest and the largest scale."""
    elements = target(spec.element)
    end = 2 ** (spec.scale_exponent_bits - 1) - 1
    xmax = math.ldexp(elements.largest, end)
    if isinstance(spec, BFPSpec):
        bits, p, smallest = spec.mantissa_bits, spec.mantissa_bits, 1 - spec.mantissa_bits
        normal, scale_bits = smallest, spec.exponent_bits
    else:
        bits, scale_bits = spec.element_bits, spec.scale_exp_bits + spec.scale_sig_bits
        p = spec.sig_bits + (spec.exp_bits > 0)
        normal = 2 - 2 ** (spec.exp_bits - 1) if spec.exp_bits else 1 - spec.sig_bits
        smallest = normal - spec.sig_bits if spec.exp_bits else normal
    emax = math.frexp(xmax)[1] - 1
    sizes = {"element_bits": bits, "block_size": spec.block_size, "scale_bits": scale_bits}
    return _describe(p, smallest - end, normal - end, xmax, emax) | sizes


def float_params(prec: str | None = None, binary: bool = False, *argv: object):
    """Return the numbers of a format: the tuple (u, xmins, xmin, xmax, p, emins, emin, emax) of a
    float, a dict of these and the sizes of a block format, and without a name a pandas table of
    all.

    u is the unit roundoff 2^-p. xmins and xmin are the smallest positive and the smallest normal
    number, xmax the largest, emins, emin and emax their exponents.

    Args:
        prec: ``"q43"``, ``"h"``, ``"fp16"``, ``"bfp8"``, ``"mxfp8_e4m3"`` and others; case is
            ignored.
        binary: whether the table has powers of two.

    Raises:
        ValueError: an unknown name.
    """
    if prec is None:
        return _make_table(binary)
    name = str(prec).lower()
    for names, numbers in _FLOATS.items():
        if name in names:
            return tuple(_describe_float(*numbers).values())
    blocks = BFP_FORMATS | MX_FORMATS
    if name not in blocks:
        known = [*(name for names in _FLOATS for name in names), *blocks]
        raise ValueError(f"expected prec as one of {', '.join(known)}, but got {prec!r}")
    family = "bfp" if name in BFP_FORMATS else "mx"
    return {"family": family, "canonical": name} | _describe_blocks(blocks[name])


def _make_table(binary: bool):
    import pandas

    missing = {"element_bits": "N/A", "block_size": "N/A", "scale_bits": "N/A"}
    rows = [
        {"": names[0], "family": "binary"}
        | _describe_float(p, emax)
        | missing
        | {"element_bits": p + (emax + 1).bit_length(), "aliases": ", ".join(names)}
        for names, (p, emax) in _FLOATS.items()
    ]
    for family, formats in (("bfp", BFP_FORMATS), ("mx", MX_FORMATS)):
        rows += [
            {"": name, "family": family} | _describe_blocks(spec) | {"aliases": name}
            for name, spec in formats.items()
        ]
    for row in rows:
        for name in _NUMBERS[:4]:
            row[name] = binary_mark(row[name]) if binary else f"{row[name]:9.2e}"
    return pandas.DataFrame(rows)
