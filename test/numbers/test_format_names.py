"""Names of formats: parsing and printing, names from other projects, and formats under those names
against other implementations."""

import json

import new_process
import numpy as np
import oracle
import pytest
import torch
from conftest import OTHER_NAMES, from_codes, to_codes
from exact_codecs import float32_inputs, same_values, tensor
from oracle import MODES, binary, posit
from oracle_fixed import Fixed
from representatives import thin_out
from spec_formats import (
    FIXED_8,
    FIXED_WIDE,
    MIDDLE,
    SMALL,
    WIDE,
    assert_codes,
    format_of,
    name_of,
    p3109,
)

import torch_dtypes
from torch_dtypes import _C

ALL_MODES = torch_dtypes.ROUNDING_MODES
OWN_NAMES = {parameters: own for own, parameters in OTHER_NAMES.items()}


def canonical(spec, mode="nearest_even"):
    name = name_of(spec)
    name = OWN_NAMES.get(name, name)
    return name if mode == "nearest_even" else f"{name}_{mode}"


# ---- the grammar ----

ROUND_TRIPS = [
    (spec, ALL_MODES[i % len(ALL_MODES)])
    for i, spec in enumerate(dict.fromkeys([*SMALL, *MIDDLE, *WIDE, *FIXED_8, *FIXED_WIDE]))
]

# Makes dtypes from their names and from their parameters. It runs in a separate process, because a
# process has at most 64 dtypes.
SCRIPT = """
import json, pickle, sys
import torch, torch_dtypes
from torch_dtypes import _C

task = json.load(sys.stdin)
for name, make, arguments, options in task.get("made", []):
    dtype = torch_dtypes.dtype(name)
    again = getattr(torch_dtypes, make)(*arguments, **options)
    mode = options["rounding"]
    found = (
        _C.name_of(dtype),
        str(dtype),
        torch_dtypes.format_of(dtype).rounding.name,
        again is dtype,
        getattr(torch, name) is dtype,
        torch_dtypes.dtype(name) is dtype,
        pickle.loads(pickle.dumps(dtype)) is dtype,
        torch_dtypes.with_rounding(dtype, mode) is dtype,
    )
    if found != (name, "torch." + name, mode, True, True, True, True, True):
        print(name, found)
for alias, name in task.get("aliases", []):
    try:
        found = torch_dtypes.dtype(alias), torch_dtypes.dtype(name)
        if found[0] is not found[1] or _C.name_of(found[0]) != name:
            print(f"{alias}: {found[0]}, expected {name}")
    except ValueError as error:
        print(f"{alias}: {error}")
for name, *limits in task.get("limits", []):
    info = torch.finfo(torch_dtypes.dtype(name))
    if [info.max, info.min, info.eps, info.smallest_normal] != limits:
        print(f"{info}, expected {limits}")
"""


def in_own_process(**task):
    done = new_process.run("-c", SCRIPT, input=json.dumps(task))
    assert not done.stdout + done.stderr, done.stdout + done.stderr


def parameters(spec, mode):
    if isinstance(spec, Fixed):
        options = {
            "signed": spec.signed_codes,
            "overflow": spec.overflow,
            "symmetric": spec.symmetric,
        }
        return "fixed_format", (spec.int_bits, spec.frac_bits), options | {"rounding": mode}
    if spec.posit:
        return (
            "posit_format",
            (spec.bits, spec.exp_bits),
            {"underflow": spec.underflow, "infinity": spec.infinity, "rounding": mode},
        )
    options = {name: getattr(spec, name) for name in ("bias", "subnormals", "specials", "overflow")}
    return "float_format", (spec.exp_bits, spec.man_bits), options | {"rounding": mode}


@pytest.mark.parametrize("part", thin_out(range(3), 3))
def test_names_and_parameters_give_the_same_dtype(part):
    in_own_process(
        made=[
            (canonical(spec, mode), *parameters(spec, mode)) for spec, mode in ROUND_TRIPS[part::3]
        ]
    )


def test_every_mode_has_a_name():
    """Some names end like the name of another mode: up_down, stochastic_equal, nearest_zero."""
    in_own_process(
        made=[
            (canonical(spec, mode), *parameters(spec, mode))
            for spec in (binary(4, 3), Fixed(4, 3))
            for mode in ALL_MODES
        ]
    )


@pytest.mark.parametrize(
    "name",
    [
        "posit",
        "posit8",
        "posit8es",
        "posit8es9",
        "posit64es2",
        "posit8es2_underflows",
        "posit8es2_up_underflow_up",
        "e4",
        "e4m3fnu",
        "e12m3",
        "e1m3",
        "e11m0",
        "e4m3p3109x",
        "e5m2_wrap",
        "e5m2_odd",
        "e5m2__up",
        "e5m2_up_down_up",
        "q44",
        "fixed8",
        "fixed8_",
        "fixed33_0",
        "fixed16_16",
        "fixed0_0",
        "ufixed0_0",
        "ufixed20_13",
        "ufixed4_4_symmetric",
        "fixed4_4_symmetric_wrap",
        "sfixed4_4",
        "fixed-3_6",
        "fixedminus4_4",
        "fixedminus65_70",
        "binary8",
        "binary8p0se",
        "binary8p8se",
        "binary2p1se",
        "binary17p3se",
        "binary8p9ue",
        "binary8p3",
        "ocp_e4m4",
        "q43_wrap",
        "q43_saturate_saturate",
        "_flush",
        "posit8es2_flush",
        "binary2p1se_flush",
        "float32",
        "bfloat16x",
        "",
        "_up",
        "nearest_even",
        "POSIT8es",
        " q43",
        "e\u0663m\u0663",
        "posit\u0668es2",
        "q43\u00e9",
        "\ud800",
        "e" + "9" * 5000 + "m3",
    ],
    ids=ascii,
)
def test_names_of_nothing(name):
    before = _C.format_count()
    others = torch_dtypes.target, lambda name: torch_dtypes.chop(torch.ones(2), name)
    # Other functions accept the stock dtype float32 too.
    for ask in (torch_dtypes.dtype, *(others if name != "float32" else ())):
        with pytest.raises(ValueError, match="expected"):
            ask(name)
    assert _C.format_count() == before


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("e3m2finte", "e3m2finite"),
        ("e3m2none", "e3m2finite"),
        ("e4m3fnz_saturate", "e4m3fnuz_saturate"),
        ("posit16e2", "posit16es2"),
        ("posit_16_1", "posit16es1"),
    ],
)
def test_names_that_are_nearly_right(name, meant):
    for ask in (torch_dtypes.dtype, torch_dtypes.target):
        with pytest.raises(ValueError, match=rf"did you mean '{meant}'\?"):
            ask(name)


def test_the_message_tells_the_names_there_are():
    with pytest.raises(ValueError, match="e4m3fn_b128") as caught:
        torch_dtypes.target("e4m3fn_b128")
    assert "did you mean" not in str(caught.value)  # the same name
    with pytest.raises(ValueError, match=r"q44.*posit16es2.*q43.*fixed8_8.*q43_stochastic"):
        torch_dtypes.dtype("q44")
    with pytest.raises(
        TypeError, match="expected a dtype of a number format, or the name of one, but got 8"
    ):
        torch_dtypes.dtype(8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch_dtypes.posit_format(8, 2, underflow="maybe"), r"'minpos', 'zero'.*'maybe'"),
        (lambda: torch_dtypes.float_format(4, 3, specials="fnux"), r"'fnuz'.*'p3109'.*'fnux'"),
        (lambda: torch_dtypes.float_format(4, 3, overflow="wrap"), r"'ieee', 'saturate'.*'wrap'"),
        (lambda: torch_dtypes.float_format(1, 3), r"exp_bits from 2 to 11.* 1"),
        (lambda: torch_dtypes.float_format(0, 3, specials="fnuz"), r"exp_bits from 1 to 11.* 0"),
        (lambda: torch_dtypes.posit_format(8, 2, rounding="odd"), r"nearest_even.*to_odd.*'odd'"),
    ],
)
def test_impossible_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_dtypes_come_back_in_another_process(tmp_path):
    names = ["posit16es2_stochastic", "fixed8_7", "e4m3fnuz", "posit8es2_underflow"]
    torch.save(
        {name: torch.tensor([0.5, 1.25]).to(torch_dtypes.dtype(name)) for name in names},
        tmp_path / "x.pt",
    )
    script = (
        "import sys, torch; print([(k, str(v.dtype), v.tolist()) for k, v in "
        "torch.load(sys.argv[1], weights_only=True).items()])"
    )
    done = new_process.run("-c", script, tmp_path / "x.pt")
    assert done.stdout.strip() == str([(name, f"torch.{name}", [0.5, 1.25]) for name in names]), (
        done.stderr
    )


# ---- names from other projects ----


ALIASES = {
    "bf16": "e8m7",                 "fp16": "e5m10",                "half": "e5m10",
    "binary16": "e5m10",            "fp32": "e8m23",                "single": "e8m23",
    "binary32": "e8m23",            "fp64": "e11m52",               "double": "e11m52",
    "binary64": "e11m52",           "posit<16,1>": "posit16es1",    "posit<10, 2>": "posit10es2",
    "float<5,10>": "e5m10",         "ufixed<4,4>": "ufixed4_4",     "fixed<8,8>": "fixed8_8",
    "fixed<-3,6>": "fixedminus3_6", "tf32": "tf32",                 "e8m10": "tf32",
    "e4m3": "q43",                  "e5m2": "q52",                  "ocp_e4m3": "e4m3fn",
    "ocp_e5m2": "q52",              "ocp_e3m2": "e3m2finite",       "ocp_e2m3": "e2m3finite",
    "ocp_e2m1": "e2m1finite",       "binary8p3se": "e5m2p3109",     "binary8p3sf": "e5m2fnuz",
    "binary4p2se": "e2m1p3109",     "binary16p11sf": "e5m10fnuz",   "binary3p1se": "e2m0p3109",
}  # fmt: skip
LONGER = {
    "posit8es1_nearest_even": "posit8es1",
    "e4m3fnuz_bias8": "e4m3fnuz",
    "e4m3p3109_bias8": "e4m3p3109",
    "e3m2_bias3": "e3m2",
    "e3m2finite_saturate": "e3m2finite",
    "e5m2_bias15_up": "q52_up",
    "e8m10_down": "tf32_down",
}


def test_aliases():
    in_own_process(aliases=list(ALIASES.items()))


def test_p3109_names_as_the_draft_writes_them():
    assert torch_dtypes.dtype("Binary8p3se") is torch_dtypes.dtype("binary8p3se")
    assert torch_dtypes.format_of("Binary8p4uf_saturate") == torch_dtypes.format_of(
        "binary8p4uf_saturate"
    )


def test_names_that_say_more_than_they_must():
    in_own_process(aliases=list(LONGER.items()))


def test_aliases_take_a_rounding_mode():
    in_own_process(
        aliases=[
            ("bf16_up", "e8m7_up"),
            ("ocp_e5m2_stochastic", "q52_stochastic"),
            ("binary8p3sf_to_odd", "e5m2fnuz_to_odd"),
        ]
    )
    in_own_process(
        aliases=[
            ("binary16_up", "e5m10_up"),
            ("posit<16,1>_underflow_down", "posit16es1_underflow_down"),
            ("single_flush", "e8m23_flush"),
        ]
    )


def test_every_name_of_a_float_takes_its_options():
    in_own_process(
        aliases=[
            ("q43_flush", "e4m3_flush"),
            ("q52_saturate", "e5m2_saturate"),
            ("tf32_bias120_flush_saturate", "e8m10_bias120_flush_saturate"),
            ("binary8p4se_saturate", "e4m3p3109_saturate"),
            ("binary8p3sf_saturate_up", "e5m2fnuz_saturate_up"),
            ("fp16_flush", "e5m10_flush"),
            ("ocp_e4m3_saturate", "e4m3fn_saturate"),
            ("ocp_e2m1_saturate", "e2m1finite"),
            ("q52_bias15", "q52"),
            ("h_biasminus3", "e5m10_biasminus3"),
        ]
    )


def test_p3109_names_say_width_and_precision():
    """For example binary8p3: precision 3, thus 2 fraction bits and 5 exponent bits. 1.0 is the code
    in the middle of the positive ones."""
    dtype = torch_dtypes.dtype("binary8p3sf")
    fmt = torch_dtypes.format_of(dtype)
    assert (fmt.bits, fmt.exp_bits, fmt.man_bits, fmt.bias, fmt.specials) == (
        8,
        5,
        2,
        16,
        _C.Specials.fnuz,
    )
    x = torch.tensor([1.0, 0.0, -0.0, -1.0, 57344.0, -57344.0, float("nan"), float("inf")])
    assert to_codes(x, dtype).tolist() == [64, 0, 0, 192, 127, 255, 128, 128]


# ---- other implementations ----


@pytest.mark.parametrize("extended", [True, False], ids=["extended", "finite"])
@pytest.mark.parametrize(
    ("bits", "precision"),
    [
        *((8, p) for p in range(1, 8)),
        (3, 2),
        (4, 1),
        (4, 3),
        (5, 2),
        (6, 4),
        (10, 5),
        (12, 8),
        (16, 11),
    ],
)
def test_p3109_as_gfloat(bits, precision, extended):
    gfloat = pytest.importorskip("gfloat", reason="gfloat is the independent implementation")
    from gfloat.formats import format_info_p3109

    info = format_info_p3109(
        bits, precision, domain=gfloat.Domain.Extended if extended else gfloat.Domain.Finite
    )
    spec = p3109(bits, precision, "p3109" if extended else "fnuz")
    codes = np.arange(1 << bits)
    expected = np.array([gfloat.decode_float(info, int(c)).fval for c in codes])
    found = _C.decode_exact(format_of(spec), tensor(codes)).numpy()
    assert same_values(found, expected).all()
    x = oracle.table(spec).all_inputs()
    x = x if len(x) < 3000 else np.random.default_rng(0).choice(x, 3000)
    names = {
        "nearest_even": "TiesToEven",
        "nearest_away": "TiesToAway",
        "up": "TowardPositive",
        "down": "TowardNegative",
        "toward_zero": "TowardZero",
    }
    for mode, name in names.items():
        for saturate in (False, True):
            fmt = format_of(spec, mode)
            fmt.overflow = _C.Overflow.saturate if saturate else _C.Overflow.ieee
            # gfloat has the same values for NaN, infinity and saturated infinities. 0 is never
            # negative.
            with np.errstate(over="ignore"):
                expected = gfloat.round_ndarray(
                    info, x, getattr(gfloat.RoundMode, name), sat=saturate
                )
            found = _C.decode_exact(fmt, _C.encode_exact(fmt, tensor(x))).numpy()
            wrong = np.flatnonzero(~same_values(found, expected + 0.0))
            assert not len(wrong), (
                mode,
                saturate,
                len(wrong),
                [(x[i], found[i], expected[i]) for i in wrong[:5]],
            )


def test_finfo_as_gfloat():
    gfloat = pytest.importorskip("gfloat", reason="gfloat is the independent implementation")
    from gfloat.formats import format_info_p3109

    limits = []
    for bits, precision in ((8, 1), (8, 3), (8, 4), (6, 3), (10, 5), (4, 2)):
        for letter, domain in (("e", gfloat.Domain.Extended), ("f", gfloat.Domain.Finite)):
            info = format_info_p3109(bits, precision, domain=domain)
            limits.append(
                (
                    f"binary{bits}p{precision}s{letter}",
                    info.max,
                    info.min,
                    info.eps,
                    info.smallest_normal,
                )
            )
    in_own_process(limits=limits)


ML_DTYPES = {
    "float8_e4m3fnuz": binary(4, 3, specials="fnuz"),
    "float8_e5m2fnuz": binary(5, 2, specials="fnuz"),
    "float8_e4m3b11fnuz": binary(4, 3, specials="fnuz", bias=11),
}


@pytest.mark.parametrize("other", ML_DTYPES)
def test_fnuz_as_ml_dtypes(other):
    ml_dtypes = pytest.importorskip(
        "ml_dtypes", reason="ml_dtypes is the independent implementation"
    )
    spec, kind = ML_DTYPES[other], np.dtype(getattr(ml_dtypes, other))
    x = float32_inputs(oracle.table(spec).inputs())
    with np.errstate(all="ignore"):
        expected = x.astype(kind).view(np.uint8)
    assert_codes(
        _C.encode_exact(format_of(spec), tensor(x.astype(np.float64))),
        expected.astype(np.int64),
        spec,
        x,
    )
    codes = np.arange(256)
    found = _C.decode_exact(format_of(spec), tensor(codes)).numpy()
    assert same_values(found, codes.astype(np.uint8).view(kind).astype(np.float64)).all()


@pytest.mark.parametrize(
    ("stock", "name"),
    [(torch.float8_e4m3fnuz, "e4m3fnuz"), (torch.float8_e5m2fnuz, "e5m2fnuz")],
    ids=str,
)
def test_fnuz_as_stock_dtypes(stock, name):
    """Inputs are float32, which stock PyTorch rounds once."""
    dtype = torch_dtypes.dtype(name)
    x = tensor(float32_inputs(oracle.table(ML_DTYPES[f"float8_{name}"]).inputs()))
    x = x[x.abs() <= torch.finfo(stock).max]
    assert torch.equal(to_codes(x, dtype), x.to(stock).view(torch.uint8).long())
    codes = torch.arange(256)
    assert same_values(
        from_codes(codes, dtype).double().numpy(),
        codes.to(torch.uint8).view(stock).double().numpy(),
    ).all()
    info, theirs = torch.finfo(dtype), torch.finfo(stock)
    assert (info.max, info.min, info.tiny) == (theirs.max, theirs.min, theirs.tiny)
    # Stock 2.13 reports 0.125, but 1.25 is the next value after 1.
    assert info.eps == (0.25 if name == "e5m2fnuz" else theirs.eps)


def test_posits_that_underflow_differ_below_minpos_alone():
    spec, other = posit(8, 1), posit(8, 1, underflow="zero")
    x = oracle.table(spec).all_inputs()
    for mode in MODES:
        a = _C.encode_exact(format_of(spec, mode), tensor(x)).numpy()
        b = _C.encode_exact(format_of(other, mode), tensor(x)).numpy()
        assert (np.abs(x[a != b]) < 2.0**-12).all() and ((a != b).any() or mode == "to_odd")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bfloat16", "'bf16'"),
        ("float32", "'fp32'"),
        ("float8_e4m3fn", "'e4m3fn'"),
        ("float8_e5m2fnuz", "'e5m2fnuz'"),
    ],
)
def test_a_stock_dtypes_name_says_the_formats(name, words):
    with pytest.raises(ValueError, match=f"that is a stock dtype; .*{words}"):
        torch_dtypes.dtype(name)
