"""The command ``torch-dtypes chop``."""

import io
import pathlib
import sys

import click
import numpy as np
import torch

from ..compat import matlab
from ..formats.arguments import parse_mode
from ..targets.chop import chop as round_array
from ..targets.lookup import target

KINDS = ("npy", "csv", "mat", "raw")


def _kind(name: str, given: str | None) -> str:
    kind = pathlib.PurePath(name).suffix.lstrip(".").lower()
    return kind if kind in KINDS else given or "raw"


def _read(name: str, kind: str) -> dict[str, np.ndarray]:
    """Return a file's arrays by their names; only one of MATLAB has more than one."""
    with click.open_file(name, "rb") as file:
        data = file.read()  # whole: NumPy and scipy move to and fro in a file, not in a pipe
    if kind == "mat":
        from scipy.io import loadmat

        held = loadmat(io.BytesIO(data)).items()
        arrays = {k: v for k, v in held if not k.startswith("__") and v.dtype.kind in "iufc"}
        if not arrays:
            raise ValueError("expected a variable with numbers in it, but there is none")
        return arrays
    if kind == "npy":
        return {"": np.load(io.BytesIO(data))}
    if kind == "csv":
        return {"": np.loadtxt(io.BytesIO(data), delimiter=",", ndmin=2)}
    if len(data) % 8:
        raise ValueError(f"expected doubles, 8 bytes each, but got {len(data)} bytes")
    return {"": np.frombuffer(data)}


def _write(name: str, kind: str, arrays: dict[str, np.ndarray]) -> None:
    data = io.BytesIO()
    if kind == "mat":
        from scipy.io import savemat

        savemat(data, arrays)
    elif kind == "npy":
        np.save(data, arrays[""])
    elif kind == "csv":
        np.savetxt(data, arrays[""], delimiter=",", fmt="%.17g")
    else:
        data.write(arrays[""].astype(np.float64).tobytes())
    with click.open_file(name, "wb") as file:
        file.write(data.getvalue())


@click.command(short_help="Round a file of numbers to a format, or serve MATLAB and Octave.")
@click.argument("source", metavar="[IN]", required=False)
@click.option("--format", "name", metavar="FORMAT", help="The format, as in show, or blocks.")
@click.option("--rounding", metavar="MODE", help="A rounding mode, or chop's number from 1 to 9.")
@click.option("--seed", type=int, metavar="N", help="Seed of the random modes.")
@click.option("--out", metavar="OUT", help="The file to write; - is standard output.")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="What a file holds whose name does not say, and standard input or output.  [default: raw]",
)
@click.option("--serve", is_flag=True, help="Answer chop.m on standard input and output.")
@click.option("--matlab-path", is_flag=True, help="Print the folder of chop.m, for addpath.")
def chop(source, name, rounding, seed, out, kind, serve, matlab_path):
    """Round the numbers in the file IN to FORMAT, and write them to OUT as floats.

    Files are .npy (of NumPy), .csv, .mat (of MATLAB, with scipy; every array in it is rounded) or
    raw doubles. IN and OUT may be -, standard input and output.

    MATLAB and Octave have a function chop: addpath the folder that --matlab-path prints.
    """
    if matlab_path:
        return click.echo(matlab.FOLDER)
    if serve:
        return matlab.serve(sys.stdin.buffer, sys.stdout.buffer)
    for value, option in ((source, "IN"), (name, "--format"), (out, "--out")):
        if value is None:
            raise click.UsageError(f"expected {option}: torch-dtypes chop IN --format F --out OUT")
    _round_or_explain(source, name, rounding, seed, out, kind)


def _round_or_explain(source, name, rounding, seed, out, kind) -> None:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    kinds = _kind(source, kind), _kind(out, kind)
    try:
        format, mode = target(name), None if rounding is None else parse_mode(rounding)
        if (kinds[0] == "mat") != (kinds[1] == "mat"):
            raise ValueError(
                f"expected .mat to .mat, but got {kinds[0]} to {kinds[1]}: only .mat names its "
                "arrays"
            )
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    try:
        rounded = {
            name: round_array(values, format, rounding=mode, generator=generator)
            for name, values in _read(source, kinds[0]).items()
        }
        _write(out, kinds[1], rounded)
    except ModuleNotFoundError as error:
        raise click.ClickException(f".mat files need {error.name}: pip install scipy") from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or source}: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise click.ClickException(f"cannot round {source}: {error}") from error
