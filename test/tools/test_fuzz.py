"""Random calls find nothing (tools/fuzz.py), and the fuzzer finds planted bugs."""

import subprocess
import sys
from pathlib import Path

import pytest
from representatives import thin_out

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def run(*command):
    return subprocess.run(
        [sys.executable, *command],
        cwd=TOOLS,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    ("kind", "calls"), thin_out([("functions", 300), ("schema", 400), ("samples", 150)])
)
def test_random_calls_find_nothing(kind, calls):
    done = run("fuzz.py", "--seed", "7", "--limit", "10", "--kind", kind, "--calls", str(calls))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed 7: {calls:,} calls" in done.stdout


SPOILED = """
import argparse, os, time, torch, fuzz, fuzz_calls, fuzz_checks
from fuzz_arguments import Arguments


def bare(t):  # posit16es2's container
    return t.view(torch.int16).view(torch.bfloat16) if t.dtype is torch.posit16es2 else t


def assertion(t):
    raise RuntimeError("x INTERNAL ASSERT FAILED, please report a bug to PyTorch")


def only_ours(what):
    return lambda t: what() if t.dtype is torch.posit16es2 else t


def add_one(t):
    return t + 1


spoiled = {
    "none": add_one,
    "abort": only_ours(os.abort),
    "stock abort": lambda t: os.abort(),
    "hang": only_ours(lambda: time.sleep(60)),
    "container": bare,
    "assertion": only_ours(lambda: assertion(None)),
}


def draw(seed, number, dtypes, world=(), kind=None, operator=None):
    arguments = Arguments(__import__("random").Random(number), [torch.posit16es2], *world)
    t = torch.ones(4).to(arguments.world(torch.posit16es2))
    arguments.operands.append(t)
    name = list(spoiled)[number]
    return fuzz_checks.Call(name, spoiled[name], (t,)), arguments


fuzz_calls.draw = draw
options = argparse.Namespace(
    seed=0, first=0, calls=len(spoiled), call=None, kind=None, operator=None, seconds=0
)
fuzzer = fuzz.Fuzzer(options, [torch.posit16es2])
fuzzer.limit = 3
status = fuzzer.run()
print("status", status, sorted((*key[:3], entry[0]) for key, entry in fuzzer.findings.items()))
"""


@pytest.mark.whole
def test_the_fuzzer_finds_what_it_looks_for():
    done = run("-c", SPOILED)
    assert done.returncode == 0, done.stderr
    expected = [
        ("package", "container", "container", 1),
        ("package", "crash", "abort", 1),
        ("package", "hang", "hang", 1),
        ("package", "message", "assertion", 1),
        ("stock", "crash", "stock abort", 1),
    ]
    assert done.stdout.splitlines()[-1] == f"status 1 {expected}"
    assert "seed 0: 6 calls" in done.stdout
