"""Vectors of blocks, parsed by an independent reader, against exact rationals."""

import math
import struct

import numpy as np
import oracle_blocks
import pytest
import torch
from oracle import binary
from oracle_fixed import Fixed
from oracle_vectors import flags_of
from rationals import Fraction
from read_vectors import make_file, read, run

import torch_dtypes

E4M3 = binary(4, 3, specials="fn", overflow="saturate")
FP32 = binary(8, 23)
HIF4 = binary(1, 2, specials="none", bias=1)


def number(code):
    return struct.unpack("<f", struct.pack("<I", code))[0]


def parts_of(columns, row):
    """Return a vector's numbers by the name of their column without its number."""
    parts = {}
    for (name, bits), code in zip(columns, row, strict=True):
        assert 0 <= code < 1 << bits
        parts.setdefault(name.rstrip("0123456789"), []).append(code)
    return parts


def vectors(path, *arguments, kind="hex"):
    text = make_file(path, *arguments, "--as", kind)
    header, columns, rows = read_blocks(text)
    return header, columns, [parts_of(columns, row) for row in rows]


def read_blocks(text):
    """Read a file that may have no flags."""
    if "flags" not in text and not text.startswith("{"):
        mark = text.split()[0]
        names = " ".join(f"{name}={bit}" for name, bit in FLAGS.items())
        text = f"{mark} golden vectors\n{mark} flags: {names}\n{text}"
    return read(text)


FLAGS = {"inexact": 1, "underflow": 2, "overflow": 4, "divide_by_zero": 8, "invalid": 16}


def rounded(spec, y, mode, word=None, bits=0):
    """Return the code of y; in the mode stochastic by the sum of its distance from the number
    below it, cut to some bits, and a word of as many bits."""
    if word is None or y == 0:
        return spec.encode(y if y else 0.0 * y, mode)
    y = Fraction(y)
    code = spec.encode(y, "toward_zero")
    k = code & (spec.sign_code - 1)
    if k == spec.largest:
        return code
    low, high = spec.magnitude(k), spec.magnitude(spec.successor(k))
    fraction = math.floor((abs(y) - low) / (high - low) * 2**bits)
    return code + (spec.successor(k) - k) * (fraction + word >= 2**bits)


@pytest.mark.parametrize(
    ("name", "mode", "bits", "kind"),
    [
        ("mxfp4", None, 0, "hex"),
        ("mxfp4", "stochastic", 64, "json"),
        ("mxfp4_rceil", "stochastic_a4", 4, "readmemh"),
        ("mxfp6_e2m3_even", "up", 0, "hex"),
        ("mxfp8_e5m2_ceil", "stochastic_a9", 9, "hex"),
        ("mxfp8_e4m3_axis0", "to_odd", 0, "json"),
        ("mxint8", None, 0, "hex"),
    ],
)
def test_quantized_with_powers_of_two(name, mode, bits, kind, tmp_path):
    count = 400
    arguments = ("--mode", mode) if mode else ()
    header, columns, rows = vectors(
        tmp_path / "file", name, "--op", "quantize", "--count", count, *arguments, kind=kind
    )
    rule = header["scale_rule"]
    spec = oracle_blocks.SPECS[name.removesuffix("_axis0").removesuffix(f"_{rule}")]
    assert (header["rounding"], len(rows)) == (mode or "nearest_even", count)
    assert columns[0] == ("x0", 32) and ("scale", 8) in columns and columns[-1][0] == "e31"
    assert ("flags", 5) not in columns
    seen = set()
    for parts in rows:
        x = [number(code) for code in parts["x"]]
        if not all(map(math.isfinite, x)):
            assert parts["scale"] == [255] and set(parts["e"]) == {0}
            seen.add("special")
            continue
        a = max(Fraction(abs(v)) for v in x)
        e = oracle_blocks.scale_exponent(a, spec, rule)
        assert parts["scale"] == [e + 127]
        words = [None] * 32
        if bits:
            words = parts["random"] if bits < 64 else [word << 32 for word in parts["random"]]
        exact = [Fraction(v) / Fraction(2) ** e if v else v for v in x]
        codes = [
            rounded(spec, v, header["rounding"], word, bits)
            for v, word in zip(exact, words, strict=True)
        ]
        assert parts["e"] == codes
        seen |= {"zeros"} if a == 0 else {"small" if a < Fraction(2) ** -100 else "normal"}
        # Ties of two elements
        if isinstance(spec, Fixed):
            continue
        ks = [abs(v) for v in exact if v]
        if any(spec.encode(v, "nearest_zero") != spec.encode(v, "nearest_away") for v in ks):
            seen.add("tie")
    assert seen >= {"special", "zeros", "normal", "small"}
    assert "tie" in seen or name == "mxint8"


@pytest.mark.parametrize(("mode", "bits"), [(None, 0), ("stochastic_a6", 6)])
def test_quantized_with_a_scale_of_the_tensor(mode, bits, tmp_path):
    """Each step of the scales in float32, as in NVIDIA's paper."""
    arguments = ("--mode", mode) if mode else ()
    _, columns, rows = vectors(
        tmp_path / "file", "nvfp4", "--op", "quantize", "--count", 600, *arguments
    )
    assert [name for name, _ in columns[15:17]] == ["x15", "tensor_scale"]
    element, one, scales = oracle_blocks.SPECS["mxfp4"], np.float32(1), set()
    for parts in rows:
        x = np.array([number(code) for code in parts["x"]], dtype=np.float32)
        t = np.float32(number(*parts["tensor_scale"]))
        if not np.isfinite(x).all():
            assert parts["scale"] == [0x7F] and set(parts["e"]) == {0}
            continue
        with np.errstate(over="ignore"):
            ratio = np.max(np.abs(x)) / np.float32(6) * (one / t)
        own = max(E4M3.encode(float(ratio), "nearest_even"), 1)
        assert parts["scale"] == [own]
        scales.add(own)
        factor = np.float32(float(E4M3.decode(own))) * t
        words = parts["random"] if bits else [None] * 16
        assert parts["e"] == [
            rounded(element, float(v * (one / factor)), mode or "nearest_even", word, bits)
            for v, word in zip(x, words, strict=True)
        ]
    assert {1, 0x7E} <= scales and len(scales) > 30


@pytest.mark.parametrize("name", ["nvfp4", "hif4", "mxfp6_e3m2_nearest_away", "bfp8_size16"])
def test_they_are_the_codes_of_quantize(name, tmp_path):
    _, _, rows = vectors(tmp_path / "file", name, "--op", "quantize", "--count", 200)
    for parts in rows:
        x = torch.tensor([number(code) for code in parts["x"]])
        scale = number(*parts["tensor_scale"]) if "tensor_scale" in parts else None
        made = torch_dtypes.quantize(x, name, scale=scale)
        bits = made.format.bits
        assert (made.codes.long() & (1 << bits) - 1).tolist() == parts["e"]
        assert made.scale_codes.item() & 0xFFFFFFFF == parts["scale"][0]


def value_of_scale(name, code, place):
    """Return the value of a 1 by the definition of the scale; NaN as a float."""
    if name == "hif4":
        if code & 255 == 255:
            return math.nan
        exponent = (code >> 2 & 63) - 48
        exponent += (code >> 8 + place // 8 & 1) + (code >> 16 + place // 4 & 1)
        return (1 + Fraction(code & 3, 4)) * Fraction(2) ** exponent
    if name == "nvfp4":
        return E4M3.decode(code)
    return math.nan if code == 255 else Fraction(2) ** (code - 127)


@pytest.mark.parametrize(
    ("name", "spec", "mode", "to"),
    [
        ("mxfp4", oracle_blocks.SPECS["mxfp4"], "nearest_even", None),
        ("nvfp4", oracle_blocks.SPECS["mxfp4"], "toward_zero", "bf16"),
        ("mxfp8_e4m3", E4M3, "nearest_even", None),
        ("mxfp8_e5m2", oracle_blocks.SPECS["mxfp8_e5m2"], "up", "e5m10"),
        ("hif4", HIF4, "nearest_even", None),
        ("mxint8", oracle_blocks.SPECS["mxint8"], "to_odd", "bf16"),
    ],
)
def test_dot_products_of_two_blocks(name, spec, mode, to, tmp_path):
    result = {None: FP32, "bf16": binary(8, 7), "e5m10": binary(5, 10)}[to]
    arguments = ("--to", to) if to else ()
    _, _, rows = vectors(
        tmp_path / "file", name, "--op", "dot", "--count", 300, "--mode", mode, *arguments
    )
    seen = set()
    for parts in rows:
        operands = []
        for block in "ab":
            (scale,) = parts[f"{block}_scale"]
            operands.append(
                [
                    product(spec.decode(code), value_of_scale(name, scale, place))
                    for place, code in enumerate(parts[block])
                ]
            )
        terms = [product(a, b) for a, b in zip(*operands, strict=True)]
        flat = [v for operand in operands for v in operand]
        if all(isinstance(v, Fraction) for v in flat):
            total = sum(terms, Fraction(0))
            code = result.encode(total if total else 0.0, mode)
            assert parts["result"] == [code]
            delivered = result.decode(code)
            flags = flags_of(result, total, delivered, mode) if total else 0
            assert parts["flags"] == [flags]
            seen |= {flags, "zero" if total == 0 else "number"}
            continue
        total = sum(map(float, terms))
        is_nan = any(isinstance(v, float) and math.isnan(v) for v in flat)
        assert parts["result"] == [result.special(math.nan if math.isnan(total) else total)]
        assert parts["flags"] == [FLAGS["invalid"] * (math.isnan(total) and not is_nan)]
        seen.add("special")
    assert seen >= {0, "number", "special"} and ("zero" in seen or name == "hif4")
    assert 1 in seen or name in ("mxfp4", "hif4", "mxint8")


def product(a, b):
    """Multiply Fractions, infinities and NaN."""
    a, b = (Fraction(v) if v == 0 else v for v in (a, b))
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    signs = [math.copysign(1, v) * (v != 0) if isinstance(v, Fraction) else v for v in (a, b)]
    return signs[0] * signs[1]


def test_the_same_options_write_the_same_file(tmp_path):
    arguments = ("nvfp4", "--op", "quantize", "--seed", 3)
    few = make_file(tmp_path / "few", *arguments, "--count", 5)
    again = make_file(tmp_path / "again", *arguments, "--count", 5)
    many = make_file(tmp_path / "many", *arguments, "--count", 300)
    assert few == again
    lines = [[x for x in text.splitlines() if x[0] != "#"] for text in (few, many)]
    assert lines[0] == lines[1][:5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nvfp4", "--op", "add"), "expected quantize or dot, the operations of blocks, but got"),
        (("nvfp4", "--op", "dot", "--terms", 4), "vectors of blocks without --all, --terms"),
        (("nvfp4", "--op", "quantize", "--all"), "vectors of blocks without --all, --terms"),
        (("bfp8", "--op", "quantize"), "numbers along one axis, but got bfp8"),
        (("block<q43,e8m0,4x4>", "--op", "dot"), "along one axis, but got block<e4m3_saturate"),
        (("nvfp4", "--op", "quantize", "--to", "bf16"), "expected the format of the results"),
        (("nvfp4", "--op", "dot", "--to", "mxfp4"), "expected a format without scales"),
        (("nvfp4", "--op", "dot", "--to", "float64"), "at most 51 significant bits"),
        (("nvfp4", "--op", "dot", "--mode", "stochastic"), "expected a deterministic rounding mo"),
        (("nvfp4", "--op", "dot", "--count", 0), "expected a count of at least 1"),
        (("q43", "--op", "quantize"), "quantize is for blocks, such as 'nvfp4'"),
    ],
)
def test_what_is_refused(arguments, words, tmp_path):
    result = run(*arguments, "--out", tmp_path / "file")
    assert result.exit_code == 2 and words in " ".join(result.output.split()), result.output
    assert not list(tmp_path.iterdir())
