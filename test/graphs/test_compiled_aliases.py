"""What compiled functions return of their operands, or of one another, is what eager code returns: the same tensor, or a view of it, so that what is
written later shows in gradients."""

import pytest
import torch
from capture import WHOLE_GRAPHS, clean  # noqa: F401 (a fixture)

from torch_dtypes._overlay import graphs

D = torch.posit16es2
pytestmark = WHOLE_GRAPHS


@pytest.fixture(params=["eager", "aot_eager", "inductor"])
def compile_(request, monkeypatch):
    monkeypatch.setattr(graphs, "_noticed", True)
    return lambda f, **kwargs: torch.compile(f, backend=request.param, **kwargs)


def ones(*shape, **kwargs):
    return torch.ones(shape, dtype=D, **kwargs)


def within_no_grad(x):
    with torch.no_grad():
        return x[1:], x.view(-1)


def returns(x):
    y = x * 2
    of_y = y, y[1:], y.view(3, 1), y.detach(), y[:2].detach()
    return x, *of_y, x[1:], x.view(-1), x.expand(2, 3), x[1:].detach(), x.detach()[1:], x.data, *x.chunk(2)


FUNCTIONS = {
    "returns": returns,
    "hidden": lambda x: ((x * 2)[1:], (x + 1)[:2].detach()),
    "in parts": lambda x: ((y := x * 2)[1:].detach(), y),
    "written": lambda x: (x.add_(1), x[1:]),
    "written view": lambda x: (x[1:].mul_(2), x),
    "within no_grad": within_no_grad,
    "nothing else": lambda x: (x.T,),
    "stock": lambda x: ((s := torch.arange(3.0) * x.float()), s[1:], x[1:]),
}


def told(results: tuple, x: torch.Tensor) -> list:
    """What is to be known of results: values, identities and views; then the same, and the errors, when each is written to in turn."""
    found = []
    known = [x, *results]

    def place(t):
        return next((i for i, v in enumerate(known) if v is t), t if t is None else tuple(t.shape))

    def look():
        for v, before in zip(known, versions, strict=True):
            offset, count = v.storage_offset() - x.storage_offset(), None if before is None else v._version - before
            found.append((place(v), place(v._base), offset, v.float().tolist(), count))

    versions = [None if v.is_inference() else v._version for v in known]
    look()
    for v in known:
        try:
            v.add_(1)
        except RuntimeError as error:
            found.append(str(error).partition(". ")[0])
        look()
    return found


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_results_are_the_objects_of_eager_code(compile_, f, mode):
    run = compile_(f, fullgraph=True)

    def look(f, inference, offset, view):
        with mode():
            with torch.inference_mode(inference):
                x = ones(5)[offset : offset + 3] if view else ones(3)
            return told(f(x), x)

    for given in ((False, 0, False), (False, 1, True), (False, 2, True), (True, 0, False))[: 4 if mode is torch.inference_mode else 3]:
        assert look(run, *given) == look(f, *given)


def written_after_it_was_used(f):
    x, w = ones(3), ones(3, requires_grad=True)
    y = (w * x).sum()
    f(x).mul_(5)
    y.backward()


@pytest.mark.parametrize("f", [lambda x: x[1:], lambda x: x.detach(), lambda x: x], ids=["view", "detached", "itself"])
def test_an_operand_that_is_written_to_by_way_of_a_result(compile_, f):
    for run in (f, compile_(f, fullgraph=True)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            written_after_it_was_used(run)


def test_gradients_of_what_is_written_into_a_result(compile_):
    buffer, w, v = torch.zeros(3, dtype=D), ones(2, requires_grad=True), ones(3, requires_grad=True)
    compile_(lambda x: x[1:], fullgraph=True)(buffer).add_(w * 2)
    (buffer * v).sum().backward()
    assert w.grad.tolist() == [2, 2]
    assert v.grad.tolist() == [0, 2, 2]


def test_detached_leaves(compile_):
    x = ones(3, requires_grad=True)
    found = compile_(lambda x: (x.detach(), x[1:].detach()), fullgraph=True)(x)
    assert [(v.requires_grad, v._base) for v in found] == [(False, None)] * 2
    y = (x * x).sum()
    found[1].mul_(2)
    assert x.tolist() == [1, 2, 2]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_views_made_without_gradients_are_not_written_to_with_them(compile_):
    for run in (within_no_grad, compile_(within_no_grad, fullgraph=True)):
        with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
            run(ones(3))[0].add_(ones(2, requires_grad=True))


def test_an_operand_that_gets_a_gradient(compile_):
    """Nothing that is returned says so."""
    buffer, w = torch.zeros(3, dtype=D), ones(3, requires_grad=True)
    compile_(lambda b, w: (b.add_(w), None)[1])(buffer, w)
    buffer.sum().backward()
    assert w.grad.tolist() == [1, 1, 1]


def test_operands_that_share_elements(compile_):
    """Of which a recording, on copies, knows nothing."""

    def f(w, seen, b):
        y = (w * seen).sum()
        b.add_(1)
        return y

    for run in (f, compile_(f)):
        for apart in (True, False, True):
            b, w = torch.zeros(5, dtype=D), ones(2, requires_grad=True)
            y = run(w, torch.zeros(2, dtype=D) if apart else b[1:3], b)
            if apart:
                y.backward()
                assert w.grad.tolist() == [0, 0]
            else:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    y.backward()


def test_parts_of_one_tensor_as_operands(compile_):
    """Which share no elements, as the two halves of a cache."""

    def f(keys, values, q):
        keys[1], values[1] = q, q * 2
        return q @ keys.t() + values[:, 0]

    run = compile_(f, fullgraph=True)
    found, expected = torch.zeros(2, 3, 4, dtype=D), torch.zeros(2, 3, 4, dtype=D)
    for _ in range(2):
        assert run(*found, ones(4)).tolist() == f(*expected, ones(4)).tolist()
        assert found.tolist() == expected.tolist()
