"""Tables of values, from users and from publications: every mode against exact rationals
(oracle_tables.py), casts, arithmetic."""

# ruff: noqa: F811 (a fixture that is imported)

import itertools
import math

import numpy as np
import pytest
import torch
from conftest import codes_of, from_codes, to_codes
from exact_codecs import codec  # noqa: F401 (a fixture)
from oracle import MODES as DETERMINISTIC
from oracle_tables import STOCHASTIC, of_definition
from oracle_takum import fields
from rationals import Fraction
from representatives import thin_out

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.formats import naming
from torch_dtypes.formats.tables import custom, making, tapered
from torch_dtypes.formats.tables.floats import TabledFloat

NAMED = [
    "nf4",
    "sf4",
    "hif8",
    "e8m0",
    "takum8_linear",
    "takum8_log",
    "takum6_linear",
    "lns3_3",
    "lns2_1",
    "posit8es2_regime3",
]
OWN = {
    "unordered": custom.define([3.0, -1.5, 0.0, 7.25, -(2.0**-30), 1e6, 0.1], ties="zero"),
    "no zero": custom.define([-1.0, 1.0]),
    "two zeros, infinities": custom.define([0.0, 1.0, 2.5, math.inf, -0.0, -1.0, -2.5, -math.inf]),
    "far apart": custom.define([1e-200, 1.0, -1e300, 1e-3], ties="up"),
    "boundaries": custom.define([0.0, 1.0, 2.0, 4.0], boundaries=[0.9, 1.0, 3.9], ties="down"),
    "to codes": custom.define(
        [-4.0, -1.0, 0.0, 2.0, math.nan],
        overflow=(4, 2),
        boundaries=[-5.0, -2.0, -0.5, 0.5, 9.0],
        ties="away",
    ),
    "unsigned": TabledFloat(4, 3, 8, False, True, "p3109", "ieee").definition(),
    "unsigned saturating": TabledFloat(3, 2, 4, False, True, "fn", "saturate").definition(),
    "propagating": TabledFloat(4, 3, 8, True, True, "p3109", "propagate").definition(),
    "normal": TabledFloat(4, 3, 7, True, "normal", "fn", "ieee").definition(),
    "flushed": TabledFloat(3, 2, 4, True, False, "p3109", "propagate").definition(),
}


def define(name):
    if name in OWN:
        return OWN[name]
    return next(
        d(*(int(g) if g.isdecimal() else g for g in m.groups()))
        for p, d in making._named.values()
        if (m := p.fullmatch(name))
    )


@pytest.mark.parametrize("name", [*NAMED, *OWN])
def test_every_mode(codec, name):
    definition = define(name)
    oracle, fmt = of_definition(definition), definition.format(name)
    x = oracle.inputs()
    words = np.random.default_rng(1).integers(0, 2**64, len(x), dtype=np.uint64)
    words[::5], words[1::5] = 0, 2**64 - 1
    for mode in (*DETERMINISTIC, *STOCHASTIC):
        fmt.rounding = getattr(_C.Rounding, mode)
        found = codec.encode(
            fmt, torch.tensor(x, dtype=torch.float64), torch.from_numpy(words.view(np.int64))
        ).tolist()
        expected = [oracle.encode(v, mode, int(w)) for v, w in zip(x, words, strict=True)]
        assert found == expected, [
            (mode, v, f, e) for v, f, e in zip(x, found, expected, strict=True) if f != e
        ][:5]


@pytest.mark.parametrize("name", thin_out([*NAMED, *OWN, "takum16_linear"], 3))
def test_casts_agree_with_the_generic_codec(name):
    """Check the search in thresholds, from float32 and float64 with their subnormal numbers, and
    the look-up of values."""
    definition = define(name)
    fmt = definition.format(name)
    x = torch.tensor(of_definition(definition).inputs(), dtype=torch.float64)
    x = torch.cat(
        [
            x[torch.randperm(len(x), generator=torch.Generator().manual_seed(2))[:20000]],
            torch.randn(1000, dtype=torch.float64),
        ]
    )
    tiny = torch.arange(-40, 40, dtype=torch.int32)
    narrow = torch.cat(
        [
            x.float(),
            x.float().nextafter(torch.tensor(math.inf)),
            (tiny * 3**13).view(torch.float32),
            tiny.view(torch.float32),
        ]
    )
    for mode in DETERMINISTIC:
        fmt.rounding = getattr(_C.Rounding, mode)
        own = f"{name.replace(' ', '_').replace(',', '')}_{mode}"
        dtype = _C.define(fmt, own if name in OWN else naming.name_of_format(fmt))
        assert torch.equal(to_codes(x, dtype), _C.encode_exact(fmt, x)), mode
        assert torch.equal(to_codes(narrow, dtype), _C.encode_exact(fmt, narrow.double())), mode
    codes = torch.arange(2**fmt.bits)
    values = from_codes(codes, dtype).double()
    assert torch.equal(
        values.view(torch.int64),
        torch.tensor(
            [*definition.values, *[math.nan] * (len(codes) - len(definition.values))],
            dtype=torch.float64,
        ).view(torch.int64),
    )


@pytest.mark.parametrize(
    ("kind", "mode"), [("a", "StochasticFastest"), ("b", "StochasticFast"), ("c", "Stochastic")]
)
@pytest.mark.parametrize("bits", [1, 3, 8])
def test_few_random_bits_as_gfloat(kind, mode, bits):
    gfloat = pytest.importorskip("gfloat", reason="gfloat is the independent implementation")
    from gfloat.formats import format_info_p3109

    info = format_info_p3109(6, 3)
    fmt = torch_dtypes.format_of(f"binary6p3se_stochastic_{kind}{bits}")
    rng = np.random.default_rng(bits)
    x = np.concatenate(
        [
            rng.standard_normal(200),
            [1 + k / 2**12 for k in range(0, 2**11, 31)],
            [2.0**-9, 3 * 2.0**-10],
        ]
    )
    words = rng.integers(0, 2**bits, len(x))
    shifted = np.array(
        [
            int(w) << (64 - bits) | int(r)
            for w, r in zip(words, rng.integers(0, 2 ** (64 - bits), len(x)), strict=True)
        ],
        dtype=np.uint64,
    )
    found = _C.decode_exact(
        fmt, _C.encode_exact(fmt, torch.from_numpy(x), torch.from_numpy(shifted.view(np.int64)))
    ).tolist()
    expected = [
        gfloat.round_float(info, float(v), getattr(gfloat.RoundMode, mode), False, int(w), bits)
        for v, w in zip(x, words, strict=True)
    ]
    assert found == expected


def test_few_random_bits_through_tensors():
    """Element i of a cast takes the upper bits of word i, and no others."""
    dtype = torch_dtypes.with_rounding("e5m5", "stochastic", stochastic_bits=2, stochastic_kind="b")
    assert (
        str(dtype) == "torch.e5m5_stochastic_b2"
        and torch_dtypes.dtype("e5m5_stochastic_b2") is dtype
    )
    x = torch.full((4096,), 1 + 2.0**-7)
    rounded = x.to(dtype).float()
    assert set(rounded.tolist()) == {1.0, 1 + 2.0**-5}
    assert abs((rounded > 1).float().mean().item() - 0.25) < 0.05
    assert (torch.full((4096,), 1 + 2.0**-9).to(dtype) == 1).all(), (
        "an eighth of a half of a step: less than 2 bits can say"
    )
    with pytest.raises(ValueError, match="stochastic_bits from 1 to 63"):
        torch_dtypes.with_rounding("q43", "stochastic", stochastic_bits=64)
    with pytest.raises(ValueError, match="mode 'stochastic' only"):
        torch_dtypes.with_rounding("q43", "up", stochastic_bits=4)


@pytest.mark.parametrize("name", ["nf4", "hif8", "takum8_linear", "lns3_3", "unordered"])
def test_arithmetic_is_correctly_rounded(name):
    definition = define(name)
    oracle = of_definition(definition)
    dtype = (
        torch_dtypes.dtype(name)
        if name in NAMED
        else torch_dtypes.table_format(definition.values, ties="zero")
    )
    codes = [c for c, v in enumerate(definition.values) if math.isfinite(v)]
    codes = (
        codes
        if len(codes) <= 16
        else np.random.default_rng(3).choice(codes, 24, replace=False).tolist()
    )
    pairs = list(itertools.product(codes, codes))
    a, b = (from_codes(torch.tensor(c), dtype) for c in zip(*pairs, strict=True))
    exact = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y if y else None,
    }
    # Their products and quotients have exact logarithms: test_logarithms.py.
    if name.startswith("lns"):
        del exact["mul"], exact["div"]
    for name, operation in exact.items():
        found = codes_of(getattr(torch, name)(a, b)).tolist()
        for (i, j), code in zip(pairs, found, strict=True):
            x, y = definition.values[i], definition.values[j]
            result = operation(Fraction(x), Fraction(y))
            if result:  # the sign of a zero depends on the machine
                assert code == oracle.encode(result, "nearest_even"), (name, x, y)


# ---- the published definitions ----


@pytest.mark.parametrize(
    "name", ["e4m3p3109_flush", "e3m6p3109_flush", "e5m2_flush", "e1m4p3109_flush"]
)
def test_a_table_rounds_as_the_float_without_it(name):
    """They agree where numbers do not overflow. Below the smallest number, 0 counts as even."""
    plain, table = torch_dtypes.dtype(name), torch_dtypes.dtype(name + "_propagate")
    assert [torch_dtypes.format_of(x).kind for x in (plain, table)] == [
        _C.Kind.float,
        _C.Kind.table,
    ]
    values = from_codes(torch.arange(1 << torch_dtypes.format_of(plain).bits), plain).double()
    values = values[values.isfinite()].unique()
    x = torch.cat([values, (values[1:] + values[:-1]) / 2, values * 1.01, values * 0.3])
    x = x[x.abs() <= values.max()]
    for mode in DETERMINISTIC:
        with torch_dtypes.rounding(mode):
            assert torch.equal(x.to(plain).double(), x.to(table).double()), mode


def test_nf4_is_the_normal_distributions_quantiles():
    from statistics import NormalDist

    last = 1 - (Fraction(1, 32) + Fraction(1, 30)) / 2
    q = NormalDist().inv_cdf
    positive = [q(float(Fraction(1, 2) + (last - Fraction(1, 2)) * i / 8)) for i in range(1, 9)]
    negative = [
        -q(float(Fraction(1, 2) + (last - Fraction(1, 2)) * i / 7)) for i in range(7, 0, -1)
    ]
    values = from_codes(torch.arange(16), torch_dtypes.dtype("nf4")).double()
    expected = torch.tensor([*negative, 0.0, *positive], dtype=torch.float64) / positive[-1]
    assert torch.allclose(values, expected, rtol=0, atol=3e-7)


def test_sf4_is_as_published():
    """Table 15 of the paper has three decimals."""
    published = [
        -1,
        -0.628,
        -0.455,
        -0.334,
        -0.237,
        -0.153,
        -0.075,
        0,
        0.066,
        0.133,
        0.205,
        0.284,
        0.376,
        0.491,
        0.657,
        1,
    ]
    values = from_codes(torch.arange(16), torch_dtypes.dtype("sf4")).double()
    assert [round(v, 3) for v in values.tolist()] == published


def test_hif8_by_its_fields():
    """Read section 3 of the paper bit by bit."""
    dots = {"11": 4, "10": 3, "01": 2, "001": 1, "0001": 0}
    values = from_codes(torch.arange(256), torch_dtypes.dtype("hif8")).double().tolist()
    for code, found in enumerate(values):
        text = f"{code:08b}"
        sign, body = -1.0 if text[0] == "1" else 1.0, text[1:]
        dot = next((d for d in dots if body.startswith(d)), None)
        if body == "0000000":
            expected = math.nan if sign < 0 else 0.0
        elif body == "1101111":
            expected = sign * math.inf
        elif dot is None:
            expected = sign * 2.0 ** (int(body[4:], 2) - 23)
        else:
            width, tail = dots[dot], body[len(dot) :]
            exponent = 0 if not width else (-1) ** int(tail[0]) * int("1" + tail[1:width], 2)
            fraction = tail[width:]
            expected = sign * 2.0**exponent * (1 + int(fraction, 2) / 2 ** len(fraction))
        assert found == expected or (math.isnan(found) and math.isnan(expected)), text
    limits = torch.finfo(torch_dtypes.dtype("hif8"))
    assert (limits.max, limits.min, limits.tiny, limits.eps) == (
        2.0**15,
        -(2.0**15),
        2.0**-22,
        0.125,
    )
    x = torch.tensor([40959.0, 40960.0, 1.0625, -1.0625, 2.0**-23, math.inf])
    assert x.to(torch_dtypes.dtype("hif8")).float().tolist() == [
        2.0**15,
        math.inf,
        1.125,
        -1.125,
        2.0**-22,
        math.inf,
    ], "ties go away from zero"


def test_hif8_as_en_dtypes():
    """Compare all codes, and float32 numbers at and beside every value and boundary, beyond the
    range and below it."""
    en_dtypes = pytest.importorskip("en_dtypes", reason="en-dtypes is the oracle")
    theirs, ours = np.dtype(en_dtypes.hifloat8), torch_dtypes.dtype("hif8")
    values = from_codes(torch.arange(256), ours).float().numpy()
    assert np.array_equal(
        np.arange(256, dtype=np.uint8).view(theirs).astype(np.float32), values, equal_nan=True
    )
    finite = np.sort(values[np.isfinite(values)])
    beyond = [36864, 40960, 45056, 49152, 1e30, -1e30, 3e-8, 1e-20, 2.0**-23]
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, beyond]).astype(np.float32)
    x = np.concatenate(
        [
            points,
            np.nextafter(points, np.float32(np.inf)),
            np.nextafter(points, np.float32(-np.inf)),
            [np.inf, -np.inf, 0.0, -0.0],
        ]
    )
    x = x.astype(np.float32)
    assert np.array_equal(
        x.astype(theirs).view(np.uint8),
        codes_of(torch.from_numpy(x).to(ours)).numpy().astype(np.uint8),
    )


@pytest.mark.parametrize("bits", [6, 8, 11, 13])
def test_takums_by_their_fields(bits):
    mpmath = pytest.importorskip("mpmath", reason="mpmath has the exponential function")
    half = 2 ** (bits - 1)
    linear = from_codes(torch.arange(2 * half), torch_dtypes.takum_format(bits)).double().tolist()
    log = (
        from_codes(torch.arange(2 * half), torch_dtypes.takum_format(bits, linear=False))
        .double()
        .tolist()
    )
    assert linear[0] == log[0] == 0 and math.isnan(linear[half]) and math.isnan(log[half])
    with mpmath.workprec(200):
        for code in range(1, half, 1 if bits < 12 else 17):
            c, m = fields(bits, code)
            assert (
                Fraction(linear[code]) == (1 + m) * Fraction(2) ** c
                and linear[2 * half - code] == -linear[code]
            )
            exact = mpmath.exp(mpmath.mpf((c + m).numerator) / (c + m).denominator / 2)
            assert abs(log[code] / exact - 1) <= 2.0**-51 and log[2 * half - code] == -log[code]


def test_takums_round_on_the_string():
    """Where the characteristic is cut, the boundary is a power of two and not the mean. Only NaN
    and infinities become NaR, and nothing rounds to 0."""
    dtype = torch_dtypes.takum_format(8)
    values = from_codes(torch.arange(1, 128), dtype).double()
    for k in (0, 1, 60, 62, 125):
        c, m = fields(9, 2 * (k + 1) + 1)
        boundary = torch.tensor([math.ldexp(float(1 + m), c)], dtype=torch.float64)
        below, above = (
            boundary.nextafter(torch.tensor(0.0).double()),
            boundary.nextafter(torch.tensor(math.inf).double()),
        )
        assert (below.to(dtype).double(), above.to(dtype).double()) == (values[k], values[k + 1])
    extremes = torch.tensor([1e-300, 1e300, -1e-300, math.inf, math.nan], dtype=torch.float64).to(
        dtype
    )
    assert codes_of(extremes).tolist() == [1, 127, 255, 128, 128]


def test_bounded_posits():
    """A regime that is not cut short equals a posit's. At regime_max equal bits it ends without a
    closing bit."""
    bounded, plain = torch_dtypes.posit_format(8, 1, regime_max=7), torch_dtypes.posit_format(8, 1)
    inner = torch.arange(2, 127)
    assert torch.equal(from_codes(inner, bounded).double(), from_codes(inner, plain).double())
    short = torch_dtypes.posit_format(8, 2, regime_max=3)
    text = {
        "01111111": 2.0**8 * 2**3 * 1.75,
        "01110000": 2.0**8,
        "00000001": 2.0**-12 * 1.25,
        "01000000": 1.0,
        "00010000": 2.0**-8,
    }
    for string, value in text.items():
        assert from_codes(torch.tensor(int(string, 2)), short).item() == value, string


def test_logarithmic_numbers():
    mpmath = pytest.importorskip("mpmath", reason="mpmath has the exponential function")
    dtype = torch_dtypes.lns_format(3, 3)
    values = from_codes(torch.arange(256), dtype).double().tolist()
    assert values[64] == 0 and math.isnan(values[192])
    for code in set(range(256)) - {64, 192}:
        logarithm = (code & 127) - (128 if code & 64 else 0)
        exact = (-1 if code >= 128 else 1) * mpmath.mpf(2) ** (mpmath.mpf(logarithm) / 8)
        assert abs(values[code] / exact - 1) <= 2.0**-51
    x = torch.tensor(
        [3.0, 0.5, values[65] / 2 * 0.999, values[65] / 2 * 1.001, 1e9, -math.inf],
        dtype=torch.float64,
    ).to(dtype)
    assert codes_of(x).tolist() == [13, 120, 64, 65, 63, 191]
    a = from_codes(torch.tensor([8, 3, 120]), dtype)
    assert codes_of(a * from_codes(torch.tensor([3, 121, 8]), dtype)).tolist() == [11, 124, 0], (
        "logarithms add up exactly"
    )


def test_e8m0_as_ml_dtypes():
    ml_dtypes = pytest.importorskip(
        "ml_dtypes", reason="ml_dtypes is the independent implementation"
    )
    dtype = torch_dtypes.dtype("e8m0")
    values = from_codes(torch.arange(256), dtype).double().numpy()
    assert np.array_equal(
        values,
        np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64),
        equal_nan=True,
    )
    x = np.concatenate(
        [
            values[:255],
            values[:255] * 1.5,
            values[:255] * 1.4999,
            values[:255] * 1.5001,
            [math.inf, -1.0, math.nan],
        ]
    )
    # en_dtypes treats subnormal numbers differently
    x = x[np.abs(x) >= 2.0**-126].astype(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    assert to_codes(torch.from_numpy(x), dtype).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "name",
    [
        "binary8p3ue",
        "binary8p4uf",
        "binary6p6uf",
        "binary8p1ue",
        "binary4p2ue",
        "binary8p3se_propagate",
    ],
)
def test_p3109_as_gfloat(name):
    gfloat = pytest.importorskip("gfloat", reason="gfloat is the independent implementation")
    from gfloat.formats import format_info_p3109

    match = torch_dtypes.formats.naming._P3109.match(name)
    width, precision = int(match[1]), int(match[2])
    signed = gfloat.types.Signedness.Signed if match[3] == "s" else gfloat.types.Signedness.Unsigned
    info = format_info_p3109(
        width,
        precision,
        signed,
        gfloat.Domain.Extended if match[4] == "e" else gfloat.Domain.Finite,
    )
    fmt = torch_dtypes.format_of(name)
    values = _C.decode_exact(fmt, torch.arange(2**width)).numpy()
    expected = np.array([gfloat.decode_float(info, code).fval for code in range(2**width)])
    assert np.array_equal(values, expected, equal_nan=True)
    finite = np.sort(values[np.isfinite(values)])
    x = np.concatenate(
        [
            finite,
            (finite[1:] + finite[:-1]) / 2,
            np.nextafter(finite, np.inf),
            finite * 1.3,
            [finite[-1] * 8],
        ]
    )
    x = x if signed == gfloat.types.Signedness.Signed else x[x >= 0]
    for mode, theirs in {
        "nearest_even": "TiesToEven",
        "nearest_away": "TiesToAway",
        "up": "TowardPositive",
        "toward_zero": "TowardZero",
    }.items():
        fmt.rounding = getattr(_C.Rounding, mode)
        found = _C.decode_exact(fmt, _C.encode_exact(fmt, torch.from_numpy(x))).numpy()
        rounded = np.array(
            [
                gfloat.round_float(
                    info, float(v), getattr(gfloat.RoundMode, theirs), name.endswith("propagate")
                )
                for v in x
            ]
        )
        assert np.array_equal(found, rounded, equal_nan=True), mode
    if name.endswith("propagate"):
        infinite = _C.encode_exact(fmt, torch.tensor([math.inf, -math.inf], dtype=torch.float64))
        assert _C.decode_exact(fmt, infinite).tolist() == [math.inf, -math.inf]


def test_dlfloat16():
    dtype = torch_dtypes.dtype("dlfloat16")
    assert (
        dtype is torch_dtypes.float_format(6, 9, specials="fn", subnormals="normal")
        and str(dtype) == "torch.e6m9fn_normal"
    )
    values = from_codes(torch.arange(2**16), dtype).double()
    assert (
        values[1] == 2.0**-31 * (1 + 2.0**-9)
        and values[512] == 2.0**-30
        and values[0] == 0
        and values[0x7FFF].isnan()
    )
    assert values[0x7FFE] == 2.0**32 * (2 - 2.0**-8) and torch.finfo(dtype).tiny == values[1]


def test_a_network_trains_in_a_table():
    torch.manual_seed(0)
    dtype = torch_dtypes.takum_format(16)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        dtype
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x = torch.randn(64, 4).to(dtype)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4 and model[0].weight.grad.dtype is dtype


def test_sums_in_a_table():
    """Add up step by step and exactly, with irrational values too."""
    dtype = torch_dtypes.lns_format(4, 3)
    fmt = torch_dtypes.format_of(dtype)
    x = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    with torch_dtypes.accumulate("exact"):
        found = torch.dot(x, x)
    exact = sum(Fraction(v) ** 2 for v in x.double().tolist())
    assert codes_of(found).item() == of_definition(define("lns4_3")).encode(exact, "nearest_even")
    total = 0.0
    for v in x.double().tolist():
        product = _C.decode_exact(
            fmt, _C.encode_exact(fmt, torch.tensor([v * v], dtype=torch.float64))
        )
        total = _C.decode_exact(fmt, _C.encode_exact(fmt, product + total)).item()
    with torch_dtypes.accumulate("format"):
        assert torch.dot(x, x).double().item() == total


def test_cards_and_chop():
    c = torch_dtypes.card("hif8")
    assert (c.largest, c.smallest, c.finite, c.zeros, c.infinities, c.nans) == (
        2.0**15,
        2.0**-22,
        253,
        1,
        2,
        1,
    )
    assert torch_dtypes.chop(torch.tensor([0.3]), "nf4").item() == np.float32(0.33791524171829224)
    assert torch_dtypes.chop(0.3, "nf4", rounding="down") == 0.24611230194568634
    assert tapered.MAX_BITS == 16


def test_nextafter():
    dtype = torch_dtypes.dtype("hif8")
    x = torch.tensor([0.0, 1.0, 2.0**15, -(2.0**-22)], dtype=dtype)
    assert torch.nextafter(x, torch.full_like(x, math.inf)).double().tolist() == [
        2.0**-22,
        1.125,
        math.inf,
        0.0,
    ]
