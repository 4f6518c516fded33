"""Sensitivity of layers to formats: roundings by hand, mixtures against all assignments, an
unchanged model, results that are not finite, errors."""

import copy
import csv
import itertools
import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import torch_dtypes
from torch_dtypes import chop
from torch_dtypes.workbench.sensitivity import choosing
from torch_dtypes.workbench.sensitivity.choosing import assign
from torch_dtypes.workbench.sensitivity.report import sentences

FORMATS = ["q43", "mxfp4", "int8"]


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 40), nn.Tanh(), nn.Linear(40, 4)
    )


def batches(count=2, n=20):
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 1, 8, 8, generator=g), torch.randint(0, 4, (n,), generator=g))
        for _ in range(count)
    ]


# ---- against roundings by hand ----


def int8(x, largest):
    """Round to 8-bit integers times the scale that brings ``largest`` to 127."""
    scale = (largest.double() / 127).float()
    return (x * (1 / scale)).round().clamp(-128, 127) * scale


def round_layer(module, x, name, recipe, seen):
    """Round weight and input of a layer to a format. ``seen`` is the largest magnitude of its input
    in float32."""
    w = module.weight.detach()
    if name == "int8":
        w = int8(w, w.abs().flatten(1).amax(1).view(-1, *[1] * (w.dim() - 1)))
        return w, int8(x, seen) if recipe == "ptq" else x
    return along_channels(w, name), along_channels(x, name) if recipe == "ptq" else x


def along_channels(x, name):
    """Round; blocks of a convolution's operands run along its input channels."""
    if x.dim() < 4:
        return chop(x, name)
    return chop(x.movedim(1, -1).contiguous(), name).movedim(-1, 1).contiguous()


def outputs(model, formats, recipe, data, calibrate):
    """Compute the loss over all inputs, batch by batch, with layers in formats. Scales of
    ``calibrate`` come from the float32 network."""
    largest = dict.fromkeys(("0", "3", "5"), torch.tensor(0.0))
    for x in calibrate:
        for name, module in model.named_children():
            if name in largest:
                largest[name] = torch.maximum(largest[name], x.abs().max())
            x = module(x)
    found = []
    for x, _ in data:
        for name, module in model.named_children():
            if name in formats:
                w, x = round_layer(module, x, formats[name], recipe, largest[name])
                x = (
                    F.conv2d(x, w, module.bias)
                    if isinstance(module, nn.Conv2d)
                    else F.linear(x, w, module.bias)
                )
            else:
                x = module(x)
        found.append(x)
    return found


@torch.no_grad()
def by_hand(model, formats, recipe, metric, data, calibrate):
    made = outputs(model, formats, recipe, data, calibrate)
    if metric == "loss":
        return sum(
            F.cross_entropy(y, t).item() * len(t) for y, (_, t) in zip(made, data, strict=True)
        ) / sum(len(t) for _, t in data)
    y, targets = torch.cat(made), torch.cat([t for _, t in data])
    if metric == "accuracy":
        return 100 - 100 * (y.argmax(1) == targets).double().mean().item()
    exact = torch.cat(outputs(model, {}, recipe, data, calibrate)).double()
    return (y.double() - exact).norm().item() / exact.norm().item()


@pytest.mark.parametrize("recipe", ["ptq", "weights"])
@pytest.mark.parametrize("metric", ["loss", "accuracy", "distance"])
def test_a_layer_is_rounded_as_by_hand(recipe, metric):
    model, data = network(), batches()
    calibrate = [x for x, _ in data]
    found = torch_dtypes.sensitivity(model, data, FORMATS, recipe=recipe, metric=metric)

    def hand(formats):
        return by_hand(model, formats, recipe, metric, data, calibrate)

    assert found.float32 == hand({}) and found.samples == 40
    assert [(x.name, x.kind, x.elements) for x in found.layers] == [
        ("0", "Conv2d", 27),
        ("3", "Linear", 4320),
        ("5", "Linear", 160),
    ]
    for layer, name in itertools.product(("0", "3", "5"), FORMATS):
        assert found.rises[layer][name] == hand({layer: name}) - found.float32, (layer, name)
    for name in FORMATS:
        assert found.uniform[name].measured == hand(dict.fromkeys(("0", "3", "5"), name))
    mixture = found.choose(bits=6)
    assert mixture.measured == hand(mixture.formats)
    assert mixture.predicted == pytest.approx(
        found.float32 + sum(found.rises[layer][name] for layer, name in mixture.formats.items()),
        abs=1e-12,
    )
    assert found.rows()[1] == {
        "layer": "0",
        "kind": "Conv2d",
        "elements": 27,
        "format": "mxfp4",
        "bits": 4.25,
        "rise": found.rises["0"]["mxfp4"],
    }


def test_scales_are_of_the_calibration_that_is_given():
    model, data = network(), batches()
    calibrate = [3 * x for x, _ in batches(3)]
    found = torch_dtypes.sensitivity(model, data, "int8", calibrate=calibrate)
    assert found.uniform["int8"].measured == by_hand(
        model, dict.fromkeys(("0", "3", "5"), "int8"), "ptq", "loss", data, calibrate
    )
    assert (
        found.uniform["int8"].measured
        != torch_dtypes.sensitivity(model, data, "int8").uniform["int8"].measured
    )


def compute_loss(model, data):
    with torch.no_grad():
        return sum(F.cross_entropy(model(x), t).item() * len(t) for x, t in data) / sum(
            len(t) for _, t in data
        )


def test_quantize_takes_the_rules_and_gives_what_was_measured():
    model, data = network(), batches()
    found = torch_dtypes.sensitivity(model, data, FORMATS)
    mixture = found.choose(bits=7.9)
    assert {"int8", "mxfp4"} <= set(mixture.formats.values()) or len(
        set(mixture.formats.values())
    ) > 1
    for calibrate in (mixture.scales, data):
        made = torch_dtypes.quantize_(copy.deepcopy(model), mixture.rules, calibrate)
        assert compute_loss(made, data) == mixture.measured
    # Later changes of the model change no later measurement.
    torch_dtypes.quantize_(model, mixture.rules, mixture.scales)
    with torch.no_grad():
        model[0].weight.zero_()
    assert found.choose(bits=7.9) == mixture and len(found.mixtures) == 1


def test_bits_are_the_formats_own_and_packed_ones_those_of_the_shapes():
    model = network()
    found = torch_dtypes.sensitivity(
        model, batches(1), ["mxfp4", "nvfp4", "hif4", "bfp8", "int8", "fp16"]
    )
    weights = [model[i].weight for i in (0, 3, 5)]
    for name, made in found.uniform.items():
        assert made.bits == torch_dtypes.target(name).bits_per_value
        if name in ("int8", "fp16"):
            assert made.stored == made.bits
            continue
        packed = [torch_dtypes.quantize(w, name) for w in weights]
        # Whole bytes.
        assert made.stored == pytest.approx(
            8 * sum(w.nbytes for w in packed) / sum(w.numel() for w in weights), abs=8 / 4507
        )
    assert any(
        "no multiple of a block's size" in text and "mxfp4" in text for text in sentences(found)
    )


# ---- the assignment ----


def best(values, costs, limit):
    """Return the least sum of values over all assignments within the limit, by trying all of
    them."""
    columns = [
        [
            j
            for j, (v, c) in enumerate(zip(*row, strict=True))
            if math.isfinite(v) and math.isfinite(c)
        ]
        for row in zip(values, costs, strict=True)
    ]
    sums = [
        math.fsum(values[i][j] for i, j in enumerate(chosen))
        for chosen in itertools.product(*columns)
        if math.fsum(costs[i][j] for i, j in enumerate(chosen)) <= limit
    ]
    return min(sums, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_an_assignment_is_the_best_of_all(seed):
    g = torch.Generator().manual_seed(seed)
    rows, columns = 6, 4
    values = (10 ** (6 * torch.rand(rows, columns, generator=g, dtype=torch.float64) - 5)).tolist()
    # One layer may be ten million times as sensitive as another.
    elements = (10 ** (7 * torch.rand(rows, generator=g, dtype=torch.float64))).round().tolist()
    costs = [[n * bits for bits in (4.25, 6.25, 8.0, 13.0)] for n in elements]
    values[1][2], values[4][0] = math.inf, math.inf
    values[2][0], values[3][3] = 1e12, -0.01
    for bits in (4.0, 4.5, 5.0, 6.25, 7.0, 8.0, 9.5, 13.0):
        limit = bits * sum(elements)
        chosen, expected = assign(values, costs, limit), best(values, costs, limit)
        if expected is None:
            assert chosen is None
            continue
        assert math.fsum(costs[i][j] for i, j in enumerate(chosen)) <= limit
        assert math.fsum(values[i][j] for i, j in enumerate(chosen)) == pytest.approx(
            expected, rel=1e-9, abs=1e-12
        )


def test_an_assignment_is_the_first_of_two_that_are_alike():
    assert assign([[1.0, 1.0, 1.0]], [[2.0, 1.0, 1.0]], 9.0) == [1]
    assert assign([[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]], 4.0) == [0, 0]
    assert (
        assign([[math.inf], [1.0]], [[1.0], [1.0]], 9.0) is None
        and assign([[1.0]], [[2.0]], 1.0) is None
    )


def test_a_solution_beyond_the_limit_is_cut_off(monkeypatch):
    """The solver may exceed a limit by its tolerance; such a choice is never taken."""
    optimize = choosing.solver()
    asked = []

    def careless(c, *, constraints, **options):
        one, limits = constraints
        asked.append(limits.A.shape[0])
        loose = [float(u) + (0.4 if i == 0 else 0) for i, u in enumerate(limits.ub)]
        return optimize.milp(
            c, constraints=[one, optimize.LinearConstraint(limits.A, limits.lb, loose)], **options
        )

    class Careless:
        milp, Bounds, LinearConstraint = (
            staticmethod(careless),
            optimize.Bounds,
            optimize.LinearConstraint,
        )

    monkeypatch.setattr(choosing, "solver", Careless)
    values, costs = [[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]], [[1.0, 2.0], [1.0, 2.0], [1.0, 2.2]]
    assert (
        assign(values, costs, 5.0) == [1, 1, 0]
        and assign(values, costs, 6.0) == [1, 1, 0]
        and max(asked) > 1
    )


def test_choose_is_the_best_of_all_assignments():
    model, data = network(), batches()
    found = torch_dtypes.sensitivity(
        model, data, ["mxfp4", "q43", "e5m7", "nvfp4"], metric="distance"
    )
    names = found.settings.formats
    elements = {x.name: x.elements for x in found.layers}
    total = sum(elements.values())

    def of(chosen):
        bits = (
            sum(elements[layer] * found.uniform[name].bits for layer, name in chosen.items())
            / total
        )
        return bits, math.fsum(found.rises[layer][name] for layer, name in chosen.items())

    every = [
        of(dict(zip(elements, chosen, strict=True)))
        for chosen in itertools.product(names, repeat=len(elements))
    ]
    for budget in (4.25, 4.5, 5, 8, 8.1, 12.9, 13):
        mixture = found.choose(bits=budget)
        assert mixture.bits <= budget + 1e-9 and mixture.budget == ("bits", budget)
        assert of(mixture.formats) == (
            pytest.approx(mixture.bits),
            pytest.approx(min(rise for bits, rise in every if bits <= budget + 1e-9)),
        )
    for rise in (0.02, 0.05, 0.3):
        mixture = found.choose(metric=rise)
        assert mixture.predicted - found.float32 <= rise + 1e-9 and mixture.bits == pytest.approx(
            min(b for b, r in every if r <= rise)
        )
    # A mixture's own bits as budget give the mixture
    assert found.choose(bits=mixture.bits).bits <= mixture.bits
    bits = [m.bits for m in found.trade_off()]
    assert (
        bits == sorted(bits)
        and bits[0] == 4.25
        and len(bits) > 3
        and found.trade_off() is found.trade_off()
    )


# ---- an unchanged model, and random numbers of the seed ----


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x


def test_the_model_is_as_before():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5), Counts(), nn.Dropout(), nn.Linear(5, 3)
    ).train()
    model[1].eval()
    model[0].register_forward_hook(lambda module, args, output: None)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    kinds, modes = [type(m) for m in model.modules()], [m.training for m in model.modules()]
    hooks = [dict(m._forward_hooks) for m in model.modules()]
    ids = [id(p) for p in model.parameters()]
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(30, 6), torch.randint(3, (30,))), 8, shuffle=True
    )
    state = torch.get_rng_state()
    found = torch_dtypes.sensitivity(model, data, ["q43_stochastic", "int8"])
    found.choose(bits=8)
    assert torch.equal(torch.get_rng_state(), state)
    after = model.state_dict()
    assert list(after) == list(before) and all(
        torch.equal(after[name], t) for name, t in before.items()
    )
    assert [type(m) for m in model.modules()] == kinds and [
        m.training for m in model.modules()
    ] == modes
    assert [dict(m._forward_hooks) for m in model.modules()] == hooks and [
        id(p) for p in model.parameters()
    ] == ids
    assert all(p.grad is None for p in model.parameters())


def test_a_seed_gives_the_same_numbers():
    model, data = network(), batches()
    first, again, other = (
        torch_dtypes.sensitivity(model, data, ["q43_stochastic", "e5m5"], seed=seed)
        for seed in (3, 3, 4)
    )
    assert first.rises == again.rises and first.choose(bits=9) == again.choose(bits=9)
    for layer in ("0", "3", "5"):
        assert first.rises[layer]["q43_stochastic"] != other.rises[layer]["q43_stochastic"]
        assert first.rises[layer]["e5m5"] == other.rises[layer]["e5m5"]


def test_runs_are_said_before_they_begin():
    stages = []
    found = torch_dtypes.sensitivity(
        network(),
        batches(1),
        ["q43", "q52"],
        on_run=lambda what, total: stages.append((what, total)),
    )
    assert stages == [
        ("float32", 1),
        *[("each format in all layers", 2)] * 2,
        *[("one layer at a time", 6)] * 6,
    ]
    assert found.runs == 9
    found.choose(bits=8)
    assert stages[9:] == [("mixtures", None)]


# ---- selected layers ----


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.encoder = (
            nn.Embedding(9, 8),
            nn.TransformerEncoderLayer(8, 2, 12, batch_first=True),
        )
        self.memory, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.memory(self.encoder(self.words(x)))[0][:, -1])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_layers_of_all_kinds_and_those_that_are_named():
    torch.manual_seed(0)
    model, data = Text(), [(torch.randint(9, (10, 5)), torch.randint(3, (10,)))]

    def names(keys):
        return [
            x.name
            for x in torch_dtypes.sensitivity(model, data, ["q43", "int8"], layers=keys).layers
        ]

    assert names(None) == [
        "words",
        "encoder.self_attn",
        "encoder.linear1",
        "encoder.linear2",
        "memory",
        "head",
    ]
    # An attention's output projection is a part of it.
    assert names(nn.Linear) == ["encoder.linear1", "encoder.linear2", "head"]
    assert names(["head", "encoder\\.linear.", "nn.LSTM"]) == [
        "encoder.linear1",
        "encoder.linear2",
        "memory",
        "head",
    ]
    assert names(lambda module, name: name.endswith("norm1")) == ["encoder.norm1"]


def test_pruned_weights_and_a_layer_that_is_the_model():
    pruned = prune.l1_unstructured(nn.Linear(6, 3), "weight", 0.5)
    data = [(torch.randn(8, 6), torch.randn(8, 3))]
    pruned(data[0][0])  # its weight has a graph now, and copy.deepcopy would refuse it
    found = torch_dtypes.sensitivity(pruned, data, ["q43", "int8"])
    plain = nn.Linear(6, 3)
    plain.load_state_dict({"weight": pruned.weight.detach(), "bias": pruned.bias})
    assert found.rises == torch_dtypes.sensitivity(plain, data, ["q43", "int8"]).rises and list(
        found.rises
    ) == [""]
    assert found.choose(bits=8).rules[""]["weight"] in ("q43", {"format": "int8", "per": "channel"})


# ---- results that are not finite ----


class Large(nn.Module):
    """Numbers beyond q43's largest, 240."""

    def forward(self, x):
        return 1000 * x.abs() + 1000


def build_overflowing_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), Large(), nn.Linear(8, 3), nn.LayerNorm(3))


@pytest.mark.parametrize("metric", ["loss", "accuracy", "distance"])
def test_what_is_not_finite_is_never_chosen_and_shown(metric, tmp_path):
    g = torch.Generator().manual_seed(1)
    data = [(torch.randn(20, 6, generator=g), torch.randint(0, 3, (20,), generator=g))]
    found = torch_dtypes.sensitivity(build_overflowing_model(), data, ["q43", "q52"], metric=metric)
    assert found.rises["2"]["q43"] == math.inf == found.uniform["q43"].measured and math.isfinite(
        found.rises["0"]["q43"]
    )
    assert found.choose(bits=8).formats["2"] == "q52"
    said = " ".join(sentences(found))
    assert "not finite with q43 in 2: no mixture has these" in said and "q43 in 2" in said
    if metric == "loss":
        found.write(tmp_path)
        rows = list(csv.reader((tmp_path / "layers.csv").read_text(encoding="utf-8").splitlines()))
        assert (
            rows[2][3] == "not finite"
            and "not finite" in (tmp_path / "sensitivity.html").read_text()
        )
        assert (
            json.loads((tmp_path / "sensitivity.json").read_text())["layers"][1]["rises"]["q43"]
            == "inf"
        )
    only = torch_dtypes.sensitivity(build_overflowing_model(), data, "q43", metric=metric)
    assert only.trade_off() == [] and (metric != "distance" or only.figures()["tradeoff"].axes)
    with pytest.raises(
        ValueError,
        match=f"a format with a finite metric for '2', but it has no finite {metric} in q43",
    ):
        only.choose(bits=8)


# ---- errors ----


class NoLayers(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :4]


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"formats": ["q34"]}, ValueError, "q43"),
        ({"formats": []}, ValueError, "at least one format"),
        ({"formats": 8}, TypeError, "formats="),
        ({"formats": ["bf16", torch.bfloat16]}, ValueError, "differ, but got bfloat16 twice"),
        (
            {"model": NoLayers()},
            ValueError,
            "layers that have weights to round .*but NoLayers has none",
        ),
        ({"layers": "head.*"}, ValueError, "match a module, but got 'head.*'"),
        ({"layers": [nn.ReLU]}, ValueError, "none that layers="),
        ({"layers": []}, TypeError, "layers= as types, names"),
        ({"layers": 3}, TypeError, "layers= as types, names"),
        ({"data": []}, ValueError, "inputs and targets, but got none"),
        ({"data": [torch.ones(3, 6)]}, ValueError, "inputs and targets"),
        (
            {"data": [(torch.ones(0, 1, 8, 8), torch.ones(0, dtype=torch.int64))]},
            ValueError,
            "at least one input",
        ),
        ({"model": "lenet5"}, TypeError, "torch.nn.Module of Python, but got str"),
        (
            {"model": network().to(torch.q43)},
            TypeError,
            "float32, but 0.weight is torch.q43 of this package: call model.float",
        ),
        (
            {"model": network().double()},
            TypeError,
            "float32, but 0.weight is torch.float64: call model.float",
        ),
        (
            {"model": torch_dtypes.quantize_(network(), {"3": torch.q43})},
            ValueError,
            "'3' rounds by a rule: call torch_dtypes.dequantize_",
        ),
        (
            {"model": nn.Sequential(nn.Flatten(), nn.LazyLinear(4))},
            ValueError,
            "initialised parameters",
        ),
        ({"recipe": "qat"}, ValueError, "'ptq', 'weights'"),
        ({"metric": "speed"}, ValueError, "'loss', 'accuracy', 'distance'"),
        ({"seed": -1}, ValueError, "seed from 0"),
        ({"calibrate": torch.ones(3)}, TypeError, "calibrate= as an iterable"),
        ({"calibrate": network().state_dict()}, TypeError, "calibrate= as an iterable of batches"),
        ({"calibrate": [], "formats": ["int8"]}, ValueError, "at least one batch"),
        ({"formats": ["mxfp4_nopad"]}, ValueError, "whole blocks of 32"),
        ({"criterion": lambda y, t: y.sum() / 0}, ValueError, "a finite loss"),
        (
            {"metric": "accuracy", "data": [(torch.ones(3, 1, 8, 8), torch.ones(3, 4))]},
            ValueError,
            "targets that are no labels",
        ),
    ],
)
def test_errors(change, error, words):
    arguments = {"model": network(), "data": batches(1), "formats": FORMATS} | change
    with pytest.raises(error, match=words):
        torch_dtypes.sensitivity(arguments.pop("model"), arguments.pop("data"), **arguments)


def test_errors_of_budgets(monkeypatch):
    found = torch_dtypes.sensitivity(network(), batches(1), ["mxfp4", "q43"])
    for budget, words in (
        ({"bits": 4}, "at least 4.25 bits a weight, the fewest that these formats take, but got 4"),
        ({}, "one of bits= and metric=, but got none"),
        ({"bits": 5, "metric": 0.1}, "but got bits=5 and metric=0.1"),
        ({"bits": math.nan}, "finite number for bits=, but got nan"),
        ({"bits": "5"}, "finite number for bits="),
        ({"metric": -50.0}, "the least sum of rises, but got -50"),
        ({"metric": True}, "finite number"),
    ):
        with pytest.raises(ValueError, match=words):
            found.choose(**budget)
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=r"needs scipy, which is not installed: pip install 'torch-dtypes\[train\]'",
    ):
        found.choose(bits=5)
    for _ in range(2):  # and it does not count as a line without mixtures afterwards
        with pytest.raises(ModuleNotFoundError, match="needs scipy"):
            found.trade_off()


def test_blocks_of_layers_without_a_sum_of_several_lie_along_the_last_dimension():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.depthwise = nn.Conv1d(4, 4, 1, groups=4)
            self.recurrent = nn.LSTM(4, 4, batch_first=True)
            self.attention = nn.MultiheadAttention(4, 1, batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            x, _ = self.recurrent(self.depthwise(x).mT)
            return self.head(self.attention(x, x, x)[0][:, 0])

    torch.manual_seed(2)
    data = [(torch.randn(6, 4, 5), torch.randint(3, (6,)))]
    found = torch_dtypes.sensitivity(Parts(), data, ["mxfp4", "q43"])
    assert set(found.rises) == {"depthwise", "recurrent", "attention", "head"}
    rules = found.choose(bits=5).rules
    assert {n: r.get("axis") for n, r in rules.items() if r["weight"] == "mxfp4"}.items() <= {
        "depthwise": -1,
        "recurrent": None,
        "attention": None,
        "head": None,
    }.items()
