"""The common parts of all figures: their size and type, and how they are saved and put into a
page."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

from .colours import GREY, ON_DARK, RULE

# Widths in inches: a slide or a page, and one column of a paper.
WIDTHS = {"page": 8.0, "column": 3.4}
_TYPE = {"page": 10.0, "column": 7.5}
ENDINGS = ("png", "svg", "pdf")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (5, 1.5, 1.2, 1.5)))
# Without dates and random ids, the same figure gives the same file. Type 42 because publishers
# refuse matplotlib's default Type 3 fonts.
_SAVED = {"svg.hashsalt": "torch_dtypes", "pdf.fonttype": 42}
_METADATA = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


@contextlib.contextmanager
def new_figure(width: str = "page", height: float = 4.2) -> Iterator:
    """Make a matplotlib ``Figure`` to draw into, in a block::

        with new_figure("column", 2.4) as figure:
            axes = figure.add_subplot()

    It uses neither pyplot (no window system, no global state) nor the user's style, which could
    turn a report dark.

    Args:
        width: ``"page"`` or ``"column"`` (one column of a paper), which also sets the type size.
            height: the height in inches.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    if width not in WIDTHS:
        raise ValueError(f"expected a width of {', '.join(WIDTHS)}, but got {width!r}")
    thin = 0.6 if width == "column" else 0.8
    own = {
        "font.size": _TYPE[width],
        "axes.linewidth": thin,
        "axes.edgecolor": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "grid.color": RULE,
        "grid.linewidth": thin,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.titlesize": _TYPE[width] * 1.1,
        "legend.frameon": False,
    }
    with matplotlib.style.context(["default", own]):
        figure = Figure(
            figsize=(WIDTHS[width], height),
            dpi=150 if width == "page" else 300,
            layout="constrained",
        )
        yield figure
        figure.draw_without_rendering()  # makes the ticks here, with the type of the style


def label_binades(axes, most: int) -> None:
    """Label an axis of exponents with at most ``most`` powers of two."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(nbins=most, integer=True, steps=[1, 2, 4, 5, 8, 10])
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(lambda e, _: rf"$2^{{{e:.0f}}}$")


def save(figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG, SVG and PDF into an existing folder, and return the paths."""
    import matplotlib

    written = []
    with matplotlib.rc_context(_SAVED):
        for ending in ENDINGS:
            written.append(Path(folder) / f"{name}.{ending}")
            figure.savefig(written[-1], metadata=_METADATA[ending])
    return written


def is_mapped(figure) -> bool:
    """Whether colours mean numbers in a figure, as in a heat map. Such a figure keeps its light
    ground, for which the colours were chosen."""
    return any(
        artist.get_array() is not None
        for axes in figure.axes
        for artist in (*axes.images, *axes.collections)
    )


def inline_svg(figure, place: int) -> str:
    """Return a figure as an ``<svg>`` element for a page with several: with unique ids, no outside
    references, and the page's variables as colours."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context(_SAVED):
        figure.savefig(text, format="svg", metadata=_METADATA["svg"], facecolor="none")
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>",
        "",
        svg,
        flags=re.DOTALL,
    )
    svg = re.sub(r'\s(xmlns(:\w+)?|version)="[^"]*"', "", svg)  # HTML needs no namespaces
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    # Places to hundredths of a point: a third fewer bytes. Scales keep their digits.
    svg = re.sub(r"(?:scale|matrix)\([^)]*\)|(\d\.\d\d)\d+", lambda m: m[1] or m[0], svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>f{place}-", svg)
    if is_mapped(figure):
        return svg
    return re.sub(
        r'style="[^"]*"', lambda style: re.sub(r"#[0-9a-f]{6}\b", _variable, style[0]), svg
    )


def _variable(match: re.Match) -> str:
    colour = match[0].upper()
    name = {"#000000": "ink", "#FFFFFF": "paper"}.get(colour) or (
        f"c{colour[1:]}" if colour in ON_DARK else None
    )
    return f"var(--{name}, {match[0]})" if name else match[0]


def dark_variables() -> dict[str, str]:
    """Return the page's variables on a dark ground, for the colours of figures."""
    return {f"--c{colour.upper()[1:]}": tone for colour, tone in ON_DARK.items()}
