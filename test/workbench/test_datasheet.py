"""``torch-dtypes datasheet``: verdicts from made-up rows, parts, a second run, bad input."""

# ruff: noqa: F811 (a fixture that is imported)

import functools
import html
import json
import re

import pytest
from command_line import command
from sweeps import own  # noqa: F401 (a fixture)

import torch_dtypes
from torch_dtypes.workbench.datasheets import parts, studies
from torch_dtypes.workbench.datasheets import verdict as verdicts
from torch_dtypes.workbench.datasheets.figures import accuracy_figure
from torch_dtypes.workbench.datasheets.plan import PARTS, RECIPES, Plan, recipes_of, roundings_of
from torch_dtypes.workbench.datasheets.sentences import share_text
from torch_dtypes.workbench.datasheets.study_parts import TENSORS
from torch_dtypes.workbench.report.page import Report
from torch_dtypes.workbench.sweeps import sweeping
from torch_dtypes.workbench.sweeps.cells import Settings

pytest.importorskip("rich", reason="the command line needs rich")
pytest.importorskip("matplotlib", reason="the figures need matplotlib")

run = functools.partial(command, "datasheet")

# Verdicts from made-up rows


def row(name, recipe, accuracy, deviation=0.5, rounding="nearest_even", base=94.0, **changes):
    """Return a row of accuracy, of three seeds."""
    made = {
        "model": "lenet5",
        "dataset": "digits",
        "format": name,
        "recipe": recipe,
        "rounding": rounding,
        "accuracy": accuracy,
        "deviation": deviation,
        "gap": None if accuracy is None else accuracy - base,
        "seeds": 3,
        "done": 0 if accuracy is None else 3,
        "reason": None,
        "guess": 12.0,
    }
    return made | changes


FLOAT32 = row("float32", "float32", 94.0)


def texts(*rows, name="e4m4", **parts):
    """Return the sentences on a format without the period, and check that each rests on rows."""
    parts = {"accuracy": [FLOAT32, *rows]} | parts
    found = verdicts.verdict(name, parts)
    for sentence in found:
        assert sentence.format == name and sentence.rests
        assert all(0 <= place < len(parts[part]) for part, place in sentence.rests)
        assert sentence.text.endswith(".") and "None" not in sentence.text
    return [sentence.text.removesuffix(".") for sentence in found]


def test_the_training_that_takes_the_least_and_holds_is_named():
    rows = [
        row("e4m4", "qat", 94.0),
        row("e4m4", "master", 93.6, rounding="stochastic"),
        row("e4m4", "all", 93.7, rounding="stochastic"),
        row("e4m4", "all", 87.0),
    ]
    assert texts(*rows) == [
        "e4m4 trains lenet5 on digits to within a deviation of float32 with everything in the "
        "format, rounded stochastically: 93.7 ± 0.5 % against 94.0 ± 0.5 % over 3 seeds",
        "With everything in the format, rounded to nearest, it loses 7.0 points (87.0 ± 0.5 %)",
    ]
    first, second = verdicts.verdict("e4m4", {"accuracy": [FLOAT32, *rows]})
    assert first.rests == (("accuracy", 3), ("accuracy", 0))
    assert second.rests == (("accuracy", 4), ("accuracy", 0))


def test_a_loss_between_float32s_deviation_and_the_spread_tells_nothing():
    """A loss of 0.9 points: more than both deviations, or less than the format's own."""
    untold = "which differ by less than their spread, so that the rows do not tell"
    first, second = texts(row("e4m4", "all", 93.1))
    assert first.startswith("No training tried keeps e4m4") and untold not in first
    assert "it loses 0.9 points" in second
    first, second = texts(row("e4m4", "all", 93.1, deviation=1.0))
    assert first.startswith("No training tried keeps e4m4") and untold in first
    assert untold in second and "loses" not in second
    (rounded,) = texts(row("e4m4", "ptq", 93.1, deviation=1.0))
    assert untold in rounded


def test_no_training_holds():
    found = texts(row("e4m4", "all", 14.0, deviation=3.0), row("e4m4", "master", 90.0))
    assert found == [
        "No training tried keeps e4m4 within a deviation of float32 on lenet5 on digits: the best, "
        "with float32 masters, rounded to nearest, has 90.0 ± 0.5 % against 94.0 ± 0.5 %",
        "With everything in the format, rounded to nearest, it learns no more than a guess "
        "(14.0 ± 3.0 %)",
    ]


def test_a_run_that_failed_is_no_training_that_holds():
    lost = row("e4m4", "all", 94.0, done=2, reason="diverged")
    found = texts(lost, row("e4m4", "master", 94.0))
    assert "a deviation of float32 with float32 masters" in found[0]
    assert found[1].endswith("; 2 of 3 runs came to their end")
    assert "94.0 ± 0.5 % in 2 of its 3 runs against" in texts(lost)[0]
    alone = row("e4m4", "all", 93.9, deviation=None, done=1)
    assert "it has 93.9 % in its one run that came to its end" in texts(alone)[1]


def test_references_are_compared_by_the_spread():
    rows = [
        row("e4m4", "ptq", 92.0),
        row("bf16", "ptq", 94.0),
        row("e4m3fn", "ptq", 92.3),
        row("e2m1", "ptq", 50.0, deviation=None),
        row("e3m1", "ptq", 80.0),
        row("q43", "ptq", 80.0, rounding="stochastic"),
    ]
    assert texts(*rows) == [
        "Rounded after training, it loses 2.0 points (92.0 ± 0.5 % against 94.0 ± 0.5 %); bf16 "
        "more than the spread better, e3m1 more than the spread worse, e4m3fn no different by "
        "more than the spread"
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("e4m4", "all", None, reason="the loss is nan")], "no run came to its end (the loss"),
        (
            [row("e4m4", "ptq", None, reason="ValueError: no")],
            "After training, nothing can be said of e4m4 on lenet5 on digits: ValueError: no",
        ),
        (
            [row("e4m4", "all", 93.9, deviation=None, done=1)],
            "the best, with everything in the format, rounded to nearest, has 93.9 % in 1 of its 3 "
            "runs",
        ),
    ],
)
def test_nothing_can_be_said(rows, said):
    assert said in texts(*rows)[0]


def test_one_seed_tells_no_difference():
    one = {"deviation": None, "seeds": 1, "done": 1}
    base = row("float32", "float32", 94.0, **one)
    rows = [base, row("e4m4", "all", 60.0, **one), row("e4m4", "ptq", 60.0, **one)]
    found = [s.text for s in verdicts.verdict("e4m4", {"accuracy": rows})]
    assert "nothing can be said of the difference" in found[0]
    assert "it has 60.0 %, float32 94.0 %; one seed has no spread" in found[1]


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (
            row("float32", "float32", None, reason="the loss was not finite"),
            "does not train either",
        ),
        (row("float32", "float32", 12.2), "float32 itself learns no more than a guess"),
    ],
)
def test_float32_does_not_train_either(base, said):
    (only,) = verdicts.verdict("e4m4", {"accuracy": [base, row("e4m4", "all", 12.0)]})
    assert said in only.text and only.rests == (("accuracy", 0),)


def test_without_training_there_is_no_verdict():
    assert verdicts.verdict("e4m4", {"card": [{}]}) == []


def sums(width, accuracy, chunk=None, deviation=0.5, **changes):
    """Return a row of the part ``accumulator``; width 24 is float32's."""
    bits = None if width == 24 else width
    made = {"accumulator": f"e8m{width - 1}", "significant_bits": bits, "chunk": chunk}
    return row("e4m4", "ptq", accuracy, deviation) | made | changes


def test_the_accumulator_is_the_narrowest_from_which_all_wider_ones_hold():
    """A narrower one that holds by chance, below one that does not, is none."""
    base = sums(24, 94.0)
    running = [sums(3, 94.0), sums(4, 90.0), sums(6, 93.6), sums(8, 94.1)]
    chunks = [sums(3, 93.9, 32), sums(4, 94.0, 32)]
    (only,) = verdicts.verdict("e4m4", {"accumulator": [base, *running, *chunks]})
    assert only.text == (
        "After training, these accumulators keep it within a deviation of float32's sums: e8m5 or "
        "wider in one running sum and e8m2 or wider, the narrowest tried, in chunks of 32."
    )
    assert only.rests == (("accumulator", 3), ("accumulator", 5), ("accumulator", 0))
    for worse in ({"accuracy": 90.0}, {"done": 2}, {"deviation": None, "done": 1}):
        rows = [base, running[2], running[3] | worse]
        (only,) = verdicts.verdict("e4m4", {"accumulator": rows})
        assert "sums: none tried in one running sum" in only.text
    for rows in ([base | {"deviation": None}, running[0]], [base, sums(4, None, deviation=None)]):
        (only,) = verdicts.verdict("e4m4", {"accumulator": rows})
        assert only.text.startswith("Nothing can be said of the accumulator of e4m4: ")
    assert verdicts.verdict("q43", {"accumulator": [base, *running]}) == []


def test_a_training_with_the_narrow_sums_found_is_judged_beside_that_with_float32s():
    after = [sums(24, 94.0), sums(6, 93.6), sums(6, 93.9, 32)]
    one = {"recipe": "mixed", "epochs": 1}
    base, running = sums(24, 85.0, **one), sums(6, 84.6, **one)
    chunks = sums(6, 83.0, 32, **one)
    part = [*after, base, running, chunks]
    first, *found = verdicts.verdict("e4m4", {"accumulator": part})
    assert first.rests == (("accumulator", 1), ("accumulator", 2), ("accumulator", 0))
    how = "In 1 epoch with float32 weights and scaled gradients, sums in e8m5"
    assert [s.text for s in found] == [
        f"{how} in one running sum keep it within a deviation: 84.6 ± 0.5 % against 85.0 ± 0.5 % "
        "with float32's sums.",
        f"{how} in chunks of 32 lose 2.0 points: 83.0 ± 0.5 % against 85.0 ± 0.5 % with float32's "
        "sums.",
    ]
    assert [s.rests for s in found] == [
        (("accumulator", 4), ("accumulator", 3)),
        (("accumulator", 5), ("accumulator", 3)),
    ]
    for changed, said in (
        ({4: running | {"accuracy": 84.0, "deviation": 1.5}}, "less than their spread"),
        ({4: running | {"done": 2, "reason": "diverged"}}, "Nothing can be said of 1 epoch with"),
        ({3: base | {"accuracy": 12.0}}, "no more than a guess (12.0 ± 0.5 %)"),
    ):
        rows = [changed.get(i, r) for i, r in enumerate(part)]
        assert said in verdicts.verdict("e4m4", {"accumulator": rows})[1].text


def share(name, layer, tensor, overflow=0.0, underflow=0.0):
    made = {"format": name, "layer": layer, "tensor": tensor, "left": overflow + underflow}
    return made | {"overflow": overflow, "underflow": underflow}


def test_the_tensor_of_which_most_leaves_the_range_is_named():
    rows = [
        share("q43", "conv1", "errors", 0.99),
        share("e4m4", "conv1", "updates", underflow=1.0),
        share("e4m4", "conv1", "errors", 0.01, 0.5),
        share("e4m4", "conv2", "activations", 0.4),
    ]
    (only,) = verdicts.verdict("e4m4", {"ranges": rows})
    assert only.text == (
        "Of float32's training, the errors of conv1 leave its range most: 50 % underflow and 1 % "
        "overflow."
    )
    assert only.rests == (("ranges", 2),)
    (none,) = verdicts.verdict("e4m4", {"ranges": [share("e4m4", "conv1", "errors")]})
    assert none.text.startswith("In float32's training, no weight")
    assert verdicts.verdict("e4m4", {"ranges": rows[:2]}) == []
    nan = share("e4m4", "conv1", "errors") | {"left": 0.1}
    (only,) = verdicts.verdict("e4m4", {"ranges": [nan]})
    assert only.text.endswith("most: infinities become NaN.")


def test_optimizer_states_are_judged_apart():
    rows = [
        share("e4m4", "conv1", "optimizer states", underflow=1.0),
        share("e4m4", "conv1", "errors", 0.01),
    ]
    (only,) = verdicts.verdict("e4m4", {"ranges": rows})
    assert only.text == (
        "Of float32's training, the errors of conv1 leave its range most: 1 % overflow; among "
        "optimizer states, those of conv1 do most: 100 % underflow."
    )
    assert only.rests == (("ranges", 1), ("ranges", 0))
    rows[0] |= {"left": 0.0, "underflow": 0.0}
    (only,) = verdicts.verdict("e4m4", {"ranges": rows})
    assert only.text.endswith("1 % overflow; nor does an optimizer state.")


def layer(name, rise, limit=0.01, mixture="e4m4"):
    return {"format": "e4m4", "layer": name, "rise": rise, "limit": limit, "mixture": mixture}


@pytest.mark.parametrize(
    ("rise", "limit", "said"),
    [
        (0.03, 0.01, "fc raises the loss most, by 0.03, more than float32's deviation over seeds"),
        (0.003, 0.01, "fc raises the loss most, by 0.003, no more than float32's deviation over"),
        (0.03, None, "by 0.03; one seed has no spread, so nothing can be said of the difference."),
        (-0.002, 0.01, "no layer raises the loss."),
        ("nan", 0.01, "with fc the loss is not finite."),
    ],
)
def test_the_layer_that_bears_a_format_least(rise, limit, said):
    rows = [layer("conv", -0.004, limit, None), layer("fc", rise, limit, None)]
    (only,) = verdicts.verdict("e4m4", {"layers": [{"format": "q43"}, *rows]})
    assert only.text.startswith("Of layers rounded alone, ") and said in only.text
    assert only.rests == (("layers", 2),)


def test_the_mixture_is_told_from_its_rows():
    text = "; the mixture whose rises add up to at most float32's deviation has e4m4 in "
    for mixtures, said, rests in (
        (("e4m4", "e4m4"), "every layer.", (0, 1)),
        (("e4m4", "bf16"), "the other layers, and fc in bf16.", (0, 1)),
        (("bf16", "float32"), "no layer, and conv in bf16 and fc in float32.", (0, 1)),
    ):
        rows = [layer("conv", 0.2, mixture=mixtures[0]), layer("fc", 0.1, mixture=mixtures[1])]
        (only,) = verdicts.verdict("e4m4", {"layers": rows})
        assert only.text.endswith(text + said)
        assert only.rests == tuple(("layers", i) for i in rests)


def test_digits_of_the_answers_and_the_modules_that_move_them():
    def module(name, responsible=False):
        made = {"format": "e4m4", "module": name, "digits": 1.34, "low": 0.43}
        return made | {"responsible": responsible}

    def told(*rows):
        (only,) = verdicts.verdict("e4m4", {"digits": [*rows, module("output")]})
        start = (
            "With every operation rounded to it, up or down at random, the answers keep 1.3 "
            "decimal digits in the median, and 5 % of them at most 0.4"
        )
        assert only.text.startswith(start)
        return only.text.removeprefix(start), only.rests

    assert told() == (".", (("digits", 0),))
    text, rests = told(module("conv", True), module("fc"))
    assert text == "; conv alone makes at least half of their move."
    assert rests == (("digits", 2), ("digits", 0))
    text, rests = told(module("conv", True), module("fc", True))
    assert text == "; the smallest sets of modules that make half of their move are of conv and fc."
    assert rests == (("digits", 2), ("digits", 0), ("digits", 1))


def test_only_the_whole_is_a_hundred_percent():
    shares = (1.0, 0.99999, 0.9999, 0.994, 0.0)
    texts = ["100 %", "over 99.99 %", "99.99 %", "99.4 %", "0 %"]
    assert [share_text(x) for x in shares] == texts


# The page


def test_a_plan_has_the_recipes_and_modes_that_a_format_takes():
    assert recipes_of("q43") == list(RECIPES)
    assert recipes_of("mxfp4") == recipes_of("int8") == ["ptq", "mixed", "qat"]
    assert roundings_of("q43") == ("nearest_even", "stochastic")
    assert roundings_of("q43_up") == ("up",)
    plan = Plan(("bf16",), ("q43",), seeds=(0,), parts=("accumulator",))
    cells = plan.cells()
    assert {cell.format for cell in cells} == {"bf16"}  # a reference has no such cells
    assert len(cells) == len({cell.key for cell in cells}) == 11
    assert cells[-1].accumulate == "chunked(32,product=exact,accumulator=e8m9,outer=e8m9)"
    cells = dict(Plan(("bf16",), ("q43", "bf16")).accuracy_cells())
    assert list(cells) == ["bf16", "q43"]
    spelt = {cell.recipe: cell.format for _, cell in Plan(("bf16",)).accuracy_cells()}
    assert spelt["ptq"] == "bf16" and spelt["all"] == "e8m7"


def test_the_narrowest_sums_that_hold_train_the_network():
    """From outcomes in which sums of 3 significant bits lose half."""
    plan = Plan(("q43",), seeds=(0, 1), parts=("accumulator",), settings=Settings(epochs=4))
    outcomes = {
        cell.key: {
            "state": "done",
            "accuracy": (45.0 if "=e8m2" in cell.accumulate else 90.0) + cell.seed,
            "loss": 0.1,
            "seconds": 1.0,
            "reason": None,
        }
        for cell in plan.cells()
    }
    part = parts.accumulator(plan, outcomes, {"digits": 12.0})
    narrow = [("q43", "machine", None), ("q43", "e8m3", None), ("q43", "e8m3", 32)]
    assert parts.find_trained(plan, part.rows) == narrow
    assert [(r["format"], r["accumulator"], r["chunk"]) for r in part.rows[11:]] == narrow
    assert {(r["recipe"], r["epochs"], r["done"]) for r in part.rows[11:]} == {("mixed", 1, 0)}
    cells = plan.sums_cells(*narrow[2], "mixed")
    assert [cell.settings.epochs for cell in cells] == [1, 1]
    assert cells[0].accumulate == "chunked(32,product=exact,accumulator=e8m3,outer=e8m3)"
    assert part.table[12][:3] == ["q43", "in training, 1 epoch", "e8m3"]
    sentences = verdicts.verdict("q43", {"accumulator": part.rows})
    assert "e8m3 or wider in one running sum" in sentences[0].text
    assert "its runs are not done" in sentences[1].text


def test_what_is_no_format_is_a_sentence(tmp_path):
    (tmp_path / "bad.txt").write_text("no numbers")
    values = "\n".join(str(x) for x in (0, 0.5, 1, 2, -0.5, -1, -2, -4))
    (tmp_path / "acme3.txt").write_text(values)
    names = [f"acme3={tmp_path}/acme3.txt", f"acme4={tmp_path}/bad.txt", "mxfp4"]
    out = tmp_path / "out"
    page = tmp_path / "page.md"
    page.write_text("# Kept\n")
    options = ["--only", "cost", "--out", out, "--markdown", page]
    result = run(*names, "--against", "int8", *options)
    assert run(*names, "--against", "int8", *options).exit_code == 0
    text = page.read_text()
    assert text.startswith("# Kept\n\n<!-- torch-dtypes datasheet: acme3, mxfp4 -->")
    assert text.count("### Cost") == 1 and "a product of two\nsignificands." in text
    data = json.loads((out / "datasheet.json").read_text())
    assert data["verdict"] == [] and list(data["failures"]) == ["acme4"]
    cost = {r["format"]: r for r in data["cost"]}
    assert (cost["mxfp4"]["bits_stored"], cost["mxfp4"]["scale_bits"]) == (4.25, 0.25)
    assert (cost["acme3"]["bits_stored"], cost["int8"]["product_bits"]) == (3, 16)
    page, text = ((out / f"datasheet.{end}").read_text() for end in ("html", "md"))
    assert "acme4" in page and 'id="cost"' in page and str(tmp_path / "acme3") not in page
    assert "- acme4: expected" in text and "acme4: expected" in result.output


def test_the_card_has_each_value_of_few_bits():
    """Integers have no range, which is a sentence too."""
    sheet = torch_dtypes.workbench.datasheet("mxfp4", "e5m3", against="int8", only="card")
    part = sheet.parts["card"]
    assert [c["name"] for c in part.rows] == ["mxfp4", "e5m3"] and list(part.failures) == ["int8"]
    ((heading, _, rows),) = part.more
    assert heading == "Values of elements of mxfp4" and len(rows) == 2
    assert rows[0][1:] == ["0", "0.5", "1", "1.5", "2", "3", "4", "6"]
    text = sheet.markdown()
    assert "| largest |" in text and "- int8: expected" in text


def test_a_second_run_computes_nothing(own, tmp_path, monkeypatch):
    """The verdict's links lead to rows of the page, and the files are there."""
    options = ["e5m7_up", "--jobs", "1", "--model", "odd_networks:Odd", "--data"]
    options += ["odd_networks:data", "--epochs", "1", "--seeds", "2", "--out", tmp_path / "o"]
    for part in ("accuracy", "ranges", "layers", "digits", "files"):
        options += ["--only", part]
    monkeypatch.setattr(Report, "figures", lambda *_: {})  # the page alone has them
    run(*options)
    page = (tmp_path / "o/datasheet.html").read_text()
    links = re.findall(r'href="#([^"]+)"', page)
    assert links and all(f'id="{link}"' in page for link in links)
    data = json.loads((tmp_path / "o/datasheet.json").read_text())
    assert data["failures"] == {}
    tops, details = (
        [s["text"] for s in data["verdict"] if s["is_detail"] is kind] for kind in (False, True)
    )
    shown = html.unescape(page)
    parts = shown.index('id="accuracy"')  # where the first part begins
    assert tops and all(shown.index(text) < parts for text in tops)
    assert details and all(shown.index(text) > parts for text in details)
    assert {len(r["accuracies"]) for r in data["accuracy"]} == {2}
    assert [r["recipe"] for r in data["accuracy"][1:]] == list(RECIPES)
    assert [r["layer"] for r in data["layers"]] == ["0", "2"]
    assert [r["module"] for r in data["digits"]] == ["0", "1", "2", "output"]
    assert {r["tensor"] for r in data["ranges"]} == set(TENSORS.values())
    assert all((tmp_path / "o" / r["file"]).exists() for r in data["files"])
    assert len(data["files"]) == 7
    settings = str(tmp_path / "o/files/sweep.yaml")
    assert "10 cells" in command("sweep", "--config", settings, "--list").output

    def refuse(*_, **__):
        raise AssertionError("a cell or a study runs again")

    monkeypatch.setattr(Report, "html", lambda _: "")
    monkeypatch.setattr(sweeping, "run_all", refuse)
    for name in ("Training", "sensitivity", "variability"):
        monkeypatch.setattr(studies, name, refuse)
    run(*options)
    assert json.loads((tmp_path / "o/datasheet.json").read_text()) == data


@pytest.mark.whole
def test_what_fails_is_a_row(own, tmp_path):
    """A network that crashes in q52, and raises in e5m5."""
    options = ["--model", "odd_networks:Odd", "--data", "odd_networks:data", "--epochs", "1"]
    options += ["--jobs", "1", "--seeds", "1", "--only", "accuracy", "--only", "cost"]
    run("q52", "e5m5", *options, "--out", tmp_path)
    data = json.loads((tmp_path / "datasheet.json").read_text())
    rows = {(r["format"], r["recipe"], r["rounding"]): r for r in data["accuracy"]}
    assert "SIGSEGV" in rows["q52", "all", "nearest_even"]["reason"]
    assert "dislikes e5m5" in rows["e5m5", "all", "nearest_even"]["reason"]
    assert rows["q52", "ptq", "nearest_even"]["accuracy"] is not None
    assert len(data["cost"]) == 2


RAISES = """
class Raises:
    bits = 4

    def quantize(self, x, *, axis, generator, rounding):
        raise RuntimeError("it cannot round")
"""


@pytest.mark.whole
def test_a_quantiser_that_raises_and_a_users_own_values(own, tmp_path):
    """The process of a cell, and the studies, know the values by their file."""
    (tmp_path / "raising.py").write_text(RAISES)
    values = "\n".join(str(x / 8) for x in range(-64, 64))
    (tmp_path / "acme7.txt").write_text(values)
    options = ["--model", "odd_networks:Odd", "--data", "odd_networks:data", "--epochs", "1"]
    options += ["--seeds", "2", "--jobs", "1", "--out", tmp_path / "o"]
    for part in ("accuracy", "ranges", "layers", "card"):
        options += ["--only", part]
    run("raising:Raises", f"acme7={tmp_path / 'acme7.txt'}", *options)
    data = json.loads((tmp_path / "o/datasheet.json").read_text())
    rows = {(r["format"], r["recipe"], r["rounding"]): r for r in data["accuracy"]}
    assert "it cannot round" in rows["raising:Raises", "ptq", "nearest_even"]["reason"]
    assert rows["acme7", "ptq", "nearest_even"]["accuracy"] > 40
    assert "it cannot round" in data["failures"]["layers"]["raising:Raises"]
    assert {r["format"] for part in ("ranges", "layers") for r in data[part]} == {"acme7"}
    assert [c["name"] for c in data["card"]] == ["acme7"]
    first = [s["text"] for s in data["verdict"] if s["format"] == "raising:Raises"]
    assert any("nothing can be said" in text.lower() for text in first)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nonsense"], "nonsense: expected the name"),
        (["q43", "--only", "nothing"], "is not one of"),
        (["q43", "--data", "a:b", "--dataset", "digits"], "got both"),
    ],
)
def test_errors(options, said):
    result = run(*options)
    assert result.exit_code == 2 and said in " ".join(result.output.split())


def test_data_that_cannot_be_loaded_leave_the_rest_of_the_page(tmp_path):
    parts = ["--only", "accuracy", "--only", "cost"]
    run("q43", "--data", "no.module:here", *parts, "--out", tmp_path)
    data = json.loads((tmp_path / "datasheet.json").read_text())
    assert data["accuracy"] == [] and "no module no" in data["failures"]["accuracy"]["accuracy"]
    assert data["cost"][0]["format"] == "q43"


def test_float32_that_does_not_train_gives_one_reason():
    rows = [row("float32", "float32", None, reason="inf"), row("q43", "all", None, reason="inf")]
    assert parts._find_failures(rows) == {"lenet5, float32, nearest_even": "inf"}
    assert list(parts._find_failures(rows[1:])) == ["lenet5, q43, all, nearest_even"]
    cells = Plan(("float32",), seeds=(0,)).accuracy_cells()
    assert len(cells) == 9 and not any(cell.is_base for _, cell in cells)


def test_a_band_is_the_deviation_of_float32():
    base = {"recipe": "float32", "format": "float32", "accuracy": 80.0, "deviation": 2.0}
    other = {"recipe": "all", "format": "q43", "rounding": "nearest_even", "accuracies": [70.0]}
    (band,) = accuracy_figure([base, other]).axes[0].patches
    assert (band.get_x(), band.get_width()) == (78.0, 4.0)


def test_a_further_task_leaves_the_cells_of_the_first():
    tasks = (("lenet5", "digits"), ("resnet18", "cifar10"))
    plan, further = Plan(("q43",)), Plan(("q43",), tasks=tasks, data_dir="/data")
    keys = [cell.key for cell in further.cells()]
    assert set(keys) > {cell.key for cell in plan.cells()}
    others = [cell for cell in further.cells() if cell.dataset == "cifar10"]
    assert {cell.model for cell in others} == {"resnet18"} and len(others) == 3 + 5 * 2 * 3
    assert {cell.settings.data_dir for cell in others} == {"/data"}


def test_thorough_without_its_data(tmp_path):
    options = ["--thorough", "--data-dir", tmp_path, "--only", "cost"]
    assert "resnet18 on cifar10: expected" in run("q43", *options).output


def test_from_python(tmp_path):
    sheet = torch_dtypes.workbench.datasheet("q43", against="mxfp4", only="cost", out=tmp_path)
    assert list(sheet.parts) == ["cost"] and sheet.plan.against == ("mxfp4",)
    assert (tmp_path / "datasheet.html").exists() and "q43" in sheet.report().fragment()
    for wrong, said in (
        ({"only": "crd"}, "near to it: card"),
        ({"epoch": 1}, "epoch"),
        ({"model": 3}, "by name"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            torch_dtypes.workbench.datasheet("q43", **wrong)
    with pytest.raises(ValueError, match="at least one format"):
        torch_dtypes.workbench.datasheet()
    assert set(sheet.parts) <= set(PARTS)
