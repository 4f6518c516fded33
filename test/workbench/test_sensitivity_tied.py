"""Layers that share a weight count as one in a study; results as pickles and copies; formats that
draw; sentences on a single layer."""

import copy
import io
import math
import pickle
import threading

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn import functional as F

import torch_dtypes
from torch_dtypes.workbench.sensitivity.layers import find_layers
from torch_dtypes.workbench.sensitivity.report import layer_rows, rules_text, sentences

FORMATS = ["q43", "mxfp4", "int8"]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.inner, self.head = (
            nn.Embedding(17, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 17, bias=False),
        )
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.words(x))))


def data():
    g = torch.Generator().manual_seed(1)
    return [(torch.randint(17, (20,), generator=g), torch.randint(17, (20,), generator=g))]


def test_a_tied_weight_has_one_format_and_counts_once():
    model = Tied()
    found = torch_dtypes.sensitivity(model, data(), FORMATS)
    assert [(x.name, x.elements, [part.name for part in x.tied]) for x in found.layers] == [
        ("words", 136, ["head"]),
        ("inner", 64, []),
    ]
    assert list(found.rises) == ["words", "inner"] and found.runs == 1 + 3 + 6
    for name in FORMATS:  # both are rounded, as by quantize_
        rules = found.uniform[name].rules
        assert (
            set(rules) == {"words", "head", "inner"}
            and "activation" in rules["head"]
            and "activation" not in rules["words"]
        )
        alone = {layer: rules[layer] for layer in ("words", "head")}
        made = torch_dtypes.quantize_(copy.deepcopy(model), alone, data())
        with torch.no_grad():
            loss = F.cross_entropy(made.eval()(data()[0][0]), data()[0][1]).item()
        assert found.rises["words"][name] == loss - found.float32
    for bits in (4.25, 5, 6, 7, 8):
        mixture = found.choose(bits=bits)
        assert (
            set(mixture.formats) == {"words", "inner"}
            and mixture.rules["head"]["weight"] == mixture.rules["words"]["weight"]
        )
        costs = {name: found.uniform[name].bits for name in FORMATS}
        assert mixture.bits == pytest.approx(
            (136 * costs[mixture.formats["words"]] + 64 * costs[mixture.formats["inner"]]) / 200
        )
        made = torch_dtypes.quantize_(copy.deepcopy(model), mixture.rules, mixture.scales)
        with torch.no_grad():
            assert (
                F.cross_entropy(made.eval()(data()[0][0]), data()[0][1]).item() == mixture.measured
            )
    stored = (
        torch_dtypes.quantize(model.words.weight, "mxfp4").nbytes
        + torch_dtypes.quantize(model.inner.weight, "mxfp4").nbytes
    )
    assert found.uniform["mxfp4"].stored == pytest.approx(8 * stored / 200)
    said = " ".join(sentences(found))
    assert (
        "words and head are one layer, since they share a weight: rounded together, and counted "
        "once."
    ) in said
    assert found.as_json()["layers"][0]["tied"] == ["head"] and found.rows()[0]["elements"] == 136
    assert layer_rows(found)[0][:3] == ["words = head", "Embedding = Linear", "136"]


def test_layers_are_tied_through_others_and_by_those_that_are_named():
    model = nn.ModuleDict(
        {name: nn.Bilinear(4, 4, 4) if name == "b" else nn.Linear(4, 4) for name in "abcdefg"}
    )
    model["d"].weight = model["a"].weight
    model["e"].weight = model["a"].weight
    model["f"].bias = model["c"].bias  # stays float32
    both = nn.RNN(3, 4)
    both.weight_hh_l0 = model["g"].weight
    model["h"] = both
    found = find_layers(model)
    assert [(x.name, [part.name for part in x.tied], x.elements) for x in found] == [
        ("a", ["d", "e"], 16),
        ("b", [], 64),
        ("c", [], 16),
        ("f", [], 16),
        ("g", ["h"], 16 + 12),
    ]
    assert [x.label for x in found] == ["a = 2 others", "b", "c", "f", "g = h"]
    both.weight_ih_l0 = nn.Parameter(torch.ones(4, 3))
    model["i"] = nn.Linear(3, 4)
    model["i"].weight = both.weight_ih_l0
    assert [part.name for part in find_layers(model)[-1].parts] == ["g", "h", "i"] and find_layers(
        model
    )[-1].elements == 28
    assert [x.name for x in find_layers(model, ["a", "e", "h"])] == ["a", "h"] and find_layers(
        model, "d"
    )[0].tied == ()


def test_results_are_pickled_and_copied():
    model, lock = Tied(), threading.Lock()

    def on_run(what, total):
        with lock:  # neither copied nor pickled
            pass

    found = torch_dtypes.sensitivity(
        model, data(), FORMATS, criterion=lambda o, t: F.cross_entropy(o, t), on_run=on_run
    )
    mixture = found.choose(bits=5)
    made = copy.deepcopy(found)
    assert (
        made == found
        and made.choose(bits=7).formats
        and len(made.mixtures) == 2
        and len(found.mixtures) == 1
    )
    assert (made.runs, found.runs) == (12, 11) and copy.copy(found).choose(bits=5) == mixture
    loaded = pickle.loads(pickle.dumps(found))
    assert (
        loaded == found
        and loaded.as_json() == found.as_json()
        and len(pickle.dumps(found)) < 20_000
    )
    out = io.StringIO()
    loaded.print(Console(file=out))
    assert "At most 5 bits" in out.getvalue()
    assert set(loaded.figures("column")) == {"heatmap", "tradeoff"} and rules_text(
        loaded, loaded.mixtures[0]
    ) == rules_text(found, mixture)
    rounded = torch_dtypes.quantize_(model, loaded.mixtures[0].rules, loaded.mixtures[0].scales)
    with torch.no_grad():
        assert (
            F.cross_entropy(rounded.eval()(data()[0][0]), data()[0][1]).item() == mixture.measured
        )
    for ask in (lambda: loaded.choose(bits=7), loaded.trade_off):
        with pytest.raises(
            ValueError,
            match="a result with its network and data, to measure a mixture, but got one from "
            "a pickle",
        ):
            ask()
    found.trade_off()
    assert pickle.loads(pickle.dumps(found)).trade_off() == found.trade_off()
    study = torch_dtypes.variability(Tied(), data(), repeats=2, where=False)
    assert (
        pickle.loads(pickle.dumps(study)).as_json()
        == copy.deepcopy(study).as_json()
        == study.as_json()
    )


def test_a_format_that_draws_is_said_to_be_one_draw():
    names = ["q43", "q43_stochastic", "mxfp4_stochastic_a4"]
    said = " ".join(sentences(torch_dtypes.sensitivity(Tied(), data(), names, seed=7)))
    assert (
        "q43_stochastic and mxfp4_stochastic_a4 draw at random: each number is of one draw, that "
        "of seed 7, and other seeds show its spread."
    ) in said
    assert "at random" not in " ".join(
        sentences(torch_dtypes.sensitivity(Tied(), data(), names[:1]))
    )


def test_one_layer_is_said_to_be_one():
    found = torch_dtypes.sensitivity(Tied(), data(), "q43", layers="inner")
    assert sentences(found)[0].startswith(
        "One layer, inner, is rounded to q43 (weights and input activations)"
    )
    found = torch_dtypes.sensitivity(Tied(), data(), "q43")
    assert sentences(found)[0].startswith(
        "Each of 2 layers is rounded alone to q43 ("
    ) and math.isfinite(found.float32)
