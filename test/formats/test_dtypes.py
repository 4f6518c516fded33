"""The dtype objects: identity, names, properties, finfo, promotion; and that stock dtypes answer as
ever."""

import math
import pickle
import re
from pathlib import Path

import ml_dtypes
import pytest
import torch
from conftest import BUILTIN, parametrize_dtypes

import torch_dtypes
from torch_dtypes import _C

NAMES = [*BUILTIN, "posit12es1", "e4m3fn", "e3m2finite", "e11m20", "e11m30"]
STOCK_FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
STOCK_INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
every_dtype = parametrize_dtypes(NAMES)


# Identity and names


def power_of_two(text):
    return 2.0 ** int(text.removeprefix("2^")) if text.startswith("2^") else float(text)


def test_builtin_dtypes_are_those_of_the_page_in_order():
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "dtypes.md").read_text()
    rows = re.findall(
        r"^\| `torch\.(\w+)`[^|]*\| (\d+)(?: \((\d+)\))? \| (\S+) \| (\S+) \| 1 \+ (\S+) \|$",
        page,
        re.MULTILINE,
    )
    assert [str(d) for d in torch_dtypes.builtin_dtypes()] == [f"torch.{name}" for name, *_ in rows]
    for name, bits, stored, largest, smallest, step in rows:
        spec, dtype = BUILTIN[name], getattr(torch, name)
        assert (spec.bits, 8 * dtype.itemsize) == (int(bits), int(stored or bits))
        info, positive = (
            torch.finfo(dtype),
            torch.nextafter(torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)),
        )
        assert info.max == power_of_two(largest) or f"{info.max:.1e}".replace("+", "") == largest
        assert (positive.item(), info.eps) == (power_of_two(smallest), power_of_two(step))


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_dtype_is_an_attribute_of_torch(name):
    assert getattr(torch, name) is torch_dtypes.dtype(name)


@every_dtype
def test_is_a_dtype(dtype):
    assert type(dtype) is torch.dtype and isinstance(dtype, torch.dtype)
    assert torch_dtypes.is_format_dtype(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_repr_names_the_dtype_and_evaluates_to_it(name):
    dtype = torch_dtypes.dtype(name)
    assert repr(dtype) == str(dtype) == f"torch.{name}"
    assert eval(repr(dtype)) is dtype
    assert f"{dtype}" == repr(dtype)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (lambda: torch_dtypes.posit_format(16, 2), "posit16es2"),
        (lambda: torch_dtypes.posit_format(nbits=12, es=1), "posit12es1"),
        (lambda: torch_dtypes.float_format(4, 3), "q43"),
        (lambda: torch_dtypes.dtype("e4m3"), "q43"),
        (lambda: torch_dtypes.dtype("e5m2"), "q52"),
        (lambda: torch_dtypes.dtype("e8m10"), "tf32"),
        (lambda: torch_dtypes.float_format(exp_bits=5, man_bits=5), "e5m5"),
        (lambda: torch_dtypes.float_format(5, 5, bias=15), "e5m5"),
        (lambda: torch_dtypes.float_format(4, 3, specials="fn"), "e4m3fn"),
        (lambda: torch_dtypes.float_format(3, 2, specials="none"), "e3m2finite"),
        (
            lambda: torch_dtypes.float_format(3, 2, specials="none", overflow="saturate"),
            "e3m2finite",
        ),
    ],
)
def test_same_parameters_give_the_same_object(made, name):
    assert made() is made() is torch_dtypes.dtype(name)


def test_other_parameters_give_another_dtype():
    assert len({*map(torch_dtypes.dtype, NAMES), *STOCK_FLOATS}) == len(NAMES) + len(STOCK_FLOATS)
    assert torch_dtypes.dtype("e4m3fn") not in (torch.q43, torch.float8_e4m3fn)


@pytest.mark.parametrize("name", NAMES)
def test_is_a_dictionary_key(name):
    table = {torch_dtypes.dtype(n): n for n in NAMES}
    dtype = torch_dtypes.dtype(name)
    assert table[dtype] == name and torch.float32 not in table
    assert hash(dtype) == hash(torch_dtypes.dtype(name))
    assert dtype == dtype and dtype != torch.bfloat16 and dtype != str(dtype)


def test_is_a_case_of_a_match():
    def name(dtype):
        match dtype:
            case torch.posit16es2:
                return "posit"
            case torch.q43:
                return "float"
            case torch.bfloat16:
                return "stock"

    assert [name(d) for d in (torch.posit16es2, torch.q43, torch.bfloat16, torch.q52)] == [
        "posit",
        "float",
        "stock",
        None,
    ]


@every_dtype
def test_pickles_to_the_same_object(dtype):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(dtype, protocol)) is dtype


@parametrize_dtypes("float32 bfloat16 int64")
def test_stock_dtype_pickles_by_its_name(dtype):
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.__reduce__() == str(dtype).removeprefix("torch.")


# Properties


@pytest.mark.parametrize(
    ("name", "itemsize"),
    [
        ("posit8es1", 1),
        ("q43", 1),
        ("e3m2finite", 1),
        ("posit12es1", 2),
        ("posit16es2", 2),
        ("e5m5", 2),
        ("e8m4", 2),
        ("tf32", 4),
        ("posit32es2", 4),
        ("e11m20", 4),
        ("e11m30", 8),
    ],
)
def test_itemsize_is_the_width_rounded_up_to_a_power_of_two(name, itemsize):
    dtype = torch_dtypes.dtype(name)
    assert dtype.itemsize == itemsize
    t = torch.zeros(3, 5, dtype=dtype)
    assert t.element_size() == t.itemsize == itemsize
    assert t.nbytes == t.untyped_storage().nbytes() == 15 * itemsize
    # Typed storages, and so the DataLoader's workers, count in this size.
    assert torch._utils._element_size(dtype) == itemsize


@every_dtype
def test_is_a_signed_real_floating_dtype(dtype):
    assert (dtype.is_floating_point, dtype.is_complex, dtype.is_signed) == (True, False, True)
    t = torch.ones(2, dtype=dtype)
    assert t.dtype is dtype
    assert (t.is_floating_point(), t.is_complex(), t.is_signed()) == (True, False, True)
    assert (torch.is_floating_point(t), torch.is_complex(t), torch.is_signed(t)) == (
        True,
        False,
        True,
    )


@every_dtype
def test_has_no_complex_counterpart(dtype):
    assert dtype.to_real() is dtype
    with pytest.raises(
        TypeError, match=f"expected a dtype with a complex counterpart, but got {dtype}"
    ):
        dtype.to_complex()


def test_is_floating_point_says_no_to_a_dtype_as_ever():
    with pytest.raises(TypeError, match="must be Tensor"):
        torch.is_floating_point(torch.posit16es2)


# finfo


# width of a code, largest, epsilon, smallest normal number, decimal digits that survive
def finfo_of(spec):
    """By definition: bits, largest number, distance from 1 to the next one, smallest number of full
    precision, decimal digits."""
    # Useed = 2^2^es; the smallest regimes have no fraction bits, so that the smallest number stands
    # in.
    if spec.posit:
        largest, eps = (
            2.0 ** ((spec.bits - 2) << spec.exp_bits),
            2.0 ** (3 + spec.exp_bits - spec.bits),
        )
        smallest = 1 / largest
    else:
        bias, eps = 2 ** (spec.exp_bits - 1) - 1, 2.0**-spec.man_bits
        largest, smallest = (2 - eps) * 2.0**bias, 2.0 ** (1 - bias)
    return spec.bits, largest, eps, smallest, math.floor(-math.log10(eps))


FINFO = {
    **{name: finfo_of(spec) for name, spec in BUILTIN.items()},
    "posit12es1": (12, 2.0**20, 2.0**-8, 2.0**-20, 2),
    "e4m3fn": (8, 448.0, 2.0**-3, 2.0**-6, 0),
    "e3m2finite": (6, 28.0, 2.0**-2, 2.0**-2, 0),
    "e11m20": (32, (2 - 2.0**-20) * 2.0**1023, 2.0**-20, 2.0**-1022, 6),
    "e11m30": (42, (2 - 2.0**-30) * 2.0**1023, 2.0**-30, 2.0**-1022, 9),
}


@pytest.mark.parametrize("name", NAMES)
def test_finfo(name):
    bits, largest, eps, smallest, digits = FINFO[name]
    info = torch.finfo(torch_dtypes.dtype(name))
    # "The number of bits occupied by the type": torch counts bytes with it.
    assert info.bits == 8 * torch_dtypes.dtype(name).itemsize and type(info.bits) is int
    assert torch_dtypes.format_of(name).bits == bits
    assert (info.max, info.min, info.eps) == (largest, -largest, eps)
    assert info.smallest_normal == info.tiny == smallest
    assert info.resolution == pytest.approx(10.0**-digits, rel=1e-15)
    assert info.dtype == name
    assert type(info) is torch.finfo
    assert info == torch.finfo(torch_dtypes.dtype(name)) and info != torch.finfo(torch.float32)
    assert repr(info) == str(info) and f"dtype={name})" in repr(info)


@every_dtype
def test_the_ends_of_a_format(dtype):
    """Of tables and what rounds nothing to 0, too."""
    fmt = torch_dtypes.format_of(dtype)
    values = (
        _C.decode_exact(fmt, torch.arange(fmt.max_code + 1, device="cpu"))
        if fmt.bits <= 16
        else None
    )
    assert fmt.largest == torch.finfo(dtype).max
    if values is not None:
        assert fmt.smallest == values[(values > 0) & values.isfinite()].min()


def test_the_smallest_positive_number():
    flushed = torch_dtypes.float_format(5, 2, subnormals=False)
    others = [(name, None) for name in ("takum8_linear", "nf4", "binary8p3ue")]
    for spec, least in [("e8m0", 2.0**-127), (flushed, 2.0**-14), ("fixed4_4", 2.0**-4), *others]:
        fmt = torch_dtypes.format_of(spec)
        values = _C.decode_exact(fmt, torch.arange(1 << fmt.bits, device="cpu"))
        want = values[(values > 0) & values.isfinite()].min().item()
        assert fmt.smallest == want and least in (None, want), spec


@every_dtype
def test_finfo_limits_are_values_of_the_format(dtype):
    info = torch.finfo(dtype)
    for value in (info.max, info.min, info.eps, info.smallest_normal):
        assert torch.tensor(value, dtype=dtype).item() == value
    assert torch.tensor(1 + info.eps, dtype=dtype).item() == 1 + info.eps
    assert torch.tensor(1 + info.eps / 4, dtype=dtype).item() == 1


@pytest.mark.parametrize(
    ("name", "stock"),
    [
        ("e4m3fn", torch.float8_e4m3fn),
        ("q52", torch.float8_e5m2),
        ("e5m10", torch.float16),
        ("e8m7", torch.bfloat16),
        ("e8m23", torch.float32),
    ],
)
def test_finfo_agrees_with_the_stock_dtype_of_the_same_format(name, stock):
    ours, theirs = torch.finfo(torch_dtypes.dtype(name)), torch.finfo(stock)
    for attribute in "bits eps max min tiny smallest_normal resolution".split():
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute


def test_finfo_agrees_with_ml_dtypes():
    ours, theirs = torch.finfo(torch.q43), ml_dtypes.finfo(ml_dtypes.float8_e4m3)
    for attribute in "bits eps max min tiny smallest_normal".split():
        assert getattr(ours, attribute) == float(getattr(theirs, attribute)), attribute


def test_finfo_takes_its_argument_by_name():
    assert torch.finfo(type=torch.q43).max == 240


def test_finfo_of_stock_dtypes_is_unchanged():
    info = torch.finfo(torch.float32)
    assert (info.bits, info.eps, info.max, info.dtype) == (
        32,
        2.0**-23,
        float.fromhex("0x1.fffffep127"),
        "float32",
    )
    assert (
        repr(info).startswith("finfo(resolution=1e-06, min=-3.40282e+38,") and torch.finfo() == info
    )
    with pytest.raises(TypeError, match=r"iinfo"):
        torch.finfo(torch.int32)


# Promotion


@every_dtype
def test_promotion_with_stock_dtypes(dtype):
    for other in STOCK_INTEGERS:
        assert torch.promote_types(dtype, other) is torch.promote_types(other, dtype) is dtype
    wide = torch.float32 if torch_dtypes.format_of(dtype).fits_float else torch.float64
    # test_promotion.py says which have all numbers
    for other in [*STOCK_FLOATS, torch.complex64, torch.complex128]:
        found = torch.promote_types(dtype, other)
        assert found is torch.promote_types(other, dtype) and found in (
            other,
            torch.promote_types(other, wide),
        )
    assert torch.promote_types(dtype, dtype) is dtype


def test_two_formats_do_not_promote():
    for other in (torch.q52, torch_dtypes.dtype("posit12es1")):
        with pytest.raises(TypeError, match=f"two number formats, torch.q43 and {other}"):
            torch.promote_types(torch.q43, other)


@every_dtype
def test_promote_types_takes_keywords(dtype):
    assert torch.promote_types(type1=dtype, type2=torch.int8) is dtype


@every_dtype
def test_result_type_follows_the_categories(dtype):
    t, number = torch.ones(2, dtype=dtype), torch.tensor(1.0, dtype=dtype)
    fits = torch_dtypes.format_of(dtype).fits_float
    for other, expected in [
        (1.5, dtype),
        (2, dtype),
        (True, dtype),
        (torch.ones(2, dtype=torch.int64), dtype),
        (torch.ones(2, dtype=torch.bool), dtype),
        (torch.ones(2), torch.float32 if fits else torch.float64),
        (torch.tensor(1.0), dtype),
        (number, dtype),
        (torch.ones(2, dtype=torch.float64), torch.float64),
        (torch.tensor(1.0, dtype=torch.float64), dtype),
        (torch.ones(2, dtype=torch.complex64), torch.complex64 if fits else torch.complex128),
    ]:
        assert torch.result_type(t, other) is torch.result_type(other, t) is expected, other
        assert (t * other).dtype is (other * t).dtype is expected, other
    assert torch.result_type(number, torch.ones(2)) is torch.float32
    assert torch.result_type(number, torch.ones(2, dtype=torch.int64)) is dtype
    assert torch.result_type(number, 1.5) is dtype
    assert torch.result_type(tensor=t, other=1.5) is dtype


@every_dtype
def test_result_type_with_a_complex_number_is_the_operator_s(dtype):
    t = torch.ones(2, dtype=dtype)
    assert torch.result_type(t, 1j).is_complex
    assert torch.result_type(t, 1j) is torch.result_type(1j, t) is (t * 1j).dtype is (1j * t).dtype


@every_dtype
def test_can_cast_within_and_up_the_categories(dtype):
    for other in (*STOCK_FLOATS, torch.complex64, torch.q43, dtype):
        assert torch.can_cast(dtype, other) is True
    for other in STOCK_INTEGERS:
        assert torch.can_cast(dtype, other) is False
        assert torch.can_cast(other, dtype) is True
    for other in STOCK_FLOATS:
        assert torch.can_cast(other, dtype) is True
    assert torch.can_cast(torch.complex64, dtype) is False
    assert torch.can_cast(from_=dtype, to=torch.float32) is True


def test_stock_promotion_is_unchanged():
    assert torch.promote_types(torch.float16, torch.bfloat16) is torch.float32
    assert torch.promote_types(torch.int8, torch.uint8) is torch.int16
    assert torch.result_type(torch.ones(1, dtype=torch.int8), 1.0) is torch.float32
    assert torch.result_type(1, 2.0) is torch.float32
    assert (
        torch.can_cast(torch.float32, torch.int32) is False
        and torch.can_cast(torch.float64, torch.float16) is True
    )
    with pytest.raises(TypeError, match="argument 'type2'"):
        torch.promote_types(torch.float32, 1)


# Stock dtypes


@pytest.mark.parametrize(
    ("dtype", "answers"),
    [
        (torch.float32, (4, True, False, True)),
        (torch.bfloat16, (2, True, False, True)),
        (torch.float8_e5m2fnuz, (1, True, False, True)),
        (torch.uint8, (1, False, False, False)),
        (torch.bool, (1, False, False, False)),
        (torch.complex64, (8, False, True, True)),
    ],
    ids=str,
)
def test_stock_properties_are_unchanged(dtype, answers):
    assert (dtype.itemsize, dtype.is_floating_point, dtype.is_complex, dtype.is_signed) == answers
    assert not torch_dtypes.is_format_dtype(dtype)
    assert torch.zeros(1, dtype=dtype).dtype is dtype


def test_stock_counterparts_are_unchanged():
    assert (
        torch.float32.to_complex() is torch.complex64
        and torch.complex128.to_real() is torch.float64
    )
    assert torch.float16.to_real() is torch.float16


def test_format_of_says_what_a_dtype_is():
    f = torch_dtypes.format_of(torch.posit16es2)
    assert (str(f.kind), f.bits, f.es, f.itemsize) == ("Kind.posit", 16, 2, 2)
    f = torch_dtypes.format_of("e4m3fn")
    assert (f.bits, f.exp_bits, f.man_bits, f.bias, f.specials.name) == (8, 4, 3, 7, "fn")
    with pytest.raises(
        TypeError, match=r"expected a dtype of a number format, but got torch\.float32"
    ):
        torch_dtypes.format_of(torch.float32)


FIELDS = ("es", "exp_bits", "man_bits", "bias", "int_bits", "frac_bits")


@pytest.mark.parametrize(
    ("name", "own", "instead"),
    [
        ("posit16es2", {"es": 2}, "es"),
        ("q43_bias5", {"exp_bits": 4, "man_bits": 3, "bias": 5}, "exp_bits, man_bits or bias"),
        ("fixed3_4", {"int_bits": 3, "frac_bits": 4}, "int_bits or frac_bits"),
        ("takum16_log", {}, "bits or significand_bits"),
        ("takum32_linear", {}, "bits or significand_bits"),
    ],
)
def test_a_format_has_the_fields_of_its_kind(name, own, instead):
    f = torch_dtypes.format_of(name)
    assert {field: getattr(f, field) for field in own} == own
    before = {("posit", "exp_bits"): 2, ("posit", "man_bits"): 11}
    before |= {("fixed", "exp_bits"): 3, ("fixed", "man_bits"): 4}
    for field in set(FIELDS) - own.keys():
        if (f.kind.name, field) in before:
            warning = f"kind float for {field}, but got kind {f.kind.name}; use"
            with pytest.warns(DeprecationWarning, match=warning):
                assert getattr(f, field) == before[f.kind.name, field]
        else:
            error = f"for {field}, but got kind {f.kind.name}; use {instead}"
            with pytest.raises(AttributeError, match=error):
                getattr(f, field)
    if f.kind.name != "float":
        with pytest.raises(AttributeError, match="expected a format of kind float for bias"):
            f.bias = 3


def test_minifloat_options_have_names_that_bring_them_back():
    for name in ("e4m3fn_bias8_saturate", "e5m2_flush", "e2m1finite", "e5m3_biasminus3"):
        made = torch_dtypes.dtype(name)
        assert str(made) == f"torch.{name}" and torch_dtypes.dtype(name) is made
    assert torch.finfo(torch_dtypes.dtype("e2m1finite")).max == 6.0
    assert math.isclose(torch.finfo(torch_dtypes.dtype("e5m3_biasminus3")).smallest_normal, 2.0**4)


def test_formats_compare_with_anything():
    a, b = torch_dtypes.format_of("q43"), torch_dtypes.format_of("posit16es2")
    assert a == torch_dtypes.format_of("q43") and a != b and not a == b
    for other in (None, 3, "q43", torch.q43):
        assert a != other and not a == other and other != a
    assert None not in [a, b] and {a: 1}.get(None) is None


def test_a_line_break_is_no_part_of_a_name():
    for name in ("q43\n", "\n"):
        with pytest.raises(
            ValueError,
            match=f"expected the name of a number format, but got {re.escape(repr(name))}",
        ):
            torch_dtypes.dtype(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "q43_stochastik",
            r"another option after 'q43', but got 'stochastik' in 'q43_stochastik'\. Did you "
            r"mean 'q43_stochastic'\?",
        ),
        (
            "fp16_satrate_up",
            r"after 'fp16', but got 'satrate' in 'fp16_satrate_up'\. Did you mean "
            r"'fp16_saturate'\?",
        ),
        (
            "posit16es2_no_such_mode",
            r"after 'posit16es2', but got 'no_such_mode' .* The modes are nearest_even,",
        ),
        ("nonsense_up", "expected the name of a number format, but got 'nonsense_up'"),
    ],
)
def test_what_is_wrong_with_a_name_is_said_of_its_part(name, message):
    with pytest.raises(ValueError, match=message):
        torch_dtypes.dtype(name)


def test_numbers_in_names_of_tables_may_begin_with_zeros():
    assert torch_dtypes.dtype("lns03_3") is torch_dtypes.lns_format(3, 3)
    assert torch_dtypes.dtype("posit16es02_regime05_up") is torch_dtypes.posit_format(
        16, 2, regime_max=5, rounding="up"
    )


def test_a_table_with_infinities_is_a_format_with_infinities():
    hif8, none = torch_dtypes.dtype("hif8"), torch.zeros(3, dtype=torch.bool)
    x = torch.tensor([1.0, 2.0, 3.0]).to(hif8)
    assert torch.masked.amax(x, 0, mask=none).item() == -math.inf
    assert (
        torch.nn.Transformer.generate_square_subsequent_mask(2, dtype=hif8)[0, 1].item()
        == -math.inf
    )
    saturating = torch_dtypes.table_format(
        [0.0, 1.0, -1.0, math.inf, -math.inf], overflow="saturate"
    )
    assert torch.nn.Transformer.generate_square_subsequent_mask(2, dtype=saturating)[
        0, 1
    ].isfinite()


class Sees(torch.Tensor):
    """Has the data of another tensor, and says so."""

    seen: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*(getattr(t, "held", t) for t in args), **(kwargs or {}))


@parametrize_dtypes("bfloat16 posit16es2 q43")
def test_a_subclass_is_asked_for_its_dtype(dtype):
    x = torch.ones(3, dtype=dtype).as_subclass(Sees)
    Sees.seen.clear()
    assert x.dtype is dtype and Sees.seen == [torch.Tensor.dtype.__get__]
    x.held = torch.ones(3, dtype=torch.float64)
    assert x.dtype is torch.float64
    with torch._C.DisableTorchFunctionSubclass():
        assert x.dtype is dtype
    assert torch.nn.Parameter(torch.ones(3, dtype=dtype)).dtype is dtype
