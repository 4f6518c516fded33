"""The report of a comparison: its figure, failures, the page, the user's names."""

import math

import pytest
from matplotlib.text import Text

pytest.importorskip("matplotlib", reason="the figures need matplotlib")
pytest.importorskip("click", reason="the command line needs click")

from torch_dtypes.workbench.report.colours import GREY
from torch_dtypes.workbench.training import findings, report
from torch_dtypes.workbench.training.figure import curves_of, draw
from torch_dtypes.workbench.training.records import Epoch, Run
from torch_dtypes.workbench.training.summaries import Stat, summarize

DESCRIBED = {
    "model": "lenet5",       "dataset": "digits",     "optimizer": "adam",
    "lr": 0.001,             "momentum": 0.0,         "schedule": "constant",
    "accumulate": "machine", "batch_size": 32,        "epochs": 2,
    "train_samples": 1437,   "test_samples": 360,     "seeds": [0, 1, 2],
    "classes": 10,           "guess": 12.25,          "parameters": 61706,
}  # fmt: skip
WHY = "conv2.weight was the first that is not finite: the step left the range."


def run(dtype, seed, accuracies, diverged=False, recipe="all", said=None, loss=0.5):
    epochs = [Epoch(i, loss, loss, a, 2.0, False) for i, a in enumerate(accuracies, 1)]
    if diverged:
        epochs.append(Epoch(len(accuracies) + 1, math.nan, math.nan, math.nan, 1.0, True))
    return Run(dtype, seed, epochs, WHY if diverged else None, recipe, said=said)


def several():
    """Build three seeds of all possible results of a dtype."""
    runs = []
    for seed in range(3):
        runs += [
            run("float32", seed, [80.0 + seed, 92.0 + seed]),
            run("e8m7", seed, [79.0 + seed, 91.0 + 1.5 * seed], said="bf16"),
        ]
        runs += [run("q52", seed, [], diverged=True), run("posit8es1", seed, [9.0, 10.5], loss=2.3)]
        runs += [
            run("q43", seed, [70.0], diverged=True) if seed == 2 else run("q43", seed, [70.0, 85.0])
        ]
        runs += [
            run("q43_stochastic", seed, [75.0, 88.0]),
            run("q43", seed, [76.0, 89.0], recipe="master"),
        ]
    return summarize(runs)


CASES = {
    "several": (several(), 3),
    "one dtype": (summarize([run("posit16es2", 0, [70.0, 90.0])]), 1),
    "all diverged": (summarize([run("q52", 0, [], diverged=True)]), 1),
    "worse than a guess": (
        summarize([run(dtype, 0, [3.0, 3.0], loss=0.1) for dtype in ("float32", "q43")]),
        1,
    ),
    "one epoch": (summarize([run("float32", 0, [50.0]), run("q43", 0, [49.0])]), 1),
    "all equal": (
        summarize(
            [run(dtype, seed, [100.0] * 3) for dtype in ("float32", "q43") for seed in (0, 1)]
        ),
        2,
    ),
    "many": (
        summarize(
            [run(f"e{e}m{m}", 0, [80.0, 90.0 + m]) for e in (3, 4, 5, 6) for m in (1, 2, 3, 4, 5)]
        ),
        1,
    ),
    "long names": (
        summarize(
            [run("e4m3finite_bias3_flush_saturate_toward_zero", 0, [80.0] * 90, recipe="mixed")]
        ),
        1,
    ),
}


def texts(figure):
    """Return the drawn labels. An axis also keeps labels beyond its ends, which it does not
    draw."""
    from matplotlib.text import Text

    axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    shown = {axis: sorted(axis.get_view_interval()) for axis in axes}
    beyond = [
        tick.label1
        for axis in axes
        for tick in axis.get_major_ticks()
        if not shown[axis][0] <= tick.get_loc() <= shown[axis][1]
    ]
    return [
        text
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and text not in beyond
    ]


def overlap(one, other):
    return (
        min(one.x1, other.x1) - max(one.x0, other.x0) > 2
        and min(one.y1, other.y1) - max(one.y0, other.y0) > 4
    )


@pytest.mark.parametrize("width", ["page", "column"])
@pytest.mark.parametrize("case", CASES)
def test_a_figure_shows_everything_and_nothing_leaves_it_or_overlaps(case, width):
    summaries, seeds = CASES[case]
    figure = report.figure_of({**DESCRIBED, "seeds": list(range(seeds))}, summaries, width)
    figure.canvas.draw()
    outer = figure.bbox
    words = " ".join(" ".join(text.get_text().split()) for text in texts(figure))
    boxes = []
    for text in texts(figure):
        box = text.get_window_extent()
        assert (
            box.x0 >= outer.x0 - 1
            and box.x1 <= outer.x1 + 1
            and box.y0 >= outer.y0 - 1
            and box.y1 <= outer.y1 + 1
        ), text
        boxes.append((box, text))
    for i, (box, text) in enumerate(boxes):
        assert not [
            (text.get_text(), other.get_text()) for at, other in boxes[:i] if overlap(box, at)
        ]
    for part in (
        "lenet5 on digits",
        "adam at 0.001",
        "1,437 training and 360 test",
        "a guess has 12.2 %",
        f"{seeds} seed",
    ):
        assert part in words
    for summary in summaries:
        assert summary.name.replace("_", "") in words.replace(" ", "").replace("_", "")


def test_what_failed_stands_in_the_strip_and_stretches_no_axis():
    summaries = several()
    assert {label: reason[:24] for label, reason in findings.failures(summaries).items()} == {
        "q52": "diverged at epoch 1 with",
        "posit8es1": "did not learn: its loss ",
    }
    assert findings.failures(summaries)["q52"] == f"diverged at epoch 1 with all 3 seeds. {WHY}"
    assert findings.losses_of_seeds(summaries) == {
        "q43": f"1 of 3 seeds diverged; its figures are the mean of the others. {WHY}"
    }
    figure = report.figure_of(DESCRIBED, summaries)
    accuracy, gaps = figure.axes[:2]
    assert accuracy.get_ylim()[0] > 60 and gaps.get_xlim()[0] > -40
    texts = figure.findobj(Text)
    crossed = {t.get_position()[1] for t in texts if t.get_text() == "×"}
    beside = {t.get_text().split(":")[0] for t in texts if t.get_position()[1] in crossed}
    assert {"q52", "posit8es1", "q43"} <= beside
    labels = [label.get_text() for label in gaps.get_yticklabels()]
    assert labels == ["float32", "bf16", "q43", "q43_stochastic", "q43 master"]


def test_an_interrupted_comparison_says_how_many_seeds_there_are_means_of():
    whole = [
        run("float32", 0, [80.0]),
        run("q43", 0, [70.0]),
        run("float32", 1, [82.0]),
        run("q43", 1, [71.0]),
    ]
    assert findings.over_seeds(summarize(whole)) == ", mean of 2 seeds"
    assert not any("interrupted" in note for note in findings.notes(summarize(whole)))
    assert findings.over_seeds(summarize(whole[:2])) == "", "one seed is no mean"
    some = summarize(whole[:3])
    assert findings.over_seeds(some) == ", mean of up to 2 seeds"
    assert "q43 was interrupted: 1 of 2 seeds." in findings.notes(some)


@pytest.mark.parametrize(
    "dtype", ["q43", "posit8es1", "q43_stochastic", "q43_up", "q52_stochastic_a4"]
)
def test_updates_are_said_to_be_lost_where_weights_round_to_nearest_alone(dtype):
    (said,) = findings.failures(
        summarize([run("float32", 0, [90.0]), run(dtype, 0, [10.0], loss=2.31)])
    ).values()
    assert ("Updates below half a unit" in said) == (dtype in ("q43", "posit8es1"))
    assert "try --recipe master, which has float32 masters" in said


def test_a_dtype_that_learns_and_guesses_on_the_test_images_is_told_of_running_statistics():
    def told(*runs):
        return [note for note in findings.notes(summarize(runs)) if "running statistics" in note]

    learns, guesses = (
        run("float32", 0, [90.0], loss=0.1),
        run("q43", 0, [11.0], recipe="master", loss=0.4),
    )
    (note,) = told(learns, guesses)
    assert note.startswith(
        "q43 master guesses on the test data (11.0 %), though its training loss fell to 0.40."
    )
    assert told(guesses) == [note], "without float32, too"
    assert not told(learns, run("q43", 0, [60.0], loss=0.4)) and not told(
        learns, run("q43", 0, [11.0], loss=2.2)
    )
    assert not told(run("float32", 0, [10.0], loss=0.1), guesses), (
        "these test images are not what was learnt"
    )
    assert not told(learns, run("q43", 0, [11.0], recipe="mixed", loss=0.4)) and not told(
        learns, run("q43", 0, [], diverged=True)
    )


def test_the_gap_has_the_interval_of_students_t():
    bf16 = several()[1]
    assert [bf16.label, bf16.gap.mean, bf16.gap.std] == ["bf16", -0.5, 0.5]
    # t for 2 degrees of freedom, from a table.
    assert bf16.gap.interval == pytest.approx(4.302653 * 0.5 / math.sqrt(3), rel=1e-6)
    drawn = [
        line
        for line in report.figure_of(DESCRIBED, several()).axes[1].lines
        if len(line.get_xdata()) == 2 and list(line.get_ydata()) == [1, 1]
    ]
    assert list(drawn[0].get_xdata()) == pytest.approx(
        [-0.5 - bf16.gap.interval, -0.5 + bf16.gap.interval]
    )
    assert Stat.of([1.0]).interval is None


def test_the_setting_is_a_sentence():
    said = (
        "adam at 0.001, batch 32, 2 epochs; 1,437 training and 360 test samples; 3 seeds; a "
        "guess has 12.2 %"
    )
    assert report.setting(DESCRIBED) == said
    other = {
        **DESCRIBED,
        "momentum": 0.9,
        "schedule": "cosine",
        "accumulate": "chunked(32)",
        "epochs": 1,
        "seeds": [4],
        "classes": 1000,
        "guess": 0.1,
    }
    said = (
        "adam at 0.001, momentum 0.9, cosine schedule, batch 32, 1 epoch, sums by chunked(32); "
        "1,437 training and 360 test samples; 1 seed; "
    )
    assert report.setting(other) == said + "a guess has 0.1 %"


def test_a_guess_is_drawn_where_the_axis_reaches_it():
    low = summarize([run("float32", 0, [12.0, 60.0])])
    assert any(text.get_text() == "guess" for text in texts(draw(low, "x", guess=10)))
    assert not any(
        text.get_text() == "guess"
        for text in texts(draw(several(), "x", guess=10, left_out=("posit8es1",)))
    )


def test_curves_differ_and_a_colour_belongs_to_a_dtype():
    summaries = several()
    there, back = curves_of(summaries), curves_of(list(reversed(summaries)))
    assert {c.summary.label: c.colour for c in there} == {c.summary.label: c.colour for c in back}
    assert next(c.colour for c in there if c.is_baseline) == GREY
    many = curves_of(CASES["many"][0])
    assert len({(c.colour, c.marker, c.dash) for c in many}) == len(many) == 20
    assert len({c.colour for c in there if c.summary.dtype.startswith("q43")}) == 1


def test_the_page(tmp_path):
    paths = report.report_of(DESCRIBED, several(), "torch-dtypes train --dtype bf16").save(tmp_path)
    assert sorted(p.name for p in paths) == [
        "accuracy.pdf",
        "accuracy.png",
        "accuracy.svg",
        "loss.pdf",
        "loss.png",
        "loss.svg",
        "report.html",
    ]
    text = report.report_of(DESCRIBED, several(), "torch-dtypes train --dtype bf16").html()
    for words in (
        "bf16",
        WHY,
        "-0.50",
        "-1.74 to +0.74",
        "2 of 3",
        "95 % confidence",
        "torch-dtypes train --dtype bf16",
        "0, 1, 2",
    ):
        assert words in text
    assert "e8m7" not in text
    single = report.report_of({**DESCRIBED, "seeds": [0]}, CASES["one epoch"][0]).html()
    assert (
        "--repeats 5" in single
        and "95 %" not in single
        and "after each epoch, in percent" not in single
    )


@pytest.mark.whole
def test_the_users_spelling_is_kept(tmp_path):
    from click.testing import CliRunner

    from torch_dtypes import cli

    options = (
        "train --epochs 1 --train-samples 64 --test-samples 40 --dtype bf16 --dtype torch.half "
        "--threads 1 --no-baseline"
    ).split()
    result = CliRunner().invoke(
        cli.group(), [*options, "--out", str(tmp_path), "--markdown", str(tmp_path / "t.md")]
    )
    assert result.exit_code == 0, result.output
    assert (
        "bf16 seed 0 epoch 1/1" in result.output
        and "half seed 0 epoch 1/1" in result.output
        and "e8m7" not in result.output
    )
    page = (tmp_path / "report.html").read_text()
    assert (
        "bf16" in page
        and "--dtype bf16 --dtype torch.half" in page
        and "e8m7" not in page
        and str(tmp_path) not in page
    )
    assert "| bf16 |" in (tmp_path / "t.md").read_text()
    assert '"dtype": "e8m7"' in (tmp_path / "results.json").read_text()  # its meaning
