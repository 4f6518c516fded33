"""Whole graphs of torch.compile in which values decide a size or a number: eager code's bits, for other values too, without a new graph."""

import pytest
import torch
from capture import WHOLE_GRAPHS, Graphs, assert_same, clean  # noqa: F401 (clean is a fixture)

import torch_dtypes
from torch_dtypes._overlay import graphs

pytestmark = WHOLE_GRAPHS
MASKS = [[1, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [1] * 6, [0, 1, 0, 0, 0, 0], [0] * 6]


@pytest.fixture(autouse=True)
def values_in_graphs():
    """Stock's default since 2.13."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def filled(x, mask):
    x = x.clone()
    x[mask] = x[mask] * 2 + 1
    return x


def normalised(x, mask):
    kept = torch.nn.functional.layer_norm(x[mask], (4,))
    return torch.cat([torch.nn.functional.linear(kept, x, x[:, 0]).softmax(1).sum(0), x[0]])


def from_unique(x, mask):
    values, places = torch.unique(x * mask[:, None].to(x.dtype), return_inverse=True)
    return values[places] * 2


CASES = {
    "index": lambda x, mask: x[mask] * 0.3,
    "of values": lambda x, mask: x[x > 0.25].sum(),
    "index twice": lambda x, mask: x[mask] + (x * 2)[mask],
    "product": lambda x, mask: x[mask] @ x.t(),
    "to float32": lambda x, mask: x[mask].float() / 3,
    "to another": lambda x, mask: x[mask].to(torch.q43) * 0.3,
    "masked_select": lambda x, mask: torch.masked_select(x, mask[:, None]) * 0.3,
    "nonzero": lambda x, mask: x[(x * mask[:, None].to(x.dtype)).nonzero(as_tuple=True)] * 2,
    "written to": filled,
    "layers": normalised,
    "unique": from_unique,
    "unique_consecutive": lambda x, mask: torch.unique_consecutive(x[mask]) + 1,
    "repeat_interleave": lambda x, mask: torch.repeat_interleave(x, mask.long() * 2, dim=0) * 0.3,
    "zeros": lambda x, mask: torch.zeros(x[mask].shape[0], 4, dtype=x.dtype) + x[mask],
    "size": lambda x, mask: x * x[mask].shape[0],
    "item": lambda x, mask: x[mask].sum().item() * x,
    "float": lambda x, mask: x * float(x[0, 0]),
    "alpha": lambda x, mask: torch.add(x, x, alpha=x[0, 1]),
    "value": lambda x, mask: torch.addcmul(x, x, x, value=x[0, 1]),
    "foreach": lambda x, mask: torch._foreach_add([x], x[0, 1])[0],
}


def with_gradient(f, x, mask):
    leaf = x.clone().requires_grad_()
    result = f(leaf, mask)
    return result, *torch.autograd.grad(result.sum(), leaf, allow_unused=True)


@pytest.mark.parametrize("dtype", [torch.q43, torch.posit16es2, torch.posit32es2], ids=str)
@pytest.mark.parametrize("f", CASES.values(), ids=CASES)
def test_values_decide(f, dtype):
    x = torch.linspace(-2, 2, 24).reshape(6, 4).to(dtype)
    run = torch.compile(f, backend=Graphs(), fullgraph=True)
    run(x, torch.tensor(MASKS[0]).bool())
    with torch.compiler.set_stance("fail_on_recompile"):
        for mask in map(torch.BoolTensor, MASKS):
            assert_same(run(x, mask), f(x, mask))


@pytest.mark.parametrize("name", ["index", "to float32", "masked_select", "layers", "repeat_interleave", "written to", "zeros"])
def test_gradients(name):
    f, x = CASES[name], torch.linspace(-2, 2, 24).reshape(6, 4).to(torch.posit16es2)
    run = torch.compile(f, backend=Graphs(), fullgraph=True)
    for mask in map(torch.BoolTensor, MASKS):
        for a, b in zip(with_gradient(run, x, mask), with_gradient(f, x, mask), strict=True):
            assert_same(a, b)


def test_a_number_in_a_checkpoint_s_region():
    def f(x, n):
        return torch.utils.checkpoint.checkpoint(lambda t, n: (t[: n.item()] * 2).sin(), x, n, use_reentrant=False)

    run = torch.compile(f, backend=Graphs(), fullgraph=True)
    x = torch.linspace(-2, 2, 24).reshape(6, 4).to(torch.posit16es2)
    for n in (3, 5, 3, 5, 2):
        for a, b in zip(with_gradient(run, x, torch.tensor(n)), with_gradient(f, x, torch.tensor(n)), strict=True):
            assert_same(a, b)


def test_dtypes_that_round_at_random():
    """Eager code's numbers for its seed."""
    x, f = torch.linspace(-2, 2, 24).reshape(6, 4).to(torch_dtypes.dtype("q43_stochastic")), CASES["index"]
    run = torch.compile(f, backend=Graphs(), fullgraph=True)
    for mask in map(torch.BoolTensor, MASKS):
        found = []
        for function in (run, f):
            torch.manual_seed(3)
            found += [function(x, mask), torch.get_rng_state()]
        assert_same(found[0], found[2])
        assert torch.equal(found[1], found[3])


def test_a_graph_that_need_not_be_whole_ends(monkeypatch):
    """What is before and behind is compiled, the latter for the sizes that come."""
    monkeypatch.setattr(graphs, "_noticed", True)
    backend = Graphs()

    def f(x, mask):
        return ((x * 2 + 1)[mask] * 0.3 + 1) * 0.25

    x = torch.linspace(-2, 2, 24).reshape(6, 4).to(torch.posit16es2)
    run = torch.compile(f, backend=backend)
    for mask in map(torch.BoolTensor, MASKS):
        assert_same(run(x, mask), f(x, mask))
    assert len(backend.seen) > 1


def test_sizes_that_no_rule_has():
    """Stock's error: a size that values decide cannot be asked for."""

    def f(x, mask):
        return x * 2 if x[mask].shape[0] > 2 else x

    x = torch.linspace(-2, 2, 24).reshape(6, 4)
    for given in (x, x.to(torch.q43)):
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.UserError, match=r"(?i)data-dependent"):
            torch.compile(f, backend=Graphs(), fullgraph=True)(given, torch.BoolTensor(MASKS[0]))
