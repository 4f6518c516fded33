"""quantize_: layers that round by rules, compared with casts written by hand; what stays as it was; files and copies."""

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_dtypes import accumulate, chop, dequantize_, dtype, format_of, quantize_, rounding, summary

# weight, activation, error, grad: floats, posits, fixed point, stock dtypes, run-time formats, blocks; None leaves a place as it is
FORMATS = [
    ("q43", "q43", "q52", "q52"),
    ("posit8es1", "posit16es2", "posit8es2", "e5m5"),
    ("fixed3_4", "e3m2fn", "e8m7", "q43"),
    ("bfloat16", "float16", "float8_e5m2", None),
    ("mxfp8_e4m3", "mxint8", "mxfp4", "nvfp4"),
    ("q52", None, None, "posit8es2"),
    (None, "q43", "q52", None),
]
every_format = pytest.mark.parametrize("formats", FORMATS, ids=[" ".join(map(str, f)) for f in FORMATS])


def rule(formats, **others):
    return dict(zip(("weight", "activation", "error", "grad"), formats, strict=True)) | others


def by_hand(x, name):
    """x rounded to a format: a stock cast there and back where there is one, else chop."""
    if name is None:
        return x
    stock = getattr(torch, name, None)
    return x.to(stock).to(x.dtype) if isinstance(stock, torch.dtype) and name.startswith(("bfloat", "float")) else chop(x, name)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, padding_mode="reflect", groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).flatten(1))


def batch():
    torch.manual_seed(1)
    return torch.randn(5, 2, 4, 4), torch.tensor([0, 1, 2, 0, 1])


def gradients(model):
    model.zero_grad()
    x, t = batch()
    loss = F.cross_entropy(model(x), t)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def equal(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b), (a - b).abs().max()


# ---- bits: a layer, forward and backward, against casts by hand ----


@every_format
@pytest.mark.parametrize("layer", ["linear", "conv", "transposed"])
def test_a_layers_bits_are_those_of_casts_by_hand(layer, formats):
    weight, activation, error, grad = formats
    torch.manual_seed(0)
    made = {"linear": nn.Linear(6, 4), "conv": nn.Conv1d(6, 4, 3, padding=1), "transposed": nn.ConvTranspose2d(6, 4, 3, stride=2)}[layer]
    x = torch.randn({"linear": (5, 6), "conv": (5, 6, 7), "transposed": (2, 6, 4, 3)}[layer]).requires_grad_()
    master, bias = made.weight.detach().clone(), made.bias.detach().clone()
    plain = copy.deepcopy(made)
    quantize_(made, {type(made): rule(formats)})
    y = made(x)
    g = torch.randn_like(y)
    y.backward(g)

    with torch.no_grad():
        plain.weight.copy_(by_hand(master, weight))
    x_hand = by_hand(x.detach(), activation).requires_grad_()
    y_hand = plain(x_hand)
    y_hand.backward(by_hand(g, error))
    equal([y.detach(), x.grad], [y_hand.detach(), x_hand.grad])
    equal([made.weight.grad, made.bias.grad], [by_hand(plain.weight.grad, grad), by_hand(plain.bias.grad, grad)])
    equal([made.weight.detach(), made.bias.detach()], [master, bias])  # masters as they were


def test_output_and_bias():
    layer, x = nn.Linear(6, 4), torch.randn(5, 6)
    want = chop(F.linear(x, layer.weight, chop(layer.bias, "q43")), "q52")
    quantize_(layer, {nn.Linear: dict(bias="q43", output=torch.q52)})
    assert torch.equal(layer(x), want)


def test_a_network_of_several_rules():
    model, (x, t) = Layers(), batch()
    quantize_(model, {nn.Linear: dict(weight="q43", activation="q52", error="q52"), "conv": dict(weight="posit8es1", output="q43", error="q43")})
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
    y = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), chop(hand.conv.weight, "posit8es1"), hand.conv.bias, 2, 0, 1, 2)
    y = F.relu(hand.norm(Back.apply(chop(y, "q43"), "q43"))).flatten(1)
    for part in hand.head:
        linear = isinstance(part, nn.Linear)
        y = Back.apply(F.linear(chop(y, "q52"), chop(part.weight, "q43"), part.bias), "q52") if linear else part(y)
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
    y = ours.head[1](ours.head[0](F.relu(ours.norm(ours.conv(x.to(d)).float())).flatten(1).to(d)).float()).to(d)
    loss = F.cross_entropy(ours.head[2](y).float(), t)
    loss.backward()
    equal(got, [loss.detach(), *(p.grad.float() for p in ours.parameters())])
    assert {row.runs for row in summary(model, show=False)} == {"natively", ""}


def torch_rule(d):
    return dict.fromkeys(("weight", "activation", "error", "grad"), d)


OTHERS = {
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), lambda m, x: m(x)[0], (5, 2, 3)),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), lambda m, x: m(x)[0], (2, 5, 3)),
    "cell": (lambda: nn.LSTMCell(3, 4), lambda m, x: m(x)[0], (2, 3)),
    "attention": (lambda: nn.MultiheadAttention(4, 2, batch_first=True), lambda m, x: m(x, x, x)[0], (2, 3, 4)),
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
    quantize_(model, {nn.Embedding: dict(weight="q43"), nn.Linear: dict(weight="posit8es1", activation="q52")})
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
    quantize_(layer, {nn.Linear: dict(weight=dict(format="q43", rounding="toward_zero"), activation="q52")})
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

POLICIES = [dict(policy="format", product="q52", accumulator="e6m9"), dict(policy="chunked(3)", product="e5m5", accumulator="e5m5"), "exact"]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("layer", ["linear", "conv", "transposed"])
def test_policies_hold_between_operands_of_different_formats(layer, policy):
    """By hand: the same product of float32's own format as a dtype of ours, with autograd's derivative, all under the policy."""
    torch.manual_seed(0)
    made = {"linear": nn.Linear(6, 4), "conv": nn.Conv1d(6, 4, 3, padding="same"), "transposed": nn.ConvTranspose2d(6, 4, 3, stride=2)}[layer]
    x = torch.randn({"linear": (2, 5, 6), "conv": (5, 6, 7), "transposed": (2, 6, 4, 3)}[layer]).requires_grad_()
    wide, hand = dtype("fp32"), copy.deepcopy(made)
    quantize_(made, {type(made): dict(weight="q43", activation="q52", error="e5m5", accumulate=policy)})
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
    equal(got, [t.float() for t in (y_hand.detach(), x_hand.grad, hand.weight.grad, hand.bias.grad)])
    unrounded = quantize_(copy.deepcopy(made), {type(made): dict(weight="q43", activation="q52")})(x)
    assert policy == "exact" or not torch.equal(y, unrounded)


def test_steps_without_a_format_are_rounded_to_one_that_holds_both_operands():
    """q43 has 4 digits and q52 5 exponent bits: e5m3. Ones in q43 and q52 add up to 2^4 there, and to 2^3 in q52."""
    layer = nn.Linear(100, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    for weight, activation, want in (("q43", "q52", 16.0), ("q52", "q52", 8.0), ("q43", "q43", 16.0)):
        quantize_(layer, {nn.Linear: dict(weight=weight, activation=activation, accumulate="format")})
        assert layer(torch.ones(1, 100)).item() == want
    quantize_(layer, {nn.Linear: dict(weight="q52", activation="q52", accumulate="float64")})
    assert layer(torch.ones(1, 100)).item() == 100


@pytest.mark.parametrize("name", ["q43", "posit16es2"])
@pytest.mark.parametrize("layer", ["linear", "conv", "lstm", "attention"])
def test_policies_hold_in_native_layers(layer, name):
    d = dtype(name)
    torch.manual_seed(0)
    made, call, shape = OTHERS[layer] if layer in OTHERS else {
        "linear": (lambda: nn.Linear(6, 4), lambda m, x: m(x), (5, 6)),
        "conv": (lambda: nn.Conv2d(2, 3, 3), lambda m, x: m(x), (2, 2, 6, 5)),
    }[layer]  # fmt: skip
    model = made()
    x, hand = torch.randn(shape), copy.deepcopy(model).to(d)
    quantize_(model, {type(model): dict(torch_rule(d), accumulate=dict(policy="format", accumulator="e5m5"))})
    y = call(model, x)
    y.sum().backward()
    with accumulate("format", accumulator="e5m5"):
        want = call(hand, x.to(d))
        want.float().sum().backward()
    equal([y.detach(), *(p.grad for p in model.parameters())], [want.detach().float(), *(p.grad.float() for p in hand.parameters())])
    with torch.no_grad():
        assert torch.equal(call(model.eval(), x), y)  # no fused kernel that obeys no policy


# ---- what stays, goes back, is copied and saved ----

RULES = {nn.Linear: dict(weight="q43", activation="q52", error="q52", grad="q43"), "conv": torch.q43}


def test_parameters_stay_the_same_objects_and_dequantize_goes_back():
    model = Layers()
    parameters, kinds, state = list(model.parameters()), [type(m) for m in model.modules()], copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    before = gradients(model)
    model.load_state_dict(state)
    assert quantize_(model, RULES) is model
    assert list(map(id, model.parameters())) == list(map(id, parameters))
    assert not torch.equal(gradients(model)[0], before[0])
    model.load_state_dict(state)
    assert dequantize_(model) is model and [type(m) for m in model.modules()] == kinds
    equal(gradients(model), before)
    assert dequantize_(model) is model  # again
    quantize_(model, RULES)
    optimizer.step()  # the optimizer made before
    assert not torch.equal(model.head[0].weight, state["head.0.weight"])


def test_state_dicts_load_both_ways():
    plain, quantised = Layers(), quantize_(Layers(), RULES)
    assert list(plain.state_dict()) == list(quantised.state_dict())
    with torch.no_grad():
        quantised.head[0].weight.mul_(2)
    plain.load_state_dict(quantised.state_dict(), strict=True)
    assert torch.equal(plain.head[0].weight, quantised.head[0].weight)
    file = io.BytesIO()
    torch.save(plain.state_dict(), file)
    file.seek(0)
    other = quantize_(Layers(), RULES)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    equal(gradients(other), gradients(quantised))


def test_copies_and_files_of_models():
    model = quantize_(Layers(), RULES)
    want = gradients(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False), pickle.loads(pickle.dumps(model))):
        other.norm.reset_running_stats()
        equal(gradients(other), want)
        assert isinstance(other.conv, nn.Conv2d) and str(summary(other, show=False)) == str(summary(model, show=False))
        assert type(dequantize_(other).conv) is nn.Conv2d


def test_a_second_call_replaces_the_rules():
    model, other = quantize_(Layers(), RULES), quantize_(Layers(), {nn.Conv2d: dict(weight="q52")})
    quantize_(model, {nn.Conv2d: dict(weight="q52")})
    equal(gradients(model), gradients(other))
    with pytest.raises(ValueError, match="none"):
        quantize_(model, {"no such": dict(weight="q43")})
    equal(gradients(model), gradients(other))  # a call that raises changes nothing


def test_a_layer_that_raises_keeps_its_parameters():
    layer = quantize_(nn.LSTM(3, 4), {nn.LSTM: dict(weight="q43")})
    own = list(layer.parameters())
    with pytest.raises(RuntimeError):
        layer(torch.randn(5, 2, 7))
    assert list(map(id, layer.parameters())) == list(map(id, own)) and layer.weight_ih_l0 is own[0] and layer._flat_weights[0] is own[0]


@pytest.mark.parametrize("rule", [dict(weight="q43"), torch.q43, dict(weight="q43", accumulate="exact")], ids=str)
def test_calls_by_name_and_wrong_ones(rule):
    linear, x = quantize_(nn.Linear(3, 4), {nn.Linear: rule}), torch.randn(2, 3)
    assert torch.equal(linear(input=x), linear(x))
    transposed, z = quantize_(nn.ConvTranspose2d(2, 3, 3, stride=2), {nn.ConvTranspose2d: rule}), torch.randn(1, 2, 4, 4)
    assert transposed(z, output_size=[10, 10]).shape[2:] == (10, 10) == transposed(z, [10, 10]).shape[2:]
    for args, kwargs in (((), {}), ((x, x), {}), ((x,), {"output_size": [3]}), ((), {"x": x})):
        with pytest.raises(TypeError, match="forward"):
            linear(*args, **kwargs)


def test_threads_share_a_layer():
    linear, x = quantize_(nn.Linear(64, 64), {nn.Linear: dict(weight="q43")}), torch.randn(16, 64)
    want, found = linear(x), []

    def work():
        found.extend(torch.equal(linear(x), want) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 200 and all(found)


def test_transformers_use_no_path_that_passes_layers_by():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x, mask = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, False, False]])
    hand, plain = copy.deepcopy(model), model(x, src_key_padding_mask=mask)
    quantize_(model, {r"layers\.\d\.linear\d": dict(weight="q43", output="q43")})
    for part in hand.layers:
        for linear in (part.linear1, part.linear2):
            linear.register_forward_hook(lambda m, i, y: chop(y, "q43"))
            with torch.no_grad():
                linear.weight.copy_(chop(linear.weight, "q43"))
    hand.use_nested_tensor = False
    want = hand(x, src_key_padding_mask=mask)
    assert torch.equal(model(x, src_key_padding_mask=mask), want)
    with torch.no_grad():
        assert torch.equal(model(x, src_key_padding_mask=mask), want)
    dequantize_(model)
    assert torch.equal(model(x, src_key_padding_mask=mask), plain) and model.use_nested_tensor and not model.layers[0]._forward_pre_hooks


def test_attention_rounds_its_output_projection():
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(4, 2), torch.randn(3, 2, 4)
    hand = copy.deepcopy(model)
    with torch.no_grad():
        hand.out_proj.weight.copy_(chop(hand.out_proj.weight, "q43"))
    quantize_(model, {nn.Linear: dict(weight="q43")})
    assert torch.equal(model(x, x, x)[0], hand(x, x, x)[0])
    assert summary(model, show=False)["out_proj"].weight == "q43"
    with pytest.warns(UserWarning, match="part of a MultiheadAttention"):
        quantize_(model, {nn.Linear: dict(weight="q43", activation="q43")})


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    model, (x, t) = quantize_(Layers(), RULES), batch()
    want = gradients(model)
    for p in model.parameters():
        p.grad = None
    model.norm.reset_running_stats()
    F.cross_entropy(checkpoint(model.head, F.relu(model.norm(model.conv(x))).flatten(1), use_reentrant=False), t).backward()
    equal([p.grad for p in model.parameters()], want[1:])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_scripts_are_refused():
    with pytest.raises(TypeError, match="is a script"):
        quantize_(nn.Sequential(torch.jit.script(nn.Linear(2, 2))), {"0": dict(weight="q43")})


def test_double_masters():
    layer, x = nn.Linear(6, 4).double(), torch.randn(5, 6, dtype=torch.float64)
    w, b = layer.weight.detach().clone(), layer.bias.detach().clone()
    quantize_(layer, {nn.Linear: dict(weight="q43", activation="e5m5")})
    assert torch.equal(layer(x), F.linear(chop(x, "e5m5"), chop(w, "q43"), b))


def test_the_names_are_the_targets():
    row = summary(quantize_(Layers(), RULES), show=False)["head.0"]
    assert (row.weight, row.activation, row.error, row.grad) == ("q43", "q52", "q52", "q43")
    assert (row.type, row.runs, row.rule) == ("Linear", "casts", "Linear")
    assert format_of(row.weight) == format_of(torch.q43)


def test_compiled_and_transformed():
    model, x = quantize_(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), {nn.Linear: RULES[nn.Linear]}), torch.randn(4, 3)
    want = model(x)
    want.sum().backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    got = torch.compile(model, backend="aot_eager")(x)
    got.sum().backward()
    assert torch.equal(got, want) and torch.equal(model[0].weight.grad, gradient)
    by_func = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())({n: p.detach() for n, p in model.named_parameters()})
    assert torch.equal(by_func["0.weight"], gradient)
    assert torch.allclose(torch.func.vmap(model)(x), want)
