"""The command ``torch-dtypes vectors``: the vectors for a seed and a count, refusals, and the
written files."""

import pytest
from read_vectors import make_file, read, run


def test_a_seed_draws_the_same_and_a_smaller_count_its_beginning(tmp_path):
    def rows(*arguments):
        return read(make_file(tmp_path / "file", "q43", "--op", "fma", *arguments))[2]

    first = rows("--count", 20_000)
    assert first == rows("--count", 20_000) and first[:500] == rows("--count", 500)
    assert first[:500] != rows("--count", 500, "--seed", 1)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("q44", "--op", "add"), "but got 'q44'"),
        (("int8", "--op", "add"), "expected a format without scales, but got int8"),
        (
            ("q43", "--op", "cast", "--to", "mxfp4"),
            "expected a format without scales, but got mxfp4; name that of its elements, "
            "'e2m1finite'",
        ),
        (
            ("q43", "--op", "cast"),
            "expected the format of the results (--to) with cast and only there, but got none "
            "with cast",
        ),
        (("q43", "--op", "add", "--to", "q52"), "expected the format of the results"),
        (
            ("q43", "--op", "dot"),
            "expected the number of terms (--terms) with dot and only there, but got none with dot",
        ),
        (("q43", "--op", "dot", "--terms", 0), "expected 1 to 65536 terms"),
        (("q43", "--op", "dot", "--terms", 2, "--accumulate", "fast"), "'fast'"),
        (("q43", "--op", "add", "--accumulate", "exact"), "with dot only"),
        (("posit16es2", "--op", "add", "--all"), "2^32; give a count"),
        (("q43", "--op", "add", "--count", 0), "expected a count of at least 1"),
        (("q43", "--op", "add", "--count", 5, "--all"), "--count or --all, but got both"),
        (("q43", "--op", "sqrt", "--seed", 4, "--all"), "--seed or --all, but got both"),
        (
            ("q43", "--op", "dot", "--terms", 2, "--accumulate", "format(rounding=stochastic)"),
            "format(rounding=stochastic) has stochastic: its",
        ),
        (
            (
                "q43",
                "--op",
                "dot",
                "--terms",
                2,
                "--accumulate",
                "format(accumulator=e5m7_up_down)",
            ),
            "has up_down: its results depend on random",
        ),
        (
            (
                "q43",
                "--op",
                "dot",
                "--terms",
                2,
                "--accumulate",
                "block(terms=4, extra_bits=1, rounding=stochastic)",
            ),
            "has stochastic: its results",
        ),
        (
            ("q43", "--op", "dot", "--terms", 2, "--accumulate", "nvidia-v100"),
            "expected operands of formats that nvidia-v100 multiplies",
        ),
        (
            ("q43", "--op", "add", "--mode", "stochastic"),
            "expected a deterministic rounding mode, but got stochastic",
        ),
        (("q43", "--op", "add", "--mode", "nearest"), "expected a rounding mode"),
        (("fp64", "--op", "add"), "expected a format of at most 51 significant bits"),
    ],
)
def test_bad_input(arguments, words, tmp_path):
    result = run(*arguments, "--out", tmp_path / "file")
    assert result.exit_code == 2 and words in " ".join(result.output.replace("│", " ").split()), (
        result.output
    )
    assert not list(tmp_path.iterdir())


def test_standard_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run("q43", "--op", "add", "--count", 20, "--out", "-")
    assert shown.exit_code == 0 and not list(tmp_path.iterdir()), "no file of that name"
    assert "written: -, 20 vectors" in shown.stderr
    run("q43", "--op", "add", "--count", 20, "--out", tmp_path / "file")
    assert shown.stdout == (tmp_path / "file").read_text()


def test_a_file_that_cannot_be_written(tmp_path):
    result = run("q43", "--op", "add", "--out", tmp_path / "none" / "file")
    assert result.exit_code == 2 and "cannot write" in result.output
    assert "is a folder" in run("q43", "--op", "add", "--out", tmp_path).output
    full = run(
        "posit32es2",
        "--op",
        "dot",
        "--terms",
        2,
        "--accumulate",
        "float32",
        "--out",
        tmp_path / "file",
    )
    # The operator's own error, and no part of the file is left.
    assert full.exit_code == 2 and "float32" in full.output
    assert not list(tmp_path.iterdir())
