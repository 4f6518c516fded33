"""Products within a layer's own forward: attention, recurrent layers, modules of a user.

Each rounds its own operands, in blocks along what it sums over.
"""

import copy

import pytest
import torch
from representatives import thin_out
from torch import nn
from torch.nn import functional as F

from torch_dtypes import chop, quantize_, summary

MX = dict(weight="mxfp4", activation="mxfp4", error="mxfp4")
RULES = {
    "mxfp4": MX,
    "three formats": dict(weight="nvfp4", activation="mxfp8_e4m3", error="mxfp8_e5m2"),
    "six formats": dict(
        forward=dict(activation="mxfp4", weight="mxint8"),
        input_grad=dict(error="mxfp8_e5m2", weight="q43"),
        weight_grad=dict(error="bfloat16", activation="mxfp6_e3m2"),
    ),
}


# ---- the oracle: products in float64, and the equations of torch.nn's documentation ----


def along(t, format, axis):
    if format is None:
        return t.double()
    return chop(t.movedim(axis, -1).contiguous(), format).movedim(-1, axis).double()


class Apart(torch.autograd.Function):
    """x times the transpose of w, each product of operands that it rounds itself."""

    @staticmethod
    def forward(ctx, x, w, rule, between):
        ctx.save_for_backward(x, w)
        ctx.formats = {p: rule.get(p, rule) for p in ("forward", "input_grad", "weight_grad")}
        if between:  # two activations
            ctx.formats["input_grad"] = ctx.formats["weight_grad"]
        ctx.second = "activation" if between else "weight"
        own = ctx.formats["forward"]
        y = along(x, own.get("activation"), -1) @ along(w, own.get(ctx.second), -1).mT
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        own = ctx.formats["input_grad"]
        gx = along(g, own.get("error"), -1) @ along(w, own.get(ctx.second), -2)
        own = ctx.formats["weight_grad"]
        gw = along(g, own.get("error"), -2).mT @ along(x, own.get("activation"), -2)
        return gx.to(x.dtype), gw.to(w.dtype), None, None


def linear(x, w, b, rule):
    y = Apart.apply(x.reshape(-1, x.shape[-1]), w, rule, False).view(*x.shape[:-1], -1)
    return y if b is None else y + b


def recurrent(layer, x, rule):
    """The outputs of one layer in one direction; x: (steps, batch, features)."""
    w, u, b, c, *projection = layer.parameters()
    enters, h = linear(x, w, b, rule), x.new_zeros(x.shape[1], u.shape[1])
    cell, outputs = x.new_zeros(x.shape[1], layer.hidden_size), []
    for i in enters:
        v = linear(h, u, c, rule)
        if isinstance(layer, nn.LSTM):
            enter, forget, new, leave = (i + v).chunk(4, -1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            h = leave.sigmoid() * cell.tanh()
            h = linear(h, projection[0], None, rule) if projection else h
        elif isinstance(layer, nn.GRU):
            (r, z, n), (vr, vz, vn) = i.chunk(3, -1), v.chunk(3, -1)
            new = (n + (r + vr).sigmoid() * vn).tanh()
            keep = (z + vz).sigmoid()
            h = (1 - keep) * new + keep * h
        else:
            h = (i + v).tanh()
        outputs.append(h)
    return torch.stack(outputs)


def attend(q, k, v, rule, mask=None, scaled_first=False):
    scale = q.shape[-1] ** -0.5
    scores = (
        Apart.apply(scale * q, k, rule, True)
        if scaled_first
        else scale * Apart.apply(q, k, rule, True)
    )
    scores = scores if mask is None else scores.masked_fill(mask, -torch.inf)
    return Apart.apply(scores.softmax(-1), v.mT, rule, True)


def heads(layer, x, rule, scaled_first=True):
    """The output of self-attention; x: (batch, steps, features)."""
    parts = linear(x, layer.in_proj_weight, layer.in_proj_bias, rule).chunk(3, -1)
    split = [t.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2) for t in parts]
    y = attend(*split, rule, scaled_first=scaled_first).transpose(1, 2).flatten(2)
    return linear(y, layer.out_proj.weight, layer.out_proj.bias, rule)


class Experts(nn.Module):
    """As in a mixture: one weight for all experts, inputs x outputs."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.up = nn.Parameter(torch.randn(3, 40, 36) * torch.randn(1, 40, 1).exp2())
        self.down = nn.Parameter(torch.randn(3, 36, 40) * torch.randn(1, 36, 1).exp2())

    def forward(self, x):
        if self.way == "bmm":
            return torch.bmm(torch.relu(torch.bmm(x, self.up)), mat2=self.down)
        if self.way == "add":
            y = torch.relu(x @ self.up)
            return torch.baddbmm(x, y, self.down, beta=2.0, alpha=0.5)
        if self.way == "first":  # weights as first operands
            y = torch.relu(self.up.mT @ x.mT)
            return (self.down.transpose(1, 2) @ y).mT
        each = [torch.relu(F.linear(t, w.t())) for t, w in zip(x, self.up, strict=True)]
        return torch.stack([y @ self.down[i].to(y.dtype) for i, y in enumerate(each)])


def experts(layer, x, rule):
    if layer.way == "linear":  # a tensor's own scale is each expert's
        each = [
            linear(torch.relu(linear(t, u.t(), None, rule)), d.t(), None, rule)
            for t, u, d in zip(x, layer.up, layer.down, strict=True)
        ]
        return torch.stack(each)
    y = torch.relu(Apart.apply(x, layer.up.mT, rule, False))
    y = Apart.apply(y, layer.down.mT, rule, False)
    return 2 * x + 0.5 * y if layer.way == "add" else y


class Attention(nn.Module):
    """Attention of a user, with one weight of its own and two heads for each key."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(72, 72))

    def forward(self, x):
        q = (x @ self.weight).unflatten(-1, (2, 36)).transpose(1, 2)
        k = x[..., :36].unsqueeze(1)
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)


def attention(layer, x, rule):
    q = linear(x, layer.weight.t(), None, rule).unflatten(-1, (2, 36)).transpose(1, 2)
    k = x[..., :36].unsqueeze(1).expand(-1, 2, -1, -1)
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return attend(q, k, k, rule, future)


LAYERS = {
    "lstm": (lambda: nn.LSTM(40, 36), (5, 3, 40), lambda m, x: m(x)[0], recurrent),
    "projected": (
        lambda: nn.LSTM(40, 36, proj_size=9),
        (4, 3, 40),
        lambda m, x: m(x)[0],
        recurrent,
    ),
    "gru": (lambda: nn.GRU(40, 36), (5, 3, 40), lambda m, x: m(x)[0], recurrent),
    "rnn": (lambda: nn.RNN(40, 36), (5, 3, 40), lambda m, x: m(x)[0], recurrent),
    "attention": (
        lambda: nn.MultiheadAttention(72, 2, batch_first=True),
        (2, 5, 72),
        lambda m, x: m(x, x, x)[0],
        heads,
    ),
    "no weights": (
        lambda: nn.MultiheadAttention(72, 2, batch_first=True),
        (2, 5, 72),
        lambda m, x: m(x, x, x, need_weights=False)[0],
        lambda *args: heads(*args, scaled_first=False),
    ),
    "own attention": (Attention, (2, 5, 72), lambda m, x: m(x), attention),
    **{
        f"experts by {way}": (lambda way=way: Experts(way), (3, 7, 40), lambda m, x: m(x), experts)
        for way in ("bmm", "add", "first", "linear")
    },
}


def step(run, layer, x, g):
    x = x.detach().requires_grad_()
    layer.zero_grad()
    y = run(layer, x)
    y.backward(g)
    return [y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]


CASES = [(kind, rule) for rule in RULES for kind in LAYERS]
KEPT = ("gru mxfp4", "attention six formats", "own attention mxfp4", "experts by first six formats")


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")  # PyTorch's own
@pytest.mark.parametrize("kind, rule", thin_out(CASES, KEPT, lambda *case: " ".join(case)))
def test_products_are_those_of_operands_rounded_apart(kind, rule):
    torch.manual_seed(1)
    build, shape, call, equations = LAYERS[kind]
    # Rows and columns of uneven size, so that the axis of the blocks shows.
    layer, x = build(), torch.randn(shape) * torch.randn(shape[-1]).exp2()
    g = torch.randn_like(call(layer, x))
    want = step(lambda m, x: equations(m, x, RULES[rule]), copy.deepcopy(layer), x, g)
    plain = step(call, layer, x, g)
    quantize_(layer, {"": RULES[rule]})
    for got, exact, unrounded in zip(step(call, layer, x, g), want, plain, strict=True):
        size = exact.abs().max()
        torch.testing.assert_close(got, exact, rtol=1e-4, atol=3e-5 * size)
        if got.dim() > 1:
            assert (got - unrounded).abs().max() > 1e-3 * size


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_is_one_step_of_its_layer(kind):
    torch.manual_seed(2)
    cell, layer = kind(40, 36), getattr(nn, kind.__name__.removesuffix("Cell"))(40, 36)
    layer.load_state_dict({f"{name}_l0": p for name, p in cell.state_dict().items()})
    for module in (cell, layer):
        quantize_(module, {"": MX})
    x = torch.randn(3, 40)
    y = cell(x)
    assert torch.equal(y[0] if isinstance(y, tuple) else y, layer(x[None])[0][0])


def test_layers_directions_and_packed_sequences():
    """As one layer and one direction after the other."""
    torch.manual_seed(3)
    both = quantize_(nn.GRU(40, 36, 2, bidirectional=True), {"": MX})
    x, lengths = torch.randn(5, 3, 40), torch.tensor([5, 3, 2])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    y, last = nn.utils.rnn.pad_packed_sequence(both(packed)[0])[0], both(packed)[1]
    for i, length in enumerate(lengths):
        h = x[:length, i : i + 1]
        for level in range(2):
            found = []
            for end in ("", "_reverse"):
                one = nn.GRU(h.shape[-1], 36)
                one.load_state_dict(
                    {
                        n: both.state_dict()[n.replace("_l0", f"_l{level}{end}")]
                        for n in one.state_dict()
                    }
                )
                quantize_(one, {"": MX})
                found.append(one(h.flip(0))[0].flip(0) if end else one(h)[0])
            h = torch.cat(found, -1)
        torch.testing.assert_close(y[:length, i : i + 1], h)
        torch.testing.assert_close(last[2:, i], torch.stack((h[-1, 0, :36], h[0, 0, 36:])))


def test_dropout_between_layers_is_pytorchs():
    lstm, x = nn.LSTM(4, 4, 2, dropout=0.5), torch.randn(3, 2, 4)
    torch.manual_seed(4)
    want = lstm(x)[0]
    quantize_(lstm, {"": dict(accumulate="float64")})
    torch.manual_seed(4)
    torch.testing.assert_close(lstm(x)[0], want)


def test_an_output_projection_has_its_own_operands():
    torch.manual_seed(5)
    layer, x = nn.MultiheadAttention(64, 2), torch.randn(5, 2, 64)
    inner = copy.deepcopy(layer)
    inner.out_proj.weight.data, inner.out_proj.bias.data = torch.eye(64), torch.zeros(64)
    before, outer = inner(x, x, x)[0], copy.deepcopy(layer.out_proj)
    quantize_(layer, {nn.Linear: MX})  # a rule of linear layers alone, without a warning
    assert summary(layer, show=False)["out_proj"].weight == "mxfp4"
    assert summary(layer, show=False).reached == 64 * 64
    want = F.linear(chop(before, "mxfp4"), chop(outer.weight, "mxfp4"), outer.bias)
    torch.testing.assert_close(layer(x, x, x)[0], want)
    quantize_(layer, {nn.MultiheadAttention: MX, nn.Linear: dict(weight="q43")})
    found = summary(layer, show=False)
    assert (found[""].forward, found["out_proj"].weight) == ("mxfp4 x mxfp4", "q43")
    assert found.reached == 4 * 64 * 64


def test_transforms_are_filled_up():
    torch.manual_seed(6)
    layer, x = Experts("bmm"), torch.randn(3, 7, 40)
    g = torch.randn(3, 7, 40)
    everywhere = {p: dict(transform="hadamard16") for p in ("forward", "input_grad", "weight_grad")}
    plain = step(Experts.__call__, layer, x, g)
    quantize_(layer, {"": everywhere})
    for got, want in zip(step(Experts.__call__, layer, x, g), plain, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4 * want.abs().max())


class Scores(nn.Module):
    def forward(self, a, b):
        return a @ b


class Other(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.table, self.use = nn.Parameter(torch.randn(40, 40)), use

    def forward(self, x):
        return self.use(x, self.table)


def test_a_module_without_parameters_names_its_products():
    torch.manual_seed(7)
    a, b = torch.randn(5, 40), torch.randn(40, 3)
    module = quantize_(Scores(), {"": dict(forward=dict(activation="mxfp4"))})
    assert torch.equal(module(a, b), chop(a, "mxfp4") @ chop(b.t().contiguous(), "mxfp4").t())
    module = quantize_(Scores(), {"": dict(activation="mxfp4")})  # its inputs, as of any module
    assert torch.equal(module(a, b), chop(a, "mxfp4") @ chop(b, "mxfp4"))
    none = quantize_(nn.Sequential(Other(lambda x, t: x)), {"0": MX})
    assert torch.equal(none(a), a)


def test_a_vector_is_one_column():
    x = torch.randn(5, 40)
    vector = quantize_(Other(lambda x, t: x @ t[:, 0]), {"": MX})
    column = quantize_(Other(lambda x, t: x @ t[:, :1]), {"": MX})
    column.load_state_dict(vector.state_dict())
    assert torch.equal(vector(x), column(x)[:, 0])


@pytest.mark.parametrize(
    "use, match",
    [
        (
            lambda x, t: torch.einsum("ij,jk->ik", x, t),
            "expected products by linear, .* got einsum",
        ),
        (lambda x, t: x + t[:5], "expected the weights of an Other in products alone.*got add"),
        (lambda x, t: torch.mm(x, t, out=torch.empty(5, 40)), "but got mm with out="),
    ],
)
def test_what_rules_cannot_reach_is_an_error(use, match):
    x, module = torch.randn(5, 40), Other(use)
    with torch.no_grad():
        with pytest.raises(NotImplementedError, match=match):
            quantize_(module, {"": MX})(x)
        quantize_(module, {"": dict(MX, axis=-1)})(x)


@pytest.mark.parametrize(
    "module, rule, match",
    [
        (
            nn.LSTM(8, 8),
            dict(forward=dict(activation="int8")),
            "expected when='call' for activation",
        ),
        (
            nn.MultiheadAttention(8, 2),
            dict(MX, weight="mxfp4_nopad"),
            "expected whole blocks of 32",
        ),
        (nn.GRU(8, 8), dict(MX, weight="mxfp4_axis0"), "or square ones, .* got mxfp4_axis0"),
        (
            nn.GRUCell(8, 8),
            dict(forward=dict(weight=dict(format="int8", per="channel"))),
            "one scale per tensor for weight of",
        ),
        (
            nn.Sequential(nn.Linear(8, 8), Other(None)).append(Scores()),
            dict(forward=dict(weight="mxfp4")),
            "got forward= for '', a Sequential",
        ),
    ],
)
def test_bad_rules_leave_the_model(module, rule, match):
    with pytest.raises(ValueError, match=match):
        quantize_(module, {"": rule})
    assert not summary(module, show=False).rows[0].runs
