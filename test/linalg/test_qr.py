"""QR, norms and condition numbers in a format, bit for bit against loops of rationals."""

import math

import oracle_linalg
import pytest
import torch
from matrices import assert_table, gradients, matrix, table
from oracle_sums import plus
from sums import FORMATS, dtype_of, every_format

from torch_dtypes import linalg


@pytest.mark.parametrize("sizes", [(5, 4), (4, 6)])
@every_format
def test_qr(name, sizes):
    if name == "fixed4_4":
        pytest.skip("quotients of this format have two digits: reflectors vanish")
    spec, a = FORMATS[name], matrix(name, *sizes, seed=1)
    rule = oracle_linalg.EveryStep(spec)
    q, r = oracle_linalg.qr(table(a, spec), rule)
    found = linalg.qr(torch.stack([a, a + a]))
    assert not found.info.any()
    assert_table(found.Q[0], q, spec, "Q")
    assert_table(found.R[0], r, spec, "R")


def test_qr_of_special_columns():
    """A column without a reflector, a zero one, and one whose squares underflow or overflow."""
    a = torch.tensor([[2.0, 0, 1], [0, 0, 2], [0, 0, 3]], dtype=torch.q43)
    q, r, info = linalg.qr(a)
    assert info == 0 and torch.equal(q.float(), torch.eye(3)) and torch.equal(r.float(), a.float())
    for x in (2.0**-8, 64.0):
        found = linalg.qr(torch.full((2, 2), x, dtype=torch.q43))
        assert found.info == 1
    assert linalg.qr(torch.ones(2, 3, 0, dtype=torch.q43)).R.shape == (2, 0, 0)
    with pytest.raises(NotImplementedError, match="detach"):
        linalg.qr(torch.eye(2, dtype=torch.q43).requires_grad_())


@pytest.mark.parametrize("policy", ["exact", "float64", "chunked(2)"])
def test_qr_by_other_policies(policy):
    a = matrix("posit16es2", 9, 5)
    q, r, info = (t.double() for t in linalg.qr(a, accumulate=policy))
    assert info == 0 and (q @ r - a.double()).abs().max() < 0.01
    assert (q.mT @ q - torch.eye(5)).abs().max() < 0.002


@every_format
def test_norms(name):
    spec, a = FORMATS[name], matrix(name, 4, 3, seed=2)
    rule, rows = oracle_linalg.EveryStep(spec), table(a, spec)

    def sums(lines):
        totals = []
        for line in lines:
            total = 0
            for x in line:
                total = rule.round(plus(total, abs(x)))
            totals.append(total)
        return max(totals)

    squares = oracle_linalg.dot([(x, x) for row in rows for x in row], rule)
    for ord, expected in (
        ("fro", rule.round(oracle_linalg.root(squares))),
        (1, sums(zip(*rows, strict=True))),
        (math.inf, sums(rows)),
    ):
        assert_table(linalg.norm(a, ord)[None, None], [[expected]], spec, ord)


def test_norms_and_condition_numbers():
    a = matrix("e11m40", 4, 4, seed=3)
    for ord in ("fro", 1, math.inf):
        for policy in (None, "exact", "float64"):
            expected = torch.linalg.norm(a.double(), ord)
            found = linalg.norm(torch.stack([a, a]), ord, accumulate=policy)
            assert torch.allclose(found.double(), expected, rtol=1e-9)
        expected = torch.linalg.cond(a.double(), ord)
        assert math.isclose(linalg.cond(a, ord).item(), expected, rel_tol=1e-7)
    assert linalg.norm(torch.tensor([3.0, 4]), format="q43").dtype == torch.float32
    (found,) = gradients(linalg.norm, a)
    (expected,) = gradients(torch.linalg.norm, a.double())
    assert torch.allclose(found.double(), expected, rtol=1e-8)
    with pytest.raises(ValueError, match="expected ord"):
        linalg.norm(a, 2)
    with pytest.raises(torch.linalg.LinAlgError):
        linalg.cond(torch.ones(2, 2, dtype=dtype_of("q43")))
