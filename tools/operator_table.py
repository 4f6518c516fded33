#!/usr/bin/env python3
"""Runs every entry of PyTorch's operator database in format dtypes and writes docs/operators.md.

    python tools/operator_table.py    # the dtypes of the document
    # one of them, quickly, to the terminal
    python tools/operator_table.py --dtype q43 --samples 3 --out -

One worker process runs the entries. It is restarted when an entry ends it or takes too long: a
crash becomes a line of the table, not the end of the run.
"""

import argparse
import collections
import json
import os
import re
import selectors
import signal
import subprocess
import sys
from pathlib import Path

from prose import wrap_prose

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "test" / "conformance")]

DTYPES = ("posit16es2", "q43", "q52", "e5m5", "posit8es2", "posit32es2")
KINDS = {
    "forward": "forward",
    "backward": "backward",
    "gradgrad": "second derivative",
    "inplace": "in place, out=",
    "inplace_backward": "in-place backward",
    "errors": "wrong input",
}
FIELDS = ("status", "reason", "samples", "bad")


# ---- the worker ----


def work():
    """Read `dtype kind number samples` lines from standard input, and answer each in JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of operators must not mix with the answers
    import op_cases
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_dtypes

    torch.set_num_threads(1)
    for line in sys.stdin:
        dtype, kind, number, samples = line.split()
        op = op_db[int(number)]
        try:
            outcome = op_cases.run_entry(op, torch_dtypes.dtype(dtype), kind, int(samples) or None)
        except Exception as error:  # the database's own sample functions
            outcome = op_cases.Outcome(
                "fails",
                f"{type(error).__name__} outside of the operator: {op_cases.first_line(error)}",
            )
        print(json.dumps([getattr(outcome, field) for field in FIELDS]), file=answers, flush=True)


class Worker:
    def __init__(self, timeout: float):
        self.timeout, self.process = timeout, None

    def ask(self, line: str) -> dict:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, __file__, "--worker"]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            answered = ready.select(self.timeout)
        answer = self.process.stdout.readline() if answered else ""
        if answer:
            return dict(zip(FIELDS, json.loads(answer), strict=True))
        self.process.kill()
        code = self.process.wait()
        self.process = None
        if not answered:
            return dict(
                zip(FIELDS, ("fails", f"no end within {self.timeout:g} s", 0, 1), strict=True)
            )
        return dict(
            zip(
                FIELDS,
                (
                    "crash",
                    f"the process ended with {signal.Signals(-code).name if code < 0 else code}",
                    0,
                    1,
                ),
                strict=True,
            )
        )

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def run(names: list[str], options) -> dict:
    """Return results[entry][dtype][kind] = outcome."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    results = collections.defaultdict(lambda: collections.defaultdict(dict))
    worker = Worker(options.timeout)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for dtype in options.dtype:
            bar = progress.add_task(dtype, total=len(names) * len(KINDS))
            for kind in KINDS:
                progress.update(bar, description=f"{dtype} {kind}")
                for number, name in enumerate(names):
                    results[name][dtype][kind] = worker.ask(
                        f"{dtype} {kind} {number} {options.samples}"
                    )
                    progress.advance(bar)
    worker.close()
    return results


# ---- the document ----


def share(outcomes: list[dict]) -> str:
    count = collections.Counter(o["status"] for o in outcomes)
    applicable = sum(count.values()) - count["n/a"]
    failed = count["fails"] + count["crash"]
    percent = 100 * count["pass"] / applicable if applicable else 100.0
    return (
        f"{count['pass']} of {applicable} ({percent:.1f} %), {count['refused']} refused, {failed} "
        "fail"
    )


def cell(by_dtype: dict, kind: str) -> str:
    """Return the status that most dtypes have, and the dtypes with other ones."""
    dtypes = collections.defaultdict(list)
    for dtype, outcomes in by_dtype.items():
        dtypes[outcomes[kind]["status"].replace("n/a", "-")].append(dtype)
    first, *others = sorted(dtypes, key=lambda status: -len(dtypes[status]))
    return first + "".join(f"; {', '.join(dtypes[status])}: {status}" for status in others)


def cut_reason(reason: str, dtype: str, length: int = 200) -> str:
    """Shorten an error's text, and drop the names that differ from dtype to dtype."""
    reason = re.sub(rf"(torch\.)?\b{dtype}\b", "D", reason)
    reason = re.sub(
        r"(?i)(torch\.)?\b(float8_e5m2fnuz|bfloat16)\b( \(the container\))?",
        "the container's dtype",
        reason,
    )
    reason = " ".join(reason.split()).replace("|", "/").replace("<", "&lt;")
    return reason if len(reason) <= length else reason[: length - 3] + "..."


def find_routes(ops) -> dict[str, list[str]]:
    """Return the steps of each entry's ATen operator, by the package's table of operators.

    An operator without a row is `Boxed` if it has the boxed kernel, and `View` if the stock view
    suffices. Others, as functions written in Python, are `Composite`.
    """
    import torch

    from torch_dtypes import _C

    rows = {name: steps for name, steps, _, _ in _C.operator_facts()}
    families = [name for name in rows if name.endswith("*")]
    operators = collections.defaultdict(list)
    for full in torch._C._dispatch_get_all_op_names():
        operators[full.partition(".")[0].removeprefix("aten::")].append(full)

    def is_view(name: str) -> bool:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        return any(
            r.alias_info is not None and not r.alias_info.is_write
            for s in schemas
            for r in s.returns
        )

    def route(name: str) -> list[str]:
        row = next((f for f in families if name.startswith(f[:-1])), name)
        if row in rows:
            return rows[row]
        if is_view(name):
            return ["View"]
        boxed = any(
            torch._C._dispatch_has_kernel_for_dispatch_key(full, "PrivateUse2")
            for full in operators[name]
        )
        return ["Boxed"] if boxed else ["Composite"]

    return {op.full_name: route(op.aten_name or op.name) for op in ops}


def describe_steps(routes: dict[str, list[str]]) -> str:
    """Return the table of steps in their order: what each does, and how many routes have it."""
    from torch_dtypes import _C

    counted = collections.Counter(step for route in routes.values() for step in route)
    rows = [
        f"| `{name}` | {sentence} | {counted[name]} |"
        for group, name, sentence in _C.operator_words()
        if group == "Step" and counted[name]
    ]
    return "\n".join(["| step | what it does | entries |", "|---|---|---|", *rows])


def document(names: list[str], results: dict, options, known) -> str:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    routes = find_routes(op_db)

    notes: dict[str, int] = {}

    def note(name: str, dtype: str, kind: str, outcome: dict) -> int | None:
        if outcome["status"] in ("pass", "n/a"):
            return None
        case = known.find_known(name, kind, dtype)
        return notes.setdefault(
            case.reason if case else cut_reason(outcome["reason"], dtype), len(notes) + 1
        )

    rows = []
    for name in names:
        entry_notes = [
            note(name, dtype, kind, o)
            for dtype, kinds in results[name].items()
            for kind, o in kinds.items()
        ]
        numbers = ", ".join(str(n) for n in sorted({n for n in entry_notes if n}))
        samples = max(o["samples"] for kinds in results[name].values() for o in kinds.values())
        cells = [
            f"`{name}`",
            ", ".join(routes[name]),
            *(cell(results[name], kind) for kind in KINDS),
            samples,
            numbers,
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    totals = [
        f"| `{dtype}` | "
        + " | ".join(share([results[name][dtype][kind] for name in names]) for kind in KINDS)
        + " |"
        for dtype in options.dtype
    ]
    command = "python tools/operator_table.py" + (
        "" if tuple(options.dtype) == DTYPES else "".join(f" --dtype {d}" for d in options.dtype)
    )
    command += f" --samples {options.samples}" if options.samples else ""
    release = torch.__version__.split("+")[0]
    head = f"""# Operators

Every one of the {len(names)} entries of PyTorch {release}'s own operator database, run in
format dtypes by

    {command}

*pass*: all samples give results in the dtype (bool, integer and fixed results
in theirs), with the sizes and, for views, the strides of stock PyTorch, and
values within the bound that `test/conformance/bounds.py` states: correctly
rounded operators bit for bit, other single kernels within float32's own error,
operators of several kernels and gradients within the loss by rounding between
the kernels. *refused*: an error that says why. *-*: nothing to run (integers or
complex numbers only, not differentiable, no in-place or out= variant, no wrong
input in the database). Wrong input must raise.

*route*: the steps of the operator's row in the package's table of operators, in
order. A call takes them until one has done its work. Each variant (in place,
`out=`) leaves out the steps that its schema rules out.

{describe_steps(routes)}

| dtype | {" | ".join(KINDS.values())} |
|---|{"---|" * len(KINDS)}
"""
    columns = " | ".join(KINDS.values())
    table = (
        "\n## Entries\n\n"
        "Samples: the most that one of the columns ran.\n\n"
        f"| entry | route | {columns} | samples | notes |\n"
        "|---|"
    )
    table += "---|" * (len(KINDS) + 3) + "\n"
    note_list = (
        "\n## Notes\n\n" + "".join(f"{number}. {reason}\n" for reason, number in notes.items())
        if notes
        else ""
    )
    page = head + "\n".join(totals) + "\n" + table + "\n".join(rows) + "\n" + note_list
    return wrap_prose(page)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dtype",
        action="append",
        help=f"a dtype by name, may be repeated (default: {' '.join(DTYPES)})",
    )
    parser.add_argument(
        "--samples", type=int, default=0, help="samples of an entry at most (default: all)"
    )
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds for one entry (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        default=str(ROOT / "docs" / "operators.md"),
        help="where to write, - for the terminal (default: %(default)s)",
    )
    parser.add_argument("--json", help="also write, or read if it exists, all outcomes here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work()
    options.dtype = options.dtype or list(DTYPES)

    import known
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_dtypes

    for dtype in options.dtype:
        try:
            torch_dtypes.dtype(dtype)
        except ValueError as error:
            parser.error(str(error))
    names = [op.full_name for op in op_db]
    if options.json and Path(options.json).exists():
        results = json.loads(Path(options.json).read_text())
    else:
        results = run(names, options)
        if options.json:
            Path(options.json).write_text(json.dumps(results))
    text = document(names, results, options, known)
    if options.out == "-":
        print(text)
    else:
        Path(options.out).write_text(text)


if __name__ == "__main__":
    main()
