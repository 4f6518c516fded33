"""LU in posits, compared with another program: mtl5, on the Universal library's posits."""

import pytest
import torch

from torch_dtypes import linalg


@pytest.mark.slow
def test_as_mtl5_has_it():
    """Its factors can only be used, so solutions are compared (pip install mtl5): its substitutions
    add up products first, by ascending index, and subtract the sum from the right side."""
    mtl5 = pytest.importorskip("mtl5")
    dtype = torch.posit16es2

    def subtract_sum(start, row, x):
        total = torch.zeros((), dtype=dtype)
        for a, b in zip(row, x, strict=True):
            total = total + a * b
        return start - total

    for seed in range(30):
        n = 2 + seed % 15
        torch.manual_seed(seed)
        a, b = (torch.randn(*sizes).to(dtype) for sizes in ((n, n), (n,)))
        p, lower, upper, _, _ = linalg.lu(a)
        x = b[p.float().argmax(0)]
        for i in range(n):
            x[i] = subtract_sum(x[i], lower[i, :i], x[:i])
        for i in reversed(range(n)):
            x[i] = subtract_sum(x[i], upper[i, i + 1 :], x[i + 1 :]) / upper[i, i]
        factors = mtl5.lu(mtl5.convert(a.double().numpy(), "posit16"))
        found = factors.solve(mtl5.vector_posit16(b.double().numpy()))
        assert torch.equal(torch.tensor(found.to_numpy().tolist()), x.double()), seed
