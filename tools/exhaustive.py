"""Checks + - * / of a format against exact integers.

It checks all pairs of codes, or seeded random pairs of a wide format.

    python tools/exhaustive.py posit16es2             all 2^32 pairs, four operations: minutes
    python tools/exhaustive.py posit32es2 300000000   random pairs, half of them close in exponent

It compiles tools/exhaustive.cpp with the CPU kernels (g++, or the compiler in CXX; no PyTorch
needed). TORCH_DTYPES_CPU_CAPABILITY chooses the vector unit. The exit status is 1 if a result was
wrong. docs/proof.md records the runs.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

ROOT = Path(__file__).resolve().parents[1]
CPU = ROOT / "aten/src/ATen/native/formats/cpu"
SOURCES = re.search(
    r"set\(CAPABILITY_SOURCES(.*?)\)", (ROOT / "CMakeLists.txt").read_text(), re.DOTALL
)[1].split()
CAPABILITIES = {
    "DEFAULT": [],
    "AVX2": ["-mavx2", "-mfma", "-mf16c"],
    "AVX512": (
        "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mavx2 -mfma -mf16c "
        "-mprefer-vector-width=512"
    ).split(),
}


def build(folder):
    """Build the checker with the kernels of every vector unit, as CMakeLists.txt does."""
    compiler = [
        *os.environ.get("CXX", "g++").split(),
        "-std=c++20",
        "-O3",
        "-I",
        ROOT,
        "-I",
        ROOT / "aten/src",
    ]
    have = [f"-DTORCH_DTYPES_HAVE_{unit}" for unit in CAPABILITIES if unit != "DEFAULT"]
    objects = []
    for unit, flags in CAPABILITIES.items():
        for source in map(Path, SOURCES):
            objects.append(folder / f"{unit}{source.name}.o")
            defines = [f"-DCPU_CAPABILITY={unit}", f"-DCPU_CAPABILITY_{unit}"]
            subprocess.run(
                [
                    *compiler,
                    *flags,
                    *defines,
                    "-fno-math-errno",
                    "-c",
                    ROOT / source,
                    "-o",
                    objects[-1],
                ],
                check=True,
            )
    program = folder / "exhaustive"
    subprocess.run(
        [
            *compiler,
            *have,
            ROOT / "tools/exhaustive.cpp",
            CPU / "Kernels.cpp",
            *objects,
            "-pthread",
            "-o",
            program,
        ],
        check=True,
    )
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("format", help="posit<bits>es<es> or e<exponent bits>m<fraction bits>")
    parser.add_argument(
        "pairs", nargs="?", default="all", help="how many random pairs; default: all pairs of codes"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    match = re.fullmatch(r"(posit)(\d+)es(\d+)|e(\d+)m(\d+)", options.format)
    if not match or (options.pairs != "all" and not options.pairs.isdigit()):
        parser.error(
            "expected a format as posit16es2 or e5m10 and a number of pairs, but got "
            f"{options.format!r} {options.pairs!r}"
        )
    kind = ["posit", match[2], match[3]] if match[1] else ["float", match[4], match[5]]
    bits = int(match[2]) if match[1] else 1 + int(match[4]) + int(match[5])
    if options.pairs == "all" and bits > 16:
        parser.error(f"expected a number of pairs for {bits} bits, but got all; give a number")
    total = 4**bits if options.pairs == "all" else int(options.pairs)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with tempfile.TemporaryDirectory() as temporary, Progress(*columns) as progress:
        bar = progress.add_task(f"{options.format} + - * /", total=total)
        program = build(Path(temporary))
        run = subprocess.Popen(
            [program, *kind, options.pairs, str(options.threads)], stdout=subprocess.PIPE, text=True
        )
        for line in run.stdout:
            if line.startswith("wrong"):
                result = line.split()
            else:
                progress.update(bar, completed=int(line))
    if run.wait() not in (0, 1):
        sys.exit(f"the checker ended with status {run.returncode}")
    print(
        f"{options.format}: {total:,} pairs, 4 operations, kernels {result[3]}: "
        f"{int(result[1]):,} wrong"
    )
    sys.exit(run.returncode)


if __name__ == "__main__":
    main()
