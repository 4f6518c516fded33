"""quantize_ of models as people have them: parametrised and pruned layers, parameters of several
shapes, copies in other dtypes, empty batches."""

import collections
import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from torch_dtypes import accumulate, chop, dequantize_, dtype, quantize_, summary, target

RULE = dict(weight="q43", activation="posit8es1", error="q52", grad="e5m5")


def linear(make=nn.Linear, **options):
    torch.manual_seed(0)
    return nn.Sequential(make(6, 4, **options))


def old_weight_norm(layer):
    with pytest.warns(FutureWarning, match="weight_norm"):
        return nn.utils.weight_norm(layer)


MADE = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": lambda layer: parametrizations.spectral_norm(layer.eval()),
    "weight_norm by a hook": old_weight_norm,
    "spectral_norm by a hook": nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "pruned twice": lambda layer: prune.random_unstructured(
        prune.l1_unstructured(layer, "weight", 0.3), "weight", 0.3
    ),
    "a pruned bias": lambda layer: prune.l1_unstructured(layer, "bias", 2),
}


def make(name, layer):
    torch.manual_seed(2)  # masks and power iterations begin at random
    MADE[name](layer)


@pytest.mark.parametrize("first", ["made", "quantised"])
@pytest.mark.parametrize("name", MADE)
def test_the_weight_that_is_made_of_parameters_is_rounded(name, first):
    model = linear().eval()
    hand = copy.deepcopy(model)
    make(name, hand[0])
    if first == "made":
        make(name, model[0])
    quantize_(model, {nn.Linear: RULE})
    if first == "quantised":
        make(name, model[0])
    x = torch.randn(5, 6)
    y = model(x)
    g = torch.randn(5, 4)
    y.backward(g)

    hand(x)  # hooks make the weight
    weight, bias = hand[0].weight, hand[0].bias
    assert torch.equal(
        y, F.linear(chop(x, "posit8es1"), chop(weight, "q43"), bias)
    ) and not torch.equal(weight, chop(weight, "q43"))
    torch.autograd.backward(
        [weight, bias],
        [
            chop(t, "e5m5")
            for t in (chop(g, "q52").t() @ chop(x, "posit8es1"), chop(g, "q52").sum(0))
        ],
    )
    got, want = dict(model.named_parameters()), dict(hand.named_parameters())
    assert got.keys() == want.keys() and len(got) >= 2
    for key, p in got.items():
        assert torch.equal(p.grad, want[key].grad), key
    assert type(dequantize_(model)[0]).__name__ == type(hand[0]).__name__
    assert torch.equal(model(x), hand(x))


def test_rules_know_parametrised_layers_by_names_and_copies_run():
    model = linear(bias=False)
    parametrizations.weight_norm(model[0])
    quantize_(model, {".*": torch.q43})
    assert [(row.layer, row.runs) for row in summary(model, show=False)] == [("0", "natively")]
    x = torch.randn(3, 6)
    want = (chop(x, "q43").to(torch.q43) @ model[0].weight.to(torch.q43).t()).float()
    assert torch.equal(model(x), want) and torch.equal(copy.deepcopy(model)(x), want)
    model.append(nn.Linear(4, 2))
    quantize_(model, {nn.Linear: dict(weight="int8"), "0": dict(weight="q43")})
    assert summary(model, show=False)["0"].weight == "q43"


def test_layers_that_need_their_parameters_in_place_refuse_parametrised_ones():
    lstm = nn.LSTM(3, 4)
    parametrize.register_parametrization(lstm, "weight_hh_l0", nn.Identity())
    for rule in (dict(weight="q43"), dict(grad="q43"), torch.q43):
        with pytest.raises(
            ValueError,
            match=r"plain parameters, but weight_hh_l0 of 'the model' .rule LSTM. is parametrised",
        ):
            quantize_(lstm, {nn.LSTM: rule})
    quantize_(lstm, {nn.LSTM: dict(activation="q43", error="q52")})
    norm = quantize_(nn.LayerNorm(4), {nn.LayerNorm: dict(weight="q43")})
    parametrize.register_parametrization(norm, "weight", nn.Identity())
    with pytest.raises(RuntimeError, match="got a parametrised one; call quantize_ again"):
        norm(torch.randn(2, 4))


# ---- parameters of several shapes ----


@pytest.mark.parametrize("name", ["mxfp8_e4m3_axis1", "bfp8_dim1", "block<e3m4,e8m0,4x2>_axis0x1"])
def test_gradients_of_biases_lie_along_the_one_dimension_they_have(name):
    conv, plain = (nn.Conv2d(6, 4, 3) for _ in range(2))
    plain.load_state_dict(conv.state_dict())
    quantize_(conv, {nn.Conv2d: dict(grad=name)})
    x = torch.randn(2, 6, 5, 5)
    g = torch.randn(2, 4, 3, 3)
    conv(x).backward(g), plain(x).backward(g)
    of_bias = {"mxfp8_e4m3_axis1": "mxfp8_e4m3", "bfp8_dim1": "bfp8"}.get(
        name, "block<e3m4,e8m0,2>"
    )
    assert torch.equal(conv.weight.grad, chop(plain.weight.grad, name))
    assert torch.equal(conv.bias.grad, chop(plain.bias.grad, of_bias))


@pytest.mark.parametrize("per", ["channel", "tensor", 1])
def test_delayed_scales_of_gradients_are_each_parameters_own(per):
    layer = linear()
    plain = copy.deepcopy(layer)
    quantize_(
        layer, {nn.Linear: dict(grad=dict(format="int8", when="delayed", history=1, per=per))}
    )
    before = {}
    for step in range(3):
        x = torch.randn(5, 6) * (step + 1)
        for model in (layer, plain):
            model.zero_grad()
            model(x).square().sum().backward()
        for name, p in plain[0].named_parameters():
            dims = {"channel": 0, "tensor": None, 1: 1}[per]
            # A bias has one scale: each number's own would round nothing.
            axis = None if dims is None or p.dim() < 2 else dims
            absmax = p.grad.abs().amax([d for d in range(p.dim()) if d != axis], keepdim=True)
            scale = (before.get(name, absmax).double() / 127).float()
            assert torch.equal(
                getattr(layer[0], name).grad, target("int8").quantize(p.grad, scale=scale)
            ), (name, step)
            before[name] = absmax


def test_a_parameter_of_no_dimensions():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain, self.table = nn.Parameter(torch.tensor(1.3)), nn.Parameter(torch.randn(3, 2))

        def forward(self, x):
            return x * self.gain @ self.table

    model = quantize_(
        Scaled(), {Scaled: dict(weight=dict(format="int4", per="channel"), grad="mxfp4_axis1")}
    )
    x = torch.randn(2, 3)
    model(x).sum().backward()
    assert model.gain.grad.shape == () and model.table.grad.shape == (3, 2)


@pytest.mark.parametrize("place", ["bias", "weight"])
def test_a_scale_for_each_number_is_refused(place):
    per_number = {place: dict(format="int4", scale="free", per="channel")}
    with pytest.raises(
        ValueError,
        match=rf"each number of one would get a scale, but got {place} of shape \(6,\); set "
        "per='tensor'",
    ):
        quantize_(nn.LayerNorm(6), {nn.LayerNorm: per_number})


def test_a_scale_along_a_dimension_that_an_input_lacks():
    model = quantize_(
        linear(), {nn.Linear: dict(activation=dict(format="int8", when="call", per=2))}
    )
    with pytest.raises(
        ValueError,
        match=r"tensor with dimension 2, which has a scale per index, but got shape "
        r"\(3, 6\)",
    ):
        model(torch.randn(3, 6))


# ---- models moved about ----

RULES = {
    "casts": RULE,
    "natively": torch.q43,
    "sums": dict(RULE, accumulate="format"),
    "delayed": dict(activation=dict(format="int8", when="delayed", per="channel")),
    "integers": dict(
        weight="int8", activation=dict(format="int8", when="call"), arithmetic="integer"
    ),
    "blocks": dict(weight="mxfp4", error="nvfp4"),
    "least error": dict(
        activation=dict(format="int8", when="call", by="mse"),
        grad=dict(format="int8", per="channel"),
    ),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@every_rule
def test_batches_of_no_rows(rule):
    model, x = quantize_(linear(), {nn.Linear: rule}), torch.randn(3, 6)
    model(x)
    y = model(x[:0])
    y.sum().backward()
    assert y.shape == (0, 4) and not model[0].weight.grad.any()
    # A delayed scale is of what had rows.
    assert torch.equal(model(x), quantize_(linear(), {nn.Linear: rule})(x))
    copy.deepcopy(model).load_state_dict(model.state_dict())


@every_rule
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_that_is_moved_to_another_stock_dtype_afterwards(rule, dtype):
    model = quantize_(linear(), {nn.Linear: rule}).to(dtype)
    y = model(torch.randn(3, 6, dtype=dtype))
    y.sum().backward()
    assert y.dtype is dtype and model[0].weight.grad.dtype is dtype
    before = quantize_(linear().to(dtype), {nn.Linear: rule})
    x = torch.randn(3, 6, dtype=dtype)
    torch.testing.assert_close(before(x), model(x), rtol=0, atol=0)


@every_rule
def test_a_model_without_memory(rule):
    with torch.device("meta"):
        model = quantize_(linear(), {nn.Linear: rule})
        # These rules check whether numbers are finite, which meta tensors cannot.
        if rule not in (RULES["integers"], RULES["delayed"], RULES["least error"]):
            assert model(torch.empty(3, 6)).shape == (3, 4)
    x = torch.randn(3, 6)
    model.to_empty(device=x.device).load_state_dict(linear().state_dict())
    assert torch.equal(model(x), quantize_(linear(), {nn.Linear: rule})(x))


def test_weights_changed_in_evaluation_are_seen_at_once():
    model, x = quantize_(linear(), {nn.Linear: RULE}).eval(), torch.randn(3, 6)
    with torch.no_grad():
        model(x)
        model[0].weight.mul_(2)
        twice = model(x)
    with torch.inference_mode():
        assert torch.equal(model(x), twice)
    assert torch.equal(
        twice, F.linear(chop(x, "posit8es1"), chop(model[0].weight, "q43"), model[0].bias)
    )


def test_wrappers_run_what_is_inside():
    x = torch.randn(3, 6)
    want = quantize_(linear(), {nn.Linear: RULE})(x)
    assert torch.equal(quantize_(nn.DataParallel(linear()), {nn.Linear: RULE})(x), want)
    assert torch.equal(
        torch.optim.swa_utils.AveragedModel(quantize_(linear(), {nn.Linear: RULE}))(x), want
    )
    assert torch.equal(
        torch.func.functional_call(
            quantize_(linear(), {nn.Linear: RULE}), dict(linear().named_parameters()), x
        ),
        want,
    )


# ---- modules that keep others ----


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(6, 6))])
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x @ self.tables[0] if layer is self.layers[0] else x)
        return x


def test_modules_that_never_run_have_no_rule():
    for key in ("tables", nn.ParameterList):
        with pytest.raises(
            ValueError,
            match=r"a module that is called .*, but 'tables' is a ParameterList.*this one None",
        ):
            quantize_(Body(), {key: dict(weight="q43")})
    with pytest.raises(
        ValueError, match=r"a module that is called .*, but 'layers' is a ModuleList"
    ):
        quantize_(Body(), {nn.ModuleList: dict(activation="q43")})
    model = quantize_(Body(), {".*": dict(weight="q43"), "tables": None})
    assert [row.layer for row in summary(model, show=False) if row.runs] == ["layers.0", "layers.1"]
    assert [
        row.layer
        for row in summary(quantize_(Body(), {".*": dict(weight="q43")}), show=False)
        if row.runs
    ] == ["", "layers.0", "layers.1"]
    # ModuleList, too, is a Module.
    model = quantize_(Body(), {nn.Module: dict(output="q43"), "tables": None})
    y = model(torch.randn(3, 6))
    assert torch.equal(y, chop(y, "q43"))


def test_everything_in_a_module_is_everything_in_its_layers():
    with pytest.raises(
        ValueError,
        match=r"everything in '0' .rule Sequential. to be torch.q43, but got '0.0', .* the "
        r"layers in it a rule.*'0\.\.\*'",
    ):
        quantize_(nn.Sequential(linear()), {nn.Sequential: torch.q43, "": None})
    x = torch.randn(3, 6)
    want = quantize_(linear(), {nn.Linear: torch.q43})(x)
    assert torch.equal(
        quantize_(linear(), {nn.Sequential: torch.q43, nn.Linear: torch.q43})(x), want
    )
    shared = linear()[0]
    # Batch normalisation takes float32 parameters.
    model = nn.Sequential(shared, nn.Linear(4, 6), nn.Sequential(nn.BatchNorm1d(6), shared))
    quantize_(model, {nn.Sequential: torch.q43, nn.Linear: torch.q43})
    assert model(x).dtype is torch.float32
    attention = quantize_(nn.MultiheadAttention(4, 2), {nn.MultiheadAttention: torch.q43})
    assert attention(x[:, :4], x[:, :4], x[:, :4])[0].dtype is torch.float32


# ---- within autocast with a format dtype ----


@every_rule
def test_rules_hold_within_autocast(rule):
    model, x = quantize_(linear(), {nn.Linear: rule}).eval(), torch.randn(3, 6)
    want = model(x)
    with torch.autocast(x.device.type, dtype=torch.q52):
        got = model(x)
    assert got.dtype is torch.float32 and torch.equal(got, want)
    before, coarse = nn.Linear(6, 6), chop(F.linear(x, torch.eye(6)), "q52")
    before.load_state_dict({"weight": torch.eye(6), "bias": torch.zeros(6)})
    with torch.autocast(x.device.type, dtype=torch.q52):
        h = before(x)
        got = model(h)
    assert h.dtype is torch.q52 and got.dtype is (torch.q52 if rule is torch.q43 else torch.float32)
    assert torch.equal(
        got.float(), chop(model(coarse), "q52") if rule is torch.q43 else model(coarse)
    )
    got.float().sum().backward()
    assert before.weight.grad.any() and model[0].weight.grad.dtype is torch.float32


POLICY = dict(
    weight="posit16es2", activation="posit16es2", error="q52", grad="q52", accumulate="exact"
)
INTEGER = dict(
    weight="int8",
    activation=dict(format="int8", when="call"),
    arithmetic="integer",
    error="q52",
    grad="q52",
)
CASES = {
    "linear-casts": (nn.Linear, (6, 4), RULE, 1),
    "linear-policy": (nn.Linear, (6, 4), POLICY, 1),
    "linear-integer": (nn.Linear, (6, 4), INTEGER, 1),
    "lstm-native": (nn.LSTM, (6, 4), torch.posit16es2, 1),
    "lstm-policy": (nn.LSTM, (6, 4), POLICY, 1),
    "attention-policy": (nn.MultiheadAttention, (6, 2), POLICY, 3),
}


@pytest.mark.parametrize("low", [torch.q52, torch.bfloat16])
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_rules_within_autocast(case, within, low):
    """Wherever backward() is called; beside a stock autocast of layers by casts as the autocast has
    it."""
    kind, sizes, rule, inputs = CASES[case]
    if low is torch.bfloat16 and case == "linear-casts":
        pytest.skip("products are the autocast's")
    layer = quantize_(kind(*sizes), {kind: rule})

    def run(enabled):
        layer.zero_grad()
        x = torch.linspace(-1, 1, 18).reshape(3, 6).requires_grad_()
        with torch.autocast(x.device.type, dtype=low, enabled=enabled):
            y = layer(*[x] * inputs)
            y = y[0] if isinstance(y, tuple) else y
            if within:
                y.square().sum().backward()
        if not within:
            y.square().sum().backward()
        return [y, x.grad, *(p.grad for p in layer.parameters())]

    for a, b in zip(run(True), run(False), strict=True):
        assert a.dtype is torch.float32 and torch.equal(a, b)


def test_layers_in_a_module_with_a_rule_are_still_autocast_s():
    model, x = (
        quantize_(linear(), {nn.Sequential: dict(activation="q43", output="q43", error="q52")}),
        torch.randn(3, 6),
    )
    with torch.autocast(x.device.type, dtype=torch.q52):
        want = chop(F.linear(chop(x, "q43"), model[0].weight, model[0].bias).float(), "q43")
        got = model(x.to(torch.q43))
        assert got.dtype is torch.float32 and torch.equal(got, want)


def test_a_weight_that_another_network_makes():
    layer, made = nn.Linear(6, 4), torch.randn(4, 6, requires_grad=True)
    del layer.weight
    layer.weight = made
    quantize_(layer, {nn.Linear: RULE})
    x = torch.randn(3, 6)
    assert torch.equal(layer(x), F.linear(chop(x, "posit8es1"), chop(made, "q43"), layer.bias))
    layer(x).sum().backward()
    assert torch.equal(made.grad, chop(made.grad, "e5m5")) and made.grad.any()


@pytest.mark.parametrize(
    "rule",
    [dict(weight="q43", grad="q52"), "q43", dict(weight="mxfp4"), dict(weight="int8")],
    ids=str,
)
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_rows_of_at_most_some_norm_are_the_masters(kind, rule):
    torch.manual_seed(0)
    table = kind(6, 32, max_norm=1.0)
    hand, i = copy.deepcopy(table), torch.tensor([[0, 3], [3, 5]])
    hand(i)
    plain = kind.from_pretrained(hand.weight.detach().clone(), freeze=False)
    quantize_(table, {kind: rule}), quantize_(plain, {kind: rule})
    got, want = table(i), plain(i)
    got.sum().backward(), want.sum().backward()
    assert (
        torch.equal(table.weight, hand.weight)
        and torch.equal(got, want)
        and torch.equal(table.weight.grad, plain.weight.grad)
    )
    assert (
        table.max_norm == 1.0 and quantize_(table, {kind: dict(output="q43")})(i).shape == got.shape
    )


@dataclasses.dataclass
class Plain:
    x: torch.Tensor
    more: tuple = ()


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor


@pytest.mark.parametrize(
    "box",
    [Plain, Frozen, lambda x: collections.UserDict(x=x), lambda x: Plain(x=x, more=({"x": x},))],
)
@pytest.mark.parametrize(
    "rule",
    [
        dict(activation="q43", output="q43", error="q52"),
        "q43",
        dict(output="q43", accumulate="exact"),
    ],
    ids=str,
)
def test_tensors_in_containers_of_the_user_s(rule, box):
    class Doubles(nn.Module):
        def forward(self, held):
            return box(2 * (held["x"] if isinstance(held, collections.UserDict) else held.x))

    x = torch.randn(5, requires_grad=True)
    held = box(x)
    y = quantize_(Doubles(), {"": rule})(held)
    y = y["x"] if isinstance(y, collections.UserDict) else y.x
    want = (
        chop(2 * chop(x.detach(), "q43"), "q43")
        if "accumulate" not in rule
        else chop(2 * x.detach(), "q43")
    )
    assert y.dtype is torch.float32 and torch.equal(y.detach(), want)
    # The user's container keeps its tensor.
    assert (held["x"] if isinstance(held, collections.UserDict) else held.x) is x
    (y * torch.linspace(1, 2, 5)).sum().backward()
    assert rule == dict(output="q43", accumulate="exact") or torch.equal(
        x.grad, 2 * chop(torch.linspace(1, 2, 5), "q43" if rule == "q43" else "q52")
    )


@pytest.mark.parametrize("rule", ["q43", dict(activation="q43"), dict(error="q43")], ids=str)
def test_complex_layers_are_refused(rule):
    layer = nn.Linear(3, 2, dtype=torch.complex64)
    with pytest.raises(
        TypeError, match=r"expected real parameters.* weight of 'the model' .* is torch\.complex64"
    ):
        quantize_(layer, {nn.Linear: rule})


def test_a_module_without_parameters_adds_up_by_its_policy():
    class Product(nn.Module):
        def forward(self, a, b):
            return a @ b

    torch.manual_seed(0)
    a, b = (torch.randn(shape, requires_grad=True) for shape in ((3, 40), (40, 2)))
    rule = dict(activation="q43", accumulate="format(product=e5m7, accumulator=e5m5)")
    y = quantize_(Product(), {"": rule})(a, b)
    (ga, gb) = torch.autograd.grad(y.sum(), (a, b))
    held = [chop(t, "q43").detach().to(dtype("e8m23")).requires_grad_() for t in (a, b)]
    with accumulate("format", product=dtype("e5m7"), accumulator=dtype("e5m5")):
        want = held[0] @ held[1]
        wa, wb = torch.autograd.grad(want.sum(), held)
    assert (
        torch.equal(y, want.float()) and torch.equal(ga, wa.float()) and torch.equal(gb, wb.float())
    )
    assert not torch.equal(y, chop(a, "q43") @ chop(b, "q43"))


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(3, 8))])
        self.more = nn.ParameterDict({"shift": nn.Parameter(torch.randn(3))})

    def forward(self, x):
        return F.linear(x, self.weights[0]) + self.more["shift"]


@pytest.mark.parametrize("key", [Lists, "", "native"])
def test_parameters_in_lists_are_their_owner_s(key):
    torch.manual_seed(0)
    model, x = Lists(), torch.randn(2, 8)
    weight, shift = model.weights[0].detach().clone(), model.more["shift"].detach().clone()
    if key == "native":
        quantize_(model, {Lists: torch.q43})
        y = model(x.to(torch.q43))
        expected = F.linear(x.to(torch.q43), weight.to(torch.q43)) + shift.to(torch.q43)
    else:
        quantize_(model, {key or ".*": dict(weight="q43", grad="q52")})
        y = model(x)
        expected = F.linear(x, chop(weight, "q43")) + chop(shift, "q43")
    y.sum().backward()
    assert torch.equal(y.float(), expected.float())
    assert all(
        torch.equal(p.grad.float(), chop(p.grad.float(), "q52" if key != "native" else "q43"))
        for p in model.parameters()
    )
    assert summary(model, show=False)[""].weight == "q43"
    with pytest.raises(ValueError, match="expected a module that is called"):
        quantize_(Lists(), {"weights": dict(weight="q43")})
