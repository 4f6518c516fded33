"""Names of formats: case, other tools' spellings, options in any order, names of a user's own."""

import json
import pathlib

import ml_dtypes
import new_process
import numpy
import pytest
import torch
from click.testing import CliRunner

import torch_dtypes
from torch_dtypes.cli import group
from torch_dtypes.formats.spellings import AMBIGUOUS, SPELLINGS, build_markdown


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("E4M3FN", "e4m3fn"),
        ("TF32", "tf32"),
        ("Q43_Up", "q43_up"),
        ("E5M2", "q52"),
        ("Binary8P4SE", "binary8p4se"),
        ("POSIT<16, 1>", "posit16es1"),
        ("e5m2_up_saturate_flush_bias3", "e5m2_bias3_flush_saturate_up"),
        ("posit12es1_saturate_underflow", "posit12es1_underflow_saturate"),
        ("fp16_stochastic_a4_saturate", "fp16_saturate_stochastic_a4"),
    ],
)
def test_case_and_the_order_of_options_are_ignored(name, meant):
    assert torch_dtypes.dtype(name) is torch_dtypes.dtype(meant)
    assert torch_dtypes.target(name).format == torch_dtypes.format_of(meant)
    assert torch_dtypes.chop(
        1.3, name, generator=torch.Generator().manual_seed(1)
    ) == torch_dtypes.chop(1.3, meant, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MXFP8_E4M3", "mxfp8_e4m3"),
        ("mxfp4_up_nopad_ceil", "mxfp4_ceil_nopad_up"),
        ("INT8_narrow_symmetric", "int8_symmetric_narrow"),
        ("block<E4M3FN,E8M0,32>", "block<e4m3fn,e8m0,32>"),
        ("bfp8_nopad_size16", "bfp8_size16_nopad"),
        ("FP16", "float16"),
    ],
)
def test_so_they_are_in_names_of_blocks_integers_and_stock_dtypes(name, meant):
    assert torch_dtypes.target(name) == torch_dtypes.target(meant)
    x = torch.arange(64.0) / 7
    assert torch_dtypes.target(name).needs_scale or torch.equal(
        torch_dtypes.chop(x, name), torch_dtypes.chop(x, meant)
    )


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_name_of_two_formats_is_an_error_that_shows_both(name):
    for call in (
        torch_dtypes.dtype,
        torch_dtypes.target,
        lambda n: torch_dtypes.chop(1.0, n),
        lambda n: torch_dtypes.dtype(n + "_up"),
    ):
        with pytest.raises(ValueError, match="expected the name of one format") as caught:
            call(name)
        assert all(repr(ours) in str(caught.value) for ours, _ in AMBIGUOUS[name])


def test_in_lower_case_the_names_of_capitals_mean_what_they_meant():
    assert (
        torch_dtypes.dtype("e4m3") is torch.q43
        and torch_dtypes.format_of("e2m1").specials.name == "ieee"
    )
    with pytest.raises(ValueError, match=r"'q43' .* 'e4m3fn'"):
        torch_dtypes.target("block<E4M3,e8m0,32>")


@pytest.mark.parametrize(
    "name", [name for name, (_, source) in SPELLINGS.items() if source.startswith("ml_dtypes")]
)
def test_names_of_ml_dtypes_have_its_values(name):
    theirs = getattr(ml_dtypes, name)
    bits = torch_dtypes.format_of(name).bits
    values = numpy.arange(2**bits, dtype=numpy.uint8).view(theirs).astype(numpy.float64)
    assert numpy.array_equal(torch_dtypes.card(name).values().numpy(), values, equal_nan=True)


def test_every_spelling_means_its_row():
    for name, (ours, _) in SPELLINGS.items():
        assert (
            torch_dtypes.format_of(name)
            == torch_dtypes.format_of(name.upper())
            == torch_dtypes.format_of(ours)
        ), name
    page = (pathlib.Path(__file__).parents[2] / "docs/reference/spellings.md").read_text()
    assert page.endswith(build_markdown())


@pytest.mark.parametrize(
    ("name", "near"),
    [("nff4", "nf4"), ("tf33", "tf32"), ("posit16ess2", "posit16es2"), ("ocp_e4m4", "ocp_e4m3")],
)
def test_the_nearest_names_come_first(name, near):
    for call in (torch_dtypes.dtype, torch_dtypes.target):
        with pytest.raises(ValueError, match=f"but got '{name}'; the nearest names are '{near}'"):
            call(name)


# ---- names of a user's own ----

VALUES = [0.0, 1.0, -1.0, 3.0]


def test_a_table_has_the_name_that_a_user_gives():
    acme = torch_dtypes.table_format(VALUES, name="acme8")
    assert str(acme) == "torch.acme8" and torch_dtypes.table_format(
        VALUES, name="acme8"
    ) is acme is torch_dtypes.dtype("ACME8")
    assert (
        torch_dtypes.chop(2.5, "acme8") == 3.0
        and str(torch_dtypes.dtype("acme8_up")) == "torch.acme8_up"
    )
    assert (
        torch_dtypes.show("acme8").table()[0]["format"] == "acme8"
        and torch_dtypes.target("acme8").name == "acme8"
    )
    with pytest.raises(
        ValueError, match="the values that 'acme8' has in this process, but got others"
    ):
        torch_dtypes.table_format([0.0, 1.0], name="acme8")
    with pytest.raises(ValueError, match="nearest names are 'acme8'"):
        torch_dtypes.dtype("acm8")


@pytest.mark.parametrize(
    "name",
    [
        "q43",
        "E4M3",
        "e4m3fn",
        "bf16",
        "float32",
        "int8",
        "nf4",
        "mxfp4",
        "fp4",
        "posit99es9",
        "takum16",
        "add",
        "Acme",
        "acme_up",
        "a-b",
        "",
        "table4_0123456789abcdef",
    ],
)
def test_a_name_that_exists_or_can_be_none_is_an_error(name):
    with pytest.raises(ValueError, match="expected"):
        torch_dtypes.table_format(VALUES, name=name)


def test_files_bring_a_table_with_its_name(tmp_path):
    x = torch.tensor([0.2, 2.5], dtype=torch_dtypes.table_format(VALUES, name="acme8"))
    torch.save(x, tmp_path / "x.pt")
    code = f"""if True:
        import torch, torch_dtypes
        x = torch.load({str(tmp_path / "x.pt")!r})
        assert str(x.dtype) == "torch.acme8" and x.tolist() == [0.0, 3.0]
    """
    assert new_process.run("-c", code).returncode == 0
    other = code.replace(
        "x = torch.load", "torch_dtypes.table_format([0.0, 2.0], name='acme8'); x = torch.load"
    )
    assert "expected the values that 'acme8' has" in new_process.run("-c", other).stderr


def _invoke(*arguments):
    return CliRunner().invoke(group(), [str(a) for a in arguments])


@pytest.mark.whole
def test_commands_take_a_file_of_values_by_a_name(tmp_path):
    file = tmp_path / "acme.txt"
    file.write_text("0 .25 -.25 .5 -.5 1 -1 2")
    shown = _invoke("show", f"acme={file}", "--out", tmp_path / "shown")
    assert shown.exit_code == 0 and "acme" in shown.output and "table3_" not in shown.output
    assert "table3_" not in (tmp_path / "shown/formats.html").read_text()
    refused = _invoke("show", f"q43={file}")
    assert refused.exit_code == 2 and "expected a name that is not taken" in " ".join(
        refused.output.split()
    )


@pytest.mark.whole
def test_sweeps_and_trainings_take_it(tmp_path):
    file = tmp_path / "acme.txt"
    file.write_text("0 .25 -.25 .5 -.5 1 -1 2")
    few = ("--train-samples", "64", "--epochs", "1")
    swept = _invoke(
        "sweep",
        "--format",
        f"acme={file}",
        "--recipe",
        "weights",
        *few,
        "--out",
        tmp_path / "sweep",
    )
    assert swept.exit_code == 0, swept.output
    assert "acme" in swept.output and "table3_" not in swept.output
    trained = _invoke(
        "train", "--dtype", f"acme={file}", "--recipe", "weights", *few, "--out", tmp_path / "train"
    )
    assert trained.exit_code == 0, trained.output
    results = json.loads((tmp_path / "train/results.json").read_text())
    assert results["config"]["dtypes"] == ["float32", "acme"] and results["config"]["tables"][
        "acme"
    ].startswith("table3_")


def test_scaled_mm_says_what_to_call_instead():
    a, one = torch.ones(16, 16).to(torch.q43), torch.ones(())
    with pytest.raises(
        NotImplementedError,
        match=r"expected operands of PyTorch's float8 dtypes, but got torch\.q43; use \(a @ b\)",
    ):
        torch._scaled_mm(a, a.t(), one, one)
    kind = torch.nn.functional.ScalingType.TensorWise
    with pytest.raises(NotImplementedError, match=r"got torch\.q43; use"):
        torch.nn.functional.scaled_mm(a, a.t(), one, kind, one, kind)
