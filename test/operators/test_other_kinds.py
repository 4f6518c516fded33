"""What is no tensor of PyTorch's but says by ``__torch_function__`` what a call means, with a dtype of ours among the arguments."""

import pytest
import torch
import torch.nn.functional as F


class Wrapped:
    """Holds a tensor, and has none of its methods."""

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return cls(function(*(x.held if isinstance(x, cls) else x for x in args), **(kwargs or {})))


CALLS = {
    "sum": lambda x, d: torch.sum(x, dtype=d),
    "mean": lambda x, d: torch.mean(x, dtype=d),
    "cumsum": lambda x, d: torch.cumsum(x, 0, dtype=d),
    "softmax": lambda x, d: torch.softmax(x, 0, dtype=d),
    "log_softmax": lambda x, d: F.log_softmax(x, 0, dtype=d),
    "zeros_like": lambda x, d: torch.zeros_like(x, dtype=d),
    "empty_like": lambda x, d: torch.empty_like(x, dtype=d),
    "full_like": lambda x, d: torch.full_like(x, 2.0, dtype=d),
    "rand_like": lambda x, d: torch.rand_like(x, dtype=d),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_asked(name):
    x = torch.tensor([1.0, 2.0, 0.5])
    for dtype in (torch.bfloat16, torch.q43, torch.posit16es2):
        torch.manual_seed(0)
        found = CALLS[name](Wrapped(x), dtype)
        assert isinstance(found, Wrapped) and found.held.dtype is dtype
        torch.manual_seed(0)
        if name != "empty_like":
            assert torch.equal(found.held, CALLS[name](x, dtype))
