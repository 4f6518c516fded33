"""What tools/mutate.py, mutate_tables.py and mutate_blocks.py share. For the first two a check is compiled against a copy of the code, broken in one
place at a time."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _outcome(command, program, vectors, seconds):
    """None if it does not compile, else whether it passes, and what it says. What has no end within some seconds fails."""
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        return None, built.stderr
    with vectors.open() as lines:
        try:
            done = subprocess.run([program], stdin=lines, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return False, f"no end within {seconds:.0f} s"
    return done.returncode == 0, done.stdout


def broken(text: str, what: str, file: str, old: str, new: str) -> str:
    """A source with one mutation in it. Ends the process where its text is not there once."""
    if text.count(old) != 1:
        sys.exit(f"{what}: expected its text once in {file}, but found it {text.count(old)} times: renew the mutation")
    return text.replace(old, new)


def verdict(passed: bool | None, what: str, said: str = "") -> None:
    """Says how the tests of one mutation ended; None: it does not compile."""
    print(f"{'does not compile' if passed is None else 'passes' if passed else 'caught':16} {what}: {said}", flush=True)


def try_each(mutations, check, lines, parts, options, sources=()):
    """Compiles the text of a check with options and other sources against a copy of parts of the repository, feeds it lines, and does so again for
    each mutation: what, file, old text, new text. Ends with an error unless the unbroken code passes and every broken one fails."""
    compiler = os.environ.get("CXX", "g++").split()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program, vectors = folder / "check", folder / "vectors"
        (folder / "check.cpp").write_text(check)
        vectors.write_text("\n".join(lines) + "\n")
        places = [folder / name for name in ("check.cpp", *sources)]
        command = [*compiler, "-std=c++20", *options, "-I", folder, "-I", folder / "aten" / "src", "-o", program, *places, "-pthread"]
        survivors, seconds = [], None
        for what, file, old, new in [("nothing", None, "", ""), *mutations]:
            for part in parts:
                shutil.copytree(ROOT / part, folder / part, dirs_exist_ok=True)
            if file is not None:
                source = folder / file
                source.write_text(broken(source.read_text(), what, file, old, new))
            began = time.monotonic()
            passed, output = _outcome(command, program, vectors, seconds)
            seconds = seconds or 30 + 10 * (time.monotonic() - began)
            said = output.strip().splitlines()
            verdict(passed, what, said[0] if said else "")
            if passed is not (what == "nothing"):
                survivors.append(what)
    if survivors:
        sys.exit(f"not as expected: {', '.join(survivors)}")
