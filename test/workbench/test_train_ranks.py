"""torch-dtypes train on several processes: one training, one report."""

import contextlib
import io
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together
from torch import nn
from torch.utils._pytree import tree_map

import torch_dtypes
from torch_dtypes.workbench.training import loop
from torch_dtypes.workbench.training.data import Dataset, Examples
from torch_dtypes.workbench.training.loop import Config, Training
from torch_dtypes.workbench.training.ranks import Ranks

click = pytest.importorskip("click", reason="the command line needs click")

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.filterwarnings("ignore:.*is deprecated.*"),  # PyTorch's own
]
E5M7 = torch.e5m7


class Network(nn.Module):
    """Layers whose statistics and random words differ by rank, and one that is not used."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3)
        )
        self.never = nn.Linear(2, 2)

    def forward(self, x):
        return self.layers(x)


def network():
    return Network()


def single():
    """Each input has one feature, so every sum of a gradient has one term that is not 0, and rounds
    exactly."""
    return nn.Linear(16, 2, bias=False)


def features(size=64):
    """Build training and test data with every feature once in 16 images."""
    order = torch.cat(
        [torch.randperm(16, generator=torch.Generator().manual_seed(i)) for i in range(size // 16)]
    )
    return Dataset("features", *(Examples(torch.eye(16)[order], order % 2) for _ in range(2)), 2)


def pairs():
    made = features()
    return (made.train.inputs, made.train.labels), (made.test.inputs, made.test.labels)


def noise(train=21, test=600):
    """Build data whose last batch of 8 has five images, and whose test has three batches."""
    g = torch.Generator().manual_seed(0)
    parts = (
        Examples(torch.randn(size, 4, generator=g), torch.randint(3, (size,), generator=g))
        for size in (train, test)
    )
    return Dataset("noise", *parts, 3)


def config(model=network, **changes):
    return Config(
        f"{__name__}:{model.__name__}",
        **{"epochs": 2, "batch_size": 8, "device": DEVICE, **changes},
    )


def figures(run):
    return [(e.train_loss, e.test_loss, e.accuracy) for e in run.epochs]


def same_everywhere(value):
    """Check that all ranks have the same bits."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    file = [io.BytesIO() for _ in everyone]
    for each, into in zip(everyone, file, strict=True):
        # Only the GPU's number may differ.
        torch.save(tree_map(lambda v: v.cpu() if isinstance(v, torch.Tensor) else v, each), into)
    assert len({into.getvalue() for into in file}) == 1


# ---- one training ----


def trains(rank):
    ranks = Ranks(rank, 2)

    # If the format has every number of a step, halves of a batch give the bits of the whole.
    with torch_dtypes.accumulate("exact"):
        settings, data = (
            config(single, optimizer="sgd", lr=0.5, momentum=0.5, batch_size=4, epochs=3),
            features(),
        )
        alone, two = (
            Training(settings, data, E5M7, 3),
            Training(settings, data, E5M7, 3, ranks=ranks),
        )
        alone.go(), two.go()
    for name, value in alone.model.state_dict().items():
        assert torch.equal(value, two.model.state_dict()[name]), name
    assert figures(two.run)[-1][1:] == figures(alone.run)[-1][1:]
    # The mean of rounded losses of half a batch each; a GPU adds them up in another order.
    near = 1e-6 if DEVICE == "cpu" else 2**-8
    assert two.run.epochs[0].train_loss == pytest.approx(alone.run.epochs[0].train_loss, rel=near)

    # Uneven shares are weighed, even if one rank has no image: near to one process.
    for size in (21, 17):
        settings, data = config(single, optimizer="sgd", epochs=2), features()
        data = Dataset("odd", data.train.first(size), data.test, 2)
        alone, two = (
            Training(settings, data, torch.float32, 0),
            Training(settings, data, torch.float32, 0, ranks=ranks),
        )
        alone.go(), two.go()
        torch.testing.assert_close(two.model.weight, alone.model.weight, rtol=1e-5, atol=1e-7)
        assert figures(two.run) == [pytest.approx(each, rel=1e-5) for each in figures(alone.run)]

    # With every recipe, all ranks end with the same bits, in their own tests and the shared ones.
    stochastic, blocks = torch_dtypes.dtype("q52_stochastic"), torch_dtypes.target("mxfp8_e4m3")
    for recipe, number in (
        ("all", stochastic),
        ("master", torch.posit16es2),
        ("qat", torch_dtypes.target("int8")),
        ("mixed", blocks),
    ):
        settings = config(
            loss_scale="dynamic" if recipe == "master" else None,
            state="e6m9" if recipe == "master" else None,
        )
        training = Training(settings, noise(), number, 1, recipe, ranks, find_unused=True)
        training.go()
        state = training.state_dict()
        del state["seconds"], state["random"], state["epochs"]
        same_everywhere((state, figures(training.run)))
        assert not torch.equal(*(words[0] for words in state["random_of_ranks"]))
        if number is not stochastic:
            found = loop.evaluate(training.model, training.data.test, training.dtype, DEVICE)
            assert found == (training.run.epochs[-1].test_loss, training.run.epochs[-1].accuracy)

    # One rank asks to stop: all stop, and continue from there.
    settings = config(epochs=3)
    whole = Training(settings, noise(), torch.q43, 0, ranks=ranks, find_unused=True)
    whole.go()
    asked = []
    part = Training(settings, noise(), torch.q43, 0, ranks=ranks, find_unused=True)
    part.go(should_stop=lambda: asked.append(0) or (rank == 1 and len(asked) == 4))
    assert part.run.interrupted and part.steps_done == 4
    state = part.state_dict()
    again = Training(settings, noise(), torch.q43, 0, ranks=ranks, find_unused=True)
    again.load_state_dict(state)
    again.go()
    assert figures(again.run) == figures(whole.run)
    if rank == 0:
        torch.save(state, os.environ["TORCH_DTYPES_TEST_FILE"])

    # One rank's loss is not finite: all end there, and know its reason.
    data = noise(8)
    data.train.inputs[torch.randperm(8, generator=torch.Generator().manual_seed(0))[1]] = 1e30
    training = Training(config(single_of_four), data, torch.float16, 0, ranks=ranks)
    training.go()
    assert training.run.diverged_at == 1
    same_everywhere(training.run.divergence)
    assert "not finite" in training.run.divergence or "inf" in training.run.divergence

    # An error of one rank's command line ends all, and is shown once.
    from torch_dtypes.workbench.training.together import agree

    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as ended:
        agree(ranks, click.UsageError("no such file") if rank == 1 else None)
    assert ended.value.code == 2
    assert (rank == 0) == ("rank 1 on" in said.getvalue() and "no such file" in said.getvalue())
    agree(ranks)


def single_of_four():
    return nn.Linear(4, 3)


def test_two_processes_are_one_training(tmp_path, monkeypatch):
    file = tmp_path / "state.pt"
    monkeypatch.setenv("TORCH_DTYPES_TEST_FILE", str(file))
    together(trains, tmp_path)
    alone = Training(config(epochs=3), noise(), torch.q43, 0)
    alone.load_state_dict(torch.load(file, weights_only=True))
    assert alone.steps_done == 4
    run = alone.go()
    assert (
        len(run.epochs) == 3 and run.diverged_at is None and math.isfinite(run.epochs[-1].test_loss)
    )


# ---- one command ----

OPTIONS = [
    "train",
    "--model",
    "test_train_ranks:single",
    "--data",
    "test_train_ranks:pairs",
    "--dtype",
    "e5m7",
    "--optimizer",
    "sgd",
    "--lr",
    "0.5",
    "--batch-size",
    "4",
    "--epochs",
    "2",
    "--accumulate",
    "exact",
    "--no-baseline",
    "--threads",
    "1",
    "--device",
    DEVICE,
]


def environment():
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here, here.parent, here.parent / "support")))
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": path,
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }


def torchrun(*args):
    return [sys.executable, "-m", "torch.distributed.run", *args, "-m", "torch_dtypes"]


def run(command, *args, **options):
    return subprocess.run(
        [*command, *args], env=environment(), capture_output=True, text=True, timeout=240, **options
    )


def results(folder):
    return json.loads((folder / "results.json").read_text())


@pytest.mark.whole
def test_torchrun_gives_one_report(tmp_path):
    out = tmp_path / "out"
    did = run(torchrun("--nproc-per-node", "2"), *OPTIONS, "--out", out)
    assert did.returncode == 0, did.stderr
    lines = did.stdout.splitlines()
    assert lines[0].endswith(f"batch 4, {DEVICE}, 2 processes of 1 threads")
    assert [line.split(":")[0] for line in lines[1:3]] == [
        "e5m7 seed 0 epoch 1/2",
        "e5m7 seed 0 epoch 2/2",
    ]
    assert (
        sum(line.startswith("Written:") for line in lines)
        == sum(line.split()[:1] == ["dtype"] for line in lines)
        == 1
    )
    figures = itertools.product(("accuracy", "loss"), ("png", "svg", "pdf"))
    files = {"results.json", "report.html", *map(".".join, figures)}
    assert {path.name for path in out.iterdir() if path.is_file()} == files and len(
        list((out / "cells").iterdir())
    ) == 1
    found = results(out)
    assert found["config"]["ranks"] == 2 and len(found["runs"]) == 1
    with torch_dtypes.accumulate("exact"):
        alone = loop.train(
            config(single, optimizer="sgd", lr=0.5, batch_size=4), features(), E5M7, 0
        )
    for mine, one in zip(found["runs"][0]["epochs"], alone.epochs, strict=True):
        assert (mine["test_loss"], mine["accuracy"]) == (one.test_loss, one.accuracy)
        # The mean of rounded losses of half a batch each.
        assert mine["train_loss"] == pytest.approx(one.train_loss, rel=0.01)
    again = run(torchrun("--nproc-per-node", "2"), *OPTIONS, "--out", out)
    assert (
        again.returncode == 0
        and "1 runs were done before." in again.stdout
        and "epoch" not in again.stdout.split("dtype")[0]
    ), again.stderr


@pytest.mark.parametrize("command", ["show e5m7", "bench --list"])
def test_other_commands_are_one_process_s(command, monkeypatch):
    from click.testing import CliRunner

    from torch_dtypes import cli

    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    did = CliRunner().invoke(cli.group(), command.split())
    assert (
        did.exit_code == 2
        and f"expected one process for {command.split()[0]}, but got 2" in did.output
    )


def build_failing():
    class Failing(nn.Linear):
        def forward(self, x):
            if (
                self.training
                and len(x) == 2
                and os.environ["RANK"] == "1"
                and next(self.calls) == 3
            ):
                raise RuntimeError("out of memory here")
            return super().forward(x)

    made = Failing(16, 2)
    made.calls = iter(range(100))
    return made


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others():
    options = [word.replace(":single", ":build_failing") for word in OPTIONS]
    did = run(torchrun("--nproc-per-node", "2"), *options)
    errors = [line for line in did.stderr.splitlines() if line.startswith("Error:")]
    assert did.returncode == 1 and any(
        "rank 1 on" in line and "out of memory here" in line for line in errors
    ), did.stderr
    assert all(
        "out of memory here" in line
        or "lost another rank, which has ended or cannot be reached" in line
        for line in errors
    )


# Two network namespaces at the ends of a virtual cable act as two hosts: the parent, and one
# process within it.
TWO_HOSTS = """
set -e
ip link set lo up
unshare -n sleep 600 & other=$!
trap "kill $other" EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add cable0 type veth peer name cable1
ip link set cable1 netns $other
ip addr add 10.83.0.1/24 dev cable0; ip link set cable0 up
inside() { nsenter --net=/proc/$other/ns/net "$@"; }
inside ip link set lo up; inside ip addr add 10.83.0.2/24 dev cable1; inside ip link set cable1 up
[ $# = 0 ] && exit
common="--nnodes 2 --nproc-per-node 1 --master-addr 10.83.0.1 --master-port 29511"
run="$1 -m torch.distributed.run $common"; shift
inside env GLOO_SOCKET_IFNAME=cable1 $run --node-rank 1 -m torch_dtypes "$@" & second=$!
GLOO_SOCKET_IFNAME=cable0 $run --node-rank 0 -m torch_dtypes "$@"
wait $second
"""


@pytest.mark.slow
def test_two_hosts(tmp_path):
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "bash"))):
        pytest.skip("network namespaces need unshare, nsenter and ip")
    hosts = ["unshare", "--user", "--map-root-user", "--net", "bash", "-c", TWO_HOSTS, "hosts"]
    tried = run(hosts)
    if tried.returncode:
        pytest.skip(f"this machine allows no network namespaces: {tried.stderr.strip()}")
    did = run(hosts, sys.executable, *OPTIONS, "--out", tmp_path)
    assert did.returncode == 0, did.stderr
    assert sum(line.startswith("Written:") for line in did.stdout.splitlines()) == 1
    assert results(tmp_path)["config"]["ranks"] == 2
