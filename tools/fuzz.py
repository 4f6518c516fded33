"""Calls operators and functions of torch_dtypes with random arguments, and reports findings.

    python tools/fuzz.py --seconds 600                   # seed 0; --seed N makes other calls
    python tools/fuzz.py --seed 3 --call 1234            # one call again, with its whole traceback
    python tools/fuzz.py --operator conv2d --calls 2000

A finding is a call that ends the process, hangs, upsets a sanitizer, blames PyTorch, or returns the
storage dtype or an unsound tensor. CONTRIBUTING.md has the command for sanitizers. Calls run in
child processes. A call that ends one is made again alone, and then with float32 and float16 tensors
in the place of format tensors. If these end it too, the call is listed as PyTorch's own. The exit
status is 1 if this package has findings.
"""

import argparse
import collections
import gc
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback

import fuzz_calls
import fuzz_checks
import torch
from fuzz_arguments import formats
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
BATCH = 200  # calls in one child
# Bytes of address space, so that a call for terabytes fails on every machine.
MEMORY = 6 << 30
# Replacements of format dtypes. The last one also replaces all other floating dtypes, since these
# mix with formats otherwise than with each other.
STOCK_WORLDS = ((torch.float32,), (torch.float64,), (torch.float16,), (torch.bfloat16, True))


class Fuzzer:
    def __init__(self, options, dtypes):
        self.options, self.dtypes = options, dtypes
        self.limit = getattr(options, "limit", None) or (120 if SANITIZED else 30)
        self.counts = collections.Counter()
        self.operators = collections.defaultdict(set)
        self.findings: dict[tuple, list] = {}

    def draw(self, number, world=()):
        return fuzz_calls.draw(
            self.options.seed, number, self.dtypes, world, self.options.kind, self.options.operator
        )

    # ---- children ----

    def child(self, numbers, world, report: int, errors: int):
        """Make the calls, and write a line before and after each. Never returns."""
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if not SANITIZED:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def write_line(*words):
            os.write(report, (json.dumps(words) + "\n").encode())

        seen = 0
        for number in numbers:
            write_line("drawing", number, "a call")
            try:
                call, arguments = self.draw(number, world)
                text = str(call)
            except Exception as error:  # stock PyTorch's sample functions
                write_line("done", number, "", f"undrawn {type(error).__name__}: {error}"[:200], [])
                if self.options.call is not None:
                    raise
                continue
            write_line("call", number, text[:600], call.name)
            outcome, wrong, flags = fuzz_checks.run(call, arguments, number)
            named = any(word in call.name for word in fuzz_checks.ASKS_BY_NAME)
            if (
                flags
                and not named
                and not world
                and any(
                    t.dtype.itemsize >= 4 and t.dtype in self.dtypes for t in arguments.operands
                )
            ):
                wrong += self.compare_narrow(number, flags)
            size = os.fstat(2).st_size
            output = (
                os.pread(errors, size - seen, seen).decode(errors="replace") if size > seen else ""
            )
            seen = size
            wrong += [
                f"sanitizer: {line.strip()[:250]}"
                for line in output.splitlines()
                if "runtime error:" in line
            ]
            write_line("done", number, call.name, outcome, wrong)
        os._exit(0)

    def compare_narrow(self, number: int, flags: list) -> list[str]:
        """Compare a call's results with those of the same call in posit16es2.

        With the storage dtype float32 or float64, a wrong result looks like any stock result.
        """
        call, arguments = self.draw(number, (torch.posit16es2,))
        _, _, others = fuzz_checks.run(call, arguments, number)
        if not others or [shape for *_, shape in others] != [shape for *_, shape in flags]:
            return []
        differ = [
            i
            for i, (a, b) in enumerate(zip(flags, others, strict=True))
            if a[0] != b[0] and (a[1] or a[0]) and (b[1] or b[0])
        ]
        return (
            [
                f"container: result {differ[0]} has a format: {flags[differ[0]][0]}, but in "
                f"posit16es2: {others[differ[0]][0]}"
            ]
            if differ
            else []
        )

    def run_child(self, numbers, world=()):
        """Yield a child's lines on its calls.

        If it ends early, the last line is ["died", number, text, reason, output].
        """
        read, write = os.pipe()
        with tempfile.TemporaryFile() as errors:
            pid = os.fork()
            if not pid:
                try:
                    os.close(read)
                    self.child(numbers, world, write, errors.fileno())
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(3)
            os.close(write)
            began, rest, hangs = None, b"", False
            while True:
                if not select.select([read], [], [], self.limit)[0]:
                    hangs = True
                    os.kill(pid, signal.SIGKILL)
                    break
                data = os.read(read, 1 << 16)
                if not data:
                    break
                *whole, rest = (rest + data).split(b"\n")
                for line in map(json.loads, whole):
                    began = line if line[0] != "done" else None
                    yield line
            os.close(read)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if hangs or status:
                size = os.fstat(errors.fileno()).st_size
                output = os.pread(errors.fileno(), 20000, max(0, size - 20000)).decode(
                    errors="replace"
                )
                if hangs:
                    reason = f"no end within {self.limit} s"
                else:
                    reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                reports = re.findall(r"ERROR: AddressSanitizer: [^\n]*", output)
                frames = re.findall(r"in ((?:at|c10|torch_dtypes)::[\w:]+)", output)[:3]
                began = began or ["call", numbers[-1], "after the last call"]
                yield [
                    "died",
                    began[1],
                    began[2],
                    " ".join([reason, *reports[:1], *(frames if reports else [])]),
                    output[-3000:],
                ]

    # ---- findings ----

    def note(self, kind: str, name: str, number: int, text: str, reason: str, owner="package"):
        if owner == "package" and any(kind == k and word in name for k, word in fuzz_checks.KNOWN):
            owner = "known"
        key = owner, kind, name, re.sub(r"[\d.]+|\[.*?\]", "#", reason)[:80]
        self.findings.setdefault(key, [0, number, text, reason])[0] += 1
        self.counts[f"{owner} {kind}"] += 1

    def find_death(self, number, world=()) -> str | None:
        return next(
            (line[3] for line in self.run_child([number], world) if line[0] == "died"), None
        )

    def find_wrong(self, number, world) -> list[str]:
        return next((line[4] for line in self.run_child([number], world) if line[0] == "done"), [])

    def judge_death(self, first: int, number: int, text: str, name: str, reason: str):
        again = self.find_death(number)
        if again is None:
            stock = next(
                (
                    s
                    for s in STOCK_WORLDS
                    if any(
                        line[0] == "died" for line in self.run_child(range(first, number + 1), s)
                    )
                ),
                None,
            )
            self.note(
                "crash",
                name,
                number,
                text,
                f"{reason}, only after the calls from {first}",
                "stock" if stock else "package",
            )
            return
        # Where stock code writes past the end of an operand, one call alone may not fail.
        hangs = "no end" in again
        stock = next(
            (
                s
                for s in STOCK_WORLDS
                if any(
                    line[0] == "died" for line in self.run_child([number] * (1 if hangs else 50), s)
                )
            ),
            None,
        )
        self.note(
            "hang" if hangs else "crash",
            name,
            number,
            text,
            again + (f"; with {stock[0]} too" if stock else ""),
            "stock" if stock else "package",
        )

    def batch(self, first: int, count: int) -> int:
        """Run at most `count` calls from `first` on; return the number of the next one."""
        text, name = "", ""
        for line in self.run_child(range(first, first + count)):
            number = line[1]
            if line[0] in ("call", "drawing"):
                text, name = line[2], line[-1]
            elif line[0] == "died":
                self.counts["calls"] += 1
                self.judge_death(first, number, text, name, line[3])
                return number + 1
            else:
                _, _, name, outcome, wrong = line
                self.counts["calls"] += 1
                self.counts[outcome.split()[0]] += 1
                self.operators[outcome.split()[0]].add(name)
                if wrong:
                    others = (
                        self.find_wrong(number, STOCK_WORLDS[0])
                        if any(w.startswith(("message", "sanitizer", "memory")) for w in wrong)
                        else []
                    )
                    for w in wrong:
                        kind, reason = w.split(": ", 1)
                        self.note(
                            kind,
                            name,
                            number,
                            text,
                            reason,
                            "stock" if any(o.startswith(f"{kind}:") for o in others) else "package",
                        )
        return first + count

    def run(self):
        o = self.options
        if o.call is not None:
            return self.repeat(o.call)
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        # No thread may run beside a fork, so the bar is refreshed by hand.
        with Progress(
            *columns,
            console=Console(stderr=True),
            auto_refresh=False,
            disable=not sys.stderr.isatty(),
        ) as progress:
            bar = progress.add_task("", total=o.calls or o.seconds)
            started, number = time.monotonic(), o.first
            while number < o.first + o.calls if o.calls else time.monotonic() - started < o.seconds:
                number = self.batch(
                    number, min(BATCH, o.first + o.calls - number) if o.calls else BATCH
                )
                findings = sum(key[0] == "package" for key in self.findings)
                done = number - o.first if o.calls else time.monotonic() - started
                progress.update(
                    bar,
                    completed=done,
                    description=f"{self.counts['calls']:,} calls, {findings} findings",
                    refresh=True,
                )
        return self.report()

    def repeat(self, number: int) -> int:
        call, _ = self.draw(number)
        print(f"{call.name}: {call}")
        for world in ((), *STOCK_WORLDS):
            for line in self.run_child([number], world):
                if line[0] in ("done", "died"):
                    print(
                        f"{' '.join(map(str, world)) or 'format dtypes'}: "
                        f"{' '.join(map(str, line[3:]))}"
                    )
        return 0

    def report(self) -> int:
        c = self.counts
        print(
            f"seed {self.options.seed}: {c['calls']:,} calls, {c['returned']:,} returned, "
            f"{c['raised']:,} raised, {len(self.operators['returned'])} entries returned at least "
            f"once, of {len(set().union(*self.operators.values()))}"
        )
        print(
            f"PyTorch's own: {c['stock crash']} crashes, {c['stock hang']} hangs, "
            f"{c['stock message']} internal errors; known limits: "
            f"{sum(n for what, n in c.items() if what.startswith('known'))}"
        )
        for group in ("stock", "package"):
            for (owner, kind, name, _), (count, number, text, reason) in sorted(
                self.findings.items()
            ):
                if owner == group and (owner == "package" or kind in ("crash", "hang")):
                    print(
                        f"{'PyTorch itself' if group != 'package' else 'FINDING'}: {kind} "
                        f"({count}x) {name}: {reason}\n"
                        f"    --call {number}  {text}"
                    )
        return int(any(key[0] == "package" for key in self.findings))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of all calls (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="seconds to run (default: %(default)s)"
    )
    parser.add_argument("--calls", type=int, help="number of calls, instead of --seconds")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first call (default: %(default)s)"
    )
    parser.add_argument(
        "--call", type=int, help="make only this call, in format dtypes and in stock ones"
    )
    parser.add_argument(
        "--limit",
        type=float,
        help="seconds for one call, before it counts as a hang (default: 30, with sanitizers 120)",
    )
    parser.add_argument(
        "--kind", choices=fuzz_calls.KINDS, help="draw only from these (default: all)"
    )
    parser.add_argument(
        "--operator", metavar="NAME", help="one operator; without --kind, from the schemas"
    )
    options = parser.parse_args()
    if options.operator and options.kind is None:
        options.kind = "schema"
    if options.operator and options.kind == "schema" and not fuzz_calls.schemas(options.operator):
        parser.error(
            f"expected an operator's name, as conv2d, but got {options.operator!r}; give one"
        )
    torch.set_num_threads(1)
    dtypes = formats()
    if options.kind != "functions":
        fuzz_calls.schemas(options.operator), options.kind != "schema" and fuzz_calls.database()
    gc.freeze()
    sys.exit(Fuzzer(options, dtypes).run())


if __name__ == "__main__":
    main()
