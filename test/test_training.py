"""Tests of the training command's parts: networks, data sets, loop and report."""

import dataclasses
import gzip
import json
import math
import os
import pickle
import struct
import sys
import types
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from torch_dtypes.training import data as data_module
from torch_dtypes.training import loop, report
from torch_dtypes.training.data import Dataset, Split, load_dataset, read_cifar_batch, read_idx
from torch_dtypes.training.loop import Config, Epoch, Run, evaluate, resolve_dtype, train
from torch_dtypes.training.models import AlexNet, build_model


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Networks


@pytest.mark.parametrize(
    ("name", "channels", "size", "parameters"),
    [
        ("lenet5", 1, 32, 61_706),
        ("lenet5", 3, 32, 61_706 + 2 * 25 * 6),
        ("cifarnet", 3, 32, 145_578),
        ("alexnet", 3, 32, 28_714_826),
        ("alexnet", 3, 224, 57_044_810),
        ("resnet18", 3, 32, 11_173_962),
        ("resnet18", 1, 32, 11_173_962 - 2 * 9 * 64),
    ],
)
def test_model_shape_and_parameters(name, channels, size, parameters, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with torch.device("meta"):
        model = build_model(name, channels, image_size=size)
        logits = model(torch.empty(2, channels, size, size))
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
    convolution = build_model("resnet18", 3).features[5].residual[0]  # 64 to 128 channels: fan-in and fan-out differ
    assert convolution.weight.shape == (128, 64, 3, 3)
    assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)


@pytest.mark.parametrize("name", ["lenet5", "cifarnet", "resnet18"])
def test_model_depends_on_the_seed_alone(name):
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(next(build_model(name, 1).parameters()))
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def fake_torchvision(monkeypatch, **models):
    """Puts a module with just these functions in torchvision's place; with none, a broken one."""
    fake = types.ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    monkeypatch.setitem(sys.modules, "torchvision.models", types.SimpleNamespace(**models))


def test_alexnet_is_torchvision_s_at_224_where_it_can_be_imported(monkeypatch):
    fake_torchvision(monkeypatch, alexnet=lambda weights, num_classes: (weights, num_classes))
    with torch.device("meta"):
        assert build_model("alexnet", 3, 7, 224) == (None, 7)
        assert type(build_model("alexnet", 1, 7, 224)) is type(build_model("alexnet", 3, 7, 32)) is AlexNet
        fake_torchvision(monkeypatch)
        assert type(build_model("alexnet", 3, 7, 224)) is AlexNet


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vgg", 1, 10, 32), "expected a model out of lenet5, .* but got 'vgg'"),
        (("lenet5", 1, 10, 224), "expected image_size 32 for lenet5, but got 224"),
        (("alexnet", 1, 10, 64), "expected image_size 32 or 224 for alexnet, but got 64"),
    ],
)
def test_build_model_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_model(*arguments)


# Data sets


def test_digits_is_deterministic_and_enlarged():
    from sklearn.datasets import load_digits

    first, second = load_dataset("digits"), load_dataset("digits")
    assert first.channels == 1
    assert (len(first.train), len(first.test)) == (1437, 360)
    assert first.train.pixels.shape == (1437, 1, 32, 32)
    assert torch.equal(first.train.pixels, second.train.pixels)
    assert torch.equal(first.test.labels, second.test.labels)
    assert first.test.labels.bincount(minlength=10).min() >= 20  # every class is tested
    # Every image of the source is in exactly one split: a bilinear corner is the source's corner.
    source = load_digits()
    order = np.random.RandomState(0).permutation(1797)
    pixels = torch.cat([first.train.pixels, first.test.pixels])
    labels = torch.cat([first.train.labels, first.test.labels])
    assert labels.tolist() == source.target[order].tolist()
    corners = np.rint(source.images[order][:, ::7, ::7] * 255 / 16)
    assert pixels[:, 0, ::31, ::31].tolist() == corners.tolist()


def test_batch_scales_to_unit_interval_and_enlarges():
    split = Split(torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1).repeat(1, 3, 32, 32),
                  torch.tensor([7, 8, 9]))  # fmt: skip
    images, labels = split.batch(torch.tensor([2, 1]))
    assert images.dtype == torch.float32 and images.shape == (2, 3, 32, 32)
    assert images[:, 0, 0, 0].tolist() == [1.0, torch.tensor(51 / 255).item()]
    assert labels.tolist() == [9, 8]
    assert split.batch(slice(None), 224)[0].shape == (3, 3, 224, 224)


def write_idx(path, array):
    array = np.asarray(array, dtype=np.uint8)
    raw = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_mnist(folder, suffix="", train=6, test=4):
    folder.mkdir(parents=True)
    rng = np.random.RandomState(3)
    arrays = {}
    for part, count in (("train", train), ("t10k", test)):
        arrays[part] = rng.randint(0, 256, (count, 28, 28)), np.arange(count) % 10
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", arrays[part][0])
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", arrays[part][1])
    return arrays


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_idx_data_sets(tmp_path, name, folder, suffix):
    arrays = write_mnist(tmp_path / folder / "raw", suffix)
    data = load_dataset(name, tmp_path)
    for split, (images, labels) in ((data.train, arrays["train"]), (data.test, arrays["t10k"])):
        padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
        assert split.pixels[:, 0].tolist() == padded.tolist()
        assert split.labels.tolist() == labels.tolist()


def test_samples_are_the_first(tmp_path):
    write_mnist(tmp_path / "MNIST" / "raw")
    data = load_dataset("mnist", tmp_path, train_samples=5, test_samples=2)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4] and data.test.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="expected between 1 and 6 training samples, but got 7"):
        load_dataset("mnist", tmp_path, train_samples=7)
    with pytest.raises(ValueError, match="expected between 1 and 4 test samples, but got 0"):
        load_dataset("mnist", tmp_path, test_samples=0)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"expected a dataset out of digits, .* but got 'svhn'"):
        load_dataset("svhn", tmp_path)
    write_mnist(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset("mnist", tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "MNIST" / "raw") in message and "--data-dir" in message
    assert "found no t10k-labels-idx1-ubyte (plain or .gz)" in message
    with pytest.raises(FileNotFoundError, match=r"found no data_batch_1, .*test_batch; put them there"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "starts with nothing"),
        (b"\0\0\x0d\1\0\0\0\1xxxx", "starts with 00 00 0d"),
        (b"\0\0\x08\3\0\0\0\1", "expected a header of 16 bytes, but .* ends after 8"),
        (b"\0\0\x08\1\0\0\0\5abc", r"expected 5 bytes of data for shape \(5,\), but .* has 3"),
        (b"\0\0\x08\1\0\0\0\2abc", "expected 2 bytes of data"),
    ],
)
def test_damaged_idx(tmp_path, raw, message):
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "x")
    whole = gzip.compress(raw)
    (tmp_path / "x.gz").write_bytes(whole)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "x.gz")
    for damaged in (whole[:-6], b"not gzip", whole[:12] + b"\xff" * (len(whole) - 12)):
        (tmp_path / "x.gz").write_bytes(damaged)
        with pytest.raises(ValueError, match="expected a complete gzip file"):
            read_idx(tmp_path / "x.gz")


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("train-images-idx3-ubyte", np.zeros((6, 20, 28)), r"expected images of shape \(N, 28, 28\)"),
        ("train-images-idx3-ubyte", np.zeros((0, 28, 28)), r"but .* has \(0, 28, 28\)"),
        ("t10k-labels-idx1-ubyte", np.zeros(3), r"expected 4 labels, but .* has shape \(3,\)"),
        ("train-labels-idx1-ubyte", np.full(6, 10), "expected labels 0 to 9, but .* has 10"),
    ],
)
def test_idx_files_that_do_not_fit(tmp_path, file, array, message):
    folder = tmp_path / "MNIST" / "raw"
    write_mnist(folder)
    write_idx(folder / file, array)
    with pytest.raises(ValueError, match=message):
        load_dataset("mnist", tmp_path)


def write_cifar(folder):
    """Six batches of two images in the official protocol; returns pixels and labels of all."""
    folder.mkdir(parents=True)
    rng = np.random.RandomState(5)
    pixels, labels = [], []
    for i, name in enumerate((*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")):
        array = rng.randint(0, 256, (2, 3072)).astype(np.uint8)
        batch = {b"batch_label": name.encode(), b"labels": [i, i + 1], b"data": array}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
        pixels.append(array)
        labels += [i, i + 1]
    return np.concatenate(pixels), labels


def test_cifar10(tmp_path):
    pixels, labels = write_cifar(tmp_path / "cifar-10-batches-py")
    data = load_dataset("cifar10", tmp_path)
    assert data.channels == 3 and (len(data.train), len(data.test)) == (10, 2)
    both = torch.cat([data.train.pixels, data.test.pixels])
    assert both.flatten(1).tolist() == pixels.tolist()
    assert both[3, 2, 5, 7] == pixels[3, 2 * 1024 + 5 * 32 + 7]  # channel, row, column
    assert data.train.labels.tolist() + data.test.labels.tolist() == labels


def test_cifar_batch_in_fortran_order_and_with_text_keys(tmp_path):
    array = np.asfortranarray(np.arange(2 * 3072).reshape(2, 3072) % 251, dtype=np.uint8)
    (tmp_path / "x").write_bytes(pickle.dumps({"labels": [1, 2], "data": array}, protocol=2))
    assert read_cifar_batch(tmp_path / "x").pixels.flatten(1).tolist() == array.tolist()


def test_cifar_batch_as_python_2_and_numpy_1_wrote_it(tmp_path):
    # The official files: text and array as Python 2 strings (opcodes U and T), old module names.
    pixels = bytes(i % 256 for i in range(3072))
    raw = (
        b"\x80\x02}(U\x06labels]K\x03aU\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        b"K\x00\x85U\x01b\x87R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00" + pixels + b"tbu."
    )
    (tmp_path / "x").write_bytes(raw)
    split = read_cifar_batch(tmp_path / "x")
    assert split.labels.tolist() == [3] and bytes(split.pixels.flatten().tolist()) == pixels


class _Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_malicious_cifar_batch_is_refused_before_it_runs(tmp_path):
    target = str(tmp_path / "owned")
    raw = pickle.dumps({b"labels": [0], b"data": _Attack(target)}, protocol=2)
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(ValueError, match=r"could not read .*: it asks for (posix|nt)\.mkdir"):
        read_cifar_batch(tmp_path / "x")
    assert not os.path.exists(target)
    pickle.loads(raw)
    assert os.path.exists(target)  # the attack is a real one


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1], "expected a dictionary, but .* holds a list"),
        ({b"data": np.zeros((1, 3072), np.uint8)}, "expected a list of labels 0 to 9"),
        ({b"labels": [], b"data": np.zeros((1, 3072), np.uint8)}, "expected a list of labels 0 to 9"),
        ({b"labels": [10], b"data": np.zeros((1, 3072), np.uint8)}, "expected a list of labels 0 to 9"),
        ({b"labels": [1], b"data": np.zeros((2, 3072), np.uint8)}, r"expected data of shape \(1, 3072\)"),
        ({b"labels": [1], b"data": b"abc"}, r"expected data of shape \(1, 3072\)"),
        ({b"labels": [1], b"data": np.zeros((1, 3072), np.int16)}, "expected an array of type u1"),
        ({b"labels": [1], b"data": np.zeros(1, object)}, "expected an array of type u1"),
        ({b"labels": [1], b"data": np.uint8(3)}, "it asks for numpy.*scalar"),
    ],
)
def test_damaged_cifar_batch(tmp_path, batch, message):
    (tmp_path / "x").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(ValueError, match=message):
        read_cifar_batch(tmp_path / "x")
    (tmp_path / "x").write_bytes(pickle.dumps(batch, protocol=2)[:-9])
    with pytest.raises(ValueError, match="could not read"):
        read_cifar_batch(tmp_path / "x")


def test_download_needs_torchvision_only_when_files_are_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ModuleNotFoundError, match=r"--download needs torchvision, .*pip install torchvision"):
        load_dataset("mnist", tmp_path, download=True)
    write_mnist(tmp_path / "MNIST" / "raw")
    assert len(load_dataset("mnist", tmp_path, download=True).train) == 6


def test_download_asks_torchvision_for_the_right_class(tmp_path, monkeypatch):
    def fetch(root, download):
        assert download and root == str(tmp_path)
        write_mnist(tmp_path / "FashionMNIST" / "raw")

    fake = types.ModuleType("torchvision")
    fake.datasets = types.SimpleNamespace(FashionMNIST=fetch)
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    assert len(load_dataset("fashion-mnist", tmp_path, download=True).test) == 4


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torch-dtypes\[train\]'"):
        load_dataset("digits")


# The loop


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def few_digits():
    return load_dataset("digits", train_samples=70, test_samples=40)


def figures(run):
    """All that a run measured except time."""
    return [dataclasses.replace(epoch, seconds=0.0) for epoch in run.epochs]


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
    def batch(self, index, image_size=32):
        self.seen.append(index.tolist())
        return super().batch(index, image_size)


def test_all_dtypes_start_alike_and_see_the_same_order(few_digits, monkeypatch):
    starts, orders, optimizers = {}, {}, {}
    build = loop.build_optimizer
    for dtype in (torch.float32, torch.bfloat16):

        def spy(config, parameters, dtype=dtype):
            parameters = list(parameters)
            starts[dtype] = [p.detach().clone() for p in parameters]
            optimizers[dtype] = build(config, parameters)
            return optimizers[dtype]

        monkeypatch.setattr(loop, "build_optimizer", spy)
        recorder = _Recorder(few_digits.train.pixels, few_digits.train.labels)
        object.__setattr__(recorder, "seen", orders.setdefault(dtype, []))
        train(Config(epochs=2), Dataset("digits", recorder, few_digits.test), dtype, 1)

    assert orders[torch.float32] == orders[torch.bfloat16]
    epochs = [list(chain(*orders[torch.float32][i : i + 3])) for i in (0, 3)]  # three batches make an epoch
    assert epochs[0] != epochs[1] and all(sorted(epoch) == list(range(70)) for epoch in epochs)
    assert len(starts[torch.float32]) == len(starts[torch.bfloat16]) == 10
    for wide, narrow in zip(starts[torch.float32], starts[torch.bfloat16], strict=True):
        assert torch.equal(wide.to(torch.bfloat16), narrow)
    # Weights, gradients and the optimizer's state are all in the dtype.
    for parameter, state in optimizers[torch.bfloat16].state.items():
        assert parameter.dtype == parameter.grad.dtype == torch.bfloat16
        assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.bfloat16


def test_lenet5_learns_the_digits(digits):
    run = train(Config(epochs=3), digits, torch.float32, 0)
    assert [epoch.epoch for epoch in run.epochs] == [1, 2, 3]
    assert run.epochs[-1].accuracy > 90 and run.diverged_at is None
    assert run.epochs[-1].train_loss < run.epochs[0].train_loss < math.log(10)


@pytest.mark.parametrize("name", ["cifarnet", "resnet18"])
def test_other_networks_train(few_digits, name):
    steps = []
    small = Dataset("digits", Split(*(t[:8] for t in vars(few_digits.train).values())), few_digits.test)
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
    with pytest.raises(ValueError, match="expected an optimizer out of adam, sgd, but got 'lion'"):
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
    loss, accuracy = evaluate(model, Split(pixels, labels), torch.float32)
    assert accuracy == 75.0
    right, wrong = math.log(math.e + 9) - 1, math.log(10)
    assert loss == pytest.approx(0.75 * right + 0.25 * wrong)


def test_divergence_is_recorded_and_ends_the_run(few_digits):
    # Adam's epsilon of 1e-8 is zero in float16, so its first steps divide zero by zero.
    steps, seen = [], []
    run = train(Config(epochs=3), few_digits, torch.float16, 0, on_step=steps.append, on_epoch=seen.append)
    assert run.diverged_at == 1 and seen == run.epochs and len(seen) == 1
    assert len(steps) == 1  # the second of the three steps of an epoch met the NaN, and there it ended
    record = json.loads(json.dumps(run.as_json(), allow_nan=False))
    assert record["diverged_at"] == 1
    assert record["epochs"][0]["train_loss"] is None and record["epochs"][0]["accuracy"] is None


def test_divergence_in_the_last_step_is_seen_by_the_test(few_digits):
    small = Dataset("digits", Split(*(t[:8] for t in vars(few_digits.train).values())), few_digits.test)
    run = train(Config(epochs=1, batch_size=8), small, torch.float16, 0)
    assert math.isfinite(run.epochs[0].train_loss) and run.diverged_at == 1


# The report


def make_run(dtype, seed, accuracies, diverged=False, seconds=2.0):
    run = Run(dtype, seed, [Epoch(i, 0.5, 0.6, a, seconds, False) for i, a in enumerate(accuracies, 1)])
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
    float32, posit, lost = report.summarize(example_runs())
    assert [s.dtype for s in (float32, posit, lost)] == ["float32", "posit16es2", "e4m1"]
    assert [stat.mean for stat in float32.accuracy] == [81.0, 92.0]
    assert float32.accuracy[0].std == pytest.approx(math.sqrt(2))
    assert float32.seconds.mean == 3.0 and float32.gap is None and float32.diverged == [(2, 2)]
    assert posit.gap.mean == -0.5  # seeds 0 and 1 only: float32 diverged with seed 2
    assert posit.gap.std == pytest.approx(math.sqrt(0.5))
    assert [stat.mean for stat in posit.accuracy] == [74.0, 92.0]
    assert lost.accuracy == [] and lost.gap is None and lost.seconds is None
    single = report.summarize(example_runs()[:1])[0]
    assert single.accuracy[0] == report.Stat(80.0, None) and single.accuracy[0].text(1) == "80.0"
    assert posit.gap.text(2, "+") == "-0.50 ± 0.71"


def test_epochs_shown():
    assert report.epochs_shown(3, 7) == [1, 2, 3]
    assert report.epochs_shown(30, 4) == [1, 11, 20, 30]
    assert report.epochs_shown(9, 1) == []


@pytest.mark.parametrize(("terminal", "width", "epochs"), [(False, 20, "12"), (True, 90, "12"), (True, 60, "")])
def test_table(terminal, width, epochs):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
    report.print_table(console, report.summarize(example_runs()), "lenet5 on digits")
    text = console.file.getvalue()
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    header = ["dtype", *(part for e in epochs for part in ("ep", e)), "final", "%", "gap", "s/epoch"]
    assert rows["dtype"] == header
    columns = ["74.0", "92.0"] if epochs else []
    assert rows["posit16es2"] == ["posit16es2", *columns, *"92.00 ± 2.65 -0.50 ± 0.71 3.00 ± 0.00".split()]
    assert "e4m1" in text and text.count("diverged at epoch 1") == 2
    plain = " ".join(text.split())
    assert "float32 diverged at epoch 2 with seed 2 (loss not finite); its row is the mean" in plain


def test_results_file(tmp_path):
    path = report.write_results(tmp_path, {"model": "lenet5"}, example_runs())
    results = json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN or Infinity
    assert sorted(os.listdir(tmp_path)) == ["results.json"]
    assert results["config"] == {"model": "lenet5"} and results["versions"]["torch"] == torch.__version__
    assert len(results["runs"]) == 7 and results["runs"][1]["epochs"][1]["accuracy"] == 89.0
    assert results["runs"][4]["epochs"][1]["accuracy"] is None
    assert results["summary"][1]["gap_to_float32"]["mean"] == -0.5


def many_runs():
    return [make_run(f"format{i}", 0, [80.0 + i / 10, 90.0 + i / 10]) for i in range(20)]


@pytest.mark.parametrize(
    "runs",
    [
        example_runs(),
        example_runs()[1:2],
        example_runs()[-1:],
        [make_run("float32", 0, [50.0])],
        [make_run("float32", 0, [100.0] * 3), make_run("q43", 0, [100.0] * 3)],
        many_runs(),
    ],
    ids=["several", "no baseline", "all diverged", "one epoch", "all equal", "many"],
)
def test_figure(tmp_path, runs):
    from matplotlib.image import imread

    path = report.write_figure(tmp_path, report.summarize(runs), "lenet5 on digits")
    assert path.name == "accuracy.png"
    image = imread(path)
    assert image.shape[:2] == (720, 1200)
    assert (image[..., :3] < 0.9).any(-1).mean() > 0.002  # something is drawn


def test_spread_keeps_order_and_distance():
    places = report.spread([0.5, 0.5, 0.98, 0.97, 0.1], gap=0.05)
    assert places[4] == 0.1 and places[2] == 1.0
    ordered = sorted(places)
    assert all(b - a > 0.05 - 1e-12 for a, b in pairwise(ordered))
    assert places[3] < places[2] and max(places) <= 1.0
    assert report.spread([0.2, 0.7], gap=0.05) == [0.2, 0.7]


def test_side_and_classes_agree_with_the_networks():
    assert data_module.SIDE == Config().image_size and data_module.CLASSES == 10
