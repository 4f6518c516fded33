"""quantize_: layers that round by rules, compared with casts written by hand, forward and backward;
accumulation policies."""

import copy

import pytest
import torch
from quantized import Layers, batch, equal, gradients
from torch import nn
from torch.nn import functional as F

from torch_dtypes import accumulate, chop, dtype, quantize_, rounding, summary

# weight, activation, error, grad: floats, posits, fixed point, stock dtypes, run-time formats,
# blocks; None leaves a place as it is
FORMATS = [
    ("q43", "q43", "q52", "q52"),
    ("posit8es1", "posit16es2", "posit8es2", "e5m5"),
    ("fixed3_4", "e3m2fn", "e8m7", "q43"),
    ("bfloat16", "float16", "float8_e5m2", None),
    ("mxfp8_e4m3", "mxint8", "mxfp4", "nvfp4"),
    ("q52", None, None, "posit8es2"),
    (None, "q43", "q52", None),
]
every_format = pytest.mark.parametrize(
    "formats", FORMATS, ids=[" ".join(map(str, f)) for f in FORMATS]
)


def rule(formats, **others):
    return dict(zip(("weight", "activation", "error", "grad"), formats, strict=True)) | others


def by_hand(x, name):
    """x rounded to a format: a stock cast there and back where there is one, else chop."""
    if name is None:
        return x
    stock = getattr(torch, name, None)
    return (
        x.to(stock).to(x.dtype)
        if isinstance(stock, torch.dtype) and name.startswith(("bfloat", "float"))
        else chop(x, name)
    )


# ---- bits: a layer, forward and backward, against casts by hand ----


@every_format
@pytest.mark.parametrize("layer", ["linear", "conv", "transposed"])
def test_a_layers_bits_are_those_of_casts_by_hand(layer, formats):
    weight, activation, error, grad = formats
    torch.manual_seed(0)
    made = {
        "linear": nn.Linear(6, 4),
        "conv": nn.Conv1d(6, 4, 3, padding=1),
        "transposed": nn.ConvTranspose2d(6, 4, 3, stride=2),
    }[layer]
    x = torch.randn(
        {"linear": (5, 6), "conv": (5, 6, 7), "transposed": (2, 6, 4, 3)}[layer]
    ).requires_grad_()
    master, bias = made.weight.detach().clone(), made.bias.detach().clone()
    plain = copy.deepcopy(made)
    once = {"axis": -1} if activation == "mxint8" else {}  # one rounding for all products
    quantize_(made, {type(made): rule(formats, **once)})
    y = made(x)
    g = torch.randn_like(y)
    y.backward(g)

    with torch.no_grad():
        plain.weight.copy_(by_hand(master, weight))
    x_hand = by_hand(x.detach(), activation).requires_grad_()
    y_hand = plain(x_hand)
    y_hand.backward(by_hand(g, error))
    equal([y.detach(), x.grad], [y_hand.detach(), x_hand.grad])
    equal(
        [made.weight.grad, made.bias.grad],
        [by_hand(plain.weight.grad, grad), by_hand(plain.bias.grad, grad)],
    )
    equal([made.weight.detach(), made.bias.detach()], [master, bias])  # masters as they were


def test_output_and_bias():
    layer, x = nn.Linear(6, 4), torch.randn(5, 6)
    want = chop(F.linear(x, layer.weight, chop(layer.bias, "q43")), "q52")
    quantize_(layer, {nn.Linear: dict(bias="q43", output=torch.q52)})
    assert torch.equal(layer(x), want)


def test_a_network_of_several_rules():
    model, (x, t) = Layers(), batch()
    quantize_(
        model,
        {
            nn.Linear: dict(weight="q43", activation="q52", error="q52"),
            "conv": dict(weight="posit8es1", output="q43", error="q43"),
        },
    )
    got = gradients(model)

    class Back(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return chop(g, ctx.name), None

    hand = Layers()
    y = F.conv2d(
        F.pad(x, (1, 1, 1, 1), mode="reflect"),
        chop(hand.conv.weight, "posit8es1"),
        hand.conv.bias,
        2,
        0,
        1,
        2,
    )
    y = F.relu(hand.norm(Back.apply(chop(y, "q43"), "q43"))).flatten(1)
    for part in hand.head:
        linear = isinstance(part, nn.Linear)
        y = (
            Back.apply(F.linear(chop(y, "q52"), chop(part.weight, "q43"), part.bias), "q52")
            if linear
            else part(y)
        )
    loss = F.cross_entropy(y, t)
    loss.backward()
    equal(got, [loss.detach(), *(p.grad for p in hand.parameters())])


NATIVE = ["q43", "posit16es2", "e5m5", "posit32es2"]


@pytest.mark.parametrize("name", NATIVE)
def test_one_dtype_throughout_runs_natively(name):
    d = dtype(name)
    model, ours = Layers(), Layers()
    quantize_(model, {nn.Linear: torch_rule(d), "conv": d})
    got = gradients(model)
    x, t = batch()
    ours.conv.to(d), ours.head[0].to(d), ours.head[2].to(d)
    y = ours.head[1](
        ours.head[0](F.relu(ours.norm(ours.conv(x.to(d)).float())).flatten(1).to(d)).float()
    ).to(d)
    loss = F.cross_entropy(ours.head[2](y).float(), t)
    loss.backward()
    equal(got, [loss.detach(), *(p.grad.float() for p in ours.parameters())])
    assert {row.runs for row in summary(model, show=False)} == {"natively", ""}


def torch_rule(d):
    return dict.fromkeys(("weight", "activation", "error", "grad"), d)


OTHERS = {
    "lstm": (
        lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
        lambda m, x: m(x)[0],
        (5, 2, 3),
    ),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), lambda m, x: m(x)[0], (2, 5, 3)),
    "cell": (lambda: nn.LSTMCell(3, 4), lambda m, x: m(x)[0], (2, 3)),
    "attention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda m, x: m(x, x, x)[0],
        (2, 3, 4),
    ),
    "layer norm": (lambda: nn.LayerNorm(4), lambda m, x: m(x), (2, 3, 4)),
    "batch norm": (lambda: nn.BatchNorm1d(4), lambda m, x: m(x), (5, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), lambda m, x: m(x), (5, 4, 3)),
    "bilinear": (lambda: nn.Bilinear(4, 4, 3), lambda m, x: m(x, x), (5, 4)),
    "prelu": (lambda: nn.PReLU(4), lambda m, x: m(x), (5, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_run_with_rounded_weights_and_inputs(name):
    make, call, shape = OTHERS[name]
    torch.manual_seed(0)
    layer, x = make(), torch.randn(shape)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    hand = copy.deepcopy(layer)
    quantize_(layer, {type(layer): dict(weight="q43", bias="e5m5", activation="q52", grad="q43")})
    with torch.no_grad():
        for n, p in hand.named_parameters():
            p.copy_(chop(p, "e5m5" if "bias" in n else "q43"))
    got, want = call(layer, x), call(hand, chop(x, "q52"))
    assert torch.equal(got, want)
    got.sum().backward(), want.sum().backward()
    equal([p.grad for p in layer.parameters()], [chop(p.grad, "q43") for p in hand.parameters()])
    copy.deepcopy(layer)  # what a layer keeps is no part of a graph
    with torch.no_grad():
        assert torch.equal(call(layer.eval(), x), call(hand.eval(), chop(x, "q52")))


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_run_natively(name):
    make, call, shape = OTHERS[name]
    torch.manual_seed(0)
    layer, x = make(), torch.randn(shape)
    hand = copy.deepcopy(layer)
    quantize_(layer, {type(layer): "posit16es2"})
    hand = hand.to(torch.posit16es2)
    if name == "batch norm":
        hand.running_mean, hand.running_var = torch.zeros(4), torch.ones(4)
        hand.weight.data, hand.bias.data = hand.weight.data.float(), hand.bias.data.float()
    got, want = call(layer, x), call(hand, x.to(torch.posit16es2))
    assert got.dtype is torch.float32 and torch.equal(got, want.float())
    got.sum().backward(), want.sum().backward()
    equal([p.grad for p in layer.parameters()], [p.grad.float() for p in hand.parameters()])


def test_embeddings_and_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding, self.out = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, i):
            return self.out(self.embedding(i))

    i, model, hand = torch.tensor([[0, 3], [5, 3]]), Tied(), Tied()
    quantize_(
        model,
        {nn.Embedding: dict(weight="q43"), nn.Linear: dict(weight="posit8es1", activation="q52")},
    )
    y = model(i)
    w = hand.embedding.weight
    want = F.linear(chop(F.embedding(i, chop(w, "q43")), "q52"), chop(w, "posit8es1"))
    y.sum().backward(), want.sum().backward()
    equal([y.detach(), model.out.weight.grad], [want.detach(), w.grad])
    assert model.out.weight is model.embedding.weight and len(list(model.parameters())) == 1
    quantize_(model, {nn.Embedding: "q43"})
    assert model.embedding(i).dtype is torch.float32


def test_rounding_modes_of_a_place_and_of_a_block():
    layer, x = nn.Linear(6, 4, bias=False), torch.randn(5, 6)
    w = layer.weight.detach().clone()
    quantize_(
        layer,
        {nn.Linear: dict(weight=dict(format="q43", rounding="toward_zero"), activation="q52")},
    )
    assert torch.equal(layer(x), F.linear(chop(x, "q52"), chop(w, "q43", "toward_zero")))
    with rounding("up"):  # for what says no mode of its own
        assert torch.equal(layer(x), F.linear(chop(x, "q52", "up"), chop(w, "q43", "toward_zero")))
    quantize_(layer, {nn.Linear: dict(weight=dict(format="q43", rounding="stochastic"))})
    torch.manual_seed(3)
    want = F.linear(x, chop(w, "q43", "stochastic"))
    torch.manual_seed(3)
    assert torch.equal(layer(x), want)
    quantize_(layer, {nn.Linear: torch_rule(dict(format="q43", rounding="up"))})
    assert summary(layer, show=False)[""].runs == "natively"
    d = dtype("q43_up")
    assert torch.equal(layer(x), F.linear(x.to(d), w.to(d)).float())


def test_gradients_of_clamped_values():
    for clamped, want in (("pass", [1.0, 1.0, 1.0]), ("zero", [1.0, 1.0, 0.0])):
        layer = nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[1.0, 240.0, 300.0]]))
        quantize_(layer, {nn.Linear: dict(weight=dict(format="q43", clamped=clamped))})
        layer(torch.ones(1, 3)).backward()
        assert layer.weight.grad.tolist() == [want]


# ---- accumulation policies ----

POLICIES = [
    dict(policy="format", product="q52", accumulator="e6m9"),
    dict(policy="chunked(3)", product="e5m5", accumulator="e5m5"),
    "exact",
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("layer", ["linear", "conv", "transposed"])
def test_policies_hold_between_operands_of_different_formats(layer, policy):
    """By hand: the same product in the format dtype of float32's format, with autograd's
    derivative, all under the policy."""
    torch.manual_seed(0)
    made = {
        "linear": nn.Linear(6, 4),
        "conv": nn.Conv1d(6, 4, 3, padding="same"),
        "transposed": nn.ConvTranspose2d(6, 4, 3, stride=2),
    }[layer]
    x = torch.randn(
        {"linear": (2, 5, 6), "conv": (5, 6, 7), "transposed": (2, 6, 4, 3)}[layer]
    ).requires_grad_()
    wide, hand = dtype("fp32"), copy.deepcopy(made)
    quantize_(
        made, {type(made): dict(weight="q43", activation="q52", error="e5m5", accumulate=policy)}
    )
    y = made(x)
    g = torch.randn_like(y)
    y.backward(g)  # outside of any block
    with torch.no_grad():
        hand.weight.copy_(chop(hand.weight, "q43"))
    hand, x_hand = hand.to(wide), chop(x.detach(), "q52").to(wide).requires_grad_()
    with accumulate(**policy) if isinstance(policy, dict) else accumulate(policy):
        y_hand = hand(x_hand)
        y_hand.backward(chop(g, "e5m5").to(wide))
    got = [y.detach(), x.grad, made.weight.grad, made.bias.grad]
    equal(
        got, [t.float() for t in (y_hand.detach(), x_hand.grad, hand.weight.grad, hand.bias.grad)]
    )
    unrounded = quantize_(copy.deepcopy(made), {type(made): dict(weight="q43", activation="q52")})(
        x
    )
    assert policy == "exact" or not torch.equal(y, unrounded)


def test_steps_without_a_format_are_rounded_to_one_that_holds_both_operands():
    """q43 has 4 digits and q52 5 exponent bits: e5m3. Ones in q43 and q52 add up to 2^4 there, and
    to 2^3 in q52."""
    layer = nn.Linear(100, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    for weight, activation, want in (
        ("q43", "q52", 16.0),
        ("q52", "q52", 8.0),
        ("q43", "q43", 16.0),
    ):
        quantize_(
            layer, {nn.Linear: dict(weight=weight, activation=activation, accumulate="format")}
        )
        assert layer(torch.ones(1, 100)).item() == want
    quantize_(layer, {nn.Linear: dict(weight="q52", activation="q52", accumulate="float64")})
    assert layer(torch.ones(1, 100)).item() == 100


@pytest.mark.parametrize("name", ["q43", "posit16es2"])
@pytest.mark.parametrize("layer", ["linear", "conv", "lstm", "attention"])
def test_policies_hold_in_native_layers(layer, name):
    d = dtype(name)
    torch.manual_seed(0)
    made, call, shape = (
        OTHERS[layer]
        if layer in OTHERS
        else {
            "linear": (lambda: nn.Linear(6, 4), lambda m, x: m(x), (5, 6)),
            "conv": (lambda: nn.Conv2d(2, 3, 3), lambda m, x: m(x), (2, 2, 6, 5)),
        }[layer]
    )
    model = made()
    x, hand = torch.randn(shape), copy.deepcopy(model).to(d)
    quantize_(
        model,
        {type(model): dict(torch_rule(d), accumulate=dict(policy="format", accumulator="e5m5"))},
    )
    y = call(model, x)
    y.sum().backward()
    with accumulate("format", accumulator="e5m5"):
        want = call(hand, x.to(d))
        want.float().sum().backward()
    equal(
        [y.detach(), *(p.grad for p in model.parameters())],
        [want.detach().float(), *(p.grad.float() for p in hand.parameters())],
    )
    with torch.no_grad():
        assert torch.equal(call(model.eval(), x), y)  # no fused kernel that obeys no policy
