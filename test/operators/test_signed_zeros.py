"""Maximum and minimum of +0 and -0 (IEEE 754-2019, 9.6: maximum, minimum, maximumNumber,
minimumNumber)."""

import pytest
import torch

import torch_dtypes

FORMATS = ["q43", "e4m3fn", "e5m5", "tf32", "e11m40", "e4m3fnuz", "posit16es2"]
SIZES = [1, 3, 8, 17, 100, 70001]  # ends of vectors, and more than one thread
CALLS = {"maximum": max, "fmax": max, "minimum": min, "fmin": min}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("call", CALLS)
def test_zeros_of_two_signs(call, name):
    dtype, function = torch_dtypes.dtype(name), getattr(torch, call)
    choose = CALLS[call]
    pairs = [(a, b) for a in (0.0, -0.0, 1.0, -1.0) for b in (0.0, -0.0, 1.0, -1.0)]
    keys = {1.0: 2, -1.0: -2}
    for n in SIZES:
        for a, b in pairs if n < 70000 else pairs[:6]:
            x, y = (
                torch.full((n,), a, dtype=torch.float64).to(dtype),
                torch.full((n,), b, dtype=torch.float64).to(dtype),
            )
            ranked = [
                (keys.get(v, -1 if str(v)[0] == "-" else 1), v) for v in (x[0].item(), y[0].item())
            ]
            want = torch.full((n,), choose(ranked)[1], dtype=torch.float64).to(dtype)
            got = function(x, y)
            assert torch.equal(torch_dtypes.codes(got), torch_dtypes.codes(want)), (n, a, b)
            assert torch.equal(torch_dtypes.codes(function(x, y[:1])), torch_dtypes.codes(want))
            out = x.clone()
            assert torch.equal(
                torch_dtypes.codes(function(out, y, out=out)), torch_dtypes.codes(want)
            )


@pytest.mark.parametrize("call", CALLS)
def test_not_a_number_beside_a_zero(call):
    x, y = (
        torch.tensor([0.0, -0.0, float("nan")]).to(torch.q43),
        torch.tensor([float("nan")] * 3).to(torch.q43),
    )
    got = getattr(torch, call)(x, y)
    assert got.isnan().tolist() == [not call.startswith("f")] * 2 + [True]
    assert not call.startswith("f") or torch.signbit(got[:2].float()).tolist() == [False, True]


def test_beside_a_stock_tensor_and_expanded():
    x = torch.tensor([[-0.0], [0.0]]).to(torch.q43).expand(2, 9)
    got = torch.maximum(x, torch.full((9,), -0.0, dtype=torch.float64)[None].to(torch.q43))
    assert torch.equal(torch.signbit(got.float()), torch.tensor([[True], [False]]).expand(2, 9))
    y = torch.minimum(x, torch.zeros(9, dtype=torch.int64))  # integers have one zero
    assert torch.equal(torch.signbit(y.float()), torch.tensor([[True], [False]]).expand(2, 9))
