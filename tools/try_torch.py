#!/usr/bin/env python3
"""Builds and tests the package against another release of PyTorch, in an environment of its own.

    # the tests of PyTorch's private parts, and the operator database
    python tools/try_torch.py 2.15.0
    python tools/try_torch.py 2.15.0 --tests all    # the whole suite
    # some files of it, while something is fixed
    python tools/try_torch.py 2.15.0 --tests test_views test_script
    python tools/try_torch.py 2.15.0 --python python3.12 --remove

It prints one line for the table in docs/reference/releases.md. A release that is a CUDA build takes
6 GB and ten minutes; it imports without a GPU. The environment is in build/try-torch-RELEASE-PYTHON
and is used again. --fresh makes it again, --remove deletes it afterwards.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ("build", "train", "test")

# Files of tests that use PyTorch's private parts or follow its tables. The operator database
# (conformance/) meets a release's other changes.
PRIVATE = (
    "test_accumulation_operators test_amp test_assert_close test_attention test_autocast "
    "test_autocast_attention test_autograd test_autograd_functions test_bad_input "
    "test_block_tensors test_cast_gradients test_checkpoints test_chop_graphs "
    "test_collective_sums test_collectives test_collectives_refused test_compile_runs_eagerly "
    "test_composites_in_transforms test_conversion test_ddp test_default_device "
    "test_default_dtype test_distributed test_distributed_tensors test_dtypes test_error_names "
    "test_factories test_file_versions test_filling test_foreach test_function_tables "
    "test_functional_collectives test_fuzzy test_gradient_dtypes test_gradients_in_user_code "
    "test_graph_capture test_hooks test_inference_mode test_infinities test_interop "
    "test_linear_cross_entropy test_listings test_loading_again test_masked test_mixed_layers "
    "test_mixed_operands test_modules test_moved_codes test_observe test_observe_passes "
    "test_operands test_operator_table test_operators test_optimizer_steps test_optimizers "
    "test_other_libraries test_overrides test_packaging test_printing test_quantized_graphs "
    "test_random_numbers test_rounding_nodes test_safetensors test_script test_serialization "
    "test_stochastic_operators test_stock test_stock_compile test_tangents test_tensor_body "
    "test_threads test_touched_elements test_transforms test_views test_vmap "
).split()


def run(*command: object, log: Path | None = None, **settings) -> None:
    """Run a command. Its output goes to the log, if any; an error shows the end of the log."""
    words = [str(word) for word in command]
    print("+", *words, *(() if log is None else (f"> {log}",)), flush=True)
    with open(os.devnull if log is None else log, "w") as file:
        output = {} if log is None else {"stdout": file, "stderr": subprocess.STDOUT}
        done = subprocess.run(words, check=False, **output, **settings)
    if done.returncode != 0:
        end = "" if log is None else "\n" + "\n".join(log.read_text().splitlines()[-30:])
        raise SystemExit(
            f"expected {words[0]} to succeed, but got status {done.returncode}; see its output{end}"
        )


def python_release(python: str) -> str:
    """Return an interpreter's release as folders and tables name it: 3.12."""
    words = [python, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def read_pins(*names: str) -> list[str]:
    """Return the lines of some files of requirements, without torch."""
    lines = [
        line.split("#")[0].strip()
        for name in names
        for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    ]
    return list(
        dict.fromkeys(line for line in lines if line and not line.startswith(("-c", "torch==")))
    )


def parse_project(requirement: str) -> str:
    """Return a requirement's normalised name: typing-extensions for "Typing_Extensions>=4.10"."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def make_environment(folder: Path, python: str, release: str) -> Path:
    """Make an environment with that torch and all needs of build and tests; return its Python."""
    interpreter = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(python, "-m", "venv", folder)
        install = (interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, f"torch=={release}")
        # The constraints fit the pinned torch. This torch's own requirements (2.11: setuptools
        # below 82) are installed already.
        facts = (
            "import importlib.metadata, json; "
            "print(json.dumps(importlib.metadata.requires('torch')))"
        )
        needed = json.loads(
            subprocess.run(
                [interpreter, "-c", facts], check=True, capture_output=True, text=True
            ).stdout
        )
        own = {parse_project(requirement) for requirement in needed}
        constraints = folder / "constraints.txt"
        constraints.write_text(
            "\n".join(line for line in read_pins("constraints") if parse_project(line) not in own)
        )
        run(*install, "-c", constraints, f"torch=={release}", *read_pins(*REQUIREMENTS))
        (folder / ".complete").touch()
    return interpreter


def find_tests(which: list[str]) -> list[Path]:
    """Return the paths of "all" tests, of "private" ones, or of files with these names."""
    files = {path.stem: path for path in sorted((ROOT / "test").rglob("test_*.py"))}
    if which == ["all"]:
        return [ROOT / "test"]
    names = PRIVATE if which == ["private"] else which
    if missing := [name for name in names if name not in files]:
        raise SystemExit(
            f"expected names of test files, all or private, but got {', '.join(missing)}; test/ "
            f"has {', '.join(sorted(files))}"
        )
    return [files[name] for name in names]


def find_folder(release: str, python: str) -> Path:
    return ROOT / "build" / f"try-torch-{release}-py{python_release(python)}"


def install(python: Path, place: Path, jobs: int, *defined: str) -> None:
    """Build the package in a folder of the environment, and install it there.

    Caches of other builds refer to another PyTorch.
    """
    defined = (*defined, f"CMAKE_JOB_POOLS=compile={jobs}", "CMAKE_JOB_POOL_COMPILE=compile")
    build = (f"-Cbuild-dir={place}", *(f"-Ccmake.define.{one}" for one in defined))
    options = (
        "--disable-pip-version-check",
        "--no-build-isolation",
        "--no-deps",
        "--force-reinstall",
    )
    run(python, "-m", "pip", "install", *options, *build, ROOT, log=place.parent / "build.log")


def try_release(options: argparse.Namespace, folder: Path) -> int:
    files = find_tests(options.tests)
    python = make_environment(folder, options.python, options.release)
    install(python, folder / "native", options.jobs)

    log = folder / "tests.log"
    command = [python, "-m", "pytest", "-q", "-n", options.jobs, "-p", "no:cacheprovider", *files]
    print("+", *command[:6], "... >", log, flush=True)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("w") as output:
        done = subprocess.run(
            [str(word) for word in command],
            check=False,
            cwd=ROOT,
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    summary = re.findall(
        r"^(?:=+ )?((?:\d+ \w+(?:, )?)+) in [\d.]+s", log.read_text(), re.MULTILINE
    )
    if not summary:
        raise SystemExit(
            f"expected pytest's summary at the end of {log}, but got status "
            f"{done.returncode}; see its output:\n"
            f"{log.read_text()[-3000:]}"
        )
    facts = "import platform, torch; print(torch.__version__, platform.python_version())"
    version, python_version = subprocess.run(
        [python, "-c", facts], check=True, capture_output=True, text=True, cwd=folder
    ).stdout.split()
    print(
        f"| {version} | {python_version} | {platform.machine()} | {' '.join(options.tests)}: "
        f"{summary[-1]} | {datetime.date.today()} |"
    )
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", help="release of PyTorch by pip's name: 2.15.0")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="Python from which the environment is made (default: this one)",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=["private"],
        help="all, private (default: tests of private parts), or names of files",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes that compile, and that test (default: one a core)",
    )
    parser.add_argument("--fresh", action="store_true", help="make the environment again")
    parser.add_argument("--remove", action="store_true", help="delete the environment afterwards")
    options = parser.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+", options.release):
        parser.error(
            "expected a release as major.minor.patch, for example 2.15.0, but got "
            f"{options.release!r}"
        )
    folder = find_folder(options.release, options.python)
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        return try_release(options, folder)
    finally:
        if options.remove:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
