"""The GPT, its texts and its optimizers, and the commands that train it."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from command_line import command

from torch_dtypes import quantize_, target
from torch_dtypes.workbench.sensitivity.layers import build_rules, find_layers
from torch_dtypes.workbench.sweeps import grid
from torch_dtypes.workbench.sweeps.arguments import choose_data
from torch_dtypes.workbench.training import report
from torch_dtypes.workbench.training.gpt import GPT, build_gpt, sizes_of
from torch_dtypes.workbench.training.loop import Training, lr_factor
from torch_dtypes.workbench.training.measures import LOSS, PERPLEXITY
from torch_dtypes.workbench.training.muon import MuonWithAdamW, hidden_matrices
from torch_dtypes.workbench.training.records import Config
from torch_dtypes.workbench.training.summaries import summarize
from torch_dtypes.workbench.training.text import digest_of, load_text, read_topics

TINY = "gpt(layers=1, heads=2, width=16, context=16)"


def expect_logits(model, tokens):
    """Compute the logits ``(T, 256)`` of one window in NumPy's float64, position by position."""
    p = {name: value.detach().numpy() for name, value in model.state_dict().items()}

    def norm(x, name):
        scaled = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(x, name):
        return p[f"{name}.weight"] @ x + p[f"{name}.bias"]

    xs = [p["bytes.weight"][token] + p["positions.weight"][t] for t, token in enumerate(tokens)]
    for i, block in enumerate(model.blocks):
        name, width = f"blocks.{i}", len(xs[0])
        size = width // block.attention.heads
        qkv = [linear(norm(x, f"{name}.before_attention"), f"{name}.attention.qkv") for x in xs]
        for t, x in enumerate(xs):
            parts = []
            for head in range(block.attention.heads):
                at = [
                    slice(k * width + head * size, k * width + (head + 1) * size) for k in (0, 1, 2)
                ]
                scores = [qkv[t][at[0]] @ qkv[s][at[1]] / math.sqrt(size) for s in range(t + 1)]
                weights = np.exp(scores - np.max(scores))
                weights /= weights.sum()
                parts.append(sum(w * qkv[s][at[2]] for s, w in enumerate(weights)))
            x = x + linear(np.concatenate(parts), f"{name}.attention.projection")
            up = linear(norm(x, f"{name}.before_mlp"), f"{name}.up")
            gelu = np.array([u * (1 + math.erf(u / math.sqrt(2))) / 2 for u in up])
            xs[t] = x + linear(gelu, f"{name}.down")
    return np.array([p["bytes.weight"] @ norm(x, "norm") for x in xs])


def test_logits_are_those_of_the_formulas():
    torch.manual_seed(0)
    model = GPT(layers=2, heads=2, width=8, context=7).double()
    with torch.no_grad():
        for parameter in model.parameters():  # biases start from 0, and norms from 1
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    tokens = torch.randint(256, (3, 6))
    found = model(tokens)
    assert found.shape == (3, 256, 6)
    for own, window in zip(found, tokens.tolist(), strict=True):
        np.testing.assert_allclose(own.T.detach(), expect_logits(model, window), rtol=0, atol=1e-12)


def test_every_layer_with_weights_can_be_rounded():
    torch.manual_seed(0)
    model, tokens = GPT(layers=1, heads=2, width=8, context=6), torch.randint(256, (2, 6))
    exact = model(tokens)
    for layer in find_layers(model):
        rounded = quantize_(copy.deepcopy(model), build_rules(layer, target("q43"), "weights"))
        assert not torch.equal(rounded(tokens), exact), layer.name


def test_sizes_and_first_weights():
    model = build_gpt("gpt")
    assert sum(p.numel() for p in model.parameters()) == 842496
    assert model.head.weight is model.bytes.weight
    std = {name: p.std().item() for name, p in model.named_parameters() if p.dim() == 2}
    assert std["blocks.0.attention.qkv.weight"] == pytest.approx(0.02, rel=0.05)
    assert std["blocks.3.down.weight"] == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
    assert sizes_of("gpt( layers=2 , width=64)") == {
        "layers": 2,
        "heads": 4,
        "width": 64,
        "context": 128,
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt(depth=2)", "got 'depth=2'"),
        ("gpt(layers=0)", "expected sizes of at least 1 as in gpt(layers=4, heads=4, width=128"),
        ("gpt(layers=2", "expected a network as gpt(layers=4"),
        ("gpt(width=6)", "expected a width that is a multiple of heads=4, but got width=6"),
    ],
)
def test_wrong_sizes(name, message):
    assert message in " ".join(command("train", "--model", name).output.split())


def test_windows_and_labels_of_a_text(tmp_path):
    (tmp_path / "words.txt").write_bytes(bytes(range(200)) + b"x" * 40)
    data = load_text(TINY, tmp_path / "words.txt")
    assert (data.name, data.classes, data.is_text) == ("words.txt", 256, True)
    assert (len(data.train), len(data.test)) == (13, 1)  # of 216 and 24 bytes
    inputs, labels = data.train.batch(torch.tensor([0, 12]))
    assert inputs.tolist() == [list(range(16)), [*range(192, 200), *b"x" * 8]]
    assert labels.tolist() == [list(range(1, 17)), [*range(193, 200), *b"x" * 9]]
    assert data.guess.accuracy == 100.0  # the last bytes are alike
    (tmp_path / "short.txt").write_bytes(b"y" * 160)
    with pytest.raises(ValueError, match="more than 160 bytes for windows of 16, but short"):
        load_text(TINY, tmp_path / "short.txt")


def test_data_of_a_sweep():
    assert choose_data(None, None, ["gpt", TINY]) == "topics"
    assert choose_data(None, None, ["gpt", "lenet5"]) == choose_data(None, None, "x") == "digits"
    assert choose_data(None, "a/t.txt", "gpt") == "t.txt"
    with pytest.raises(ValueError, match="expected dataset= or text="):
        choose_data("digits", "t.txt", "gpt")


def test_the_topics_have_each_paragraph_once():
    paragraphs = read_topics().decode().split("\n\n")
    assert len(paragraphs) == len(set(paragraphs)) and len(read_topics()) > 100_000


def test_files_of_text_name_cells_by_their_content(tmp_path):
    for folder, text in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.txt").write_bytes(text)
    cells = [
        grid.cells_of(
            grid.Axes(("q43",), (TINY,), ("t.txt",)),
            grid.settings_of(text=tmp_path / folder / "t.txt", datasets=("t.txt",)),
        )[0]
        for folder in "abc"
    ]
    assert cells[0].key == cells[1].key != cells[2].key and cells[0].is_text
    assert grid.settings_of(datasets=("topics",)).text_digest == digest_of(read_topics())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--model gpt --dataset digits", "expected windows of at most 128 bytes for gpt"),
        ("--dataset topics", "expected images of shape (C, 32, 32) for lenet5, but topics has"),
        ("--model gpt --text no.txt", "File 'no.txt' does not exist"),
        ("--model gpt --dataset topics --text t.txt", "expected --dataset or --text, but got both"),
        ("--model gpt --data-dir x", "got it with topics, which come with Python"),
        ("--model gpt --optimizer sgd --eps 1", "--eps is for --optimizer adam or adamw"),
        ("--model gpt --clip 0", "expected a finite number above 0, but got 0"),
        ("--model gpt --weight-decay -1", "expected a finite number of at least 0, but got -1"),
    ],
)
def test_options_that_do_not_fit(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_bytes(b"t" * 2000)
    result = command("train", *options.split())
    assert result.exit_code and message in " ".join(result.output.split())


# Optimizers


def small(**options):
    """Build a training of a tiny GPT on a part of the topics."""
    config = Config(TINY, epochs=1, batch_size=8, **options)
    data = load_text(TINY).first(24, 8)
    return Training(config, data, torch.float64, 0)


def test_muon_takes_hidden_matrices_and_adamw_the_rest():
    training = small(optimizer="muon", lr=0.01, weight_decay=0.2)
    model, expected = training.model, GPT(**sizes_of(TINY)).double()
    expected.load_state_dict(model.state_dict())
    names = {
        name for name, p in model.named_parameters() if any(p is m for m in hidden_matrices(model))
    }
    matrices = ("attention.qkv", "attention.projection", "up", "down")
    assert names == {f"blocks.0.{name}.weight" for name in matrices}
    groups = [[p for n, p in expected.named_parameters() if (n in names) == one] for one in (1, 0)]
    kinds = [
        torch.optim.Muon(groups[0], lr=0.01, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups[1], lr=0.01, weight_decay=0.2),
    ]
    inputs, labels = training.data.train.batch(torch.arange(8))
    for step in range(3):
        for network in (model, expected):
            network.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        training.optimizer.step()
        for optimizer in kinds:
            optimizer.step()
        if step == 0:  # as after an interruption
            again = MuonWithAdamW(model, lr=0.5)
            again.load_state_dict(training.optimizer.state_dict())
            training.optimizer = again
    for own, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(own, other)
    with pytest.raises(ValueError, match="use --optimizer adamw"):
        MuonWithAdamW(torch.nn.Linear(2, 2))


def test_muon_with_float32_masters_of_float32_weights_is_muon():
    data = load_text(TINY).first(24, 8)
    config = Config(TINY, epochs=1, batch_size=8, optimizer="muon", lr=0.01)
    networks = []
    for recipe in ("all", "master"):
        training = Training(config, data, torch.float32, 0, recipe)
        training.go()
        networks.append(training.model)
    for own, other in zip(*(network.parameters() for network in networks), strict=True):
        assert torch.equal(own, other)


def test_micro_batches_add_up_to_the_gradients_of_a_step():
    runs = [small(micro_batches=n) for n in (1, 3)]
    losses = [[], []]
    for run, found in zip(runs, losses, strict=True):
        run.go(found.append)
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    for own, other in zip(*(run.model.parameters() for run in runs), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-6)  # adam divides by small roots


def test_clipped_steps_have_the_norm():
    training = small(optimizer="sgd", lr=0.5, clip=1e-3)
    steps = []
    before = [p.detach().clone() for p in training.model.parameters()]

    def measure(loss):
        moves = [p - b for p, b in zip(training.model.parameters(), before, strict=True)]
        steps.append(torch.nn.utils.get_total_norm(moves).item())
        before[:] = [p.detach().clone() for p in training.model.parameters()]

    training.go(measure)
    assert steps == pytest.approx([0.5e-3] * 3, rel=1e-3)


def test_the_rate_rises_in_a_line_before_its_schedule():
    config = Config(schedule="cosine", warmup=4)
    found = [lr_factor(config, step, 8) for step in range(9)]
    cosine = [(1 + math.cos(math.pi * t / 4)) / 2 for t in range(5)]
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0, *cosine])


# Commands


def run(*options):
    result = command(*options, "--threads", 1)
    assert result.exit_code == 0, result.output
    return result.output


def test_train_reports_perplexity_beside_accuracy(tmp_path):
    options = ("--model", TINY, "--train-samples", 64, "--test-samples", 16, "--epochs", 2)
    output = run("train", *options, "--dtype", "posit16es2", "--lr", 0.01, "--out", tmp_path / "a")
    results = json.loads((tmp_path / "a" / "results.json").read_text())
    assert results["config"]["text"] == {"sha256": digest_of(read_topics()), "window": 16}
    losses = [[epoch["test_loss"] for epoch in r["epochs"]] for r in results["runs"]]
    for summary, own in zip(results["summary"], losses, strict=True):
        assert [x["mean"] for x in summary["perplexity"]] == [math.exp(loss) for loss in own]
        assert [x["mean"] for x in summary["loss"]] == own and summary["tokens_per_second"] > 0
    gap = results["summary"][1]["perplexity_gap_to_float32"]["mean"]
    assert gap == math.exp(losses[1][1]) - math.exp(losses[0][1])
    header = next(line for line in output.splitlines() if line.startswith("dtype")).split()
    assert header[-6:] == ["perplexity", "gap", "accuracy", "%", "s/epoch", "tokens/s"]
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"perplexity.png", "accuracy.pdf"} <= names
    page = (tmp_path / "a" / "report.html").read_text()
    assert digest_of(read_topics()) in page and f"{math.exp(losses[1][1]):.3f}" in page


def test_perplexity_of_a_training_s_file(tmp_path):
    torch.manual_seed(0)
    model, text = build_gpt(TINY), bytes(range(40, 88))
    torch.save({"model": model.state_dict(), "epochs": []}, tmp_path / "trained.pt")
    (tmp_path / "text").write_bytes(text)
    line = ("--text", tmp_path / "text", "--format", "q43", "--out", tmp_path / "out")
    run("perplexity", TINY, "--weights", tmp_path / "trained.pt", *line)
    rows = json.loads((tmp_path / "out" / "perplexity.json").read_text())["rows"]
    losses = []
    for begin in (0, 16, 32):
        window = list(text[begin : begin + 16])
        logits = expect_logits(model, window)[:-1]
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses += [-math.log(row[token]) for row, token in zip(shares, window[1:], strict=True)]
    assert rows[0]["loss"] == pytest.approx(math.fsum(losses) / 45, rel=1e-6)
    assert rows[1]["format"] == "q43" and rows[1]["loss"] != rows[0]["loss"]


@pytest.mark.parametrize(("measure", "unit"), [(PERPLEXITY, 3), (LOSS, 4)])
def test_figures_of_other_measures_have_their_numbers(measure, unit):
    from test_training_report import DESCRIBED, texts
    from test_training_report import run as made

    runs = [made("float32", s, [20.0, 30.0], loss=1.5 + s / 50) for s in range(3)]
    runs += [made("q43", s, [20.0, 29.0], loss=1.6 + s / 40) for s in range(3)]
    described = DESCRIBED | {"text": {"sha256": "0" * 64, "window": 16}}
    figure = report.figure_of(described, summarize(runs), measure=measure)
    figure.canvas.draw()
    words = [text.get_text() for text in texts(figure)]
    values = [measure.of(run.epochs[-1]) for run in runs[3:]]
    assert any(f"{sum(values) / 3:.{unit}f}" in word for word in words)
    assert f"test {measure.name}" in words and "1,437 training" in " ".join(words)


@pytest.mark.whole
def test_every_command_takes_a_gpt(tmp_path):
    (tmp_path / "t.txt").write_bytes(read_topics()[:20000])
    small = ("--model", TINY, "--train-samples", 64, "--test-samples", 16, "--epochs", 1)
    small += ("--text", tmp_path / "t.txt", "--optimizer", "adamw", "--lr", 0.01)
    output = run("sweep", *small, "--format", "q43", "--recipe", "ptq", "--out", tmp_path / "s")
    (row,) = json.loads((tmp_path / "s" / "results.json").read_text())["rows"]
    assert row["perplexity"] == math.exp(row["loss"]) and row["dataset"] == "t.txt"
    (trained,) = (tmp_path / "s" / "trained").iterdir()
    line = ("--text", tmp_path / "t.txt", "--weights", trained, "--format", "q43")
    assert "float32" in run("perplexity", TINY, *line)
    assert (
        f"{row['perplexity']:.3f}" in output
        and f"{100 * math.expm1(row['loss_gap']):+.2f} %" in output
    )
    assert "blocks.0.attention.qkv" in run("sensitivity", *small, "--format", "q43")
    assert "blocks.0" in run("variability", *small, "--repeats", 2, "--no-where")
    sheet = run(
        "datasheet", "q43", *small, "--seeds", 2, "--only", "accuracy", "--out", tmp_path / "d"
    )
    assert "q43" in sheet


@pytest.mark.whole
def test_a_gpt_learns_in_posits():
    losses = {}
    for dtype in (torch.float32, torch.posit16es2):
        config = Config("gpt(layers=1, heads=2, width=32, context=32)", epochs=1, lr=3e-3)
        data = load_text(config.model).first(3000, 64)
        losses[dtype] = Training(config, data, dtype, 0).go().epochs[-1].test_loss
    assert losses[torch.float32] < 3.0
    assert losses[torch.posit16es2] == pytest.approx(losses[torch.float32], abs=0.1)
