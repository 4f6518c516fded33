"""Scales of quantize_'s rules: from data, from the tensor itself, from those before; how they are
saved and shared."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_dtypes import Cast, chop, quantize_, target
from torch_dtypes.quantization.scalers import scale_of


def batches(n=3):
    torch.manual_seed(1)
    return [torch.randn(8, 6) * (i + 1) for i in range(n)]


def layer(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(6, 4)


def absmax(x, largest):
    """In NumPy: the quotient in float64, rounded to float32 once."""
    return torch.tensor(np.float32(np.abs(x.detach().numpy()).max().astype(np.float64) / largest))


# ---- where scales come from ----


def test_absmax_of_calibration_and_of_weights():
    model, data = layer(), batches()
    want_x, want_w = absmax(torch.cat(data), 127), absmax(model.weight, 127)
    master, bias = model.weight.detach().clone(), model.bias.detach().clone()
    model.train()
    quantize_(
        model,
        {nn.Linear: dict(weight="int8", activation="int8")},
        calibrate=[(x, None) for x in data],
    )
    assert model.training
    x = data[2]
    want = F.linear(
        target("int8").quantize(x, scale=want_x),
        target("int8").quantize(master, scale=want_w),
        bias,
    )
    assert torch.equal(model(x), want)
    with torch.no_grad():
        model.weight.mul_(3)  # its scale follows
    want = F.linear(
        target("int8").quantize(x, scale=want_x),
        target("int8").quantize(3 * master, scale=absmax(3 * master, 127)),
        bias,
    )
    assert torch.equal(model(x), want)


def test_calibration_sees_the_model_unrounded():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    data = batches(1)
    inner = model[:2](data[0])
    quantize_(
        model, {nn.Linear: dict(weight="int2", activation="int8", output="int8")}, calibrate=data
    )
    state = model.state_dict()._metadata
    assert torch.equal(state["2"]["scales"]["activation"]["scale"], absmax(inner, 127))
    assert torch.equal(state["0"]["scales"]["activation"]["scale"], absmax(data[0], 127))


def test_scales_fit_what_they_are_of():
    x = torch.tensor([-3.0, 0.1, 5.0])
    affine = [("int8_affine", 8 / 255, -32), ("uint8", 8 / 255, 96), ("uint4", 8 / 15, 6)]
    for name, want, point in [*affine, ("int8", 5 / 127, None), ("q43", 5 / 240, None)]:
        scale, zero_point = scale_of(target(name), *torch.aminmax(x), False)
        assert scale.item() == pytest.approx(want) and (
            zero_point is None if point is None else zero_point.item() == point
        )
        power, _ = scale_of(target(name), *torch.aminmax(x), True)
        assert power == 2.0 ** np.ceil(np.log2(want)) and scale <= power < 2 * scale
    # 0 is one of the numbers
    assert scale_of(target("uint8"), torch.tensor(2.0), torch.tensor(4.0), False)[1].item() == 0
    assert scale_of(target("int8"), torch.zeros(()), torch.zeros(()), False)[0].item() == 1
    # A power of two stays.
    assert (
        scale_of(target("int8"), torch.tensor(0.0), torch.tensor(127 * 0.25), True)[0].item()
        == 0.25
    )


@pytest.mark.parametrize("kind", ["linear", "conv", "transposed"])
def test_channels(kind):
    torch.manual_seed(0)
    made, axis = {
        "linear": (nn.Linear(6, 4), 0),
        "conv": (nn.Conv2d(6, 4, 3), 0),
        "transposed": (nn.ConvTranspose1d(6, 4, 3), 1),
    }[kind]
    x = torch.randn({"linear": (5, 6), "conv": (2, 6, 5, 4), "transposed": (2, 6, 7)}[kind])
    hand = copy.deepcopy(made)
    activation = dict(format="int8", per="channel", when="call")
    quantize_(
        made,
        {
            type(made): dict(
                weight=dict(format="q43", scale="free", per="channel"), activation=activation
            )
        },
    )
    channels = [
        np.float32(np.abs(w.numpy()).max().astype(np.float64) / 240)
        for w in hand.weight.detach().unbind(axis)
    ]
    rows = [
        chop(w / 1.0 * (1 / torch.tensor(s)), "q43") * s
        for w, s in zip(hand.weight.detach().unbind(axis), channels, strict=True)
    ]
    hand.weight = nn.Parameter(torch.stack(rows, axis))
    features = -1 if kind == "linear" else 1
    x_hand = torch.stack(
        [target("int8").quantize(c, scale=absmax(c, 127)) for c in x.unbind(features)], features
    )
    assert torch.equal(made(x), hand(x_hand))


def test_least_squared_error_and_percentiles():
    torch.manual_seed(0)
    x = torch.cat([torch.randn(5000), torch.tensor([40.0])])

    def error(**options):
        made = quantize_(
            nn.Identity(),
            {nn.Identity: dict(activation=dict(format="int4", **options))},
            calibrate=[x],
        )
        return (made(x[:5000]) - x[:5000]).square().mean().item(), (
            made(x) - x
        ).square().mean().item()

    plain, mse, percentile = error(), error(by="mse"), error(by="percentile(99.9)")
    assert mse[1] < plain[1] and percentile[0] < 0.2 * plain[0]
    made = quantize_(
        nn.Identity(),
        {nn.Identity: dict(activation=dict(format="int4", by="percentile(90)"))},
        calibrate=[x],
    )
    kept = made.state_dict()._metadata[""]["scales"]["activation"]["scale"]
    assert kept.item() == pytest.approx(x.abs().sort()[0][int(np.ceil(0.9 * 5001)) - 1].item() / 7)
    shares = [k / 64 for k in range(1, 65)]
    best = min(
        ((target("int4").quantize(x, scale=40 * s / 7) - x).square().mean().item()) for s in shares
    )
    assert mse[1] == pytest.approx(best, rel=1e-5)
    for by in ("mse", "percentile(99)"):
        options = dict(per="channel", by=by)
        made = quantize_(
            layer(),
            {
                nn.Linear: dict(
                    weight=dict(format="uint8", **options),
                    activation=dict(format="uint8", **options),
                )
            },
            batches(),
        )
        assert torch.allclose(made(batches()[1]), layer()(batches()[1]), atol=0.2)


def test_delayed_scales_are_of_the_tensors_before():
    cast = Cast(
        forward=dict(format="int8", when="delayed", history=2),
        backward=dict(format="q52", scale="power_of_two", when="delayed", history=1),
    )
    sizes = (1.0, 4.0, 2.0, 8.0)
    used = []
    for size in sizes:
        x = torch.tensor([size, -size / 3], requires_grad=True)
        y = cast(x)
        used.append(y[0].item())
        y.backward(torch.tensor([size * 2.0**-40, 0.0]))
        assert x.grad[0] > 0  # q52 ends at 2^-16, its scale does not
    # of itself, of 1, of 1 and 4, of 4 and 2
    assert used == pytest.approx([1, 1, 2, 4], rel=0.01)
    cast.eval()
    before = cast.state_dict()
    assert (
        cast(torch.tensor([100.0])).item()
        == pytest.approx(8, rel=0.01)
        == cast(torch.tensor([100.0])).item()
    )
    other = Cast(forward=dict(format="int8", when="delayed", history=2)).eval()
    other.load_state_dict(before)
    assert other(torch.tensor([100.0])).item() == cast(torch.tensor([100.0])).item()


class Add(nn.Module):
    def forward(self, a, b):
        return a + b


def test_a_delayed_scale_is_of_the_calls_before_whatever_inputs_and_outputs_a_layer_has():
    made = quantize_(
        Add(),
        {Add: dict(activation=dict(format="q43", scale="power_of_two", when="delayed", history=1))},
    )
    # Both of 100's scale.
    assert [made(torch.tensor([100.0]), torch.tensor([1.0])).item() for _ in range(3)] == [97] * 3
    assert (
        made(torch.tensor([1.0]), torch.tensor([1.0])).item() == 2
        and made(torch.tensor([1.0]), torch.tensor([100.0])).item() < 8
    )
    rule = dict(format="int8", when="delayed", history=3)
    layers = [
        (
            nn.LSTM(2, 3),
            lambda m, size: m(
                torch.full((4, 1, 2), size),
                (torch.full((1, 1, 3), 9 * size), torch.full((1, 1, 3), size)),
            ),
        ),
        (
            nn.MultiheadAttention(2, 1),
            lambda m, size: m(*(torch.full((3, 1, 2), size * factor) for factor in (1, 9, 2))),
        ),
    ]
    for made, call in layers:
        quantize_(made, {type(made): dict(activation=rule, output=rule)})
        for size in (1.0, 2.0, 4.0, 8.0):
            call(made, size)
        kept = made.state_dict()._metadata[""]["scales"]
        assert (
            kept["activation"]["history"][:, 1].tolist() == [72, 36, 18]
            and len(kept["output"]["history"]) == 3
        )


@pytest.mark.parametrize("by", ["absmax", "mse", "percentile(80)"])
@pytest.mark.parametrize("per", ["tensor", "channel"])
def test_inputs_of_a_call_share_its_scale_as_they_do_in_calibration(by, per):
    torch.manual_seed(0)
    # Of several dimensions, and one without numbers.
    inputs = torch.randn(4, 7, 3), 5 * torch.randn(7, 3), torch.randn(0, 7, 3)
    rule = dict(format="int4", by=by, per=per)
    calibrated = quantize_(
        Several(),
        {Several: dict(activation=rule)},
        [inputs[:2]],
        forward=lambda model, batch: model(*batch),
    )
    made = quantize_(Several(), {Several: dict(activation=dict(rule, when="call"))})
    for a, b in zip(made(*inputs), calibrated(*inputs), strict=True):
        assert torch.equal(a, b)
    alone = target("int4").quantize(inputs[0], scale=absmax(inputs[0], 7))
    assert not torch.equal(made(*inputs)[0], alone)


class Several(nn.Module):
    def forward(self, *tensors):
        return tensors


def test_inputs_of_several_sizes_have_no_scale_by_channel_in_a_call():
    made = quantize_(
        nn.Bilinear(3, 5, 2),
        {nn.Bilinear: dict(activation=dict(format="int8", per="channel", when="call"))},
    )
    with pytest.raises(
        ValueError,
        match=r"one size along dimension -1, .* but got 3 and 5; set per='tensor'",
    ):
        made(torch.ones(2, 3), torch.ones(2, 5))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    "options",
    [dict(scale="free"), dict(scale="power_of_two"), dict(scale="power_of_two", by="mse")],
    ids=str,
)
@pytest.mark.parametrize("name", ["q43", "int8", "posit8es1", "uint8"])
def test_the_scale_of_an_infinity_or_of_nan_is_nan(name, options, bad):
    made = Cast(dict(format=name, **options))
    assert made(torch.tensor([bad, 1e-6])).isnan().all()
    rows = Cast(dict(format=name, per=0, **options))(torch.tensor([[bad, 1e-6], [0.0, 1e-6]]))
    assert rows[0].isnan().all() and rows[1].isfinite().all() and rows[1, 1] > 0


def test_powers_of_two_as_scales_are_numbers_of_float32():
    made = Cast(dict(format="fixed0_7", scale="power_of_two"))(torch.tensor([3.4e38, -1.0]))
    assert made.tolist() == [127 / 128 * 2.0**127, 0]


def test_a_cast_scales_each_tensor_by_itself():
    x = torch.randn(9)
    want = target("int8").quantize(x, scale=absmax(x, 127))
    assert torch.equal(Cast("int8")(x), want) and torch.equal(
        Cast(dict(format="int8", scale="free"))(x), want
    )
    with pytest.raises(
        ValueError, match=r"a Cast's when to be 'call' .* or 'delayed' .*, but got 'calibration'"
    ):
        Cast(dict(format="int8", when="calibration"))


def test_scales_are_saved_and_loaded():
    rules = {nn.Linear: dict(weight="int8", activation=dict(format="uint8", by="mse"))}
    made, plain = quantize_(layer(), rules, batches()), layer()
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    other = quantize_(layer(1), rules, batches(1))
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    x = batches()[1]
    assert torch.equal(other(x), made(x)) and torch.equal(copy.deepcopy(made)(x), made(x))
    plain.load_state_dict(made.state_dict(), strict=True)
    made.load_state_dict(plain.state_dict(), strict=True)  # which says nothing of scales
    assert torch.equal(other(x), made(x))


def test_scales_of_another_format_or_dimension_are_refused():
    def build(**options):
        return quantize_(
            nn.Sequential(layer()),
            {nn.Linear: dict(activation=dict(format="int8") | options)},
            batches(),
        )

    kept = build().state_dict()
    words = (
        r"'0': expected scales of activation for int4 \(per tensor\), but got a state dict's for "
        r"int8 \(per tensor\)"
    )
    with pytest.raises(ValueError, match=words):
        build(format="int4").load_state_dict(kept)
    with pytest.raises(ValueError, match=words):
        quantize_(nn.Sequential(layer()), {nn.Linear: dict(activation="int4")}, kept)
    with pytest.raises(
        ValueError, match=r"for int8 \(per -1\), but got a state dict's for int8 \(per tensor\)"
    ):
        build(per="channel").load_state_dict(kept)
    x = batches()[0]
    # The values decide, not how they are rounded.
    other = build(format="int8_stochastic", by="mse", rounding="nearest_even")
    other.load_state_dict(kept)
    assert torch.equal(other(x), build()(x))
    build(format="int4", when="call").load_state_dict(kept)  # which has no use for it
    before = copy.deepcopy(kept)
    for name in ("format", "per"):
        del before._metadata["0"]["scales"]["activation"][name]  # as 0.1 wrote it
    other = build(format="int4")
    other.load_state_dict(before)
    want = target("int4").quantize(x, scale=absmax(torch.cat(batches()), 127))
    assert torch.equal(other(x), F.linear(want, other[0].weight, other[0].bias))
    cast = Cast(dict(format="int8", when="delayed"))
    with pytest.raises(ValueError, match=r"'the model': expected scales of error for q43"):
        Cast("q43", dict(format="q43", when="delayed")).load_state_dict(
            Cast("q43", dict(format="q52", when="delayed")).state_dict()
        )
    cast.load_state_dict(cast.state_dict())
    calibrated = build(format=torch.float16).state_dict()
    build(format="e5m10").load_state_dict(calibrated)  # the same numbers


def test_a_history_is_loaded_as_it_was_and_as_long_as_the_rule_says():
    def build(history):
        return Cast(dict(format="int8", when="delayed", history=history))

    fresh, long = build(16).state_dict(), build(16)
    for size in (8.0, 4.0, 2.0, 1.0):
        long(torch.tensor([size]))
    short = build(2)
    short.load_state_dict(long.state_dict())
    assert short.eval()(torch.tensor([100.0])).item() == 2  # of 2 and 1, at once
    long.load_state_dict(fresh)
    assert long(torch.tensor([100.0])).item() == 100  # of itself


@pytest.mark.parametrize("by", ["absmax", "mse"])
def test_scales_come_from_a_state_dict_as_from_the_loader(by):
    rules = {
        nn.Linear: dict(
            weight="int8",
            activation=dict(format="uint8_affine", by=by),
            output=dict(format="int8", per="channel"),
        )
    }
    made = quantize_(layer(), rules, batches())
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    other = quantize_(layer(), rules, calibrate=kept)
    x = batches()[0]
    assert torch.equal(other(x), made(x))
    with pytest.raises(ValueError, match="a state dict with the scales of '0'"):
        quantize_(nn.Sequential(layer()), rules, calibrate=kept)


@pytest.mark.parametrize("by", ["absmax", "percentile(99)"])
def test_inputs_of_several_sizes_share_no_scales_by_channel(by):
    rule = dict(activation=dict(format="int8", per="channel", by=by))
    with pytest.raises(
        ValueError,
        match=r"one size along dimension -1, .* but got 3 and 5; set per='tensor'",
    ):
        quantize_(
            nn.Bilinear(3, 5, 2),
            {nn.Bilinear: rule},
            [1],
            forward=lambda model, batch: model(torch.ones(2, 3), torch.ones(2, 5)),
        )
    quantize_(
        nn.Bilinear(3, 5, 2),
        {nn.Bilinear: rule | dict(activation="int8")},
        [1],
        forward=lambda m, b: m(torch.ones(2, 3), torch.ones(2, 5)),
    )


# ---- what is wrong with scales and loaders ----

BAD = {
    "no scale": (
        dict(weight=dict(format="int8", scale=None)),
        ValueError,
        "weight of Linear: expected a scale for int8",
    ),
    "no loader": (dict(activation="int8"), ValueError, "expected calibrate=, a loader"),
    "an unknown scale": (
        dict(weight=dict(format="q43", scale="big")),
        ValueError,
        "expected scale to be 'free'",
    ),
    "a negative scale": (
        dict(weight=dict(format="q43", scale=-1.0)),
        ValueError,
        "positive number",
    ),
    "a number and more": (
        dict(weight=dict(format="q43", scale=2.0, by="mse")),
        ValueError,
        "with by, but got 2.0",
    ),
    "words without a scale": (
        dict(weight=dict(format="q43", scale=None, per="channel")),
        ValueError,
        "per with a scale only",
    ),
    "per": (dict(weight=dict(format="int8", per="layer")), ValueError, "expected per to be"),
    "by": (dict(weight=dict(format="int8", by="percentile(3)")), ValueError, "expected by to be"),
    "when": (
        dict(weight=dict(format="int8", when="calibration")),
        ValueError,
        "of activation or output",
    ),
    "history of each tensor": (
        dict(error=dict(format="int8", when="call", history=4)),
        ValueError,
        "history with when='delayed' only.*when='call'",
    ),
    "margin": (
        dict(weight=dict(format="int8", margin=65)),
        ValueError,
        "expected margin as an integer from -64 to 64, but got 65",
    ),
    "a scale that float32 lacks": (
        dict(activation=dict(format="q43", scale=1e-50)),
        ValueError,
        "scale from 1.18e-38 to 3.4e.38 for activation of 'the",
    ),
    "a scale whose reciprocal it lacks": (
        dict(weight=dict(format="q43", scale=1e-40)),
        ValueError,
        "scale from .* for weight of 'the model' in float32",
    ),
    "a scale that no number has": (
        dict(error=dict(format="q43", scale=10**400)),
        ValueError,
        "positive number as scale, from 2.23e-308 to",
    ),
    "channels of blocks": (
        dict(weight=dict(format="nvfp4", per="channel")),
        ValueError,
        "one scale per tensor for .*, whose blocks have their own",
    ),
    "a scale of scaled blocks": (
        dict(weight=dict(format="hif4", scale=2.0)),
        ValueError,
        "expected no scale for hif4, whose blocks have their own",
    ),
    "history": (
        dict(error=dict(format="int8", when="delayed", history=0)),
        ValueError,
        "expected history as an integer from 1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(name):
    rule, error, words = BAD[name]
    with pytest.raises(error, match=words):
        quantize_(layer(), {nn.Linear: rule})


def test_a_number_is_the_scale_of_integers_with_an_axis_too():
    x = torch.randn(3, 4)
    assert torch.equal(
        Cast(dict(format="int8_axis0", scale=0.25))(x), target("int8").quantize(x, scale=0.25)
    )


def test_float64_layers_take_float64s_scales():
    made = quantize_(
        nn.Linear(2, 1, bias=False).double(),
        {nn.Linear: dict(weight=dict(format="posit8es1", scale=1e-50))},
    )
    nn.init.constant_(made.weight, 3e-50)
    assert made(torch.ones(1, 2).double()).item() == pytest.approx(6e-50)


class Loader:
    def __iter__(self):
        yield "text"


LOADERS = {
    "a tensor": (torch.zeros(3, 6), TypeError, "iterable of batches, but got Tensor"),
    "nothing": ([], ValueError, "at least one batch"),
    "no iterable": (3, TypeError, "iterable of batches, but got int"),
    "text": (Loader(), TypeError, "batches of calibrate= as tensors.*a str"),
    "arrays": ([np.zeros((3, 6))], TypeError, "batches of calibrate= as tensors.*a ndarray"),
    "another shape": (
        [torch.zeros(3, 7)],
        ValueError,
        r"batch 0, a tensor of torch.float32 and shape \(3, 7\), gives: mat1",
    ),
    "infinities": (
        [torch.zeros(3, 6), torch.full((3, 6), float("inf"))],
        ValueError,
        r"scale of '' \(activation\), but got infinities or NaN from batch 1 of calibrate=, a "
        r"tensor of torch.float32 and shape \(3, 6\)$",
    ),
    "NaN": (
        [torch.full((3, 6), float("nan"))],
        ValueError,
        r"expected finite numbers for the scale of '' \(activation\), .* from batch 0 of",
    ),
    "no rows": ([torch.zeros(0, 6)], ValueError, "but none reached ''"),
    "a plain dict": (
        {"x": torch.zeros(3, 6)},
        TypeError,
        "iterable of batches, but got dict; give the state dict itself",
    ),
    "a state dict without scales": (
        layer().state_dict(),
        ValueError,
        "a state dict with the scales of '', but got one without them",
    ),
    "labels": (
        [(torch.zeros(3, dtype=torch.long), torch.zeros(3, 6))],
        ValueError,
        r"a tuple of \(a tensor of torch.int64",
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_that_yield_the_wrong_thing(name):
    loader, error, words = LOADERS[name]
    model = layer()
    with pytest.raises(error, match=words):
        quantize_(model, {nn.Linear: dict(weight="int8", activation="int8")}, calibrate=loader)
    assert type(model) is nn.Linear and model.training


def test_loaders_of_other_things():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = layer(), layer()

        def forward(self, x, y=None):
            return self.a(x) if y is None else self.a(x) + self.b(y)

    x, rules = batches(1)[0], {nn.Linear: dict(activation="int8")}
    by_words = quantize_(Two(), rules, [dict(x=x, y=x)])
    by_function = quantize_(Two(), rules, [(x, x)], forward=lambda model, batch: model(*batch))
    assert torch.equal(by_words(x, x), by_function(x, x))
    with pytest.raises(ValueError, match=r"none reached 'b' \(activation\)"):
        quantize_(Two(), rules, [x])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_delayed_scale_forgets_what_overflowed(bad):
    model = layer()
    quantize_(model, {nn.Linear: dict(activation=dict(format="int8", when="delayed", history=4))})
    model.train()
    x = batches(1)[0]
    model(x)
    wrong = x.clone()
    wrong[0, 0] = bad
    model(wrong)
    want = F.linear(target("int8").quantize(x, scale=absmax(x, 127)), model.weight, model.bias)
    assert torch.equal(model(x), want)
