"""transformers' language models: their perplexity, from a folder."""

import json
import math

import language_models
import pytest
import torch
from command_line import command
from language_models import CAUSAL, TEXT
from representatives import thin_out

import torch_dtypes

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    return tmp_path / "model"


def perplexity_by_transformers(model, ids, context, stride):
    """As transformers' page on perplexity of fixed-length models computes it."""
    total, count, done = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + context, len(ids))
        inputs = torch.tensor([ids[begin:end]])
        labels = inputs.clone()
        labels[:, : -(end - done)] = -100
        scored = int((labels[:, 1:] != -100).sum())
        if scored:
            with torch.no_grad():
                total += float(model(inputs, labels=labels).loss) * scored
            count += scored
        done = end
        if end == len(ids):
            break
    return math.exp(total / count)


@pytest.mark.parametrize("name", thin_out(CAUSAL))
def test_perplexity_of_a_folder_is_that_of_transformers(folder, name):
    model = language_models.build(name)
    model.save_pretrained(folder)
    line = ["perplexity", folder, "--text", folder.parent / "text", "--context", "48", "--stride"]
    recipes = [x for r in ("ptq", "all") for x in ("--recipe", r)]
    result = command(*line, "20", "--format", "posit16es2", *recipes, "--out", folder / "out")
    assert result.exit_code == 0, result.output
    rows = json.loads((folder / "out" / "perplexity.json").read_text())["rows"]
    expected = perplexity_by_transformers(model, list(TEXT), 48, 20)
    assert rows[0]["perplexity"] == pytest.approx(expected, rel=1e-6)
    assert [row["perplexity"] for row in rows[1:]] == pytest.approx([expected] * 2, rel=1e-3)
    assert all(row["perplexity"] != rows[0]["perplexity"] for row in rows[1:])


def test_a_folder_saved_with_rules_is_measured_by_them(folder):
    transformers = language_models.needs_transformers()
    plain = language_models.build("Llama")
    plain.save_pretrained(folder)
    rules = {
        "nn.Linear": {"weight": "mxfp4", "activation": {"format": "int8", "when": "calibration"}},
        "lm_head": None,
        ".*self_attn": {"key_cache": "q43"},
    }
    batches = [torch.tensor([list(TEXT[:20])])]
    config = torch_dtypes.integrations.TransformersConfig(rules, calibrate=batches)
    load = transformers.AutoModelForCausalLM.from_pretrained
    load(folder, quantization_config=config).save_pretrained(folder / "saved")
    line = ("perplexity", folder / "saved", "--text", folder.parent / "text", "--context", "48")
    result = command(*line, "--out", folder / "out")
    assert result.exit_code == 0, result.output
    found = json.loads((folder / "out" / "perplexity.json").read_text())
    base, saved = found["rows"]
    assert (saved["format"], saved["bits"], found["kept"]) == ("as saved", 4.25, [])
    for row, model in ((base, plain), (saved, load(folder / "saved"))):
        expected = perplexity_by_transformers(model, list(TEXT), 48, 48)
        assert row["perplexity"] == pytest.approx(expected, rel=1e-6)
    result = command(*line, "--format", "q43", "--recipe", "all", "--recipe", "cache")
    rows = [row.split() for row in result.output.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("float32", "as", "q43")] == [
        "float32", "as", "q43", "q43",
    ]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("name", CAUSAL)
def test_perplexity_of_blocks_and_integers(folder, name):
    language_models.build(name).save_pretrained(folder)
    line = ["perplexity", folder, "--text", folder.parent / "text", "--tokens", "60"]
    formats = [x for f in ("mxfp4", "nvfp4", "int8") for x in ("--format", f)]
    whole = ["ptq"] if name == "Mamba" else ["products", "cache"]  # it has no attention
    recipes = [x for r in ("weights", "activations", *whole) for x in ("--recipe", r)]
    result = command(*line, *formats, *recipes, "--context", "30", "--keep", ".*0.*")
    assert result.exit_code == 0 and "not finite" not in result.output, result.output


def test_a_folder_with_a_tokenizer(folder):
    transformers = language_models.needs_transformers()
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    model = language_models.build("Llama")
    model.save_pretrained(folder)
    words = {word: i for i, word in enumerate(["[UNK]", "a", "rose", "is"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder)
    text = folder.parent / "text"
    text.write_text("a rose is a rose is a thorn")
    line = ["perplexity", folder, "--text", text, "--format", "q43", "--recipe", "weights"]
    assert command(*line, "--out", folder / "out").exit_code == 0
    data = json.loads((folder / "out" / "perplexity.json").read_text())
    assert (data["tokens"], data["unit"]) == (8, "tokens")
    expected = perplexity_by_transformers(model, [1, 2, 3, 1, 2, 3, 1, 0], 64, 64)
    assert data["rows"][0]["perplexity"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.whole
def test_t5_is_no_causal_model_but_converts(folder):
    model = language_models.build("T5")
    model.save_pretrained(folder)
    result = command("perplexity", folder, "--format", "q43")
    assert result.exit_code == 1 and "expected a causal language model, but" in result.output
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        before = model(input_ids=ids, labels=ids).logits
        rule = {"weight": "mxfp4", "activation": "mxfp8_e4m3"}
        torch_dtypes.quantize_(model, {torch.nn.Linear: rule, "lm_head": None})
        rounded = model(input_ids=ids, labels=ids).logits
        torch_dtypes.dequantize_(model)
        assert torch.equal(model(input_ids=ids, labels=ids).logits, before)
    assert rounded.isfinite().all() and not torch.equal(rounded, before)
