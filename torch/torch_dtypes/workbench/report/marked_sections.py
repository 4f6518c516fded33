"""Sections of a Markdown file that a command writes, each between two comments."""

from __future__ import annotations

import re
from pathlib import Path

from .folders import write_text


def replace_sections(path: Path, command: str, sections: dict[str, str]) -> None:
    """Replace the marked part of each section (its name and text), or append it. The rest of the
    file stays as it is."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for name, body in sections.items():
        begin, end = f"<!-- torch-dtypes {command}: {name} -->", f"<!-- end of {name} -->"
        part = f"{begin}\n{body}{end}"
        marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if marked.search(text):
            text = marked.sub(lambda _, part=part: part, text)
        else:
            text = (text.rstrip() + "\n\n" if text.strip() else "") + part + "\n"
    write_text(path, text)
