"""torch.masked in formats with and without infinities: masked elements have no effect in either."""

import pytest
import torch
from torch import masked

import torch_dtypes

NAMES = ("posit16es2", "posit8es0", "e4m3fn", "fixed8_8", "q43", "e5m5")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "function", ["amax", "amin", "argmax", "argmin", "logsumexp", "softmax", "softmin", "norm"]
)
def test_masked_elements_count_for_nothing(name, function):
    x = torch.tensor([[-2.0, -1.0, -3.0], [4.0, 5.0, 6.0]]).to(torch_dtypes.dtype(name))
    mask = torch.tensor([[True, False, True], [True, True, False]])
    order = (float("-inf"),) if function == "norm" else ()
    found = getattr(masked, function)(x, *order, dim=1, mask=mask)
    expected = getattr(masked, function)(x.double(), *order, dim=1, mask=mask)
    if function.startswith("soft"):  # masked places are undefined
        found, expected = found[mask], expected[mask]
    assert torch.equal(found, expected.to(found.dtype))
    if not function.startswith("arg"):
        assert found.dtype is x.dtype


def test_of_masked_elements_alone():
    x, nothing = torch.tensor([2.0, 3.0]), torch.tensor([False, False])
    for dtype in (torch.posit16es2, torch_dtypes.dtype("e4m3fn")):
        assert masked.amax(x.to(dtype), mask=nothing) == torch.finfo(dtype).min
        assert masked.amin(x.to(dtype), mask=nothing) == torch.finfo(dtype).max
    assert masked.amax(x.to(torch.q43), mask=nothing) == float("-inf")
