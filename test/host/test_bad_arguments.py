"""Impossible arguments, or arguments of another type: the errors of formats, policies and functions
name them."""

from decimal import Decimal

import numpy as np
import pytest
import torch

import torch_dtypes
from torch_dtypes import _C

X = torch.ones(4).to(torch.posit16es2)
LINEAR = torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch_dtypes.posit_format(65, 2), "expected nbits from 2 to 64, but got 65"),
        (
            lambda: torch_dtypes.posit_format(64, 2),
            "at most 53 significant bits, maxpos below 2\\^1024.*nbits=64, es=2: 60 significant "
            "bits",
        ),
        (
            lambda: torch_dtypes.posit_format(35, 5),
            "nbits=35, es=5: 28 significant bits, maxpos 2\\^1056; choose fewer bits",
        ),
        (lambda: torch_dtypes.posit_format(1, 0), "expected nbits from 2 to 64, but got 1"),
        (lambda: torch_dtypes.posit_format(16, 6), "expected es from 0 to 5, but got 6"),
        (lambda: torch_dtypes.posit_format(16, -1), "expected es from 0 to 5, but got -1"),
        (
            lambda: torch_dtypes.posit_format(16, 2, rounding="odd"),
            "expected a rounding mode, one of .*'nearest_even'.*but got 'odd'",
        ),
        (lambda: torch_dtypes.float_format(1, 2), "expected exp_bits from 2 to 11, but got 1"),
        (lambda: torch_dtypes.float_format(12, 2), "expected exp_bits from 2 to 11, but got 12"),
        (lambda: torch_dtypes.float_format(5, 53), "expected man_bits from 0 to 52, but got 53"),
        (lambda: torch_dtypes.float_format(5, 0), "expected man_bits of at least 1 .* but got 0"),
        (
            lambda: torch_dtypes.float_format(5, 2, specials="nan"),
            "expected specials .* 'ieee', 'fn', 'none', 'fnuz', 'p3109', but got 'nan'",
        ),
        (
            lambda: torch_dtypes.float_format(5, 2, overflow="wrap"),
            "expected overflow to be one of 'ieee', 'saturate', 'propagate', but got 'wrap'",
        ),
        (
            lambda: torch_dtypes.float_format(5, 2, bias=2000),
            "expected bias from -1022 to 1023, but got 2000",
        ),
        (
            lambda: torch_dtypes.float_format(11, 2, bias=-1000),
            "expected exponents of float64",
        ),
        (lambda: torch_dtypes.dtype("posit99es1"), "expected nbits from 2 to 64, but got 99"),
        (lambda: torch_dtypes.dtype("e12m3"), "expected exp_bits from 2 to 11, but got 12"),
        (
            lambda: torch_dtypes.dtype("float32"),
            "expected the name of a number format, but got 'float32'",
        ),
        (lambda: torch_dtypes.dtype(""), "expected the name of a number format, but got ''"),
        (
            lambda: torch_dtypes.dtype("posit16es2 "),
            "expected the name of a number format, but got 'posit16es2 '",
        ),
        (
            lambda: torch_dtypes.dtype("e4m3fn_saturate_saturate"),
            "another option after 'e4m3fn_saturate', but got 'saturate'",
        ),
        (lambda: torch_dtypes.dtype("posit" + "9" * 400 + "es1"), "expected"),
        (
            lambda: torch_dtypes.format_of("nothing"),
            "expected the name of a number format, but got 'nothing'",
        ),
    ],
)
def test_impossible_parameters_and_unknown_names(make, message):
    before = _C.format_count()
    with pytest.raises(ValueError, match=message):
        make()
    assert _C.format_count() == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch_dtypes.posit_format("16", 2),
        lambda: torch_dtypes.posit_format(16.5, 2),
        lambda: torch_dtypes.posit_format(True, 2),
        lambda: torch_dtypes.posit_format(16),
        lambda: torch_dtypes.float_format(5, None),
        lambda: torch_dtypes.float_format(5, 2, subnormals=1),
        lambda: torch_dtypes.float_format(5, 2, bias=1.5),
        lambda: torch_dtypes.dtype(16),
        lambda: torch_dtypes.dtype(None),
        lambda: torch_dtypes.format_of(torch.float32),
        lambda: torch_dtypes.format_of(3),
        lambda: torch_dtypes.float_format(5, 2, specials=["ieee"]),
    ],
)
def test_arguments_of_the_wrong_type(make):
    with pytest.raises(TypeError):
        make()


@pytest.mark.parametrize("flag", ["fused", "kahan", "product_limit"])
@pytest.mark.parametrize("value", ["False", "no", 0, 1, float("nan"), None])
def test_flags_of_policies_are_true_or_false(flag, value):
    policy = {"policy": "block", "terms": 4} if flag == "product_limit" else {"policy": "format"}
    for make in (torch_dtypes.Accumulation, torch_dtypes.accumulate):
        with pytest.raises(
            TypeError, match=f"expected True or False for {flag}, but got {value!r}"
        ):
            make(**policy, **{flag: value})


@pytest.mark.parametrize(
    "option", ["terms", "extra_bits", "late", "min_exponent", "chunk", "order", "rounding"]
)
def test_false_is_no_value_of_a_policys_option(option):
    with pytest.raises(TypeError, match=f"expected a value for {option}, or None, but got False"):
        torch_dtypes.Accumulation(**{"policy": "block", "terms": 4, option: False})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: torch_dtypes.chop(torch.ones(2), Decimal(3)),
            "expected a dtype of a number format, but got Decimal",
        ),
        (
            lambda: torch_dtypes.fuzzy(nested="no"),
            "expected True or False for nested, but got 'no'",
        ),
        (
            lambda: torch_dtypes.fuzzy(fused="no"),
            "expected True or False for fused, but got 'no'",
        ),
        (
            lambda: torch_dtypes.observe(LINEAR, 3).__enter__(),
            "expected formats as a list of dtypes or names, .* but got 3",
        ),
        (
            lambda: torch_dtypes.observe(LINEAR, torch.tensor(1)).__enter__(),
            "expected formats as a list of dtypes or names, .* a Tensor",
        ),
        (
            lambda: torch_dtypes.explain_divergence(LINEAR, optimizer=3),
            "expected an optimizer of the model, or None, but got 3",
        ),
        (
            lambda: torch_dtypes.explain_divergence(LINEAR, forward="x"),
            "expected forward as a function .* but got 'x'",
        ),
        (
            lambda: torch_dtypes.significant_digits([1.0, 2.0], probability=None),
            "expected a number between 0 and 1 for probability, but got None",
        ),
        (
            lambda: torch_dtypes.significant_digits([1.0, 2.0], confidence=X),
            "expected a number between 0 and 1 for confidence, but got a Tensor",
        ),
        (
            lambda: torch_dtypes.save_safetensors({}, "none", metadata=3),
            "expected metadata as a mapping of texts to texts, or None, but got 3",
        ),
        (
            lambda: torch_dtypes.save_safetensors({}, "none", codes="no"),
            "expected True or False for codes, but got 'no'",
        ),
        (lambda: torch.promote_types(torch.q43, None), "must be torch.dtype, not NoneType"),
        (lambda: torch.can_cast(torch.q43, X), "must be torch.dtype, not Tensor"),
    ],
)
def test_arguments_of_the_wrong_type_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_numpy_integers_are_integers():
    assert torch_dtypes.posit_format(np.int64(16), np.uint8(2)) is torch.posit16es2
