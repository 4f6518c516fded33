"""The training command's parts: networks, data sets, loop and report."""

import json
import math
from itertools import chain

import pytest
import torch
from torch.nn import functional as F
from train_command import figures, load_few_digits

from torch_dtypes.workbench.training import data as data_module
from torch_dtypes.workbench.training import loop, recipes, report
from torch_dtypes.workbench.training.data import Dataset, Split, load_dataset
from torch_dtypes.workbench.training.loop import Config, Epoch, Run, evaluate, resolve_dtype, train
from torch_dtypes.workbench.training.models import build_model
from torch_dtypes.workbench.training.summaries import Stat, summarize

pytestmark = pytest.mark.usefixtures("one_thread")


# Networks


@pytest.mark.parametrize(
    ("name", "channels", "parameters"),
    [
        ("lenet5", 1, 61_706),
        ("lenet5", 3, 61_706 + 2 * 25 * 6),
        ("cifarnet", 3, 145_578),
        ("alexnet", 3, 28_714_826),
        ("resnet18", 3, 11_173_962),
        ("resnet18", 1, 11_173_962 - 2 * 9 * 64),
    ],
)
def test_model_shape_and_parameters(name, channels, parameters):
    with torch.device("meta"):
        model = build_model(name, channels)
        logits = model(torch.empty(2, channels, 32, 32))
    assert logits.shape == (2, 10)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_lenet5_is_the_documented_chain_of_layers():
    model = build_model("lenet5", 1)
    c1, b1, c2, b2, c3, b3, w4, b4, w5, b5 = model.parameters()
    x = torch.randn(2, 1, 32, 32)
    y = F.avg_pool2d(torch.tanh(F.conv2d(x, c1, b1)), 2)
    y = F.avg_pool2d(torch.tanh(F.conv2d(y, c2, b2)), 2)
    y = torch.tanh(F.conv2d(y, c3, b3)).flatten(1)
    y = torch.tanh(y @ w4.T + b4) @ w5.T + b5
    torch.testing.assert_close(model(x), y)


def test_resnet18_halves_the_side_three_times():
    with torch.device("meta"):
        model = build_model("resnet18", 3)
        x, shapes = torch.empty(1, 3, 32, 32), []
        for layer in model.features:
            x = layer(x)
            shapes.append(tuple(x.shape[1:]))
    assert shapes[3::2] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]


def test_resnet18_starts_from_he_s_distribution():
    torch.manual_seed(0)
    # 64 to 128 channels: fan-in and fan-out differ
    convolution = build_model("resnet18", 3).features[5].residual[0]
    assert convolution.weight.shape == (128, 64, 3, 3)
    assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)


@pytest.mark.parametrize("name", ["lenet5", "cifarnet", "resnet18"])
def test_model_depends_on_the_seed_alone(name):
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(next(build_model(name, 1).parameters()))
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_an_unknown_model():
    with pytest.raises(ValueError, match=r"expected a model out of lenet5, .* but got 'vgg'"):
        build_model("vgg", 1)


# The loop


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def few_digits():
    return load_few_digits()


def test_resolve_dtype(monkeypatch):
    import torch_dtypes

    def named(name):
        if name != "half_again":
            raise ValueError(f"expected a format, but got {name!r}")
        return torch.float16

    monkeypatch.setattr(torch_dtypes, "dtype", named, raising=False)
    assert resolve_dtype("float32") is torch.float32
    assert resolve_dtype("torch.bfloat16") is torch.bfloat16
    assert resolve_dtype("half_again") is torch.float16
    with pytest.raises(ValueError, match="expected a format, but got 'nn'"):
        resolve_dtype("nn")  # an attribute of torch, but no dtype
    for name in ("int32", "bool", "complex64"):
        with pytest.raises(ValueError, match=f"expected a floating-point dtype, but got {name}"):
            resolve_dtype(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_seed_gives_the_same_figures(few_digits, dtype):
    config = Config(epochs=2)
    runs = [train(config, few_digits, dtype, seed) for seed in (4, 4, 5)]
    assert figures(runs[0]) == figures(runs[1])
    assert figures(runs[0]) != figures(runs[2])


def test_training_leaves_the_default_generator_alone(few_digits):
    before = torch.get_rng_state()
    train(Config(epochs=1), few_digits, torch.float32, 0)
    assert torch.equal(torch.get_rng_state(), before)


class _Recorder(Split):
    def batch(self, index):
        self.seen.append(index.tolist())
        return super().batch(index)


def test_all_dtypes_start_alike_and_see_the_same_order(few_digits, monkeypatch):
    starts, orders, optimizers = {}, {}, {}
    build = recipes.build_optimizer
    for dtype in (torch.float32, torch.bfloat16):

        def spy(config, parameters, dtype=dtype):
            parameters = list(parameters)
            starts[dtype] = [p.detach().clone() for p in parameters]
            optimizers[dtype] = build(config, parameters)
            return optimizers[dtype]

        monkeypatch.setattr(recipes, "build_optimizer", spy)
        recorder = _Recorder(few_digits.train.inputs, few_digits.train.labels)
        object.__setattr__(recorder, "seen", orders.setdefault(dtype, []))
        train(Config(epochs=2), Dataset("digits", recorder, few_digits.test), dtype, 1)

    assert orders[torch.float32] == orders[torch.bfloat16]
    # Three batches make an epoch.
    epochs = [list(chain(*orders[torch.float32][i : i + 3])) for i in (0, 3)]
    assert epochs[0] != epochs[1] and all(sorted(epoch) == list(range(70)) for epoch in epochs)
    assert len(starts[torch.float32]) == len(starts[torch.bfloat16]) == 10
    for wide, narrow in zip(starts[torch.float32], starts[torch.bfloat16], strict=True):
        assert torch.equal(wide.to(torch.bfloat16), narrow)
    # Weights, gradients and the optimizer's state are all in the dtype.
    for parameter, state in optimizers[torch.bfloat16].state.items():
        assert parameter.dtype == parameter.grad.dtype == torch.bfloat16
        assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.bfloat16


@pytest.mark.whole
def test_lenet5_learns_the_digits(digits):
    run = train(Config(epochs=3), digits, torch.float32, 0)
    assert [epoch.epoch for epoch in run.epochs] == [1, 2, 3]
    assert run.epochs[-1].accuracy > 90 and run.diverged_at is None
    assert run.epochs[-1].train_loss < run.epochs[0].train_loss < math.log(10)


@pytest.mark.parametrize("name", ["cifarnet", pytest.param("resnet18", marks=pytest.mark.whole)])
def test_other_networks_train(few_digits, name):
    steps = []
    small = Dataset(
        "digits", Split(*(t[:8] for t in vars(few_digits.train).values())), few_digits.test
    )
    config = Config(model=name, epochs=1, batch_size=4, optimizer="sgd", momentum=0.9)
    run = train(config, small, torch.float32, 0, on_step=steps.append)
    assert len(steps) == 2 and run.epochs[0].train_loss == pytest.approx(sum(steps) / 2)


def test_build_optimizer():
    weights = [torch.zeros(1, requires_grad=True)]

    def settings(**options):
        optimizer = loop.build_optimizer(Config(**options), weights)
        return type(optimizer), optimizer.defaults["lr"], optimizer.defaults.get("momentum")

    assert settings() == (torch.optim.Adam, 0.001, None)
    assert settings(lr=0.5) == (torch.optim.Adam, 0.5, None)
    assert settings(optimizer="sgd", momentum=0.5) == (torch.optim.SGD, 0.01, 0.5)
    assert settings(optimizer="sgd", lr=0.25) == (torch.optim.SGD, 0.25, 0.0)
    assert settings(optimizer="adamw", weight_decay=0.5) == (torch.optim.AdamW, 0.001, None)
    with pytest.raises(
        ValueError, match="expected an optimizer out of adam, adamw, sgd, muon, but got 'lion'"
    ):
        settings(optimizer="lion")


def test_evaluate_counts_right_answers():
    # The "network" returns the first ten pixels of an image as its logits.
    labels = torch.arange(300) % 10
    pixels = torch.zeros(300, 1, 32, 32, dtype=torch.uint8)
    pixels[torch.arange(300), 0, 0, labels] = 255
    pixels[:75] = pixels[:75].flip(-1)  # a quarter has no logit above the others
    labels[:75] = 9
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1024, 10, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(10, 1024))
    loss, accuracy = evaluate(model, Split(pixels, labels), torch.float32, labels.device)
    assert accuracy == 75.0
    right, wrong = math.log(math.e + 9) - 1, math.log(10)
    assert loss == pytest.approx(0.75 * right + 0.25 * wrong)


def test_divergence_is_recorded_and_ends_the_run(few_digits):
    # Adam's epsilon of 1e-8 is zero in float16, so its first steps divide zero by zero.
    steps, seen = [], []
    run = train(
        Config(epochs=3), few_digits, torch.float16, 0, on_step=steps.append, on_epoch=seen.append
    )
    assert run.diverged_at == 1 and seen == run.epochs and len(seen) == 1
    # The second of an epoch's three steps met the NaN, and the run ended there.
    assert len(steps) == 1
    record = json.loads(json.dumps(run.as_json(), allow_nan=False))
    assert record["diverged_at"] == 1
    assert record["epochs"][0]["train_loss"] is None and record["epochs"][0]["accuracy"] is None


def test_divergence_in_the_last_step_is_seen_by_the_test(few_digits):
    small = Dataset(
        "digits", Split(*(t[:8] for t in vars(few_digits.train).values())), few_digits.test
    )
    run = train(Config(epochs=1, batch_size=8), small, torch.float16, 0)
    assert math.isfinite(run.epochs[0].train_loss) and run.diverged_at == 1


# The report


def make_run(dtype, seed, accuracies, diverged=False, seconds=2.0):
    run = Run(
        dtype, seed, [Epoch(i, 0.5, 0.6, a, seconds, False) for i, a in enumerate(accuracies, 1)]
    )
    if diverged:
        run.epochs.append(Epoch(len(accuracies) + 1, math.nan, math.nan, math.nan, 1.0, True))
    return run


def example_runs():
    return [
        make_run("float32", 0, [80.0, 90.0]),
        make_run("posit16es2", 0, [70.0, 89.0], seconds=3.0),
        make_run("float32", 1, [82.0, 94.0], seconds=4.0),
        make_run("posit16es2", 1, [74.0, 94.0], seconds=3.0),
        make_run("float32", 2, [10.0], diverged=True),
        make_run("posit16es2", 2, [78.0, 93.0], seconds=3.0),
        make_run("e4m1", 0, [], diverged=True),
    ]


def test_summarize():
    float32, posit, lost = summarize(example_runs())
    assert [s.dtype for s in (float32, posit, lost)] == ["float32", "posit16es2", "e4m1"]
    assert [stat.mean for stat in float32.accuracy] == [81.0, 92.0]
    assert float32.accuracy[0].std == pytest.approx(math.sqrt(2))
    assert float32.seconds.mean == 3.0 and float32.gap is None and float32.diverged == [(2, 2)]
    assert posit.gap.mean == -0.5  # seeds 0 and 1 only: float32 diverged with seed 2
    assert posit.gap.std == pytest.approx(math.sqrt(0.5))
    assert [stat.mean for stat in posit.accuracy] == [74.0, 92.0]
    assert lost.accuracy == [] and lost.gap is None and lost.seconds is None
    single = summarize(example_runs()[:1])[0]
    assert single.accuracy[0] == Stat(80.0, None) and single.accuracy[0].text(1) == "80.0"
    assert posit.gap.text(2, "+") == "-0.50 ± 0.71"


def test_epochs_shown():
    assert report.epochs_shown(3, 7) == [1, 2, 3]
    assert report.epochs_shown(30, 4) == [1, 11, 20, 30]
    assert report.epochs_shown(9, 1) == []


@pytest.mark.parametrize(
    ("terminal", "width", "epochs"), [(False, 20, "12"), (True, 100, "12"), (True, 70, "")]
)
def test_table(terminal, width, epochs):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
    report.print_table(console, summarize(example_runs()), "lenet5 on digits")
    text = console.file.getvalue()
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    header = [
        "dtype",
        *(part for e in epochs for part in ("ep", e)),
        "final",
        "%",
        "gap",
        "loss",
        "s/epoch",
    ]
    assert rows["dtype"] == header
    columns = ["74.0", "92.0"] if epochs else []
    assert rows["posit16es2"] == [
        "posit16es2",
        *columns,
        *"92.00 ± 2.65 -0.50 ± 0.71 0.6000 ± 0.0000 3.00 ± 0.00".split(),
    ]
    assert "e4m1" in text and text.count("diverged at epoch 1") == 2
    plain = " ".join(text.split())
    assert "float32 diverged at epoch 2 with seed 2 (loss not finite); its row is the mean" in plain


def test_results():
    results = json.loads(
        json.dumps(report.results_of({"model": "lenet5"}, example_runs()), allow_nan=False)
    )
    assert (
        results["config"] == {"model": "lenet5"}
        and results["versions"]["torch"] == torch.__version__
    )
    assert len(results["runs"]) == 7 and results["runs"][1]["epochs"][1]["accuracy"] == 89.0
    assert results["runs"][4]["epochs"][1]["accuracy"] is None
    assert results["summary"][1]["gap_to_float32"]["mean"] == -0.5


def test_side_and_classes_agree_with_the_networks():
    assert data_module.SIDE == 32 and data_module.CLASSES == 10


def test_a_run_that_diverges_says_why(few_digits):
    run = train(Config(epochs=3), few_digits, torch.float16, 0)
    assert "weight was the first tensor that was not finite (update pass" in run.divergence
    assert "exp_avg_sq is 0 there" in run.divergence and "Try an eps" in run.divergence
    assert json.loads(json.dumps(run.as_json()))["divergence"] == run.divergence
    assert train(Config(epochs=1), few_digits, torch.float32, 0).divergence is None
