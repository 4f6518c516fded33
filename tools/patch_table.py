#!/usr/bin/env python3
"""Writes the table in docs/reference/hooks.md from the lists of hooks in Python and in C++.

python tools/patch_table.py            # after a row was added or changed
python tools/patch_table.py --check    # says whether the document is up to date
"""

import argparse
import functools
import inspect
import itertools
import re
import sys
from pathlib import Path

from build_backend import SUPPORTED
from prose import wrap_prose

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "hooks.md"
BEGIN, END = "<!-- made by tools/patch_table.py: begin -->\n", "<!-- end -->\n"
GUARD = "Keep the meaning of a stock dtype that a user wrote, also if it is the storage dtype."


def find_reason(implementation: object) -> str:
    """Return the first paragraph of an implementation's docstring, or of its maker's."""
    while isinstance(implementation, functools.partial):
        implementation = implementation.func
    if implementation is None:
        return GUARD
    doc = inspect.getdoc(implementation)
    if doc is None or ".<locals>." in getattr(implementation, "__qualname__", ""):
        maker = getattr(implementation, "__qualname__", "").split(".")[0]
        doc = (
            inspect.getdoc(
                getattr(sys.modules.get(getattr(implementation, "__module__", "")), maker, None)
            )
            if maker
            else doc
        )
    if not doc:
        raise SystemExit(
            f"expected a docstring for {implementation!r}, which a list of hooks names, but got "
            "none; write why the hook exists"
        )
    paragraphs = doc.split("\n\n")  # the first of pybind11's is the signature
    paragraphs = doc.split("\n\n")  # of pybind11's, the first is the signature
    return " ".join(paragraphs[" -> " in paragraphs[0] and len(paragraphs) > 1].split())


def name_kind(row) -> str:
    from torch_dtypes.host.hooks.trampolines import When
    from torch_dtypes.host.table import Kind

    if row.kind is Kind.CPP:
        function = row.replacement
        runs = f"; runs `{_path(function.__module__)[:-3]}.{function.__name__}`" if function else ""
        return f"{row.kind.value}: {row.how}{runs}"
    reasons = ", ".join(_words(flag) for flag in When(row.reasons))
    within = ", within its wrapper" if row.within else ""
    return row.kind.value + (f": {reasons}" if reasons else "") + within


def _words(flag) -> str:
    return flag.name.lower().replace("_", " ")


def _path(module: str) -> str:
    """Return the file of a module; without a folder it is in host/hooks/."""
    return (
        module.removeprefix("torch_dtypes.").removeprefix("host.hooks.").replace(".", "/") + ".py"
    )


def _short(target: str) -> str:
    target = target.replace("torch._C.TensorBase", "Tensor")
    return target.replace("torch._C._VariableFunctions", "torch")


def name_targets(rows) -> str:
    """Return the targets, by their owners, of rows that are equal otherwise."""
    owners: dict[str, list[str]] = {}
    for row in rows:
        if not re.fullmatch(r"[\w.]+\.\w+", row.target):  # several places, or none with a name
            owners[row.target] = []
            continue
        owner, _, name = _short(row.target).rpartition(".")
        names = owners.setdefault(owner, [])
        if name not in names:
            names.append(name)
    texts = []
    for owner, names in owners.items():
        several = " ".join(f"`{name}`" for name in names)
        texts.append(
            (f"`{owner}.{names[0]}`" if len(names) == 1 else f"`{owner}.` {several}")
            if names
            else owner
        )
    return ", ".join(texts)


def name_releases(row) -> str:
    first, last = row.first or SUPPORTED[0], row.last or SUPPORTED[-1]
    return first if first == last else f"{first} to {last}"


def describe_row(row, module=None) -> tuple[str, str, str, str, str]:
    """Return all columns but the target. For a row in Python, the module has the list."""
    installed = f"`{row.imported}` is imported" if row.imported else "at load"
    if row.imported and row.target.startswith(row.imported):
        installed = "its module is imported"
    reason = row.reason or find_reason(row.load_replacement())
    if isinstance(row.replacement, str):
        file = f"integrations/{row.replacement.partition(':')[0]}.py"
    else:
        file = row.file or _path(module.__name__)
    return name_kind(row), installed, name_releases(row), reason, f"`{file}`"


def lines() -> list[str]:
    from torch_dtypes import integrations
    from torch_dtypes.host import install
    from torch_dtypes.host.hooks.trampolines import When

    table = ["| what | how | installed when | releases | why | file |", "|---|---|---|---|---|---|"]
    for row in install.list_patches():
        table.append(f"| {' | '.join((name_targets([row]), *describe_row(row)))} |")
    for module in (*install.MODULES, integrations):
        for columns, rows in itertools.groupby(
            module.HOOKS, functools.partial(describe_row, module=module)
        ):
            table.append(f"| {' | '.join((name_targets(rows), *columns))} |")
    meanings = "; ".join(f"*{_words(flag)}*, {flag.meaning}" for flag in When)
    table += [
        "",
        f"The reasons for which a builtin's replacement runs, and the guards: {meanings}.",
    ]
    return wrap_prose("\n".join(table)).split("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if the document is not up to date"
    )
    options = parser.parse_args()
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    new = before + BEGIN + "\n".join(lines()) + "\n" + END + after
    if options.check:
        return int(new != text)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
