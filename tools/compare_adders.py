"""Compares the chips' policies with what real ones gave: the validation data of north-numerical-computing/MATLAB-tensor-core.

    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core
    python tools/compare_adders.py MATLAB-tensor-core/model_validation

Each file has some thousand sums D = A B + C of one product each, as the hardware computed them. Prints how many differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import torch_dtypes

CHIPS = {"V100": "nvidia-v100", "A100": "nvidia-a100", "H100": "nvidia-h100", "H200": "nvidia-h100", "B200": "nvidia-b200"}
FORMATS = {"fp16": "e5m10", "bf16": "e8m7", "tf32": "tf32", "E4M3": "e4m3fn", "E5M2": "q52"}


def numbers(file: Path, base: int) -> torch.Tensor:
    """float32 numbers, written in hexadecimal digits or bits."""
    return torch.from_numpy(np.array([int(word, base) for word in file.read_text().split()], dtype=np.uint32).view(np.float32))


def compare(folder: Path, gpu: str, name: str) -> tuple[int, int]:
    """How many sums there are, and how many differ."""
    c, d = (numbers(folder / gpu / name / f"{which}_{gpu}_fp32.txt", 2) for which in "cd")
    dtype = torch_dtypes.dtype(FORMATS[name])
    a, b = (numbers(folder / gpu / name / f"{which}_{gpu}_{name}.txt", 16).reshape(len(c), -1).to(dtype) for which in "ab")
    # float8 was multiplied by instructions that begin with 0; on the B200 these are float16's, and C is added behind, to nearest.
    behind = name in ("E4M3", "E5M2")
    start = torch.zeros_like(c) if behind else c
    with torch_dtypes.accumulate(CHIPS[gpu]):
        got = torch_dtypes.matmul(a[:, None], b[:, :, None], out="fp32", start=start.to(torch_dtypes.dtype("fp32"))[:, None, None]).flatten().float()
    if behind and gpu == "B200":
        got = got + c
    return len(c), int((got != d).sum())


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__)
        return 2
    folder, wrong = Path(sys.argv[1]), 0
    for gpu in CHIPS:
        for name in FORMATS:
            if (folder / gpu / name).is_dir():
                count, differ = compare(folder, gpu, name)
                wrong += differ
                print(f"{gpu:5} {name:5} {count:6} sums, {differ} differ")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
