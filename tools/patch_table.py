#!/usr/bin/env python3
"""Writes the table of patches in docs/design.md from the tables of hooks (torch/torch_dtypes/_overlay/) and the list of C++ patches.

python tools/patch_table.py            # after a row was added or changed
python tools/patch_table.py --check    # says whether the document is up to date
"""

import argparse
import functools
import inspect
import itertools
import sys
from pathlib import Path

DESIGN = Path(__file__).resolve().parent.parent / "docs" / "design.md"
BEGIN, END = "<!-- made by tools/patch_table.py: begin -->\n", "<!-- end -->\n"
GUARD = "A stock dtype that a user wrote means itself, also where it is the container's."


def described(implementation: object) -> str:
    """The first paragraph of its docstring; of the function that made it, where it has none of its own."""
    while isinstance(implementation, functools.partial):
        implementation = implementation.func
    if implementation is None:
        return GUARD
    doc = inspect.getdoc(implementation)
    if doc is None or ".<locals>." in getattr(implementation, "__qualname__", ""):
        maker = getattr(implementation, "__qualname__", "").split(".")[0]
        doc = inspect.getdoc(getattr(sys.modules.get(getattr(implementation, "__module__", "")), maker, None)) if maker else doc
    if not doc:
        raise SystemExit(f"expected a docstring that says what {implementation!r} is for, since it stands in a table of hooks, but got none")
    paragraphs = doc.split("\n\n")  # of pybind11's, the first is the signature
    return " ".join(paragraphs[" -> " in paragraphs[0] and len(paragraphs) > 1].split())


def how(row) -> str:
    from torch_dtypes._overlay.table import Builtin, Replaced

    if isinstance(row, Builtin):
        return "builtin: " + ", ".join(flag.name.lower().replace("_", " ") for flag in row.when)
    within = ", within its wrapper" if isinstance(row, Replaced) and row.within else ""
    kinds = {"Extended": "asked first", "Replaced": "replaced", "ExchangedCode": "code exchanged", "Registered": "told"}
    return kinds[type(row).__name__] + within


def short(owner: str) -> str:
    return owner.replace("torch._C.TensorBase", "Tensor").replace("torch._C._VariableFunctions", "torch")


def targets(rows) -> str:
    from torch_dtypes._overlay.releases import OLD_NAMES

    owners: dict[str, list[str]] = {}
    for row in rows:
        names = owners.setdefault(short(row.owner), [])
        name = OLD_NAMES.get(row.name, row.name)
        if name not in names:
            names.append(name)
        for other in getattr(row, "also", ()):
            if name not in (known := owners.setdefault(short(other), [])):
                known.append(name)
    several = {owner: " ".join(f"`{name}`" for name in names) for owner, names in owners.items()}
    return ", ".join(f"`{owner}.{names[0]}`" if len(names) == 1 else f"`{owner}.` {several[owner]}" for owner, names in owners.items())


def lines() -> list[str]:
    from torch_dtypes import _C
    from torch_dtypes._overlay import hooks
    from torch_dtypes._overlay.table import Native

    python = {row.name: row.implementation for module in hooks.MODULES for row in module.HOOKS if isinstance(row, Native)}
    made = ["In C++ (`torch/csrc/formats/Patches.cpp`):", "", "| what | how | why | file |", "|---|---|---|---|"]
    for target, way, why, file, _ in _C.patches():
        runs = f"; runs `{python[target].__module__.split('.')[-1]}.{python[target].__name__}`" if target in python else ""
        made.append(f"| {target if ' ' in target or target == 'builtins' else f'`{target}`'} | {way}{runs} | {why} | `{file}` |")
    made += ["", "In Python, a table `HOOKS` in each module of `_overlay/`:", "", "| what | how | what ours does | file |", "|---|---|---|---|"]
    for module in hooks.MODULES:
        name = module.__name__.split(".")[-1]
        rows = [row for row in (*module.HOOKS, *getattr(module, "LATER_HOOKS", ())) if not isinstance(row, Native)]
        for (way, what), group in itertools.groupby(rows, lambda row: (how(row), described(row.implementation))):
            made.append(f"| {targets(list(group))} | {way} | {what} | `{name}.py` |")
    made += ["", "Of builtins, the reasons for which ours runs, and the guards: " + "; ".join(
        f"*{flag.name.lower().replace('_', ' ')}*, {flag.meaning}" for flag in _C.When) + "."]  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if the document is not up to date")
    options = parser.parse_args()
    text = DESIGN.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    new = before + BEGIN + "\n".join(lines()) + "\n" + END + after
    if options.check:
        return int(new != text)
    DESIGN.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
