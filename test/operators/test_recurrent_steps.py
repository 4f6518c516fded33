"""Steps of an LSTM or GRU as one operator: the bits of single operators, and where these run."""

import functools
import operator

import pytest
import torch
from torch import nn
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode

import torch_dtypes

STEPS, BATCH, FEATURES, WIDTH = 6, 3, 5, 16  # enough numbers for 8 bits
NODES = {"LSTM": "LstmStepsBackward", "GRU": "GruStepsBackward"}


def run_lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    out = []
    for inputs in linear(x, w_ih, b_ih):
        i, f, g, o = (linear(h, w_hh, b_hh) + inputs).chunk(4, 1)
        f, kept = f.sigmoid(), i.sigmoid() * g.tanh()
        c = f * c + kept
        h = o.sigmoid() * c.tanh()
        out.append(h)
    return torch.stack(out), h, c


def run_gru(x, h, w_ih, w_hh, b_ih, b_hh):
    out = []
    for inputs in linear(x, w_ih, b_ih):
        (r, z, n), (of_r, of_z, of_n) = linear(h, w_hh, b_hh).chunk(3, 1), inputs.chunk(3, 1)
        r, z = (r + of_r).sigmoid(), (z + of_z).sigmoid()
        n = (of_n + n * r).tanh()
        h = (h - n) * z + n
        out.append(h)
    return torch.stack(out), h


def build(kind, dtype, width=WIDTH, steps=STEPS):
    """Return a layer, a function for it of single operators, and operands with gradients."""
    torch.manual_seed(1)
    model = getattr(nn, kind)(FEATURES, width)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4)
    model.to(dtype)
    sizes = [(steps, BATCH, FEATURES)] + [(1, BATCH, width)] * (2 if kind == "LSTM" else 1)
    operands = [torch.randn(s).to(dtype).requires_grad_() for s in sizes]

    def by_operators(x, *states):
        one = [s.select(0, 0) for s in states]
        out, *last = (run_lstm if kind == "LSTM" else run_gru)(x, *one, *model.parameters())
        return [out, *(s.unsqueeze(0) for s in last)]

    def by_layer(x, *states):
        out, last = model(x, states if kind == "LSTM" else states[0])
        return [out, *(last if kind == "LSTM" else [last])]

    return model, by_layer, by_operators, operands


def find_nodes(tensors):
    """Return the names of all nodes before the tensors."""
    seen, todo = set(), {t.grad_fn for t in tensors}
    while todo:
        node = todo.pop()
        seen.add(node)
        todo |= {n for n, _ in node.next_functions if n is not None} - seen
    return {node.name() for node in seen}


def differentiate(function, model, operands, uses, mode=None, create_graph=False):
    results = function(*operands)
    torch.manual_seed(2)
    terms = [(t * torch.randn(t.shape).to(t.dtype)).sum() for t in results]
    loss = functools.reduce(operator.add, [terms[i] for i in uses])
    leaves = [*model.parameters(), *operands]
    with torch_dtypes.rounding(mode) if mode else torch.enable_grad():
        gradients = torch.autograd.grad(loss, leaves, create_graph=create_graph)
        if create_graph:
            squares = functools.reduce(operator.add, [(g * g).sum() for g in gradients])
            gradients += torch.autograd.grad(squares, leaves)
    return [*results, *gradients]


def expect_bits(got, want):
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("uses", [(0, 1, -1), (0,), pytest.param((-1,), marks=pytest.mark.whole)])
def test_steps_have_the_bits_of_single_operators(kind, uses):
    model, by_layer, by_operators, operands = build(kind, torch_dtypes.q43)
    assert NODES[kind] in find_nodes(by_layer(*operands))
    expect_bits(
        differentiate(by_layer, model, operands, uses),
        differentiate(by_operators, model, operands, uses),
    )
    with torch.no_grad():
        expect_bits(by_layer(*operands), by_operators(*operands))


@pytest.mark.whole
@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("dtype", ["posit16es2", "e5m10", "posit8es2"])
def test_steps_in_other_formats(kind, dtype):
    model, by_layer, by_operators, operands = build(kind, torch_dtypes.dtype(dtype), 256, 96)
    assert NODES[kind] in find_nodes(by_layer(*operands))
    expect_bits(
        differentiate(by_layer, model, operands, (0, 1)),
        differentiate(by_operators, model, operands, (0, 1)),
    )


class Watching(TorchDispatchMode):
    """Sees every operator, so that single ones run."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", NODES)
def test_layers_directions_and_dropout_as_watched(kind):
    torch.manual_seed(1)
    model = getattr(nn, kind)(4, 16, 2, bidirectional=True, dropout=0.5, batch_first=True)
    model.to(torch_dtypes.q43)
    x = torch.randn(3, 6, 4).to(torch_dtypes.q43).requires_grad_()

    def run():
        torch.manual_seed(2)
        out, last = model(x)
        last = last if isinstance(last, tuple) else (last,)
        loss = functools.reduce(operator.add, [t.square().sum() for t in (out, *last)])
        return out, [out, *last, *torch.autograd.grad(loss, [x, *model.parameters()])]

    out, got = run()
    assert NODES[kind] in find_nodes([out])
    with Watching():
        watched, want = run()
    assert NODES[kind] not in find_nodes([watched])
    expect_bits(got, want)


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("mode, create_graph", [(None, True), ("up", False), ("stochastic", False)])
def test_backward_by_single_operators(kind, mode, create_graph):
    model, by_layer, by_operators, operands = build(kind, torch_dtypes.posit8es2)
    arguments = model, operands, (0, 1), mode, create_graph
    if mode == "stochastic":  # PyTorch's own GRU draws words in its order of operators
        with Watching():
            want = differentiate(by_layer, *arguments)
    else:
        want = differentiate(by_operators, *arguments)
    expect_bits(differentiate(by_layer, *arguments), want)


@pytest.mark.parametrize("kind", NODES)
def test_single_operators_run_for_nan_and_in_other_modes(kind):
    model, by_layer, _, operands = build(kind, torch_dtypes.q43)
    with torch_dtypes.rounding("up"):
        assert NODES[kind] not in find_nodes(by_layer(*operands))
    with torch_dtypes.observe(model):
        assert NODES[kind] not in find_nodes(by_layer(*operands))
    with torch.no_grad():
        operands[1].mul_(float("nan"))
    results = by_layer(*operands)
    assert NODES[kind] not in find_nodes(results) and results[0].isnan().all()
