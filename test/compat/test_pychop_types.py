"""Pychop's numbers, arrays and tensors: whatever they return and write is rounded."""

import copy
import pickle

import numpy as np
import pytest
import torch

from torch_dtypes.compat import pychop
from torch_dtypes.compat.pychop import builtin


def test_numbers_stay_rounded():
    half = pychop.Chop(exp_bits=5, sig_bits=10)
    a, b = pychop.CPFloat(1.234567, half), pychop.CPFloat(0.987654, half)
    assert (a + b).value == 2.22265625 and (3 - a).value == 1.765625
    product = half(half(a.value * b.value) / 2)
    assert (a * b / 2 - 0.1).value == half(product - 0.1) and (2**a).value == half(2**a.value)
    assert isinstance(np.sin(a), pychop.CPFloat) and np.sin(a).value == 0.94384765625
    assert a > b and a == 1.234375 and a != b and abs(-a) == a and float(a) == 1.234375
    assert (a == "1.234375") is False and complex(1, 2) + a == 2.234375 + 2j
    assert a.astype_precision(pychop.Chop(5, 2)).value == 1.25
    assert repr(a) == "CPFloat(1.234375, exp_bits=5, sig_bits=10)"
    with pytest.raises(ValueError, match="expected operands of one chopper, but got two"):
        a + pychop.CPFloat(1.0, pychop.Chop(5, 2))


def test_arrays_stay_rounded():
    chop = pychop.Chop(5, 2)
    a = pychop.CPArray(np.array([[1.1, 2.3], [0.7, -1.9]]), chop)
    plain = a.to_regular()
    for result, expected in (
        (a @ a, plain @ plain),
        (np.sum(a, axis=0), plain.sum(0)),
        (np.linalg.solve(a, a + 1), np.linalg.solve(plain, chop(plain + 1))),
        (np.concatenate([a, a]), np.concatenate([plain, plain])),
        (a * 0.3, plain * 0.3),
        (np.modf(a)[0], np.modf(plain)[0]),
    ):
        assert isinstance(result, pychop.CPArray)
        assert np.array_equal(result.to_regular(), chop(expected))
    assert np.sum(a) == chop(plain.sum()) and (a > 1).dtype == bool
    three = pychop.CPFloat(0.3, chop)
    for product in (three * a, a * three):
        assert isinstance(product, pychop.CPArray)
        assert np.array_equal(product.to_regular(), chop(plain * three.value))
    assert np.array_equal(three * plain, chop(plain * three.value))
    b = a.copy()
    b[0, 0], b[1] = 1.9, [1, 5.4]
    assert b.to_regular().tolist() == [[2.0, 2.5], [1.0, 5.0]]
    b.fill(1.1)
    np.copyto(b[:1], 2.3)
    assert b.to_regular().tolist() == [[2.5, 2.5], [1.0, 1.0]]
    assert np.array_equal(a.dot(a).to_regular(), chop(plain @ plain))
    a += 0.1
    assert np.array_equal(a.to_regular(), chop(plain)) and a[0, 0] == chop(1.1)
    assert np.array_equal(pickle.loads(pickle.dumps(a)).to_regular(), a.to_regular())
    with pytest.raises(ValueError, match="expected operands of one chopper"):
        a + pychop.CPArray([1.0, 2.0], pychop.Chop(5, 3))


def test_tensors_stay_rounded():
    chop = pychop.Chop(5, 2)
    x = torch.tensor([[1.1, 2.3], [0.7, -1.9]], requires_grad=True)
    a = pychop.CPTensor(x, chop)
    plain = chop(x.detach())
    for result, expected in (
        (a @ a, plain @ plain),
        (torch.nn.functional.gelu(a), torch.nn.functional.gelu(plain)),
        (a.sum(), plain.sum()),
        (a.chunk(2)[0] * 0.3, plain[:1] * 0.3),
    ):
        assert isinstance(result, pychop.CPTensor)
        assert torch.equal(result.detach().to_regular(), chop(expected))
    (a**2).sum().backward()
    assert torch.equal(x.grad, 2 * plain) and a.shape == (2, 2) and (a > 1).dtype == torch.bool
    b = pychop.CPTensor(torch.ones(3), chop)
    b += 0.2
    b[0] = 1.9
    assert b.to_regular().tolist() == [2.0, 1.25, 1.25] and type(b) is pychop.CPTensor
    out = torch.zeros(3)
    assert torch.add(b, 0.2, out=out) is out and out.tolist() == [2.0, 1.5, 1.5]
    b[:2].mul_(1.1)
    b.data[2] = 1.9
    assert b.tolist() == [2.0, 1.5, 2.0] and b[:1].data_ptr() == b.data_ptr()
    p = torch.nn.Parameter(b.clone())
    (p * p).sum().backward()
    assert type(p.grad) is torch.Tensor and p.grad is p.grad
    torch.optim.SGD([p], 0.1).step()
    assert type(p.to_regular()) is torch.Tensor and p.tolist() == chop(b - 0.1 * 2 * b).tolist()
    assert copy.deepcopy(b).tolist() == b.tolist()
    assert pickle.loads(pickle.dumps(b)).tolist() == b.tolist()
    assert repr(b).startswith("CPTensor(tensor([2.0000")
    assert isinstance(builtin.cast(2.2, chop), pychop.CPFloat)
    assert type(builtin.cast_precision(b, pychop.Chop(5, 3))) is pychop.CPTensor
