r"""Builds the package with its kernels on a machine with a GPU, tests and measures it, and reports.

    python3 tools/gpu_check.py --minutes 9 --out gpu-report
    # here, over the GPU's kernels compiled for the host
    python3 tools/gpu_check.py --dry-run --out /tmp/report

Nothing is installed: the package goes to a folder of its own (build/gpu/site), so it works without
pip's back ends or the network. It needs CMake, ninja, a compiler, nvcc and PyTorch, and pytest for
the tests, which run in order of importance. Steps for which no time is left are listed as missing.
The report (report.md, report.json) is written again after every step. The output of commands goes
to files beside it at once (build.log, tests.log, speed.log, sanitize.log). So earlier results stay
when the time ends.

To spend a lent machine's minutes on tests only, build the package elsewhere first. Use its Python,
PyTorch and CUDA (here 3.12, 2.11.0 and 13.0), and a compiler and C library no newer than its own.
That needs nvcc of that CUDA, but no GPU.

    python3.12 -m venv /tmp/cp312 && /tmp/cp312/bin/pip install torch==2.11.0 cmake ninja
    /tmp/cp312/bin/python tools/gpu_check.py --steps build --arch 9.0 --minutes 120 --out /tmp/built
    # without it files that need PyTorch's own tests are not collected
    /tmp/cp312/bin/pip download --no-deps -d build/gpu/wheels expecttest==0.3.0

Then carry build/gpu/site and build/gpu/wheels, and run there, each in its own call, the first line
before either of the others:

    python3 -m pip install -q --no-index --no-deps --upgrade --target /tmp/wheels \\
        build/gpu/wheels/*.whl; export PYTHONPATH=/tmp/wheels
    python3 tools/gpu_check.py --site build/gpu/site --steps tests --workers 8 --minutes 9 \\
        --out $OUT
    python3 tools/gpu_check.py --site build/gpu/site --steps speed,sanitize --minutes 9 --out $OUT
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

from gpu_build import build, environment_of
from gpu_report import ROOT, Report, shell

# Names and pytest's arguments, the most important first.
TESTS = [
    ("the CPU's bits on the GPU", ["test/operators/test_gpu_route.py"]),
    (
        "casts",
        [
            "test/operators/test_conversion.py",
            "test/operators/test_factories.py",
            "test/operators/test_default_dtype.py",
        ],
    ),
    (
        "arithmetic",
        [
            "test/operators/test_arithmetic.py",
            "test/operators/test_operands.py",
            "test/operators/test_filling.py",
        ],
    ),
    (
        "sums",
        [
            f"test/operators/test_{name}.py"
            for name in (
                "accumulation",
                "accumulation_exact",
                "accumulation_convolution",
                "exact_products",
            )
        ],
    ),
    (
        "views and overlap",
        [
            "test/operators/test_views.py",
            "test/operators/test_overlap.py",
            "test/operators/test_moved_codes.py",
        ],
    ),
    ("optimizers", ["test/operators/test_optimizer_steps.py", "test/operators/test_foreach.py"]),
    ("random numbers", ["test/operators/test_random_numbers.py"]),
    ("graphs", ["test/operators/test_gpu_graphs.py"]),
    ("collectives", ["test/host/distributed/test_gpu_collectives.py"]),
    (
        "observation and fuzzy blocks",
        [
            "test/operators/test_gpu_counts.py",
            "test/fuzzing/test_fuzzy.py",
            "test/workbench/test_observe.py",
            "test/workbench/test_observe_passes.py",
        ],
    ),
    (
        "autocast, and features of GPUs only",
        ["test/host/test_gpu_autocast.py", "test/host/test_on_a_gpu.py"],
    ),
    ("compiled graphs", ["test/graphs"]),
    ("PyTorch's database", ["test/conformance/test_operators.py"]),
]
# These run the kernels compiled for the host, which says nothing about a GPU.
ON_HOST = [
    f"test/operators/test_cuda_{part}.py" for part in ("arithmetic", "kernels", "launches", "sums")
]
NAMED = [
    path for _, paths in TESTS for path in paths if path.startswith("test/operators/")
] + ON_HOST
TESTS.insert(
    -1, ("the rest of the operators", ["test/operators", *(f"--ignore={path}" for path in NAMED)])
)


def machine() -> dict:
    facts = {"python": sys.version.split()[0], "cores": os.cpu_count()}
    try:
        import torch

        facts |= {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
        if torch.cuda.is_available():
            p = torch.cuda.get_device_properties(0)
            facts |= {
                "gpu": p.name,
                "architecture": f"{p.major}.{p.minor}",
                "multiprocessors": p.multi_processor_count,
                "memory": p.total_memory >> 30,
            }
    except (ImportError, OSError, RuntimeError) as error:
        facts["torch"] = f"not usable: {error}"
    if git := shutil.which("git"):  # a copy of the files may lack git and .git
        commit = subprocess.run(
            [git, "rev-parse", "--short", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        facts["commit"] = commit.stdout.strip()
    return facts


def parse_summary(output: str) -> tuple[str, dict[str, list[str]]]:
    """Return pytest's last line, and lists of lines.

    The lists are files that it could not read, with the reason, failures by name, and the reasons
    of skips.
    """
    lines = output.splitlines()
    last = next(
        (
            line.strip("= ")
            for line in reversed(lines)
            if re.search(r"\d+ (passed|failed|error|skipped|deselected)", line)
        ),
        "no summary",
    )
    unread = {}
    for path, text in re.findall(
        r"^_+ ERROR collecting (\S+) _+\n(.*?)(?=^[_=]{5,})", output, re.MULTILINE | re.DOTALL
    ):
        reasons = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        unread[path] = f"{path}: {reasons[-1] if reasons else 'no reason given'}"
    failures = [
        line
        for line in lines
        if line.startswith("FAILED ") or (line.startswith("ERROR ") and "::" in line)
    ]
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    return last, {
        "not collected": [line[:300] for line in unread.values()],
        "failures": [line[:300] for line in failures[:40]],
        "skipped": [line[:300] for line in skipped[:20]],
    }


def device_options(arguments: list[str], device: str) -> list[str]:
    """Return pytest's options for a device, which test_gpu_*.py choose themselves."""
    return [] if "/test_gpu_" in arguments[0] else ["--device", device]


def run_tests(report: Report, environment: dict, device: str, workers: int):
    parallel = (
        ["-p", "xdist", "-n", str(workers)]
        if workers > 1
        and shell([sys.executable, "-c", "import xdist"], report, "tests.log")[0] == 0
        else []
    )
    options = [
        "-q",
        "-rfEs",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "--maxfail=60",
        "--continue-on-collection-errors",
        *parallel,
    ]
    for name, arguments in TESTS:
        if report.left() < 60:
            report.step(f"tests: {name}", "not run: no time left")
            continue
        began = time.monotonic()
        status, output = shell(
            [
                sys.executable,
                "-m",
                "pytest",
                *options,
                *device_options(arguments, device),
                *arguments,
            ],
            report,
            "tests.log",
            env=environment,
            limit=240,
        )
        last, details = parse_summary(output)
        outcome = (
            last
            if status in (0, 1)
            else f"ended with status {status} after {time.monotonic() - began:.0f} s; {last}"
        )
        if details["not collected"]:
            outcome += f"; {len(details['not collected'])} files not collected"
        if status == 124:
            outcome += "; no time left"
        # After such an error, later calls of the process on the GPU fail too.
        if lost := re.search(
            r"illegal memory access|unspecified launch failure|misaligned address|device-side "
            r"assert",
            output,
        ):
            outcome += (
                f"; {lost[0]}: later failures of the same process may result from the first such "
                "test"
            )
        report.step(f"tests: {name}", outcome, **details)


def sanitize(report: Report, environment: dict):
    """Run compute-sanitizer over some of the kernels' own cases of each kind."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if not sanitizer:
        report.step("compute-sanitizer", "not run: not installed")
        return
    pick = (
        "arithmetic-posit16es2-nearest_even or casts-q43-nearest_even or sums-posit8es2 or "
        "chop_values-stochastic"
    )
    tests = [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "test/operators/test_gpu_route.py",
        "-k",
        f"on_a_gpu and ({pick})",
    ]
    for tool in ("memcheck", "racecheck", "initcheck"):
        if report.left() < 60:
            report.step(f"compute-sanitizer {tool}", "not run: no time left")
            continue
        command = [
            sanitizer,
            "--tool",
            tool,
            "--error-exitcode",
            "9",
            "--kernel-name",
            "kernel_substring=run_each",
            sys.executable,
            *tests,
        ]
        status, output = shell(
            command,
            report,
            "sanitize.log",
            env=environment | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            limit=150,
        )
        report.step(
            f"compute-sanitizer {tool}",
            "clean" if status == 0 else f"status {status}",
            output="" if status == 0 else output[-3000:],
        )


def parse_rows(output: str) -> tuple[list[dict], str]:
    """Return a benchmark's rows, and its other output; the last line may be incomplete."""
    rows, rest = [], []
    for line in output.splitlines():
        try:
            rows.append({**json.loads(line)})
        except (ValueError, TypeError):  # no JSON, no row
            rest.append(line)
    return rows, "\n".join(rest)


def measure(report: Report, environment: dict, device: str):
    for group in ("memory", "sums", "products", "training", "peers"):
        if report.left() < 50:
            report.step(f"speed: {group}", "not run: no time left")
            continue
        command = [sys.executable, str(ROOT / "benchmarks/gpu_speed.py"), group, "--device", device]
        status, output = shell(command, report, "speed.log", env=environment, limit=120)
        rows, rest = parse_rows(output)
        report.step(
            f"speed: {group}",
            "measured" if status == 0 else f"status {status}",
            rows=rows,
            output=rest[-2000:],
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run without a GPU, over the kernels compiled for the host",
    )
    parser.add_argument(
        "--steps",
        default="build,tests,speed,sanitize",
        help="steps to run, in this order, of build, tests, speed, sanitize",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="processes for tests; each holds half a gigabyte of the GPU",
    )
    parser.add_argument("--only", default="", help="run only tests whose name contains this")
    parser.add_argument(
        "--site", type=Path, help="folder of a built package, instead of building it"
    )
    parser.add_argument(
        "--arch", help="GPU architecture to build for, as 9.0, instead of this machine's"
    )
    options = parser.parse_args()
    wanted, dry = options.steps.split(","), options.dry_run
    report = Report(options.out.resolve(), options.minutes)
    report.data["machine"] = facts = machine()
    report.step("machine", ", ".join(f"{k} {v}" for k, v in facts.items()))
    if not dry and "gpu" not in facts and wanted != ["build"]:
        report.step(
            "GPU", "failed: expected a GPU that torch sees, but got none; use --dry-run without one"
        )
        return 1
    site = (
        options.site.resolve()
        if options.site
        else build(report, dry, options.arch or facts.get("architecture"))
    )
    if site is None:
        return 1
    if wanted == ["build"]:
        return 0
    environment = environment_of(report, site, dry)
    if environment is None:
        return 1
    TESTS[:] = [(name, arguments) for name, arguments in TESTS if options.only in name]
    steps = {
        "tests": lambda: run_tests(
            report, environment, "gpu-on-host" if dry else "cuda", options.workers
        ),
        "speed": lambda: measure(report, environment, "cpu" if dry else "cuda"),
        "sanitize": lambda: dry or sanitize(report, environment),
    }
    for name in wanted:
        if name in steps:
            try:
                steps[name]()
            except Exception:  # later steps may still give results
                report.step(name, "failed in this script", output=traceback.format_exc())
    return int(
        any(
            re.search(r"fail|status|error|no summary", step["outcome"])
            for step in report.data["steps"][1:]
        )
    )


if __name__ == "__main__":
    sys.exit(main())
