"""Attention and nn.TransformerEncoderLayer under an autocast with a dtype of ours: masks, and the operator that PyTorch has for the layer."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .. import _C
from .._autocast import own_autocast_dtype
from .._stock_functions import autocast_mask
from .table import Builtin, When


def with_mask(stock, query, key, value, attn_mask=None, *rest, **named):
    """torch.nn.functional.scaled_dot_product_attention, whose stock mask autocast casts: an infinity that the dtype lacks would be NaN there."""
    return stock(query, key, value, autocast_mask(attn_mask), *rest, **named)


def encoder_layer(stock, src, embed_dim, num_heads, *rest, **named):
    """torch._transformer_encoder_layer_fwd, all of a layer in inference, with stock tensors among its operands: by its parts, since of autocast the
    first layer's result is of our dtype and the second's weights are float32. As stock's kernel has it, the sums of the residual branches are in
    autocast's dtype, and the norms' parameters stay."""
    kind = src.device.type
    own = own_autocast_dtype(kind)
    if own is None or not _has_stock(src, *rest):
        return stock(src, embed_dim, num_heads, *rest, **named)
    if src.is_nested:
        raise NotImplementedError(
            f"expected a padded tensor in torch.autocast with {own}, but got a nested one, which nn.TransformerEncoder "
            "makes of src_key_padding_mask; make it with enable_nested_tensor=False"
        )
    return _by_parts(src, embed_dim, num_heads, *rest, **named)


def _has_stock(*operands) -> bool:
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() and _C.format_of(x.dtype) is None for x in operands)


def _by_parts(
    src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2,
    norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None,
):  # fmt: skip
    def norm_1(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attention(x):
        masks = {}
        if mask is not None:  # of pairs, of keys, or of both and each head
            masks = {"key_padding_mask": mask} if mask_type == 1 else {"attn_mask": mask.flatten(0, 1) if mask.dim() == 4 else mask}
        x = x.transpose(0, 1)
        y, _ = F.multi_head_attention_forward(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, None, None, False, 0.0, proj_weight, proj_bias, training=False,
            need_weights=False, **masks,
        )  # fmt: skip
        return y.transpose(0, 1)

    def feed_forward(x):
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    def plus(x, residual):
        return x + residual.to(x.dtype)

    if norm_first:
        x = plus(attention(norm_1(src)), src)
        return plus(feed_forward(norm_2(x)), x)
    x = norm_1(plus(attention(src), src))
    return norm_2(plus(feed_forward(x), x))


HOOKS = [
    Builtin("torch._C._nn", "scaled_dot_product_attention", with_mask, When.OWN_AUTOCAST),
    Builtin("torch", "_transformer_encoder_layer_fwd", encoder_layer, When.OWN_AUTOCAST),
]
