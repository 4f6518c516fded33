"""Hooks of attention and nn.TransformerEncoder: masks, the fused layer, rows of padding.

An autocast with a format dtype needs the first two. The third sets rows to 0 in inference.
"""

from __future__ import annotations

import ast

import torch
from torch.nn import functional as F

from ... import _C
from ...policies.autocast import find_autocast_dtype
from ..exchange import compile_as, parse_source
from ..stock_functions import autocast_mask
from ..table import Hook, Kind
from .trampolines import When


def with_mask(stock, query, key, value, attn_mask=None, *rest, **named):
    """Clamp a stock mask, which autocast casts to a dtype where its infinity might become NaN."""
    return stock(query, key, value, autocast_mask(attn_mask), *rest, **named)


def encoder_layer(stock, src, embed_dim, num_heads, *rest, **named):
    """Run a layer's inference by its parts where some operands are stock tensors.

    Under autocast the first layer's result has the format dtype, and the second layer's weights are
    float32. As in the stock kernel, the residual sums are in autocast's dtype, and the norms keep
    their parameters.
    """
    kind = src.device.type
    own = find_autocast_dtype(kind)
    if own is None or not _has_stock(src, *rest):
        return stock(src, embed_dim, num_heads, *rest, **named)
    if src.is_nested:
        raise NotImplementedError(
            f"expected a padded tensor in torch.autocast with {own}, but got a nested one, which "
            "nn.TransformerEncoder makes of src_key_padding_mask; make it with "
            "enable_nested_tensor=False"
        )
    return _by_parts(src, embed_dim, num_heads, *rest, **named)


def _has_stock(*operands) -> bool:
    return any(
        isinstance(x, torch.Tensor) and x.is_floating_point() and _C.format_of(x.dtype) is None
        for x in operands
    )


def _by_parts(
    src,
    embed_dim,
    num_heads,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    use_gelu,
    norm_first,
    eps,
    norm_weight_1,
    norm_bias_1,
    norm_weight_2,
    norm_bias_2,
    ffn_weight_1,
    ffn_bias_1,
    ffn_weight_2,
    ffn_bias_2,
    mask=None,
    mask_type=None,
):
    def norm_1(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attention(x):
        masks = {}
        if mask is not None:  # type 0: pairs; 1: keys; 2: both, for each head
            masks = (
                {"key_padding_mask": mask}
                if mask_type == 1
                else {"attn_mask": mask.flatten(0, 1) if mask.dim() == 4 else mask}
            )
        x = x.transpose(0, 1)
        y, _ = F.multi_head_attention_forward(
            x,
            x,
            x,
            embed_dim,
            num_heads,
            qkv_weight,
            qkv_bias,
            None,
            None,
            False,
            0.0,
            proj_weight,
            proj_bias,
            training=False,
            need_weights=False,
            **masks,
        )
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


_ZEROS = "_torch_dtypes_zero_padding"


def zero_padding(encoder, src, mask, padding, output):
    """Set rows of padding to 0 where PyTorch turns stock tensors into nested ones.

    Format tensors cannot be nested. The rows are the layers' output, before the encoder's own norm.
    ``padding`` is a mask of numbers: 0 where there is no padding.
    """
    first = encoder.layers[0]
    if (
        _C.format_of(src.dtype) is None
        or src.dim() != 3
        or padding is None
        or mask is not None
        or first.training
    ):
        return output
    if not (
        torch.backends.mha.get_fastpath_enabled() and getattr(encoder, "use_nested_tensor", False)
    ):
        return output
    if torch.is_autocast_enabled() or (
        torch.is_grad_enabled()
        and (src.requires_grad or any(p.requires_grad for p in first.parameters()))
    ):
        return output
    padded = padding.ne(0)
    # PyTorch takes padding only behind all other rows.
    if getattr(encoder, "mask_check", True) and (padded[:, :-1] & ~padded[:, 1:]).any():
        return output
    return output.masked_fill(padded.unsqueeze(-1), 0)


def with_zeroed_padding(function) -> None:
    """Set rows of padding to 0, as nested tensors do, by one more statement before the norm.

    Graphs leave the statement out.
    """
    tree = parse_source(function)
    body = tree.body[0].body
    places = [
        i
        for i, node in enumerate(body)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "self.norm is not None"
    ]
    if len(places) != 1:
        raise ImportError(
            "expected nn.TransformerEncoder.forward to test once whether self.norm is not None, "
            f"but got {len(places)} such tests; use a supported release of PyTorch"
        )
    text = (
        "if not torch.compiler.is_compiling():\n"
        f"    output = {_ZEROS}(self, src, mask, src_key_padding_mask, output)"
    )
    added = ast.parse(text).body[0]
    for node in ast.walk(added):
        ast.copy_location(node, body[places[0]])
    body.insert(places[0], added)
    function.__globals__[_ZEROS] = zero_padding
    function.__code__ = compile_as(function, tree)


HOOKS = [
    Hook("torch.nn.TransformerEncoder.forward", Kind.TOLD, with_zeroed_padding),
    Hook("torch._C._nn.scaled_dot_product_attention", Kind.BUILTIN, with_mask, When.OWN_AUTOCAST),
    Hook("torch._transformer_encoder_layer_fwd", Kind.BUILTIN, encoder_layer, When.OWN_AUTOCAST),
]
