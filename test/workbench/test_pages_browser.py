"""Each kind of report, opened in a browser from a file: what it loads, whether it is complete, fits
and can be read, in light and dark."""

import html
import json
import re
import shutil
import subprocess

import pytest
import torch
from torch import nn

pytest.importorskip("matplotlib", reason="the figures need matplotlib")

import torch_dtypes
from torch_dtypes.workbench.bench import report as bench_report
from torch_dtypes.workbench.datasheets import Datasheet
from torch_dtypes.workbench.datasheets.parts import Part
from torch_dtypes.workbench.report.drawing import new_figure
from torch_dtypes.workbench.report.page import Report
from torch_dtypes.workbench.training import observing, report
from torch_dtypes.workbench.training.records import Run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NEEDS_CHROMIUM = "needs chromium, to open the reports (Debian: apt-get install chromium)"
pytestmark = [
    pytest.mark.whole,
    pytest.mark.one_worker,
    pytest.mark.skipif(CHROMIUM is None, reason=NEEDS_CHROMIUM),
]

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run "
    "--disable-background-networking --disable-sync --disable-component-update "
    "--disable-extensions --host-resolver-rules=MAP\t*\t~NOTFOUND --allow-file-access-from-files "
    "--enable-logging=stderr --virtual-time-budget=4000 --dump-dom"
).split(" ")
WIDTHS = (400, 1200)

# A page may run no script, so this one looks into it from outside, through frames of both widths.
HARNESS = """<!DOCTYPE html><title>harness</title>
%s<pre id="found"></pre><script>
function contrast(one, other) {
  const luminance = text => {
    const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [luminance(one), luminance(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
function look(frame) {
  const view = frame.contentWindow, page = frame.contentDocument;
  const style = element => view.getComputedStyle(element);
  const ground = style(page.body).backgroundColor;
  const inside = element => {
    const b = element.getBoundingClientRect();
    return b.width > 20 && b.height > 5 && b.left >= 0 && b.right <= view.innerWidth + 0.5;
  };
  const all = selector => [...page.querySelectorAll(selector)];
  const blocks = all("svg, .wide, h1, p, dl");
  const inks = all("main p, h1, h2, dd, dt, th, td, figcaption").map(e => style(e).color);
  const lines = all("figure:not(.light) svg path[style*=stroke]").map(e => style(e).stroke);
  const strokes = lines.filter(s => s.startsWith("rgb("));
  return {
    page: frame.dataset.page,
    width: view.innerWidth,
    scrolls: page.documentElement.scrollWidth,
    title: page.title,
    loaded: view.performance.getEntriesByType("resource").map(r => r.name),
    scripts: page.scripts.length,
    svgs: all("svg").length,
    tables: all("table").length,
    blocks: blocks.length,
    inside: blocks.filter(inside).length,
    empty: all("svg").filter(s => s.getBBox().width < 100).length,
    ground: ground,
    text: page.body.innerText.length,
    ink: Math.min(...inks.map(i => contrast(i, ground))),
    line: strokes.length ? Math.max(...strokes.map(s => contrast(s, ground))) : null,
  };
}
onload = () => {
  const found = [...document.querySelectorAll("iframe")].map(look);
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script>"""

BAD = """<!DOCTYPE html><body style="background: #fff"><main>
<p style="color: #aaa; width: 1500px">Faint and wide.</p>
<figure><svg width="20"><path d="M 0 0 L 9 9" style="stroke: #eee"/></svg></figure>
<img src="http://elsewhere.invalid/x.png"><script>console.error("no")</script>"""


def heat_map():
    with new_figure() as figure:
        figure.add_subplot().imshow([[0.0, 1.0], [2.0, 3.0]])
    return figure


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return a page of each kind, by name."""
    import test_sweep_shown
    from test_training_report import CASES, DESCRIBED

    folder = tmp_path_factory.mktemp("pages")
    torch_dtypes.show("posit16es2", "bf16", "q43", values=True, out=folder)
    made = {"show": folder / "formats.html"}
    row = {
        "suite": "overhead",
        "work": "x + x",
        "dtype": "q43",
        "against": "float32",
        "target": "",
        "threads": 1,
        "measure": "over",
    }
    row |= {"ratio": 2.5, "met": None}
    machine = {"threads": [1], "load": 0.0, "cores": 2}
    measured = {
        "machine": machine,
        "command": {"overhead": "torch-dtypes bench"},
        "rows": [row],
        "notes": ["A note."],
    }
    made["bench"] = bench_report.report_of(measured).write(folder / "bench.html")
    for case in ("several", "all diverged", "long names"):
        summaries, seeds = CASES[case]
        described = {**DESCRIBED, "seeds": list(range(seeds))}
        made[case] = report.report_of(
            described, summaries, "torch-dtypes train " + "--dtype q43 " * 30
        ).write(folder / f"{case}.html")
    torch.manual_seed(0)
    network, data = (
        nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)),
        [(torch.randn(8, 6), torch.randint(0, 3, (8,)))],
    )
    studied = torch_dtypes.variability(network, data, repeats=3)
    made["variability"] = studied.report("torch-dtypes variability").write(
        folder / "variability.html"
    )
    sheet = torch_dtypes.workbench.datasheet("q43", "mxfp4", only=("card", "cost"))
    row = {"model": "m", "dataset": "d", "format": "q43", "recipe": "ptq", "reason": "it raises"}
    row |= dict.fromkeys(("accuracy", "deviation", "gap", "guess")) | {"rounding": "nearest_even"}
    base = {**row, "format": "float32", "recipe": "float32", "accuracy": 90.0, "seeds": 1}
    sheet.parts["accuracy"] = Part(rows=[base, row], headings=["a"], table=[["1"], ["2"]])
    sheet = Datasheet(sheet.plan, sheet.parts, {"acme8": "no table " * 20})
    made["datasheet"] = sheet.report("torch-dtypes datasheet").write(folder / "datasheet.html")
    ranked = torch_dtypes.sensitivity(network, data, ["q43", "mxfp4", "int8"])
    ranked.choose(bits=6)
    made["sensitivity"] = ranked.report("torch-dtypes sensitivity").write(
        folder / "sensitivity.html"
    )
    with torch_dtypes.observe(network, formats=["q43"]) as stats:
        network(data[0][0]).sum().backward()
    observed = Report("An observed network")
    observing.add_section(observed, Run("float32", 0), {"epoch": 1, **stats.as_json()})
    made["observed"] = observed.write(folder / "observed.html")
    made["sweep"] = (
        test_sweep_shown.example().report("torch-dtypes sweep").write(folder / "sweep.html")
    )
    long = Report(
        "A page of all parts, " + "which_has_a_long_name_" * 8, command="torch-dtypes " + "x" * 300
    ).text("word " * 100)
    long.strip({"e4m3finite_bias3_flush_saturate_toward_zero mixed": "z" * 150}, "Failed").figure(
        heat_map(), "Numbers as colours."
    )
    long.table(
        [f"column {i}" for i in range(40)], [[1e-3] * 40] * 3, "A wide table.", dense=True
    ).footnote("note " * 50)
    made["all parts"] = long.write(folder / "all parts.html")
    return made


@pytest.fixture(scope="module", params=["light", "dark"])
def browser_results(pages, request, tmp_path_factory):
    """Return the browser's measurements of each page in each width, and its log."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "bad.html").write_text(BAD)
    frames = "".join(
        (
            f'<iframe data-page="{html.escape(name)}" src="{path.as_uri()}" width="{width}" '
            'height="900" style="border:0"></iframe>\n'
        )
        for name, path in {**pages, "bad": folder / "bad.html"}.items()
        for width in WIDTHS
    )
    (folder / "harness.html").write_text(HARNESS % frames)
    flags = [flag.replace("\t", " ") for flag in FLAGS] + [
        f"--blink-settings=preferredColorScheme={int(request.param == 'light')}"
    ]
    flags += [f"--user-data-dir={folder / 'user'}", (folder / "harness.html").as_uri()]
    done = subprocess.run(
        [CHROMIUM, *flags], capture_output=True, text=True, timeout=120, check=False
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found and found[1], done.stderr
    found = json.loads(html.unescape(found[1]))
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    # The bad page shows that each fault is found.
    for each in (each for each in found if each["page"] == "bad"):
        assert (
            each["loaded"]
            and each["scripts"]
            and each["scrolls"] > each["width"]
            and each["inside"] < each["blocks"]
        )
        assert each["empty"] == 1 and each["ink"] < 4.5 and each["line"] < 3
    assert any("bad.html" in line for line in complaints)
    return (
        request.param,
        [each for each in found if each["page"] != "bad"],
        [line for line in complaints if "bad.html" not in line],
    )


@pytest.mark.whole
def test_the_browser_loads_nothing_and_complains_of_nothing(browser_results, pages):
    _, found, complaints = browser_results
    assert len(found) == len(pages) * len(WIDTHS)
    assert [each["loaded"] for each in found] == [[]] * len(found) and not any(
        each["scripts"] for each in found
    )
    assert not complaints


def test_everything_is_there(browser_results, pages):
    for each in browser_results[1]:
        source = pages[each["page"]].read_text()
        assert (each["svgs"], each["tables"]) == (
            source.count("<svg"),
            source.count("<table"),
        ) and each["svgs"] + each["tables"] > 0
        assert each["empty"] == 0 and each["text"] > 300 and each["title"]


def test_nothing_is_wider_than_the_window(browser_results):
    assert sorted({each["width"] for each in browser_results[1]}) == list(WIDTHS)
    for each in browser_results[1]:
        assert each["scrolls"] <= each["width"], each
        assert each["inside"] == each["blocks"], each


def test_text_and_lines_can_be_read_on_the_ground_that_the_reader_chose(browser_results):
    scheme, found, _ = browser_results
    assert {each["ground"] for each in found} == {
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 25, 29)"
    }
    for each in found:
        assert each["ink"] >= 4.5, each  # WCAG 2.2, 1.4.3
        assert each["line"] is None or each["line"] >= 3, each  # 1.4.11
