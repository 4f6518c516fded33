"""Gradients beside stock tensors of the container's dtype, which the engine cannot tell from ours: each arrives in its own tensor's dtype."""

import pytest
import torch
from test_autograd import CONTAINER
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import torch_dtypes
from torch_dtypes import _C

DTYPES = [torch.posit16es2, torch.posit32es2, torch.tf32, torch.q43, torch_dtypes.dtype("e11m30")]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
X, S = [1.5, -2.0, 0.75], [0.5, 1.25, -3.0]


def leaf(values, dtype):
    return torch.tensor(values).to(dtype).requires_grad_()


def expect_own(*tensors):
    for t in tensors:
        assert t.grad.dtype is t.dtype and _C.is_format_tensor(t.grad) is _C.is_format_tensor(t)


# Operators whose result is ours: of one of ours and a stock tensor without dimensions, and in place.
MIXED = {
    "mul": lambda x, s: x * s[0], "rmul": lambda x, s: s[1] * x, "add": lambda x, s: x + s[0], "sub": lambda x, s: torch.sub(s[0], x, alpha=2),
    "div": lambda x, s: x / s[1], "pow": lambda x, s: x.abs() ** s[0], "pow of a number": lambda x, s: s[0] ** x,
    "where": lambda x, s: torch.where(x > 0, x, s[0]), "lerp": lambda x, s: x.lerp(x.flip(0), s[0]), "atan2": lambda x, s: torch.atan2(x, s[0]),
    "maximum": lambda x, s: torch.maximum(x, s[0]), "masked_fill": lambda x, s: x.masked_fill(x > 0, s[0]),
    "addcmul": lambda x, s: x.addcmul(x, s[0]),
    "hypot": lambda x, s: torch.hypot(x, s[0]), "clamp": lambda x, s: x.clamp(min=s[0]), "fmod": lambda x, s: x.fmod(s[1]),
    "add_": lambda x, s: x.clone().add_(s), "sub_": lambda x, s: x.clone().sub_(s, alpha=0.5), "mul_": lambda x, s: x.clone().mul_(s),
    "div_": lambda x, s: x.clone().div_(s), "pow_": lambda x, s: x.abs().pow_(s), "fill_": lambda x, s: x.clone().fill_(s[0]),
    "addcmul_": lambda x, s: x.clone().addcmul_(s, x), "addcdiv_": lambda x, s: x.clone().addcdiv_(x, s),
    "lerp_": lambda x, s: x.clone().lerp_(x.flip(0), s[0]),
    "clamp_": lambda x, s: x.clone().clamp_(min=s), "copy_": lambda x, s: x.clone().copy_(s), "mul_ of a view": lambda x, s: view(x, s),
    "index_copy_": lambda x, s: x.clone().index_copy_(0, torch.tensor([2, 0]), s[:2].to(x.dtype)), "setitem": lambda x, s: put(x, s),
    "masked_scatter_": lambda x, s: x.clone().masked_scatter_(x > 0, s.to(x.dtype)), "foreach": lambda x, s: torch._foreach_mul([x], s[0])[0],
    "foreach_": lambda x, s: foreach(x, s), "atan2_": lambda x, s: x.clone().atan2_(s), "copysign_": lambda x, s: x.clone().copysign_(s),
}  # fmt: skip


def view(x, s):
    y = x.clone()
    y[1:].mul_(s[1:])
    return y


def put(x, s):
    y = x.clone()
    y[1:] = s[1:]
    return y


def foreach(x, s):
    y = x.clone()
    torch._foreach_add_([y], [s])
    return y


@each_dtype
@pytest.mark.parametrize("name", MIXED)
def test_operators_of_ours_and_a_tensor_of_the_container_s_dtype(name, dtype):
    found, container = [], CONTAINER[dtype.itemsize]
    other = torch.float64 if dtype.itemsize < 8 else torch.float32
    for stock in (container, other):
        # Views of float8 tensors have gradients that stock cannot add up, so each element is a cast's.
        x, s = leaf(X, dtype), leaf(S, stock)
        wide = s if stock is not torch.float8_e5m2fnuz else [leaf(v, stock) for v in S]
        if isinstance(wide, list) and name not in ("mul", "rmul", "add", "sub", "div"):
            pytest.skip("stock has no derivative through views of float8 tensors")
        y = MIXED[name](x, wide)
        assert y.dtype is dtype
        y.backward(torch.tensor([1.0, 0.5, -1.0]).to(dtype))
        if x.grad is not None:
            expect_own(x)
        leaves = [v for v in wide if v.grad is not None] if isinstance(wide, list) else [s]
        expect_own(*leaves)
        found.append([t.detach().double() for t in (y, x.grad, *(v.grad for v in leaves)) if t is not None])
    # In place, what stands beside a stock tensor with dimensions is computed in that one's dtype.
    error = 4 * max(torch.finfo(d).eps for d in (dtype, container, other))
    for a, b in zip(found[0], found[1][: len(found[0])], strict=True):
        torch.testing.assert_close(a.sum() if a.shape != b.shape else a, b.sum() if a.shape != b.shape else b, rtol=error, atol=error)


@each_dtype
def test_a_given_gradient(dtype):
    container = CONTAINER[dtype.itemsize]
    own, stock = torch.tensor(X).to(dtype), torch.tensor(X).to(container)
    for t, given in ((leaf(S, container), own), (leaf(S, dtype), stock)):
        t.clone().backward(given)
        expect_own(t)
        expected = given.to(t.dtype).double()
        assert torch.equal(t.grad.double(), expected)
        (grad,) = torch.autograd.grad(t.clone(), t, given)
        assert grad.dtype is t.dtype and torch.equal(grad.double(), expected)


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
        pytest.skip("stock's torch.func cannot add float8 tensors")
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
        torch.library.register_autograd("gradient_dtypes::two", lambda ctx, *grads: seen.extend(grads) or grads[0] + grads[1], lib=library)
        w = leaf(X, dtype)
        torch.ops.gradient_dtypes.two(w)[0].sum().backward()
    assert [g.dtype for g in seen] == [dtype, dtype]
    expect_own(w)


@each_dtype
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_the_copy_that_triangular_solve_returns(dtype):
    b, a = leaf([[1.0], [2.0]], dtype), leaf([[2.0, 1.0], [0.0, 4.0]], dtype)
    torch.triangular_solve(b, a)[1].sum().backward()
    expect_own(a, *([b] if b.grad is not None else []))


HOOKS = {
    "register_hook": lambda t, y, hook: t.register_hook(hook),
    "register_hook of a result": lambda t, y, hook: y.register_hook(hook),
    "register_prehook": lambda t, y, hook: y.grad_fn.register_prehook(lambda gradients: tuple(map(hook, gradients))),
    "register_hook of a node": lambda t, y, hook: y.grad_fn.register_hook(lambda gradients, _: tuple(map(hook, gradients))),
}


@each_dtype
@pytest.mark.parametrize("way", HOOKS)
def test_a_hook_returns_the_dtype_that_it_was_given(way, dtype):
    container = CONTAINER[dtype.itemsize]
    for own, other in ((container, dtype), (dtype, container), (dtype, torch.float16)):
        t = leaf(S, own)
        y = t.clone()
        HOOKS[way](t, y, lambda g, other=other: g.to(other))
        with pytest.raises(RuntimeError, match=f"expected the hook <lambda> to return a gradient of {own}, but got {other}"):
            y.backward(torch.ones(3).to(own))
        assert t.grad is None
        t = leaf(S, own)
        y = t.clone()
        for hook in (lambda g: (g.double() * 2).to(g.dtype), lambda g: (g.double() + 1).to(g.dtype)):
            HOOKS[way](t, y, hook)
        y.backward(torch.ones(3).to(own))
        expect_own(t)
        assert t.grad.double().tolist() == [3.0] * 3


# User code in the middle of backward mixes dtypes as it does outside: beside float32 with dimensions, the result is float32.


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


def hooked(register):
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
    "tensor hook": hooked(lambda x, y, run: y.register_hook(run)),
    "leaf's hook": hooked(lambda x, y, run: x.register_hook(run)),
    "post-accumulate hook": hooked(lambda x, y, run: x.register_post_accumulate_grad_hook(lambda p: run(p.grad))),
    "node's hook": hooked(lambda x, y, run: y.grad_fn.register_hook(lambda inputs, _: run(inputs[0]))),
    "node's prehook": hooked(lambda x, y, run: y.grad_fn.register_prehook(lambda gradients: run(gradients[0]))),
    "multi-grad hook": hooked(lambda x, y, run: torch.autograd.graph.register_multi_grad_hook([x, y], lambda grads: run(grads[0]))),
    "unpack hook": in_unpack_hook,
    "autograd.Function": lambda x, run: Mixes.apply(x, run),
    "checkpoint": lambda x, run: in_second_pass(x, run, False),
    "reentrant checkpoint": lambda x, run: in_second_pass(x, run, True),
    "callback of the engine": hooked(lambda x, y, run: y.register_hook(lambda g: ENGINE.queue_callback(lambda: run(g)))),
    "backward in a hook": hooked(lambda x, y, run: y.register_hook(lambda g: run(gradient_of_cos(x)))),
}


@each_dtype
@pytest.mark.parametrize("way", USER_CODE)
def test_user_code_in_backward_promotes_as_outside(way, dtype):
    x, seen, w = leaf(X, dtype), [], torch.ones(3, dtype=torch.float64)
    USER_CODE[way](x, mixes(seen, w)).sum().backward()
    assert seen and set(seen) == {torch.float64}
    expect_own(x)


def test_a_builtin_as_a_hook_promotes_as_outside():
    """Without a frame of Python."""
    x, w = leaf(X, torch.posit16es2), torch.ones(3)
    x.register_hook(w.__mul__)
    with pytest.raises(RuntimeError, match=r"expected the hook __mul__ to return a gradient of torch.posit16es2, but got torch.float32"):
        x.sum().backward()


class Passes(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@each_dtype
def test_a_dispatch_mode_changes_no_gradient(dtype):
    """Its handler is Python between a stock formula and our kernels."""
    found = []
    for mode in (False, True):
        x, seen = leaf(X, dtype), []
        loss = nn.functional.huber_loss(x.prod() * x.std() * x, x.flip(0), delta=0.5) + torch.nn.functional.softplus(x).var()
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


@each_dtype
def test_a_float32_layer_behind_ours_in_a_checkpoint(dtype):
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


def test_in_place_on_stock_with_bounds_of_ours():
    s, low = leaf([1.0, 3.0], torch.float32), leaf([2.0, 2.0], torch.posit16es2)
    y = s.clone()
    assert y.clamp_(min=low) is y
    y.sum().backward()
    assert s.grad.tolist() == [0.0, 1.0] and low.grad.tolist() == [1.0, 0.0]
    expect_own(s, low)


@each_dtype
def test_in_place_powers_with_exponents_of_float32(dtype):
    for exponent in (leaf([2.0, 0.5], torch.float32), leaf(2.0, torch.float32)):
        x = leaf([1.5, 4.0], dtype)
        x.clone().pow_(exponent).sum().backward()
        expect_own(x, exponent)
        reference, e = leaf([1.5, 4.0], torch.float64), leaf(exponent.tolist(), torch.float64)
        (reference**e).sum().backward()
        torch.testing.assert_close(x.grad.double(), reference.grad, rtol=0.07, atol=0)
        torch.testing.assert_close(exponent.grad.double(), e.grad, rtol=0.07, atol=0)


@each_dtype
def test_grad_dtype_names_our_dtype(dtype):
    x, container = leaf(X, dtype), CONTAINER[dtype.itemsize]
    assert x.grad_dtype is dtype and torch.ones(1, dtype=container).grad_dtype is container
    for refused in (container, torch.e5m5):
        with pytest.raises(TypeError, match=f"grad_dtype: expected {dtype}, .* but got {refused}"):
            x.grad_dtype = refused
    with pytest.raises(TypeError, match=f"grad_dtype: expected {container}, .* but got {dtype}"):
        leaf(X, container).grad_dtype = dtype
    x.grad_dtype = torch.float16
    x.clone().backward(torch.ones(3, dtype=dtype))
    assert x.grad_dtype is x.grad.dtype is torch.float16
    x.grad, x.grad_dtype = None, dtype
    x.clone().backward(torch.ones(3, dtype=dtype))
    expect_own(x)


# The other way round: what is ours meets a stock tensor that decides, or is written to.
STOCK_RESULTS = {
    "mul": lambda x, s: x * s, "where": lambda x, s: torch.where(s > 0, x, s), "cat": lambda x, s: torch.cat([x, s])[1:4],
    "pow": lambda x, s: x.abs() ** s,
    "stack": lambda x, s: torch.stack([x, s])[0], "mul_": lambda x, s: s.clone().mul_(x), "add_": lambda x, s: s.clone().add_(x, alpha=2),
    "clamp_": lambda x, s: s.clone().clamp_(min=x), "copy_": lambda x, s: s.clone().copy_(x), "setitem": lambda x, s: put(s, x),
    "fill_": lambda x, s: s.clone().fill_(x[0]), "div_ of a view": lambda x, s: view(s, x), "addcmul_": lambda x, s: s.clone().addcmul_(x, s),
    "lerp": lambda x, s: s.lerp(s.flip(0), x[0]), "pow_": lambda x, s: s.abs().pow_(x), "foreach_": lambda x, s: foreach(s, x),
    "masked_fill": lambda x, s: s.masked_fill(s > 0, x[0]), "slice_scatter": lambda x, s: s.slice_scatter(x[1:], 0, 1),
    "bounds": lambda x, s: torch.clamp(s, x, x + 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize > 1], ids=str)  # stock computes nothing in its float8 types
@pytest.mark.parametrize("name", STOCK_RESULTS)
def test_operators_whose_result_is_of_the_container_s_dtype(name, dtype):
    found, container = [], CONTAINER[dtype.itemsize]
    other = torch.float64 if dtype.itemsize < 8 else torch.float32
    for stock in (container, other):
        x, s = leaf(X, dtype), leaf(S, stock)
        y = STOCK_RESULTS[name](x, s)
        assert y.dtype is stock
        y.backward(torch.tensor([1.0, 0.5, -1.0], dtype=stock))
        expect_own(*(t for t in (x, s) if t.grad is not None))
        found.append([t.detach().double() for t in (y, x.grad, s.grad) if t is not None])
    error = 4 * max(torch.finfo(d).eps for d in (dtype, container, other))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=error, atol=error)


@each_dtype
def test_gradients_of_gradients(dtype):
    container = CONTAINER[dtype.itemsize]
    if container is torch.float8_e5m2fnuz:
        pytest.skip("stock computes nothing in its float8 types")
    for of, with_respect_to in ((0, 1), (1, 0), (1, 1)):
        leaves = leaf(X, dtype), leaf(2.0, container)
        x, s = leaves
        (first,) = torch.autograd.grad((x * s * s * x).sum(), leaves[of], create_graph=True)
        assert first.dtype is leaves[of].dtype
        (second,) = torch.autograd.grad(first.sum(), leaves[with_respect_to])
        assert second.dtype is leaves[with_respect_to].dtype
        expected = 2 * sum(v * v for v in X) if of == with_respect_to else 8 * sum(X) if with_respect_to else [8 * v for v in X]
        assert second.tolist() == expected


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")  # the first tangent of a process
@each_dtype
def test_a_tangent_has_its_tensor_s_dtype(dtype):
    container = CONTAINER[dtype.itemsize]
    for own, other in ((dtype, container), (container, dtype)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.tensor(X).to(own), torch.ones(3).to(other))
            assert forward_ad.unpack_dual(dual).tangent.dtype is own
        result, tangent = torch.func.jvp(lambda t: t.clone(), (torch.tensor(X).to(own),), (torch.ones(3).to(other),))
        assert result.dtype is tangent.dtype is own
