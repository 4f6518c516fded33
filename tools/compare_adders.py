"""Compares the chips' policies with results of real chips.

The results are the validation data of north-numerical-computing/MATLAB-tensor-core.

    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core
    python tools/compare_adders.py MATLAB-tensor-core/model_validation

Each file has some thousand sums D = A B + C of one product each, as the hardware computed them. The
tool prints how many differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import torch_dtypes

CHIPS = {
    "V100": "nvidia-v100",
    "A100": "nvidia-a100",
    "H100": "nvidia-h100",
    "H200": "nvidia-h100",
    "B200": "nvidia-b200",
}
FORMATS = {"fp16": "e5m10", "bf16": "e8m7", "tf32": "tf32", "E4M3": "e4m3fn", "E5M2": "q52"}
# D in float16 from float16 operands: terms, extra bits and the smallest exponent (Khattak and
# Mikaitis; MMA-Sim has the same).
FLOAT16 = {
    "V100": (4, 13, -19),
    "A100": (8, 14, -20),
    "H100": (16, 15, -21),
    "H200": (16, 15, -21),
    "B200": (16, 15, -21),
}


def numbers(file: Path, base: int) -> torch.Tensor:
    """Read float32 numbers, written in hexadecimal digits or bits."""
    return torch.from_numpy(
        np.array([int(word, base) for word in file.read_text().split()], dtype=np.uint32).view(
            np.float32
        )
    )


def compare(folder: Path, gpu: str, name: str) -> tuple[int, int]:
    """Return the number of sums, and how many differ."""
    c, d = (numbers(folder / gpu / name / f"{which}_{gpu}_fp32.txt", 2) for which in "cd")
    dtype = torch_dtypes.dtype(FORMATS[name])
    a, b = (
        numbers(folder / gpu / name / f"{which}_{gpu}_{name}.txt", 16).reshape(len(c), -1).to(dtype)
        for which in "ab"
    )
    # float8 was multiplied by instructions that begin with 0. On the B200 these are float16's, and
    # C is added afterwards, to nearest.
    behind = name in ("E4M3", "E5M2")
    start = torch.zeros_like(c) if behind else c
    with torch_dtypes.accumulate(CHIPS[gpu]):
        got = (
            torch_dtypes.matmul(
                a[:, None],
                b[:, :, None],
                out="fp32",
                start=start.to(torch_dtypes.dtype("fp32"))[:, None, None],
            )
            .flatten()
            .float()
        )
    if behind and gpu == "B200":
        got = got + c
    return len(c), int((got != d).sum())


def compare_float16(folder: Path, gpu: str) -> tuple[int, int]:
    """Compare sums in a register of float16, which begins with C rounded to it."""
    c = numbers(folder / gpu / "fp16" / f"c_{gpu}_fp32.txt", 2)
    d = numbers(folder / gpu / "fp16" / f"d_{gpu}_fp16.txt", 2)
    half, (terms, extra_bits, least) = torch_dtypes.dtype("fp16"), FLOAT16[gpu]
    a, b = (
        numbers(folder / gpu / "fp16" / f"{which}_{gpu}_fp16.txt", 16).reshape(len(c), -1).to(half)
        for which in "ab"
    )
    with torch_dtypes.accumulate(
        "block",
        terms=terms,
        extra_bits=extra_bits,
        register=half,
        rounding="nearest_even",
        min_exponent=least,
    ):
        got = (
            torch_dtypes.matmul(
                a[:, None], b[:, :, None], out=half, start=c.to(half)[:, None, None]
            )
            .flatten()
            .float()
        )
    return len(c), int((got != d).sum())


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__)
        return 2
    folder, wrong = Path(sys.argv[1]), 0
    for gpu in CHIPS:
        present = [name for name in FORMATS if (folder / gpu / name).is_dir()]
        outcomes = {name: compare(folder, gpu, name) for name in present}
        if "fp16" in present:
            outcomes["fp16 into fp16"] = compare_float16(folder, gpu)
        for name, (count, differ) in outcomes.items():
            wrong += differ
            print(f"{gpu:5} {name:15} {count:6} sums, {differ} differ")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
