"""A user's networks and data in the commands: ``--model package.module:factory --weights FILE
--data package.module:loader``."""

import json
import sys
import types

import pytest
import torch
from command_line import command as run
from torch import nn

from torch_dtypes.workbench.training import sources
from torch_dtypes.workbench.training.records import Config

MODULE = """
import torch
from torch import nn


def tiny():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 3))

    def forward(self, x):
        return x.flatten(1) @ self.weight


def bare():
    return Bare()


def other():
    return nn.Linear(4, 3)


def three():
    return 3


def fails():
    raise RuntimeError("no GPU here")


number = 5


def examples(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=g)
    return torch.randn(n, 2, 3, generator=g) + 2 * labels.reshape(-1, 1, 1), labels


def data():
    return examples(60, 0), examples(30, 1)


def loaders():
    sets = [
        torch.utils.data.TensorDataset(*examples(60, 0)),
        torch.utils.data.TensorDataset(*examples(30, 1)),
    ]
    return torch.utils.data.DataLoader(sets[0], batch_size=7), sets[1]


def one():
    return examples(10, 0)


def no_labels():
    return torch.zeros(5, 6), torch.zeros(5, 6)


def float_labels():
    return (torch.zeros(5, 6), torch.zeros(5)), (torch.zeros(5, 6), torch.zeros(5))


def fewer_labels():
    return (torch.zeros(5, 6), torch.zeros(4, dtype=torch.long)), examples(10, 0)


def nan_inputs():
    return (torch.full((5, 2, 3), float("nan")), torch.zeros(5, dtype=torch.long)), examples(10, 0)


def maps():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(8, 1, 4, 4, generator=g)
    return (x, (x[:, 0] > 0).long()), (x, (x[:, 0] > 0).long())


def nothing():
    return (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)), (
        torch.zeros(0, 4),
        torch.zeros(0, dtype=torch.long),
    )


def segmenter():
    return nn.Conv2d(1, 2, 3, padding=1)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return the name of a user's module in the current folder, which is not on Python's path."""
    (tmp_path / "own_networks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    yield "own_networks"
    sys.modules.pop("own_networks", None)


def train(out, *args):
    result = run(
        "train", "--dtype", "posit16es2", "--epochs", 2, "--threads", 1, "--out", out, *args
    )
    assert result.exit_code == 0, result.output
    return json.loads((out / "results.json").read_text())


@pytest.mark.whole
def test_a_network_and_data_of_one_s_own_train(own, tmp_path):
    results = train(
        tmp_path / "a",
        "--model",
        f"{own}:tiny",
        "--data",
        f"{own}:data",
        "--lr",
        0.05,
        "--batch-size",
        5,
    )
    assert results["config"]["parameters"] == 6 * 5 + 5 + 5 * 3 + 3
    assert (
        results["config"]["dataset"],
        results["config"]["train_samples"],
        results["config"]["test_samples"],
    ) == (f"{own}:data", 60, 30)
    assert all(
        run["epochs"][1]["train_loss"] < 0.8 * run["epochs"][0]["train_loss"]
        for run in results["runs"]
    )
    loaders = train(
        tmp_path / "b",
        "--model",
        f"{own}:tiny",
        "--data",
        f"{own}:loaders",
        "--lr",
        0.05,
        "--batch-size",
        5,
    )
    losses = [
        [[epoch["train_loss"] for epoch in run["epochs"]] for run in each["runs"]]
        for each in (results, loaders)
    ]
    assert losses[0] == losses[1]


@pytest.mark.whole
def test_maps_of_labels_are_counted_label_by_label(own, tmp_path):
    results = train(
        tmp_path / "a",
        "--model",
        f"{own}:segmenter",
        "--data",
        f"{own}:maps",
        "--lr",
        0.1,
        "--batch-size",
        4,
    )
    assert 50 < results["runs"][0]["epochs"][-1]["accuracy"] <= 100


@pytest.mark.whole
def test_weights_are_what_training_starts_from(own, tmp_path):
    arguments = Config(model=f"{own}:tiny"), sources.load_own_data(f"{own}:data")
    model = sources.build_network(*arguments)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pt")
    for name in ("w.pt", "checkpoint.pt"):
        loaded = sources.build_network(
            Config(model=f"{own}:tiny", weights=str(tmp_path / name)), arguments[1]
        )
        assert all(
            torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True)
        )
    results = train(
        tmp_path / "a",
        "--model",
        f"{own}:tiny",
        "--data",
        f"{own}:data",
        "--weights",
        tmp_path / "w.pt",
        "--lr",
        1e-9,
    )
    logits = model(arguments[1].test.inputs)
    right = 100 * (logits.argmax(1) == arguments[1].test.labels).float().mean().item()
    assert results["runs"][0]["epochs"][0]["accuracy"] == pytest.approx(right)


def test_torchvision_s_networks_go_by_their_names(monkeypatch, tmp_path):
    def get_model(name, weights, num_classes):
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))

    fake = types.SimpleNamespace(list_models=lambda: ["resnet50", "vit_b_16"], get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", fake)
    sources.check_model("resnet50")
    with pytest.raises(ValueError, match=r"got 'resnet51'; near to it: resnet50"):
        sources.check_model("resnet51")
    assert (
        "of 3 channels for torchvision's resnet50, but digits has (1, 32, 32)"
        in run("train", "--model", "resnet50").output
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--model vgg", "got 'vgg'; torchvision, which might have it, cannot be imported"),
        ("--model resnet8", "near to it: resnet18"),
        (
            "--model own_networks:",
            "expected a factory of a network as package.module:name, but got 'own_networks:'",
        ),
        ("--model no_such_module:tiny", "there is no module no_such_module"),
        ("--model own_networks:tini", "own_networks has no tini; there are tiny"),
        (
            "--model own_networks:number",
            "expected a factory of a network that can be called, but own_networks:number is 5",
        ),
        (
            "--model own_networks:three",
            "expected own_networks:three to return a torch.nn.Module, but got 3",
        ),
        ("--model own_networks:fails", "it raised RuntimeError: no GPU here"),
        (
            "--model own_networks:other --data own_networks:data",
            "to take inputs of shape (2, 2, 3), but it raised",
        ),
        (
            "--model own_networks:tiny",
            "expected own_networks:tiny to take inputs of shape (2, 1, 32, 32), but it raised",
        ),
        (
            "--data own_networks:data",
            "expected images of shape (C, 32, 32) for lenet5, but own_networks:data has (2, 3)",
        ),
        (
            "--data own_networks:one --model own_networks:tiny",
            "training data of own_networks:one as a pair of tensors, a data set or an iterable",
        ),
        ("--data own_networks:three", "expected own_networks:three to return (train, test), each"),
        ("--data own_networks:float_labels", "with integers as labels, but got torch.float32"),
        (
            "--data own_networks:fewer_labels",
            "a label for each input, but got inputs of (5, 6) and labels of (4,)",
        ),
        (
            "--data own_networks:nothing",
            "of at least one input, but got inputs of (0, 4) and labels of (0,)",
        ),
        ("--data own_networks:nan_inputs", "with finite inputs, but got 30 that are not"),
        ("--data own_networks:data --dataset mnist", "expected --dataset or --data, but got both"),
        ("--weights none.pt", "File 'none.pt' does not exist"),
        (
            "--weights own_networks.py",
            "that torch.save or safetensors wrote, but own_networks.py holds something else; "
            "save model.state_dict()",
        ),
        (
            "--weights words.txt",
            "that torch.save or safetensors wrote, but words.txt holds something else; save "
            "model.state_dict()",
        ),
        (
            "--weights words.safetensors",
            "wrote, but words.safetensors holds something else (Error while deserializing header",
        ),
        (
            "--weights other.pt",
            "expected the weights of LeNet5, but other.pt has others: Missing key",
        ),
    ],
)
def test_what_is_wrong_is_said_before_any_long_work(own, options, message, tmp_path):
    torch.save(nn.Linear(4, 3).state_dict(), tmp_path / "other.pt")
    for name in ("words.txt", "words.safetensors"):
        (tmp_path / name).write_text("hello world\n")
    result = run("train", *options.split())
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.split()) and "epoch" not in result.output


@pytest.mark.whole
def test_networks_of_one_kind_of_layer_round_and_those_of_none_are_refused(own, tmp_path):
    results = train(
        tmp_path / "a",
        "--model",
        f"{own}:tiny",
        "--data",
        f"{own}:data",
        "--recipe",
        "mixed",
        "--recipe",
        "ptq",
        "--recipe",
        "weights",
    )
    assert [(run["dtype"], run["recipe"]) for run in results["runs"]] == [("float32", "all")] + [
        ("posit16es2", recipe) for recipe in ("mixed", "ptq", "weights")
    ]
    result = run("train", "--model", f"{own}:bare", "--data", f"{own}:data", "--recipe", "qat")
    assert (
        f"expected a network with Conv2d or Linear layers for --recipe qat, but {own}:bare has none"
        in " ".join(result.output.split())
    )
