"""``torch-dtypes bench --model``: a step of a user's own network, by format, layer and operator."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from command_line import command as run
from torch import nn

from torch_dtypes.workbench.bench import own_command, own_layers, own_operators, own_report
from torch_dtypes.workbench.bench.measuring import NotMeasuredError
from torch_dtypes.workbench.bench.memory import run_process
from torch_dtypes.workbench.bench.own_model import (
    Cost,
    OwnModel,
    build_case,
    run_step,
    save_case,
    take_batch,
)
from torch_dtypes.workbench.training.recipes import Trial
from torch_dtypes.workbench.training.records import Config
from torch_dtypes.workbench.training.sources import load_own_batch

MODULE = """
import torch
from torch import nn


def batch():
    return torch.ones(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


def build():
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)), batch()


def alone():
    return nn.Linear(4, 3)


def data():
    return batch(), batch()


def no_batch():
    return nn.Linear(4, 3), 5


def three():
    return 3


def other_inputs():
    return nn.Linear(7, 3), batch()


class OnlyFloat32(nn.Linear):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError("no such kernel")
        return super().forward(x)


def only_float32():
    return OnlyFloat32(4, 3), batch()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return the name of a user's module in the current folder."""
    (tmp_path / "own_steps.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    yield "own_steps"
    sys.modules.pop("own_steps", None)


def test_a_step_of_an_own_network_is_measured(own, tmp_path, monkeypatch):
    monkeypatch.setattr(own_command, "run_process", lambda path, what: {"peak": 1 << 20})
    options = "--dtype posit16es2 --dtype bf16 --threads 1 --rounds 2 --quick --out a".split()
    result = run("bench", "--model", f"{own}:build", *options, "--markdown", "a.md")
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "a" / "bench.json").read_text())
    assert list(data["costs"]) == ["float32", "posit16es2", "bf16"]
    assert (data["batch_size"], data["parameters"], data["threads"]) == (6, 53, 1)
    for cost in data["costs"].values():
        assert len(cost["steps"]) == 2 and cost["peak"] == 1 << 20
        assert {layer for layer, *_ in cost["layers"]} == {
            "",
            "0",
            "1",
            "2",
            "(loss)",
            "(optimizer)",
        }
        assert "aten::native_layer_norm" in cost["operators"]
    words = " ".join(result.output.split())
    assert "% of the step in posit16es2, " in words and "times float32's" in words
    assert "| layer | kind |" in (tmp_path / "a.md").read_text()
    page = (tmp_path / "a" / "bench.html").read_text()
    assert page.count("<svg") == 2 and "LayerNorm" in page


@pytest.mark.whole
def test_memory_of_an_own_network_is_measured_in_a_process(own, tmp_path):
    data = take_batch(load_own_batch(f"{own}:build"), 6)
    path = tmp_path / "case.pt"
    save_case(path, Config(f"{own}:build"), data, Trial("master", torch.bfloat16, "bf16"))
    assert run_process(str(path), what="it")["peak"] >= 0
    save_case(path, Config(f"{own}:three"), data, Trial("all", torch.float32))
    with pytest.raises(NotMeasuredError, match=r"memory of it .* own_steps:three to return a"):
        run_process(str(path), what="it")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("own_steps:three", "to return a torch.nn.Module, or (module, (inputs, labels)), but got"),
        ("own_steps:no_batch", "the batch of own_steps:no_batch as a pair of tensors"),
        ("own_steps:none", "expected a factory of a network, but own_steps has no none"),
        ("own_steps:other_inputs", "to take inputs of shape (2, 4), but it raised"),
        ("own_steps:build --batch-size 7", "expected --batch-size of at most 6"),
        ("own_steps:only_float32", "training step in posit16es2, but it raised TypeError: no such"),
        ("own_steps:build --suite casts", "expected --suite without --model"),
        ("own_steps:build --threads 1 --threads 2", "expected one --threads with --model"),
        ("own_steps:build --dtype mxfp4", "blocks and integers are for --recipe"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(own, options, message):
    result = run("bench", "--model", *options.split(), "--quick")
    assert result.exit_code in (1, 2) and message in " ".join(result.output.split())


def test_options_of_a_network_need_one():
    result = run("bench", "--recipe", "mixed")
    assert result.exit_code == 2 and "expected --recipe with --model" in result.output


class _Work(torch.autograd.Function):
    """The identity, which takes a second forward and ten backward, on a clock."""

    @staticmethod
    def forward(ctx, x, clock):
        ctx.clock = clock
        clock.now += 1
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.now += 10
        return gradient, None


class _Layer(nn.Module):
    def __init__(self, clock, times):
        super().__init__()
        self.clock, self.times, self.weight = clock, times, nn.Parameter(torch.ones(1))

    def forward(self, x):
        for _ in range(self.times):
            x = _Work.apply(x * self.weight, self.clock)
        return x


class _Block(nn.Module):
    """A residual block: its own work is once the sum's."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.one, self.two = clock, _Layer(clock, 1), _Layer(clock, 2)

    def forward(self, x):
        return _Work.apply(x + self.two(nn.functional.relu(self.one(x))), self.clock)


def test_the_time_of_a_step_counts_to_the_innermost_layer(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(own_layers.time, "perf_counter", lambda: clock.now)
    model = nn.Sequential(_Layer(clock, 3), nn.ReLU(inplace=True), _Block(clock))
    optimizer = SimpleNamespace(
        zero_grad=lambda: None, step=lambda: setattr(clock, "now", clock.now + 100)
    )
    case = {
        "model": model,
        "optimizer": optimizer,
        "images": torch.ones(2),
        "labels": None,
        "cross_entropy": lambda outputs, labels: _Work.apply(outputs, clock).sum(),
    }
    seconds = own_layers.layer_seconds(case, run_step, 2)
    assert {place: s for place, s in seconds.items() if s} == {
        ("0", "forward"): 3,
        ("0", "backward"): 30,
        ("2", "forward"): 1,
        ("2", "backward"): 10,
        ("2.one", "forward"): 1,
        ("2.one", "backward"): 10,
        ("2.two", "forward"): 2,
        ("2.two", "backward"): 20,
        ("(loss)", "forward"): 1,
        ("(loss)", "backward"): 10,
        ("(optimizer)", "optimizer"): 100,
    }
    assert not any(module._forward_hooks for module in model.modules())


def test_decoding_counts_to_its_operator(own):
    data = load_own_batch(f"{own}:build")
    case = build_case(Config(f"{own}:build"), data, Trial("all", torch.posit16es2))
    seconds = own_operators.operator_seconds(case, run_step, 1)
    assert seconds["aten::native_layer_norm"] > 0
    assert "formats::encode" not in seconds


def test_sentences_name_the_operators_that_cost_and_add_most():
    costs = {
        "float32": Cost([(1.0, 1.0, 2.0)], {}, {"a": 2.0, "b": 1.0, "c": 1.0}, 1 << 20),
        "q43": Cost([(2.0, 2.0, 4.0)], {}, {"a": 3.0, "b": 2.5, "d": 0.5}, 1 << 20),
    }
    result = OwnModel(Config("mine:build"), "mine:build", 7, 1, 1, costs, {"": "Linear"})
    assert own_report.sentences(result)[1:] == [
        "a takes 50 % of the step in q43, 1.50 times float32's.",
        "b adds most to it: 38 % of float32's step.",
    ]
    assert result.as_json()["costs"]["q43"]["passes"] == {
        "forward": 2.0,
        "backward": 2.0,
        "optimizer": 4.0,
    }
