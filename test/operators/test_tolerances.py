"""Ranks, pseudoinverses and least squares: without a tolerance, the default is that of the format
dtype and not of the compute dtype."""

import pytest
import torch

import torch_dtypes

NAMES = ["posit16es2", "e5m5", "q43", "posit32es2"]


def rank_one(name, *batch):
    """Return outer products rounded to the format. Their other singular values are its rounding
    errors."""
    dtype = torch_dtypes.dtype(name)
    generator = torch.Generator().manual_seed(0)
    column, row = (
        torch.randn(*batch, *shape, generator=generator).to(dtype) for shape in ((6, 1), (1, 4))
    )
    return column @ row


def tolerance(a):
    return min(min(a.shape[-2:]) ** 0.5 * torch.finfo(a.dtype).eps, 0.5)


def small(a):
    """Return a tolerance below rounding errors of the format and above those of the compute
    dtype."""
    return tolerance(a) / 1000


@pytest.mark.parametrize("name", NAMES)
def test_rank(name):
    a = rank_one(name)
    assert torch.linalg.matrix_rank(a.double()) > 1
    assert torch.linalg.matrix_rank(a) == torch.linalg.matrix_rank(input=a) == 1
    assert torch.linalg.matrix_rank(a, hermitian=False).dtype is torch.int64
    assert torch.linalg.matrix_rank(rank_one(name, 3)).tolist() == [1, 1, 1]
    out = torch.zeros((), dtype=torch.int64)
    assert torch.linalg.matrix_rank(a, out=out) is out and out == 1
    symmetric = a.mT[:, :1] @ a[:1]
    assert torch.linalg.matrix_rank(symmetric, hermitian=True) == 1
    assert [torch.linalg.matrix_rank(torch.eye(n).to(a.dtype)) for n in (1, 4, 20, 100)] == [
        1,
        4,
        20,
        100,
    ]


@pytest.mark.parametrize("name", NAMES)
def test_given_tolerances_are_used(name):
    a = rank_one(name)
    t, rank = small(a), torch.linalg.matrix_rank
    full = rank(a.double(), rtol=t)
    assert full > 1
    assert (
        rank(a, rtol=t)
        == rank(a, t)
        == rank(a, tol=t)
        == rank(a, atol=t)
        == rank(a, atol=torch.tensor(t))
        == full
    )
    assert (
        rank(a, atol=0.0) == rank(a, atol=torch.tensor(0.0)) == rank(a, atol=None, rtol=None) == 1
    )
    assert rank(a, atol=1e3) == rank(a, rtol=2.0) == 0


@pytest.mark.parametrize("name", NAMES)
def test_pseudoinverse(name):
    a = rank_one(name)
    expected = torch.linalg.pinv(a.double(), rtol=tolerance(a)).to(a.dtype)
    for found in (
        torch.linalg.pinv(a),
        torch.pinverse(a),
        a.pinverse(),
        torch.linalg.pinv(a, hermitian=False),
    ):
        assert found.dtype is a.dtype
        assert (found.double() - expected.double()).abs().max() <= torch.finfo(
            a.dtype
        ).eps * expected.double().abs().max()
    junk = torch.linalg.pinv(a.double(), rtol=small(a)).to(a.dtype)
    assert torch.allclose(torch.linalg.pinv(a, small(a)).double(), junk.double(), rtol=0.02)
    assert torch.allclose(torch.pinverse(a, rcond=small(a)).double(), junk.double(), rtol=0.02)
    assert expected.double().abs().max() < 2 < junk.double().abs().max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("driver", [None, "gelsy", "gelsd", "gelss"])
def test_least_squares(name, driver):
    a = rank_one(name)
    b = torch.randn(6, 2, generator=torch.Generator().manual_seed(1)).to(a.dtype)
    found = torch.linalg.lstsq(a, b, driver=driver)
    expected = torch.linalg.lstsq(a.double(), b.double(), rcond=tolerance(a), driver=driver)
    assert found.rank == 1 and found.solution.dtype is a.dtype
    assert (found.solution.double() - expected.solution).abs().max() <= torch.finfo(
        a.dtype
    ).eps * expected.solution.abs().max()
    assert torch.linalg.lstsq(a, b, rcond=None, driver=driver).rank == 1
    if driver in ("gelsd", "gelss"):  # in gelsy the rank depends on the order of pivots
        t = small(a)
        assert (
            torch.linalg.lstsq(a, b, t, driver=driver).rank
            == torch.linalg.lstsq(a.double(), b.double(), t, driver=driver).rank
            > 1
        )


@pytest.mark.parametrize("name", NAMES)
def test_least_squares_without_a_right_hand_side(name):
    a = torch.eye(3).to(rank_one(name).dtype)
    b = torch.ones(2, 3, 0).to(a.dtype)
    for found in (
        torch.linalg.lstsq(a, b[0]),
        torch.linalg.lstsq(a, b=b[0]),
        torch.linalg.lstsq(a.expand(2, 3, 3), b),
    ):
        assert found.solution.dtype is a.dtype and found.solution.shape[-2:] == (3, 0)


def test_least_squares_are_the_same_at_every_call():
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(3, n, generator=generator).to(torch.q43) for n in (3, 2))
    expected = torch.linalg.lstsq(
        a.double(), b.double(), rcond=tolerance(a), driver="gelsd"
    ).solution.to(a.dtype)
    for pivots in range(12):
        memory = [torch.full((n,), pivots, dtype=torch.int32) for n in range(1, 9)]
        del memory  # its content decides the order of pivots in the driver gelsy
        assert torch.equal(torch.linalg.lstsq(a, b).solution, expected)


def test_gradients_and_errors():
    a = torch.eye(3).to(torch.posit16es2).requires_grad_()
    torch.linalg.pinv(a).sum().backward()
    assert a.grad.dtype is torch.posit16es2 and a.grad.isfinite().all()
    one = torch.ones(3).to(torch.posit16es2)
    for function in (
        torch.linalg.matrix_rank,
        torch.linalg.pinv,
        torch.pinverse,
        torch.Tensor.pinverse,
    ):
        with pytest.raises(RuntimeError, match=r"2 or more dim|matrix|2 dim"):
            function(one)
    with pytest.raises(RuntimeError, match="2 dim"):
        torch.linalg.lstsq(one, one)
    square = torch.eye(3).to(torch.posit16es2)
    assert torch.equal(torch.linalg.lstsq(square, square, driver="gels").solution, square)
