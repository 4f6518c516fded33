"""Nested blocks of torch.autocast with several dtypes: each has its own casts of weights."""

import contextlib
import itertools

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torch_dtypes

KIND = torch.empty(0).device.type  # set by `--device`
SR = torch_dtypes.with_rounding(torch.q43, "stochastic")
DTYPES = [torch.q43, torch.posit16es2, SR, torch.e5m5, torch.bfloat16]
PAIRS = [pair for pair in itertools.product(DTYPES, DTYPES) if pair[0] is not pair[1]]
pairs = pytest.mark.parametrize(
    ("outer", "inner"), PAIRS, ids=lambda d: str(d).removeprefix("torch.")
)


def layers():
    torch.manual_seed(0)
    return [nn.Linear(3, 3) for _ in range(3)]


def by_hand(layer, x, dtype):
    """Cast float32 weights by .to(), without autocast."""
    return nn.functional.linear(x.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))


@pairs
def test_a_block_within_a_block(outer, inner):
    """Use one layer in each block before, within and after, and one layer in all three."""
    first, second, shared = layers()
    x = torch.randn(4, 3, requires_grad=True)

    def run(apply):
        a = apply(shared, apply(first, x, outer), outer)
        b = apply(shared, apply(second, a, inner), inner)
        return a, b, apply(shared, b, outer)

    with torch.autocast(KIND, dtype=outer):
        a = shared(first(x))
        with torch.autocast(KIND, dtype=inner):
            b = shared(second(a))
        c = shared(b)
    assert (a.dtype, b.dtype, c.dtype) == (outer, inner, outer)
    loss = a.float().sum() + b.float().sum() + c.float().sum()
    loss.backward()
    parameters = [p for layer in (first, second, shared) for p in layer.parameters()]
    got = [p.grad for p in parameters]
    assert all(
        g is not None and g.dtype is torch.float32 and g.isfinite().all() and g.abs().sum() > 0
        for g in got
    )
    if SR in (outer, inner):
        return
    want = run(by_hand)
    for p in parameters:
        p.grad = None
    assert all(torch.equal(g, w) for g, w in zip((a, b, c), want, strict=True))
    for layer in (first, second):  # one use, one cast: the same sum
        grads = torch.autograd.grad(
            want[0].float().sum() + want[1].float().sum() + want[2].float().sum(),
            list(layer.parameters()),
            retain_graph=True,
        )
        assert all(
            torch.equal(g, w)
            for g, w in zip(got[:2] if layer is first else got[2:4], grads, strict=True)
        )


def casts_of(weight, run):
    """Count how often a run casts a weight, by the nodes of autograd: each cast is a node that
    leads to the weight."""
    results = run()
    seen, stack, made = set(), [r.grad_fn for r in results], 0
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nexts = [n for n, _ in node.next_functions]
        made += sum(getattr(n, "variable", None) is weight for n in nexts)
        stack += nexts
    return made


@pairs
def test_one_cast_of_a_weight_for_each_dtype(outer, inner):
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)

    def run(**options):
        results = []
        with torch.autocast(KIND, dtype=outer, **options):
            for _ in range(2):
                results += [layer(x), layer(x)]
                with torch.autocast(KIND, dtype=inner):
                    results += [layer(x), layer(x)]
        return results

    assert casts_of(layer.weight, run) == 2
    # The inner blocks inherit the setting of the outer one.
    assert casts_of(layer.weight, lambda: run(cache_enabled=False)) == 8


@pytest.mark.parametrize("dtype", [torch.q43, torch.posit16es2])
def test_casts_end_with_the_outermost_block(dtype):
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)

    def block(*dtypes):
        with contextlib.ExitStack() as blocks:
            for d in dtypes:
                blocks.enter_context(torch.autocast(KIND, dtype=d))
            return [layer(x)]

    assert casts_of(layer.weight, lambda: block(dtype) + block(dtype)) == 2
    assert (
        casts_of(layer.weight, lambda: block(torch.bfloat16, dtype) + block(torch.bfloat16, dtype))
        == 2
    )
    assert casts_of(layer.weight, lambda: block(torch.bfloat16) + block(torch.bfloat16)) == 2


def test_a_cast_is_of_the_weight_as_it_is():
    layer, x, d = nn.Linear(2, 2, bias=False), torch.eye(2), torch.posit16es2
    nn.init.uniform_(layer.weight, 1, 2)  # the double has as many digits
    with torch.autocast(KIND, dtype=d):
        with torch.no_grad():
            before = layer(x)
        assert layer(x).requires_grad  # the cast made without gradients is not reused
        with torch.no_grad():
            layer.weight.mul_(2)
        assert torch.equal(layer(x).float(), 2 * before.float())
        with torch_dtypes.rounding("toward_zero"):
            rounded = layer(x)
    with torch_dtypes.rounding("toward_zero"):
        assert torch.equal(rounded, x.to(d) @ layer.weight.to(d).t())


def test_casts_that_users_write_are_not_kept():
    """In a block that is off, a write into a cast changes no later cast."""
    weight = nn.Parameter(torch.ones(2, 2))
    with torch.autocast(KIND, dtype=torch.q43):
        first = weight @ weight
        with torch.autocast(KIND, enabled=False), torch.no_grad():
            weight.to(torch.q43).zero_()
            assert torch.equal(weight.to(torch.q43).float(), weight)
        assert torch.equal(weight @ weight, first) and (first == 2).all()


def test_settings_are_the_users():
    assert torch.is_autocast_cache_enabled()
    with torch.autocast(KIND, dtype=torch.q43):
        assert torch.is_autocast_cache_enabled()
        with torch.autocast(KIND, dtype=torch.bfloat16, cache_enabled=False):
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
        with torch.autocast(KIND, dtype=torch.posit16es2, cache_enabled=False):
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
    assert torch.is_autocast_cache_enabled()


def test_without_gradients_and_in_inference_mode():
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    for off in (torch.no_grad, torch.inference_mode):
        with off(), torch.autocast(KIND, dtype=torch.q43):
            first = layer(x)
            with torch.autocast(KIND, dtype=torch.posit16es2):
                second = layer(first)
            assert layer(second).dtype is torch.q43
        with off():
            assert torch.equal(second, by_hand(layer, first, torch.posit16es2))


def test_a_block_of_bfloat16_alone_leaves_format_tensors_alone():
    """Also after a block with a nested format dtype."""
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.autocast(KIND, dtype=torch.bfloat16), torch.autocast(KIND, dtype=torch.q43):
        layer(x)
    with torch.autocast(KIND, dtype=torch.bfloat16):
        assert (x.to(torch.q43) @ x.to(torch.q43).t()).dtype is torch.q43
        with pytest.raises(RuntimeError, match="expected operands of one dtype"):
            layer(x.to(torch.posit16es2))


class Casts(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def test_stock_blocks_keep_stocks_cache():
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    with Casts() as casts, torch.autocast(KIND, dtype=torch.bfloat16):
        layer(x)
        layer(x)
    assert casts.count == 4  # one cast each for both inputs, weight and bias
