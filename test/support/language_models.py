"""Language models of transformers with random weights, small enough for tests."""

import pytest
import torch


def needs_transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


_TOKENS = {"vocab_size": 260, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 258}
_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_EXPERTS = {
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
CONFIGS = {
    "Llama": _SIZES,
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "Qwen2Moe": {**_SIZES, **_EXPERTS},
    "Mamba": {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
    "T5": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": 0,
    },
}

CAUSAL = ["Llama", "GPT2", "Qwen2Moe", "Mamba"]
TEXT = bytes(range(40, 126)) * 3


def build(name, **options):
    """Build the model of a configuration, the same at each call, in evaluation mode. Options are
    the configuration's."""
    transformers = needs_transformers()
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**CONFIGS[name], **_TOKENS, **options)
    kind = transformers.AutoModelForSeq2SeqLM if name == "T5" else transformers.AutoModelForCausalLM
    return kind.from_config(config, dtype=torch.float32).eval()
