"""Run ``torch-dtypes vectors`` in this process, and read its files without the package."""

import functools
import json
import re

from command_line import command
from oracle_vectors import FLAGS

run = functools.partial(command, "vectors")


def make_file(path, *arguments):
    result = run(*arguments, "--out", path)
    assert result.exit_code == 0, result.output
    return path.read_text()


def read(text):
    """Return header, columns and vectors of a file of any of the three kinds."""
    if text.startswith("{"):
        data = json.loads(text)
        return (
            data["header"],
            [(c["name"], c["bits"]) for c in data["header"]["columns"]],
            data["vectors"],
        )
    lines = text.splitlines()
    mark = lines[0].split()[0]
    header = dict(
        line[len(mark) + 1 :].split(": ", 1)
        for line in lines
        if line.startswith(mark) and ": " in line
    )
    columns = [
        (name, int(bits)) for name, bits in (item.split(":") for item in header["columns"].split())
    ]
    assert {k: int(v) for k, v in (item.split("=") for item in header["flags"].split())} == FLAGS
    body = [line for line in lines if not line.startswith(mark)]
    if mark == "#":
        return header, columns, [[int(word, 16) for word in line.split()] for line in body]
    places = [
        tuple(map(int, re.fullmatch(r"\w+\[(\d+):(\d+)\]", item).groups()))
        for item in header["word"].split()
    ]
    words = [int(line.replace("_", ""), 16) for line in body]
    return (
        header,
        columns,
        [[(word >> low) & (1 << high - low + 1) - 1 for high, low in places] for word in words],
    )
