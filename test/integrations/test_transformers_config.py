"""transformers' own switch: rules of quantize_ in from_pretrained, saved and loaded."""

import subprocess
import sys

import language_models
import pytest
import torch
from language_models import CAUSAL, TEXT
from representatives import thin_out

import torch_dtypes

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own

RULES = {
    "nn.Linear": {"weight": "mxfp4", "activation": "mxfp8_e4m3"},
    ".*experts": {"forward": {"weight": torch.q43, "activation": torch.q43}},
    "lm_head": None,
}


def config_of(name, rules=RULES, **options):
    transformers = language_models.needs_transformers()
    rules = {key: rule for key, rule in rules.items() if name == "Qwen2Moe" or "experts" not in key}
    if name == "GPT2":  # its layers are Conv1D
        rules = {r".*\.c_\w+": rules["nn.Linear"]}
    if name != "Mamba":  # it has no attention
        rules[r".*\.(self_)?attn"] = {"key_cache": "q43", "value_cache": "posit8es1"}
    return transformers, torch_dtypes.integrations.TransformersConfig(rules, **options)


@pytest.mark.parametrize("name", thin_out(CAUSAL))
def test_models_load_save_load_and_generate(tmp_path, name):
    transformers, config = config_of(name)
    plain = language_models.build(name)
    plain.save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(tmp_path, quantization_config=config)
    plain.set_experts_implementation("eager")
    torch_dtypes.quantize_(plain, config.rules)
    model.save_pretrained(tmp_path / "again")
    again = load(tmp_path / "again")
    ids = torch.tensor([list(TEXT[:20])])
    with torch.no_grad():
        expected = plain(ids).logits
        for made in (model, again):
            assert made.is_quantized and torch.equal(made(ids).logits, expected)
            for (key, a), (_, b) in zip(
                made.state_dict().items(), plain.state_dict().items(), strict=True
            ):
                assert torch.equal(a, b), key
        texts = [m.generate(ids, max_new_tokens=5, do_sample=False) for m in (plain, again)]
        assert torch.equal(*texts) and texts[0].shape == (1, 25)
        again.dequantize()
        assert torch.equal(again(ids).logits, torch_dtypes.dequantize_(plain)(ids).logits)


@pytest.mark.whole
def test_scales_are_saved_with_the_model(tmp_path):
    rules = {
        "model.*_proj": {
            "weight": {"format": "int8", "per": "channel"},
            "activation": {"format": "int8", "when": "calibration"},
            "error": {"format": "q52", "scale": "free", "when": "delayed"},
        }
    }
    batches = [torch.tensor([list(TEXT[i : i + 20])]) for i in (0, 30)]
    transformers, config = config_of("Llama", rules, calibrate=batches)
    language_models.build("Llama").save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(tmp_path, quantization_config=config)
    model(batches[1], labels=batches[1]).loss.backward()  # fills the histories
    model.zero_grad()
    model.save_pretrained(tmp_path / "again")
    losses = []
    for made in (model, load(tmp_path / "again")):
        loss = made.train()(batches[1], labels=batches[1]).loss
        loss.backward()
        losses.append((loss, made.model.layers[0].mlp.up_proj.weight.grad))
    assert all(torch.equal(a, b) for a, b in zip(*losses, strict=True))
    with pytest.raises(ValueError, match="expected calibrate=, a loader"):
        load(tmp_path, quantization_config=config_of("Llama", rules)[1])


@pytest.mark.whole
def test_models_train_with_peft_and_trainer(tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    transformers, config = config_of("Llama")
    language_models.build("Llama").save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    ids = torch.tensor(list(TEXT[:20]))
    arguments = transformers.TrainingArguments(
        tmp_path / "out", max_steps=2, report_to=[], use_cpu=True, learning_rate=0.1
    )
    for adapters in (True, False):
        model = load(tmp_path, quantization_config=config)
        before = {name: p.clone() for name, p in model.named_parameters()}
        if adapters:
            model = peft.get_peft_model(
                model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2)
            )
        trainer = transformers.Trainer(
            model, arguments, train_dataset=[{"input_ids": ids, "labels": ids}] * 4
        )
        trainer.train()
        inner = model.base_model.model if adapters else model
        assert torch_dtypes.summary(inner, show=False)["model.layers.0.mlp.up_proj"].weight
        for name, p in before.items():
            changed = not torch.equal(
                p,
                inner.get_parameter(
                    name.replace("q_proj", "q_proj.base_layer").replace(
                        "v_proj", "v_proj.base_layer"
                    )
                )
                if adapters
                else inner.get_parameter(name),
            )
            assert changed != adapters, name


@pytest.mark.whole
def test_saved_models_load_in_another_process(tmp_path):
    """There nothing has named TransformersConfig."""
    transformers, config = config_of("Llama")
    language_models.build("Llama").save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(tmp_path, quantization_config=config)
    model.save_pretrained(tmp_path / "again")
    program = (
        "import sys, torch, torch_dtypes\n"
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "print(model(torch.arange(20)[None]).logits.double().sum().item())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "again")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = model(torch.arange(20)[None]).logits.double().sum().item()
    assert float(done.stdout.split()[-1]) == expected


def test_a_config_is_read_from_plain_data():
    """So do lm_eval and transformers."""
    language_models.needs_transformers()
    from transformers.quantizers.auto import AutoQuantizationConfig

    config = torch_dtypes.integrations.TransformersConfig({"nn.Linear": "q43"}, scales={"a": {}})
    again = AutoQuantizationConfig.from_dict(config.to_dict())
    assert type(again) is type(config) and again.to_dict() == config.to_dict()
    with pytest.raises(ValueError, match="expected quant_method='torch_dtypes', but got 'gptq'"):
        torch_dtypes.integrations.TransformersConfig({}, quant_method="gptq")


def test_rules_that_a_file_cannot_hold():
    language_models.needs_transformers()
    make = torch_dtypes.integrations.TransformersConfig
    assert make({torch.nn.Linear: torch.q43}).to_dict() == {
        "quant_method": "torch_dtypes",
        "rules": {"nn.Linear": "q43"},
    }
    assert make("nvfp4").rules == "nvfp4"
    patterns = "; give a regular expression over names, as in '.*self_attn'"
    for key, said in (
        (torch_dtypes.quantization.is_attention, "the predicate is_attention"),
        (language_models.TEXT, "b'"),
    ):
        with pytest.raises(TypeError, match=f"a type of torch.nn .* but got {said}.*{patterns}"):
            make({key: {"key_cache": "q43"}})
    with pytest.raises(TypeError, match=r"which config\.json can hold, but got"):
        make({"nn.Linear": {"weight": torch.ones(2)}})
