"""``torch-dtypes perplexity``: windows, losses, formats, files and errors, with a tiny model of the
user's own."""

import json
import math

import numpy as np
import oracle_blocks
import pytest
import torch
from command_line import command
from oracle import Table, binary
from torch import nn

import torch_dtypes
from torch_dtypes.workbench.perplexity import models, study, windows
from torch_dtypes.workbench.perplexity.recipes import build_rules, find_layers
from torch_dtypes.workbench.perplexity.results import _standard_error
from torch_dtypes.workbench.perplexity.study import BASE, Cell, Settings, Study

SIZE, VOCABULARY = 32, 256


class Tiny(nn.Module):
    """A causal model: each position sees its token and the one before."""

    def __init__(self, looks_ahead=False, vocabulary=VOCABULARY):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(vocabulary, SIZE)
        self.inner = nn.Linear(SIZE, SIZE)
        self.head = nn.Linear(SIZE, vocabulary, bias=False)
        self.shift = (-1, 1) if looks_ahead else (1, -1)

    def forward(self, ids):
        x = self.embedding(ids)
        near = nn.functional.pad(x, (0, 0, *self.shift))
        return self.head(x + torch.tanh(self.inner(x + near)))


MODULE = """
import test_perplexity
make = test_perplexity.Tiny
def ahead(): return test_perplexity.Tiny(looks_ahead=True)
def words(): return test_perplexity.Tiny(), lambda text: [len(word) for word in text.split()]
def fails(): raise KeyError("weights")
def nothing(): return 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_language_models.py").write_text(MODULE)
    (tmp_path / "text").write_bytes(bytes(range(40, 126)) * 2)
    return "own_language_models"


@pytest.mark.parametrize(
    "tokens, context, stride", [(10, 4, 4), (10, 4, 1), (11, 4, 3), (3, 8, 8), (9, 4, 4), (2, 2, 1)]
)
def test_each_token_is_scored_once_with_most_context(tokens, context, stride):
    """A token is scored by the first window that has it and a token before it."""
    begins = range(0, tokens, stride)
    expected = {}
    for token in range(1, tokens):
        first = next(b for b in begins if b <= token < b + context)
        if token > first:  # the first token of a window has nothing before it
            expected[token] = first
    found = {
        t: w.begin
        for w in windows.find_windows(tokens, context, stride)
        for t in range(w.first, w.end)
    }
    assert found == expected
    assert sum(w.scored for w in windows.find_windows(tokens, context, stride)) == len(expected)


def losses_by_hand(model, ids, context):
    """Compute the loss of each scored token in float64, by Python's own logarithm."""
    losses = []
    for begin in range(0, len(ids), context):
        part = ids[begin : begin + context]
        logits = model(part)
        for position, token in enumerate(part[1:]):
            row = [float(x) for x in logits[position]]
            top = max(row)
            losses.append(top + math.log(math.fsum(math.exp(x - top) for x in row)) - row[token])
    return losses


Q43 = Table(binary(4, 3))
E2M1 = binary(2, 1, specials="none")


def round_by_oracle(x, format):
    """Round rows, along which products sum."""
    if format == "q43":
        return Q43.decode()[Q43.encode(x.ravel())].reshape(x.shape)
    if format == "mxfp4":
        return np.stack([oracle_blocks.quantize_row(row, E2M1, "nearest_even", 32) for row in x])
    scale = (np.abs(x).max(1, keepdims=True).astype(np.float32) / np.float32(127)).astype(float)
    return np.clip(np.rint(x / scale), -127, 127) * scale


@pytest.mark.parametrize("format", ["q43", "mxfp4", "int8"])
@pytest.mark.parametrize("recipe", ["weights", "activations", "ptq"])
def test_converted_models_equal_an_emulation_in_float64(format, recipe):
    model = Tiny()
    ids = [int(x) for x in torch.randint(VOCABULARY, (24,))]
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    inner = weights["inner.weight"]
    if recipe != "activations":
        inner = round_by_oracle(inner, format)

    def emulate(part):
        x = weights["embedding.weight"][part]
        before = (x + np.pad(x, ((1, 0), (0, 0)))[:-1]).astype(np.float32).astype(float)
        if recipe != "weights":
            before = round_by_oracle(before, format)
        return (x + np.tanh(before @ inner.T + weights["inner.bias"])) @ weights["head.weight"].T

    loaded = models.LanguageModel("tiny", model, torch.tensor(ids), "bytes", 8)
    found = Study(loaded, Settings(8, 8), [Cell(format, recipe)]).run()
    expected = losses_by_hand(emulate, ids, 8)
    total = math.fsum(found[Cell(format, recipe)].losses)
    assert total == pytest.approx(math.fsum(expected), rel=1e-6)
    assert total != math.fsum(found[BASE].losses)
    exact = losses_by_hand(lambda part: model(torch.tensor([part])).detach()[0], ids, 8)
    assert math.fsum(found[BASE].losses) == pytest.approx(math.fsum(exact), rel=1e-6)


HEADS = 2


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(SIZE, 3 * SIZE, bias=False)

    def forward(self, x):
        query, key, value = (
            t.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for t in self.project(x).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return y.transpose(-2, -3).flatten(-2)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, SIZE)
        self.attention = CausalAttention()
        self.head = nn.Linear(SIZE, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.attention(self.embedding(ids)))


def attend_in_float64(query, key, value, format, recipe):
    def round_numbers(t, rows=True):
        """Round rows of float32 numbers, or columns."""
        t = t.astype(np.float32).astype(float)
        return round_by_oracle(t if rows else t.T, format) if rows else round_numbers(t.T).T

    whole, rows = recipe != "cache", recipe == "cache" or format != "mxfp4"
    query, key, value = (
        round_numbers(query) if whole else query,
        round_numbers(key),
        round_numbers(value, rows),
    )
    scores = query @ key.T / math.sqrt(SIZE // HEADS)
    scores[np.triu_indices(len(scores), 1)] = -math.inf
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    return (round_numbers(shares) if whole else shares) @ value


@pytest.mark.parametrize("format", ["q43", "mxfp4", "int8"])
@pytest.mark.parametrize("recipe", ["cache", "attention", "products"])
def test_attention_equals_an_emulation_in_float64(format, recipe):
    model = Attending()
    ids = [int(x) for x in torch.randint(VOCABULARY, (24,))]
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}

    def emulate(part):
        x, project = weights["embedding.weight"][part], weights["attention.project.weight"]
        if recipe == "products":
            x, project = round_by_oracle(x, format), round_by_oracle(project, format)
        heads = [np.split(t, HEADS, 1) for t in np.split(x @ project.T, 3, 1)]
        context = [attend_in_float64(*head, format, recipe) for head in zip(*heads, strict=True)]
        return np.concatenate(context, 1) @ weights["head.weight"].T

    cell = Cell(format, recipe)
    loaded = models.LanguageModel("attending", model, torch.tensor(ids), "bytes", 8)
    found = Study(loaded, Settings(8, 8), [cell]).run()
    total, exact = (math.fsum(found[c].losses) for c in (cell, BASE))
    assert total == pytest.approx(math.fsum(losses_by_hand(emulate, ids, 8)), rel=1e-6)
    assert total != exact


def test_losses_do_not_depend_on_batches():
    loaded = models.LanguageModel("tiny", Tiny(), torch.arange(100) % 7, "bytes", 8)
    runs = [
        Study(loaded, Settings(16, 8, batch_size), [Cell("q43", "ptq")]).run()[Cell("q43", "ptq")]
        for batch_size in (1, 5)
    ]
    assert runs[0].losses == pytest.approx(runs[1].losses, rel=1e-6)


class VocabularyFirst(Tiny):
    """Its logits are as cross_entropy takes them."""

    def forward(self, ids):
        return super().forward(ids).mT


@pytest.mark.parametrize("vocabulary", [9, 16])
def test_logits_in_either_layout_are_one_model(vocabulary):
    """The vocabulary may have the length of a window."""
    cells, runs = [Cell("q43", "weights"), Cell("q43", "all")], []
    for build in (Tiny, VocabularyFirst):
        model = build(vocabulary=vocabulary).eval()
        loaded = models.LanguageModel("tiny", model, torch.arange(40) % 9, "bytes", None)
        models.check_causal(loaded, 16)
        runs.append(Study(loaded, Settings(16, 16, 2), cells).run())
    for cell, outcome in runs[0].items():
        assert outcome.losses == runs[1][cell].losses
    (transposed := Tiny()).forward = lambda ids: torch.zeros(1, 3, 4)
    loaded = models.LanguageModel("tiny", transposed, torch.arange(40) % 9, "bytes", None)
    with pytest.raises(ValueError, match=r"vocabulary\) or \(1, vocabulary, 16\), but got \(1, 3"):
        models.check_causal(loaded, 16)


def test_a_whole_model_in_a_dtype():
    model = Tiny()
    loaded = models.LanguageModel("tiny", model, torch.arange(9), "bytes", None)
    cell = Cell("posit16es2", "all")
    (loss,) = Study(loaded, Settings(9, 9), [cell]).run()[cell].losses
    logits = Tiny().to(torch.posit16es2)(torch.arange(9)[None])[0, :-1].detach()
    expected = nn.functional.cross_entropy(logits.double(), torch.arange(1, 9), reduction="sum")
    assert loss == pytest.approx(float(expected), rel=1e-12)
    assert model.head.weight.dtype is torch.float32


def test_layers_left_in_float32():
    def round_numbers(*keep, output_layer=False):
        cell, settings = Cell("q43", "weights"), Settings(4, 4, 1, keep, output_layer)
        made = Study(models.LanguageModel("", Tiny(), torch.arange(9), "", 4), settings, [cell])
        with made._rounded(cell) as (model, bits):
            names = torch_dtypes.summary(model, show=False)
            return {name for name in ("inner", "head") if names[name].weight}, bits

    assert round_numbers() == ({"inner"}, 8)
    assert round_numbers(output_layer=True) == ({"inner", "head"}, 8)
    assert round_numbers("inn.*", output_layer=True) == ({"head"}, 8)
    with pytest.raises(ValueError, match="expected a model with linear layers for --recipe"):
        round_numbers("nn.Linear")
    with pytest.raises(ValueError, match="expected a model with attention for --recipe cache"):
        build_rules("cache", "q43", {"linear": ["inner"], "experts": [], "attention": []})
    with pytest.raises(ValueError, match="expected --keep to match a module, but got"):
        round_numbers("outer")


def test_attention_is_kept_by_expressions_and_types():
    """It has no parameters of its own, where its layers are apart."""
    layers = [find_layers(Attending(), keep, False) for keep in ((), ("atten.*",), ("nn.Linear",))]
    assert layers[0] == {"linear": ["attention.project"], "experts": [], "attention": ["attention"]}
    assert layers[1] == {"linear": [], "experts": [], "attention": []}
    assert layers[2] == {"linear": [], "experts": [], "attention": ["attention"]}


def test_standard_error_of_a_ratio():
    """Windows with as many tokens each: the standard error of a mean."""
    rises = [3.0, 5.0, 4.0, 8.0]
    expected = np.std(np.array(rises) / 10, ddof=1) / 2
    assert _standard_error(rises, [10] * 4, 0.5) == pytest.approx(expected)
    assert math.isnan(_standard_error([1.0], [10], 0.1))


def test_the_command_writes_goes_on_and_says_what_it_did(own, tmp_path, monkeypatch):
    (tmp_path / "rules.yaml").write_text("inner: {weight: mxfp4}\n")
    line = (
        "perplexity", f"{own}:make", "--text", "text", "--format", "q43", "--format", "int8",
        "--recipe", "ptq", "--recipe", "weights", "--rules", "rules.yaml", "--context", "16",
        "--stride", "8", "--out", "out",
    )  # fmt: skip
    result = command(*line)
    assert result.exit_code == 0, result.output
    table = [row.split() for row in result.output.splitlines()]
    rows = {tuple(row[:2]): row for row in table if row and row[0] in ("q43", "int8", "rules")}
    assert list(rows) == [
        ("q43", "ptq"), ("int8", "ptq"), ("q43", "weights"), ("int8", "weights"),
        ("rules", "rules"),
    ]  # fmt: skip
    data = json.loads((tmp_path / "out" / "perplexity.json").read_text())
    assert [row["bits"] for row in data["rows"]] == [32, 8, 8, 8, 8, 4.25]
    for row in data["rows"]:
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
    assert data["scored"] == 171 and data["windows"] == 21 and data["kept"] == ["embedding", "head"]
    for name in ("bits.png", "bits.svg", "perplexity.csv", "perplexity.html"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    # Half of the windows of one cell are lost, and come back as they were.
    cells = {path: path.read_text() for path in (tmp_path / "out" / "cells").iterdir()}
    assert len(cells) == 6
    path, text = next((p, t) for p, t in cells.items() if '"int8 ptq"' in t)
    part = json.loads(text)
    path.write_text(json.dumps({**part, "losses": part["losses"][:10]}))
    scored, score = [], study.score
    monkeypatch.setattr(study, "score", lambda *a: scored.append(a) or score(*a))
    monkeypatch.setattr(Study, "try_out", lambda self: None)
    again = command(*line)
    assert again.exit_code == 0 and len(scored) == 11
    assert json.loads(path.read_text())["losses"] == part["losses"]
    assert [r for r in again.output.splitlines() if r.startswith("int8")] == [
        r for r in result.output.splitlines() if r.startswith("int8")
    ]
    # Another release measures all of them anew.
    monkeypatch.setattr(torch_dtypes, "__version__", "0.0.1")
    assert command(*line).exit_code == 0 and len(scored) == 11 + 6 * 21
    found = [json.loads(p.read_text()) for p in path.parent.iterdir() if p not in cells]
    assert [data["versions"]["torch_dtypes"] for data in found] == ["0.0.1"] * 6


def test_a_tokenizer_of_the_user(own):
    (line := ["perplexity", f"{own}:words", "--context", "4", "--format", "q43"]).append("--text")
    result = command(*line, "text")
    assert result.exit_code == 1 and "at least two tokens" in result.output
    result = command(*line, f"{own}.py")
    assert result.exit_code == 0 and "tokens, of which" in result.output


@pytest.mark.parametrize(
    "options, message",
    [
        (["make"], "expected --format or --rules, but got none"),
        (["make", "--format", "q43"], "expected --context, since"),
        (["make", "--format", "q43", "--context", "4", "--stride", "5"], "at most 4, the window"),
        (["make", "--format", "mxfp4", "--recipe", "all", "--context", "4"], "use --recipe ptq"),
        (["ahead", "--format", "q43", "--context", "8"], "expected a causal model, but logits of"),
        (["fails", "--format", "q43"], "but it raised KeyError: 'weights'"),
        (["nothing", "--format", "q43"], "to return a torch.nn.Module"),
        (["nowhere", "--format", "q43"], "own_language_models has no nowhere"),
        (["make", "--weights", "text", "--format", "q43"], "expected a file of weights"),
        (["make", "--format", "q43_", "--context", "4"], "q43_"),
    ],
)
def test_errors_come_before_any_work(own, options, message):
    result = command("perplexity", f"{own}:{options[0]}", "--text", "text", *options[1:])
    assert result.exit_code != 0 and message in result.output.replace("\n", " ")


def test_folders_that_are_no_models(own, tmp_path, monkeypatch):
    result = command("perplexity", "nowhere", "--format", "q43")
    assert result.exit_code == 1 and "models are not downloaded" in result.output
    result = command("perplexity", "gpt(layers=1)", "--format", "q43")
    assert result.exit_code == 1 and "expected --weights with gpt(layers=1), but" in result.output
    result = command("perplexity", tmp_path, "--weights", "text", "--format", "q43")
    assert result.exit_code == 1 and "which has its own; leave it out" in result.output
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    result = command("perplexity", tmp_path, "--format", "q43")
    assert result.exit_code == 1 and "pip install transformers" in result.output
