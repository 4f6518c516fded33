#!/usr/bin/env python3
"""Writes the tables of functions that round once in docs/numerics.md.

They come from the tables of operators, of Python functions and of exceptions.

python tools/rounded_once_table.py            # after a row was added or changed python
tools/rounded_once_table.py --check    # says whether the document is up to date
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "numerics.md"
BEGIN, END = "<!-- made by tools/rounded_once_table.py: begin -->\n", "<!-- end -->\n"


def format_name(text: str) -> str:
    name, _, argument = text.partition(":")
    if not argument:
        return f"`{name}`"
    return (
        f"`{name}` without `{argument[1:]}`"
        if argument.startswith("-")
        else f"`{name}` with `{argument}`"
    )


def lines() -> list[str]:
    sys.path.append(str(ROOT / "test" / "support"))
    import reductions  # for its table of exceptions

    from torch_dtypes import _C
    from torch_dtypes.host.hooks import composed

    operators = [name for name, steps, _, _ in _C.operator_facts() if "Composed" in steps]
    rows = [
        "| list | functions |",
        "|---|---|",
        "| operators (`Composed` in `OperatorFacts.cpp`) | "
        f"{', '.join(map(format_name, operators))} |",
    ]
    rows += [
        f"| `{module.removesuffix('._ops')}` (`composed.py`) | "
        f"{', '.join(map(format_name, names))} |"
        for module, names in composed.FUNCTIONS.items()
    ]
    return [
        *rows,
        "",
        "| exception | why |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in reductions.EXCEPTIONS.items()),
    ]


def page() -> str:
    """Return the page with its tables up to date."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + "\n".join(lines()) + "\n" + END + rest.split(END, 1)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if the document is not up to date"
    )
    new = page()
    if parser.parse_args().check:
        return int(new != PAGE.read_text())
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
