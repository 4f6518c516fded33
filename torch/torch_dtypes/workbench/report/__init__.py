"""Reports: rows, figures and sentences as terminal text, HTML, CSV, JSON, Markdown and LaTeX."""

from .page import Report, Reported
from .tables import kinds_of, markdown_table, marked, print_rows

__all__ = ["Report", "Reported", "kinds_of", "markdown_table", "marked", "print_rows"]
