"""Rules of attention and of the cache in models of transformers, against roundings that the test
itself puts into its attention function and its cache."""

import language_models
import pytest
import torch

from torch_dtypes import chop, quantize_
from torch_dtypes.quantization import is_attention
from torch_dtypes.quantization.key_value_cache import round_cache
from torch_dtypes.quantization.layers import state_of

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore"),  # transformers' own
]

RULE = dict(
    query="q43", key="e4m3fn", scores="bfloat16", probabilities="q43", value="q43", context="e5m5"
)
IDS = torch.arange(22).reshape(2, 11) * 7 % 64


def build(kind, way):
    return language_models.build(kind, attn_implementation=way)


def round_apart(module, q, k, v, mask, scaling, position_bias=None, **_):
    """An attention function of transformers that rounds by RULE and multiplies in float64."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    q, k, v = chop(q, RULE["query"]), chop(k, RULE["key"]), chop(v, RULE["value"])
    scores = chop(((q.double() @ k.double().mT) * scaling).float(), RULE["scores"])
    for bias in (position_bias, mask):
        scores = scores if bias is None else scores + bias
    shares = chop(scores.softmax(-1), RULE["probabilities"])
    y = chop((shares.double() @ v.double()).float(), RULE["context"])
    return y.transpose(1, 2).contiguous(), None


@pytest.fixture
def apart():
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register("apart", round_apart)
    AttentionMaskInterface.register("apart", eager_mask)
    return "apart"


def run(model):
    more = {"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {}
    return model(IDS, **more).logits


@pytest.mark.parametrize("kind", ["Llama", "GPT2", "T5"])
@pytest.mark.parametrize("way", ["eager", "sdpa"])
def test_logits_are_those_of_operands_rounded_apart(kind, way, apart):
    with torch.no_grad():
        want, plain = run(build(kind, apart)), run(build(kind, way))
    model = quantize_(build(kind, way), {is_attention: RULE})
    found = run(model)
    # Where a float32 sum and a float64 sum lie beside a boundary, a result is one step of e5m5 off.
    torch.testing.assert_close(found, want, rtol=0, atol=0.05 * (want - plain).abs().max())
    model.train()
    run(model).square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def round_key(x):
    return chop(x, "mxfp4")


def round_value(x):
    scale = x.abs().amax(-1, keepdim=True) / 7
    return (x * (1 / scale)).round().clamp(-8, 7) * scale


class Rounding(transformers.DynamicCache):
    def update(self, key, value, *others, **more):
        return super().update(round_key(key), round_value(value), *others, **more)


CACHE = dict(key_cache="mxfp4", value_cache=dict(format="int4", per="token"))


def step_by_step(model, cache):
    """Return the logits of 11 tokens: of 6 at once, then of one after the other."""
    logits = [model(IDS[:, :6], past_key_values=cache, use_cache=True).logits]
    for i in range(6, IDS.shape[1]):
        logits.append(model(IDS[:, i : i + 1], past_key_values=cache, use_cache=True).logits)
    return torch.cat(logits, 1)


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_a_cache_rounds_what_enters_it_once(kind):
    with torch.no_grad():
        own = Rounding()
        want = step_by_step(build(kind, "sdpa"), own)
        model = quantize_(build(kind, "sdpa"), {r".*attn": CACHE})
        cache = transformers.DynamicCache()
        assert torch.equal(step_by_step(model, cache), want)
        for layer, expected in zip(cache.layers, own.layers, strict=True):
            assert torch.equal(layer.keys, expected.keys)
            assert torch.equal(layer.values, expected.values)
        assert "update" not in vars(cache)
        static = transformers.StaticCache(model.config, max_cache_len=16)
        torch.testing.assert_close(step_by_step(model, static), want)
        # The same numbers where every position enters at once.
        assert torch.equal(
            model(IDS).logits, build(kind, "sdpa")(IDS, past_key_values=Rounding()).logits
        )
        found = model.generate(IDS, max_new_tokens=4, do_sample=False)
        assert found.shape == (2, 15)


def test_keys_and_values_of_a_rule_are_those_that_a_cache_keeps():
    """In blocks along the features of a head, a cache and attention round the same numbers."""
    keys = dict(format="mxfp4", axis=-1)
    with torch.no_grad():
        one = quantize_(build("Llama", "sdpa"), {is_attention: dict(key=keys, value=keys)})
        other = quantize_(
            build("Llama", "sdpa"), {is_attention: dict(key_cache="mxfp4", value_cache="mxfp4")}
        )
        torch.testing.assert_close(one(IDS).logits, other(IDS).logits)
        unlike = quantize_(one, {is_attention: dict(key="mxfp4", value="mxfp4")})
        assert not torch.allclose(unlike(IDS).logits, other(IDS).logits)


def test_a_model_without_attention_is_an_error():
    config = transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=64)
    with pytest.raises(ValueError, match="got is_attention, which matches none"):
        quantize_(transformers.MambaForCausalLM(config), {is_attention: RULE})


def test_a_cache_that_is_rounded_by_two_modules_or_by_a_model():
    model = quantize_(build("Llama", "sdpa"), {r".*attn": CACHE})
    attention = next(m for name, m in model.named_modules() if name.endswith("attn"))
    cache = transformers.DynamicCache()
    rounders = state_of(attention).rounders
    with round_cache(rounders, False, (cache, cache), {}):
        outer = cache.update
        with round_cache(rounders, False, (), dict(cache=cache)):
            assert cache.update is not outer
        assert cache.update is outer
    assert "update" not in vars(cache)
    # A model makes its cache in its forward, where a rule of the model would miss it.
    with pytest.raises(ValueError, match="got key_cache= for 'model', a LlamaModel"):
        quantize_(build("Llama", "sdpa"), {"model": CACHE})
