"""``torch-dtypes bench``: every suite runs, and its report. No test depends on a time."""

import copy
import importlib.util
import json
import re
import sys
import types

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes.cli import group
from torch_dtypes.workbench import bench
from torch_dtypes.workbench.bench import command, doors, memory, networks, peers, report, scaling
from torch_dtypes.workbench.bench.measuring import (
    OVER,
    RATE,
    RATIO,
    SPEED_UP,
    WARM_UP_ROUNDS,
    compare,
    count_rounds,
)
from torch_dtypes.workbench.bench.running import choose_groups, list_comparisons, measure

TINY = bench.Sizes(
    elements=1000,
    cached_elements=500,
    cast_seconds=0,
    function_elements=1000,
    matmul=16,
    rounded_matmul=16,
    block_sides=(40,),
    networks=(("lenet5", 2),),
    step_batch=2,
    step_images=32,
    parameters=(400,),
    memory_networks=(("lenet5", 2),),
    calls=2,
    peer_elements=1000,
    peer_matmul=8,
    peer_seconds=0,
    scalars=50,
    fuzzy_images=2,
    peer_batch=2,
    scaling=(100, 1000),
    scaling_matmul=(4, 8),
    language=(1, 64, 8, 2),
)
FIELDS = {
    "suite",      "work",       "dtype",      "against",    "threads",    "unit",
    "ours",       "theirs",     "ratio",      "quartiles",  "rounds",     "measure",
    "measured",   "limit",      "target",     "met",        "commands",   "elements",
    "operations",
}  # fmt: skip


@pytest.fixture(autouse=True)
def restore_threads():
    """Restore the number of threads, which a run must not change."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


def rows_of(suite, **options):
    return bench.run([suite], threads=[1], quick=True, sizes=TINY, **options)["rows"]


def check(rows, suite):
    assert rows
    for row in rows:
        assert row.keys() == FIELDS and row["suite"] == suite and row["threads"] >= 1
        assert row["ratio"] > 0 and row["ours"] > 0 and row["theirs"] > 0 and row["rounds"] >= 1
        assert row["quartiles"][0] <= row["quartiles"][1]
        assert (row["met"] is None) == (row["limit"] is None) == (row["target"] is None)
        if row["measure"] == RATIO:
            assert row["measured"] == row["ratio"]
        assert row["commands"].keys() == {"ours", "theirs"} and all(row["commands"].values())


@pytest.mark.parametrize(
    "suite",
    [
        name
        for name in bench.SUITES
        if name
        not in ("memory", "peers", "quantization", "networks", "language", "backends", "scaling")
    ],
)
def test_suite_runs(suite):
    rows = rows_of(suite)
    check(rows, suite)
    assert all(
        row["against"]
        in "bfloat16 float32 q43 q52 posit16es2 nf4 takum16_linear eager mxfp4".split()
        for row in rows
    )
    about = {
        "fuzzy": "e8m23_stochastic",
        "observation": "posit16es2, observed",
        "blocks": "nvfp4",
    }.get(suite, "posit16es2")
    assert any(row["dtype"] == about and row["limit"] for row in rows)
    listed = "\n".join(list_comparisons([suite]))
    assert all(row["target"] is None or row["target"] in listed for row in rows)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_language_models_are_compared():
    pytest.importorskip("transformers", reason="transformers is not installed")
    rows = rows_of("language")
    check(rows, "language")
    assert {(row["dtype"], row["against"], row["limit"]) for row in rows} == {
        ("posit16es2", "float32", 1.25),
        ("mxfp8 by rules", "float32", 1.4),
        *((f"{name} cache", "float32", 1.3) for name in ("q43", "mxfp8", "int8")),
    }


def test_networks_are_compared(monkeypatch):
    small = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (2, -1)), nn.LazyLinear(10))
    tiny = {"GPT": networks.Bert(1, 8), "GRU": networks.Recurrent("GRU", 2)}
    monkeypatch.setattr(networks, "_RECURRENT", ("GRU",))
    monkeypatch.setattr(networks, "_BERT", "GPT")
    monkeypatch.setattr(networks, "IMAGES", ("alexnet",))
    monkeypatch.setattr(networks, "_build", lambda name, side: copy.deepcopy(tiny.get(name, small)))
    monkeypatch.setattr(networks, "import_torchvision_models", lambda: None)
    rows = rows_of("networks")
    check(rows, "networks")
    limits = {(row["work"].split()[0], row["limit"]) for row in rows if row["limit"]}
    assert limits == {("alexnet", 2), ("GPT", 2), ("GRU", 1.7)}
    figures = {"alexnet": 3, "GPT": 1.2, "BERT": 1, "GRU": 9}
    rows = [
        {"work": f"{name} step", "dtype": "posit16es2", "threads": 1, "ratio": ratio}
        for name, ratio in figures.items()
    ]
    assert networks.sentences(rows) == [
        "posit16es2, 1 thread: the median of 3 networks is 1.20 (target 1.25), the worst 3.00, "
        "alexnet."
    ]


def test_networks_without_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    listed = "\n".join(list_comparisons(["networks"]))
    assert "GPT step" in listed and "alexnet" not in listed and "pip install torchvision" in listed


@pytest.mark.whole
def test_back_ends_are_compared(monkeypatch):
    monkeypatch.setattr(bench.backends, "_FORMATS", {"q52": (5, 2)})
    monkeypatch.setattr(bench.backends, "_MODES", {"nearest_even": (1, 2)})
    rows = [row for row in rows_of("backends") if row["against"] == "kernels"]
    check(rows, "backends")
    assert [row["dtype"] for row in rows] == ["eager", "compiled"]
    assert torch_dtypes.backend(torch.ones(1)) == "kernels"


def test_quantised_layers_are_compared_with_float32s_and_qtorchs(monkeypatch):
    monkeypatch.setattr(peers, "is_installed", lambda name: False)
    result = bench.run(["quantization"], threads=[1], quick=True, sizes=TINY)
    check(result["rows"], "quantization")
    assert {(row["dtype"], row["against"], row["limit"]) for row in result["rows"]} == {
        ("q43, q52", "float32", 1.6),
        ("q43, q52, stochastic", "float32", 1.6),
        ("q43 natively", "float32", None),
    }
    assert "pip install qtorch" in "\n".join(result["notes"])
    monkeypatch.undo()
    if peers.is_installed("qtorch"):
        made = [
            group
            for group in choose_groups(["quantization"], TINY, None)["quantization"]
            if "qtorch" in group.codes
        ]
        rows, _ = measure({"quantization": made}, [1], rounds=1)
        check(rows, "quantization")
        assert {(row["against"], row["limit"]) for row in rows} == {("qtorch", 2)}


def test_rates_and_overheads_are_measured_from_the_medians():
    for row in rows_of("matmul"):
        if row["measure"] == RATE:
            assert (
                row["operations"] == 16**3
                and row["measured"] == row["operations"] / row["ours"] / 1e6
            )
    measures = {(row["work"], row["measure"]) for row in rows_of("overhead")}
    assert {work for work, measure in measures if measure == RATIO} == {"x + x, 8 elements"}


def test_compare():
    rows = [
        bench.Row("work", "ours", "theirs", 0.5),
        bench.Row("work", "ours", "theirs", 1e6, OVER),
        bench.Row("work", "ours", "theirs", 4, RATE, 2 * 10**6),
        bench.Row("work", "ours", "theirs", 20, SPEED_UP),
    ]
    group = bench.Group(
        {"ours": "x", "theirs": "y"}, dict, rows, elements={"ours": 10, "theirs": 1}
    )
    # Medians 2 and 0.4: per element, 0.2 and 0.4.
    figures = {"ours": [1.0, 2.0, 9.0], "theirs": [4.0, 0.4, 0.3]}
    plain, over, rate, speed_up = (compare(row, group, figures, 4) for row in rows)
    assert (plain["ratio"], plain["met"], plain["target"]) == (0.5, True, "at most 0.5")
    assert plain["quartiles"] == pytest.approx([(1 / 40 + 0.5) / 2, (0.5 + 3) / 2])
    assert (
        over["measured"] == pytest.approx(1.6e6)
        and over["met"] is False
        and over["target"] == "at most 1e+06 microseconds over"
    )
    # Two million in two seconds on four cores.
    assert rate["measured"] == 0.25 and rate["met"] is False
    assert (speed_up["measured"], speed_up["met"], speed_up["target"]) == (
        2,
        False,
        "at least 20 times as fast",
    )
    assert bench.Row("work", "a", "b", 1.2).met(1.204) and not bench.Row("work", "a", "b", 1.2).met(
        1.206
    )


def test_cases_take_turns_and_the_first_rounds_only_warm_up():
    seen = []
    group = bench.Group(
        {"a": "f('a')", "b": "f('b')"},
        lambda: {name: {"f": seen.append} for name in "ab"},
        [],
        calls=2,
    )
    assert [len(times) for times in group.measure(3, lambda: seen.append("|")).values()] == [3, 3]
    assert "".join(seen) == "aabb" * WARM_UP_ROUNDS + "|" + "aabb|" * 3
    group = bench.Group({"a": "f('a')"}, lambda: {"a": {"f": seen.append}}, [], least_seconds=1e-3)
    seen.clear()
    group.measure(2, lambda: seen.append("|"))
    assert len("".join(seen).split("|")[1]) > 1
    group = bench.Group({}, dict, [])
    assert [
        count_rounds(group, *options) for options in ((None, False), (None, True), (7, True))
    ] == [
        30,
        3,
        7,
    ]


def test_default_suites_and_threads(monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(
        "torch_dtypes.workbench.bench.running.measure",
        lambda groups, threads, *_: asked.update(groups=groups, threads=threads) or ([], []),
    )
    result = bench.run(sizes=TINY)
    every = (
        "casts arithmetic functions blocks matmul training quantization optimizers observation "
        "overhead fuzzy memory"
    )
    assert list(asked["groups"]) == every.split()
    assert asked["threads"] == tuple(dict.fromkeys((1, torch.get_num_threads())))
    assert result["command"]["casts"].startswith("torch-dtypes bench --suite casts --threads 1")


def test_dtypes_in_place_of_the_suites_own():
    rows = rows_of("casts", dtypes=["posit12es1", "q43"])
    check(rows, "casts")
    assert {row["dtype"] for row in rows} == {
        "posit12es1",
        "q43",
        "posit12es1_stochastic",
        "q43_stochastic",
    }
    # Targets are for the dtypes that they name.
    assert {row["limit"] for row in rows if row["dtype"] == "posit12es1"} == {None}
    assert {row["dtype"] for row in rows_of("casts", dtypes=["q43_stochastic"])} == {
        "q43_stochastic"
    }


def test_tables_are_compared_with_bfloat16s_casts_and_with_a_copy():
    limits = {
        (row["dtype"], row["against"]): row["limit"]
        for row in rows_of("casts")
        if row["work"].startswith("encode from")
    }
    for name, limit in {
        "nf4": 1.2,
        "hif8": 1.2,
        "e8m0": 1.2,
        "takum16_linear": 4,
        "e6m9fn_normal": 4,
    }.items():
        assert limits[name, "bfloat16"] == limits[name, "float32"] == limit
    assert ("q43", "float32") not in limits


def test_refusals(tmp_path):
    with pytest.raises(
        ValueError, match=r"expected a suite out of casts, .*scaling, but got 'speed'"
    ):
        bench.run(["speed"])
    with pytest.raises(
        ValueError, match=r"expected the name of a number format .* but got bfloat16, a stock dtype"
    ):
        bench.run(["casts"], dtypes=["bfloat16"])
    with pytest.raises(OSError):
        bench.run(["casts"], markdown=str(tmp_path / "none" / "x.md"), sizes=TINY)


def test_memory_rows(monkeypatch):
    figures = {"float32": {"held": 400, "peak": 1000}, "posit16es2": {"held": 200, "peak": 1300}}
    monkeypatch.setattr(memory, "_run", lambda model, batch_size, dtype: figures[dtype])
    rows = bench.run(["memory"], threads=[2, 1], quick=True, sizes=TINY, dtypes=["posit16es2"])[
        "rows"
    ]
    check(rows, "memory")
    # Memory is measured once, with the most threads.
    assert [row["threads"] for row in rows] == [2, 2]
    assert [(row["unit"], row["ratio"], row["limit"], row["met"]) for row in rows] == [
        ("bytes", 0.5, 0.5, True),
        ("bytes", 1.3, 1.2, False),
    ]
    assert (
        rows[1]["commands"]["ours"]
        == "python -m torch_dtypes.workbench.bench.memory_process lenet5 2 posit16es2"
    )


@pytest.mark.whole
def test_memory_is_measured_in_a_process(monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    figures = memory._run("lenet5", "2", "posit16es2")
    # Parameters and two moments; Adam counts each parameter's steps in float32.
    assert figures["held"] == 3 * 61706 * 2 + 10 * 4
    assert figures["peak"] > figures["held"]
    with pytest.raises(
        bench.NotMeasuredError,
        match="the memory of lenet5 in q99 could not be measured: ValueError: expected the name",
    ):
        memory._run("lenet5", "2", "q99")


def test_peers_that_are_installed_and_that_are_not(monkeypatch, capsys):
    monkeypatch.setattr(
        peers,
        "is_installed",
        lambda name: name != "qtorch" and importlib.util.find_spec(name) is not None,
    )
    result = bench.run(["peers"], threads=[1], rounds=1, sizes=TINY)
    assert "qtorch: not installed: pip install qtorch" in result["notes"]
    assert "qtorch: not installed: pip install qtorch" in capsys.readouterr().out
    assert not any(row["against"] == "qtorch" for row in result["rows"])
    if any(peers.is_installed(name) for name in ("ml_dtypes", "gfloat", "softposit")):
        check(result["rows"], "peers")
        peers_rows = [row for row in result["rows"] if row["against"] != "chop"]  # of doors
        assert {row["measure"] for row in peers_rows} == {SPEED_UP}
    scalars = [row for row in result["rows"] if row["against"] == "softposit"]
    assert all(row["elements"] == {"ours": 1000, "theirs": 50} for row in scalars)


def test_a_peer_that_cannot_be_imported_is_a_note(monkeypatch):
    def raise_import_error(name):
        raise RuntimeError("Error building extension 'quant_cpu': ninja\nand more")

    monkeypatch.setattr(peers, "is_installed", lambda name: name == "qtorch")
    monkeypatch.setattr(doors, "importlib", types.SimpleNamespace(import_module=raise_import_error))
    rows, notes = measure(choose_groups(["peers"], TINY, None), [1], rounds=1)
    assert rows == []
    assert notes == [
        f"{name}: installed, but it cannot be imported: Error building extension 'quant_cpu': ninja"
        for name in ("qtorch.quant",)
    ]


@pytest.mark.parametrize("name", ["qtorch", "mx", "pychop", "mptorch"])
def test_peers_for_want_of_which_nothing_else_runs_this(name):
    if not peers.is_installed(name):
        pytest.skip(f"needs {name}, an optional library to compare with")
    rows, notes = measure({"peers": peers.PEERS[name](TINY)}, [1], rounds=1)
    assert notes == []
    check(rows, "peers")


@pytest.mark.whole
def test_scaling_and_its_charts(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    result = bench.run(["scaling"], threads=[1, 2], rounds=1, sizes=TINY, out=str(tmp_path / "new"))
    check(result["rows"], "scaling")
    assert json.loads((tmp_path / "new" / "bench.json").read_text()) == json.loads(
        json.dumps(result)
    )
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {
        ".html",
        ".json",
        ".png",
        ".svg",
        ".pdf",
    }
    for name in ("scaling_elements.png", "scaling_matmul.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG\r\n")
    assert (tmp_path / "new" / "bench.html").read_text().count("<svg") == 2
    encode = {
        row["dtype"]: row["operations"]
        for row in result["rows"]
        if row["work"] == "encode, 1,000 elements"
    }
    assert encode == dict.fromkeys(
        ("posit16es2", "q43", "copy_, 5 bytes an element", "copy_, 6 bytes an element"), 1000
    ) | {"bfloat16": 1000}
    report.update_markdown(tmp_path / "x.md", result)
    assert (
        "(images/scaling_elements.png)" in (tmp_path / "x.md").read_text()
        and "| work" not in (tmp_path / "x.md").read_text()
    )
    monkeypatch.setattr(scaling, "_available", lambda: 10_000)
    assert scaling.notes(TINY) == ["1,000 elements: left out, memory does not suffice"]
    assert not any("1,000" in row.work for each in scaling.groups(TINY, None) for row in each.rows)


def test_json_says_what_was_measured(tmp_path):
    bench.run(["functions"], threads=[1], rounds=2, sizes=TINY, out=str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.html", "bench.json"]
    page = (tmp_path / "bench.html").read_text()
    assert "torch-dtypes bench --suite functions --threads 1 --rounds 2" in page and "<td" in page
    result = json.loads((tmp_path / "bench.json").read_text())
    assert result.keys() == {"machine", "command", "rows", "notes"}
    assert result["machine"].keys() == {
        "cpu",
        "cores",
        "load",
        "vector_unit",
        "threads",
        "torch",
        "torch_dtypes",
        "python",
    }
    assert (
        result["machine"]["torch"] == torch.__version__
        and result["machine"]["torch_dtypes"] == torch_dtypes.__version__
    )
    assert result["command"] == {
        "functions": "torch-dtypes bench --suite functions --threads 1 --rounds 2"
    }
    assert result["rows"][0]["commands"] == {"ours": "torch.tanh(x)", "theirs": "torch.tanh(x)"}


def test_markdown_replaces_its_own_part_only(tmp_path):
    path = tmp_path / "results.md"
    path.write_text(
        "# Results\n\n"
        "<!-- torch-dtypes bench: overhead -->\n"
        "old\n<!-- end of overhead -->\n\n"
        "The rest.\n"
    )
    for _ in range(2):
        bench.run(
            ["overhead", "functions"], threads=[1, 2], rounds=1, sizes=TINY, markdown=str(path)
        )
    text = path.read_text()
    assert "old" not in text and text.count("### overhead") == text.count("### functions") == 1
    assert text.index("### overhead") < text.index("The rest.") < text.index("### functions")
    assert "| work | dtype | against | target | 1 thread | 2 threads |" in text
    line = (
        r"\| x \+ x, 8 elements \| q43 \| float32 \| at most 2 microseconds over \| [\d.,]+, "
        r"(met|missed) \| [\d.,]+, (met|missed) \|"
    )
    assert re.search(line, text)
    assert "µs" not in text  # ratios only
    assert "    torch-dtypes bench --suite overhead --threads 1 --threads 2 --rounds 1\n" in text


def test_command_line(monkeypatch, tmp_path):
    runner = pytest.importorskip("click.testing", reason="the command line needs click").CliRunner()

    def invoke(*args):
        result = runner.invoke(group(), ["bench", *map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    calls = []
    monkeypatch.setattr(command, "run", lambda **options: calls.append(options))
    assert invoke().exit_code == 0
    options = (
        "--suite casts --suite peers --threads 1 --threads 2 --dtype q43 --rounds 4 --quick "
        "--out x --markdown y.md"
    )
    assert invoke(*options.split()).exit_code == 0
    given = {
        "suites": ("casts", "peers"),
        "threads": (1, 2),
        "dtypes": ("q43",),
        "rounds": 4,
        "quick": True,
        "out": "x",
        "markdown": "y.md",
    }
    assert calls == [{}, given]
    listed = invoke("--list", "--suite", "casts").output
    assert "posit16es2 over bfloat16, at most 1.5" in listed and "training" not in listed
    listed = invoke("--list", "--suite", "all").output
    assert all(f"{name}: {suite.summary}" in listed for name, suite in bench.SUITES.items())
    assert len(calls) == 2
    for bad in ("--suite speed", "--rounds 0", "--threads 0"):
        result = invoke(*bad.split())
        assert result.exit_code == 2 and "Invalid value for" in result.output
    monkeypatch.undo()
    result = invoke("--dtype", "q99")
    assert (
        result.exit_code == 1
        and "Error: expected the name of a number format, but got 'q99'" in result.output
    )
    result = invoke("--suite", "casts", "--markdown", tmp_path / "none" / "x.md")
    assert result.exit_code == 2 and "No such file" in result.output


def test_charts_without_matplotlib(monkeypatch, tmp_path):
    runner = pytest.importorskip("click.testing", reason="the command line needs click").CliRunner()
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "matplotlib" else find(name, *a),
    )
    result = runner.invoke(group(), ["bench", "--suite", "scaling", "--out", str(tmp_path)])
    assert result.exit_code == 2 and "pip install 'torch-dtypes[train]'" in " ".join(
        result.output.split()
    )


def test_an_interruption_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    docs = tmp_path / "results.md"
    docs.write_text("as it was")
    calls, measured = [], bench.Group.measure

    def interrupt(self, *arguments):
        calls.append(self)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measured(self, *arguments)

    monkeypatch.setattr(bench.Group, "measure", interrupt)
    arguments = {
        "threads": [1],
        "quick": True,
        "sizes": TINY,
        "out": str(tmp_path),
        "markdown": str(docs),
    }
    with pytest.raises(KeyboardInterrupt):
        bench.run(["casts", "overhead"], **arguments)
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert len(kept["rows"]) == sum(len(group.rows) for group in calls[:2]) > 0
    assert kept["notes"][-1] == "Interrupted: what came after these was not measured."
    said = capsys.readouterr().out
    assert kept["rows"][0]["work"] in said and "Interrupted" in said and "bench.json" in said
    assert docs.read_text() == "as it was"
