"""Compare stock tensors by all bits except those of NaN."""

import torch


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(a.signbit() & ~a.isnan(), b.signbit() & ~b.isnan())
