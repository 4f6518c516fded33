"""How Sphinx makes the pages: `make docs`, into build/docs.

Sphinx reads the repository itself: README.md and the pages of docs/ stay where they are, so that
their links work on a forge too. docs/index.md is the root page. The *.rst pages of docs/reference
list the public names, whose text is their docstrings.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser

import torch_dtypes

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from notebooks import read_cells, write_notebooks

project = "torch-dtypes"
author = "the torch-dtypes authors"
copyright = author
version = release = torch_dtypes.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
root_doc = "docs/index"
smartquotes = False  # "--out" is an option, and not a dash
include_patterns = ["*.md", "docs/**", "third_party/README.md"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext", ".py": "script"}
exclude_patterns = [
    "build",
    "dist",
    "data",
    "demo-out",
    ".*",
    "docs/site",
    "docs/images",
    "aten",
    "c10",
    "test",
    "torch",
]

myst_heading_anchors = 4  # links to headings as forges make them
# Pages for forges: "~~" has no meaning elsewhere, a heading may skip a level.
suppress_warnings = ["myst.strikethrough", "myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"torch-dtypes {release}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["templates"]
html_additional_pages = {"index": "first.html"}  # leads to docs/index.html

# Behind docs/index.md, since forges would show a table of contents as code.
CONTENTS = """
```{toctree}
:hidden:
:caption: Tutorials

getting-started
tutorials/train_in_8_bits
What must the accumulator be? <tutorials/accumulator>
Are smaller blocks better? <tutorials/block_size>
Propose a format <tutorials/propose_a_format>
Where digits go <tutorials/where_digits_go>
Linear systems <tutorials/linear_systems>
Golden vectors <tutorials/golden_vectors>
```

```{toctree}
:hidden:
:caption: How-to

how-to/choose-a-format
how-to/make-a-datasheet
how-to/train-in-8-bits
how-to/train-a-language-model
how-to/mixed-precision
how-to/try-an-accumulator
how-to/training-does-not-work
how-to/observe-rounding
how-to/outliers
how-to/find-lost-digits
how-to/find-sensitive-layers
how-to/measure-perplexity
how-to/solve-systems
how-to/own-quantiser
how-to/matlab
how-to/run-a-sweep
how-to/use-your-network
how-to/speed-of-my-model
how-to/golden-vectors
how-to/several-processes
how-to/export
Use a GPU <how-to/on-a-gpu>
Come from another tool <tutorials/coming_from>
```

```{toctree}
:hidden:
:caption: Reference

reference/index
reference/format-names
reference/dtypes
Other tools' names <reference/spellings>
Numerics <numerics>
Infinity and NaN <infinity-and-nan>
Targets <targets>
reference/scale-rules
accumulators
reference/rules
reference/optimizers
reference/rounding-counts
reference/random-rounding
reference/distributed
reference/interop
supported
limits
operators
results
Tables of results <reference/results>
reference/datasheets
Speed with AVX2 <reference/results-avx2>
Speed with a large cache <reference/results-intel>
Proof <proof>
elementary
stability
reference/releases
```

```{toctree}
:hidden:
:caption: Explanation

design
dispatch
codecs
hooks
counting
gpu
in-tree
Table of hooks <reference/hooks>
The build inside PyTorch's tree <reference/in-tree-build>
Table of edits <reference/edits>
```

```{toctree}
:hidden:
:caption: Project

/README
/CHANGELOG
/CONTRIBUTING
/RELEASING
/third_party/README
```
"""


class ScriptParser(MystParser):
    """Scripts of ``# %%`` cells as pages: cells marked ``[markdown]`` are text, in comments; the
    others are code."""

    supported = ("script",)

    def parse(self, inputstring, document):
        name = document.settings.env.docname.rpartition("/")[2]
        cells = [
            f"```python\n{text}\n```" if kind == "code" else text
            for kind, text in read_cells(inputstring)
        ]
        cells.append(f'<a href="{name}.ipynb" download>This page as a notebook</a>')
        super().parse("\n\n".join(cells), document)


def add_notebooks(app):
    for path in write_notebooks(Path(app.outdir) / "docs" / "tutorials"):
        path.write_text(re.sub(r"(\]\(\.\.?/[^)]*)\.(?:md|rst|py)\b", r"\1.html", path.read_text()))


def add_contents(app, name, source):
    if name == root_doc:
        source[0] += CONTENTS


def with_magnitudes(app, what, name, thing, options, lines):
    """``|x|`` is a magnitude in docstrings, and no substitution; code keeps it."""
    code = None  # how far a block of code is indented at least
    for i, line in enumerate(lines):
        indented = len(line) - len(line.lstrip())
        if code is not None and line.strip() and indented < code:
            code = None
        if code is None:
            parts = re.split(r"(``.*?``)", line)
            lines[i] = "".join(
                part if part.startswith("``") else part.replace("|", "\\|") for part in parts
            )
            code = indented + 1 if line.endswith("::") else None


def as_plain_text(app, context, lines):
    """Help texts are plain text: a name that ends in an underscore would be a reference."""
    lines[:] = [re.sub(r"(\w)_(?!\w)", r"\1\\_", line) for line in lines]


def with_dashes(app, tree):
    """The dash between a parameter and its text, which Sphinx leaves to smartquotes."""
    for text in list(tree.findall(lambda node: isinstance(node, nodes.Text) and node == " -- ")):
        text.parent.replace(text, nodes.Text(" – "))


def setup(app):
    app.connect("builder-inited", add_notebooks)
    app.add_source_parser(ScriptParser)
    # Before napoleon, which reorders sections.
    app.connect("autodoc-process-docstring", with_magnitudes, priority=400)
    app.connect("source-read", add_contents)
    app.connect("sphinx-click-process-description", as_plain_text)
    app.connect("sphinx-click-process-options", as_plain_text)
    app.connect("doctree-read", with_dashes)
