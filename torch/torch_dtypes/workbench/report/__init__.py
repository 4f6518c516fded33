"""Reports: rows, figures and sentences as terminal text, HTML, CSV, JSON, Markdown and LaTeX."""

from .page import Report, Reported
from .tables import escape_markdown, kinds_of, markdown_table, print_rows

__all__ = ["Report", "Reported", "escape_markdown", "kinds_of", "markdown_table", "print_rows"]
