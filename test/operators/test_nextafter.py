"""torch.nextafter returns the next number of the format, checked against all its numbers in
order."""

import math

import pytest
import torch
from conftest import BUILTIN, codes_of, from_codes
from oracle import binary, posit
from oracle_fixed import Fixed
from spec_formats import by_name, dtype_of, p3109

import torch_dtypes

EIGHT = [
    *(spec for spec in BUILTIN.values() if spec.bits == 8),
    posit(8, 2, underflow="zero"),
    binary(4, 3, subnormals=False),
    binary(4, 3, specials="fn"),
    binary(2, 1, specials="none"),
    binary(3, 2, specials="fnuz", subnormals=False),
    p3109(8, 3),
    binary(5, 2, overflow="saturate"),
    Fixed(2, 3, symmetric=True),
    Fixed(4, 3),
    Fixed(3, 2, False, "wrap"),
]
SIXTEEN = [spec for spec in BUILTIN.values() if 8 < spec.bits <= 16] + [
    Fixed(7, 8, overflow="wrap")
]


def numbers(spec) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values of all codes in use, in order, and their codes. There is one zero, without
    a sign."""
    used = {
        float(v): code
        for code in range(2**spec.bits)
        if not math.isnan(v := spec.decode(code)) and str(v) != "-0.0"
    }
    if getattr(spec, "symmetric", False):
        used.pop(min(used))
    if spec.overflow == "saturate":
        used = {v: code for v, code in used.items() if not math.isinf(v)}
    values = sorted(used)
    return torch.tensor(values, dtype=torch.float64), torch.tensor([used[v] for v in values])


def with_signed_zeros(values, starts, dtype):
    """Return values in which zero reached from a negative number is minus zero, if the format has
    it."""
    minus_zero = torch.tensor(-0.0, dtype=torch.float64).to(dtype).double()
    return torch.where((values == 0) & (starts < 0), minus_zero, values)


def same(got: torch.Tensor, want: torch.Tensor):
    """Check values and the signs of zeros."""
    found = got.double()
    good = ((found == want) & (found.signbit() == want.signbit())) | (found.isnan() & want.isnan())
    assert good.all(), (
        f"{int((~good).sum())} of {len(want)}: got {found[~good][:5].tolist()}, expected "
        f"{want[~good][:5].tolist()}"
    )


@by_name(EIGHT)
def test_all_pairs(spec):
    dtype = dtype_of(spec)
    values, codes = numbers(spec)
    i, j = (
        t.flatten()
        for t in torch.meshgrid(torch.arange(len(values)), torch.arange(len(values)), indexing="ij")
    )
    want = with_signed_zeros(
        values[i + (j > i).long() - (j < i).long()], torch.where(i == j, 0, values[i]), dtype
    )
    same(torch.nextafter(from_codes(codes[i], dtype), from_codes(codes[j], dtype)), want)


@by_name(SIXTEEN)
def test_all_codes_up_and_down(spec):
    dtype = dtype_of(spec)
    values, codes = numbers(spec)
    x = from_codes(codes, dtype)
    same(
        torch.nextafter(x, x[-1]),
        with_signed_zeros(torch.cat([values[1:], values[-1:]]), values, dtype),
    )
    same(torch.nextafter(x, x[0]), torch.cat([values[:1], values[:-1]]))


@pytest.mark.parametrize("name", BUILTIN)
def test_ends_zeros_and_nan(name):
    dtype = getattr(torch, name)
    posits = name.startswith("posit")
    info = torch.finfo(dtype)
    largest, least = info.max, torch.ones(1, dtype=torch.int64)
    least = from_codes(least, dtype).double().item()
    inf, nan = float("inf"), float("nan")
    beyond = largest if posits else inf  # a posit's largest number has no neighbour above
    cases = [
        (largest, inf, beyond),
        (-largest, -inf, -beyond),
        (0.0, 1.0, least),
        (0.0, -1.0, -least),
        (-0.0, 1.0, least),
        (least, 0.0, 0.0),
        (-least, 0.0, 0.0 if posits else -0.0),
        (0.0, -0.0, 0.0 if posits else -0.0),
        (-0.0, 0.0, 0.0),
        (1.0, 1.0, 1.0),
        (nan, 1.0, nan),
        (1.0, nan, nan),
    ]
    if not posits:
        cases += [(inf, 0.0, largest), (-inf, 0.0, -largest), (inf, inf, inf), (inf, -inf, largest)]
    for start, towards, want in cases:
        target = torch.tensor([towards], dtype=dtype)
        if posits and math.isinf(towards):
            target = torch.tensor([math.copysign(largest, towards)], dtype=dtype)
        same(
            torch.nextafter(torch.tensor([start], dtype=dtype), target),
            torch.tensor([want], dtype=torch.float64),
        )


def test_variants_types_and_broadcasting():
    x = torch.tensor([[1.0], [2.0]], dtype=torch.posit16es2)
    y = torch.tensor([0.0, 1.0, 4.0], dtype=torch.posit16es2)
    z = torch.nextafter(x, y)
    assert z.dtype is torch.posit16es2 and z.shape == (2, 3)
    out = torch.empty(0, dtype=torch.posit16es2)
    assert torch.nextafter(x, y, out=out) is out and torch.equal(codes_of(out), codes_of(z))
    w = x.expand(2, 3).clone()
    assert w.nextafter_(y) is w and torch.equal(codes_of(w), codes_of(z))
    with pytest.raises(RuntimeError, match="expected operands that broadcast"):
        x.nextafter_(y)
    assert torch.nextafter(x, torch.tensor(3.0)).dtype is torch.posit16es2
    assert torch.nextafter(x, y.float()).dtype is torch.float32
    with pytest.raises(RuntimeError, match="expected tensors of one number format"):
        torch.nextafter(x, y.to(torch.q43))
    assert torch.nextafter(x.to("meta"), y.to("meta")).shape == (2, 3)


def test_stochastic_rounding_has_no_part_in_it():
    dtype = torch_dtypes.with_rounding(torch.q43, "stochastic")
    x = torch.tensor([1.0, -3.0], dtype=dtype)
    assert torch.nextafter(x, torch.zeros_like(x)).tolist() == [0.9375, -2.75]


def test_gradient_goes_to_the_number():
    x = torch.tensor([1.0, 2.0], dtype=torch.posit16es2, requires_grad=True)
    y = torch.tensor([3.0, 2.0], dtype=torch.posit16es2, requires_grad=True)
    torch.nextafter(x, y).sum().backward()
    assert x.grad.dtype is y.grad.dtype is torch.posit16es2
    assert x.grad.tolist() == [1.0, 0.0] and y.grad.tolist() == [0.0, 0.0]
    z = x.clone().nextafter_(y)
    (g,) = torch.autograd.grad(z.sum(), x)
    assert g.dtype is torch.posit16es2 and g.tolist() == [1.0, 0.0]
