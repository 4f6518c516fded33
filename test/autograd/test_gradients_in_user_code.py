"""Gradients in user code during backward (functions, hooks, checkpoints, modes) have the dtype of
their own tensor and are promoted as elsewhere."""

import contextlib
import functools

import pytest
import torch
from test_autograd import CONTAINER
from test_gradient_dtypes import S, X, each_dtype, expect_own, leaf
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode


class Rounds(torch.autograd.Function):
    """A straight-through estimator, in both directions."""

    @staticmethod
    def forward(w, dtype):
        return w.to(dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class RoundsGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, dtype):
        ctx.dtype = dtype
        return w.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.dtype), None


class Two(torch.autograd.Function):
    seen = None

    @staticmethod
    def forward(w):
        return w.clone(), w.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *gradients):
        Two.seen = [g.dtype for g in gradients]
        return gradients[0] * ctx.saved_tensors[0] + gradients[1]


@each_dtype
def test_custom_functions_across_the_border(dtype):
    container = CONTAINER[dtype.itemsize]
    given = torch.tensor([1.0, 1.0 + 2.0**-3, -0.5])
    for source, target in ((container, dtype), (dtype, container)):
        w = leaf(S, source)
        Rounds.apply(w, target).backward(given.to(target))
        expect_own(w)
        assert torch.equal(w.grad.double(), given.to(target).to(source).double())
    for source, target in ((container, dtype), (dtype, container), (torch.float64, dtype)):
        w = leaf(S, source)
        RoundsGradient.apply(w, target).backward(given.to(source))
        expect_own(w)
        if source != torch.float8_e5m2fnuz:
            middle = w * 1
            middle.retain_grad()
            RoundsGradient.apply(middle, target).backward(given.to(source))
            expect_own(middle)


@each_dtype
def test_straight_through_in_torch_func(dtype):
    container = CONTAINER[dtype.itemsize]
    if container is torch.float8_e5m2fnuz:
        pytest.skip("PyTorch's torch.func cannot add float8 tensors")
    for source, target in ((container, dtype), (dtype, container)):
        w = torch.tensor(S).to(source)
        grad = torch.func.grad(lambda w, target=target: Rounds.apply(w, target).sum())(w)
        assert grad.dtype is source and grad.tolist() == [1.0] * 3
    scale, x = torch.tensor(0.5).to(container), torch.tensor(X).to(dtype)
    grad = torch.func.grad(lambda s: (x * s).sum())(scale)
    assert grad.dtype is container and grad.item() == 0.25
    gx, gs = torch.func.grad(lambda x, s: (x * s).sum(), argnums=(0, 1))(x, scale)
    assert gx.dtype is dtype and gs.dtype is container


@each_dtype
@pytest.mark.parametrize("unused", [0, 1])
def test_zeros_for_an_unused_output_are_of_its_dtype(unused, dtype):
    w, given = leaf([1.0, 2.718, 1.5], dtype), torch.tensor([1.0, 2.718, 3.0]).to(dtype)
    Two.apply(w)[1 - unused].backward(given)
    assert Two.seen == [dtype, dtype]
    expect_own(w)
    assert torch.equal(w.grad, given * w.detach() if unused else given)


@each_dtype
def test_zeros_for_an_unused_output_of_a_library_s_operator(dtype):
    seen = []
    with torch.library._scoped_library("gradient_dtypes", "FRAGMENT") as library:
        library.define("two(Tensor w) -> (Tensor, Tensor)")
        library.impl("two", lambda w: (w.clone(), w * 2), "CompositeExplicitAutograd")
        torch.library.register_autograd(
            "gradient_dtypes::two",
            lambda ctx, *grads: seen.extend(grads) or grads[0] + grads[1],
            lib=library,
        )
        w = leaf(X, dtype)
        torch.ops.gradient_dtypes.two(w)[0].sum().backward()
    assert [g.dtype for g in seen] == [dtype, dtype]
    expect_own(w)


HOOKS = {
    "register_hook": lambda t, y, hook: t.register_hook(hook),
    "register_hook of a result": lambda t, y, hook: y.register_hook(hook),
    "register_prehook": lambda t, y, hook: y.grad_fn.register_prehook(
        lambda gradients: tuple(map(hook, gradients))
    ),
    "register_hook of a node": lambda t, y, hook: y.grad_fn.register_hook(
        lambda gradients, _: tuple(map(hook, gradients))
    ),
}


@each_dtype
@pytest.mark.parametrize("way", HOOKS)
def test_a_hook_returns_the_dtype_that_it_was_given(way, dtype):
    container = CONTAINER[dtype.itemsize]
    for own, other in ((container, dtype), (dtype, container), (dtype, torch.float16)):
        t = leaf(S, own)
        y = t.clone()
        HOOKS[way](t, y, lambda g, other=other: g.to(other))
        with pytest.raises(
            RuntimeError,
            match=f"expected the hook <lambda> to return a gradient of {own}, but got {other}",
        ):
            y.backward(torch.ones(3).to(own))
        assert t.grad is None
        t = leaf(S, own)
        y = t.clone()
        for hook in (
            lambda g: (g.double() * 2).to(g.dtype),
            lambda g: (g.double() + 1).to(g.dtype),
        ):
            HOOKS[way](t, y, hook)
        y.backward(torch.ones(3).to(own))
        expect_own(t)
        assert t.grad.double().tolist() == [3.0] * 3


# User code in the middle of backward mixes dtypes as it does elsewhere: beside float32 with
# dimensions, the result is float32.


def mixes(seen, w):
    def run(gradient):
        with torch.no_grad():
            seen.append((gradient * w).dtype)

    return run


class Mixes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run):
        ctx.run = run
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.run(gradient)
        return gradient * 2, None


def in_unpack_hook(x, run):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: run(t) or t):
        return x * x


def in_second_pass(x, run, reentrant):
    calls = []

    def twice(x):
        calls.append(run(x) if calls else None)
        return x.sin()

    return checkpoint(twice, x, use_reentrant=reentrant)


def add_hook(register):
    def way(x, run):
        y = x * x
        register(x, y, run)
        return y

    return way


ENGINE = torch.autograd.Variable._execution_engine


def gradient_of_cos(x):
    with torch.enable_grad():
        return torch.autograd.grad(x.cos().sum(), x)[0]


USER_CODE = {
    "tensor hook": add_hook(lambda x, y, run: y.register_hook(run)),
    "leaf's hook": add_hook(lambda x, y, run: x.register_hook(run)),
    "post-accumulate hook": add_hook(
        lambda x, y, run: x.register_post_accumulate_grad_hook(lambda p: run(p.grad))
    ),
    "node's hook": add_hook(
        lambda x, y, run: y.grad_fn.register_hook(lambda inputs, _: run(inputs[0]))
    ),
    "node's prehook": add_hook(
        lambda x, y, run: y.grad_fn.register_prehook(lambda gradients: run(gradients[0]))
    ),
    "multi-grad hook": add_hook(
        lambda x, y, run: torch.autograd.graph.register_multi_grad_hook(
            [x, y], lambda grads: run(grads[0])
        )
    ),
    "unpack hook": in_unpack_hook,
    "autograd.Function": lambda x, run: Mixes.apply(x, run),
    "checkpoint": lambda x, run: in_second_pass(x, run, False),
    "reentrant checkpoint": lambda x, run: in_second_pass(x, run, True),
    "callback of the engine": add_hook(
        lambda x, y, run: y.register_hook(lambda g: ENGINE.queue_callback(lambda: run(g)))
    ),
    "backward in a hook": add_hook(
        lambda x, y, run: y.register_hook(lambda g: run(gradient_of_cos(x)))
    ),
}


@each_dtype
@pytest.mark.parametrize("way", USER_CODE)
def test_user_code_in_backward_promotes_as_outside(way, dtype):
    x, seen, w = leaf(X, dtype), [], torch.ones(3, dtype=torch.float64)
    USER_CODE[way](x, mixes(seen, w)).sum().backward()
    assert seen and set(seen) == {torch.float64}
    expect_own(x)


def test_a_builtin_as_a_hook_promotes_as_outside():
    """A builtin runs without a Python frame."""
    x, w = leaf(X, torch.posit16es2), torch.ones(3)
    x.register_hook(w.__mul__)
    with pytest.raises(
        RuntimeError,
        match=r"expected the hook __mul__ to return a gradient of torch.posit16es2, but got "
        r"torch.float32",
    ):
        x.sum().backward()


@each_dtype
def test_a_hook_of_one_result_leaves_the_gradients_of_others(dtype):
    """A hook on one result of a node with several sees the gradient of that result. It is None
    where only another result was used."""
    x, seen = leaf(X, dtype), []
    first, second, _ = x.unbind()
    first.register_hook(seen.append)
    second.backward()
    assert seen == [None]
    expect_own(x)
    assert x.grad.tolist() == [0, 1, 0]


class Passes(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@each_dtype
def test_a_dispatch_mode_changes_no_gradient(dtype):
    """The mode's handler is Python code between a stock formula and this package's kernels."""
    found = []
    for mode in (False, True):
        x, seen = leaf(X, dtype), []
        loss = (
            nn.functional.huber_loss(x.prod() * x.std() * x, x.flip(0), delta=0.5)
            + torch.nn.functional.softplus(x).var()
        )
        x.register_hook(mixes(seen, torch.ones(3, dtype=torch.float64)))
        if mode:
            with Passes():
                loss.backward()
        else:
            loss.backward()
        assert seen == [torch.float64]
        expect_own(x)
        found.append(x.grad)
    assert torch.equal(*found)


# Stock code (formulas and composite operators) that hands its operand's dtype to another operator,
# which a mode's handler calls itself.
NAMES_DTYPE = {
    "softmax": lambda x: x.softmax(0),
    "cross_entropy": lambda x: nn.functional.cross_entropy(
        x.expand(4, 3), torch.tensor([0, 1, 2, 0])
    ),
    "rounded quotient": lambda x: torch.div(x, x.detach() * 2 + 1, rounding_mode="trunc") + x,
    "tensordot of one term": lambda x: torch.tensordot(
        x[None], x[:, None].expand(3, 2)[:1], dims=([0], [0])
    ),
    "circular padding": lambda x: nn.functional.pad(x[None, None], (1, 2), mode="circular"),
    "attention": lambda x: nn.functional.multi_head_attention_forward(
        x[None],
        x[None],
        x[None],
        3,
        1,
        torch.ones(9, 3).to(x.dtype),
        None,
        None,
        None,
        False,
        0.0,
        torch.eye(3).to(x.dtype),
        None,
    )[0],
}


@pytest.mark.parametrize(
    "mode",
    [Passes, functools.partial(FlopCounterMode, display=False)],
    ids=["handler", "FlopCounterMode"],
)
@pytest.mark.parametrize("name", NAMES_DTYPE)
def test_a_dispatch_mode_changes_no_dtype(name, mode):
    found = []
    for within in (False, True):
        x = leaf(X, torch.q43)
        with mode() if within else contextlib.nullcontext():
            y = NAMES_DTYPE[name](x)
            y.sum().backward()
        assert y.dtype == torch.q43
        expect_own(x)
        found.append((y.detach(), x.grad))
    assert all(map(torch.equal, *found))


@each_dtype
def test_a_float32_layer_behind_a_format_layer_in_a_checkpoint(dtype):
    torch.manual_seed(0)
    layers, norm = nn.Linear(3, 3).to(dtype), nn.LayerNorm(3)
    gradients = []
    for run in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False)):
        x = leaf([X, S], dtype)
        layers.zero_grad(), norm.zero_grad()
        run(lambda x: norm(layers(x)), x).square().sum().backward()
        expect_own(x, *layers.parameters(), *norm.parameters())
        gradients.append([x.grad, *(p.grad for p in (*layers.parameters(), *norm.parameters()))])
    assert all(map(torch.equal, *gradients))
