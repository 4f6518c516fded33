"""Models whose layers round: what stays as it was, goes back, is copied and saved; threads, fused
paths, graphs, what is refused."""

import copy
import io
import pickle
import threading

import pytest
import torch
from quantized import Layers, batch, equal, gradients
from torch import nn
from torch.nn import functional as F

from torch_dtypes import _C, chop, dequantize_, format_of, quantize_, summary

RULES = {
    nn.Linear: dict(weight="q43", activation="q52", error="q52", grad="q43"),
    "conv": torch.q43,
}


def test_parameters_stay_the_same_objects_and_dequantize_goes_back():
    model = Layers()
    parameters, kinds, state = (
        list(model.parameters()),
        [type(m) for m in model.modules()],
        copy.deepcopy(model.state_dict()),
    )
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


on_a_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or not _C.has_gpu_kernels(),
    reason="needs a GPU and kernels for it",
)


@on_a_gpu
@pytest.mark.parametrize("by", ["to", "state dict"])
@pytest.mark.parametrize("way", [("cpu", "cuda"), ("cuda", "cpu")], ids=" to ".join)
@pytest.mark.parametrize("per", ["tensor", "channel"])
@pytest.mark.parametrize("when", ["calibration", "delayed"])
@pytest.mark.parametrize("name", ["int8", "uint8", "q43"])
def test_scales_come_to_the_device_of_what_they_round(name, when, per, way, by):
    """They are no parameters, which a module's to() and load_state_dict() bring to its device."""
    weight = dict(format=name, per="channel") if name == "int8" else "q43"
    activation, error = (
        dict(format=name, when=when, per=per, scale="free"),
        dict(format="q52", scale="free", when="delayed"),
    )
    rule = {nn.Linear: dict(weight=weight, activation=activation, error=error)}
    before, after = map(torch.device, way)
    batches = [
        torch.randn(4, 6, device="cpu", generator=torch.Generator().manual_seed(k))
        for k in range(3)
    ]

    def build(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 4)).to(device)
        return quantize_(
            model,
            rule,
            calibrate=[x.to(device) for x in batches] if when == "calibration" else None,
        )

    def pass_of(model, x, device):
        x = x.to(device).clone().requires_grad_()
        y = model(x)
        y.backward(torch.ones_like(y))
        return [t.detach().cpu() for t in (y, x.grad, model[0].weight.grad)]

    model, expected = build(before), build("cpu")
    equal(pass_of(model, batches[0], before), pass_of(expected, batches[0], "cpu"))
    if by == "to":
        model.to(after)
    else:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        gradient = model[0].weight.grad.to(after)
        model = build(after)
        model.load_state_dict(torch.load(file, weights_only=True))
        model[0].weight.grad = gradient
    for training in (True, False):
        for x in batches[1:]:
            equal(
                pass_of(model.train(training), x, after),
                pass_of(expected.train(training), x, "cpu"),
            )


def test_copies_and_files_of_models():
    model = quantize_(Layers(), RULES)
    want = gradients(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (
        copy.deepcopy(model),
        torch.load(file, weights_only=False),
        pickle.loads(pickle.dumps(model)),
    ):
        other.norm.reset_running_stats()
        equal(gradients(other), want)
        assert isinstance(other.conv, nn.Conv2d) and str(summary(other, show=False)) == str(
            summary(model, show=False)
        )
        assert type(dequantize_(other).conv) is nn.Conv2d


def test_a_second_call_replaces_the_rules():
    model, other = quantize_(Layers(), RULES), quantize_(Layers(), {nn.Conv2d: dict(weight="q52")})
    quantize_(model, {nn.Conv2d: dict(weight="q52")})
    equal(gradients(model), gradients(other))
    with pytest.raises(ValueError, match="none"):
        quantize_(model, {"no such": dict(weight="q43")})
    equal(gradients(model), gradients(other))  # a call that raises changes nothing


@pytest.mark.parametrize(
    "loader",
    [[], [torch.full((2, 6), torch.nan)], [torch.ones(2, 5)]],
    ids=["nothing", "NaN", "another shape"],
)
def test_a_second_call_that_fails_leaves_the_rules_of_the_first(loader):
    model, x = (
        nn.Sequential(nn.Linear(6, 4), nn.TransformerEncoderLayer(4, 2, 8)),
        torch.randn(3, 6),
    )
    rules = {
        "0": dict(weight="q43", activation=dict(format="int8", by="mse")),
        r"1\.linear.": dict(weight="q43"),
    }
    quantize_(model, rules, calibrate=[x])
    model.eval()
    want, rows = model(x), summary(model, show=False).rows
    with pytest.raises(ValueError, match="expected"):
        quantize_(model, {"0": dict(weight="posit8es1", activation="int4")}, calibrate=loader)
    assert summary(model, show=False).rows == rows and torch.equal(model(x), want)


@pytest.mark.parametrize(
    "loader",
    [5, "loader", torch.ones(3), {"x": torch.ones(3)}, nn.Linear(2, 2), len],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_loader_is_said_where_none_is_needed(loader):
    layer = nn.Linear(6, 4)
    for rule in ("q43", dict(weight="q43"), dict(weight="int8", activation="int8")):
        with pytest.raises(
            TypeError, match="expected calibrate= as an iterable of batches, but got"
        ):
            quantize_(layer, {nn.Linear: rule}, calibrate=loader)
        with pytest.raises(TypeError, match="expected forward= as a function"):
            quantize_(layer, {nn.Linear: rule}, calibrate=[torch.ones(3, 6)], forward=5)
    assert type(layer) is nn.Linear


def test_a_layer_that_raises_keeps_its_parameters():
    layer = quantize_(nn.LSTM(3, 4), {nn.LSTM: dict(weight="q43")})
    own = list(layer.parameters())
    with pytest.raises(RuntimeError):
        layer(torch.randn(5, 2, 7))
    assert (
        list(map(id, layer.parameters())) == list(map(id, own))
        and layer.weight_ih_l0 is own[0]
        and layer._flat_weights[0] is own[0]
    )


@pytest.mark.parametrize(
    "rule", [dict(weight="q43"), torch.q43, dict(weight="q43", accumulate="exact")], ids=str
)
def test_calls_by_name_and_wrong_ones(rule):
    linear, x = quantize_(nn.Linear(3, 4), {nn.Linear: rule}), torch.randn(2, 3)
    assert torch.equal(linear(input=x), linear(x))
    transposed, z = (
        quantize_(nn.ConvTranspose2d(2, 3, 3, stride=2), {nn.ConvTranspose2d: rule}),
        torch.randn(1, 2, 4, 4),
    )
    assert (
        transposed(z, output_size=[10, 10]).shape[2:]
        == (10, 10)
        == transposed(z, [10, 10]).shape[2:]
    )
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
    assert (
        torch.equal(model(x, src_key_padding_mask=mask), plain)
        and model.use_nested_tensor
        and not model.layers[0]._forward_pre_hooks
    )


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
    F.cross_entropy(
        checkpoint(model.head, F.relu(model.norm(model.conv(x))).flatten(1), use_reentrant=False), t
    ).backward()
    equal([p.grad for p in model.parameters()], want[1:])


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_what_is_computed_again_has_the_scales_of_the_first_pass(nested, reentrant):
    from torch.utils.checkpoint import checkpoint

    later = dict(format="int4", when="delayed", history=2)
    rules = {
        nn.Linear: dict(
            weight="q43_stochastic",
            activation=later,
            output=later,
            error={**later, "format": "q52"},
            accumulate="exact",
        )
    }
    found = []
    for checkpoints in (True, False):
        torch.manual_seed(0)
        shared = nn.Linear(4, 4)
        model = quantize_(nn.Sequential(shared, nn.Tanh(), nn.Linear(4, 4), shared), rules)

        def block(x, model=model, checkpoints=checkpoints):
            inner = (
                checkpoint(model[:3], x, use_reentrant=reentrant)
                if nested and checkpoints
                else model[:3](x)
            )
            return model[3](inner)

        for step in range(4):
            losses = []
            for part in range(2):  # accumulated: the second one's scales come after the first one's
                torch.manual_seed(10 * step + part)
                x = ((part + 1) * 2.0**step * torch.randn(5, 4)).requires_grad_()
                y = checkpoint(block, x, use_reentrant=reentrant) if checkpoints else block(x)
                losses.append(y.square().sum())
            sum(losses).backward()
        found.append(
            [
                *(p.grad for p in model.parameters()),
                *(
                    r.scaler.history[0][1]
                    for r in model[0].__dict__["_quantized"].rounders.values()
                ),
            ]
        )
    # Gradients of a checkpoint add up in another order.
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


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
    model, x = (
        quantize_(
            nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
            {nn.Linear: RULES[nn.Linear]},
        ),
        torch.randn(4, 3),
    )
    want = model(x)
    want.sum().backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    got = torch.compile(model, backend="aot_eager")(x)
    got.sum().backward()
    assert torch.equal(got, want) and torch.equal(model[0].weight.grad, gradient)
    by_func = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())(
        {n: p.detach() for n, p in model.named_parameters()}
    )
    assert torch.equal(by_func["0.weight"], gradient)
    assert torch.allclose(torch.func.vmap(model)(x), want)


def test_second_derivatives_through_policies_are_an_error():
    """A gradient penalty: what is not recorded would be missing from it without a word."""
    model, x = (
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)),
        torch.randn(4, 8, requires_grad=True),
    )
    quantize_(model, {"2": dict(weight="q43", accumulate="exact")})
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    with pytest.raises(
        RuntimeError,
        match=r"expected first derivatives through a quantised layer under a "
        r"policy.*accumulate=None",
    ):
        gradient.square().sum().backward()
    model(x).sum().backward()
    assert model[2].weight.grad is not None


@pytest.mark.parametrize(
    "rule",
    [
        dict(weight="q43", activation="q43", accumulate="format"),
        dict(weight="q43", activation="q43", accumulate="float64"),
        dict(weight="int8", activation=dict(format="int8", when="call"), arithmetic="integer"),
    ],
    ids=["format", "float64", "integer"],
)
def test_products_of_their_own_within_transformations(rule):
    torch.manual_seed(0)
    model, x = quantize_(nn.Sequential(nn.Linear(8, 4)), {nn.Linear: rule}), torch.randn(3, 8)
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for row, of_row in zip(x, per_sample["0.weight"], strict=True):
        assert torch.equal(
            of_row, torch.autograd.grad(loss(parameters, row), parameters["0.weight"])[0]
        )
    if "accumulate" in rule:
        assert torch.equal(torch.func.vmap(model)(x), model(x))
        y = model(x.requires_grad_()).sum(0)
        batched = torch.autograd.grad(y, x, torch.eye(4), is_grads_batched=True)[0]
        assert torch.equal(batched, torch.func.jacrev(lambda x: model(x).sum(0))(x))
