"""Rules of attention: operands and results of both products, however a module writes attention.

The oracle multiplies in float64, and rounds each operand for itself. Where shares are rounded, a
sum in float32 is exact, and results agree in every bit.
"""

import copy
import math

import pytest
import torch
from representatives import thin_out
from torch import nn
from torch.nn import functional as F

from torch_dtypes import accumulate, chop, quantize_, summary
from torch_dtypes.quantization import is_attention

FORMATS = dict(
    query="q43", key="e4m3fn", value="q43", scores="bfloat16", probabilities="q43", context="e5m5"
)
RULES = {
    "formats": FORMATS,
    "gradients": dict(FORMATS, error="q52"),
    "blocks": dict(query="mxfp4", key="mxfp4", value="mxfp4", probabilities="mxfp8_e4m3"),
    "blocks and gradients": dict(
        query="mxfp4",
        key="mxint8",
        probabilities="mxfp6_e3m2",
        value="mxfp4",
        error="mxfp8_e5m2",
    ),
    "a cache's blocks": dict(
        key=dict(format="mxfp4", axis=-1), value=dict(format="mxfp4", axis=-1)
    ),
    "one": dict(scores="q43"),
}


# ---- the oracle ----


def round_operand(t, place, axis):
    """Round t, in blocks along an axis unless the place names its own."""
    if place is None:
        return t.double()
    if isinstance(place, dict):
        place, axis = place["format"], place["axis"]
    return chop(t.float().movedim(axis, -1).contiguous(), place).movedim(-1, axis).double()


class Product(torch.autograd.Function):
    """The product of a and b. The forward pass sums over dimension -1 of a and -2 of b."""

    @staticmethod
    def forward(ctx, a, b, *places):
        ctx.save_for_backward(a, b)
        ctx.places = places
        return (round_operand(a, places[0], -1) @ round_operand(b, places[1], -2)).to(a.dtype)

    @staticmethod
    def backward(ctx, g):
        (a, b), (of_a, of_b, error) = ctx.saved_tensors, ctx.places
        ga = round_operand(g, error, -1) @ round_operand(b, of_b, -1).mT
        gb = round_operand(a, of_a, -2).mT @ round_operand(g, error, -2)
        return ga.to(a.dtype), gb.to(b.dtype), None, None, None


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, place):
        return x if place is None else chop(x, place)

    @staticmethod
    def backward(ctx, g):
        return g, None


def expect(q, k, v, rule, mask=None, scale=None, dropout=0.0, causal=False):
    q, k, v = (t.float() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    key = rule.get("key")
    if isinstance(key, dict):  # of a key that lies tokens x features
        key = dict(key, axis=-2)
    scores = Product.apply(q, k.mT, rule.get("query"), key, rule.get("error"))
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = Straight.apply(scores, rule.get("scores"))
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    shares = F.dropout(scores.softmax(-1), dropout)
    places = rule.get("probabilities"), rule.get("value"), rule.get("error")
    return Straight.apply(Product.apply(shares, v, *places), rule.get("context"))


# ---- ways to write attention ----


class Fused(nn.Module):
    def forward(self, q, k, v, **options):
        return F.scaled_dot_product_attention(q, k, v, **options)


class ByHand(nn.Module):
    """As ``eager`` in transformers."""

    def forward(self, q, k, v, attn_mask=None, scale=None):
        weights = torch.matmul(q, k.transpose(-2, -1)) * (scale or q.shape[-1] ** -0.5)
        if attn_mask is not None:
            weights = weights + attn_mask
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(F.dropout(weights, p=0.0, training=self.training), v)


class InPlace(nn.Module):
    """Scales, masks and multiplies in other ways."""

    def forward(self, q, k, v, attn_mask):
        assert not self.training or q.size(-1)
        scores = q @ k.mT
        assert scores.dtype is torch.float32 and scores.shape[-1] == k.size(-2)
        scores /= torch.tensor(q.shape[-1] ** 0.5)
        scores.masked_fill_(~attn_mask, -math.inf)
        return (v.mT @ scores.softmax(-1).mT).mT


class Added(nn.Module):
    """As GPT-2's upcast attention and BLOOM's."""

    def forward(self, q, k, v, attn_mask=None):
        shape, scale = (*q.shape[:-1], k.shape[-2]), q.shape[-1] ** -0.5
        q, k, v = (t.flatten(0, -3) for t in (q, k, v))
        if attn_mask is None:
            empty = torch.full((q.shape[0], *shape[-2:]), math.nan)
            scores = torch.baddbmm(empty, q, k.mT, beta=0, alpha=scale)
        else:
            mask = attn_mask.expand(shape).flatten(0, -3)
            scores = mask.baddbmm(batch1=q, batch2=k.mT, beta=1.0, alpha=scale)
        y = torch.bmm(scores.view(shape).softmax(-1).flatten(0, -3), v)
        return y.unflatten(0, shape[:-2])


def exact(*shape, step=8):
    """Numbers whose products have sums that float32 holds."""
    return torch.randint(-3 * step, 3 * step, shape) / step


BOOL = torch.ones(6, 10, dtype=torch.bool).tril(2)
FLOAT = torch.where(BOOL, torch.randint(-8, 8, (6, 10)) / 4, -math.inf)
LEAST = torch.zeros(6, 10).masked_fill(~BOOL, torch.finfo(torch.float32).min)
CALLS = {
    "fused": (Fused, {}, 2),
    "causal": (Fused, dict(is_causal=True), 2),
    "bool mask": (Fused, dict(attn_mask=BOOL), 2),
    "float mask": (Fused, dict(attn_mask=FLOAT), 2),
    "groups of heads": (Fused, dict(enable_gqa=True, is_causal=True), 1),
    "scale": (Fused, dict(scale=0.5), 2),
    "by hand": (ByHand, dict(attn_mask=LEAST), 2),
    "in place": (InPlace, dict(attn_mask=BOOL), 2),
    "added": (Added, dict(attn_mask=LEAST), 2),
    "added to nothing": (Added, {}, 2),
}
NAMES = dict(attn_mask="mask", is_causal="causal", scale="scale")
CASES = [(call, rule) for call in CALLS for rule in RULES]
KEPT = ("groups of heads gradients", "in place formats", "added blocks and gradients")


@pytest.mark.parametrize("call, rule", thin_out(CASES, KEPT, lambda *case: " ".join(case)))
def test_both_products_round_as_the_rule_says(call, rule):
    torch.manual_seed(1)
    build, options, heads = CALLS[call]
    q, k, v = exact(3, 2, 6, 16), exact(3, heads, 10, 16), exact(3, heads, 10, 16)
    g = exact(3, 2, 6, 16)
    module = quantize_(build(), {"": RULES[rule]})
    own = {NAMES[name]: value for name, value in options.items() if name in NAMES}
    found, wanted = [], []
    for run, kept in (
        (lambda *t: module(*t, **options), found),
        (lambda *t: expect(*t, RULES[rule], **own), wanted),
    ):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        y = run(*leaves)
        y.backward(g)
        kept += [y.detach(), *(t.grad for t in leaves)]
    assert (found[0] - build()(q, k, v, **options)).abs().max() > 1e-3
    start = "probabilities" in RULES[rule]
    assert torch.equal(found[0], wanted[0]) or not start
    for got, want in zip(found[start:], wanted[start:], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5 * want.abs().max())


def test_heads_of_groups_divide():
    q, few = torch.randn(1, 6, 3, 8), torch.randn(1, 4, 3, 8)
    module, own = quantize_(Fused(), {"": FORMATS}), [t.to(torch.q43) for t in (q, few, few)]
    message = r"expected a number of query heads .* but got 6 and 4; give heads that divide"
    with pytest.raises(ValueError, match=message):
        module(q, few, few, enable_gqa=True)
    with pytest.raises(ValueError, match=message), accumulate("exact"):
        F.scaled_dot_product_attention(*own, enable_gqa=True)


def test_dropout_comes_before_the_shares_are_rounded():
    q, k, v = (exact(1, 2, 6, 16) for _ in range(3))
    module = quantize_(Fused(), {Fused: FORMATS})
    torch.manual_seed(2)
    found = module(q, k, v, dropout_p=0.5)
    torch.manual_seed(2)
    assert torch.equal(found, expect(q, k, v, FORMATS, dropout=0.5))


def test_a_causal_mask_comes_with_a_given_one():
    q, k, v = exact(1, 2, 6, 16), exact(1, 2, 10, 16), exact(1, 2, 10, 16)
    module, causal = quantize_(Fused(), {"": FORMATS}), torch.full((6, 10), -math.inf).triu(1)
    want = module(q, k, v, attn_mask=FLOAT + causal)
    for mask in (FLOAT, torch.zeros(6, 10)):
        found = module(q, k, v, attn_mask=mask, is_causal=True)
        assert torch.equal(found, module(q, k, v, attn_mask=mask + causal))
    assert not torch.equal(found, want)
    half = [t.bfloat16() for t in (q, k, v)]
    found = module(*half, attn_mask=FLOAT)  # stock attention takes float32 masks, too
    assert torch.equal(found, module(*half, attn_mask=FLOAT.bfloat16()))


@pytest.mark.parametrize("per, dims", [("token", -1), (1, (0, 2, 3)), ("tensor", None)])
def test_integers_have_a_scale_of_each_token_head_or_tensor(per, dims):
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 2, 5, 6, 16).unbind()

    def by_hand(x):
        top = x.abs().max() if dims is None else x.abs().amax(dims, keepdim=True)
        scale = (top.double() / 127).float()
        return (x * (1 / scale)).round().clamp(-128, 127) * scale

    place = dict(format="int8", per=per)
    found = quantize_(Fused(), {"": dict(key=place, value=place)})(q, k, v)
    want = F.scaled_dot_product_attention(q, by_hand(k), by_hand(v))
    torch.testing.assert_close(found, want)
    assert (want - F.scaled_dot_product_attention(q, k, v)).abs().max() > 1e-4


def test_both_products_add_up_by_the_policy():
    torch.manual_seed(4)
    q, k, v = torch.randn(3, 1, 4, 8).unbind()

    def multiply(a, b):  # each product and each partial sum is rounded
        total = torch.zeros(*a.shape[:-1], b.shape[-1])
        for i in range(a.shape[-1]):
            term = chop(a[..., i : i + 1] * b[..., i : i + 1, :], "e5m5")
            total = chop(total + term, "e5m5")
        return total

    policy = dict(policy="format", product="e5m5", accumulator="e5m5")
    rule = dict(query="q43", key="q43", probabilities="q43", value="q43", accumulate=policy)
    q, k, v = (chop(t, "q43") for t in (q, k, v))
    shares = (multiply(q, k.mT) * 8**-0.5).softmax(-1)
    want = multiply(chop(shares, "q43"), v)
    for build in (Fused, ByHand):
        assert torch.equal(quantize_(build(), {"": rule})(q, k, v), want)


def test_a_block_s_policy_is_that_of_a_rule():
    torch.manual_seed(4)
    x, policy = torch.randn(1, 4, 8), dict(policy="format", product="e5m3", accumulator="e5m2")
    layer, found = nn.MultiheadAttention(8, 2, batch_first=True), []
    for of_rule, around in (({}, {}), ({}, policy), (policy, {})):
        own = copy.deepcopy(layer)
        quantize_(own, {"": dict(FORMATS, error="q52", accumulate=of_rule or None)})
        leaf = x.clone().requires_grad_()
        with accumulate(**around) if around else torch.enable_grad():
            y = own(leaf, leaf, leaf)[0]
        y.sum().backward()
        found.append((y.detach(), leaf.grad))
    assert all(map(torch.equal, found[1], found[2]))
    assert not any(map(torch.equal, found[0], found[1]))


class Block(nn.Module):
    """An attention with layers inside, as of a model of another library."""

    def __init__(self):
        super().__init__()
        self.projection, self.table = nn.Linear(16, 16), nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        q = self.projection(x) @ self.table.t()  # a product by a weight is not attention's
        return ByHand.forward(self, q, x, x)


def test_layers_inside_and_products_by_weights_keep_their_own_rules():
    torch.manual_seed(5)
    block, x = Block(), exact(2, 6, 16)
    q = F.linear(x, chop(block.projection.weight, "q43"), block.projection.bias) @ block.table.t()
    model = nn.Sequential(block)
    quantize_(model, {nn.Linear: dict(weight="q43"), r".*0": dict(FORMATS, accumulate="exact")})
    torch.testing.assert_close(model(x), expect(q.detach(), x, x, FORMATS), rtol=0, atol=2**-4)
    assert summary(model, show=False)["0"].probabilities == "q43"


class Rotary(nn.Module):
    """Multiplies positions by a buffer, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", 1.1 ** -torch.arange(16))

    def forward(self, q, k, v):
        positions = torch.arange(q.shape[-2]).float()
        angles = self.frequencies[None, :, None].expand(1, -1, 1) @ positions[None, None, :]
        return ByHand.forward(self, q * angles.mT.cos(), k, v)


def test_products_by_a_buffer_are_not_attention():
    q, k, v = (exact(1, 2, 6, 16) for _ in range(3))
    rotated = q * torch.outer(torch.arange(6), Rotary().frequencies).cos()
    found = quantize_(Rotary(), {"": FORMATS})(q, k, v)
    assert torch.equal(found, expect(rotated, k, v, FORMATS))


@pytest.mark.parametrize("weights", [True, False])
def test_multihead_attention(weights):
    """Its two products go by the rule, its projections stay."""
    torch.manual_seed(6)
    layer, x = nn.MultiheadAttention(32, 2, batch_first=True), torch.randn(2, 6, 32)
    parts = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
    q, k, v = (t.unflatten(-1, (2, 16)).transpose(1, 2) for t in parts)
    own = (q * 0.25, k, v) if weights else (q, k, v)  # PyTorch scales the query first
    y = expect(*own, FORMATS, scale=1.0 if weights else None)
    want = layer.out_proj(y.transpose(1, 2).flatten(2))
    plain = layer(x, x, x, need_weights=weights)[0]
    quantize_(layer, {is_attention: FORMATS})
    found = layer(x, x, x, need_weights=weights)[0]
    torch.testing.assert_close(found, want, rtol=0, atol=2**-6)
    assert (found - plain).abs().mean() > 4 * (found - want).abs().mean()


def test_the_operands_that_a_rule_of_blocks_does_not_name_are_activations():
    torch.manual_seed(7)
    blocks = dict(weight="mxfp4", activation="mxfp4", error="mxfp4")
    layer, x = nn.MultiheadAttention(64, 2, batch_first=True), torch.randn(2, 6, 64)
    every = dict(query="mxfp4", key="mxfp4", probabilities="mxfp4", value="mxfp4")
    results = []
    for rule in (blocks, {**blocks, **every}, {**blocks, "value": "mxfp4"}):
        own, leaf = copy.deepcopy(layer), x.clone().requires_grad_()
        quantize_(own, {"": rule})
        y = own(leaf, leaf, leaf)[0]
        y.sum().backward()
        results.append((y.detach(), leaf.grad, own.in_proj_weight.grad))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_a_copy_and_a_pickle_keep_the_rule(tmp_path):
    q, k, v = (exact(1, 2, 6, 16) for _ in range(3))
    module = quantize_(Fused(), {"": FORMATS})
    torch.save(module, tmp_path / "module.pt")
    want = module(q, k, v)
    for other in (copy.deepcopy(module), torch.load(tmp_path / "module.pt", weights_only=False)):
        assert torch.equal(other(q, k, v), want)


class Nothing(nn.Module):
    def forward(self, q, k, v):
        return q @ k.mT @ v  # without a softmax


@pytest.mark.parametrize(
    "module, rule, error, match",
    [
        (nn.Linear(2, 2), dict(query="q43"), ValueError, "got query= for '', a Linear"),
        (Fused(), dict(key_cache="q43"), ValueError, "got key_cache= for '', a Fused"),
        (Fused(), dict(quary="q43"), ValueError, "query"),
        (
            Fused(),
            dict(key=dict(format="int8", when="delayed")),
            ValueError,
            "expected when='call'",
        ),
        (Fused(), dict(key=dict(format="q43", clamped="zero")), ValueError, "but got it of key"),
        (Nothing(), dict(query="q43"), ValueError, "expected attention in the forward of a Noth"),
    ],
)
def test_bad_rules(module, rule, error, match):
    with pytest.raises(error, match=match):
        quantize_(module, {"": rule})(*(torch.ones(1, 2, 2) for _ in range(3)))
