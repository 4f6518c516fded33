"""torch_dtypes.chop of Python integers: rounded once, from any number of bits."""

import math

import pytest
import torch
from rationals import Fraction

from torch_dtypes import ROUNDING_MODES, chop, with_rounding
from torch_dtypes import dtype as dtype_of

INTEGERS = [
    2**53 + 1,
    2**53 + 3,
    -(2**53 + 1),
    2**62 + 2**38 + 1,
    2**62 + 2**38,
    -(2**62 + 2**38 - 1),
    2**63 - 1,
    -(2**63),
    2**60 + 513,
    2**61 - 1,
]
FIXED = [m for m in ROUNDING_MODES if not m.startswith("stochastic") and m != "up_down"]


@pytest.mark.parametrize("mode", FIXED)
@pytest.mark.parametrize(
    "name",
    [
        "fp32",
        "q43",
        "posit16es2",
        "posit58es3",
        "e11m52",
        "e11m50",
        "e11m51",
        "e8m7",
        "fixed31_0",
        "fixed20_0_wrap",
    ],
)
def test_the_bits_of_an_integer_tensors_cast(name, mode):
    D = with_rounding(dtype_of(name), mode)
    for n in INTEGERS:
        found, expected = chop(n, name, mode), torch.tensor([n]).to(D).to(torch.float64).item()
        assert found == expected or (math.isnan(found) and math.isnan(expected)), (
            n,
            found,
            expected,
        )
        assert chop(n, D) == found or math.isnan(found)


@pytest.mark.parametrize("mode", FIXED)
@pytest.mark.parametrize("name", ["fp32", "e11m52", "e8m7", "e11m51"])
def test_beyond_64_bits(name, mode):
    """A float's numbers are the same ones between any two powers of two."""
    for n in INTEGERS:
        for power in (1, 40, 63):
            assert chop(n << power, name, mode) == chop(n, name, mode) * 2.0**power
            larger = chop((n << power) + 1, name, mode)
            if mode == "up":
                assert larger > n << power
            if mode == "down":
                assert larger <= n << power


def test_overflow():
    assert chop(10**400, "fp32") == math.inf and chop(-(10**400), "fp32") == -math.inf
    assert (
        chop(10**400, "fp32", "down") == torch.finfo(torch.float32).max
        and chop(2**1024, "e11m50", "up") == math.inf
    )
    assert chop(10**400, "posit16es2") == 2.0**56
    for name, n in (("fp64", 10**400), ("e7m52", 2**64 - 1), ("posit58es3", 2**70 + 1)):
        with pytest.raises(
            ValueError, match=r"expected an integer from -2\^63 .*; give chop a float"
        ):
            chop(n, name)
    assert chop(2**70, "posit58es3") == 2.0**70 and chop(10**22 + 1, "fp64") == 1e22


@pytest.mark.parametrize("name", ["fp32", "e11m52"])
def test_stochastic_rounding_keeps_the_mean(name):
    gap = 2 ** (62 - (23 if name == "fp32" else 52))
    n, generator = 2**62 + gap // 4 + 1, torch.Generator().manual_seed(1)
    found = [chop(n, name, "stochastic", generator) for _ in range(400)]
    share = sum(x > 2**62 for x in found) / len(found)
    assert set(map(Fraction, found)) == {2**62, 2**62 + gap} and abs(share - 0.25) < 5 * 0.44 / 20
    generator.manual_seed(1)
    assert found == [chop(n, name, "stochastic", generator) for _ in range(400)]


def test_integers_that_float64_has_are_floats():
    for mode in ROUNDING_MODES:
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        assert chop(12345, "q43", mode, generators[0]) == chop(12345.0, "q43", mode, generators[1])
    assert chop(2**53 + 1, "mxfp8_e4m3") == chop(2.0**53, "mxfp8_e4m3")
