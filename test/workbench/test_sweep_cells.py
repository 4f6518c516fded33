"""``torch-dtypes sweep``: cells as data, and errors before any long work."""

# ruff: noqa: F811 (a fixture that is imported)

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from sweeps import cell, own, run  # noqa: F401 (own is a fixture)

import torch_dtypes
from torch_dtypes._torch_version import RUNNING
from torch_dtypes.workbench.sweeps import arguments, grid
from torch_dtypes.workbench.sweeps.cells import Cell, Settings

# Cells as data


def test_the_key_of_a_cell_is_of_its_definition_alone():
    assert cell().key == Cell.of(json.loads(json.dumps(cell().definition()))).key
    others = [
        cell(**{name: "other"})
        for name in ("model", "dataset", "format", "rounding", "accumulate", "recipe")
    ]
    others += [
        cell(seed=1),
        cell(settings=Settings(epochs=3)),
        cell(settings=Settings(weights="w", weights_digest="0")),
    ]
    assert len({c.key for c in (cell(), *others)}) == 10
    moved = [
        cell(settings=Settings(weights=path, weights_digest="0")).key
        for path in ("/a/w.pt", "/b/w.pt")
    ]
    assert moved[0] == moved[1]
    # Keys must not change between versions: outcomes in existing folders stay valid.
    assert cell().key == "8acfe10176ee6d18"


def test_every_combination_is_there_once_and_float32_before_them():
    axes = grid.Axes(
        ("q43", "bf16", "q43"),
        roundings=("nearest_even", "2"),
        recipes=("ptq", "weights"),
        seeds=(0, 1),
    )
    cells = grid.cells_of(axes, Settings())
    assert len(cells) == 2 * 2 * 2 * 2
    assert [(c.format, c.rounding) for c in cells[:8:2]] == [
        ("q43", "nearest_even"),
        ("q43", "up"),
        ("bf16", "nearest_even"),
        ("bf16", "up"),
    ]
    every = grid.with_bases(cells)
    assert [c.seed for c in every if c.is_base] == [0, 1] and every[2:] == cells
    assert (
        str(cell(format="half", rounding="nearest_even", recipe="all").number()) == "torch.float16"
    )
    assert str(cell(format="half", recipe="all").number()) == "torch.e5m10_up"
    assert cell(format="posit<12,1>").number().name == "posit12es1_up"


def test_published_recipes_are_one_cell_each_without_a_format():
    axes = grid.Axes(("q43", "q52"), recipes=("nvfp4", "mixed", "deepseek_v3"))
    cells = grid.cells_of(axes, Settings())
    assert [(c.format, c.recipe) for c in cells] == [
        ("nvfp4", "nvfp4"),
        ("q43", "mixed"),
        ("q52", "mixed"),
        ("deepseek_v3", "deepseek_v3"),
    ]
    assert cells[0].has_rules and cells[0].number().name == "nvfp4"
    assert len(grid.cells_of(grid.Axes((), recipes=("nvfp4",)), Settings())) == 1
    with pytest.raises(ValueError, match="got no format"):
        grid.cells_of(grid.Axes((), recipes=("nvfp4", "qat")), Settings())


def test_formats_have_their_own_modes_where_none_is_said():
    cells = grid.cells_of(grid.Axes(("q43_stochastic", "q43")), Settings())
    assert [c.rounding for c in cells] == ["stochastic", "nearest_even"]
    with pytest.raises(
        ValueError, match="in its name or as an axis, but got both: leave stochastic out"
    ):
        grid.cells_of(grid.Axes(("q43_stochastic",), roundings=("up",)), Settings())


def test_stock_names_are_our_dtypes_under_a_policy_which_is_then_obeyed():
    float8 = "torch.e4m3fn_saturate" if RUNNING >= (2, 13) else "torch.e4m3fn"
    names = {
        "bf16": "torch.e8m7",
        "half": "torch.e5m10",
        "fp32": "torch.e8m23",
        "float8_e4m3fn": float8,
        "q43": "torch.q43",
    }
    for recipe in ("all", "master"):
        made = {
            name: cell(format=name, rounding="nearest_even", accumulate="exact", recipe=recipe)
            for name in names
        }
        assert {name: str(c.number()) for name, c in made.items()} == names
    assert str(replace(made["bf16"], accumulate="machine").number()) == "torch.bfloat16"
    # The sums of its layers follow the policy.
    assert replace(made["bf16"], recipe="mixed").number().stock == "bfloat16"
    # An older folder may have an outcome under the hash of the plain definition, whose sums were
    # PyTorch's own. Other cells keep their file.
    definitions = {name: c.definition() for name, c in made.items()}
    for definition in definitions.values():
        del definition["settings"]["device"]  # then there was only the CPU
    plain = {
        name: json.dumps(definition, sort_keys=True, separators=(",", ":")).encode()
        for name, definition in definitions.items()
    }
    kept = {
        name for name, c in made.items() if c.key == hashlib.sha256(plain[name]).hexdigest()[:16]
    }
    assert kept == {"q43"}


def test_list_says_what_there_would_be(tmp_path):
    output = run(
        "--format",
        "q43",
        "--format",
        "bf16",
        "--rounding",
        "1",
        "--rounding",
        "stochastic",
        "--recipe",
        "ptq",
        "--list",
    ).output
    assert "4 cells, and 1 training in float32 for them." in output and output.count(".json") == 4
    assert f"{cell(rounding='stochastic').key}.json" in output
    assert list(tmp_path.iterdir()) == []


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out x", "expected at least one cell, but got no format"),
        ("--format q43", "expected --out, a folder for the results, but got none"),
        ("--format q44 --out x", "got 'q44'; the nearest names are 'q43'"),
        ("--format q43 --rounding upward --out x", "'--rounding': expected"),
        (
            "--format q43 --accumulate quire --out x",
            "'--accumulate': expected an accumulation policy",
        ),
        (
            "--format int8 --out x",
            "expected a format without scales for --recipe all, but got int8",
        ),
        (
            "--format mxfp4 --out x",
            "expected a dtype for --recipe all, whose network has it throughout, but got mxfp4",
        ),
        ("--format int8 --recipe weights --out x", "without scales for --recipe weights"),
        (
            "--format q43 --recipe weights --accumulate exact --out x",
            "--accumulate machine for --recipe weights",
        ),
        (
            "--format q43 --recipe ptq --recipe all --loss-scale 8 --out x",
            "--loss-scale is for --recipe master, mixed or qat",
        ),
        ("--format q43 --master e6m9 --out x", "--master is for --recipe master"),
        ("--format q43 --state e6m9 --recipe mixed --out x", "--state is for --recipe master"),
        ("--format q43 --optimizer sgd --eps 1e-3 --out x", "--eps is for --optimizer adam"),
        (
            "--format q43 --epochs 0 --out x",
            "expected epochs of at least 1, but got 0, which is for weights from a file",
        ),
        (
            "--format q43 --engine dask --out x",
            "expected --engine dask and --scheduler ADDRESS together",
        ),
        (
            "--format q43 --data mine --out x",
            "expected --data as package.module:loader, but got 'mine'",
        ),
        ("--format q43 --data odd_networks:none --out x", "odd_networks has no none"),
        ("--format q43 --data odd_networks:data --out x", "of shape (C, 32, 32) for lenet5"),
        ("--format q43 --weights none.pt --out x", "File 'none.pt' does not exist"),
        ("--format q43 --out odd_networks.py", "Directory 'odd_networks.py' is a file"),
        ("--format q43 --out /proc/none", "cannot write into /proc/none"),
        (
            "--format q43 --dataset mnist --data-dir /nowhere --out x",
            "expected the mnist files in /nowhere/MNIST/raw",
        ),
        (
            "--format q43 --train-samples 9999 --out x",
            "expected between 1 and 1437 training samples, but got 9999",
        ),
        ("--format q43 --momentum 0.9 --out x", "--momentum is for --optimizer sgd"),
    ],
)
def test_bad_options_are_clear_errors_before_any_cell(own, options, message):
    result = run(*options.split())
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.split())
    assert not Path("x/cells").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format: q43\nrounding: [up,\n  upward]\n", "grid.yaml:3: rounding: expected"),
        ("format: q43\nrouding: up\n", "grid.yaml:2: expected a key out of"),
        (
            "format: q43\nepochs: [1, 2]\n",
            "grid.yaml:2: expected one value of epochs, but got a list",
        ),
        ("format: q43\nepochs: many\n", "grid.yaml:2: epochs: 'many' is not a valid integer"),
        (
            "format: q43\nseed:\n  - 0\n  - {a: 1}\n",
            "grid.yaml:4: expected seed as a word or number, but got a mapping",
        ),
        ("format: q43\nformat: q52\n", "grid.yaml:2: expected format once"),
        ("format: []\n", "expected at least one cell, but got no format"),
        ("format: q43\nmodel:\n", "grid.yaml:2: expected a value of model, but got none"),
        ("- q43\n", "expected keys and values"),
        ("format: [q43\n", "expected YAML"),
        (
            "format: q43\nseed: []\nout: x\n",
            "grid.yaml:2: expected at least one cell, but got no seed",
        ),
        (
            "format:\n  - q43\n  - nosuch\n",
            "grid.yaml:3: format: expected the name of something to round to, but got 'nosuch'",
        ),
        ("format: ''\n", "grid.yaml:1: format: expected"),
        ("format: q43\nmomentum: 0.9\n", "grid.yaml:2: --momentum is for --optimizer sgd"),
        ("format: q43\nloss_scale: 8\n", "grid.yaml:2: --loss-scale is for --recipe master"),
        (
            "format: q43\nrecipe: weights\naccumulate: [machine,\n  exact]\n",
            "grid.yaml:4: expected --accumulate machine for --recipe weights",
        ),
        (
            "format: [q43,\n int8]\n",
            "grid.yaml:2: expected a format without scales for --recipe all, but got int8",
        ),
        (
            "format: q43\ndata: foo\n",
            "grid.yaml:2: data: expected --data as package.module:loader, but got 'foo'",
        ),
        (
            "dataset: mnist\nformat: q43\ndata: a:b\n",
            "grid.yaml:3: expected --dataset or --data, but got both",
        ),
        (
            "format: q43\n---\nformat: q52\n",
            "grid.yaml:2: expected YAML, but found another document",
        ),
    ],
)
def test_errors_of_a_file_have_their_line(own, text, message):
    Path("grid.yaml").write_text(text)
    result = run("--config", "grid.yaml")
    assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_what_the_command_line_said_has_no_line_of_the_file(own):
    Path("grid.yaml").write_text("format: q43\nmomentum: 0.5\noptimizer: sgd\n")
    assert (
        "Error: --momentum is for --optimizer sgd"
        in run("--config", "grid.yaml", "--optimizer", "adam", "--momentum", "0.9").output
    )


def test_the_command_line_goes_before_the_file(own):
    written = {
        "format": ["q43", "bf16"],
        "rounding": ["up", "down"],
        "recipe": "ptq",
        "seed": [0, 1],
        "train-samples": 50,
        "lr": 0.5,
    }
    Path("grid.yaml").write_text(yaml.dump(written))
    assert "8 cells" in run("--config", "grid.yaml", "--list").output
    output = run("--config", "grid.yaml", "--format", "q52", "--seed", 7, "--list").output
    assert "2 cells" in output and "q52" in output and "q43" not in output


# The arguments of the function


def test_formats_may_be_dtypes_formats_and_targets():
    own = torch_dtypes.posit_format(10, 1)
    given = (
        "q43",
        torch_dtypes.dtype("q43_stochastic_a4"),
        torch.bfloat16,
        own,
        torch_dtypes.card("bf16").format,
        torch_dtypes.target("mxfp4"),
    )
    names = arguments.names_of(given)
    assert names == ("q43", "q43_stochastic_a4", "bfloat16", "posit10es1", "e8m7", "mxfp4")
    assert (
        str(cell(format=names[2], rounding="nearest_even", recipe="all").number())
        == "torch.bfloat16"
    )
    assert arguments.several(torch.q43) == (torch.q43,)
    with pytest.raises(TypeError, match="but got 3"):
        torch_dtypes.sweep([3])
    with pytest.raises(
        ValueError,
        match=r"for the processes of cells, but got torch\.table1_.*, whose values only this "
        r"process knows",
    ):
        torch_dtypes.sweep(torch_dtypes.table_format([1.0, 2.0]))


BLOCKS = {
    "toward_zero": (torch_dtypes.rounding, "rounding"),
    "stochastic_a4": (torch_dtypes.rounding, "rounding"),
    "exact": (torch_dtypes.accumulate, "accumulate"),
    "chunked(chunk=32)": (torch_dtypes.accumulate, "accumulate"),
}


@pytest.mark.filterwarnings(
    "ignore:expected a sum of a number format", "ignore:expected something to be rounded"
)
@pytest.mark.parametrize("said", BLOCKS)
def test_a_block_around_a_sweep_is_an_error_since_no_cell_heeds_it(said):
    block, argument = BLOCKS[said]
    with (
        block(said),
        pytest.raises(
            ValueError,
            match=re.escape(f"got a block of {said}; use sweep(..., {argument}={said!r})"),
        ),
    ):
        torch_dtypes.sweep("q43")


WRONG = {
    "epochs": (-1, ValueError, "epochs: -1 is not in the range"),
    "seed": (-1, ValueError, "seed: -1"),
    "jobs": (0, ValueError, "jobs: 0"),
    "time_limit": (0, ValueError, "time_limit: 0"),
    "lr": (float("nan"), ValueError, "lr: expected a finite number above 0"),
    "batch_size": (2.5, ValueError, "batch_size: '2.5' is not a valid"),
    "optimizer": ("zzz", ValueError, "optimizer: 'zzz' is not one of"),
    "schedule": ("zz", ValueError, "schedule: 'zz' is not one of"),
    "master": ("zz", ValueError, "master: expected the name"),
    "epoch": (3, TypeError, "expected a setting of sweep, but got epoch=3; do you mean epochs"),
    "model": (3, TypeError, "expected a model by name"),
    "dataset": (torch.nn.Identity(), TypeError, "expected a data set by name"),
    "threads": (True, TypeError, "expected threads as a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_function_is_given_means_what_the_options_do(name, tmp_path):
    value, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        torch_dtypes.sweep("q43", out=tmp_path / "sweep", **{name: value})
    assert not (tmp_path / "sweep").exists()
