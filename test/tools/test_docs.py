"""Links in the documents lead to files of the repository, and to headings in them."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "third_party/*.md")
    for path in ROOT.glob(pattern)
)
TREES = "aten c10 torch test tools benchmarks docs cmake third_party requirements .ci".split()


def text_of(page):
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def missing_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors(text_of(file))):
            yield target


def missing_paths(page):
    """Yield missing paths of the repository in a page's code spans; a star stands for any rest of a
    name."""
    trees = "|".join(map(re.escape, TREES))
    for path in re.findall(rf"`((?:{trees})/[\w./+-]*\*?)", text_of(page)):
        if not list(ROOT.glob(path.rstrip("/"))):
            yield path


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    assert not list(missing_links(page))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=str)
def test_paths_exist(page):
    assert not list(missing_paths(page))


def test_a_wrong_link_is_seen(tmp_path):
    (tmp_path / "other.md").write_text("# One heading: `code`\n")
    page = tmp_path / "page.md"
    links = (
        "[a](other.md#one-heading-code) [b](other.md#two) [c](none.md) "
        "[d](https://example.org/e) `docs/none.md` `docs/dispatch.md` `docs/dis*`\n"
    )
    page.write_text(links)
    assert list(missing_links(page)) == ["other.md#two", "none.md"]
    assert list(missing_paths(page)) == ["docs/none.md"]


def test_the_map_has_every_folder():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    if len(tracked) < 2:
        pytest.skip("not a clone")
    the_map = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2].partition("\n## ")[0]
    )
    tops = {path.split("/")[0] for path in tracked if "/" in path and not path.startswith(".")}
    tests = {path.split("/")[1] for path in tracked if re.match("test/.*/", path)} - {"data"}
    native = {
        path.split("/")[-2] for path in tracked if path.startswith(("aten/", "c10/", "torch/csrc/"))
    }
    assert not [folder for folder in (*tops, *tests, *native) if f"{folder}/" not in the_map]
