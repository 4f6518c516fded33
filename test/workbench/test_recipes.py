"""The recipes of torch-dtypes train: which numbers have a format, and which stay float32; errors of
the command line."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
import types

import pytest
import torch
from command_line import command
from train_command import QUICK, Told, few_cell, figures

import torch_dtypes
from torch_dtypes import chop
from torch_dtypes.optim import LowPrecision
from torch_dtypes.workbench.sweeps.sweeping import go
from torch_dtypes.workbench.sweeps.train import run_of
from torch_dtypes.workbench.training import findings, loop, recipes
from torch_dtypes.workbench.training.data import load_dataset
from torch_dtypes.workbench.training.loop import Config, Training
from torch_dtypes.workbench.training.models import build_model
from torch_dtypes.workbench.training.recipes import Trial, resolve
from torch_dtypes.workbench.training.records import Epoch, Run
from torch_dtypes.workbench.training.summaries import summarize

pytestmark = pytest.mark.usefixtures("one_thread")


DEVICE = torch.ones(()).device.type


# The meaning of recipes


def test_master_keeps_float32_masters_whose_rounding_the_weights_are(few_digits):
    training = Training(Config(epochs=1), few_digits, torch.q52, 0, "master")
    training.go()
    optimizer = training.optimizer
    assert isinstance(optimizer, LowPrecision) and optimizer.loss_scale == 1
    masters = optimizer.state_dict()["low_precision"]["masters"]
    for p, m in zip(training.model.parameters(), masters.values(), strict=True):
        assert p.dtype is p.grad.dtype is torch.q52 and m.dtype is torch.float32
        assert torch.equal(p.detach().float(), chop(m, "q52")) and not torch.equal(
            m, chop(m, "e5m9")
        )
    assert {s["exp_avg"].dtype for s in optimizer.state.values()} == {torch.float32}


@pytest.mark.parametrize("loss_dtype", ["network", "float32"])
def test_master_by_hand(few_digits, loss_dtype):
    """The loop written out: float32 masters, the network in the dtype, weights rounded after each
    step."""
    config = Config(
        epochs=1,
        optimizer="sgd",
        lr=0.05,
        momentum=0.9,
        schedule="cosine",
        loss_scale=64.0,
        loss_dtype=loss_dtype,
        device=DEVICE,
    )
    training = Training(config, few_digits, torch.posit8es1, 3, "master")
    training.go()

    torch.manual_seed(3)
    model = build_model("lenet5", 1).to(torch.posit8es1)
    masters = [p.detach().float() for p in model.parameters()]
    buffers = [None] * len(masters)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(3))
    for step, index in enumerate(order.split(32)):
        images, labels = few_digits.train.batch(index)
        model.zero_grad()
        logits = model(images.to(torch.posit8es1))
        loss = torch.nn.functional.cross_entropy(
            logits.to(torch.posit8es1 if loss_dtype == "network" else torch.float32), labels
        )
        (loss * torch.tensor(64.0)).backward()
        lr = 0.05 * (1 + math.cos(math.pi * step / 3)) / 2
        with torch.no_grad():
            for i, p in enumerate(model.parameters()):
                g = p.grad.float() / 64
                buffers[i] = g if buffers[i] is None else buffers[i] * 0.9 + g
                masters[i] = masters[i].add(buffers[i], alpha=-lr)
                p.copy_(masters[i])
    for p, q in zip(model.parameters(), training.model.parameters(), strict=True):
        assert torch.equal(p, q)
    tested = loop.evaluate(model, few_digits.test, torch.posit8es1, DEVICE)
    assert tested == (training.run.epochs[-1].test_loss, training.run.epochs[-1].accuracy)
    images, labels = few_digits.test.batch(torch.arange(len(few_digits.test)))
    with torch.no_grad():
        logits = model(images.to(DEVICE, torch.posit8es1)).double().cpu()
    right = logits[torch.arange(len(labels)), labels]
    assert tested[0] == pytest.approx((logits.exp().sum(1).log() - right).mean().item(), rel=1e-12)


def test_masters_and_states_in_formats(few_digits):
    """QPyTorch's recipe: e5m2 with e6m9 accumulators and loss scaling."""
    config = Config(
        epochs=1, optimizer="sgd", momentum=0.9, master="e6m9", state="e6m9", loss_scale="dynamic"
    )
    training = Training(config, few_digits, torch.q52, 0, "master")
    training.go()
    for m in training.optimizer.state_dict()["low_precision"]["masters"].values():
        assert torch.equal(m, chop(m, "e6m9")) and not torch.equal(m, chop(m, "q52"))
    for s in training.optimizer.state.values():
        assert torch.equal(s["momentum_buffer"], chop(s["momentum_buffer"], "e6m9"))
    without = Training(
        dataclasses.replace(config, master="none"), few_digits, torch.q52, 0, "master"
    )
    without.go()
    assert without.optimizer.state_dict()["low_precision"]["masters"] == {}
    assert recipes.master_of(Config(), torch.posit32es2) is torch.float64


@pytest.mark.whole
def test_float32_masters_reach_float32_s_accuracy_in_8_bits():
    """Everything in q52 to nearest with Adam learns nothing, whatever its eps."""
    data = load_dataset("digits")
    runs = {
        (name, recipe): loop.train(Config(epochs=3), data, resolve(name, recipe), 0, recipe=recipe)
        for name, recipe in (("float32", "all"), ("q52", "all"), ("q52", "master"))
    }
    float32, everything, master = (run.epochs[-1].accuracy for run in runs.values())
    assert master > float32 - 2 and everything < 60


def test_settings_reach_the_optimizer(few_digits):
    config = Config(eps=2.0**-10, lr=0.5, schedule="linear", epochs=2)
    training = Training(config, few_digits, torch.float32, 0)
    assert training.optimizer.param_groups[0]["eps"] == 2.0**-10
    rates = []
    training.go(on_step=lambda _: rates.append(training.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.5 * (1 - i / 6) for i in range(1, 7)])
    factors = {
        name: [factor(t) for t in (0, 0.25, 0.5, 0.75, 1)]
        for name, factor in loop.SCHEDULES.items()
    }
    assert factors["constant"] == [1] * 5 and factors["step"] == [1, 1, 0.1, 0.01, 0.01]
    assert factors["cosine"] == pytest.approx(
        [1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0]
    )


def test_resolve():
    assert (
        resolve("q52", "all") is torch.q52 and resolve("torch.bfloat16", "mixed") is torch.bfloat16
    )
    assert resolve("int8", "ptq") == torch_dtypes.target("int8")
    with pytest.raises(
        ValueError,
        match=r"expected a dtype for --recipe master, .* but got int8: blocks and integers are for",
    ):
        resolve("int8", "master")
    for recipe in recipes.RECIPES:
        with pytest.raises(ValueError, match="got 'q99z'"):
            resolve("q99z", recipe)


# The command line


@pytest.mark.whole
def test_recipes_are_rows_of_one_table(tmp_path):
    result = command(
        *QUICK,
        "--dtype",
        "q52",
        "--dtype",
        "posit16es2",
        "--recipe",
        "all",
        "--recipe",
        "master",
        "--out",
        tmp_path,
    )
    assert result.exit_code == 0, result.output
    table = result.output[result.output.index("dtype") :].splitlines()
    rows = [line.split()[:2] for line in table if re.match(r"\S+ +(all|master) ", line)]
    assert rows == [
        ["float32", "all"],
        ["q52", "all"],
        ["q52", "master"],
        ["posit16es2", "all"],
        ["posit16es2", "master"],
    ]
    assert "q52 master seed 0 epoch 2/2" in result.output
    results = json.loads((tmp_path / "results.json").read_text())
    assert (
        results["config"]["recipes"] == ["all", "master"]
        and results["summary"][2]["recipe"] == "master"
    )


@pytest.mark.whole
def test_markdown_replaces_its_part(tmp_path):
    path = tmp_path / "results.md"
    path.write_text("# Results\n\nBefore.\n")
    options = [*QUICK, "--dtype", "q52", "--recipe", "master", "--lr", "0.002", "--markdown", path]
    assert command(*options).exit_code == 0
    first = path.read_text()
    path.write_text(first + "\nAfter.\n")
    assert command(*options, "--epochs", 1).exit_code == 0
    text = path.read_text()
    assert text.startswith(
        "# Results\n\n"
        "Before.\n\n<!-- torch-dtypes train: lenet5 on digits: master -->\n"
        "### lenet5 on digits: master\n"
    )
    assert (
        text.endswith("<!-- end of lenet5 on digits: master -->\n\nAfter.\n")
        and text.count("<!--") == 2
    )
    line = (
        "--train-samples 64 --test-samples 40 --epochs 1 --lr 0.002 --dtype q52 --recipe master "
        "--threads 1"
    )
    assert f"    torch-dtypes train {line}\n" in text
    assert "64 training and 40 test samples, 1 epochs, adam at 0.002" in text
    assert re.search(
        r"\| dtype \| master \|\n\|---\|---\|\n\| q52 \| \d+\.\d\d \([+-]\d+\.\d\d\)", text
    )
    assert "--markdown" in command(*QUICK, "--markdown", tmp_path / "no" / "file.md").output


def test_a_refused_run_leaves_no_markdown_file(tmp_path):
    path = tmp_path / "results.md"
    assert (
        command(*QUICK, "--markdown", path, "--dtype", "posit9000es1").exit_code == 2
        and not path.exists()
    )
    path.write_text("mine")
    assert (
        command(*QUICK, "--markdown", path, "--dtype", "posit9000es1").exit_code == 2
        and path.read_text() == "mine"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--recipe none", "Invalid value for '--recipe': 'none' is not one of 'all'"),
        (
            "--recipe master --dtype int8",
            "'--dtype': expected a dtype for --recipe master, whose network has it throughout, "
            "but got int8",
        ),
        ("--dtype mxint99", "'--dtype': expected the name of a number format, but got 'mxint99'"),
        ("--eps 0", "'--eps': expected a finite number above 0, but got 0.0"),
        ("--eps 1e-3 --optimizer sgd", "--eps is for --optimizer adam"),
        ("--loss-scale 8", "--loss-scale is for --recipe master, mixed or qat"),
        (
            "--recipe master --loss-scale much",
            "'--loss-scale': expected a finite number above 0 or dynamic, but got much",
        ),
        (
            "--recipe master --loss-scale 0",
            "'--loss-scale': expected a finite number above 0 or dynamic, but got 0",
        ),
        ("--schedule wavy", "Invalid value for '--schedule'"),
        (
            "--recipe mixed --loss-dtype float32",
            "--loss-dtype is for --recipe all or master: networks of the others have float32 "
            "logits",
        ),
        (
            "--loss-dtype q52",
            "Invalid value for '--loss-dtype': 'q52' is not one of 'network', 'float32'",
        ),
        (
            "--recipe master --dtype q43 --loss-scale 1024",
            "in q43 master failed: expected a grad_scale that the loss's dtype holds, but got 1024",
        ),
        ("--master e6m9", "--master is for --recipe master"),
        ("--state e6m9", "--state is for --recipe master"),
        (
            "--recipe master --master q99z",
            "'--master': expected the name of something to round to, but got 'q99z'",
        ),
        (
            "--dtype half --accumulate exact",
            "of this package for --accumulate exact, but got torch.float16, whose sums are "
            "PyTorch's own; use e5m10",
        ),
        (
            "--dtype float32 --recipe master --accumulate format",
            "but got torch.float32, whose sums are PyTorch's own; use e8m23",
        ),
        (
            "--recipe weights --accumulate exact",
            "expected --accumulate machine for --recipe weights, whose products are float32's, "
            "but got exact",
        ),
        (
            "--dtype q43 --dtype e4m3",
            "'--dtype': expected different dtypes, but got q43 and e4m3, which are the same; "
            "leave one out",
        ),
        ("--rules /nowhere.yaml", "Invalid value for '--rules'"),
        (
            "--recipe master --dtype fixed3_4_wrap --loss-scale dynamic",
            "in fixed3_4_wrap master failed: expected a format without wrap-around",
        ),
    ],
)
def test_bad_options_are_clear_errors(options, message):
    result = command(*QUICK, *options.split())
    assert result.exit_code in (1, 2)
    assert (
        message in " ".join(result.output.split())
        and "Traceback" not in result.output
        and "epoch 1/2" not in result.output
    )


def test_rules_are_for_recipes_that_quantise(tmp_path):
    (tmp_path / "rules.yaml").write_text("nn.Linear: {weight: q52}\n")
    assert (
        "--rules is for --recipe mixed, qat or ptq"
        in command(*QUICK, "--rules", tmp_path / "rules.yaml").output
    )


@pytest.mark.whole
def test_what_does_not_learn_is_said():
    result = command(
        "train",
        "--dtype",
        "q52",
        "--train-samples",
        640,
        "--test-samples",
        40,
        "--epochs",
        3,
        "--threads",
        1,
    )
    assert (
        "q52 did not learn: its loss is" in result.output
        and "try --recipe master, which has float32 masters" in result.output
    )
    assert "float32 did not learn" not in result.output


LOST = "try another --loss-scale"


@pytest.mark.parametrize(
    ("recipe", "advice"), [("master", f"{LOST}, and --loss-dtype float32."), ("mixed", f"{LOST}.")]
)
def test_what_does_not_learn_beside_masters_is_told_of_the_loss(recipe, advice):
    learns, stuck = (
        Run(d, 0, [Epoch(1, x, x, 10.0, 1.0, False)], None, r)
        for d, r, x in (("float32", "all", 0.1), ("q43", recipe, 2.31))
    )
    said = findings.failures(summarize([learns, stuck]))[f"q43 {recipe}"]
    assert said.startswith("did not learn: its loss is 2.31") and said.endswith(advice)


# Recipes of layers that round

PLACES = [
    ("mixed", "weight activation error grad"),
    ("qat", "weight activation"),
    ("ptq", "weight activation"),
]


@pytest.mark.parametrize(("recipe", "places"), PLACES)
@pytest.mark.parametrize("name", ["q52", "posit8es1", "bfloat16", "int8", "fixed8_8", "mxfp4"])
def test_rules_of_recipes(name, recipe, places):
    model = build_model("lenet5", 1)
    rules = recipes.rules_of(Config(), resolve(name, recipe), recipe)
    torch_dtypes.quantize_(model, rules, calibrate=[torch.rand(4, 1, 32, 32)])
    rule = torch_dtypes.quantization.layers.state_of(model.features[0]).rule
    assert sorted(rule.places()) == sorted(places.split())
    assert rule.native is None  # gradients are scaled
    assert {place.target.name for place in rule.places().values()} == {name}
    if recipe == "mixed" and name == "mxfp4":
        assert (
            rule.error.scale is None is rule.grad.scale
            and rule.error.rounding == rule.grad.rounding == "stochastic"
        )
    elif recipe == "mixed":
        # Gradients are scaled, by a power of two if the format has a range of its own.
        assert rule.error.scale.when == rule.grad.scale.when == "call"
        assert rule.error.scale.kind == ("free" if name == "int8" else "power_of_two")
    assert (rule.activation.scale is not None) == (name == "int8")


def test_blocks_of_depthwise_convolutions_lie_along_the_last_dimension(few_digits):
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Conv2d(8, 8, 3, groups=8))
    recipes.quantize(model, Config(), few_digits, resolve("mxfp4", "mixed"), "mixed")
    rows = torch_dtypes.summary(model, show=False)
    assert rows["0"].forward and not rows["1"].forward
    assert rows["1"].weight == "mxfp4"


@pytest.mark.whole
def test_published_recipes_need_no_dtype(tmp_path):
    """A cell of each, beside each other; the paper's rules reach the layers."""
    result = command(*QUICK, "--recipe", "nvfp4", "--out", tmp_path, "--no-baseline")
    assert result.exit_code == 0 and "nvfp4 seed 0 epoch 2/2" in result.output
    (row,) = json.loads((tmp_path / "results.json").read_text())["summary"]
    assert (row["recipe"], row["dtype"]) == ("nvfp4", "nvfp4")


def test_published_recipes_take_no_dtype():
    result = command(*QUICK, "--recipe", "nvfp4", "--dtype", "q43")
    assert result.exit_code == 2 and "expected --dtype or --recipe nvfp4" in result.output


@pytest.mark.parametrize("recipe", ["mixed", "qat"])
def test_float32_parameters_go_through_a_run_of_layers_that_round(few_digits, recipe):
    """By hand: quantize_, then an ordinary loop. The run must be the same when stopped and
    resumed."""
    config = Config(epochs=2, lr=0.01, device=DEVICE)
    number = resolve("int8" if recipe == "qat" else "q52_stochastic", recipe)
    training = Training(config, few_digits, number, 1, recipe)
    expected = training.go()

    torch.manual_seed(1)
    model = build_model("lenet5", 1)
    batches = few_digits.train.batch(torch.arange(70))[0].split(32)
    torch_dtypes.quantize_(model, recipes.rules_of(config, number, recipe), calibrate=batches)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    shuffle = torch.Generator().manual_seed(1)
    for epoch in range(2):
        model.train()
        for index in torch.randperm(70, generator=shuffle).split(32):
            images, labels = few_digits.train.batch(index)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        loss, accuracy = loop.evaluate(model, few_digits.test, torch.float32, DEVICE)
        assert (expected.epochs[epoch].test_loss, expected.epochs[epoch].accuracy) == (
            loss,
            accuracy,
        )
    for p, q in zip(model.parameters(), training.model.parameters(), strict=True):
        assert p.dtype is torch.float32 and torch.equal(p, q)

    count = iter(range(1, 100))
    first = Training(config, few_digits, number, 1, recipe)
    first.go(should_stop=lambda: next(count) == 4)
    again = Training(config, few_digits, number, 1, recipe)
    again.load_state_dict(first.state_dict())
    assert figures(again.go()) == figures(expected)


@pytest.mark.whole
def test_ptq_is_float32_s_run_tested_after_quantisation(few_digits, tmp_path):
    config = Config(epochs=2, optimizer="sgd", lr=0.1, device=DEVICE)
    cells, told = (
        [few_cell(name, "ptq", epochs=2, optimizer="sgd", lr=0.1) for name in ("int8", "q43")],
        Told(),
    )
    outcomes = go(cells, tmp_path, watcher=told, compared=False)
    # Once, for both.
    assert [(cell.format, message["epoch"]["epoch"]) for cell, message in told.of("epoch")] == [
        ("float32", 1),
        ("float32", 2),
    ]
    float32 = loop.train(config, few_digits, torch.float32, 0)
    training = Training(config, few_digits, torch.float32, 0)
    training.go()
    for cell in cells:
        run = run_of(Trial("ptq", cell.number()), 0, outcomes[cell.key])
        assert run.recipe == "ptq" and run.epochs[0].accuracy == float32.epochs[0].accuracy
        assert (
            run.epochs[-1].train_loss == float32.epochs[-1].train_loss
            and run.epochs[-1].test_loss != float32.epochs[-1].test_loss
        )
        batches = few_digits.train.batch(torch.arange(70))[0].split(32)
        model = torch_dtypes.dequantize_(training.model)
        torch_dtypes.quantize_(
            model, recipes.rules_of(config, cell.number(), "ptq"), calibrate=batches
        )
        assert loop.evaluate(model, few_digits.test, torch.float32, DEVICE) == (
            run.epochs[-1].test_loss,
            run.epochs[-1].accuracy,
        )


@pytest.fixture
def yaml(monkeypatch):
    """Load YAML by PyYAML, or, where it is not installed, the part of YAML that is JSON."""
    try:
        import yaml  # noqa: F401
    except ModuleNotFoundError:
        monkeypatch.setitem(
            sys.modules, "yaml", types.SimpleNamespace(safe_load=json.load, YAMLError=ValueError)
        )


@pytest.mark.usefixtures("yaml")
def test_rules_of_a_file(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text('{"nn.Linear": {"weight": "q52", "activation": "q52"}}\n')
    result = command(
        *QUICK,
        "--rules",
        path,
        "--recipe",
        "qat",
        "--recipe",
        "master",
        "--dtype",
        "q43",
        "--out",
        tmp_path,
    )
    assert (
        result.exit_code == 0
        and "ours qat seed 0 epoch 2/2" in result.output
        and "q43 master" in result.output
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["config"]["rules"] == path.read_text()
    assert [(run["dtype"], run["recipe"]) for run in results["runs"]] == [
        ("float32", "all"),
        ("q43", "master"),
        ("ours", "qat"),
    ]
    assert (
        "expected --dtype or --rules, but got both"
        in command(*QUICK, "--rules", path, "--recipe", "qat", "--dtype", "q43").output
    )
    path.write_text('{"nn.Lstm": {"weight": "q52"}}\n')
    result = command(*QUICK, "--rules", path, "--recipe", "qat")
    assert (
        result.exit_code == 1
        and "training in ours qat failed: expected a module type of torch.nn" in result.output
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name", "points"),
    [
        ("mixed", "q52", 3),
        ("mixed", "int8", 3),
        ("qat", "int8", 2),
        ("ptq", "int8", 1),
        ("ptq", "posit8es1", 2),
    ],
)
def test_layers_that_round_reach_float32_s_accuracy(recipe, name, points):
    (row,) = torch_dtypes.sweep(name, recipe=recipe, epochs=4).rows()
    assert row["gap"] > -points
