"""Types of the package, and of the extension, for type checkers."""

import importlib.resources
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_dtypes
from torch_dtypes import _C

ROOT = Path(__file__).resolve().parents[2]

EXAMPLE = """
import torch
import torch_dtypes

d: torch.dtype = torch_dtypes.dtype("posit12es1")
reveal_type(torch_dtypes.posit16es2)
reveal_type(torch_dtypes.float_format(exp_bits=5, man_bits=6))
reveal_type(torch_dtypes.with_rounding(torch_dtypes.q43, "stochastic"))
reveal_type(torch_dtypes.format_of(d))
reveal_type(torch_dtypes.format_of(d).bits)
reveal_type(torch_dtypes.chop(torch.zeros(3), d))
reveal_type(torch_dtypes.chop(1.3, "q43"))
reveal_type(torch_dtypes.codes(torch.zeros(3, dtype=d)))
with torch_dtypes.rounding("up"), torch_dtypes.accumulate("exact"):
    pass
torch_dtypes.dtype(16)
torch_dtypes.accumulate("format", order="tree", chunk="8")
torch_dtypes.set_accumulation(d, "format", kahn=True)
"""
DTYPE, TENSOR = "torch._C.dtype", "torch._tensor.Tensor"
REVEALED = [DTYPE, DTYPE, DTYPE, "torch_dtypes._C.Format", "int", TENSOR, "float", TENSOR]


@pytest.mark.whole
def test_mypy_knows_the_public_names(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "example.py").write_text(EXAMPLE)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        tmp_path / "cache",
        tmp_path / "example.py",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": str(ROOT / "torch")},
        capture_output=True,
        text=True,
        check=False,
    )
    revealed = [
        r.removeprefix("builtins.") for r in re.findall(r'Revealed type is "(.*)"', done.stdout)
    ]
    assert revealed == REVEALED, done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    expected = 'incompatible type "int"', '"chunk" .* "str"', 'argument "kahn"'
    assert len(errors) == len(expected), done.stdout
    for text, error in zip(expected, errors, strict=True):
        assert re.search(text, error), done.stdout


def test_types_are_installed():
    files = importlib.resources.files("torch_dtypes")
    assert files.joinpath("py.typed").is_file() and files.joinpath("_C.pyi").is_file()


def test_typed_names_are_the_built_in_dtypes():
    typed = {name for name, kind in torch_dtypes.__annotations__.items() if kind is torch.dtype}
    assert typed == {_C.name_of(d) for d in torch_dtypes.builtin_dtypes()}
    assert all(getattr(torch_dtypes, name) is getattr(torch, name) for name in typed)


def _stub_names(text: str) -> set[str]:
    return set(re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE)) | set(
        re.findall(r"^(\w+): ", text, re.MULTILINE)
    )


def test_stub_has_the_names_of_the_extension():
    stub = importlib.resources.files("torch_dtypes").joinpath("_C.pyi").read_text()
    public = {name for name in dir(_C) if not name.startswith("_")}
    assert _stub_names(stub) == public


@pytest.mark.parametrize(
    "name",
    [
        "Format",
        "Accumulation",
        "Kind",
        "Specials",
        "Overflow",
        "Underflow",
        "Subnormals",
        "Rounding",
        "Accumulate",
    ],
)
def test_stub_has_the_members_of_the_classes(name):
    stub = importlib.resources.files("torch_dtypes").joinpath("_C.pyi").read_text()
    body = re.search(rf"^class {name}:\n((?:    .*\n)+)", stub, re.MULTILINE)[1]
    members = set(re.findall(r"^    (?:def )?(\w+)[:(]", body, re.MULTILINE))
    assert {m for m in members if not m.startswith("__")} == {
        m for m in dir(getattr(_C, name)) if not m.startswith("_")
    }


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "posit12es1_up",
            [
                "posit12es1_up",
                "kind=posit",
                "nbits=12",
                "es=1",
                "underflow=minpos",
                "infinity=nan",
                "rounding=up",
            ],
        ),
        (
            "e4m3fn_saturate",
            [
                "e4m3fn_saturate",
                "exp_bits=4",
                "man_bits=3",
                "bias=7",
                "specials=fn",
                "overflow=saturate",
            ],
        ),
        (
            "ufixed4_4",
            [
                "ufixed4_4",
                "int_bits=4",
                "frac_bits=4",
                "signed=False",
                "overflow=saturate",
                "symmetric=False",
            ],
        ),
    ],
)
def test_format_prints_its_parameters(name, parts):
    text = repr(torch_dtypes.format_of(name))
    assert all(part in text for part in parts), text
