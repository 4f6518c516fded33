#!/usr/bin/env python3
"""Writes the table in docs/reference/edits.md from tools/intree/edits.py.

python tools/intree/table.py            # after a row was added or changed
python tools/intree/table.py --check    # says whether the document is up to date
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from intree.edits import EDITS
from intree.releases import RELEASES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "edits.md"
BEGIN, END = "<!-- made by tools/intree/table.py: begin -->\n", "<!-- end -->\n"
SHOWN = 70  # characters of an anchor or a text


def code(text: str) -> str:
    words = " ".join(text.split()).replace("|", "\\|")
    return f"`{words if len(words) <= SHOWN else words[:SHOWN].rstrip() + ' ...'}`"


def lines() -> list[str]:
    table = ["| file | what | why | releases |", "|---|---|---|---|"]
    for edit in EDITS:
        lists = " and ".join(
            dict.fromkeys(f"*{edit.place(RELEASES[name])}*" for name in edit.releases)
        )
        anchor = "the list's last row" if edit.anchor == "{last}" else code(edit.anchor)
        what = (
            f"{code(edit.text)} {'in the place of' if edit.where == 'instead' else edit.where} "
            f"{anchor}"
        )
        table.append(
            f"| {lists} | {what} | {edit.why} | "
            f"{'all' if len(edit.releases) == len(RELEASES) else ', '.join(edit.releases)} |"
        )
    return table


def main(check: bool) -> int:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    new = before + BEGIN + "\n".join(lines()) + "\n" + END + rest.split(END)[1]
    if check:
        return int(new != text)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
