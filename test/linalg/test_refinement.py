"""Iterative refinement: each step against loops of rationals, and the convergence that theory
promises."""

import math

import oracle_refinement as oracle
import pytest
import torch
from oracle import binary
from oracle_linalg import EveryStep, Exact
from rationals import Fraction
from sums import FORMATS

from torch_dtypes import accumulate, linalg, rounding
from torch_dtypes.linalg import pairs

RULES = {
    "q43": EveryStep(FORMATS["q43"]),
    "fp32": EveryStep(binary(8, 23)),
    "fp64": EveryStep(binary(11, 52)),
    "posit8es1": EveryStep(FORMATS["posit8es1"]),
    "posit16es2": EveryStep(FORMATS["posit16es2"]),
    "posit32es2": EveryStep(FORMATS["posit32es2"]),
}
BEST = {"q43": Fraction(24), "posit8es1": Fraction(1)}  # a tenth of the largest number; 1


def fractions(t):
    return [Fraction(x) for x in t.tolist()] if t.dim() == 1 else [fractions(row) for row in t]


def system(n, cond=10.0, definite=False, seed=0):
    """Return a matrix, the solution of ones and near to it the right-hand side."""
    generator = torch.Generator().manual_seed(seed)
    a = linalg.randsvd(n, cond**0.5 if definite else cond, generator=generator)
    a = a @ a.mT if definite else a
    x = torch.ones(n, dtype=torch.float64)
    return a, a @ x, x


whole_posit = pytest.param(
    "posit8es1", "posit16es2", "posit32es2", None, marks=pytest.mark.whole, id="posits"
)
whole_exact = pytest.param("q43", "fp32", "fp64", "exact", marks=pytest.mark.whole, id="exact")


@pytest.mark.parametrize(
    ("factor", "working", "residual", "policy"),
    [pytest.param("q43", "fp32", "fp64", None, id="floats"), whole_posit, whole_exact],
)
@pytest.mark.parametrize("method", ["lu", "gmres", "cg"])
def test_each_step_is_rounded(method, factor, working, residual, policy):
    a, b, _ = system(4, definite=method == "cg")
    scales = torch.tensor([8.0, 0.5, 1, 3]).double()
    a = scales[:, None] * a * (scales if method == "cg" else 1)
    options = {"factor": factor, "working": working, "residual": residual, "apply": residual}
    options |= {"method": method, "accumulate": policy, "max_inner_steps": 3}
    endless = {"tolerance": 1e-300, "inner_tolerance": 1e-300}
    rule, narrow, wide = RULES[working], RULES[factor], RULES[residual]
    narrow = Exact(narrow.spec) if policy else narrow
    rows, right = fractions(a), fractions(b)
    factors = oracle.Factors(rows, narrow, BEST[factor], symmetric=method == "cg")
    held = oracle.rounded(wide, rows)

    def multiply(v):
        v = [wide.round(x) for x in v]
        return [oracle.dot(list(zip(row, v, strict=True)), wide) for row in held]

    def solve(v):
        return [rule.round(x) for x in factors.solve(v, wide)]

    def correct(r):
        if method == "lu":
            return factors.solve(r, narrow)
        if method == "cg":
            return oracle.cg(lambda v: [rule.round(x) for x in multiply(v)], solve, r, rule, 3)
        start = factors.solve(r, wide)
        p = oracle.power_below(1, oracle.largest(start))
        start = [rule.round(p * x) for x in start]
        return [x / p for x in oracle.gmres(lambda v: solve(multiply(v)), start, rule, 3)]

    # A correction mends what is wrong with the solution before, so both are compared.
    for steps, expected in enumerate(oracle.refine(rows, right, correct, rule, wide, 1)):
        found = linalg.refine(a, b, max_steps=steps, **options, **endless)
        assert found.steps == steps and found.reason.startswith("stopped")
        assert fractions(found.x) == [Fraction(x) for x in expected]


@pytest.mark.parametrize("mode", ["nearest_even", "up"])
def test_float64_sums_from_left_to_right(mode):
    x = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rule, total = EveryStep(binary(11, 52), mode), Fraction(0)
    for value in fractions(x):
        total = rule.round(total + value)
    with rounding(mode):
        assert Fraction(linalg.norm(x, 1, format="fp64").item()) == total


@pytest.mark.parametrize("upper", [False, True])
def test_pairs_have_twice_the_digits(upper):
    n = 7
    a, b, _ = system(n)
    a = (a.triu() if upper else a.tril()) + torch.eye(n, dtype=torch.float64)
    rows, right = fractions(a), fractions(b)

    def values(pair):
        high, low = (fractions(t.flatten()) for t in pair)
        return [x + y for x, y in zip(high, low, strict=True)]

    def assert_product(result, x):
        for row, y in zip(rows, result, strict=True):
            terms = [t * z for t, z in zip(row, x, strict=True)]
            assert abs(y - sum(terms)) <= Fraction(2.0**-98) * sum(map(abs, terms))

    assert_product(values(pairs.multiply_pairs(a, b[:, None])), right)
    start = b[:, None], b[:, None].flip(0) * 2.0**-60
    x = pairs.substitute_pairs(a, start, upper=upper)
    assert_product(values(start), values(x))
    assert x[1].any()


def test_lu_converges_while_the_condition_times_u_is_small():
    a, b, x = system(24, 500.0)
    options = {"factor": "fp16", "working": torch.float32, "residual": torch.float64}
    found = linalg.refine(a, b, x_true=x, tolerance=2.0**-30, **options)
    assert found.converged and found.reason.startswith("converged")
    assert found.x.dtype == torch.float32 and found.inner_steps is None
    assert found.forward_errors[-1] <= 2.0**-23  # the working precision's, not cond(A) times it
    assert len(found.backward_errors) == len(found.forward_errors) == found.steps + 1
    assert found.backward_errors[-1] == linalg.backward_error(a, found.x, b)
    # A residual of the working precision leaves cond(A) u (Higham 2002, section 12.1).
    fixed = linalg.refine(a, b, x_true=x, factor="fp16", working="fp32", residual="working")
    assert fixed.converged and 2.0**-23 < fixed.forward_errors[-1] < 500 * 2.0**-22
    twice = linalg.refine(a, b, factor="fp16", working=torch.float64, tolerance=1e-300)
    assert linalg.forward_error(a, twice.x, b) <= 2.0**-52


@pytest.mark.parametrize("working", [torch.float32, torch.float64])
def test_gmres_converges_where_lu_does_not(working):
    a, b, x = system(20, 1e8)
    found = linalg.refine(a, b, factor="fp16", working=working, method="lu", x_true=x)
    assert not found.converged and found.reason.startswith(("diverged", "stalled"))
    found = linalg.refine(a, b, factor="fp16", working=working, method="gmres", x_true=x)
    assert found.converged and found.forward_errors[-1] < 0.01
    assert len(found.inner_steps) == found.steps + 1 and max(found.inner_steps) <= 20


@pytest.mark.parametrize("factor", ["fp16", "posit16es2"])
def test_squeezing_brings_a_matrix_into_range(factor):
    a, b, x = system(16, 20.0)
    rows, columns = (2.0 ** torch.linspace(-k, 30, 16).round().double() for k in (10, 5))
    a, b = rows[:, None] * a * columns, rows * b
    found = linalg.refine(a, b, factor=factor, x_true=x / columns, tolerance=2.0**-50)
    assert found.converged
    found = linalg.refine(a, b, factor=factor, scale=None)
    assert not found.converged
    if factor == "fp16":
        assert "overflow in column 1" in found.reason and not found.x.any()


def test_cg():
    a = linalg.laplacian(6, 2)
    b = a.sum(1)
    steps = {}
    for name in ("float32", "posit16es2"):
        found = linalg.cg(a, b, working=name)
        assert found.converged and found.x.dtype == getattr(torch, name)
        steps[name] = found.inner_steps[0]
        assert linalg.gmres(a, b, working=name).converged
    assert linalg.gmres(a, b, working="float32", max_inner_steps=1).reason.startswith("stalled")
    found = linalg.refine(a, b, factor="fp16", working="float32", method="cg")
    assert found.converged and found.inner_steps[0] < steps["float32"]
    indefinite = torch.tensor([[1.0, 2], [2, 1]])
    for factor, reason in (("fp16", "not positive"), ("none", "is 0")):
        found = linalg.refine(indefinite, torch.tensor([1.0, -1]), factor=factor, method="cg")
        assert not found.converged and reason in found.reason


@pytest.mark.parametrize("method", ["lu", "gmres", "cg"])
def test_other_ends(method):
    b = torch.ones(2)
    options = {"factor": "fp16", "method": method}
    found = linalg.refine(torch.ones(2, 2), b, **options)
    assert "column 2" in found.reason and found.backward_errors == (1,) and found.steps == 0
    found = linalg.refine(torch.tensor([[1, math.nan], [0, 1]]), b, **options)
    assert not found.converged and "NaN" in found.reason and not found.x.any()
    found = linalg.refine(torch.eye(2), 0 * b, **options)
    assert found.converged and not found.x.any() and found.backward_errors == (0,)
    found = linalg.refine(torch.eye(2) / 8, 2.0**15 * b, working="fp16", **options)
    assert not found.converged and "overflow" in found.reason
    found = linalg.refine(torch.eye(2), b, max_steps=0, tolerance=1e-300, **options)
    assert found.converged and found.steps == 0


def test_options_reach_their_steps():
    a, b, _ = system(12, 1e3)
    one = linalg.refine(a, b, factor="bf16", kind="componentwise", max_steps=1)
    assert one.backward_errors[1] == linalg.backward_error(a, one.x, b, kind="componentwise")
    other = linalg.refine(a, b, factor="bf16_up", max_steps=1)
    assert not torch.equal(one.x, other.x)
    # The surrounding block's policy is that of all formats.
    exact = linalg.refine(a, b, factor="bf16", accumulate="exact", max_steps=1)
    with accumulate("exact"):
        assert torch.equal(linalg.refine(a, b, factor="bf16", max_steps=1).x, exact.x)
    assert not torch.equal(one.x, exact.x)


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"factor": "fp17"}),
        (ValueError, {"factor": "none"}),
        (ValueError, {"factor": "fp16", "method": "qr"}),
        (ValueError, {"factor": "fp16", "scale": "large"}),
        (ValueError, {"factor": "fp16", "working": "fixed8_0"}),
        (ValueError, {"factor": "fp16", "tolerance": 0}),
        (ValueError, {"factor": "fp16", "x_true": torch.ones(3)}),
        (ValueError, {"factor": "fp16", "b": torch.ones(2, 1)}),
        (ValueError, {"factor": "fp16", "a": torch.ones(2, 3)}),
        (ValueError, {"factor": "fp16", "a": torch.eye(2).roll(1, 0).triu(), "method": "cg"}),
        (TypeError, {"factor": "fp16", "a": torch.ones(2, 2).int()}),
        (TypeError, {"factor": "fp16", "a": torch.eye(2).to_sparse()}),
        (TypeError, {"factor": "int8"}),
        (NotImplementedError, {"factor": "fp16", "b": torch.ones(2, requires_grad=True)}),
    ],
)
def test_bad_arguments(error, options):
    with pytest.raises(error, match="expected"):
        linalg.refine(**{"a": torch.eye(2), "b": torch.ones(2)} | options)


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    a = linalg.laplacian(8)
    found = linalg.refine(a, a.sum(1), factor="fp16", x_true=torch.ones(8))
    assert found.backward_errors[-1] == 0  # which has no logarithm
    found.save(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
