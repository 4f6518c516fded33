"""Complex numbers in layers with rules: an error where they would be rounded, since formats have
none."""

import copy

import pytest
import torch
from torch import nn

from torch_dtypes import chop, quantize_


class Spectrum(nn.Module):
    """Complex numbers go in or come out, and pass a product by a real weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.fft.fft(x) * self.weight


COMPLEX = torch.complex(torch.ones(2, 4), torch.ones(2, 4))
OF_COMPLEX = {
    "activation": (nn.Tanh, dict(activation="q43"), COMPLEX),
    "a scaled activation": (nn.Tanh, dict(activation={"format": "int8", "when": "call"}), COMPLEX),
    "output": (nn.Tanh, dict(output="mxfp4"), COMPLEX),
    "an output made of real inputs": (Spectrum, dict(output="q43"), torch.ones(2, 4)),
    "an error": (Spectrum, dict(error="q43"), torch.ones(2, 4)),
    "everything": (nn.Tanh, torch.q43, COMPLEX),
    "sums": (Spectrum, dict(weight="q43", accumulate="exact"), COMPLEX),
}


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_complex_numbers_do_not_pass_unrounded(name):
    kind, rule, x = OF_COMPLEX[name]
    model = nn.Sequential(quantize_(kind(), {kind: rule}))
    with pytest.raises(
        TypeError,
        match=r"expected a tensor of real numbers .*, but got one of torch\.complex64: formats "
        r"hold real numbers",
    ):
        model(x)


def test_complex_numbers_that_nothing_is_said_of_pass():
    x, layer = torch.ones(2, 4), Spectrum()
    plain = copy.deepcopy(layer)
    plain.weight.data = chop(plain.weight.data, "q43")
    quantize_(layer, {Spectrum: dict(weight="q43")})
    assert torch.equal(layer(COMPLEX), plain(COMPLEX))
    # A complex result, whose gradient comes back.
    quantize_(layer, {Spectrum: dict(weight="q43", activation="q43", accumulate="exact")})
    for made in (layer, plain):
        made(x).abs().sum().backward()
    assert torch.equal(layer.weight.grad, plain.weight.grad)
    with pytest.raises(
        ValueError,
        match=r"batch 0, .*: expected a tensor of real numbers to round .output., but got one of "
        r"torch\.complex64",
    ):
        quantize_(Spectrum(), {Spectrum: dict(output="int8")}, calibrate=[x])
