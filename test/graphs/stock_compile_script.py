"""torch.compile of stock code, printed line by line: test_stock_compile.py runs this with the
package and without it."""

import copy
import functools
import io
import pickle
import sys
import warnings

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

warnings.simplefilter("ignore")
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def leaf(n=3):
    return torch.linspace(-1, 1, n).requires_grad_()


# ---- hooks of stock tensors ----


@case
def hooks_around_breaks(compile_):
    def f(x):
        x.register_hook(lambda g: g * 2)
        print("a break")
        x.register_hook(lambda g: g + 1)
        y = x * 3
        y.register_hook(lambda g: g * 5)
        return x, y

    x = leaf()
    v, y = compile_(f)(x)
    (v.sum() + y.sum()).backward()
    return x.grad


@case
def hooks_with_handles(compile_):
    def f(x, z):
        first = x.register_hook(lambda g: g * 2)
        z = z * z
        first.remove()
        second = x.register_hook(lambda g: g * 3)
        return x, z, second

    x = leaf()
    v, _, handle = compile_(f)(x, torch.ones(2))
    v.sum().backward()
    handle.remove()
    v.sum().backward()
    return x.grad


def scale_gradient(p):
    p.grad.mul_(7)


@case
def hooks_after_accumulation(compile_):
    def f(x):
        x.register_post_accumulate_grad_hook(scale_gradient)
        return x * 2

    x = leaf()
    compile_(f)(x).sum().backward()
    return x.grad


@case
def hook_alone(compile_):
    def f(x):
        x.register_hook(lambda g: g * 2)
        return x

    x = leaf()
    compile_(f)(x).sum().backward()
    return x.grad


# ---- optimizers ----


def step_of(kind, compile_):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 4))

    def step(x):
        optimizer.zero_grad()
        ((x @ weight) ** 2).sum().backward()
        optimizer.step()

    optimizer = kind([weight], lr=0.1)
    step = compile_(step)
    for _ in range(2):
        step(torch.ones(2, 4))
    return weight


for kind in (torch.optim.SGD, torch.optim.RAdam):
    CASES[kind.__name__] = functools.partial(step_of, kind)


@case
def optimizer_made_inside(compile_):
    def make(weight):
        optimizer = torch.optim.Adagrad([weight])

        def closure():
            optimizer.zero_grad()
            loss = (weight * 2).pow(2).sum()
            loss.backward()
            return loss

        return optimizer, closure

    weight = nn.Parameter(torch.ones(3))
    optimizer, closure = compile_(make)(weight)
    optimizer.step(closure)
    return weight


@case
def clip_gradients(compile_):
    weights = [leaf(3), leaf(4)]
    for w in weights:
        (w * 9).sum().backward()
    compile_(lambda: nn.utils.clip_grad_norm_(weights, 1.0))()
    return [w.grad for w in weights]


# ---- values that are looked at before a frame is compiled ----


class Values(dict):
    def values(self):
        raise RuntimeError("values() called")

    __iter__ = items = keys = values


class Elements(list):
    def __iter__(self):
        raise RuntimeError("__iter__ called")

    __len__ = __iter__


class Hidden:
    @property
    def __class__(self):
        raise RuntimeError("__class__ asked")

    @property
    def dtype(self):
        raise RuntimeError("dtype asked")

    @property
    def __dict__(self):
        raise RuntimeError("__dict__ asked")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def parameters(self, recurse=True):
        raise RuntimeError("parameters() called")

    buffers = named_parameters = parameters

    def forward(self, x):
        return x * self.scale


class HalfMade(torch.optim.Optimizer):
    def __init__(self):
        self.rate = double(torch.ones(2), self)

    def __getattr__(self, name):
        raise RuntimeError(f"{name} asked")


def double(x, *_):
    return x * 2


for value in (
    Values(a=1),
    Elements([1]),
    Hidden(),
    Net(),
    functools.partial(double, Hidden()),
    {1: Values()},
    frozenset([2]),
):
    CASES[f"argument_{type(value).__name__}"] = lambda compile_, value=value: compile_(double)(
        torch.ones(2), value
    )
CASES["bound_module"] = lambda compile_: compile_(Net().forward)(torch.ones(3))
CASES["half_made_optimizer"] = lambda compile_: compile_(HalfMade)().rate


# ---- Python functions that this package stands in front of ----


@case
def printed_and_saved(compile_):
    def f(x):
        y = x.sin()
        text = repr(y)
        file = io.BytesIO()
        torch.save(y, file)
        return y.cos(), len(text), copy.deepcopy(y), pickle.loads(pickle.dumps(y)) + 1

    return compile_(f)(torch.ones(3))


@case
def operators_by_hand(compile_):
    return compile_(
        lambda x: torch.ops.aten.sum(torch.ops.aten.mul.Tensor(x, x), dtype=torch.float64)
    )(torch.ones(3))


@case
def divide(compile_):
    return compile_(lambda x: 1 / x + x.__rdiv__(2))(torch.ones(3))


@case
def attention(compile_):
    torch.manual_seed(0)
    layer, mask = nn.MultiheadAttention(4, 2), nn.Transformer.generate_square_subsequent_mask(3)
    x = torch.randn(3, 1, 4)
    return compile_(lambda x: layer(x, x, x, attn_mask=mask)[0])(x)


@case
def masked_reduction(compile_):
    return compile_(lambda x: torch.masked.amax(x, 0, mask=x > 0))(leaf())


@case
def use_checkpoint(compile_):
    from torch.utils.checkpoint import checkpoint

    x = leaf()
    compile_(lambda x: checkpoint(torch.sin, x * 2, use_reentrant=False))(x).sum().backward()
    return x.grad


@case
def closeness(compile_):
    def f(x):
        torch.testing.assert_close(x, x + 0)
        return x * 2

    return compile_(f)(torch.ones(3))


@case
def default_dtype(compile_):
    def f():
        torch.set_default_dtype(torch.float64)
        x = torch.ones(2) / 3
        torch.set_default_dtype(torch.float32)
        return x

    return compile_(f)()


def run(name, fullgraph):
    torch._dynamo.reset()
    counters.clear()
    counter = CompileCounter()
    try:
        result = CASES[name](lambda f: torch.compile(f, backend=counter, fullgraph=fullgraph))
    except Exception as error:
        result = f"{type(error).__name__} {str(error).splitlines()[:1]}"
    print(
        name,
        counter.frame_count,
        counter.op_count,
        sum(counters["graph_break"].values()),
        result,
        flush=True,
    )


if __name__ == "__main__":
    assert hasattr(torch, "q43") == (sys.argv[1] == "with")  # loads the package
    torch.set_printoptions(precision=9)
    for torch._dynamo.config.nested_graph_breaks, fullgraph in ((True, False), (False, True)):
        print(
            "nested graph breaks",
            torch._dynamo.config.nested_graph_breaks,
            "whole graphs",
            fullgraph,
        )
        for name in CASES:
            run(name, fullgraph)
