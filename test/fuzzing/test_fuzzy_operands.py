"""torch_dtypes.fuzzy on operands that are no dense float32 tensors, but give float32 results."""

import warnings

import pytest
import torch
from conftest import parametrize_dtypes
from rationals import Fraction

import torch_dtypes

SMALL, LARGE = [1, 2, 3, 7], [2**24 + 1, 2**40 + 1, 2**53 - 1, -(2**30 + 1)]
TENTH, TINY = (Fraction(torch.tensor(x).item()) for x in (0.1, 1e-30))
EXACT = {
    "div": (lambda i: i / 3, lambda v: Fraction(v, 3)),
    "div_tensors": (lambda i: i / torch.tensor(7), lambda v: Fraction(v, 7)),
    "div_out": (lambda i: torch.div(i, 3, out=torch.empty(4)), lambda v: Fraction(v, 3)),
    "mul": (lambda i: i * 0.1, lambda v: v * TENTH),
    "add": (lambda i: i + 1e-30, lambda v: v + TINY),
    "add_float32": (lambda i: i + torch.full((4,), 1e-30), lambda v: v + TINY),
    "add_in_place": (lambda i: torch.full((4,), 1e-30).add_(i), lambda v: v + TINY),
    "reciprocal": (lambda i: i.reciprocal(), lambda v: Fraction(1, v)),
    "mean": (lambda i: i[:, None].mean(1, dtype=torch.float32), Fraction),
    "cumsum": (lambda i: i[:, None].cumsum(1, dtype=torch.float32).flatten(), Fraction),
    "complex_number": (lambda i: (i * (0.1 + 1j)).real, lambda v: v * TENTH),
    "float32_by_complex": (
        lambda i: (i.to(torch.float32) * (0.1 + 1j)).real,
        lambda v: Fraction(torch.tensor(float(v)).item()) * TENTH,
    ),
}


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", EXACT)
def test_directed_results_are_the_neighbours_of_the_exact_one(name, values):
    run, exact = EXACT[name]
    i = torch.tensor(values)
    for mode, away in (("up", -torch.inf), ("down", torch.inf)):
        with torch_dtypes.fuzzy(mode=mode) as block:
            found = run(i)
        assert (
            found.dtype is torch.float32
            and sum(block.operations.values()) == 1
            and not block.unseen
        )
        for v, got in zip(values, found, strict=True):
            near, next_one = (
                Fraction(got.item()),
                Fraction(torch.nextafter(got, torch.tensor(away)).item()),
            )
            assert next_one < exact(v) <= near if mode == "up" else near <= exact(v) < next_one, (
                v,
                got,
            )


def test_large_integers_by_stock_operators():
    torch_dtypes.set_backend("stock")
    try:
        with torch_dtypes.fuzzy(), pytest.raises(NotImplementedError, match="stock operators"):
            torch.tensor(LARGE) / 3
    finally:
        torch_dtypes.set_backend(None)


@parametrize_dtypes("bool int8 uint8 int32 uint16 uint32 uint64")
def test_every_integer_dtype(dtype):
    i = torch.ones(2, dtype=dtype)
    with torch_dtypes.fuzzy(mode="up") as block:
        found = i / 3, i + torch.full((2,), 1e-30)
    assert (
        block.operations == {"div": 1, "add": 1}
        and (found[0].double() > 1 / 3).all()
        and (found[1] > 1).all()
    )
    with torch_dtypes.fuzzy(mode="up", format="e8m7") as block:
        assert ((i / 3).double() > 1 / 3).all()


FUNCTIONS = {
    "sqrt": lambda i: i.sqrt(),
    "exp": lambda i: i.exp(),
    "log": lambda i: i.log(),
    "pow": lambda i: i**-0.5,
    "number_pow": lambda i: 2.3**i,
    "atan2": lambda i: torch.atan2(i, i),
    "atan2_out": lambda i: torch.atan2(i, i, out=torch.empty(0)),
    "abs": lambda i: torch.complex(i.to(torch.float32), i.to(torch.float32)).abs(),
    "abs_list": lambda i: torch._foreach_abs(
        [torch.complex(i.to(torch.float32), i.to(torch.float32))]
    )[0],
    "sgn": lambda i: torch.complex(i.to(torch.float32), i.to(torch.float32)).sgn().real,
    "bincount": lambda i: torch.bincount(
        i, weights=torch.full((4,), 0.1) / torch.tensor([3.0, 7, 9, 11])
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_counted_and_rounded(name):
    i = torch.tensor(SMALL)
    found = {}
    for mode in ("up", "down"):
        with torch_dtypes.fuzzy(mode=mode) as block:
            found[mode] = FUNCTIONS[name](i)
        assert found[mode].dtype is torch.float32 and block.operations and not block.unseen
    assert (found["up"] >= found["down"]).all() and (found["up"] > found["down"]).any()
    assert torch.allclose(found["up"], FUNCTIONS[name](i))


def test_sums_of_other_dtypes_asked_for_in_float32():
    half, i = torch.full((5,), 0.1, dtype=torch.float16), torch.arange(5)
    with torch_dtypes.fuzzy(mode="up", level="instruction") as block:
        sums = (
            half.sum(dtype=torch.float32),
            i.sum(dtype=torch.float32),
            i.to(torch.float32).sum(dtype=torch.complex64),
        )
    assert block.operations == {"sum": 3} and [s.item() for s in sums[1:]] == [10, 10]
    assert sums[0] >= half.double().sum()


def test_decimals():
    x = torch.tensor([0.333, -0.333])
    with torch_dtypes.fuzzy(mode="up") as block:
        found = torch.round(x, decimals=2)
        torch.round(x)
    assert block.operations == {"round": 1} and found[0].item() > 0.33 and found[1].item() > -0.33


def test_results_of_other_dtypes_stay_stocks():
    i, before = torch.arange(4), torch.get_default_dtype()
    with torch_dtypes.fuzzy(mode="up", format="e8m23") as block:
        (
            i + 1,
            i.sum(),
            i.half() / 3,
            torch.linspace(0, 1, 3),
            torch.arange(0, 1, 0.1),
            torch.full_like(i, 0.1, dtype=torch.float32),
            i.float(),
        )
        torch.full((3,), 0.1).abs(), i // 2, i.bincount()
        try:
            torch.set_default_dtype(torch.float64)
            third = i / 3
            torch.set_default_dtype(torch.posit16es2)
            assert (i / 3).dtype is torch.posit16es2
        finally:
            torch.set_default_dtype(before)
    assert not block.operations and not block.unseen and torch.equal(third, i.double() / 3)


def sparse_cases():
    dense, vector = torch.eye(3) * 0.3, torch.ones(3)
    coo, csr = dense.to_sparse(), dense.to_sparse_csr()
    twice = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([0.1, 0.3]), (2, 2)
    )
    nested, quantized = (
        torch.nested.nested_tensor([vector, vector]),
        torch.quantize_per_tensor(vector, 0.1, 0, torch.quint8),
    )
    return {
        "aten::_sparse_addmm": lambda: torch.sparse.mm(coo, dense),
        "aten::mv": lambda: csr @ vector,
        "aten::mm": lambda: csr @ dense,
        "aten::sparse_sampled_addmm": lambda: torch.sparse.sampled_addmm(csr, dense, dense),
        "aten::mul": lambda: coo * 0.1,
        "aten::sin": lambda: csr.sin(),
        "aten::add": lambda: dense + coo,
        "aten::_to_dense": lambda: twice.to_dense(),
        "aten::gelu": lambda: torch.nn.functional.gelu(nested),
        "aten::dequantize": lambda: quantized.dequantize(),
        "aten::quantize_per_tensor": lambda: torch.quantize_per_tensor(
            vector, 0.1, 0, torch.quint8
        ),
    }


@pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support:UserWarning",
    "ignore:The PyTorch API of nested tensors:UserWarning",
)
@pytest.mark.filterwarnings(
    "ignore:Sparse invariant checks:UserWarning", "ignore:.*[qQ]uantiz.*:DeprecationWarning"
)
@pytest.mark.filterwarnings("ignore:.*[qQ]uantiz.*:UserWarning")
def test_what_is_not_dense_runs_in_stock_float32_and_is_counted():
    for name, run in sparse_cases().items():
        stock = run()
        with (
            torch_dtypes.fuzzy(mode="up") as block,
            pytest.warns(UserWarning, match=f"{name} runs in stock float32") as said,
        ):
            found = run()
            run()
        assert block.unseen == {name: 2} and not any(block.operations.values()), name
        assert sum("fuzzy" in str(w.message) for w in said) == 1
        assert (
            found.layout is stock.layout
            and (found.is_nested or torch.equal(found.to_dense(), stock.to_dense()))
        ) or found.is_quantized


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_moving_sparse_values_is_no_arithmetic():
    dense = torch.eye(3) * 0.3
    with torch_dtypes.fuzzy(mode="up") as block, warnings.catch_warnings():
        warnings.simplefilter("error")
        coo = dense.to_sparse().coalesce()
        assert torch.equal(coo.to_dense(), dense) and coo.t().clone()._nnz() == 3
        third = coo.values() / 3
        torch.sparse_coo_tensor([[0], [1]], [1.0])
    assert block.operations == {"div": 1} and not block.unseen and (third.double() * 3 >= 0.3).all()


@pytest.mark.parametrize(
    ("policy", "total"),
    [(None, 2.0**24 + 2), ("exact", 2.0**24 + 2), ("format", 2.0**24)],
)
def test_sums_follow_a_policy(policy, total):
    x, ones = torch.tensor([2.0**24, 1.0, 1.0]), torch.ones(3)
    with torch_dtypes.fuzzy(mode="nearest_even", accumulate=policy) as block:
        found = [x.sum(), x @ ones, torch.nn.functional.linear(x, ones)]
        x.requires_grad_()
        (x * x.detach()).sum().backward()
    assert torch.stack(found).tolist() == [total] * 3 and torch.equal(x.grad, x)
    assert f"accumulate={policy!r}" in repr(block)


def test_levels_that_contradict_are_refused():
    with pytest.raises(ValueError, match=r"expected level='instruction' or accumulate=, but got b"):
        torch_dtypes.fuzzy(level="instruction", accumulate="exact")
    with pytest.raises(ValueError, match=r"expected level='instruction' with fused=False, but"):
        torch_dtypes.fuzzy(fused=False)
    with pytest.raises(ValueError, match=r"expected level.*'operator', 'instruction', but got 'st"):
        torch_dtypes.fuzzy(level="steps")
    with pytest.raises(ValueError, match=r"expected an accumulation policy"):
        torch_dtypes.fuzzy(accumulate="quire")
