"""observe: the layers and passes of roundings, and runs that observing does not change."""

import copy
import io
import json
import pickle
import threading
import warnings

import pytest
import torch
from oracle import binary, posit
from oracle_counts import assert_counts, counts
from torch import nn

import torch_dtypes
from torch_dtypes import _C

SPECS = {
    "posit16es2": posit(16, 2),
    "posit8es1": posit(8, 1),
    "q43": binary(4, 3),
    "q52": binary(5, 2),
    "e4m3fn": binary(4, 3, specials="fn"),
}


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


def batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(6, 1, 8, 8, generator=generator).to(dtype), torch.randint(
        10, (6,), generator=generator
    )


def steps(model, dtype=torch.float32, count=2, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-2)
    images, labels = batch(dtype)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [
        *losses,
        *(p.detach().clone() for p in model.parameters()),
        *(p.grad for p in model.parameters()),
    ]


def same(a, b):
    return all(
        x.dtype is y.dtype
        and torch.equal(x.double().nan_to_num(7777.0), y.double().nan_to_num(7777.0))
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize(
    "name",
    [
        "posit16es2",
        "q43",
        "q52_stochastic",
        "posit8es1_up_down",
        "fixed4_11",
        "e8m23_stochastic",
        "tf32",
    ],
)
def test_observing_changes_no_bit(name):
    dtype = torch_dtypes.dtype(name)
    # The first optimizer of a dtype makes a check that draws a random word too.
    steps(network().to(dtype), dtype, 1)
    plain, observed = network().to(dtype), network().to(dtype)
    torch.manual_seed(1)
    expected = steps(plain, dtype)
    torch.manual_seed(1)
    with torch_dtypes.observe(observed) as stats:
        got = steps(observed, dtype)
    assert same(expected, got)
    assert {where for _, where, _ in stats} >= {
        "forward",
        "backward",
        "gradients",
        "updates",
        "states",
        "weights",
    }


def test_measuring_a_float_model_changes_no_bit():
    plain, observed = network(), network()
    expected = steps(plain)
    state = torch.get_rng_state()
    with torch_dtypes.observe(
        observed, formats=["q43", "q52_stochastic", torch.posit8es1, torch.bfloat16]
    ) as stats:
        got = steps(observed)
    assert same(expected, got)
    assert torch.equal(state, torch.get_rng_state())
    assert {f for _, _, f in stats} == {"q43", "q52_stochastic", "posit8es1", "e8m7"}


STOCHASTIC = {
    "weight": "q43",
    "output": {"format": "q43", "rounding": "stochastic"},
    "error": "q52",
}


@pytest.mark.parametrize(
    "rules",
    [{nn.Linear: {"weight": "mxfp8_e4m3", "activation": "mxfp8_e4m3"}}, {nn.Conv2d: STOCHASTIC}],
)
def test_observing_quantised_layers_changes_no_bit(rules):
    plain, observed = network(), network()
    for model in (plain, observed):
        torch_dtypes.quantize_(model, rules)
    torch.manual_seed(1)
    expected = steps(plain)
    torch.manual_seed(1)
    with torch_dtypes.observe(observed) as stats:
        got = steps(observed)
    assert same(expected, got)
    assert len(stats) > 0


@pytest.mark.parametrize("name", ["q43", "posit8es1", "e4m3fn"])
def test_every_pass_of_a_float_model(name):
    """Compare each tensor by itself with rationals."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    images, labels = batch()
    with torch_dtypes.observe(model, formats=name) as stats:
        hidden = model[0](images)
        rectified = model[1](hidden)
        logits = model[3](model[2](rectified))
        for t in (hidden, rectified, logits):
            t.retain_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
    spec = SPECS[name]

    def check(layer, where, *tensors):
        numbers = torch.cat([t.detach().double().flatten() for t in tensors]).numpy()
        assert_counts(stats[layer, where, name], counts(spec, numbers))

    check("0", "forward", hidden)
    check("3", "forward", logits)
    check("0", "backward", hidden.grad)
    check("1", "backward", rectified.grad)
    check("3", "backward", logits.grad)
    check("3", "weights", *before[2:])
    check("3", "gradients", *(p.grad for p in model[3].parameters()))
    updates = [
        p.detach().double() - b.double()
        for p, b in zip(model[3].parameters(), before[2:], strict=True)
    ]
    check("3", "updates", *updates)
    kept = 0
    for u, b in zip(updates, before[2:], strict=True):
        old = torch_dtypes.chop(b.double(), name)
        kept += int((torch_dtypes.chop(old + u, name) == old).sum())
    got = stats["3", "updates", name]
    assert (got.unchanged, got.compared) == (kept, 1450)


@pytest.mark.parametrize("make", [torch.optim.Adam, torch_dtypes.optim.LowPrecision])
def test_states_of_a_float_models_optimizer_after_each_step(make):
    """Counts of steps are no states."""
    model = nn.Linear(5, 3)
    optimizer = torch.optim.Adam(model.parameters(), 0.5)
    stepped = optimizer if make is torch.optim.Adam else make(optimizer, state="float32")
    other = torch.optim.Adam([nn.Parameter(torch.ones(2))])
    kept = []
    with torch_dtypes.observe(model, formats=["q43", "mxfp4"]) as stats:
        for _ in range(2):
            model(torch.randn(4, 5)).square().sum().backward()
            stepped.step()
            other.param_groups[0]["params"][0].grad = torch.ones(2)
            other.step()
            for of_parameter in stepped.state.values():
                kept += [of_parameter[name].clone() for name in ("exp_avg", "exp_avg_sq")]
    numbers = torch.cat([t.double().flatten() for t in kept]).numpy()
    assert_counts(stats["", "states", "q43"], counts(SPECS["q43"], numbers))
    assert stats["", "states", "mxfp4"].elements == len(numbers) == 2 * 2 * 18


def test_gradients_and_updates_in_a_dtype():
    """The passes of a single product, whose exact values are known: forward, weight gradient, input
    gradient, and SGD's step."""
    model = nn.Sequential(nn.Linear(5, 3, bias=False)).to(torch.q43)
    x = torch.randn(4, 5).to(torch.q43).requires_grad_()
    given = torch.randn(4, 3).to(torch.q43)
    weight = model[0].weight.detach().double()
    optimizer = torch.optim.SGD(model.parameters(), 0.25)
    with torch_dtypes.observe(model) as stats:
        model(x).backward(given)
        gradient = model[0].weight.grad.double()
        optimizer.step()
    exact = {
        "forward": x.detach().double() @ weight.T,
        "gradients": given.double().T @ x.detach().double(),
        "backward": given.double() @ weight,
        "updates": weight - 0.25 * gradient,
        "weights": model[0].weight.detach().double(),
    }
    for where, numbers in exact.items():
        got, expected = stats["0", where, "q43"], counts(SPECS["q43"], numbers.flatten().numpy())
        for name in (
            "elements",
            "overflow",
            "underflow",
            "to_zero",
            "subnormal",
            "zeros",
            "inexact",
        ):
            assert getattr(got, name) == expected.get(name, 0), (where, name)
        assert got.exponents == expected["exponents"]
        assert got.noise == pytest.approx(float(expected["noise"]), rel=1e-4)
    got = stats["0", "updates", "q43"]
    assert (got.unchanged, got.compared) == (int((weight == exact["weights"]).sum()), 15)


def test_backward_belongs_to_the_layer_that_runs():
    """Functions between layers belong to the module around them, as do residual inputs; layers in
    place count once."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            return x + self.second(torch.tanh(self.first(x)))

    model = nn.Sequential(Block(), nn.ReLU(inplace=True), nn.Linear(6, 2)).to(torch.posit16es2)
    x = torch.randn(3, 6).to(torch.posit16es2).requires_grad_()
    with torch_dtypes.observe(model) as stats:
        model(x).square().sum().backward()
    found = {
        (layer, where): c.elements
        for (layer, where, _), c in stats.items()
        if where in ("forward", "backward")
    }
    assert found["0.first", "forward"] == 18
    assert found["0", "forward"] == 36  # tanh, and the sum
    assert found["0", "backward"] >= 18  # tanh's
    assert found["0.first", "backward"] >= 18
    assert found["(outside)", "forward"] == 7  # squares, and their sum


def test_hooks_go_away_and_exceptions_pass():
    model = network().to(torch.q43)
    held = []

    def hooks():
        found = [m._forward_hooks for m in model.modules()] + [
            m._forward_pre_hooks for m in model.modules()
        ]
        found += [p._post_accumulate_grad_hooks or {} for p in model.parameters()]
        from torch.optim import optimizer

        return sum(
            map(
                len,
                [
                    *found,
                    optimizer._global_optimizer_pre_hooks,
                    optimizer._global_optimizer_post_hooks,
                ],
            )
        )

    with pytest.raises(RuntimeError, match="shape"):
        with torch_dtypes.observe(model) as stats:
            assert hooks() > 0
            held.append(model(batch(torch.q43)[0]))
            model(torch.randn(6, 1, 9, 9).to(torch.q43))
    assert hooks() == 0
    assert not _C.observing()
    assert not held[0]._backward_hooks
    assert stats["0", "forward", "q43"].elements == 6 * 4 * (36 + 49)
    count = stats["0", "forward", "q43"].elements
    model(batch(torch.q43)[0])
    assert stats["0", "forward", "q43"].elements == count
    with torch_dtypes.observe(model) as again:
        model(batch(torch.q43)[0])
    assert again["3", "forward", "q43"].elements == 60


def test_a_copy_made_within_is_not_observed_afterwards():
    model = network().to(torch.q43)
    with torch_dtypes.observe(model) as stats:
        other = copy.deepcopy(model)
    steps(other, torch.q43, 1)
    assert {where for _, where, _ in stats} == {"weights"}
    with (
        pytest.warns(UserWarning, match="no module of the Sequential ran"),
        torch_dtypes.observe(model) as stats,
    ):
        other(batch(torch.q43)[0])
    assert {layer for layer, _, _ in stats} == {"(outside)", "0", "3"}


def test_a_second_observation_is_refused():
    model = network()
    with torch_dtypes.observe(model, formats="q43"):
        with pytest.raises(RuntimeError, match="one observation at a time"):
            torch_dtypes.observe(model, formats="q43").__enter__()
        model(batch()[0])
    with torch_dtypes.observe(model, formats="q43") as stats:
        model(batch()[0])
    assert len(stats) > 0


def test_other_threads_count_what_the_model_does_there():
    model = network().to(torch.q43)
    images = batch(torch.q43)[0]

    def work():
        torch.randn(500).to(torch.q43)  # not of the model
        model(images).sum().backward()

    with torch_dtypes.observe(model) as stats:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert stats["3", "forward", "q43"].elements == 60
    assert stats["3", "gradients", "q43"].elements > 0
    assert ("(outside)", "forward", "q43") not in stats or stats[
        "(outside)", "forward", "q43"
    ].elements < 500


def test_another_models_optimizer_is_not_counted():
    model, other = network().to(torch.q43), network().to(torch.q43)
    images, labels = batch(torch.q43)
    nn.functional.cross_entropy(other(images), labels).backward()
    with torch_dtypes.observe(model) as stats:
        torch.optim.SGD(other.parameters(), 0.1, momentum=0.9).step()
    assert {where for _, where, _ in stats} == {"weights"}


def test_statistics_are_plain_data():
    model = network().to(torch.q43)
    with torch_dtypes.observe(model) as stats:
        steps(model, torch.q43, 1)
        during = copy.deepcopy(stats)
    for other in (
        copy.deepcopy(stats),
        pickle.loads(pickle.dumps(stats)),
        type(stats).from_json(json.loads(json.dumps(stats.as_json()))),
    ):
        assert dict(other) == dict(stats)
    assert during["3", "forward", "q43"] == stats["3", "forward", "q43"]
    with pytest.raises(KeyError, match="layer, pass, format"):
        stats["nowhere", "forward", "q43"]


def test_tables_and_files(tmp_path):
    import csv

    from rich.console import Console

    model = network().to(torch.q43)
    with torch_dtypes.observe(model) as stats:
        steps(model, torch.q43, 1)
    text = io.StringIO()
    stats.table(limit=3, console=Console(file=text, width=180))
    assert len(text.getvalue().splitlines()) == 5
    assert f"and {len(stats) - 3} more" in text.getvalue() and "no room" not in text.getvalue()
    narrow = io.StringIO()
    stats.table(limit=3, console=Console(file=narrow, width=40))
    assert (
        "exponents" not in narrow.getvalue().split("no room for: ")[0]
        and "exponents" in narrow.getvalue().split("no room for: ")[1]
    )
    troubles = [c.trouble for c in stats.sorted()]
    assert troubles == sorted(troubles, reverse=True)
    stats.to_csv(tmp_path / "counts.csv")
    stats.to_json(tmp_path / "counts.json")
    with open(tmp_path / "counts.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    data = json.loads((tmp_path / "counts.json").read_text())["counts"]
    assert len(rows) == len(data) == len(stats)
    for row, plain in zip(rows, data, strict=True):
        c = stats[row["layer"], row["pass"], row["format"]]
        assert int(row["underflow"]) == plain["underflow"] == c.underflow
        assert {int(e): n for e, n in plain["exponents"].items()} == c.exponents
    assert "<td>q43</td>" in stats._repr_html_()
    assert repr(stats).startswith("<Statistics of")


def test_figures():
    matplotlib = pytest.importorskip("matplotlib")
    model = network()
    with torch_dtypes.observe(model, formats=["q43", "posit8es1"]) as stats:
        steps(model)
    figure = stats.plot("e4m3")
    assert isinstance(figure, matplotlib.figure.Figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "forward",
        "backward",
        "gradients",
        "updates",
    ]
    assert [
        t.get_text()
        for t in stats.plot("q43", passes=["weights"], limit=1, width="column")
        .axes[0]
        .get_yticklabels()
    ]
    with pytest.raises(ValueError, match="expected one of the formats posit8es1, q43"):
        stats.plot()
    with pytest.raises(ValueError, match="expected a format that was counted"):
        stats.plot("q52")
    with pytest.raises(ValueError, match="expected passes of forward"):
        stats.plot("q43", passes=["upward"])


def test_bad_input():
    observe = torch_dtypes.observe
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module to observe, but got Tensor"):
        observe(torch.randn(3))
    with pytest.raises(
        ValueError, match="expected a model with layers or parameters to observe, but got ReLU"
    ):
        observe(nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(TypeError, match="ScriptModule"):
        observe(scripted)
    with pytest.raises(ValueError, match="posit16"):
        observe(network(), formats=["posit16"])
    with pytest.raises(ValueError, match="expected at least one format"):
        observe(network(), formats=[])
    with pytest.raises(
        ValueError,
        match=r"expected a model of stock floating parameters with formats=, but got 0\.weight "
        r"of torch\.q43",
    ):
        observe(network().to(torch.q43), formats=["q43"])
    model = network()
    with observe(model) as stats:
        model(batch()[0])
    with pytest.raises(ValueError, match=r"nothing was rounded .* observe\(model, formats="):
        stats.plot()
    assert repr(stats) == "<Statistics: nothing was counted>"
    with pytest.raises(ValueError, match="limit of at least 1"):
        stats.rows(0)
