"""Operators that this package rewrites for format dtypes keep their meaning within torch.func: its
results have the bits of the eager call."""

import pytest
import torch
from conftest import parametrize_dtypes
from torch.func import grad
from torch.nn import functional as F

import torch_dtypes

every_dtype = parametrize_dtypes("posit16es2 q43 e11m30")


def lstm(x):
    torch.manual_seed(0)
    layer = torch.nn.LSTM(4, 3).to(x.dtype)
    return layer(x.reshape(1, 1, 4))[0]


CASES = {
    "combinations of none": lambda x: torch.combinations(x, 0),
    "combinations": lambda x: torch.combinations(x, 2),
    "float_power": lambda x: torch.float_power(x, 2),
    "float_power of a number": lambda x: torch.float_power(2, x),
    "float_power of two": lambda x: torch.float_power(x.abs(), x),
    "where, a number first": lambda x: torch.where(x > 0, 0.5, x),
    "where, a number second": lambda x: torch.where(x > 0, x, 0.5),
    "dropout of all": lambda x: F.dropout(x, 1.0),
    "alpha_dropout of all": lambda x: F.alpha_dropout(x, 1.0, training=True),
    "batch_norm of none": lambda x: F.batch_norm(
        x.reshape(1, 4)[:0], None, None, x[:4], x[:4], training=True
    ),
    "sparse.mm": lambda x: torch.sparse.mm(x.reshape(2, 2), x.reshape(2, 2)),
    "max": lambda x: x.max(0).values,
    "sort": lambda x: x.sort().values,
    "unfold": lambda x: x.unfold(0, 2, 1),
    "as_strided of none": lambda x: x.as_strided((0, 2), (2, 1)),
    "squeeze_": lambda x: x.clone().unsqueeze_(0).squeeze_(0),
    "transpose_": lambda x: x.reshape(2, 2).clone().transpose_(0, 1),
    "einsum": lambda x: torch.einsum("i,j->ij", x, x),
    "ger": lambda x: torch.ger(x, x),
    "nextafter": lambda x: torch.nextafter(x, x.new_zeros(())),
    "lstm": lstm,
}


def codes(t):
    return (
        t.dtype,
        t.shape,
        torch_dtypes.codes(t).tolist()
        if torch_dtypes.formats.is_format_dtype(t.dtype)
        else t.tolist(),
    )


@pytest.mark.parametrize("name", CASES)
@every_dtype
def test_grad_sees_the_eager_result(name, dtype):
    def f(x):
        y = CASES[name](x)
        # The first result depends on x, whatever y does.
        return y.double().sum() + 0 * x.double().sum(), y

    x = torch.tensor([0.5, -1.25, 2.0, 0.75]).to(dtype)
    with torch.no_grad():
        eager = CASES[name](x)
    gradient, seen = grad(f, has_aux=True)(x)
    assert codes(seen) == codes(eager)
    own = x.clone().requires_grad_()
    f(own)[0].backward()
    assert codes(gradient) == codes(own.grad)
