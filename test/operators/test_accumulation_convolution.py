"""Convolutions and gradients under the accumulation policies: against float64 where it is exact,
and against exact rationals in a given order."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import codes_of
from rationals import Fraction
from sums import FORMATS, assert_codes, ends, exact_codes, some, step_codes, values_of
from test_accumulation_operators import OPERATORS, OWN, POLICIES, summed_in_float64

from torch_dtypes import accumulate

# float64 adds up their products exactly
both_formats = pytest.mark.parametrize("name", ["q43", "posit8es1"])

# ---- the factors of each product, in order ----


def each(*sizes):
    return itertools.product(*map(range, sizes))


def array(t, spec):
    values = np.empty(t.numel(), dtype=object)
    values[:] = values_of(t, spec)
    return values.reshape(t.shape)


def pixel(x, i, c, place):
    """Return a pixel, or zero outside the image."""
    return (
        x[(i, c, *place)]
        if all(0 <= p < n for p, n in zip(place, x.shape[2:], strict=True))
        else Fraction(0)
    )


class Geometry:
    def __init__(self, dims, stride=1, padding=0, dilation=1, groups=1, output_padding=0):
        def tuples(v):
            return (v,) * dims if isinstance(v, int) else v

        self.stride, self.padding, self.dilation, self.extra = map(
            tuples, (stride, padding, dilation, output_padding)
        )
        self.groups = groups

    def find_input(self, place, tap):
        """Return the input's place that meets an output's place at one place of the kernel."""
        return [
            p * s + t * d - pad
            for p, s, t, d, pad in zip(
                place, self.stride, tap, self.dilation, self.padding, strict=True
            )
        ]

    def outputs(self, x, w):
        terms = zip(x.shape[2:], self.padding, self.dilation, w.shape[2:], self.stride, strict=True)
        return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in terms]

    def inputs(self, y, w):
        """Return the sizes of a transposed convolution's result."""
        terms = zip(
            y.shape[2:],
            self.padding,
            self.dilation,
            w.shape[2:],
            self.stride,
            self.extra,
            strict=True,
        )
        return [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, p, d, k, s, e in terms]

    def forward(self, x, w):
        """Yield products over channels, then places in the kernel."""
        wide, per = w.shape[0] // self.groups, w.shape[1]
        for i, o, *place in each(len(x), len(w), *self.outputs(x, w)):
            taps = list(each(*w.shape[1:]))
            yield [
                (pixel(x, i, o // wide * per + c, self.find_input(place, tap)), w[(o, c, *tap)])
                for c, *tap in taps
            ]

    def weight(self, y, x, w):
        """Yield the products of the weights' gradient: over the batch, then places in the
        output."""
        wide, per = w.shape[0] // self.groups, w.shape[1]
        for o, c, *tap in each(*w.shape):
            places = list(each(len(y), *y.shape[2:]))
            yield [
                (y[(i, o, *place)], pixel(x, i, o // wide * per + c, self.find_input(place, tap)))
                for i, *place in places
            ]

    def backward(self, y, w, sizes):
        """Yield the products of the input's gradient, or of a transposed convolution: over
        channels, then places in the output that the kernel meets."""
        wide, per = w.shape[0] // self.groups, w.shape[1]
        for i, c, *place in each(len(y), per * self.groups, *sizes):
            dot = []
            for o, *source in each(wide, *y.shape[2:]):
                reach = [
                    p - q
                    for p, q in zip(place, self.find_input(source, (0,) * len(place)), strict=True)
                ]
                if all(
                    r % d == 0 and 0 <= r // d < k
                    for r, d, k in zip(reach, self.dilation, w.shape[2:], strict=True)
                ):
                    tap = [r // d for r, d in zip(reach, self.dilation, strict=True)]
                    o = o + c // per * wide
                    dot.append((y[(i, o, *source)], w[(o, c % per, *tap)]))
            yield dot


ONE, TWO, THREE = (
    (F.conv1d, F.conv_transpose1d),
    (F.conv2d, F.conv_transpose2d),
    (F.conv3d, F.conv_transpose3d),
)
CASES = [
    (ONE[0], (2, 3, 9), (4, 3, 3), {}),
    (ONE[0], (2, 4, 10), (6, 2, 3), {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    (ONE[0], (3, 7), (2, 3, 2), {"padding": 1}),
    (TWO[0], (2, 3, 6, 5), (4, 3, 3, 2), {}),
    (
        TWO[0],
        (2, 4, 5, 4),
        (4, 2, 3, 2),
        {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2},
    ),
    (TWO[0], (1, 4, 5, 5), (8, 1, 3, 3), {"padding": 1, "groups": 4}),
    (TWO[0], (2, 3, 4, 4), (5, 3, 1, 1), {"stride": 2}),
    (TWO[0], (3, 6, 5), (4, 3, 3, 2), {"padding": 1}),
    (
        THREE[0],
        (2, 2, 4, 5, 3),
        (3, 2, 2, 3, 2),
        {"stride": (1, 2, 1), "padding": (0, 1, 1), "dilation": (2, 1, 1)},
    ),
    (ONE[1], (2, 3, 5), (3, 4, 3), {}),
    (
        ONE[1],
        (2, 4, 5),
        (4, 3, 3),
        {"stride": 3, "padding": 1, "dilation": 2, "groups": 2, "output_padding": 2},
    ),
    (
        TWO[1],
        (2, 4, 4, 3),
        (4, 1, 3, 2),
        {"stride": (2, 3), "padding": (2, 0), "output_padding": (1, 2), "groups": 2},
    ),
    (TWO[1], (3, 4, 3), (3, 2, 3, 3), {"stride": 2, "padding": 1}),
    (
        THREE[1],
        (1, 2, 3, 2, 3),
        (2, 3, 2, 2, 3),
        {"stride": 2, "padding": (1, 0, 1), "output_padding": 1},
    ),
]
every_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0].__name__} {case[1]} {case[3]}"
)


def operands(case, name, draw=some):
    call, x, w, options = case
    channels = w[1] * options.get("groups", 1) if "transpose" in call.__name__ else w[0]
    return [draw(name, *sizes, seed=i) for i, sizes in enumerate((x, w, (channels,)))]


def with_gradients(call, tensors, grad):
    """Return the result, and the gradients of all operands for a given gradient of the result."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    y = call(*leaves)
    return [y, *torch.autograd.grad(y, leaves, grad)]


# ---- exact ----


@every_case
@both_formats
def test_exact_convolutions_and_their_gradients_round_once(case, name):
    call, *_, options = case
    tensors = operands(case, name, ends)
    for used in (tensors, tensors[:2]):  # with a bias and without
        grad = ends(name, *call(*(t.double() for t in used), **options).shape, seed=9)
        with accumulate("exact"):
            found = with_gradients(lambda *t: call(*t, **options), used, grad)
        expected = with_gradients(
            lambda *t: call(*t, **options), [t.double() for t in used], grad.double()
        )
        for f, e in zip(found, expected, strict=True):
            assert f.shape == e.shape
            assert_codes(f, codes_of(e.to(f.dtype)).flatten().tolist(), FORMATS[name])


def test_exact_convolution_of_a_wide_format():
    """float64 does not hold these sums, so that exact rationals check them."""
    case = CASES[4]
    call, *_, options = case
    spec, (x, w, bias) = FORMATS["posit16es2"], operands(case, "posit16es2", ends)
    with accumulate("exact"):
        y = call(x, w, bias, **options)
        x.requires_grad_(), w.requires_grad_()
        grad = ends("posit16es2", *y.shape, seed=5)
        grads = torch.autograd.grad(call(x, w, bias, **options), (x, w), grad)
    geometry, x_, w_, g_ = Geometry(2, **options), *(array(t.detach(), spec) for t in (x, w, grad))
    starts = [v for v in values_of(bias, spec) for _ in range(y[0, 0].numel())] * len(y)
    assert_codes(
        y, exact_codes(list(geometry.forward(x_, w_)), spec, starts=starts), spec, "forward"
    )
    assert_codes(
        grads[0], exact_codes(list(geometry.backward(g_, w_, x.shape[2:])), spec), spec, "input"
    )
    assert_codes(grads[1], exact_codes(list(geometry.weight(g_, x_, w_)), spec), spec, "weight")


# Their gradients are sums of rounded sums, because an operand is expanded first.
TWICE = ("matmul of batches", "expanded")


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name not in TWICE])
@both_formats
def test_exact_gradients_round_once(operator, name):
    call, *sizes = OPERATORS[operator]
    name = summed_in_float64(name, sizes)
    for seed in range(0, 100, 10):
        tensors = [ends(name, *size, seed=seed + i) for i, size in enumerate(sizes)]
        grad = ends(name, *call(*(t.double() for t in tensors)).shape, seed=seed + 9)
        with accumulate("exact"):
            found = with_gradients(call, tensors, grad)
        expected = with_gradients(call, [t.double() for t in tensors], grad.double())
        for f, e in zip(found, expected, strict=True):
            assert_codes(f, codes_of(e.to(f.dtype)).flatten().tolist(), FORMATS[name], operator)


@both_formats
def test_exact_second_derivatives_round_once(name):
    """Differentiate a gradient of the input, which is linear in the weight and in the result's
    gradient."""
    x, w, _ = operands(CASES[4], name, ends)
    options = CASES[4][3]
    outer = [
        ends(name, *F.conv2d(x.double(), w.double(), **options).shape, seed=3),
        ends(name, *x.shape, seed=4),
    ]

    def second(x, w, u, v):
        x, w, u = (t.clone().requires_grad_() for t in (x, w, u))
        (inner,) = torch.autograd.grad(F.conv2d(x, w, **options), x, u, create_graph=True)
        return torch.autograd.grad(inner, (w, u), v)

    with accumulate("exact"):
        found = second(x, w, *outer)
    for f, e in zip(found, second(*(t.double() for t in (x, w, *outer))), strict=True):
        assert_codes(f, codes_of(e.to(f.dtype)).flatten().tolist(), FORMATS[name])


# ---- every step rounded ----


@pytest.mark.parametrize(
    "options",
    [{}, {"fused": True}, {"kahan": True}, {"rounding": "toward_zero", "accumulator": "tf32"}],
    ids=str,
)
@pytest.mark.parametrize(
    "case", [CASES[1], CASES[4], CASES[10], CASES[11]], ids=lambda case: case[0].__name__
)
def test_format_adds_in_order(case, options):
    """Terms are added by channel, then kernel position; for gradients of weights by batch, then
    position. The accumulator starts with the bias."""
    call, *_, parameters = case
    name, spec = "posit16es1", FORMATS["posit16es1"]
    x, w, bias = operands(case, name)
    with accumulate("format", **options):
        y = call(x, w, bias, **parameters)
        grad = some(name, *y.shape, seed=5)
        _, gx, gw = with_gradients(lambda x, w: call(x, w, **parameters), (x, w), grad)
    named = {
        "mode": options.get("rounding", "nearest_even"),
        **{key: True for key in ("fused", "kahan") if key in options},
    }
    named["total"] = FORMATS[options["accumulator"]] if "accumulator" in options else None
    geometry, x_, w_, g_ = (
        Geometry(x.dim() - 2, **parameters),
        *(array(t, spec) for t in (x, w, grad)),
    )
    if "transpose" in call.__name__:
        forward, gradient = (
            geometry.backward(x_, w_, geometry.inputs(x_, w_)),
            geometry.forward(g_, w_),
        )
        weight = geometry.weight(x_, g_, w_)
    else:
        forward, gradient = geometry.forward(x_, w_), geometry.backward(g_, w_, x.shape[2:])
        weight = geometry.weight(g_, x_, w_)
    starts = [v for v in values_of(bias, spec) for _ in range(y[0, 0].numel())] * len(y)
    assert_codes(y, step_codes(list(forward), spec, starts=starts, **named), spec, "forward")
    assert_codes(gx, step_codes(list(gradient), spec, **named), spec, "input")
    assert_codes(gw, step_codes(list(weight), spec, **named), spec, "weight")


@pytest.mark.parametrize("policy", ["machine", "float32", "float64"])
@every_case
def test_machine_s_types_are_the_stock_kernel_rounded_once(case, policy, one_thread):
    call, *_, options = case
    tensors = operands(case, "posit16es1")
    with accumulate(policy):
        found = call(*tensors, **options)
    expected = call(
        *(t.to(torch.float64 if policy == "float64" else torch.float32) for t in tensors), **options
    )
    assert torch.equal(codes_of(found), codes_of(expected.to(found.dtype)))


# ---- layouts, edges, errors ----


def test_layouts_give_the_same():
    x, w = some("q43", 2, 3, 6, 5), some("q43", 4, 3, 3, 2)
    with accumulate("format"):
        plain = codes_of(F.conv2d(x, w, padding=1))
        last = torch.channels_last
        turned = x.transpose(2, 3).contiguous().transpose(2, 3), w.flip(0).contiguous().flip(0)
        for a, b in (
            (x.to(memory_format=last), w.to(memory_format=last)),
            turned,
            (x[:, :, :, :].expand(2, 3, 6, 5), w.mT.contiguous().mT),
        ):
            assert torch.equal(codes_of(F.conv2d(a, b, padding=1)), plain)
        circular = torch.nn.Conv2d(3, 4, (3, 2), padding=1, padding_mode="circular").to(torch.q43)
        expected = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), circular.weight, circular.bias)
        assert torch.equal(codes_of(circular(x)), codes_of(expected))
        same = F.conv2d(x, w[:, :, :, :1], padding="same")
        assert torch.equal(codes_of(same), codes_of(F.conv2d(x, w[:, :, :, :1], padding=(1, 0))))


@pytest.mark.parametrize("policy", OWN)
@pytest.mark.parametrize("special", [math.inf, math.nan])
def test_a_special_weight_reaches_only_what_it_meets(policy, special):
    """There are no products between the steps of a transposed convolution (or of a gradient)."""
    x, w = torch.ones(1, 1, 4, dtype=torch.q43), torch.tensor([[[special, 1.0, 2.0]]]).to(torch.q43)
    with accumulate(policy):
        y = F.conv_transpose1d(x, w, stride=3)
        inputs = torch.ones(1, 1, 9, dtype=torch.q43, requires_grad=True)
        F.conv1d(inputs, w, stride=3).backward(torch.ones(1, 1, 3, dtype=torch.q43))
    assert torch.equal(y.float().isfinite(), torch.tensor([[[False, True, True] * 4]]))
    assert torch.equal(inputs.grad.float().isfinite(), torch.tensor([[[False, True, True] * 3]]))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_batch(policy):
    """An empty sum is zero, as in stock PyTorch."""
    for call, w in ((F.conv1d, (4, 3, 2)), (F.conv_transpose1d, (3, 4, 2))):
        tensors = [
            torch.ones(sizes, dtype=torch.q43, requires_grad=True) for sizes in ((0, 3, 5), w, (4,))
        ]
        with accumulate(policy):
            y = call(*tensors)
            y.backward(torch.ones_like(y))
        assert y.shape == call(*(t.float() for t in tensors)).shape
        for t in tensors:
            assert t.grad.shape == t.shape and not codes_of(t.grad).any()


@pytest.mark.parametrize("policy", OWN)
def test_wrong_convolutions_are_refused_as_by_stock(policy):
    cases = [
        (F.conv1d, (1, 3, 5), (2, 4, 3), {}),
        (F.conv1d, (1, 3, 5), (2, 3, 6), {}),
        (F.conv1d, (1, 3, 5), (2, 3, 3), {"stride": 0}),
        (F.conv1d, (1, 3, 5), (2, 3, 3), {"dilation": 0}),
        (F.conv1d, (1, 3, 5), (2, 3, 3), {"groups": 2}),
        (F.conv1d, (3,), (2, 3, 3), {}),
        (F.conv1d, (1, 3, 5), (2, 3, 3), {"padding": -1}),
        (F.conv1d, (1, 3, 5), (0, 3, 3), {}),
        (F.conv2d, (1, 3, 5, 5), (2, 3, 3), {}),
        (F.conv_transpose1d, (1, 3, 5), (4, 2, 3), {}),
        (F.conv_transpose1d, (1, 3, 5), (3, 2, 3), {"stride": 0}),
        (F.conv_transpose1d, (1, 3, 5), (3, 2, 3), {"output_padding": 1}),
        (F.conv_transpose1d, (1, 3, 5), (3, 2, 3), {"padding": 4}),
        (F.conv_transpose1d, (1, 3, 5), (3, 2, 3), {"padding": -1}),
        (F.conv_transpose1d, (1, 3, 5), (3, 2, 3), {"dilation": 0}),
    ]
    accepted = []
    for call, x, w, options in cases:
        with pytest.raises(RuntimeError):
            call(torch.ones(x), torch.ones(w), **options)
        try:
            with accumulate(policy):
                call(torch.ones(x, dtype=torch.q43), torch.ones(w, dtype=torch.q43), **options)
            accepted.append((call.__name__, x, w, options))
        except RuntimeError:
            pass
    assert not accepted
    with (
        accumulate(policy),
        pytest.raises(RuntimeError, match=r"expected a bias of 2 elements, but got \[3\]|bias"),
    ):
        F.conv1d(*(torch.ones(sizes, dtype=torch.q43) for sizes in ((1, 3, 5), (2, 3, 3), (3,))))


@pytest.mark.parametrize("policy", ["exact", "format", "machine"])
def test_no_transposed_convolution_without_an_output(policy):
    """Under this package's policies the result once was empty, or its size overflowed."""
    x, w = torch.ones(1, 1, 1).to(torch.q43), torch.ones(1, 1, 1).to(torch.q43)
    for padding in (1, 2):
        with accumulate(policy), pytest.raises(RuntimeError, match="Output size is too small"):
            F.conv_transpose1d(x, w, padding=padding)
