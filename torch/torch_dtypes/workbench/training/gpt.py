"""A small GPT over bytes, as an ordinary ``nn.Module`` of stock layers.

Source: Karpathy's nanoGPT (2022), after Radford et al., "Language models are unsupervised
multitask learners" (GPT-2, 2019).
"""

from __future__ import annotations

import math
import re

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256  # bytes

_SIZES = {"layers": 4, "heads": 4, "width": 128, "context": 128}


class CausalAttention(nn.Module):
    """Self-attention of several heads, in which no position sees a later one."""

    def __init__(self, heads: int, width: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (N, heads, T, width / heads)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a network of two linear layers, each behind a layer norm and added to its
    input."""

    def __init__(self, heads: int, width: int):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(heads, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class GPT(nn.Module):
    """A causal transformer over bytes: 842,496 parameters with its default sizes.

    As in the source, norms stand before attention and network, positions are learned, the output
    layer shares its weight with the embedding and has no bias, and weights start from a normal
    distribution of deviation 0.02, divided by ``sqrt(2 layers)`` in layers that add to the residual
    stream. There is no dropout.

    Takes bytes as integers of shape ``(N, T)``, with T at most ``context``. Returns logits of the
    next bytes, of shape ``(N, 256, T)``, as ``cross_entropy`` takes them.
    """

    def __init__(self, layers: int = 4, heads: int = 4, width: int = 128, context: int = 128):
        super().__init__()
        self.context = context
        self.bytes, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(heads, width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.bytes.weight
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                adds = name.endswith(("projection.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) ** adds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # By calls of both tables, because rules round where a layer is called.
        x = self.bytes(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


def is_gpt(name: str) -> bool:
    """Whether a model's name is ``gpt``, or ``gpt`` with sizes."""
    return re.match(r"gpt\s*(\(|$)", name) is not None


def sizes_of(name: str) -> dict[str, int]:
    """Return the sizes in a name such as ``gpt(layers=2, width=64)``; others have their defaults.

    Raises:
        ValueError: a name that is no GPT's, an unknown size, a number below 1, or a width that is
            no multiple of the heads.
    """
    found = re.fullmatch(r"gpt\s*(?:\((.*)\))?", name.strip())
    expected = f"gpt({', '.join(f'{key}={value}' for key, value in _SIZES.items())})"
    if found is None:
        raise ValueError(f"expected a network as {expected}, but got {name!r}")
    sizes = dict(_SIZES)
    for part in filter(None, (found[1] or "").split(",")):
        key, _, value = (text.strip() for text in part.partition("="))
        if key not in sizes or not re.fullmatch(r"[0-9]+", value) or int(value) < 1:
            raise ValueError(
                f"expected sizes of at least 1 as in {expected}, but got {part.strip()!r}"
            )
        sizes[key] = int(value)
    if sizes["width"] % sizes["heads"]:
        raise ValueError(
            f"expected a width that is a multiple of heads={sizes['heads']}, but got "
            f"width={sizes['width']}"
        )
    return sizes


def build_gpt(name: str) -> GPT:
    """Build the GPT that a name describes, initialised from torch's default generator. Raises:
    ValueError, as ``sizes_of``."""
    return GPT(**sizes_of(name))
