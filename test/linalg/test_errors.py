"""Test matrices; errors against exact rationals; and factors against the bounds of theory."""

import math

import pytest
import torch
from rationals import Fraction
from sums import dtype_of

import torch_dtypes
from torch_dtypes import linalg


def fractions(t):
    return [[Fraction(x) for x in row] for row in t.tolist()]


def solve_exactly(a, b):
    a, b = fractions(a), fractions(b)
    n = len(a)
    for k in range(n):
        for i in range(n):
            if i != k:
                factor = a[i][k] / a[k][k]
                a[i] = [x - factor * y for x, y in zip(a[i], a[k], strict=True)]
                b[i] = [x - factor * y for x, y in zip(b[i], b[k], strict=True)]
    return [[x / a[i][i] for x in b[i]] for i in range(n)]


@pytest.mark.parametrize("cond", [10.0, 1e13])
def test_errors_are_exact(cond):
    torch.manual_seed(0)
    a, b = linalg.randsvd(6, cond), torch.randn(6, 2, dtype=torch.float64)
    x = torch.linalg.solve(a, b)
    exact = solve_exactly(a, b)
    expected = max(
        max(abs(Fraction(x[i, j].item()) - exact[i][j]) for i in range(6))
        / max(abs(exact[i][j]) for i in range(6))
        for j in range(2)
    )
    found = linalg.forward_error(torch.stack([a, a]), torch.stack([x, x]), torch.stack([b, b]))
    assert found.tolist() == pytest.approx([float(expected)] * 2, rel=1e-9)
    vector = linalg.forward_error(a, x[:, 0], b[:, 0])
    assert vector <= found[0] * (1 + 1e-9)

    rows, right, columns = fractions(a), fractions(b), fractions(x)
    r = [
        [right[i][j] - sum(rows[i][k] * columns[k][j] for k in range(6)) for j in range(2)]
        for i in range(6)
    ]
    size = max(sum(map(abs, row)) for row in rows)
    normwise = max(
        max(abs(r[i][j]) for i in range(6))
        / (size * max(abs(y[j]) for y in columns) + max(abs(y[j]) for y in right))
        for j in range(2)
    )
    assert linalg.backward_error(a, x, b).item() == pytest.approx(float(normwise), rel=1e-12)
    by_element = max(
        abs(r[i][j]) / (sum(abs(rows[i][k] * columns[k][j]) for k in range(6)) + abs(right[i][j]))
        for i in range(6)
        for j in range(2)
    )
    found = linalg.backward_error(a, x, b, kind="componentwise")
    assert found.item() == pytest.approx(float(by_element), rel=1e-12)


def test_errors_of_bad_operands():
    a, b = torch.ones(2, 2), torch.ones(2)
    with pytest.raises(torch.linalg.LinAlgError):
        linalg.forward_error(linalg.hilbert(20), torch.ones(20), torch.ones(20))
    with pytest.raises(ValueError, match="expected a "):
        linalg.backward_error(a, b, torch.ones(3))
    with pytest.raises(TypeError, match="expected real tensors"):
        linalg.backward_error(1, b, b)
    assert linalg.backward_error(a, 0 * b, 0 * b) == 0


@pytest.mark.parametrize(
    ("mode", "values"),
    [
        (1, [1, 0.01, 0.01]),
        (2, [1, 1, 0.01]),
        ("geometric", [1, 0.1, 0.01]),
        (4, [1, 0.505, 0.01]),
    ],
)
def test_randsvd(mode, values):
    for m in (3, 5):
        a = linalg.randsvd(3, 100, mode, m=m, generator=torch.Generator().manual_seed(1))
        assert torch.linalg.svdvals(a).tolist() == pytest.approx(values)
    again = linalg.randsvd(3, 100, mode, m=5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(a, again)


def test_matrices():
    assert 1 <= torch.linalg.cond(linalg.randsvd(4, 100, "logarithmic")) <= 101
    assert torch.linalg.cond(linalg.hilbert(6)) == pytest.approx(1.495e7, rel=1e-3)
    w = linalg.wilkinson(9)
    assert torch.linalg.lu(w).U[-1, -1] == 256 == linalg.lu(w, format="e8m7").U[-1, -1]
    n = 5
    for dimensions in (1, 2):
        values = 4 * torch.sin(torch.arange(1, n + 1) * math.pi / (2 * n + 2)).double() ** 2
        sums = values if dimensions == 1 else (values[:, None] + values).flatten()
        found = torch.linalg.eigvalsh(linalg.laplacian(n, dimensions))
        assert torch.allclose(found, sums.sort().values, atol=1e-6)
    t = linalg.toeplitz(torch.tensor([1, 2, 3]), torch.tensor([0, 5]))
    assert t.tolist() == [[1, 5], [2, 1], [3, 2]]
    for call in (
        lambda: linalg.randsvd(3, 0.5),
        lambda: linalg.randsvd(3, "large"),
        lambda: linalg.rounding_bound(3, "small"),
        lambda: linalg.randsvd(3, 2, "flat"),
        lambda: linalg.hilbert(0),
        lambda: linalg.laplacian(2, 4),
        lambda: linalg.toeplitz(torch.ones(2, 2)),
        lambda: linalg.rounding_bound(3, 0.1, certainty=1.0),
    ):
        with pytest.raises(ValueError, match="expected"):
            call()


def test_bounds():
    assert linalg.rounding_bound(100, 2.0**-11) == 100 / (2**11 - 100)
    assert linalg.rounding_bound(2**11, 2.0**-11) == math.inf
    # Higham and Mary, section 3: constants of some 4 to 6 for any sensible certainty.
    u = 2.0**-24
    ratio = linalg.rounding_bound(10**6, u, certainty=0.99) / (math.sqrt(10**6) * u)
    assert ratio == pytest.approx(math.sqrt(2 * math.log(200)), rel=1e-2)


@pytest.mark.parametrize(
    "count", [pytest.param(10, id="few"), pytest.param(500, marks=pytest.mark.whole, id="many")]
)
@pytest.mark.parametrize("name", ["e8m10", "e8m7"])
def test_factors_and_solutions_are_within_the_bounds(name, count):
    """LU, solutions and Cholesky (Higham 2002, theorems 9.3, 9.4 and 10.3)."""
    n, u = 24, torch_dtypes.card(name).epsilon / 2
    torch.manual_seed(1)
    a = torch.stack([linalg.randsvd(n, 10.0 ** (i % 5), 1 + i % 5) for i in range(count)])
    a = a.to(dtype_of(name))
    p, lower, upper, _, info = linalg.lu(a)
    p, lower, upper = p.double(), lower.double(), upper.double()
    size = lower.abs() @ upper.abs()
    assert not info.any()
    # Products of two such numbers are exact in float64, and their sums nearly.
    assert ((p.mT @ a.double() - lower @ upper).abs() <= linalg.rounding_bound(n, u) * size).all()

    b = torch.ones(count, n, 1, dtype=a.dtype)
    x = linalg.solve(a, b).double()
    r = (b.double() - a.double() @ x).abs()
    assert (r <= linalg.rounding_bound(3 * n, u) * (p @ (size @ x.abs()))).all()

    symmetric = torch.stack([linalg.laplacian(n)] * count)
    symmetric = symmetric + torch.rand(count, 1, 1) * torch.eye(n)
    symmetric = symmetric.to(a.dtype)
    lower, info = linalg.cholesky(symmetric)
    lower = lower.double()
    assert not info.any()
    bound = linalg.rounding_bound(n + 1, u) * (lower.abs() @ lower.abs().mT)
    assert ((symmetric.double() - lower @ lower.mT).abs() <= bound).all()
