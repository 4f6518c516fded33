"""Measures the package's cost for code that does not use it: stock calls with and without it.

Usage: python benchmarks/stock_overhead.py [--rounds N]

Each process times a call in batches and reports its fastest batch, which has the least of the
machine's noise. Twenty processes of either kind take turns; the table compares their medians. The
last rows are the processor seconds of whole imports: of PyTorch with the package installed but
unused, and of PyTorch with the package loaded.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys

CALLS = {
    "torch.zeros(2)": "torch.zeros(2)",
    "x + x": "x + x",
    "x.to(torch.float64)": "x.to(torch.float64)",
    "x.dtype": "x.dtype",
    "x.dtype.is_floating_point": "d.is_floating_point",
    "x.sum()": "x.sum()",
    "x.tolist()": "x.tolist()",
}

CHILD = """
import sys, timeit, torch
torch.set_num_threads(1)
assert hasattr(torch, "posit16es2") == (sys.argv[1] == "with")
x, d = torch.ones(8), torch.float32
for call in sys.argv[2:]:
    timer = timeit.Timer(call, globals={"torch": torch, "x": x, "d": d})
    number = 2000
    timer.timeit(number)
    print(min(timer.repeat(40, number)) / number)
"""


def measure(which: str) -> list[float]:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if which == "with" else "0"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, which, *CALLS.values()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(line) for line in done.stdout.split()]


def measure_import(program: str, autoload: str) -> float:
    """Return the processor seconds of a process that runs the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=20, help="processes of either kind (default 20)"
    )
    rounds = parser.parse_args().rounds
    results = {"with": [], "without": []}
    for _ in range(rounds):
        for which, runs in results.items():
            runs.append(measure(which))
    print(f"{'call':28} {'without':>10} {'with':>10} {'ratio':>7}")
    for i, name in enumerate(CALLS):
        without, with_ = (
            statistics.median(run[i] for run in results[w]) for w in ("without", "with")
        )
        print(f"{name:28} {without * 1e9:7.0f} ns {with_ * 1e9:7.0f} ns {with_ / without:7.3f}")
    runs = [
        [
            measure_import(*p)
            for p in (("import torch", "0"), ("import torch", "1"), ("import torch_dtypes", "1"))
        ]
        for _ in range(rounds)
    ]
    stock, dormant, loaded = (statistics.median(run[i] for run in runs) for i in range(3))
    print(
        f"{'import torch':28} {stock * 1e3:7.0f} ms {dormant * 1e3:7.0f} ms {dormant / stock:7.3f}"
    )
    print(
        f"{'import torch_dtypes':28} {stock * 1e3:7.0f} ms {loaded * 1e3:7.0f} ms "
        f"{loaded / stock:7.3f}"
    )


if __name__ == "__main__":
    main()
