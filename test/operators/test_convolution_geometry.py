"""Convolutions, their gradients and second derivatives under the accumulation policies, over a grid
of geometries. The grid varies strides, paddings, dilations, output paddings and lengths. Each
result is compared with an integer sum over all triples of places that meet."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from torch_dtypes import accumulate


def find_triples(transposed, kernel, stride, padding, dilation, length, outputs):
    """Yield the triples (output place, input place, kernel place) whose product belongs to an
    output."""
    for tap in range(kernel):
        for o, i in itertools.product(range(outputs), range(length)):
            wide, narrow = (o, i) if transposed else (i, o)
            if narrow * stride + tap * dilation - padding == wide:
                yield o, i, tap


def geometries():
    """Yield the geometries that stock PyTorch accepts, with the output's length by PyTorch's
    documented formula."""
    grid = itertools.product((False, True), (1, 3), (1, 2, 3), (0, 1), range(3), (1, 3), (1, 4))
    for transposed, kernel, stride, padding, extra, dilation, length in grid:
        reach = dilation * (kernel - 1) + 1
        if transposed:
            outputs = (length - 1) * stride - 2 * padding + reach + extra
            possible = extra < max(stride, dilation) and outputs > 0
        else:
            outputs = (length + 2 * padding - reach) // stride + 1
            possible = extra == 0 and length + 2 * padding >= reach
        if possible:
            options = {
                "stride": stride,
                "padding": padding,
                "dilation": dilation,
                **({"output_padding": extra} if transposed else {}),
            }
            yield (
                transposed,
                kernel,
                length,
                outputs,
                options,
                list(find_triples(transposed, kernel, stride, padding, dilation, length, outputs)),
            )


def numbers(generator, *sizes):
    return torch.randint(-1, 3, sizes, generator=generator)


def forward(x, w, transposed, outputs, triples):
    y = torch.zeros(len(x), w.shape[1] if transposed else w.shape[0], outputs, dtype=torch.long)
    for o, i, tap in triples:
        y[:, :, o] += x[:, :, i] @ (w[:, :, tap] if transposed else w[:, :, tap].t())
    return y


def to_input(y, w, transposed, length, triples):
    x = torch.zeros(len(y), w.shape[0] if transposed else w.shape[1], length, dtype=torch.long)
    for o, i, tap in triples:
        x[:, :, i] += y[:, :, o] @ (w[:, :, tap].t() if transposed else w[:, :, tap])
    return x


def to_weight(y, x, transposed, kernel, triples):
    a, b = (x, y) if transposed else (y, x)
    w = torch.zeros(a.shape[1], b.shape[1], kernel, dtype=torch.long)
    for o, i, tap in triples:
        w[:, :, tap] += (
            (x[:, :, i].t() @ y[:, :, o]) if transposed else (y[:, :, o].t() @ x[:, :, i])
        )
    return w


# Every step of these sums is an integer of the format, so every policy gives the exact result.
@pytest.mark.parametrize(
    ("policy", "options"), [("exact", {}), ("format", {}), ("chunked(3)", {})], ids=str
)
def test_every_geometry_gives_the_sums_of_what_meets(policy, options):
    generator, wrong, seen = torch.Generator().manual_seed(0), [], 0
    for transposed, kernel, length, outputs, parameters, triples in geometries():
        call = F.conv_transpose1d if transposed else F.conv1d
        x, w, u, v, s = (
            numbers(generator, *sizes)
            for sizes in (
                (2, 2, length),
                (2, 3, kernel) if transposed else (3, 2, kernel),
                (2, 3, outputs),
                (2, 2, length),
                (2, 3, kernel) if transposed else (3, 2, kernel),
            )
        )
        tx, tw, tu, tv, ts = (t.to(torch.posit16es1).requires_grad_() for t in (x, w, u, v, s))
        expected = [
            forward(x, w, transposed, outputs, triples),
            to_input(u, w, transposed, length, triples),
            to_weight(u, x, transposed, kernel, triples),
            to_weight(u, v, transposed, kernel, triples),
            forward(v, w, transposed, outputs, triples),
            to_input(u, s, transposed, length, triples),
            forward(x, s, transposed, outputs, triples),
        ]
        with accumulate(policy, **options):
            y = call(tx, tw, **parameters)
            gx, gw = torch.autograd.grad(y, (tx, tw), tu, create_graph=True)
            found = [
                y,
                gx,
                gw,
                *torch.autograd.grad(gx, (tw, tu), tv, retain_graph=True),
                *torch.autograd.grad(gw, (tx, tu), ts),
            ]
        names = (
            "forward",
            "input",
            "weight",
            "input's by weight",
            "input's by result",
            "weight's by input",
            "weight's by result",
        )
        for name, f, e in zip(names, found, expected, strict=True):
            seen += 1
            if f.shape != e.shape or not torch.equal(f.detach().long(), e):
                wrong.append((name, transposed, kernel, length, parameters))
    assert seen > 700 and not wrong, f"{len(wrong)} of {seen} wrong: {wrong[:5]}"


@pytest.mark.parametrize("policy", ["exact", "format", "chunked(2)"])
def test_what_output_padding_adds_is_met_by_no_input(policy):
    """A place of the input once met a place of the kernel twice."""
    x = torch.ones(1, 1, 1, dtype=torch.q43, requires_grad=True)
    w = torch.tensor([[[1.375, 0.3125]]]).to(torch.q43)
    with accumulate(policy):
        y = F.conv_transpose1d(x, w, dilation=2, output_padding=1)
        y.backward(torch.ones_like(y))
    assert x.grad.tolist() == [[[1.75]]]  # 1.6875, a tie


@pytest.mark.parametrize("policy", ["format", "chunked(1)", "chunked(2)"])
def test_a_bias_of_minus_zero_stays_where_nothing_is_added(policy):
    x, w, bias = (
        torch.ones(1, 1, 3, dtype=torch.q43),
        torch.zeros(1, 1, 1, dtype=torch.q43),
        torch.tensor([-0.0]).to(torch.q43),
    )
    with accumulate(policy):
        y = F.conv_transpose1d(x, w, bias, stride=2)
        z = torch.addmm(bias, torch.ones(2, 0, dtype=torch.q43), torch.ones(0, 2, dtype=torch.q43))
    assert torch.signbit(y.float()).tolist() == [[[False, True, False, True, False]]]
    assert torch.signbit(z.float()).all()
