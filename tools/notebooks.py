"""Makes notebooks of the tutorials, which are scripts of ``# %%`` cells.

    python tools/notebooks.py [FOLDER]

writes a notebook for each script of docs/tutorials into FOLDER; default: beside the scripts, where
links to other pages work.
"""

import json
import re
import sys
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read_cells(script: str) -> list[tuple[str, str]]:
    """Return the kind (``markdown`` or ``code``) and the text of each cell."""
    cells = []
    for cell in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        mark, _, text = cell.partition("\n")
        if "[markdown]" in mark:
            cells.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()))
        else:
            cells.append(("code", text.strip()))
    return cells


def build_notebook(script: str) -> dict:
    """Return a notebook of a script, without results, as its JSON (nbformat 4.4)."""
    cells = [
        {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for kind, text in read_cells(script)
    ]
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 4}


def write_notebooks(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for script in sorted(TUTORIALS.glob("*.py")):
        to = folder / f"{script.stem}.ipynb"
        to.write_text(json.dumps(build_notebook(script.read_text()), indent=1) + "\n")
        written.append(to)
    return written


if __name__ == "__main__":
    for path in write_notebooks(Path(sys.argv[1]) if len(sys.argv) > 1 else TUTORIALS):
        print(path)
