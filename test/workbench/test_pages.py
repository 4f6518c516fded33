"""Reports as pages: their content, no references to other files or hosts, and their colours and
figures."""

import re
from html.parser import HTMLParser

import pytest
import torch

import torch_dtypes

pytest.importorskip("matplotlib", reason="the figures need matplotlib")

from torch_dtypes.workbench.report.colours import GREY, PALETTE, colours, format_name
from torch_dtypes.workbench.report.drawing import inline_svg, new_figure, save
from torch_dtypes.workbench.report.page import Report
from torch_dtypes.workbench.report.tables import kinds_of


class Elements(HTMLParser):
    """Parses a page's elements, also those without an end tag: names, attributes, and whether they
    nest."""

    def __init__(self, text):
        super().__init__()
        self.found, self._open = [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "link", "img"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def drawn(mapped=False):
    with new_figure() as figure:
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=PALETTE[0], marker="o")
        if mapped:
            axes.imshow([[0.0, 1.0], [2.0, 3.0]])
    return figure


def example():
    page = Report("q43 & <others>", command="torch-dtypes train --dtype q43", seeds=[3, 4])
    page.text("One <b>paragraph</b>.").section("Figures").figure(drawn(), "A line.").figure(
        drawn(), "Again."
    )
    page.strip({"e5m2": "diverged at epoch 1"}, "Failed").strip({}, "Nothing")
    page.table(
        ["dtype", "gap", "note"],
        [["q43", -0.25, None], ["q52", 1 / 3, "a sentence that is too long"]],
        "Gaps.",
        colours=colours(["q43"]),
    )
    return page.footnote("Once.").footnote("Once.")


def test_a_page_holds_what_it_was_given_and_how_it_was_made():
    text = example().html()
    elements = Elements(text)
    assert elements.of("title") == [{}] and "<title>q43 &amp; &lt;others&gt;</title>" in text
    assert (
        "One &lt;b&gt;paragraph" in text and text.count("Once.") == 1 and text.count("<aside>") == 1
    )
    assert [len(elements.of(tag)) for tag in ("svg", "table", "figcaption")] == [2, 1, 2]
    assert [("-0.25" in text), ("0.333333" in text)] == [True, True]
    for words in (
        "torch-dtypes train --dtype q43",
        "3, 4",
        f"torch {torch.__version__}",
        f"torch_dtypes {torch_dtypes.__version__}",
        "numpy",
        "UTC",
    ):
        assert words in text.split("<footer>")[1]
    kinds = [each.get("class") for each in elements.of("th") if each["scope"] == "col"]
    assert kinds == ["word", "number", "long"]
    assert Elements(example().fragment()).of("footer") == []


def test_only_long_cells_of_several_words_may_break():
    row = ["the long words of a first column", "two words", "a_long_name_without_spaces", "3"]
    assert kinds_of("abcd", [row]) == ["word", "word", "word", "number"]


def test_a_page_needs_nothing_from_elsewhere_and_says_so_to_the_browser():
    text = example().html()
    assert "default-src 'none'" in Elements(text).of("meta")[1]["content"]
    assert not re.search(
        r"<(script|link|img|iframe|object)\b|https?:|//\w|@import|url\((?!#)", text
    )


def test_names_inside_figures_do_not_meet():
    names = [
        attributes["id"] for _, attributes in Elements(example().html()).found if "id" in attributes
    ]
    assert len(names) > 10 and len(names) == len(set(names))
    svg = inline_svg(drawn(), 7)
    targets = re.findall(r'(?:href="#|url\(#)([^")]*)', svg)
    assert targets and all(f'id="{name}"' in svg for name in targets)


def test_figures_take_the_colours_of_the_page_unless_colours_are_numbers():
    plain, mapped = inline_svg(drawn(), 0), inline_svg(drawn(mapped=True), 0)
    assert (
        f"var(--c{PALETTE[0][1:]}, {PALETTE[0].lower()})" in plain
        and "var(--c555555" in plain
        and "var(--paper" in plain
    )
    assert "var(" not in mapped
    page = Report("x").figure(drawn(mapped=True)).html()
    assert [f.get("class") for f in Elements(page).of("figure")] == ["light"]
    for tone in re.findall(r"var\(--(c[0-9A-F]{6}),", plain):
        assert f"--{tone}:" in page  # on a dark ground


def test_a_row_of_another_length():
    with pytest.raises(ValueError, match="expected 2 cells in a row, a, b, but got 1"):
        Report("x").table(["a", "b"], [["1"]])


def test_a_page_that_cannot_be_written_leaves_what_was_there(tmp_path):
    path = example().write(tmp_path / "new" / "page.html")
    before = path.read_text()
    assert before.startswith("<!DOCTYPE html>") and [p.name for p in path.parent.iterdir()] == [
        "page.html"
    ]
    (path.parent / "page.html.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        Report("y").write(path)
    assert path.read_text() == before


def test_the_same_figure_is_the_same_file_and_knows_no_style_of_the_user(tmp_path):
    import matplotlib.style

    files = []
    for name, style in (("a", "default"), ("b", "dark_background")):
        (tmp_path / name).mkdir()
        with matplotlib.style.context(style):
            files.append(save(drawn(), tmp_path / name, "figure"))
    assert [p.suffix for p in files[0]] == [".png", ".svg", ".pdf"]
    for one, other in zip(*files, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert b"/Type3" not in files[0][2].read_bytes()


def test_a_column_has_type_of_its_size():
    for width, inches, size in (("page", 8.0, 10.0), ("column", 3.4, 7.5)):
        with new_figure(width, 2.0) as figure:
            axes = figure.add_subplot()
        assert figure.get_figwidth() == inches and axes.get_xticklabels()[0].get_fontsize() == size
    with (
        pytest.raises(ValueError, match="expected a width of page, column, but got 'wide'"),
        new_figure("wide"),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("bf16", "e8m7"),
        ("bfloat16", "e8m7"),
        ("torch.e8m7", "e8m7"),
        ("e8m7_down", "e8m7"),
        ("e5m2", "q52"),
        ("q52_up_down", "q52"),
        ("float8_e5m2", "q52"),
        ("int8", "int8"),
        ("posit<12,1>", "posit12es1"),
        ("a file of rules", "a file of rules"),
    ],
)
def test_formats_by_their_names(name, format):
    assert format_name(name) == format


def test_a_colour_belongs_to_a_format():
    names = ["q43", "posit16es2", "e3m4", "e6m9", "posit12es1"]
    assert colours(names) == colours(reversed(names))
    assert len(set(colours(names).values())) == len(names)
    assert colours(["posit16es2", "zz"])["posit16es2"] == colours(["posit16es2"])["posit16es2"]
    # More formats than colours.
    assert set(colours([f"e3m{i}" for i in range(20)]).values()) == set(PALETTE)
    assert len(set(colours(["bf16", "bfloat16", "e8m7_stochastic"]).values())) == 1
    assert set(colours(["float32", "fp32", "e8m23"]).values()) == {GREY} and GREY not in PALETTE
