"""LU factorisation and substitution in a format, bit for bit against loops of rationals."""

import numpy as np
import oracle_linalg
import oracle_stochastic
import pytest
import torch
from conftest import codes_of
from matrices import assert_table, gradients, matrix, table
from oracle import MODES, binary
from oracle_sums import plus, times
from sums import FORMATS, dtype_of, every_format

from torch_dtypes import _C, accumulate, linalg, rounding

whole = pytest.mark.whole


def assert_lu(a, factors, rule, pivot, note=""):
    """Check the factors' bits, and that both permutations are those of the loop."""
    spec, (m, n) = rule.spec, a.shape
    done, rows, columns = oracle_linalg.lu(table(a, spec), rule, pivot)
    k = min(m, n)
    one = [
        [done[i][j] if j < i else spec.decode(spec.encode(int(i == j))) for j in range(k)]
        for i in range(m)
    ]
    upper = [[done[i][j] if j >= i else spec.decode(0) for j in range(n)] for i in range(k)]
    assert_table(factors.L, one, spec, f"{note} L")
    assert_table(factors.U, upper, spec, f"{note} U")
    assert factors.P.double().argmax(0).tolist() == rows, note
    assert factors.Q.double().argmax(1).tolist() == columns, note


@pytest.mark.parametrize("pivot", ["partial", "none", "complete"])
@every_format
def test_each_step_is_rounded(name, pivot):
    a = matrix(name, 5, 6)
    factors = linalg.lu(a, pivot=pivot)
    assert_lu(a, factors, oracle_linalg.EveryStep(FORMATS[name]), pivot)


@pytest.mark.parametrize("sizes", [(1, 1), (7, 4), (4, 7), (0, 3), (3, 0)])
def test_sizes(sizes):
    a = matrix("posit16es2", *sizes)
    factors = linalg.lu(a)
    assert [factor.shape for factor in factors[:4]] == [
        (sizes[0], sizes[0]),
        (sizes[0], min(sizes)),
        (min(sizes), sizes[1]),
        (sizes[1], sizes[1]),
    ]
    if 0 not in sizes:
        assert_lu(a, factors, oracle_linalg.EveryStep(FORMATS["posit16es2"]), "partial")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["posit8es1", "e5m7"])
def test_modes(name, mode):
    spec = FORMATS[name] if name in FORMATS else binary(5, 7)
    a = matrix(name, 6, 6, seed=1)
    with rounding(mode):
        factors = linalg.lu(a)
    assert_lu(a, factors, oracle_linalg.EveryStep(spec, mode), "partial", mode)


@whole
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in FORMATS
        for mode in (("nearest_even",) if "posit" in name else ("nearest_even", "down"))
    ],
)
def test_across_panels(name, mode):
    """The columns are a panel and a part of one."""
    n = 40 if name == "q43" else 34
    a = matrix(name, n, n, seed=2)
    with rounding(mode):
        factors = linalg.lu(a)
    assert_lu(a, factors, oracle_linalg.EveryStep(FORMATS[name], mode), "partial")


@pytest.mark.parametrize("pivot", ["partial", "none", "complete"])
@pytest.mark.parametrize("name", ["posit16es2", "q43", "fixed4_4"])
def test_wider_inner_products(name, pivot):
    a, spec = matrix(name, 6, 6, seed=3), FORMATS[name]
    found = linalg.lu(a, pivot=pivot, accumulate="exact")
    assert_lu(a, found, oracle_linalg.Exact(spec), pivot, "exact")
    rule = oracle_linalg.InAccumulator(spec, binary(8, 15))
    with accumulate("format(accumulator=e8m15)"):
        found = linalg.lu(a, pivot=pivot)
    if name != "fixed4_4" or pivot != "none":
        assert_lu(a, found, rule, pivot, "e8m15")


@pytest.mark.parametrize("name", ["posit16es2", "q43", "e11m52", "posit32es2"])
def test_cutting_changes_no_bit(name):
    """Whole columns, panels and batches give the same bits; so do float64's sums of this order."""
    a = torch.stack([matrix(name, 37, 37, seed) for seed in range(3)])
    together = linalg.lu(a)
    for i in range(3):
        alone = linalg.lu(a[i])
        for one, all_of in zip(alone[:4], together[:4], strict=True):
            assert torch.equal(one.double(), all_of[i].double())
    if name != "e11m52":
        # Not the policy's plain text, so whole columns.
        columns = linalg.lu(a, accumulate="format(rounding=nearest_even)")
        assert torch.equal(columns.L.double(), together.L.double())
        assert torch.equal(columns.U.double(), together.U.double())


@pytest.mark.parametrize("mode", ["nearest_even", "up"])
@pytest.mark.parametrize(
    "name",
    ["lns8_3", "takum16_linear", "fixed3_4_wrap", "e5m2p3109", "posit16es2_regime13", "e11m52"],
)
def test_other_kinds_agree_with_operators(name, mode):
    """Elimination by operators on whole matrices gives the same bits, with and without kernels."""
    a = matrix(name, 9, 9, seed=8)
    with rounding(mode):
        factors = linalg.lu(a, pivot="none")
        for k in range(9):
            if a[k, k] != 0:
                a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]
    assert torch.equal(codes_of(factors.U), codes_of(a.triu()))
    assert torch.equal(codes_of(factors.L.tril(-1)), codes_of(a.tril(-1)))


@pytest.mark.parametrize("upper", [False, True])
@every_format
def test_substitution(name, upper):
    spec, a, b = FORMATS[name], matrix(name, 6, 6, seed=4), matrix(name, 6, 3, seed=5)
    a = a + torch.eye(6, dtype=a.dtype) * 2
    rule = oracle_linalg.EveryStep(spec)
    for unit in (False, True):
        try:
            found = linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)
        except torch.linalg.LinAlgError:
            assert name == "e2m1finite"
            continue
        expected = oracle_linalg.substitute(table(a, spec), table(b, spec), rule, upper, unit)
        assert_table(found, expected, spec)
        right = linalg.solve_triangular(a.mT, b.mT, upper=not upper, left=False, unitriangular=unit)
        assert_table(right.mT, expected, spec)
    found = linalg.solve_triangular(a, b, upper=upper, accumulate="exact")
    expected = oracle_linalg.substitute(
        table(a, spec), table(b, spec), oracle_linalg.Exact(spec), upper
    )
    assert_table(found, expected, spec)


@pytest.mark.parametrize(
    ("name", "n"), [("posit16es2", 9), ("tf32", 9), pytest.param("q43", 34, marks=whole)]
)
def test_solve(name, n):
    spec, a, b = FORMATS[name], matrix(name, n, n, seed=6), matrix(name, n, 2, seed=7)
    rule = oracle_linalg.EveryStep(spec)
    done, rows, _ = oracle_linalg.lu(table(a, spec), rule)
    right = [table(b, spec)[i] for i in rows]
    y = oracle_linalg.substitute(done, right, rule, False, unit=True)
    x = oracle_linalg.substitute(done, y, rule, True)
    assert_table(linalg.solve(a, b), x, spec)
    assert torch.equal(linalg.solve(a, b[:, 0]).double(), linalg.solve(a, b)[:, 0].double())
    both = linalg.solve(a.expand(2, n, n), torch.stack([b, b + b]))
    assert torch.equal(both[0].double(), linalg.solve(a, b).double())
    identity = torch.eye(n, dtype=a.dtype)
    assert torch.equal(linalg.inv(a).double(), linalg.solve(a, identity).double())


def test_stock_operands():
    """A stock tensor is rounded first, and the results have its dtype."""
    a = torch.randn(5, 5)
    factors, found = linalg.lu(a.to(torch.q43)), linalg.lu(a, format="q43")
    for one, other in zip(factors[:4], found[:4], strict=True):
        assert other.dtype == torch.float32 and torch.equal(one.float(), other)
    for operand, name in ((a, "posit32es2"), (a.double(), "q43")):
        assert linalg.lu(operand, format=name).L.dtype == torch.float64
    assert linalg.lu(a.half(), format="posit16es2").L.dtype == torch.float32
    b = torch.ones(5)
    assert torch.equal(
        linalg.solve(a, b, format="fp16"),
        linalg.solve(a.to(dtype_of("fp16")), b.to(dtype_of("fp16"))).float(),
    )


def test_numpy_arrays():
    """They count as stock tensors, and the results are arrays."""
    a = np.random.default_rng(0).standard_normal((4, 4))
    a.flags.writeable = False
    found, expected = linalg.lu(a, format="q43"), linalg.lu(torch.tensor(a), format="q43")
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, np.ndarray) and np.array_equal(one, other.numpy())
    x = linalg.solve(a, b=a[:, 0], format="fp16")
    assert x.dtype == np.float64 and linalg.backward_error(a, x, a[:, 0]) < 1e-2


def test_threads_and_seeds(one_thread):
    """A seed gives the same bits on any number of threads."""
    a = matrix("e8m4_stochastic", 70, 70)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        found.append(linalg.lu(a).U.double())
    assert torch.equal(*found)
    assert not torch.equal(found[0], linalg.lu(a).U.double())


@pytest.mark.parametrize("mode", oracle_stochastic.MODES)
@pytest.mark.parametrize("name", ["posit16es2", "q43"])
def test_random_modes(name, mode):
    """Every rounding has its word: product, difference and quotient of step k at its place."""
    spec, n = FORMATS[name], 6
    a = matrix(f"{name}_{mode}", n, n, seed=9)
    torch.manual_seed(5)
    words = oracle_stochastic.random_words(_C.next_seed() % 2**64, 0, 3 * n**3).tolist()
    torch.manual_seed(5)
    factors = linalg.lu(a, pivot="none")
    done = table(a, spec)

    def step(x, k, kind, i, j):
        word = words[(3 * k + kind) * n**2 + j * n + i]
        return spec.decode(oracle_stochastic.encode(spec, x, mode, word))

    for k in range(n):
        for i in range(k + 1, n):
            done[i][k] = step(oracle_linalg.divide(done[i][k], done[k][k]), k, 2, i, k)
            for j in range(k + 1, n):
                product = step(times(done[i][k], done[k][j]), k, 0, i, j)
                done[i][j] = step(plus(done[i][j], -product), k, 1, i, j)
    zero, one = spec.decode(0), spec.decode(spec.encode(1))
    lower = [[done[i][j] if j < i else (zero, one)[i == j] for j in range(n)] for i in range(n)]
    assert_table(factors.L, lower, spec)
    assert_table(factors.U, [[zero] * i + done[i][i:] for i in range(n)], spec)


# ---- failures ----


@pytest.mark.parametrize("pivot", ["partial", "none", "complete"])
def test_zero_pivots_set_info(pivot):
    a = torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 2, 3]]).to(torch.q43)
    factors = linalg.lu(torch.stack([a, torch.eye(3, dtype=a.dtype)]), pivot=pivot)
    assert factors.info.tolist() == [2, 0]
    assert all(factor.isfinite().all() for factor in factors[:4])


def test_overflow_sets_info():
    a = torch.tensor([[200.0, 200], [200, -200]], dtype=torch.q43)
    assert linalg.lu(a).info == 2
    with pytest.raises(torch.linalg.LinAlgError, match="column 2"):
        linalg.solve(a, a)


def test_singular_systems_raise():
    a, b = torch.ones(2, 2, dtype=torch.posit16es2), torch.ones(2, dtype=torch.posit16es2)
    for call in (lambda: linalg.solve(a, b), lambda: linalg.inv(a)):
        with pytest.raises(torch.linalg.LinAlgError, match="column 2"):
            call()
    with pytest.raises(torch.linalg.LinAlgError, match="diagonal without zeros"):
        linalg.solve_triangular(a * 0, b[:, None], upper=True)
    large = torch.tensor([[2.0**-6, 0], [0, 1]], dtype=torch.q43)
    with pytest.raises(torch.linalg.LinAlgError, match="finite result"):
        linalg.solve_triangular(large, 100 * torch.ones(2, 1, dtype=torch.q43), upper=True)


def test_bad_arguments():
    a = torch.eye(2, dtype=torch.q43)
    for call, error, message in (
        (lambda: linalg.lu([[1.0]]), TypeError, "expected a tensor as a"),
        (lambda: linalg.lu(torch.eye(2)), TypeError, "format="),
        (lambda: linalg.lu(a, format="q52"), TypeError, "with a stock tensor"),
        (lambda: linalg.lu(torch.eye(2), format="mxfp8_e4m3"), TypeError, "expected a format"),
        (lambda: linalg.lu(torch.eye(2), format="fixed0_7"), ValueError, "the number 1"),
        (lambda: linalg.lu(a[0]), ValueError, "m, n"),
        (lambda: linalg.lu(a, pivot="rook"), ValueError, "pivot"),
        (lambda: linalg.lu(a, accumulate="sloppy"), ValueError, "accumulation policy"),
        (lambda: linalg.inv(a[:1]), ValueError, "square"),
        (lambda: linalg.solve(a, a[:1]), ValueError, "right side of 2 rows"),
        (lambda: linalg.solve(a, a.to(torch.q52)), TypeError, "one dtype"),
    ):
        with pytest.raises(error, match=message):
            call()


# ---- gradients ----


@pytest.mark.parametrize("accumulated", [None, "exact"])
def test_gradients(accumulated):
    """Gradients in a format of 40 digits agree with torch.linalg's in float64."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 5, 5, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    options = {"accumulate": accumulated}
    for ours, stock, operands in (
        (lambda a, b: linalg.solve(a, b, **options), torch.linalg.solve, (a, b)),
        (lambda a: linalg.inv(a, **options), torch.linalg.inv, (a,)),
        (lambda a: linalg.lu(a, **options).L, lambda a: torch.linalg.lu(a).L, (a,)),
        (lambda a: linalg.lu(a, **options).U, lambda a: torch.linalg.lu(a).U, (a,)),
        (
            lambda a, b: linalg.solve_triangular(a + 3, b, upper=True, **options),
            lambda a, b: torch.linalg.solve_triangular((a + 3).triu(), b, upper=True),
            (a, b),
        ),
    ):
        found = gradients(ours, *(x.to(dtype_of("e11m40")) for x in operands))
        for one, other in zip(found, gradients(stock, *operands), strict=True):
            assert torch.allclose(one.double(), other, rtol=1e-8, atol=1e-9)
            assert one.dtype == dtype_of("e11m40")


@pytest.mark.parametrize("accumulated", [None, "exact"])
@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
def test_gradients_of_rectangles(sizes, accumulated):
    torch.manual_seed(0)
    a = torch.randn(2, *sizes, dtype=torch.float64)
    for i in (1, 2):
        found, expected = (
            gradients(call, operand)[0].double()
            for call, operand in (
                (lambda a, i=i: linalg.lu(a, accumulate=accumulated)[i], a.to(dtype_of("e11m40"))),
                (lambda a, i=i: torch.linalg.lu(a)[i], a),
            )
        )
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-9)
