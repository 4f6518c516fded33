"""Products whose operands are rounded for each product: blocks along what it sums over."""

import copy

import pytest
import torch
from torch import nn

from torch_dtypes import chop, quantize_, summary
from torch_dtypes.targets.transforms import transform_of

MX = dict(weight="mxfp4", activation="mxfp4", error="mxfp4")
LAYERS = {
    "linear": (lambda: nn.Linear(70, 45), (6, 9, 70)),
    "row": (lambda: nn.Linear(70, 45, bias=False), (70,)),
    "conv1d": (lambda: nn.Conv1d(40, 36, 3, padding=1), (3, 40, 21)),
    "unbatched": (lambda: nn.Conv1d(40, 36, 3), (40, 21)),
    "conv2d": (lambda: nn.Conv2d(80, 72, (3, 2), stride=2, groups=2), (3, 80, 7, 6)),
    "conv3d": (lambda: nn.Conv3d(40, 36, 2), (2, 40, 3, 4, 3)),
    "transposed": (lambda: nn.ConvTranspose2d(80, 72, 3, stride=2, groups=2), (2, 80, 4, 3)),
}


def along(x, format, numbers):
    """x rounded in blocks that run through the numbers of each row of ``numbers``, a tensor of
    indices into x."""
    rows = x.detach().flatten()[numbers]
    rounded = torch.empty_like(x).flatten()
    rounded[numbers.flatten()] = chop(rows.contiguous(), format).flatten()
    return rounded.view(x.shape)


def runs(shape, role, transposed, groups, dims):
    """The indices of a tensor, a row for each run of numbers that a product adds up."""
    n = torch.arange(torch.Size(shape).numel()).view(shape)
    if role == "others":  # the batch and its positions, for each channel
        channel = len(shape) - 1 - dims
        rest = [d for d in range(len(shape)) if d != channel]
        return n.permute(channel, *rest).reshape(shape[channel], -1)
    if role == "channels":
        n = n.movedim(len(shape) - 1 - dims, -1)
        return n.reshape(-1, n.shape[-1] // groups)
    inputs = role == "inputs"
    axis = (0 if inputs else 1) if transposed else (1 if inputs else 0)
    n = n.movedim(axis, -1)
    return n.reshape(-1, n.shape[-1] // (groups if axis == 0 else 1))


def find_expected(layer, x, g, rule):
    """The output and the gradients in float64, each product of operands that it rounds itself."""
    exact = copy.deepcopy(layer).double()
    transposed, groups = isinstance(layer, nn.ConvTranspose2d), getattr(layer, "groups", 1)
    dims = len(getattr(layer, "kernel_size", ()))

    def round_operand(t, name, product, role):
        format = rule.get(product, {}).get(name) if product in rule else rule.get(name)
        return (
            t.detach()
            if format is None
            else along(t, format, runs(t.shape, role, transposed, groups, dims))
        ).double()

    def run(x, weight):
        return torch.func.functional_call(exact, {"weight": weight}, (x,))

    w = layer.weight
    y = run(
        round_operand(x, "activation", "forward", "channels"),
        round_operand(w, "weight", "forward", "inputs"),
    )
    point = x.detach().double().requires_grad_()
    error = round_operand(g, "error", "input_grad", "channels")
    (gx,) = torch.autograd.grad(
        run(point, round_operand(w, "weight", "input_grad", "outputs")), point, error
    )
    point = w.detach().double().requires_grad_()
    error = round_operand(g, "error", "weight_grad", "others")
    (gw,) = torch.autograd.grad(
        run(round_operand(x, "activation", "weight_grad", "others"), point), point, error
    )
    gb = None
    if layer.bias is not None:
        point = layer.bias.detach().double().requires_grad_()
        y64 = torch.func.functional_call(exact, {"bias": point}, (x.double(),))
        (gb,) = torch.autograd.grad(y64, point, g.double())
    return y.detach(), gx, gw, gb


def step(layer, x, g):
    x = x.detach().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(g)
    return y.detach(), x.grad, layer.weight.grad, None if layer.bias is None else layer.bias.grad


RULES = {
    "mxfp4": MX,
    "three formats": dict(weight="nvfp4", activation="mxfp8_e4m3", error="mxfp8_e5m2"),
    "forward alone": dict(forward=dict(activation="mxfp6_e2m3", weight="mxfp4")),
    "six formats": dict(
        forward=dict(activation="mxfp4", weight="mxint8"),
        input_grad=dict(error="mxfp8_e5m2", weight="q43"),
        weight_grad=dict(error="bfloat16", activation="mxfp6_e3m2"),
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("rule", RULES)
def test_products_of_operands_rounded_apart(kind, rule):
    torch.manual_seed(1)
    build, shape = LAYERS[kind]
    # Rows and columns of uneven size, so that the axis of the blocks shows.
    layer, x = build(), torch.randn(shape) * torch.randn(shape[-1]).exp2()
    with torch.no_grad():
        layer.weight *= torch.randn(layer.weight.shape[:2] + (1,) * (layer.weight.dim() - 2)).exp2()
    g = torch.randn_like(layer(x))
    named = RULES[rule]
    full = (
        {p: {} for p in ("forward", "input_grad", "weight_grad")} | named
        if "forward" in named
        else named
    )
    want = find_expected(layer, x, g, full)
    quantize_(layer, {type(layer): named})
    for got, exact in zip(step(layer, x, g), want, strict=True):
        if exact is not None:
            torch.testing.assert_close(
                got.double(), exact, rtol=1e-5, atol=2e-5 * exact.abs().max()
            )


def test_one_axis_is_one_rounding_for_all_products():
    torch.manual_seed(2)
    x, g = torch.randn(5, 70), torch.randn(5, 45)
    layer = nn.Linear(70, 45)
    w, b = layer.weight.detach(), layer.bias.detach()
    for rule in (dict(MX, axis=-1), {k: dict(format=f, axis=-1) for k, f in MX.items()}):
        y, gx, gw, gb = step(quantize_(layer, {"": rule}), x, g)
        rounded = [chop(t, "mxfp4") for t in (x, w, g)]
        assert torch.equal(y, nn.functional.linear(*rounded[:2], b))
        assert torch.equal(gx, rounded[2] @ rounded[1])
        assert torch.equal(gw, rounded[2].t() @ rounded[0])
        assert torch.equal(gb, rounded[2].sum(0))


def test_a_format_that_names_its_axis_keeps_it():
    torch.manual_seed(2)
    x, g, layer = torch.randn(40, 70), torch.randn(40, 45), nn.Linear(70, 45, bias=False)
    w = layer.weight.detach()
    quantize_(layer, {"": dict(forward=dict(weight="mxfp4_axis0", activation="mxfp4"))})
    y, gx, gw, _ = step(layer, x, g)
    assert torch.equal(y, chop(x, "mxfp4") @ chop(w, "mxfp4_axis0").t())
    assert torch.equal(gx, g @ w) and torch.equal(gw, g.t() @ x)


def test_transforms_keep_the_product_and_change_the_rounding():
    """Both operands of a product, along what it sums over."""
    torch.manual_seed(6)
    x, g, layer = torch.randn(32, 64), torch.randn(32, 48), nn.Linear(64, 48, bias=False)
    w = layer.weight.detach()
    signs = {"name": "hadamard16", "seed": 5}
    everywhere = {key: dict(transform=signs) for key in ("forward", "input_grad", "weight_grad")}
    plain = step(layer, x, g)
    for got, want in zip(step(quantize_(layer, {"": everywhere}), x, g), plain, strict=True):
        assert got is want is None or torch.allclose(got, want, rtol=1e-4, atol=1e-5)
    rule = dict(error="nvfp4", activation="nvfp4", weight_grad=dict(transform=signs))
    y, gx, gw, _ = step(quantize_(layer, {"": rule}), x, g)
    assert torch.equal(y, chop(x, "nvfp4") @ w.t()) and torch.equal(gx, chop(g, "nvfp4") @ w)
    h = transform_of("hadamard16")
    ht, hx = (chop(h.apply(t.t().contiguous(), seed=5), "nvfp4") for t in (g, x))
    assert torch.equal(gw, ht @ hx.t())
    _, _, gw, _ = step(layer, x[:27], g[:27])  # as if five rows of zeros followed
    filled = [torch.cat([t[:27], torch.zeros(5, t.shape[1])]) for t in (g, x)]
    ht, hx = (chop(h.apply(t.t().contiguous(), seed=5), "nvfp4") for t in filled)
    assert torch.equal(gw, ht @ hx.t())
    for build, match in (
        (lambda: nn.Conv1d(32, 32, 3), "expected no transform in weight_grad"),
        (lambda: nn.Linear(64, 40), "expected a multiple of 16 in the dimension"),
    ):
        with pytest.raises(ValueError, match=match):
            quantize_(build(), {"": everywhere})


def test_stochastic_operands_are_unbiased():
    """The mean of many gradients is that of operands that are not rounded."""
    torch.manual_seed(3)
    x, g, layer = torch.randn(8, 32), torch.randn(8, 16), nn.Linear(32, 16, bias=False)
    want = g @ layer.weight.detach(), g.t() @ x
    rule = dict(
        error="mxfp8_e4m3_ceil_stochastic",
        weight=dict(format="mxfp8_e4m3_ceil", rounding="stochastic"),
    )
    rule["activation"] = "mxfp8_e4m3_ceil_stochastic"
    quantize_(layer, {"": rule})
    runs = [torch.cat([t.flatten() for t in step(layer, x, g)[1:3]]) for _ in range(400)]
    mean, spread = torch.stack(runs).mean(0), torch.stack(runs).std(0) / 400**0.5
    want = torch.cat([t.flatten() for t in want])
    assert ((mean - want).abs() < 5 * spread + 1e-6).all()
    assert spread.max() > 0


class Halves:
    """Rounds the numbers of a row to halves of its largest."""

    own_gradient = False

    def quantize(self, x, *, axis, generator, rounding):
        step = x.abs().amax(axis, keepdim=True) / 2
        return torch.round(x / step) * step


def test_a_quantiser_is_called_along_each_products_sum():
    torch.manual_seed(7)
    x, g, layer = torch.randn(9, 12), torch.randn(9, 8), nn.Linear(12, 8, bias=False)
    w, halves = layer.weight.detach(), Halves()
    q = dict.fromkeys(("weight", "activation", "error"), halves)
    y, gx, gw, _ = step(quantize_(layer, {"": q}), x, g)
    along = {d: lambda t, d=d: halves.quantize(t, axis=d, generator=0, rounding=0) for d in (0, 1)}
    assert torch.allclose(y, along[1](x) @ along[1](w).t())
    assert torch.allclose(gx, along[1](g) @ along[0](w))
    assert torch.allclose(gw, along[0](g).t() @ along[0](x))
    halves.own_gradient = True  # then autograd must see it
    assert not summary(quantize_(layer, {"": q}), show=False)[""].forward
    with pytest.raises(ValueError, match=r"expected error of .* without a gradient of its own"):
        quantize_(layer, {"": dict(weight="mxfp4", error=halves)})


def test_rules_of_scales():
    layer = nn.Linear(32, 32)
    quantize_(
        layer, {"": dict(weight=dict(format="nvfp4", by="four_over_six"), activation="nvfp4")}
    )
    assert summary(layer, show=False)[""].forward == "nvfp4 x nvfp4_four_over_six"
    with pytest.raises(ValueError, match=r"weight of .* scale_rule"):
        quantize_(layer, {"": dict(weight=dict(format="mxfp4", by="four_over_six"))})


def test_summary_has_the_operands():
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8))
    quantize_(model, {"0": RULES["six formats"], "1": dict(MX, bias="q43")})
    first, second = (summary(model, show=False)[name] for name in "01")
    assert first.forward == "mxfp4 x mxint8" and first.weight_grad == "bfloat16 x mxfp6_e3m2"
    assert second.input_grad == "mxfp4 x mxfp4" and (second.weight, second.bias) == ("mxfp4", "q43")
    assert "bfloat16 x mxfp6_e3m2" in str(summary(model, show=False))
    found = summary(model, torch.randn(4, 64), show=False)
    assert found.reached == 64 * 32 + 32 * 8 + 8 and found.reached_multiply_adds == 4 * (
        64 * 32 + 32 * 8
    )


@pytest.mark.parametrize(
    "rule, match",
    [
        (
            dict(forward=dict(error="mxfp4")),
            "expected forward of .* 'activation', 'weight'.*'error'",
        ),
        (dict(forward="mxfp4"), "expected forward of .* as a dict"),
        (dict(weight="q43", axis=0, forward=dict(wieght="q43")), "nearest are 'weight'"),
        (dict(weight=dict(format="q43", axis=0)), "expected axis= with blocks along one dimension"),
        (dict(MX, axis="x"), "axis"),
        (dict(weight=dict(format="mxfp4", clamped="zero")), "expected clamped='pass' for weight"),
        (dict(weight="mxfp4_nopad"), "expected whole blocks of 32"),
        (dict(MX, arithmetic="integer", forward=dict(weight="int8")), "but got forward="),
    ],
)
def test_bad_rules_leave_the_model(rule, match):
    layer = nn.Linear(70, 45)
    with pytest.raises((ValueError, TypeError), match=match):
        quantize_(layer, {nn.Linear: rule})
    assert type(layer) is nn.Linear


def test_whole_blocks_of_a_weight_that_is_computed():
    """The weight's shape counts, not that of a parameter from which it is computed."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(64, 32))
    quantize_(layer, {"": dict(MX, weight="mxfp4_nopad")})
    assert layer(torch.ones(2, 64)).shape == (2, 32)


def test_layers_without_such_products():
    depthwise = nn.Conv2d(8, 8, 3, groups=8)
    with pytest.raises(ValueError, match="of several numbers for activation in forward"):
        quantize_(depthwise, {nn.Conv2d: MX})
    quantize_(depthwise, {nn.Conv2d: dict(MX, axis=-1)})
    for module in (nn.LayerNorm(8), nn.Embedding(8, 8)):  # an embedding takes a weight format only
        with pytest.raises(ValueError, match="but got forward= for"):
            quantize_(module, {type(module): dict(forward=dict(weight="mxfp4"))})
    with pytest.raises(ValueError, match="but got activation= for '', an Embedding, which"):
        quantize_(nn.Embedding(8, 8), {nn.Embedding: MX})


@pytest.mark.parametrize("way", ["compiled", "exported", "traced"])
def test_graphs_have_the_bits_of_eager_code(way):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(70, 45), nn.ReLU(), nn.Linear(45, 3))
    quantize_(model, {nn.Linear: dict(MX, accumulate="exact"), "2": RULES["six formats"]})
    x = torch.randn(9, 70)
    if way == "compiled":
        run = torch.compile(model, backend="aot_eager", fullgraph=True)
    elif way == "exported":
        run = torch.export.export(model, (x,)).module()
    else:
        run = torch.jit.trace(model, (x,))
    found = []
    for one in (model, run):
        y = one(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(one.parameters()))])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_autocast_multiplies_rounded_operands_in_its_dtype():
    torch.manual_seed(5)
    layer, x = nn.Linear(64, 32, bias=False), torch.randn(4, 64, requires_grad=True)
    w = layer.weight.detach()
    quantize_(layer, {"": MX})
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.sum().backward()
    want = chop(x.detach(), "mxfp4").bfloat16() @ chop(w, "mxfp4").bfloat16().t()
    assert torch.equal(y, want) and x.grad.dtype == layer.weight.grad.dtype == torch.float32


def test_copies_and_state_keep_the_operands():
    layer, x = nn.Linear(64, 32), torch.randn(4, 64)
    rule = dict(forward=dict(activation=dict(format="int8", scale="free"), weight="mxfp4"))
    quantize_(layer, {"": rule}, calibrate=[x])
    scales = layer.state_dict()._metadata[""]["scales"]
    assert set(scales) == {"forward.activation"}
    same = quantize_(nn.Linear(64, 32), {"": rule}, calibrate=layer.state_dict())
    same.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), same):
        assert torch.equal(other(x), layer(x))
