"""Every public cast from a stock dtype to a format dtype, back, and to another format has the graph
and the gradient of the same cast with bfloat16."""

import itertools
import warnings

import pytest
import torch
from representatives import thin_out
from torch import nn
from torch.func import functionalize, grad, jacfwd, jacrev, jvp, vmap

import torch_dtypes

# jvp in stock code warns.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)

aten = torch.ops.aten
VALUES = [1.5, -2.0, 0.75]  # exact in every dtype here, and so are their doubles


def like(d):
    return torch.zeros(3, dtype=d)


def assign(target, source, place=slice(None)):
    target[place] = source[place]
    return target


def stacked_into(t, d):
    out = torch.zeros(2, 3, dtype=d)
    out[0], out[1] = t, t
    return out[0]


def ignore_warnings(make):
    # asarray without requires_grad warns, and so do tensor and new_tensor, which detach the copy.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


WAYS = {
    "to": lambda t, d: t.to(d),
    "to by name": lambda t, d: t.to(dtype=d, non_blocking=True),
    "to of a device": lambda t, d: t.to("cpu", d),
    "to with a copy": lambda t, d: t.to(d, copy=True),
    "to of a memory format": lambda t, d: t.to(d, memory_format=torch.preserve_format),
    "to of another tensor": lambda t, d: t.to(like(d)),
    "to of another tensor by name": lambda t, d: t.to(tensor=like(d), copy=True),
    "type": lambda t, d: t.type(d),
    "type_as": lambda t, d: t.type_as(like(d)),
    "asarray": lambda t, d: ignore_warnings(lambda: torch.asarray(t, dtype=d)),
    "asarray with a copy": lambda t, d: ignore_warnings(
        lambda: torch.asarray(t, dtype=d, copy=True)
    ),
    "asarray that requires grad": lambda t, d: torch.asarray(t, dtype=d, requires_grad=True),
    "asarray that does not": lambda t, d: torch.asarray(t, dtype=d, requires_grad=False),
    "asarray of a result": lambda t, d: ignore_warnings(lambda: torch.asarray(t.to(d))),
    "as_tensor": lambda t, d: torch.as_tensor(t, dtype=d),
    "as_tensor of a device": lambda t, d: torch.as_tensor(t, dtype=d, device="cpu"),
    "copy_": lambda t, d: like(d).copy_(t),
    "slice assignment": lambda t, d: assign(like(d), t),
    "index assignment": lambda t, d: assign(like(d), t, 1),
    "stacked by assignment": stacked_into,
    "clone": lambda t, d: t.clone().to(d).clone(),
    "by way of float64": lambda t, d: t.double().to(d),
    "aten.to.dtype": lambda t, d: aten.to.dtype(t, d),
    "aten.to.device": lambda t, d: aten.to.device(t, "cpu", d),
    "aten.to.dtype_layout": lambda t, d: aten.to.dtype_layout(t, dtype=d),
    "aten.to.other": lambda t, d: aten.to.other(t, like(d)),
    "aten.to": lambda t, d: aten.to(t, d),
    "aten.type_as": lambda t, d: aten.type_as(t, like(d)),
    "aten._to_copy": lambda t, d: aten._to_copy(t, dtype=d),
    "aten._to_copy.default": lambda t, d: aten._to_copy.default(t, dtype=d, non_blocking=True),
    "aten.copy_": lambda t, d: aten.copy_(like(d), t),
    "float": lambda t, d: t.to(d).float().to(d),
    "double": lambda t, d: t.to(d).double().to(d),
    "type of a name": lambda t, d: t.to(d).type("torch.DoubleTensor").type(d),
    "sum": lambda t, d: t.sum(dtype=d),
    "cumsum": lambda t, d: t.cumsum(0, dtype=d),
    "detach": lambda t, d: t.detach().to(d),
    "data": lambda t, d: t.data.to(d),
}
# Stock PyTorch refuses these under vmap.
COPIES = {
    "tensor": lambda t, d: ignore_warnings(lambda: torch.tensor(t, dtype=d)),
    "new_tensor": lambda t, d: ignore_warnings(lambda: like(d).new_tensor(t)),
    "new_tensor of a dtype": lambda t, d: ignore_warnings(lambda: t.new_tensor(t, dtype=d)),
}


def several(dtype):
    return torch.tensor([VALUES, [2.5, -1.0, 0.5]]).to(dtype, copy=True)


def one(dtype):
    return several(dtype)[0].clone()


def describe(t):
    return t.dtype, t.tolist()


def run_backward(y, leaf):
    if not y.requires_grad:
        return y.dtype, y.tolist(), None
    y.sum().backward()
    return (
        y.dtype,
        y.detach().tolist(),
        y.grad_fn is not None,
        leaf.grad if leaf.grad is None else describe(leaf.grad),
    )


def plain(f, dtype):
    w = one(dtype).requires_grad_()
    return run_backward(f(w * 2), w)


def of_a_leaf(f, dtype):
    w = one(dtype).requires_grad_()
    return run_backward(f(w), w)


def run_vmap(f, dtype):
    w = several(dtype).requires_grad_()
    return run_backward(vmap(f)(w * 2), w)


def twice(f, dtype):
    return describe(grad(lambda b: grad(lambda a: (f(a) * f(a)).sum())(b).sum())(one(dtype)))


def recorded_twice(f, dtype):
    w = one(dtype).requires_grad_()
    (first,) = torch.autograd.grad((f(w) * f(w)).sum(), w, create_graph=True)
    return describe(torch.autograd.grad(first.sum(), w)[0])


MODES = {
    "plain": plain,
    "leaf": of_a_leaf,
    "double backward": recorded_twice,
    "vmap": run_vmap,
    "grad": lambda f, d: describe(grad(lambda a: f(a * 2).sum())(one(d))),
    "vmap of grad": lambda f, d: describe(vmap(grad(lambda a: f(a * 2).sum()))(several(d))),
    "grad of vmap": lambda f, d: describe(grad(lambda a: vmap(f)(a * 2).sum())(several(d))),
    "grad of grad": twice,
    "jacrev": lambda f, d: describe(jacrev(f)(one(d))),
    # PyTorch's own tangent of copy_ has the source's dtype; for format tensors it has the tensor's.
    # So only values are compared.
    "jvp": lambda f, d: [t.tolist() for t in jvp(f, (one(d),), (one(d),))],
    "jacfwd": lambda f, d: jacfwd(f)(one(d)).tolist(),
}

P, Q, E, B, W = (
    torch.posit16es2,
    torch.posit32es2,
    torch.e5m5,
    torch.q43,
    torch_dtypes.dtype("e11m30"),
)
# (from, to), and the stock pair that shows the expected behaviour: equally wide, and related to the
# storage dtype in the same way.
PAIRS = {
    "into": ((torch.float32, P), (torch.float32, torch.bfloat16)),
    "into, from the container": ((torch.bfloat16, P), (torch.float16, torch.bfloat16)),
    "out": ((P, torch.float32), (torch.bfloat16, torch.float32)),
    "out, to the container": ((P, torch.bfloat16), (torch.bfloat16, torch.float16)),
    "into 8 bits": ((torch.float32, B), (torch.float32, torch.bfloat16)),
    "out of 8 bits": ((B, torch.float32), (torch.bfloat16, torch.float32)),
    "into 64 bits": ((torch.float64, W), (torch.float64, torch.float32)),
    "out of 64 bits, to the container": ((W, torch.float64), (torch.float32, torch.float64)),
    "between": ((P, Q), (torch.bfloat16, torch.float32)),
    "between equally wide ones": ((P, E), (torch.bfloat16, torch.float16)),
    "to itself": ((P, P), (torch.bfloat16, torch.bfloat16)),
}


def outcome(mode, way, pair):
    start, end = pair
    names = {start: "from", end: "to"}

    def named(x):
        if isinstance(x, (list, tuple)):
            return [named(v) for v in x]
        return names.get(x, x) if isinstance(x, torch.dtype) else x

    try:
        return named(MODES[mode](lambda t: way(t, end), start))
    except RuntimeError as error:
        if "stock operators" in str(error):  # --device stock has no arithmetic of e11m30
            raise
        return "raises"


@pytest.mark.parametrize(("way", "pair"), thin_out(itertools.product(WAYS | COPIES, PAIRS), 2))
def test_every_way_keeps_the_graph_that_bfloat16_keeps(way, pair):
    make = (WAYS | COPIES)[way]
    ours, stock = PAIRS[pair]
    modes = [m for m in MODES if way in WAYS or m not in ("vmap", "grad of vmap")]
    assert {m: outcome(m, make, ours) for m in modes} == {m: outcome(m, make, stock) for m in modes}


@pytest.mark.parametrize("mode", MODES)
def test_the_comparison_sees_a_lost_graph(mode):
    ours, stock = PAIRS["into"]
    assert (
        outcome(mode, lambda t, d: t.detach().to(d), ours)
        != outcome(mode, WAYS["to"], stock)
        != "raises"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, P])
@pytest.mark.parametrize("start", [P, torch.float32])
def test_functionalize_converts_to_what_is_asked_for(start, dtype):
    x = one(start)
    for way in ("to", "type", "type_as", "to of another tensor", "aten.to.dtype", "cumsum"):
        assert functionalize(lambda a, way=way: WAYS[way](a, dtype))(x).dtype is dtype
        assert grad(lambda a, way=way: functionalize(lambda b: WAYS[way](b, dtype))(a).sum())(
            x
        ).tolist() == ([3.0, 2.0, 1.0] if way == "cumsum" else [1.0] * 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, P])
def test_a_layer_that_computes_in_float32_and_comes_back_trains(dtype):
    """RMSNorm as language models write it. It once left 19 of the 21 parameters of a small model
    without a gradient."""

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            wide = x.float()
            return self.weight * (
                wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
            ).type_as(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Norm(), nn.Linear(4, 4), Norm()).to(dtype)
    model(torch.ones(2, 4, dtype=dtype)).sum().backward()
    for p in model.parameters():
        assert p.grad is not None and p.grad.dtype is dtype


def test_parameters_that_stay_in_float32_get_their_gradients():
    x, w = torch.ones(3, dtype=P, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    (w * x.float()).type_as(x).sum().backward()
    assert describe(w.grad) == (torch.float32, [1.0] * 3) and describe(x.grad) == (P, [2.0] * 3)
