"""Rules of quantize_: which one is whose, files of them, and what is wrong with them before any
work is done."""

import re

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import Cast, chop, quantize_, summary


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3, bias=False))
        self.head = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Bilinear(4, 4, 2))
        self.fc = nn.Linear(2, 2)
        self.words = nn.Embedding(3, 2, sparse=True)


def weights(rules):
    return {
        row.layer: row.weight
        for row in summary(quantize_(Net(), rules), show=False).rows
        if row.runs
    }


def w(name):
    return {"weight": name}


def test_keys():
    every = {
        "body.0": "q43",
        "body.2": "q43",
        "head.0": "q43",
        "head.2": "q43",
        "fc": "q43",
        "words": "q43",
    }
    for key in (nn.Linear, "nn.Linear", "torch.nn.Linear"):
        assert weights({key: w("q43")}) == {"head.0": "q43", "fc": "q43"}
    assert weights({"head.*": w("q43")}) == {"head.0": "q43", "head.2": "q43"}
    assert weights({re.compile("HEAD.*", re.I): w("q43")}) == {"head.0": "q43", "head.2": "q43"}
    assert (
        weights({".*": w("q43")})
        == every
        == weights({nn.Module: w("q43")} | {m: None for m in (nn.Sequential, nn.ReLU, Net)})
    )
    assert weights(
        {lambda module, name: isinstance(module, nn.Conv2d) and module.bias is None: w("q43")}
    ) == {"body.2": "q43"}


def test_what_says_more_wins():
    rules = {
        nn.Module: None,
        nn.Linear: w("q43"),
        "head.*": w("q52"),
        "fc": w("e5m5"),
        lambda m, n: isinstance(m, nn.Conv2d) and "2" in n: w("q52"),
    }
    assert (
        weights(rules)
        == {"head.0": "q52", "head.2": "q52", "fc": "e5m5", "body.2": "q52"}
        == weights(dict(reversed(rules.items())))
    )

    class Mine(nn.Linear):
        pass

    model = quantize_(
        nn.Sequential(Mine(2, 2), nn.Linear(2, 2)), {nn.Linear: w("q43"), Mine: w("q52")}
    )
    assert [row.weight for row in summary(model, show=False)] == ["q52", "q43"]
    assert weights({nn.Linear: w("q43"), "head.*": None}) == {"fc": "q43"}


def test_a_module_of_two_names():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": shared, "b": shared})
    assert summary(quantize_(model, {"b": w("q43")}), show=False)["a"].weight == "q43"
    with pytest.raises(ValueError, match="contradict each other: 'a' and 'b'"):
        quantize_(model, {"a": w("q43"), "b": w("q52")})


def test_rules_of_activations_and_of_types_without_weights():
    model = quantize_(Net(), {nn.ReLU: dict(output="q43", error="q52")})
    x = torch.randn(3, requires_grad=True)
    y = model.body[1](x)
    y.backward(torch.full((3,), 1.3))
    assert torch.equal(y, chop(torch.relu(x), "q43")) and torch.equal(x.grad, (x > 0) * 1.25)


def test_names_in_files_that_look_like_numbers(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML reads the files")
    file = tmp_path / "rules.yaml"
    file.write_text("0: &first {weight: q43}\n1.10: {<<: *first, activation: q52}\nyes: q52\n")
    linears = nn.Sequential(*(nn.Linear(2, 2) for _ in range(11)))
    model = nn.ModuleDict({"0": nn.Linear(2, 2), "1": linears, "yes": nn.Linear(2, 2)})
    rows = summary(quantize_(model, file), show=False)
    assert [(r.layer, r.weight, r.activation) for r in rows if r.runs] == [
        ("0", "q43", ""),
        ("1.10", "q43", "q52"),
        ("yes", "q52", "q52"),
    ]


def test_files(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML reads the files")
    file = tmp_path / "rules.yaml"
    file.write_text(
        "nn.Conv2d: posit8es1\n"
        "head.0: {weight: q43, activation: {format: q52, rounding: stochastic}, accumulate: "
        "{policy: chunked(8), accumulator: e5m5}}\n"
        "fc:\n"
    )
    model = quantize_(Net(), str(file))
    quantize_(model, file)
    rows = summary(model, show=False)
    assert (rows["body.0"].runs, rows["head.0"].activation, rows["fc"].runs) == (
        "natively",
        "q52 stochastic",
        "",
    )
    assert rows["head.0"].sums == "chunked(8) (accumulator=e5m5)"
    wrong = [
        ("- a", "mapping of rules"),
        ("a: [", "expected YAML"),
        ("", "mapping of rules"),
        ("fc: q43\nfc: q52", "the key 'fc' twice"),
        ("? [fc]\n: q43", r"a key that is no name, \['fc'\]"),
    ]
    for text, words in wrong:
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            quantize_(Net(), file)
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ValueError, match="expected YAML"):
        quantize_(Net(), file)
    with pytest.raises(FileNotFoundError, match=r"expected a YAML file of rules .*'int8.yaml'"):
        quantize_(Net(), "int8.yaml")
    with pytest.raises(ValueError, match=r"in Python rules are a dict.*but got 'int8'; of recipes"):
        quantize_(Net(), "int8")


BAD = {
    "nothing matches": ({"haed.*": w("q43")}, ValueError, r"'haed\.\*', which matches none.*'head"),
    "a type that is not there": (
        {nn.LSTM: w("q43")},
        ValueError,
        "LSTM, which matches none.*Linear",
    ),
    "an unknown type": (
        {"nn.Linaer": w("q43")},
        ValueError,
        "torch.nn, but got 'nn.Linaer'; the nearest are 'Linear'",
    ),
    "a name without parameters": (
        {"head.1.*": w("q43")},
        ValueError,
        "matches none that has parameters",
    ),
    "two expressions": (
        {"head.*": w("q43"), ".*0": w("q52")},
        ValueError,
        "'head.0'.*contradict each other",
    ),
    "two predicates": (
        {lambda m, n: True: w("q43"), lambda m, n: n == "fc": w("q52")},
        ValueError,
        "contradict",
    ),
    "one of two predicates of one name": (
        {lambda m, n: n == "fc": w("q43"), lambda m, n: False: w("q52")},
        ValueError,
        "which matches none",
    ),
    "a bad expression": ({"head.(": w("q43")}, ValueError, r"regular expression.*'head\.\('"),
    "a predicate's answer": (
        {lambda m, n: 1: w("q43")},
        TypeError,
        r"True or False of the lambda in test_quantize_rules\.py, line \d+, but got 1",
    ),
    "a predicate of modules alone": (
        {lambda m: True: w("q43")},
        TypeError,
        "predicate of .module, name. .*does not take these two arguments",
    ),
    "a predicate of three": (
        {lambda m, n, k: True: w("q43")},
        TypeError,
        "does not take these two arguments",
    ),
    "a predicate that raises": (
        {lambda m, n: m.in_features > 2: w("q43")},
        ValueError,
        "for '', a Net, it raised AttributeError: 'Net'",
    ),
    "a module as key": (
        {nn.Linear(2, 2): w("q43")},
        TypeError,
        "got Linear.in_features=2.*give its name in the model",
    ),
    "a type without its module": (
        {"Linear": w("q43")},
        ValueError,
        "'Linear', which matches none.*the type is 'nn.Linear'",
    ),
    "a rule without key": (
        dict(weight="q43"),
        ValueError,
        r"'weight', which matches none; use modules as keys, as in .nn\.Linear: dict.weight=",
    ),
    "an unknown option of a policy": (
        {nn.Linear: dict(accumulate=dict(policy="format", acc="e5m5"))},
        ValueError,
        "'policy', .*but got 'acc'",
    ),
    "options without policy": (
        {nn.Linear: dict(accumulate=dict(accumulator="e5m5"))},
        ValueError,
        "accumulate of Linear with policy=",
    ),
    "sparse gradients": (
        {"words": dict(grad="q52")},
        ValueError,
        "dense gradients to round .grad., but 'words'.*sparse=True",
    ),
    "a dimension that a weight lacks": (
        {nn.Linear: w({"format": "int8", "per": 2})},
        ValueError,
        r"with dimension 2 .* but got weight of shape \(4, 2\)",
    ),
    "blocks along a dimension that a bias lacks": (
        {"fc": dict(bias="mxfp4_axis1")},
        ValueError,
        r"with dimension 1 .* but got bias of shape \(2,\)",
    ),
    "blocks of two dimensions of a bias": (
        {"fc": dict(bias="block<e3m4,e8m0,2x2>")},
        ValueError,
        "dimension -2 .* bias of shape",
    ),
    "a number as key": ({3: w("q43")}, TypeError, "module type, a name"),
    "a class that is no module": ({int: w("q43")}, TypeError, "module type"),
    "an unknown word": (
        {nn.Linear: dict(wieght="q43")},
        ValueError,
        "'wieght'; the nearest are 'weight'",
    ),
    "an unknown format": ({nn.Linear: w("q44")}, ValueError, "weight of Linear: .*'q43'"),
    "an unknown option": (
        {nn.Linear: w({"format": "q43", "ronding": 1})},
        ValueError,
        "'ronding'; the nearest are 'rounding'",
    ),
    "no format": ({nn.Linear: w({"rounding": "up"})}, ValueError, "weight of Linear with format="),
    "an unknown mode": (
        {nn.Linear: w({"format": "q43", "rounding": "upp"})},
        ValueError,
        "rounding mode",
    ),
    "clamped errors": (
        {nn.Linear: dict(error={"format": "q43", "clamped": "zero"})},
        ValueError,
        "clamped='zero' of weight",
    ),
    "a policy": (
        {nn.Linear: dict(weight="q43", accumulate="exakt")},
        ValueError,
        "accumulate of Linear: expected an accumulation policy",
    ),
    "a policy that no kernel has": (
        {nn.Linear: dict(accumulate=dict(policy="format", product="fp64", accumulator="fp64"))},
        ValueError,
        "at most 51 significant bits",
    ),
    "sums of a layer without products": (
        {nn.ReLU: dict(output="q43", accumulate="exact")},
        ValueError,
        "a layer with products.*ReLU",
    ),
    "a weight where there is none": (
        {nn.ReLU: w("q43")},
        ValueError,
        "got weight= for 'body.1', a ReLU",
    ),
    "a bias where there is none": (
        {"body.2": dict(bias="q43")},
        ValueError,
        "its modules have, but got bias= for 'body.2', a Conv2d, which has none",
    ),
    "biases where no module has one": (
        {"body.2|words": dict(bias="q43")},
        ValueError,
        "got bias= for 'body.2', a Conv2d, which has none",
    ),
    "a bias of what never has one": (
        {nn.ReLU: dict(output="q43", bias="q43")},
        ValueError,
        "got bias= for 'body.1', a ReLU",
    ),
    "everything in integers": (
        {nn.Linear: "int8"},
        ValueError,
        "a dtype .or its name. for everything of Linear, or a dict",
    ),
    "everything in blocks": (
        {nn.Linear: "mxfp4"},
        ValueError,
        "a dtype .or its name. for everything of Linear, or a dict",
    ),
    "steps between blocks": (
        {nn.Linear: dict(weight="mxfp4", accumulate="format")},
        ValueError,
        "product= and accumulator= with operands of",
    ),
    "steps between scaled numbers": (
        {
            nn.Linear: dict(
                weight={"format": "q43", "scale": 0.1}, activation="q43", accumulate="chunked(8)"
            )
        },
        ValueError,
        "q43 and q43 with a scale",
    ),
    "an empty rule": ({nn.Linear: {}}, ValueError, "expected the rule Linear with one of"),
    "a number as value": ({nn.Linear: 8}, TypeError, "everything of Linear"),
    "no rules": ({}, TypeError, "expected rules as a dict"),
    "a list": ([nn.Linear], TypeError, "expected rules as a dict"),
    "an integer dtype": ({nn.Linear: w(torch.int8)}, TypeError, "torch.int8"),
    "an accumulator of floats": (
        {nn.Linear: dict(weight="q43", accumulator="int32")},
        ValueError,
        "with arithmetic='integer' only",
    ),
    "an unknown arithmetic": (
        {nn.Linear: dict(weight="q43", arithmetic="int")},
        ValueError,
        "'float' or 'integer'",
    ),
    "integers of floats": (
        {nn.Linear: dict(weight="q43", activation="q43", arithmetic="integer")},
        ValueError,
        "expected an integer weight",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_and_nothing_changed(name):
    rules, error, words = BAD[name]
    model = Net()
    with pytest.raises(error, match=words):
        quantize_(model, rules)
    assert not any(row.runs for row in summary(model, show=False))


def test_a_bias_that_some_modules_lack():
    """A rule for many modules, some of which were made without a bias, and a rule for a layer that
    could have one beside its weight."""
    found = summary(
        quantize_(Net(), {nn.Conv2d: dict(bias="q43"), nn.Linear: dict(weight="q52", bias="q43")}),
        show=False,
    )
    assert (found["body.0"].bias, found["body.2"].bias, found["fc"].bias) == ("q43", "", "q43")
    for layer in (
        nn.Linear(2, 2, bias=False),
        nn.LSTM(2, 2, bias=False),
        nn.MultiheadAttention(2, 1, bias=False),
        nn.BatchNorm1d(2, affine=False),
    ):
        rule = (
            dict(weight="q52", bias="q43")
            if list(layer.parameters())
            else dict(output="q52", bias="q43")
        )
        quantize_(layer, {type(layer): rule})
        with pytest.raises(ValueError, match=r"got bias= for '', an? .*, which has none"):
            quantize_(layer, {type(layer): dict(bias="q43")})


def test_models_that_cannot_be_quantised():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        quantize_(torch.zeros(3), {nn.Linear: w("q43")})
    with pytest.raises(TypeError, match=r"float32 parameters.*torch\.q52; use model\.float"):
        quantize_(nn.Linear(2, 2).to(torch.q52), {nn.Linear: w("q43")})
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(TypeError, match=r"a Python module to quantise, but got a script"),
    ):
        quantize_(torch.jit.script(nn.Linear(2, 2)), {nn.Linear: w("q43")})
    with pytest.raises(ValueError, match="run the model once"):
        quantize_(nn.LazyLinear(3), {nn.Linear: w("q43")})
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x
    with pytest.raises(ValueError, match="its own as an attribute"):
        quantize_(layer, {nn.Linear: w("q43")})


# ---- Cast ----


def test_cast():
    assert torch_dtypes.nn.Cast is Cast
    x = torch.randn(9, requires_grad=True)
    cast = Cast(forward="q43", backward=dict(format="q52", rounding="up"))
    y = cast(x)
    y.backward(torch.full((9,), 1.3))
    assert torch.equal(y, chop(x, "q43")) and torch.equal(x.grad, torch.full((9,), 1.5))
    assert repr(cast) == "Cast(forward=q43, backward=q52 up)" and not cast.state_dict()
    assert Cast(backward="q43")(x) is not x  # no hook stays with the caller's tensor
    for arguments, error, words in (
        ((), ValueError, "neither"),
        (("q44",), ValueError, "q43"),
        ((3,), TypeError, "expected a dtype"),
    ):
        with pytest.raises(error, match=words):
            Cast(*arguments)


def test_the_table():
    model = quantize_(Net(), {nn.Linear: w("q43")})
    found = summary(model, show=False)
    assert repr(found) == "<Summary: 2 of 6 layers quantised>" and len(found) == 6
    assert [line for line in str(found).splitlines() if "head.0" in line and "q43" in line]
    with pytest.raises(KeyError, match=r"'head\.2'"):
        found["head"]
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        summary(3)


def test_the_table_is_printed(capsys):
    rule = dict(
        weight="mxfp8_e4m3",
        activation="mxfp8_e4m3",
        output="posit16es2_stochastic",
        error="q52_stochastic",
        grad="posit16es2_stochastic",
    )
    summary(quantize_(Net(), {nn.Linear: rule}))
    printed = capsys.readouterr().out
    # On the 80 columns of a terminal that is none.
    assert "What is rounded to what" in printed and "…" not in printed
