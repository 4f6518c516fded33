"""The data sets of the training command: digits, IDX files, CIFAR batches, and errors of damaged
ones."""

import gzip
import os
import pickle
import struct
import sys
import types

import numpy as np
import pytest
import torch

from torch_dtypes.workbench.training.data import Split, load_dataset, read_cifar_batch, read_idx

pytestmark = pytest.mark.usefixtures("one_thread")


# Data sets


def test_digits_is_deterministic_and_enlarged():
    from sklearn.datasets import load_digits

    first, second = load_dataset("digits"), load_dataset("digits")
    assert first.channels == 1
    assert (len(first.train), len(first.test)) == (1437, 360)
    assert first.train.inputs.shape == (1437, 1, 32, 32)
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert torch.equal(first.test.labels, second.test.labels)
    assert first.test.labels.bincount(minlength=10).min() >= 20  # every class is tested
    # Every image of the source is in exactly one split: a bilinear corner is the source's corner.
    source = load_digits()
    order = np.random.RandomState(0).permutation(1797)
    pixels = torch.cat([first.train.inputs, first.test.inputs])
    labels = torch.cat([first.train.labels, first.test.labels])
    assert labels.tolist() == source.target[order].tolist()
    corners = np.rint(source.images[order][:, ::7, ::7] * 255 / 16)
    assert pixels[:, 0, ::31, ::31].tolist() == corners.tolist()


def test_batch_scales_to_unit_interval_and_enlarges():
    split = Split(
        torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1).repeat(1, 3, 32, 32),
        torch.tensor([7, 8, 9]),
    )
    images, labels = split.batch(torch.tensor([2, 1]))
    assert images.dtype == torch.float32 and images.shape == (2, 3, 32, 32)
    assert images[:, 0, 0, 0].tolist() == [1.0, torch.tensor(51 / 255).item()]
    assert labels.tolist() == [9, 8]


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
@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")]
)
def test_idx_data_sets(tmp_path, name, folder, suffix):
    arrays = write_mnist(tmp_path / folder / "raw", suffix)
    data = load_dataset(name, tmp_path)
    for split, (images, labels) in ((data.train, arrays["train"]), (data.test, arrays["t10k"])):
        padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
        assert split.inputs[:, 0].tolist() == padded.tolist()
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
    with pytest.raises(
        FileNotFoundError, match=r"found no data_batch_1, .*test_batch; put them there"
    ):
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
        (
            "train-images-idx3-ubyte",
            np.zeros((6, 20, 28)),
            r"expected images of shape \(N, 28, 28\)",
        ),
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
    """Write six batches of two images in the official protocol; return pixels and labels of all."""
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
    both = torch.cat([data.train.inputs, data.test.inputs])
    assert both.flatten(1).tolist() == pixels.tolist()
    assert both[3, 2, 5, 7] == pixels[3, 2 * 1024 + 5 * 32 + 7]  # channel, row, column
    assert data.train.labels.tolist() + data.test.labels.tolist() == labels


def test_cifar_batch_in_fortran_order_and_with_text_keys(tmp_path):
    array = np.asfortranarray(np.arange(2 * 3072).reshape(2, 3072) % 251, dtype=np.uint8)
    (tmp_path / "x").write_bytes(pickle.dumps({"labels": [1, 2], "data": array}, protocol=2))
    assert read_cifar_batch(tmp_path / "x").inputs.flatten(1).tolist() == array.tolist()


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
    assert split.labels.tolist() == [3] and bytes(split.inputs.flatten().tolist()) == pixels


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
        (
            {b"labels": [], b"data": np.zeros((1, 3072), np.uint8)},
            "expected a list of labels 0 to 9",
        ),
        (
            {b"labels": [10], b"data": np.zeros((1, 3072), np.uint8)},
            "expected a list of labels 0 to 9",
        ),
        (
            {b"labels": [1], b"data": np.zeros((2, 3072), np.uint8)},
            r"expected data of shape \(1, 3072\)",
        ),
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
    with pytest.raises(
        ModuleNotFoundError, match=r"--download needs torchvision, .*pip install torchvision"
    ):
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
