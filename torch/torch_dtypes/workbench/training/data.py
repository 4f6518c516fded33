"""Data sets for the training command; images are read without torchvision.

Sources of the file formats: the IDX description at the end of LeCun's MNIST page (also
used by Xiao, Rasul and Vollgraf's Fashion-MNIST), and Krizhevsky's CIFAR-10 page for the
"python version" batches.
"""

import gzip
import math
import os
import pickle
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

_IMAGES = ("digits", "mnist", "fashion-mnist", "cifar10")
FROM_FILES = _IMAGES[1:]
DATASETS = (*_IMAGES, "topics")  # text.py has the last one

SIDE = 32  # all images are SIDE x SIDE
CLASSES = 10

_FOLDERS = {
    "mnist": "MNIST/raw",
    "fashion-mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
}
_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CIFAR_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_TORCHVISION_CLASSES = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar10": "CIFAR10"}


@dataclass(frozen=True)
class Examples:
    """Labelled inputs: float32 or integers of any shape ``(N, ...)``, and int64 labels ``(N,)``, or
    ``(N, ...)`` for maps of labels.
    """

    inputs: torch.Tensor
    labels: torch.Tensor

    def __len__(self):
        return len(self.labels)

    def batch(self, index):
        """Return the inputs and labels at ``index`` (any index of a tensor), as they are."""
        return self.inputs[index], self.labels[index]

    def first(self, count):
        """Return the first ``count`` inputs."""
        return type(self)(self.inputs[:count], self.labels[:count])

    @property
    def shape(self):
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])


class Split(Examples):
    """Labelled images, kept as bytes: uint8 of shape ``(N, C, 32, 32)``, a quarter of the memory of
    float32. Labels are int64, 0 to 9.
    """

    def batch(self, index):
        """Return the images (float32 in [0, 1]) and labels at ``index``."""
        return self.inputs[index].to(torch.float32) / 255, self.labels[index]


@dataclass(frozen=True)
class Guess:
    """The result of a network that ignores its input: the loss of equal odds, and the share of the
    most frequent class in percent."""

    classes: int
    accuracy: float

    @property
    def loss(self):
        """Cross-entropy of equal odds: the natural logarithm of the number of classes."""
        return math.log(self.classes)


@dataclass(frozen=True)
class Dataset:
    """A named pair of training and test :class:`Split` or :class:`Examples`, with labels below
    ``classes``. ``digest`` is the SHA-256 of a text, and None for other data."""

    name: str
    train: Examples
    test: Examples
    classes: int = CLASSES
    digest: str | None = None

    @property
    def is_text(self):
        """Whether labels are the next bytes of a text, so that a loss has a perplexity."""
        return self.digest is not None

    @property
    def shape(self):
        """Shape of one input."""
        return self.train.shape

    @property
    def channels(self):
        """Channels of every image: 1 for grey, 3 for colour."""
        return self.shape[0]

    @property
    def guess(self):
        """The :class:`Guess` for the test data."""
        counts = self.test.labels.flatten().bincount()
        return Guess(self.classes, 100 * counts.max().item() / counts.sum().item())

    def first(self, train_samples=None, test_samples=None):
        """Return the data set with its first samples only; ``None`` keeps all.

        Raises:
            ValueError: more samples than there are.
        """
        train, test = (
            _first(self.train, train_samples, "training"),
            _first(self.test, test_samples, "test"),
        )
        return replace(self, train=train, test=test)


def load_dataset(name, data_dir="data", train_samples=None, test_samples=None, download=False):
    """Load a data set of images, 32x32; the same call always gives the same
    tensors.

    ``digits`` comes with scikit-learn: 1,797 grey 8x8 images, enlarged bilinearly, 1,437 of them
    for training and always the same 360 for testing. The others are files in ``data_dir`` as
    torchvision lays them out; grey 28x28 images get a border of two zeros on each side.

    Args:
        data_dir: folder that holds ``MNIST/raw``, ``FashionMNIST/raw`` (IDX files, plain or
            ``.gz``) or ``cifar-10-batches-py``.
        train_samples, test_samples: keep only the first so many images; ``None`` keeps all.
        download: when files are missing, let torchvision fetch them into ``data_dir``.

    Raises:
        ValueError: for an unknown name, more samples than there are, or a damaged file.
        FileNotFoundError: when files are missing.
        ModuleNotFoundError: when scikit-learn (``digits``) or torchvision (``download``) is needed
            and missing.
    """
    if name not in _IMAGES:
        raise ValueError(f"expected a dataset out of {', '.join(DATASETS)}, but got {name!r}")
    if name == "digits":
        train, test = _load_digits()
    else:
        folder = Path(data_dir) / _FOLDERS[name]
        names = _CIFAR_FILES if name == "cifar10" else _IDX_FILES
        find = _find_plain if name == "cifar10" else _find_plain_or_gz
        paths = [find(folder, file) for file in names]
        if download and None in paths:
            _download(name, data_dir)
            paths = [find(folder, file) for file in names]
        if None in paths:
            raise FileNotFoundError(_missing_message(name, folder, names, paths))
        train, test = _load_cifar(paths) if name == "cifar10" else _load_idx_pairs(paths)
    return Dataset(name, train, test).first(train_samples, test_samples)


def _first(split, count, what):
    if count is None:
        return split
    if not 1 <= count <= len(split):
        raise ValueError(f"expected between 1 and {len(split)} {what} samples, but got {count}")
    return split.first(count)


def _load_digits():
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the digits data set comes with scikit-learn, which is not installed: pip install "
            "'torch-dtypes[train]'"
        ) from error
    digits = load_digits()
    # Values are 0..16 in the source.
    images = torch.from_numpy(digits.images).to(torch.float32).unsqueeze(1) / 16
    images = F.interpolate(images, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    pixels = (images * 255).round().to(torch.uint8)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    # The source is ordered by writer, so shuffle it before the split, by the legacy generator:
    # numpy has frozen its stream (NEP 19).
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(labels)))
    train, test = order[:1437], order[1437:]
    return Split(pixels[train], labels[train]), Split(pixels[test], labels[test])


def _find_plain(folder, name):
    return folder / name if (folder / name).is_file() else None


def _find_plain_or_gz(folder, name):
    return _find_plain(folder, name) or _find_plain(folder, name + ".gz")


def _missing_message(name, folder, names, paths):
    missing = ", ".join(file for file, path in zip(names, paths, strict=True) if path is None)
    or_gz = "" if name == "cifar10" else " (plain or .gz)"
    return (
        f"expected the {name} files in {os.path.abspath(folder)}, but found no {missing}{or_gz}; "
        f"put them there, name the folder above {_FOLDERS[name]} with --data-dir, "
        "or fetch them with --download (needs torchvision)"
    )


def _download(name, data_dir):
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError) as error:
        # A RuntimeError means a torchvision for another PyTorch.
        folder = os.path.abspath(Path(data_dir) / _FOLDERS[name])
        raise ModuleNotFoundError(
            f"--download needs torchvision, which cannot be imported ({error}): pip install "
            f"torchvision, or put the {name} files into {folder}"
        ) from error
    getattr(datasets, _TORCHVISION_CLASSES[name])(str(data_dir), download=True)


def read_idx(path):
    """Read an IDX file of unsigned bytes as a tensor, gzipped if the name ends in ``.gz``.

    The file has two zero bytes, a type code (8: unsigned byte) and the number of dimensions. Each
    dimension follows as a big-endian 32-bit integer, then the bytes, last index fastest.

    Raises:
        ValueError: a damaged file, or one of another type.
        OSError: the file cannot be opened.
    """
    path = Path(path)
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"expected a complete gzip file, but got {path}: {error}") from error
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise ValueError(
            f"expected an IDX file of bytes, which starts with 00 00 08, but {path} starts with "
            f"{raw[:3].hex(' ') or 'nothing'}"
        )
    header = 4 + 4 * raw[3]
    if len(raw) < header:
        raise ValueError(f"expected a header of {header} bytes, but {path} ends after {len(raw)}")
    shape = struct.unpack(f">{raw[3]}I", raw[4:header])
    size = math.prod(shape)
    if len(raw) - header != size:
        raise ValueError(
            f"expected {size} bytes of data for shape {shape}, but {path} has "
            f"{len(raw) - header}; fetch the file again"
        )
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)[header:].reshape(shape)


def _load_idx_pairs(paths):
    splits = []
    for images_path, labels_path in (paths[:2], paths[2:]):
        images, labels = read_idx(images_path), read_idx(labels_path)
        if images.ndim != 3 or images.shape[1:] != (28, 28) or len(images) == 0:
            raise ValueError(
                f"expected images of shape (N, 28, 28), but {images_path} has {tuple(images.shape)}"
            )
        if labels.shape != (len(images),):
            raise ValueError(
                f"expected {len(images)} labels, but {labels_path} has shape {tuple(labels.shape)}"
            )
        if labels.max() >= CLASSES:
            raise ValueError(
                f"expected labels 0 to {CLASSES - 1}, but {labels_path} has {int(labels.max())}"
            )
        splits.append(Split(F.pad(images.unsqueeze(1), (2, 2, 2, 2)), labels.to(torch.int64)))
    return splits


class _PickledDtype:
    """Stands for ``numpy.dtype`` in a pickle, and accepts only unsigned bytes."""

    def __init__(self, code, *_):
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"expected an array of type u1, but got {code!r}")

    def __setstate__(self, state):
        pass  # byte order and alignment, which a byte lacks


class _PickledArray:
    """Stands for a numpy array of bytes in a pickle."""

    shape, fortran, data = None, False, b""

    def __setstate__(self, state):
        _, self.shape, _, self.fortran, self.data = state

    def tensor(self):
        """Return the array as a uint8 tensor of its own memory."""
        flat = torch.frombuffer(bytearray(self.data), dtype=torch.uint8)
        return flat.reshape(self.shape[::-1]).T if self.fortran else flat.reshape(self.shape)


def _latin1(text, encoding):
    # Python 3 writes bytes so in the pickle protocol of the official files.
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"expected latin1, but got {encoding!r}")
    return text.encode("latin1")


_PICKLED_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _PickledArray(),  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _PickledArray(),  # numpy 2
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _PickledDtype,
    ("_codecs", "encode"): _latin1,
}


class _BatchUnpickler(pickle.Unpickler):
    """Unpickles a CIFAR batch without calling the functions that the file names. It knows only the
    names of a numpy array, and maps them to inert stand-ins."""

    def find_class(self, module, name):
        try:
            return _PICKLED_NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_cifar_batch(path):
    """Read one batch file of the "python version" of CIFAR-10 as a :class:`Split`, safely. A file
    that names objects other than byte arrays is refused before any of its code runs.

    Raises:
        ValueError: a damaged file, or one of another kind.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            batch = _BatchUnpickler(file, encoding="bytes").load()
        except Exception as error:  # a damaged pickle may raise nearly any error
            raise ValueError(
                f"expected a CIFAR-10 batch, but could not read {path}: {error}"
            ) from error
    if not isinstance(batch, dict):
        raise ValueError(f"expected a dictionary, but {path} holds a {type(batch).__name__}")
    data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
    if (
        not isinstance(labels, list)
        or not labels
        or not all(label in range(CLASSES) for label in labels)
    ):
        raise ValueError(
            f"expected a list of labels 0 to {CLASSES - 1}, but {path} has {str(labels)[:40]}"
        )
    expected = (len(labels), 3 * SIDE * SIDE)
    if (
        not isinstance(data, _PickledArray)
        or data.shape != expected
        or len(data.data) != math.prod(expected)
    ):
        raise ValueError(
            f"expected data of shape {expected}, but {path} has {getattr(data, 'shape', None)}"
        )
    return Split(data.tensor().reshape(-1, 3, SIDE, SIDE), torch.tensor(labels))


def _load_cifar(paths):
    *train, test = (read_cifar_batch(path) for path in paths)
    pixels = torch.cat([split.inputs for split in train])
    return Split(pixels, torch.cat([split.labels for split in train])), test
