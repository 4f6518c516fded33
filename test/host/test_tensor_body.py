"""A tensor's data changes between stock and format dtypes (model.to(dtype), x.data = ...). The
object, its hooks and its graphs stay, as between stock dtypes."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import torch_dtypes

P, Q = torch.posit16es2, torch.q43
# Steps between stock and format dtypes in both directions, and within each kind.
STEPS = [P, torch.float32, Q, torch.bfloat16, P, Q, torch.float64]
# The behaviour of a stock pair, and the same for a format dtype.
into = pytest.mark.parametrize("dtype", [torch.bfloat16, P])
both_ways = pytest.mark.parametrize(
    "before, after",
    [(torch.float32, torch.bfloat16), (torch.float32, P), (P, torch.float32), (torch.bfloat16, Q)],
)


def leaf(dtype, *values):
    return nn.Parameter(torch.tensor(values or (1.5,)).to(dtype))


def test_hooks_stay_through_every_change():
    w, seen = leaf(torch.float32), []
    w.register_hook(lambda g: seen.append(("tensor", g.dtype)))
    w.register_post_accumulate_grad_hook(
        lambda p: seen.append(("accumulated", p is w, p.grad.dtype))
    )
    for dtype in STEPS:
        w.data = w.data.to(dtype)
        late = w.register_hook(lambda g: seen.append("late"))
        (w * 2).sum().backward()
        assert seen == [
            ("tensor", dtype),
            "late",
            ("accumulated", True, dtype),
        ] and w.grad.tolist() == [2.0]
        late.remove()
        seen.clear()
        w.grad = None


@into
def test_an_optimizer_in_backward_trains(dtype):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizers = {p: torch.optim.SGD([p], lr=0.5) for p in model.parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    model.to(dtype)
    before = copy.deepcopy(model.state_dict())
    model(torch.ones(1, 2, dtype=dtype)).sum().backward()
    for name, p in model.named_parameters():
        assert (
            p.grad is None and p.tolist() == (before[name] - 0.5).tolist() != before[name].tolist()
        )


@into
def test_a_model_is_converted_whatever_lives(dtype):
    model = nn.Sequential(
        nn.Linear(3, 4),
        nn.Tanh(),
        nn.LSTM(4, 4),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    )
    parameters = list(model.parameters())
    references = [weakref.ref(p) for p in parameters]
    keyed = torch.utils.weak.WeakTensorKeyDictionary({p: i for i, p in enumerate(parameters)})
    x = torch.ones(2, 3)
    y, views = model[:3](x), [p[:1] for p in parameters]
    ahead = model[2](torch.ones(2, 4))
    model.to(dtype)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True)) and all(
        p.dtype is dtype for p in parameters
    )
    assert all(r() is p for r, p in zip(references, parameters, strict=True))
    assert [keyed[p] for p in parameters] == list(range(len(parameters)))
    assert (
        y[0].dtype is torch.float32
        and all(v.dtype is torch.float32 for v in views)
        and ahead is not None
    )
    assert model[:3](x.to(dtype))[0].dtype is dtype
    model.float()
    assert model[:3](x)[0].dtype is torch.float32 and all(
        r() is p for r, p in zip(references, parameters, strict=True)
    )


@both_ways
def test_a_graph_from_before_keeps_its_values_and_accumulates_into_the_tensor(before, after):
    w, seen = leaf(before, 1.25, -2.0), []
    exact = w.detach().clone()
    w.register_hook(lambda g: seen.append(g.dtype))
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p is w))
    one, two, other = w.sin().sum(), (w * 3).sum(), torch.ones(2, dtype=before, requires_grad=True)
    product = (w * other).sum()
    w.data = (w.detach() * 4).to(after)
    one.backward()
    assert seen == [before, True]
    if (before, after) == (torch.float32, torch.bfloat16):
        # in stock PyTorch the graph sees the new values, and the gradient keeps the old dtype
        return
    wanted = torch.cos(exact).to(after)
    assert w.grad.tolist() == wanted.tolist() and w.grad.dtype is after
    two.backward()
    product.backward()
    assert other.grad.tolist() == exact.tolist() and other.grad.dtype is before
    assert w.grad.tolist() == (wanted + 3 + 1).tolist() and w.grad.dtype is after


def test_autograd_grad_does_not_find_a_tensor_of_another_dtype_in_a_graph_from_before():
    for dtype in (torch.bfloat16, P):
        w = leaf(torch.float32)
        y = w * 2
        w.data = w.data.to(dtype)
        with pytest.raises(RuntimeError, match="not have been used in the graph"):
            torch.autograd.grad(y.sum(), w)


def test_older_graphs_of_several_changes_all_arrive():
    w, sums = leaf(torch.float32), []
    for dtype in STEPS:
        sums.append((w * 2).sum())
        w.data = w.data.to(dtype)
    for count, y in enumerate(sums, 1):
        y.backward()
        assert w.grad.tolist() == [2.0 * count] and w.grad.dtype is STEPS[-1]


@pytest.mark.filterwarnings("ignore:Using backward")
def test_second_derivatives_of_a_graph_from_before():
    w = leaf(torch.float32)
    y = (w**3).sum()
    w.data = w.data.to(P)
    y.backward(create_graph=True)
    first, w.grad = w.grad, None
    assert first.tolist() == [6.75] and first.dtype is P
    first.sum().backward()
    assert w.grad.tolist() == [9.0] and w.grad.dtype is P


@both_ways
def test_gradients_stay_the_same_objects(before, after):
    model = nn.Linear(2, 2).to(before)
    model(torch.ones(1, 2, dtype=before)).sum().backward()
    grads = [p.grad for p in model.parameters()]
    model.to(after)
    assert all(
        p.grad is g and g.dtype is after and g.tolist() == torch.ones_like(p).tolist()
        for p, g in zip(model.parameters(), grads, strict=True)
    )
    model.zero_grad()
    model(torch.ones(1, 2, dtype=after)).sum().backward()
    assert all(p.grad.dtype is after for p in model.parameters())


@both_ways
def test_results_and_views_keep_their_place_in_the_graph(before, after):
    w = leaf(before, 1.0, 2.0)
    y = w * 2
    y.retain_grad()
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.data = y.data.to(after)
    assert y.dtype is after and y.grad_fn is not None and not y.is_leaf
    y.sum().backward()
    assert (
        seen == [[1.0, 1.0]]
        and y.grad.tolist() == [1.0, 1.0]
        and w.grad.tolist() == [2.0, 2.0]
        and w.grad.dtype is before
    )
    base = torch.ones(3).to(before)
    view = base[:2]
    view.data = view.data.to(after)
    assert view.dtype is after and view._is_view() and view._base is base


def test_nothing_is_kept_and_nothing_is_lost():
    """Once the graphs are gone, the objects have their former reference counts. A graph alone keeps
    the tensor that it accumulates into."""
    w = leaf(torch.float32, *range(1, 5))
    graphs = []
    for dtype in STEPS:
        graphs.append((w * w).sum())
        w.data = w.data.to(dtype)
    old = weakref.ref(graphs[0].grad_fn.next_functions[0][0]._saved_self)
    assert old() is not None and old() is not w and old().dtype is torch.float32
    graphs.clear()
    gc.collect()
    assert old() is None and w._use_count() == 1
    y, reference = (w * w).sum(), weakref.ref(w)
    w.data = w.data.to(P)
    del w
    gc.collect()
    y.backward()
    assert reference().grad.tolist() == [2.0, 4.0, 6.0, 8.0]
    del y
    gc.collect()
    assert reference() is None


@into
def test_attributes_class_version_and_flags_stay(dtype):
    class Named(nn.Parameter):
        pass

    w = Named(torch.ones(2))
    w.note = "kept"
    with torch.no_grad():
        w.add_(1).add_(1)
    w.data = w.data.to(dtype)
    assert (
        type(w) is Named
        and w.note == "kept"
        and w._version == 2
        and w.requires_grad
        and w.is_leaf
        and w.tolist() == [3.0, 3.0]
    )
    with pytest.raises(RuntimeError, match="floating"):
        w.data = torch.ones(2, dtype=torch.int64)
    assert w.dtype is dtype
    frozen = torch.ones(2)
    frozen.data = frozen.data.to(dtype)
    assert frozen.dtype is dtype and not frozen.requires_grad
    with torch.inference_mode():
        inference = torch.ones(2)
        inference.data = inference.data.to(dtype)
        assert inference.dtype is dtype and inference.is_inference()


@into
@pytest.mark.filterwarnings("ignore")  # the old weight_norm and torch.jit.script are deprecated
def test_the_old_weight_norm_and_scripts_of_the_model_follow(dtype):
    model = nn.utils.weight_norm(nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    model.to(dtype)
    y = model(torch.ones(1, 2, dtype=dtype))
    y.sum().backward()
    assert y.dtype is dtype and model.weight_g.grad.dtype is dtype
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    script, trace = torch.jit.script(model), torch.jit.trace(model, torch.ones(1, 2))
    optimizer = torch.optim.SGD(script.parameters(), lr=0.5)
    for convert in (model.to, script.to):
        for target in (dtype, torch.float32):
            convert(target)
            for p, q, r in zip(
                model.parameters(), script.parameters(), trace.parameters(), strict=True
            ):
                assert p.dtype is target and p is q is r
            x = torch.ones(1, 2, dtype=target)
            y = model(x)
            for one in (script, trace):
                if not torch_dtypes.is_format_dtype(target):
                    assert one(x).tolist() == y.tolist()
                else:
                    with pytest.raises(
                        NotImplementedError, match="expected stock dtypes in TorchScript"
                    ):
                        one(x)
            y.sum().backward()
            before = model[1].bias.tolist()
            optimizer.step()
            optimizer.zero_grad()
            assert model[1].bias.tolist() != before


@pytest.mark.filterwarnings("ignore")  # sparse tensors are a prototype
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_data_of_another_layout_is_an_error(layout):
    """It raises, as between stock tensors."""
    w = torch.nn.Parameter(torch.ones(2, 2, dtype=P))
    with pytest.raises(
        RuntimeError,
        match=r"expected two strided tensors to exchange torch\.posit16es2 for torch\.float32",
    ):
        w.data = torch.eye(2).to_sparse(layout=layout)
    assert w.dtype is P and w.layout is torch.strided
    sparse = torch.eye(2).to_sparse(layout=layout)
    with pytest.raises(
        RuntimeError,
        match=r"expected two strided tensors to exchange torch\.float32 for torch\.posit16es2",
    ):
        sparse.data = torch.ones(2, 2, dtype=P)
    assert sparse.dtype is torch.float32 and sparse.layout is layout
