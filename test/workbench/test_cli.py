"""The command line ``torch-dtypes``: its output, files and errors."""

import contextlib
import io
import json
import os
import subprocess
import sys

import pytest
import torch
from command_line import command as run

from torch_dtypes import cli

QUICK = "train --dtype bfloat16 --epochs 2 --train-samples 64 --test-samples 40 --threads 1".split()


@pytest.fixture(autouse=True)
def known_names(monkeypatch):
    """Unknown names are refused with the error of ``torch_dtypes.dtype``."""
    import torch_dtypes

    def refuse_name(name):
        raise ValueError(f"expected the name of a format, but got {name!r}")

    monkeypatch.setattr(torch_dtypes, "dtype", refuse_name, raising=False)


def test_version():
    import torch_dtypes

    result = run("--version")
    assert result.exit_code == 0
    kernels = torch_dtypes._C.cpu_capability()
    assert result.output == (
        f"torch-dtypes {torch_dtypes.__version__} (torch {torch.__version__}, {kernels} kernels)\n"
    )


def test_help():
    result = run("--help")
    assert result.exit_code == 0 and "train" in result.output and "bench" in result.output
    text = run("train", "--help").output
    for option in (
        "--model",
        "--dataset",
        "--data-dir",
        "--download",
        "--train-samples",
        "--test-samples",
        "--epochs",
        "--batch-size",
        "--optimizer",
        "--lr",
        "--momentum",
        "--seed",
        "--repeats",
        "--device",
        "--dtype",
        "--no-baseline",
        "--threads",
        "--out",
    ):
        assert option in text
    assert "posit16es2" in text  # the default


def test_train_prints_a_table_and_brief_lines():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    result = run(*QUICK)
    after = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert after == 2  # --threads 1 holds for the command alone
    assert result.exit_code == 0
    lines = result.output.splitlines()
    head = (
        "lenet5 on digits: 61,706 parameters, 64 training and 40 test inputs, adam, batch 32, "
        "cpu, 1 threads"
    )
    assert lines[0] == head
    assert [line.split(":")[0] for line in lines[1:5]] == [
        "float32 seed 0 epoch 1/2",
        "float32 seed 0 epoch 2/2",
        "bfloat16 seed 0 epoch 1/2",
        "bfloat16 seed 0 epoch 2/2",
    ]
    assert any(line.split() == "dtype ep 1 ep 2 final % gap loss s/epoch".split() for line in lines)
    assert "\x1b" not in result.output and "\r" not in result.output


def without_times(results):
    for each in results["runs"]:
        for epoch in each["epochs"]:
            assert epoch.pop("seconds") > 0
    for summary in results["summary"]:
        summary.pop("seconds_per_epoch")
    return results


@pytest.mark.whole
def test_out_folder_and_determinism(tmp_path):
    outcomes = []
    for name in ("a", "b/c"):
        result = run(*QUICK, "--repeats", 2, "--seed", 5, "--out", tmp_path / name)
        assert result.exit_code == 0
        assert f"Written: {tmp_path / name / 'results.json'}, " in result.output
        assert (tmp_path / name / "accuracy.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert (tmp_path / name / "report.html").read_text().startswith("<!DOCTYPE html>")
        outcomes.append(without_times(json.loads((tmp_path / name / "results.json").read_text())))
    first, second = outcomes
    assert first == second
    assert [(r["dtype"], r["seed"]) for r in first["runs"]] == [
        ("float32", 5),
        ("bfloat16", 5),
        ("float32", 6),
        ("bfloat16", 6),
    ]
    assert first["runs"][0]["epochs"] != first["runs"][2]["epochs"]
    config = first["config"]
    assert config["seeds"] == [5, 6] and config["dtypes"] == ["float32", "bfloat16"]
    assert (config["lr"], config["parameters"], config["threads"]) == (0.001, 61706, 1)
    assert (config["train_samples"], config["test_samples"]) == (64, 40)


@pytest.mark.whole
def test_dtypes_run_once_each_with_the_baseline_first(tmp_path):
    run(*QUICK, "--dtype", "float", "--dtype", "torch.bfloat16", "--out", tmp_path)
    config = json.loads((tmp_path / "results.json").read_text())["config"]
    # Float32 in the place where the user named it
    assert config["dtypes"] == ["bfloat16", "float32"]
    result = run(*QUICK, "--no-baseline", "--out", tmp_path)
    assert "float32" not in result.output.replace("gap to float32", "")
    assert len(json.loads((tmp_path / "results.json").read_text())["runs"]) == 1


@pytest.mark.whole
def test_a_dtype_that_diverges_is_reported(tmp_path):
    result = run(*QUICK, "--dtype", "float16", "--out", tmp_path)
    assert result.exit_code == 0
    assert "float16 seed 0 epoch 1/2: diverged, loss nan" in result.output
    assert "float16 diverged at epoch 1 with seed 0 (loss not finite)" in result.output
    assert json.loads((tmp_path / "results.json").read_text())["runs"][2]["diverged_at"] == 1


def test_a_dtype_that_lacks_an_operator_is_a_clear_error(tmp_path):
    result = run(*QUICK, "--dtype", "float8_e4m3fn", "--out", tmp_path)
    assert result.exit_code == 1
    assert "Error: training in float8_e4m3fn failed: " in result.output
    # Before anything is trained.
    assert "epoch" not in result.output and not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--epochs 0", "Invalid value for '--epochs': 0 is not in the range x>=1"),
        ("--epochs two", "Invalid value for '--epochs': 'two' is not a valid integer"),
        ("--model vgg", "Invalid value for '--model': expected a model out of lenet5, "),
        ("--dataset svhn", "Invalid value for '--dataset': 'svhn' is not one of 'digits'"),
        ("--batch-size 0", "Invalid value for '--batch-size'"),
        ("--train-samples 0", "Invalid value for '--train-samples'"),
        ("--train-samples 2000", "expected between 1 and 1437 training samples, but got 2000"),
        ("--lr=-1", "'--lr': expected a finite number above 0, but got -1.0"),
        ("--lr 0", "'--lr': expected a finite number above 0, but got 0.0"),
        ("--lr nan", "'--lr': expected a finite number above 0, but got nan"),
        ("--lr inf", "'--lr': expected a finite number above 0, but got inf"),
        (
            "--optimizer sgd --momentum 1",
            "'--momentum': expected a number from 0 to below 1, but got 1.0",
        ),
        ("--optimizer sgd --momentum nan", "'--momentum': expected a number from 0 to below 1"),
        ("--momentum 0.9", "--momentum is for --optimizer sgd"),
        ("--optimizer lion", "Invalid value for '--optimizer'"),
        ("--seed=-1", "Invalid value for '--seed'"),
        ("--repeats 0", "Invalid value for '--repeats'"),
        ("--threads 0", "Invalid value for '--threads'"),
        ("--dtype posit9es9", "'--dtype': expected the name of a format, but got 'posit9es9'"),
        ("--dtype int32", "'--dtype': expected a floating-point dtype, but got int32"),
        ("--device tpu", "Invalid value for '--device': 'tpu' is not one of 'cpu', 'cuda'"),
        (
            "--image-size 224",
            "expected images of 32 x 32, but got 224: give images of other sizes by --data, and "
            "a --model for them",
        ),
        (
            "--data-dir /nowhere",
            "expected --data-dir with a --dataset of files, but got it with digits",
        ),
        ("--download", "expected --download with a --dataset of files, but got it with digits"),
        ("--width column", "expected --width with --out"),
        ("--dataset mnist --data-dir /nowhere", "expected the mnist files in /nowhere/MNIST/raw"),
        (
            "--dataset cifar10 --data-dir /nowhere",
            "expected the cifar10 files in /nowhere/cifar-10-batches-py",
        ),
    ],
)
def test_bad_options_are_clear_errors(options, message):
    result = run(*QUICK, *options.split())
    assert result.exit_code in (1, 2)
    assert message in result.output and "Traceback" not in result.output


def test_cuda_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = run(*QUICK, "--device", "cuda")
    assert result.exit_code == 2 and "torch sees none here; use --device cpu" in result.output


def test_out_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        result = run(*QUICK, "--out", folder)
        assert result.exit_code == 2 and f"cannot write into {folder}" in result.output
        assert "epoch" not in result.output

    def deny(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", deny)
    result = run(*QUICK, "--out", tmp_path)
    assert result.exit_code == 2 and "Permission denied" in result.output


@pytest.mark.whole
def test_out_that_fills_up_while_training(tmp_path):
    (tmp_path / "results.json.partial").symlink_to("/dev/full")
    result = run(*QUICK, "--out", tmp_path)
    assert (
        result.exit_code == 1
        and f"cannot write into {tmp_path}: No space left on device" in result.output
    )


@pytest.mark.whole
def test_out_that_fills_up_within_a_checkpoint(tmp_path):
    """Regression: torch's own file writer reports "unexpected pos" on a full disk."""
    run(*QUICK, "--no-baseline", "--out", tmp_path)
    (done,) = (tmp_path / "cells").iterdir()
    running = tmp_path / "running" / done.stem
    running.mkdir()
    (running / "checkpoint.pt.partial").symlink_to("/dev/full")
    done.unlink()
    result = run(*QUICK, "--no-baseline", "--out", tmp_path)
    assert (
        result.exit_code == 1
        and "bfloat16 seed 0: failed: OSError: [Errno 28] No space left on device" in result.output
    )
    assert not list(running.glob("checkpoint*"))


@pytest.mark.whole
def test_out_of_another_command_is_refused_before_training(tmp_path):
    from torch_dtypes.workbench.report.folders import lock_folder

    with lock_folder(tmp_path):
        result = run(*QUICK, "--out", tmp_path)
        assert (
            result.exit_code == 1
            and f"another command works in {tmp_path}; wait for it, or give another --out"
            in result.output
        )
        assert not list(tmp_path.iterdir())
    assert run(*QUICK, "--no-baseline", "--out", tmp_path).exit_code == 0


def test_out_without_matplotlib(tmp_path, monkeypatch):
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a)
    )
    result = run(*QUICK, "--out", tmp_path)
    assert result.exit_code == 2 and "pip install 'torch-dtypes[train]'" in " ".join(
        result.output.split()
    )


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    result = run(*QUICK)
    assert (
        result.exit_code == 1
        and "Error: the digits data set comes with scikit-learn" in result.output
    )


@pytest.mark.parametrize("absent", [["click"], ["click", "rich"]])
def test_main_without_the_extra_is_one_line(monkeypatch, absent):
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *a: None if name in absent else find(name, *a)
    )
    with pytest.raises(SystemExit) as caught:
        cli.main(["train"])
    needed = " and ".join(absent)
    assert str(caught.value) == (
        f"Error: the torch-dtypes command needs {needed}: pip install 'torch-dtypes[train]'"
    )


@pytest.mark.whole
def test_python_dash_m():
    command = [sys.executable, "-m", "torch_dtypes", "train", "--epochs", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[0] == "Usage: torch-dtypes train [OPTIONS]"
    assert done.stderr.splitlines()[-1].startswith("Error: Invalid value for '--epochs'")


def test_warnings_show_no_code_of_ours(monkeypatch, capsys):
    import warnings

    def warn(**_):
        warnings.warn("the eps is 0", UserWarning, stacklevel=1)
        warnings.warn("old", FutureWarning, stacklevel=1)

    before = warnings.formatwarning
    monkeypatch.setattr(cli, "group", lambda: warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # Pytest would keep the warnings.
        monkeypatch.setattr(
            warnings,
            "showwarning",
            lambda *what: sys.stderr.write(warnings.formatwarning(*what[:4])),
        )
        cli.main([])
    said = capsys.readouterr().err
    # A FutureWarning is for developers, and tells its place.
    assert said.startswith("Warning: the eps is 0\n") and "FutureWarning: old" in said
    assert warnings.formatwarning is before


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", "2.5 +- 0.5, +1.00 us...??"),
        ("latin-1", "2.5 ± 0.5, +1.00 µs...é?"),
        ("utf-8", "2.5 ± 0.5, +1.00 µs…é漢"),
    ],
)
def test_signs_that_an_encoding_lacks_are_spelt(encoding, expected, monkeypatch):
    from torch_dtypes.workbench.training.summaries import Stat

    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(
        cli, "group", lambda: lambda **_: print(f"{Stat(2.5, 0.5).text(1)}, +1.00 µs…é漢")
    )
    cli.main([])
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding).startswith(expected)


def test_vectors_go_into_what_is_no_regular_file_and_where_a_link_leads(tmp_path):
    command = ("vectors", "q43", "--op", "add", "--count", 5, "--out")
    assert run(*command, tmp_path / "plain").exit_code == 0
    expected = (tmp_path / "plain").read_text()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # a pipe's buffer is smaller
    assert run(*command, tmp_path / "pipe").exit_code == 0
    assert os.read(reader, 1 << 16).decode() == expected
    os.close(reader)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "aim").write_text("before")
    (tmp_path / "link").symlink_to("folder/aim")
    assert run(*command, tmp_path / "link").exit_code == 0
    assert (tmp_path / "folder" / "aim").read_text() == expected
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["aim", "folder", "link", "pipe", "plain"]


# Output that fits into the stream's buffer, and output that does not.
@pytest.mark.parametrize("count", [5, 20_000])
def test_standard_output_that_is_full_or_has_no_reader(monkeypatch, capsys, count):
    command = ["vectors", "q43", "--op", "add", "--count", str(count), "--out", "-"]
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as caught:
            cli.main(command)
    assert (
        caught.value.code
        == "Error: cannot write to standard output, or a file: No space left on device"
    )
    reader, writer = os.pipe()
    os.close(reader)
    # Click keeps in the buffer what it could not write.
    with contextlib.suppress(BrokenPipeError), open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as caught:
            cli.main(command)
    assert caught.value.code == 1
    assert "Error" not in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdout", None)  # closed
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0


@pytest.mark.whole
def test_several_seeds_on_an_ascii_stream():
    command = [
        sys.executable,
        "-m",
        "torch_dtypes",
        *QUICK,
        "--no-baseline",
        "--repeats",
        "2",
        "--epochs",
        "1",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "+- is the standard deviation over the seeds." in done.stdout
