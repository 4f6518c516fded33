"""Words of documents, comments and docstrings, and names (CONTRIBUTING.md, *Words*)."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Written elsewhere, or by a tool.
ELSEWHERE = re.compile(r"third_party/|docs/(operators|results[^/]*|reference)\b|test/data/")
# A comment goes on in the lines below it.
COMMENT = r"(?m)(?:^[ ]*|(?<=\s)){0}+ (.*(?:\n[ ]*{0}.*)*)"
COMMENTS = dict.fromkeys((".py", ".pyi"), COMMENT.format("#"))
COMMENTS |= dict.fromkeys((".h", ".cpp", ".cu"), COMMENT.format("//"))
DOCSTRING = re.compile(r'(?ms)(?:\A(?:#[^\n]*\n)*|:\n)[ ]*r?"""(.*?)"""')
DEFINED = re.compile(r"(?m)^[ ]*(?:async )?(?:def|class) (\w+)")

OURS = re.compile(r"\bours\b|\bstock(?:'s| ones)\b", re.IGNORECASE)
# A question may open with these words.
HEADLESS = re.compile(r"\W*(?:What|Whatever|Which|Who|Whoever|Th(?:at|ose) of)\b(?![^.]*\?)")
PARTICIPLE = re.compile(r"_?[a-z]+(?:ed|en|ing|aid|ade|ept|und|own|iven)")
# Plain words with the endings of participles.
PLAIN = set(
    "between children everything markdown named nothing open round rounding seed setting shorten "
    "signed training unsigned warning".split()
)
MOST_PARTICIPLES = 40


def read_prose(path, text):
    """Yield (line, text) of a document's lines, or of a source's comments and docstrings."""
    patterns = [r"(?m)^(.*)$"] if path.endswith(".md") else [COMMENTS[Path(path).suffix]]
    for pattern in patterns + [DOCSTRING] * path.endswith((".py", ".pyi")):
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start(1)) + 1, match[1]


def find_faults(path, text):
    """Return the faults of a file by kind, each as path:line: text."""
    prose = list(read_prose(path, text))
    starts = () if path.endswith(".md") else prose
    names = DEFINED.findall(text) if path.endswith((".py", ".pyi")) else ()
    return {
        "ours": [f"{path}:{n}: {t}" for n, t in prose if OURS.search(t)],
        "headless": [f"{path}:{n}: {t}" for n, t in starts if HEADLESS.match(t)],
        "participles": [
            f"{path}: {name}"
            for name in names
            if PARTICIPLE.fullmatch(name) and name.strip("_") not in PLAIN
        ],
    }


@pytest.fixture(scope="module")
def faults():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    if len(tracked) < 2:
        pytest.skip("not a clone")
    found = {}
    for path in tracked:
        if Path(path).suffix in (".md", *COMMENTS) and not ELSEWHERE.match(path):
            for kind, lines in find_faults(path, (ROOT / path).read_text()).items():
                found.setdefault(kind, []).extend(lines)
    return found


@pytest.mark.parametrize(
    ("kind", "most"), [("ours", 0), ("headless", 0), ("participles", MOST_PARTICIPLES)]
)
def test_words(faults, kind, most):
    assert len(faults[kind]) <= most, "\n".join(faults[kind])


def test_faults_are_seen():
    text = '"""A value of ours."""\n\n\ndef found():\n    return 1  #' + " What it is.\n"
    assert find_faults("module.py", text) == {
        "ours": ["module.py:1: A value of ours."],
        "headless": ["module.py:5: What it is."],
        "participles": ["module.py: found"],
    }
    assert find_faults("page.md", "Stock's rule.\n")["ours"] == ["page.md:1: Stock's rule."]
    assert find_faults("source.h", "// Which bits?\n\n// Who asks.\n")["headless"] == [
        "source.h:3: Who asks."
    ]
