"""Cholesky and LDL^T in a format, bit for bit against loops of rationals."""

import oracle_linalg
import pytest
import torch
from matrices import assert_table, gradients, matrix, table
from oracle import binary
from sums import FORMATS, dtype_of, every_format

from torch_dtypes import linalg, rounding


def definite(name, n, seed=0):
    """Return a positive definite matrix of the format whose upper triangle is another one's."""
    x = matrix("e11m52", n, n, seed).double() / 4
    near = torch.eye(n, dtype=torch.float64) + x @ x.T / n
    return (near.tril() + x.triu(1)).to(dtype_of(name))


@every_format
def test_cholesky(name):
    spec, a = FORMATS[name], definite(name, 6)
    for rule, policy in (
        (oracle_linalg.EveryStep(spec), None),
        (oracle_linalg.Exact(spec), "exact"),
    ):
        expected, info = oracle_linalg.cholesky(table(a, spec), rule)
        found = linalg.cholesky(a, accumulate=policy)
        assert found.info == info
        assert_table(found.L, expected, spec, policy)


@every_format
def test_ldl(name):
    spec, a = FORMATS[name], definite(name, 6, seed=1)
    for rule, policy in (
        (oracle_linalg.EveryStep(spec), None),
        (oracle_linalg.Exact(spec), "exact"),
    ):
        lower, diagonal = oracle_linalg.ldl(table(a, spec), rule)
        found = linalg.ldl(a, accumulate=policy)
        assert found.info == 0
        assert_table(found.L, lower, spec, policy)
        assert_table(found.D[:, None], [[d] for d in diagonal], spec, policy)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("e5m7", "down"),
        *(pytest.param("posit8es1", mode, marks=pytest.mark.whole) for mode in ("down", "up")),
    ],
)
def test_modes_across_panels(name, mode):
    """36 columns are a panel and a part of one."""
    spec = FORMATS.get(name) or binary(5, 7)
    a = torch.stack([definite(name, 36), definite(name, 36, seed=2)])
    rule = oracle_linalg.EveryStep(spec, mode)
    with rounding(mode):
        found, other = linalg.cholesky(a), linalg.ldl(a)
    assert_table(found.L[1], oracle_linalg.cholesky(table(a[1], spec), rule)[0], spec)
    lower, diagonal = oracle_linalg.ldl(table(a[1], spec), rule)
    assert_table(other.L[1], lower, spec)
    assert_table(other.D[1, :, None], [[d] for d in diagonal], spec)


@pytest.mark.parametrize("policy", [None, "exact"])
def test_indefinite_matrices_set_info(policy):
    a = torch.tensor([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]).to(torch.posit16es2)
    batch = torch.stack([a, torch.eye(3, dtype=a.dtype)])
    lower, info = linalg.cholesky(batch, accumulate=policy)
    assert info.tolist() == [2, 0]
    assert torch.equal(lower[0].float(), torch.tensor([[1.0, 0, 0], [2, 0, 0], [0, 0, 0]]))
    assert torch.equal(lower[1].float(), torch.eye(3))
    lower, pivots, info = linalg.ldl(batch, accumulate=policy)
    assert info.tolist() == [0, 0] and pivots[0].tolist() == [1, -3, 1]
    zero = linalg.ldl(torch.tensor([[0.0, 1], [1, 0]], dtype=torch.q43), accumulate=policy)
    assert zero.info == 1 and zero.L.isfinite().all()


def test_overflow_sets_info():
    large = torch.tensor([[2.0**-6, 200], [200, 1]], dtype=torch.q43)
    assert linalg.cholesky(large).info == 1
    assert linalg.ldl(large).info == 1


@pytest.mark.parametrize("policy", [None, "exact"])
def test_gradient(policy):
    a = definite("e11m40", 5, seed=3).double()
    a = torch.stack([a.tril() + a.tril(-1).mT, torch.eye(5, dtype=torch.float64)])
    (found,) = gradients(
        lambda a: linalg.cholesky(a, accumulate=policy).L, a.to(dtype_of("e11m40"))
    )
    (expected,) = gradients(torch.linalg.cholesky, a)
    assert torch.allclose(found.double(), expected, rtol=1e-8, atol=1e-9)


def ldl_by_stock_operators(a):
    """Return the lower factor, with D in the place of its diagonal of ones."""
    root = torch.linalg.cholesky(a)
    diagonal = torch.diagonal(root, dim1=-2, dim2=-1)
    return (root / diagonal[..., None, :]).tril(-1) + torch.diag_embed(diagonal**2)


@pytest.mark.parametrize("policy", [None, "exact"])
def test_gradient_of_ldl(policy):
    def both(a):
        lower, pivots, _ = linalg.ldl(a, accumulate=policy)
        return lower.tril(-1) + torch.diag_embed(pivots)

    a = definite("e11m40", 5, seed=3)
    a = torch.stack([a, a * 2])
    (found,) = gradients(both, a)
    (expected,) = gradients(ldl_by_stock_operators, a.double())
    assert torch.allclose(found.double(), expected, rtol=1e-8, atol=1e-9)


def test_gradient_without_factors_raises():
    a = torch.zeros(2, 2, dtype=torch.q43, requires_grad=True)
    for call in (linalg.cholesky, linalg.ldl):
        with pytest.raises(torch.linalg.LinAlgError, match="but got info \\[1\\]"):
            call(a).L.sum().backward()
