r"""Counts the instructions of the GPU's kernels, in all and in the important loops.

The listing is the GPU assembler's. The tool needs nvcc and cuobjdump, which are in CUDA's toolkit,
and no GPU.

    python3 tools/gpu_instructions.py TileKernel
    python3 tools/gpu_instructions.py ArithmeticKernel --arch sm_75 --kernel Flat \\
        --cuobjdump path/to/cuobjdump

A multiprocessor of sm_90 issues instructions for 128 threads in a clock. So a loop's count per
result bounds its rate, where memory and latencies allow it. Nothing here measures time.
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "aten/src/ATen/native/formats/cuda"
FLAGS = [
    "-std=c++20",
    "--expt-relaxed-constexpr",
    f"-I{ROOT}",
    f"-I{ROOT / 'aten/src'}",
    "-fmad=false",
]
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,6})\*/\s+(.*?);")


def assemble(source: Path, arch: str, cuobjdump: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        subprocess.run(
            ["nvcc", *FLAGS, f"-arch={arch}", "-x", "cu", str(source), "--cubin", "-o", str(cubin)],
            check=True,
        )
        return subprocess.run(
            [cuobjdump, "-sass", str(cubin)], check=True, capture_output=True, text=True
        ).stdout


def operation(text: str) -> str:
    """Return the operation of an instruction: FADD of `@!P0 FADD.FTZ R1, R2, R3`."""
    return re.sub(r"^@!?U?P\w+ ", "", text).split()[0].split(".")[0]


def innermost_loops(instructions: list[tuple[int, str]]) -> list[list[str]]:
    """Return the operations between each backward branch and its target, without inner loops."""
    jumps = [
        (int(target[1], 16), at)
        for at, text in instructions
        if (target := re.search(r"BRA.*?0x([0-9a-f]+)", text))
    ]
    spans = [(first, last) for first, last in jumps if first < last]
    inner = [
        (a, b)
        for a, b in spans
        if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)
    ]
    return [
        [operation(text) for at, text in instructions if first <= at <= last]
        for first, last in sorted(inner)
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", choices=sorted(path.stem for path in KERNELS.glob("*Kernel.cu")))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument(
        "--kernel", default="", metavar="TEXT", help="kernels with this in their (mangled) names"
    )
    parser.add_argument(
        "--shortest",
        type=int,
        default=20,
        metavar="N",
        help="loops of at least this many instructions (default: 20)",
    )
    parser.add_argument("--cuobjdump", default="cuobjdump", metavar="PATH")
    chosen = parser.parse_args(arguments)
    listing = assemble(KERNELS / f"{chosen.file}.cu", chosen.arch, chosen.cuobjdump)
    for function in re.split(r"\n\s*Function : ", listing)[1:]:
        name = function.split("\n", 1)[0]
        if chosen.kernel not in name:
            continue
        instructions = [(int(at, 16), text.strip()) for at, text in INSTRUCTION.findall(function)]
        print(
            f"{re.sub('.*GLOBAL__N__[0-9a-f_]*' + chosen.file + '_cu_[0-9a-f]*', '', name)}: "
            f"{len(instructions)} instructions"
        )
        for loop in innermost_loops(instructions):
            if len(loop) >= chosen.shortest:
                counts = ", ".join(
                    f"{n} {what}" for what, n in collections.Counter(loop).most_common(12)
                )
                print(f"    a loop of {len(loop)}: {counts}")


if __name__ == "__main__":
    main(sys.argv[1:])
