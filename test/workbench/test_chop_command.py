"""``torch-dtypes chop``: files of numbers."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from command_line import command
from representatives import thin_out

from torch_dtypes import chop

A = np.float64([[1.3, 7.7], [300.0, 1e-9]])


def write(path):
    if path.suffix == ".npy":
        np.save(path, A.astype(np.float32))
    elif path.suffix == ".csv":
        np.savetxt(path, A, delimiter=",")
    elif path.suffix == ".mat":
        pytest.importorskip("scipy.io").savemat(path, {"A": A, "b": A[0], "name": "text"})
    else:
        A.tofile(path)


@pytest.mark.parametrize("kind", ["npy", "csv", "mat", "raw"])
def test_files(kind, tmp_path):
    source, out = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    write(source)
    result = command("chop", source, "--format", "q43", "--rounding", "4", "--out", out)
    assert result.exit_code == 0, result.output
    expected = chop(A, "q43", rounding="toward_zero")
    if kind == "npy":
        assert np.load(out).dtype == np.float32
        assert np.array_equal(np.load(out), expected)
    elif kind == "csv":
        assert np.array_equal(np.loadtxt(out, delimiter=","), expected)
    elif kind == "mat":
        from scipy.io import loadmat

        held = loadmat(out)
        assert np.array_equal(held["A"], expected)
        assert "name" not in held
    else:
        assert np.array_equal(np.fromfile(out).reshape(2, 2), expected)


@pytest.mark.whole
@pytest.mark.parametrize("kind", thin_out(["npy", "csv", "mat", "raw"], 4))
def test_standard_input_and_output(kind, tmp_path):
    source, out = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    write(source)
    command("chop", source, "--format", "q43", "--out", out)
    args = ("-m", "torch_dtypes", "chop", "-", "--format", "q43", "--out", "-", "--kind", kind)
    piped = subprocess.run(
        [sys.executable, *args], input=source.read_bytes(), capture_output=True, check=True
    )
    assert piped.stdout[-32:] == out.read_bytes()[-32:]  # a .mat begins with its time


def test_a_seed_is_a_generator_s(tmp_path):
    write(tmp_path / "a.npy")
    command("chop", tmp_path / "a.npy", "--format", "e5m5", "--rounding", "stochastic", "--seed",
            "3", "--out", tmp_path / "b.npy")  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    expected = chop(A.astype(np.float32), "e5m5", rounding="stochastic", generator=generator)
    assert np.array_equal(np.load(tmp_path / "b.npy"), expected)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("a.npy", "--format", "q433", "--out", "b.npy"), "nearest names are 'q43'"),
        (("a.npy", "--format", "q43", "--out", "b.mat"), "expected .mat to .mat"),
        (("none.npy", "--format", "q43", "--out", "b.npy"), "No such file"),
        (("a.npy", "--format", "q43", "--rounding", "12", "--out", "b.npy"), "a rounding mode"),
        (("a.npy", "--out", "b.npy"), "expected --format"),
        (("a.raw", "--format", "q43", "--out", "b.npy"), "expected doubles, 8 bytes each"),
    ],
)
def test_errors(args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.npy")
    (tmp_path / "a.raw").write_bytes(b"123")
    result = command("chop", *args)
    assert result.exit_code != 0
    assert words in result.output
    assert not (tmp_path / "b.npy").exists()
