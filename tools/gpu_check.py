"""On a machine with a GPU: builds the package with its kernels, tests them in order of importance, measures them, and writes a report.

    python3 tools/gpu_check.py --minutes 9 --out gpu-report
    python3 tools/gpu_check.py --dry-run --out /tmp/report     # here, over the GPU's kernels compiled for the host

Nothing is installed: the package goes to a folder of its own (build/gpu/site), so that an environment that lacks pip's back ends, or the network,
will do; it needs CMake, ninja, a compiler, nvcc and PyTorch, and pytest for the tests. Steps that the time does not suffice for are said to be
missing. The report (report.md, report.json) is written anew after every step: what was found before the time is up, stays.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "gpu"

# In order of importance: what decides first. Each a name and pytest's arguments.
TESTS = [
    ("the CPU's bits on the GPU", ["test/operators/test_gpu_route.py"]),
    ("casts", ["test/operators/test_conversion.py", "test/operators/test_factories.py"]),
    ("arithmetic", ["test/operators/test_arithmetic.py", "test/operators/test_operands.py", "test/operators/test_filling.py"]),
    ("sums", [f"test/operators/test_{name}.py" for name in ("accumulation", "accumulation_convolution", "exact_products")]),
    ("views and overlap", ["test/operators/test_views.py", "test/operators/test_overlap.py", "test/operators/test_moved_codes.py"]),
    ("optimizers", ["test/operators/test_optimizer_steps.py", "test/operators/test_foreach.py"]),
    ("random numbers", ["test/operators/test_random_numbers.py"]),
    ("graphs", ["test/operators/test_gpu_graphs.py"]),
    ("collectives", ["test/python/test_gpu_collectives.py"]),
    ("the rest of the operators", ["test/operators"]),
    ("PyTorch's database", ["test/conformance/test_operators.py"]),
]


class Report:
    def __init__(self, out: Path, minutes: float):
        self.out, self.end = out, time.monotonic() + 60 * minutes
        self.found: dict = {"machine": {}, "steps": []}
        out.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self.end - time.monotonic()

    def step(self, name: str, outcome: str, **facts):
        print(f"[{self.left():5.0f} s left] {name}: {outcome}", flush=True)
        for key, value in facts.items():
            if isinstance(value, list):
                for line in value:
                    print("    ", line, flush=True)
            else:
                print(f"    {key}: {value}"[:2000], flush=True)
        self.found["steps"].append({"name": name, "outcome": outcome, **facts})
        self.write()

    def write(self):
        (self.out / "report.json").write_text(json.dumps(self.found, indent=1))
        machine = self.found["machine"]
        lines = [f"# torch_dtypes on {machine.get('gpu', 'no GPU')}", "", *(f"- {k}: {v}" for k, v in machine.items()), ""]
        for step in self.found["steps"]:
            lines += [f"## {step['name']}: {step['outcome']}", ""]
            if rows := step.get("rows"):
                columns = list(dict.fromkeys(key for row in rows for key in row))
                lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
                lines += ["| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows]
            for key in ("failures", "skipped", "output"):
                if step.get(key):
                    text = step[key] if isinstance(step[key], str) else "\n".join(step[key])
                    lines += ["", f"{key}:", "", "```", text[-6000:], "```"]
            lines.append("")
        (self.out / "report.md").write_text("\n".join(lines))


def shell(command, report, *, limit=None, env=None, keep=20000):
    """A command's status and the end of its output; stopped when the time is up."""
    seconds = max(5, min(report.left() - 5, limit or 1e9))
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False)
        return done.returncode, done.stdout[-keep:]
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        return 124, (output.decode(errors="replace") if isinstance(output, bytes) else output)[-keep:]


def machine() -> dict:
    import torch

    facts = {"torch": torch.__version__, "cuda": str(torch.version.cuda), "python": sys.version.split()[0], "cores": os.cpu_count()}
    if torch.cuda.is_available():
        p = torch.cuda.get_device_properties(0)
        facts |= {"gpu": p.name, "architecture": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count, "memory": p.total_memory >> 30}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return facts | {"commit": commit.stdout.strip()}


def build(report: Report, dry: bool, arch: str | None) -> dict | None:
    """The environment in which the built package is found, or None. (Kept between calls: a second build compiles what changed.)"""
    site = BUILD / ("site-on-host" if dry else "site")
    objects = BUILD / ("on-host" if dry else "cuda")
    options = ["-DTORCH_DTYPES_GPU_ON_HOST=ON", "-DTORCH_DTYPES_CUDA=OFF"] if dry else ["-DTORCH_DTYPES_CUDA=ON"]
    environment = os.environ | ({"TORCH_CUDA_ARCH_LIST": arch} if arch else {})
    began = time.monotonic()
    command = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(objects),
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DPython_EXECUTABLE={sys.executable}",
        *options,
    ]
    status, output = shell(command, report, env=environment)
    if status == 0:
        status, output = shell(["cmake", "--build", str(objects), "--parallel"], report, env=environment)
    if status == 0:
        package = site / "torch_dtypes"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(ROOT / "torch/torch_dtypes", package, ignore=shutil.ignore_patterns("*.so", "__pycache__", "_build_info.py"))
        shutil.copy(ROOT / "torch/_torch_dtypes_autoload.py", site)
        status, output = shell(["cmake", "--install", str(objects), "--prefix", str(site)], report)
        metadata = site / "torch_dtypes-0.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-dtypes\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text("[torch.backends]\ntorch_dtypes = _torch_dtypes_autoload:load\n")
    seconds = round(time.monotonic() - began)
    if status != 0:
        errors = [line for line in output.splitlines() if re.search(r"error|FAILED|Error", line)]
        report.step("build", f"failed after {seconds} s", failures="\n".join(errors[:40]) + "\n...\n" + output[-3000:])
        return None
    report.step("build", f"built in {seconds} s")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)}


def summary_of(output: str) -> tuple[str, list[str], list[str]]:
    """pytest's last line, the failures by name, and the reasons of skips."""
    lines = output.splitlines()
    last = next((line.strip("= ") for line in reversed(lines) if re.search(r"\d+ (passed|failed|error|skipped|deselected)", line)), "no summary")
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return last, failures, [line for line in lines if line.startswith("SKIPPED")]


def run_tests(report: Report, environment: dict, device: str, workers: int):
    parallel = ["-n", str(workers)] if workers > 1 and shell([sys.executable, "-c", "import xdist"], report)[0] == 0 else []
    for name, arguments in TESTS:
        if report.left() < 40:
            report.step(f"tests: {name}", "not run: no time left")
            continue
        on = [] if "test_gpu_route" in arguments[0] else ["--device", device]
        command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider", "--maxfail=60", *parallel, *on, *arguments]
        began = time.monotonic()
        status, output = shell(command, report, env=environment, limit=240, keep=200000)
        last, failures, skipped = summary_of(output)
        (report.out / f"tests-{re.sub('[^a-z]+', '-', name.lower())}.log").write_text(output)
        outcome = last if status in (0, 1) else f"ended with status {status} after {time.monotonic() - began:.0f} s; {last}"
        report.step(f"tests: {name}", outcome, failures=[line[:300] for line in failures[:40]], skipped=[line[:300] for line in skipped[:20]])


def sanitize(report: Report, environment: dict):
    """compute-sanitizer over the kernels' own cases, some of each."""
    if not shutil.which("compute-sanitizer"):
        report.step("compute-sanitizer", "not run: not installed")
        return
    pick = "arithmetic-posit16es2-nearest_even or casts-q43-nearest_even or sums-posit8es2 or chopped-stochastic"
    for tool in ("memcheck", "racecheck", "initcheck"):
        if report.left() < 60:
            report.step(f"compute-sanitizer {tool}", "not run: no time left")
            continue
        tests = [
            sys.executable,
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
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--kernel-name", "kernel_substring=run_each", *tests]
        status, output = shell(command, report, env=environment | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, limit=150)
        report.step(f"compute-sanitizer {tool}", "clean" if status == 0 else f"status {status}", output="" if status == 0 else output[-3000:])


def measure(report: Report, environment: dict, device: str):
    for group in ("memory", "sums", "products", "training"):
        if report.left() < 30:
            report.step(f"speed: {group}", "not run: no time left")
            continue
        command = [sys.executable, str(ROOT / "benchmarks/gpu_speed.py"), group, "--device", device]
        status, output = shell(command, report, env=environment, limit=120)
        rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        rest = "\n".join(line for line in output.splitlines() if not line.startswith("{"))
        report.step(f"speed: {group}", "measured" if status == 0 else f"status {status}", rows=rows, output=rest[-2000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    parser.add_argument("--dry-run", action="store_true", help="without a GPU: over the kernels compiled for the host")
    parser.add_argument("--steps", default="build,tests,speed,sanitize", help="of build, tests, speed, sanitize: what is wanted, in this order")
    parser.add_argument("--workers", type=int, default=1, help="processes for tests; each holds half a gigabyte of the GPU")
    parser.add_argument("--only", default="", help="of the tests, those whose name has this in it")
    parser.add_argument("--site", type=Path, help="where the package was built, instead of building it")
    options = parser.parse_args()
    report = Report(options.out.resolve(), options.minutes)
    report.found["machine"] = facts = machine()
    report.step("machine", ", ".join(f"{k} {v}" for k, v in facts.items()))
    if not options.dry_run and "gpu" not in facts:
        report.step("GPU", "expected one that torch sees, but got none; --dry-run goes without")
        return 1
    environment = None
    if options.site:
        environment = os.environ | {"PYTHONPATH": str(options.site)}
    elif "build" in options.steps:
        environment = build(report, options.dry_run, facts.get("architecture"))
    if environment is None:
        return 1
    TESTS[:] = [(name, arguments) for name, arguments in TESTS if options.only in name]
    steps = {
        "tests": lambda: run_tests(report, environment, "gpu-on-host" if options.dry_run else "cuda", options.workers),
        "speed": lambda: measure(report, environment, "cpu" if options.dry_run else "cuda"),
        "sanitize": lambda: options.dry_run or sanitize(report, environment),
    }
    for name in options.steps.split(","):
        if name in steps:
            steps[name]()
    return int(any("fail" in step["outcome"] or "status" in step["outcome"] for step in report.found["steps"]))


if __name__ == "__main__":
    sys.exit(main())
