"""Wraps the prose of generated pages to the width of the other pages."""

import textwrap

WIDTH = 80


def wrap_prose(page: str) -> str:
    """Fill paragraphs and list items of Markdown to 80 columns; tables, headings and code stay."""
    return "\n\n".join(map(_wrap_block, page.split("\n\n")))


def _wrap_block(block: str) -> str:
    lead = block.lstrip("\n")
    if not lead or lead.startswith(("|", "#", "    ")):
        return block
    items, text = [], lead.rstrip("\n")
    for line in text.splitlines():
        if not items or _marker(line):
            items.append(line)
        else:
            items[-1] += f" {line}"
    end = lead[len(text) :]
    return block[: len(block) - len(lead)] + "\n".join(map(_fill, items)) + end


def _marker(text: str) -> str:
    """Return the marker of a list item with the blank after it, or ""."""
    marker = text.partition(" ")[0]
    return f"{marker} " if marker == "-" or (marker[:-1].isdigit() and marker[-1] == ".") else ""


def _fill(item: str) -> str:
    options = {"break_long_words": False, "break_on_hyphens": False}
    text = " ".join(item.split())
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * len(_marker(text)), **options)
