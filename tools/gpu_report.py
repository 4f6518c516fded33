"""The report of tools/gpu_check.py, and its commands, which end when no time is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GRACE = 20  # seconds in which an interrupted pytest ends its workers and reports its results


class Report:
    def __init__(self, out: Path, minutes: float):
        self.out, self.end = out, time.monotonic() + 60 * minutes
        self.data: dict = {"machine": {}, "steps": []}
        out.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self.end - time.monotonic()

    def step(self, name: str, outcome: str, **facts):
        print(f"[{self.left():5.0f} s left] {name}: {outcome}", flush=True)
        for key, value in facts.items():
            if isinstance(value, list):
                for line in value:
                    print("    ", line, flush=True)
            elif value:
                print(f"    {key}: {value}"[:2000], flush=True)
        self.data["steps"].append({"name": name, "outcome": outcome, **facts})
        self.write()

    def write(self):
        (self.out / "report.json").write_text(json.dumps(self.data, indent=1))
        machine = self.data["machine"]
        lines = [
            f"# torch_dtypes on {machine.get('gpu', 'no GPU')}",
            "",
            *(f"- {k}: {v}" for k, v in machine.items()),
            "",
        ]
        for step in self.data["steps"]:
            lines += [f"## {step['name']}: {step['outcome']}", ""]
            if rows := step.get("rows"):
                columns = list(dict.fromkeys(key for row in rows for key in row))
                lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
                lines += [
                    "| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows
                ]
            for key in ("not collected", "failures", "skipped", "output"):
                # The end of a text has the outcome, the first of several lines the cause.
                if fact := step.get(key):
                    text = fact[-6000:] if isinstance(fact, str) else "\n".join(fact)[:12000]
                    lines += ["", f"{key}:", "", "```", text, "```"]
            lines.append("")
        (self.out / "report.md").write_text("\n".join(lines))


def begin_group():
    """Make a command's process the leader of a group, so that all its processes can be stopped.

    It resets SIGINT, which a shell in the background ignores.
    """
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def shell(command, report, log: str, *, limit=None, env=None) -> tuple[int, str]:
    """Run a command; return its status and its output, which goes to a file of the report at once.

    When no time is left, the command and all its processes are interrupted, so that pytest still
    reports its results, and then killed.
    """
    seconds = max(1, min(report.left() - GRACE, limit or 1e9))
    with open(report.out / log, "a+b", buffering=0) as file:
        file.write(f"==== {' '.join(map(str, command))} ====\n".encode())
        start = file.seek(0, os.SEEK_END)
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=begin_group,
            )
        except OSError as error:  # a program that is not there
            return 127, str(error)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = 124
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(start)
        return status, file.read().decode(errors="replace")
